//! The kernel's work that its memory manager does not count.

use crate::cost::Effort;
use superpage_pages::{Ladder, MAX_LEVELS, PageSize};
use superpage_vm::Vm;

/// The part of the kernel's work that is not done at faults and calls, and what the memory manager
/// does not count.
#[derive(Default)]
pub(crate) struct Work {
    /// By the daemon, or the background of the policy.
    pub(crate) daemon: Effort,
    /// The part of it that another core can do: all but runs of the daemon that a request for
    /// memory waits for.
    pub(crate) movable: Effort,
    /// The background's part, and the modelled time from which it can be called again, in
    /// nanoseconds: when its last call was, or is over on another core.
    pub(crate) background: Effort,
    pub(crate) background_free: u64,
    /// The locks of the last call of the background, on another core.
    pub(crate) hold: Option<Hold>,
    /// Cycles that the program waited for it, and that it cost at misses.
    pub(crate) waited: u64,
    /// How often it was called while programs had memory.
    pub(crate) background_runs: u64,
    /// Bytes that were copied, without those that the memory manager counts.
    pub(crate) copied_bytes: u64,
    /// Pages hashed by the idle loop.
    pub(crate) idle_hashed: u64,
    pub(crate) unmapped_accesses: u64,
    pub(crate) widened_rights: u64,
    /// Calls that would have cut a page of the static pool.
    pub(crate) pool_refusals: u64,
}

impl Work {
    /// When the next call of the policy's background is due, if it is ever called.
    pub(crate) fn due(&self, vm: &Vm) -> Option<u64> {
        vm.due().map(|due| due.max(self.background_free))
    }
}

/// What a background on a core of its own holds while it promotes and demotes, one region after the
/// other: faults wait until it is done with the region. In cycles of modelled time.
#[derive(Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// How long it takes for each region.
    pub(crate) each: u64,
}

/// The most that was in use within a part of the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    pub(crate) resident_pages: u64,
    mapped_pages: u64,
    mapped: [u64; MAX_LEVELS],
}

impl Peak {
    /// Updates the peak: called before anything is removed, and at the part's end.
    pub(crate) fn note(&mut self, vm: &Vm) {
        let (stats, ladder) = (vm.stats(), vm.ladder());
        self.resident_pages = self.resident_pages.max(stats.resident_pages);
        let mapped = ladder.levels().map(|level| stats.mapped[level.index()] * ladder.pages(level)).sum();
        if mapped >= self.mapped_pages {
            (self.mapped_pages, self.mapped) = (mapped, stats.mapped);
        }
    }

    /// Mapped pages of each size when most were mapped.
    pub(crate) fn pages(&self, ladder: &Ladder) -> Vec<(PageSize, u64)> {
        ladder.sizes().iter().copied().zip(self.mapped).collect()
    }
}
