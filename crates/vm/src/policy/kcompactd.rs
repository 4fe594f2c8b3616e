//! Linux's kcompactd, which `thp` wakes where `defrag` is `defer` or `defer+madvise`: a fault that
//! found no extent does not wait; the thread compacts until one of that size is free, so that a
//! later fault finds it. After failures it is put off, as direct compaction is. Not modelled:
//! kswapd, which Linux wakes first, and which may evict pages for it; compaction for more than one
//! extent at a time (`compaction_proactiveness`).

use super::backoff::Backoff;
use crate::System;
use superpage_pages::{Hint, Level};

#[derive(Debug)]
pub(super) struct Kcompactd {
    /// Whether faults in memory for which the program asks for huge pages wake it too.
    for_all: bool,
    /// The largest size that a fault wanted in vain since the last call.
    wanted: Level,
    backoff: Backoff,
}

impl Kcompactd {
    /// For faults everywhere, or only where the program does not ask for huge pages.
    pub(super) fn for_all(for_all: bool) -> Kcompactd {
        Kcompactd { for_all, wanted: Level::BASE, backoff: Backoff::default() }
    }

    /// Whether it has work.
    pub(super) fn is_woken(&self) -> bool {
        self.wanted > Level::BASE
    }

    /// A fault wanted an extent of this level, and got less.
    pub(super) fn starved(&mut self, level: Level, hint: Hint) {
        if self.for_all || hint != Hint::Huge {
            self.wanted = self.wanted.max(level);
        }
    }

    pub(super) fn work(&mut self, system: &mut dyn System) {
        let level = core::mem::replace(&mut self.wanted, Level::BASE);
        if level > Level::BASE && system.free_extents(level) == Some(0) && !self.backoff.skips() {
            let free = system.compact(level, None).is_some_and(|compacted| compacted.free);
            self.backoff.ended(free);
        }
    }
}
