//! What the keys of a row are filled from.

use crate::cost::{Effort, Kernel};
use crate::estimate::{Translated, Whole};
use crate::group::Member;
use crate::host::HostCounts;
use crate::simulation::Simulation;
use crate::{Row, Sampled};
use superpage_mmu::{Counters, Machine};
use superpage_pages::{Counts, PageSize};
use superpage_vm::Stats;

/// A simulation at a moment, as one of its machines sees it; [`Row`] says which key is made of
/// what.
pub(crate) struct Sources<'a> {
    pub(crate) run: &'a Simulation,
    pub(crate) member: &'a Member,
    pub(crate) machine: &'a Machine,
    pub(crate) stats: Stats,
    pub(crate) counters: &'a Counters,
    pub(crate) whole: Whole,
    pub(crate) cycles: u64,
    /// All work of the kernel; in cycles, that of the daemon, and the rest.
    pub(crate) effort: Effort,
    pub(crate) daemon: Kernel,
    pub(crate) kernel: Kernel,
    pub(crate) host: HostCounts,
}

impl Sources<'_> {
    pub(crate) fn bytes(&self, pages: u64) -> u64 {
        pages * self.run.setup.ladder.base().bytes()
    }

    pub(crate) fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / self.machine.clock.hertz as f64
    }

    /// Counts by level, with the sizes of the ladder.
    pub(crate) fn by_size(&self, counts: impl IntoIterator<Item = u64>) -> Vec<(PageSize, u64)> {
        self.run.setup.ladder.sizes().iter().copied().zip(counts).collect()
    }

    /// A policy with a clock acts at other times if time is an estimate.
    pub(crate) fn sampled(&self) -> Option<Sampled> {
        let sampled = self.whole.sampled.clone()?;
        Some(Sampled { kernel_exact: sampled.kernel_exact && !self.run.goes_by_time(), ..sampled })
    }

    /// What went wrong, in its order.
    pub(crate) fn error(&self) -> Option<String> {
        let outcome = &self.run.outcome;
        let errors: Vec<&str> = outcome.reasons.iter().chain(&outcome.failed).map(String::as_str).collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }
}

impl Simulation {
    /// The counts so far on a machine.
    pub(crate) fn row(&self, member: &Member) -> Row {
        self.with_sources(member, Row::of).rated().timed(&member.latencies())
    }

    /// What is made of the state on a machine.
    pub(crate) fn with_sources<T>(&self, member: &Member, make: impl Fn(&Sources<'_>) -> T) -> T {
        let translated = member.translated(&self.mmu);
        let Translated { counters, .. } = &translated;
        let (whole, effort) = (self.whole(member, &translated), self.effort());
        make(&Sources {
            run: self,
            member,
            machine: &member.setup.machine,
            stats: self.vm.stats(),
            counters,
            cycles: self.cycles(member, &whole),
            whole,
            daemon: member.kernel(&self.work.daemon),
            kernel: member.kernel(&effort.since(&self.work.daemon)),
            effort,
            host: self.host.as_ref().map_or_else(HostCounts::default, |host| host.counts(&self.mmu)),
        })
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
