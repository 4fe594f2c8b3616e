//! What the keys of a row are filled from.

use crate::Sampled;
use crate::clock::Clock;
use crate::contiguity::contiguity;
use crate::cost::{Effort, KernelCycles};
use crate::estimate::{Translated, Whole};
use crate::hardware::{Hardware, Member};
use crate::host::HostCounts;
use crate::kernel::Kernel;
use crate::noted::Noted;
use superpage_mmu::{Counters, Machine};
use superpage_pages::{Counts, Level, PageSize};
use superpage_vm::Stats;

/// A simulation at a moment, as one of its machines sees it; [`Row`](crate::Row) says which key is
/// made of what.
pub(crate) struct Sources<'a> {
    pub(crate) hardware: &'a Hardware,
    pub(crate) kernel: &'a Kernel,
    pub(crate) clock: &'a Clock,
    pub(crate) noted: &'a Noted,
    pub(crate) member: &'a Member,
    pub(crate) machine: &'a Machine,
    pub(crate) stats: Stats,
    pub(crate) counters: Counters,
    pub(crate) whole: Whole,
    pub(crate) cycles: u64,
    /// All work of the kernel; in cycles, that of the daemon, and the rest.
    pub(crate) effort: Effort,
    pub(crate) daemon: KernelCycles,
    pub(crate) spent: KernelCycles,
    pub(crate) host: HostCounts,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(
        hardware: &'a Hardware,
        kernel: &'a Kernel,
        clock: &'a Clock,
        noted: &'a Noted,
        member: &'a Member,
    ) -> Sources<'a> {
        let translated = member.translated(&hardware.mmu);
        let (whole, effort) = (clock.whole(member, &translated), kernel.effort(hardware));
        let Translated { machine, counters, .. } = translated;
        Sources {
            hardware,
            kernel,
            clock,
            noted,
            member,
            machine,
            stats: kernel.vm.stats(),
            counters,
            cycles: whole.cycles(machine) + kernel.cycles(hardware, member),
            whole,
            daemon: member.kernel_cycles(&kernel.work.daemon),
            spent: member.kernel_cycles(&effort.since(&kernel.work.daemon)),
            effort,
            host: kernel.host.as_ref().map_or_else(HostCounts::default, |host| host.counts(&hardware.mmu)),
        }
    }

    pub(crate) fn bytes(&self, pages: u64) -> u64 {
        pages * self.member.setup.ladder.base().bytes()
    }

    pub(crate) fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / self.machine.clock.hertz as f64
    }

    /// Counts by level, with the sizes of the ladder.
    pub(crate) fn by_size(&self, counts: impl IntoIterator<Item = u64>) -> Vec<(PageSize, u64)> {
        self.member.setup.ladder.sizes().iter().copied().zip(counts).collect()
    }

    /// A policy with a clock acts at other times if time is an estimate.
    pub(crate) fn sampled(&self) -> Option<Sampled> {
        let sampled = self.whole.sampled.clone()?;
        Some(Sampled { kernel_exact: sampled.kernel_exact && !self.kernel.goes_by_time(), ..sampled })
    }

    /// The contiguity that is left ([`contiguity`]).
    pub(crate) fn contiguity(&self) -> f64 {
        contiguity(&self.kernel.vm, &self.member.setup.ladder, self.member.setup.frames)
    }

    /// Free extents of each size, each counted at the largest size that it has.
    pub(crate) fn free_extents(&self) -> Vec<(PageSize, u64)> {
        let (ladder, buddy) = (self.kernel.vm.ladder(), self.kernel.vm.buddy());
        // What a size has within larger extents is theirs.
        let larger = |level: Level| {
            if level.index() + 1 < ladder.len() {
                let next = Level(level.0 + 1);
                buddy.free_extents(next) * (ladder.pages(next) / ladder.pages(level))
            } else {
                0
            }
        };
        self.by_size(ladder.levels().map(|level| buddy.free_extents(level).saturating_sub(larger(level))))
    }
}

/// Recently used pages; all that are resident if there are no page lists.
pub(crate) fn active(stats: &Stats) -> u64 {
    if stats.inactive_pages + stats.cache_pages == 0 { stats.resident_pages } else { stats.active_pages }
}

/// How much more is resident than was touched, in percent; negative if memory did not hold it all
/// at once.
pub(crate) fn bloat(touched: u64, resident: u64) -> f64 {
    if touched == 0 { 0.0 } else { 100.0 * (resident as f64 / touched as f64 - 1.0) }
}
