//! The queues of pages for reclaim: lists, swap and cache pages, digests; and what the page daemon
//! remembers.

mod arrived;
pub(crate) mod digests;
mod journal;
pub(crate) mod pages;
pub(crate) mod swap_and_cache;

use superpage_pages::MAX_LEVELS;

/// What the page daemon remembers from one run to the next.
#[derive(Default)]
pub(crate) struct Daemon {
    /// The state of the generator for speculative demotions: the same history yields the same
    /// decisions.
    random: u64,
    /// By level: the value of [`Pages::changes`](pages::Pages::changes) when the whole inactive
    /// list had no more contiguity to offer.
    pub(crate) exhausted: [Option<u64>; MAX_LEVELS],
    /// How many pages were resident when memory was short and none was found that could be evicted.
    pub(crate) futile: Option<u64>,
}

impl Daemon {
    /// A page that could not be evicted may be evictable now.
    pub(crate) fn may_find(&mut self) {
        self.futile = None;
    }

    /// Decides pseudo-randomly whether to demote speculatively: the same history yields the same
    /// decisions.
    pub(crate) fn speculates(&mut self, quarters: u8) -> bool {
        match quarters {
            0 => false,
            4.. => true,
            quarters => {
                self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (self.random >> 62) < u64::from(quarters)
            }
        }
    }
}
