//! When a thread last used each page while accesses are left out, so that its next window can begin
//! with TLBs that hold what they would hold (Barr et al., ISPASS 2005: a memory timestamp record).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::leaves::{GROUP, GROUPS, LEAF_PAGES, Leaves, Zeroed, place};

/// The stamps of one thread. It alone sets them; others remove those of pages that they unmap.
pub(crate) struct Stamps(Leaves<Leaf>);

struct Leaf {
    /// When each page was last used: by loads and stores, by fetches. 0: not since the last call of
    /// `recent`.
    stamps: [[AtomicU64; LEAF_PAGES]; 2],
    /// Whether any page of a group may have stamps.
    stamped: [AtomicBool; GROUPS],
}

// SAFETY: numbers and flags.
unsafe impl Zeroed for Leaf {}

impl Leaf {
    fn may_have(&self, group: usize) -> bool {
        self.stamped[group].load(Relaxed)
    }
}

impl Stamps {
    pub(crate) const fn new() -> Stamps {
        Stamps(Leaves::new())
    }

    /// Records that a page was used at `now`, above 0, by a load or store or by a fetch.
    pub(crate) fn set(&self, page: u64, fetch: bool, now: u64) {
        let Some(leaf) = self.0.made(page) else { return };
        leaf.stamps[usize::from(fetch)][place(page)].store(now, Relaxed);
        leaf.stamped[place(page) / GROUP].store(true, Relaxed);
    }

    /// The pages used since the previous call, the most recent last; and whether by a fetch.
    pub(crate) fn recent(&self) -> Vec<(u64, bool)> {
        let mut found = Vec::new();
        for (first, leaf) in self.0.all() {
            for (group, _) in leaf.stamped.iter().enumerate().filter(|(_, stamped)| stamped.swap(false, Relaxed)) {
                for place in group * GROUP..(group + 1) * GROUP {
                    for (fetch, stamps) in [false, true].into_iter().zip(&leaf.stamps) {
                        if stamps[place].load(Relaxed) > 0 {
                            let stamp = stamps[place].swap(0, Relaxed);
                            found.push((stamp, first | place as u64, fetch));
                        }
                    }
                }
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(_, page, fetch)| (page, fetch)).collect()
    }

    /// Removes what is known of a range: of loads and stores, of fetches.
    pub(crate) fn remove(&self, start: u64, pages: u64, kinds: [bool; 2]) {
        self.0.each(start, pages, Leaf::may_have, |leaf, place| {
            let removed = leaf.stamps.iter().zip(kinds).filter(|(_, removed)| *removed);
            removed.for_each(|(stamps, _)| stamps[place].store(0, Relaxed));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_used_last_are_told_in_order_and_once() {
        static STAMPS: Stamps = Stamps::new();
        let clock = std::cell::Cell::new(0);
        let stamp = |page, fetch| {
            clock.update(|now| now + 1);
            STAMPS.set(page, fetch, clock.get());
        };
        for (page, fetch) in [(10, false), (11, true), (12, false), (10, false), (13, false), (14, true), (12, true)] {
            stamp(page, fetch);
        }
        STAMPS.remove(13, 1, [true, true]);
        STAMPS.remove(14, 1, [false, true]);
        STAMPS.remove(12, 1, [false, false]);
        assert_eq!(STAMPS.recent(), [(11, true), (12, false), (10, false), (12, true)]);
        assert_eq!(STAMPS.recent(), []);
        // An entry of a TLB may cover 512 of them, so none is left out.
        for page in (1 << 30..).take(20_000) {
            stamp(page, false);
        }
        let recent = STAMPS.recent();
        assert_eq!((recent.len(), recent[0]), (20_000, (1 << 30, false)));
        stamp(1 << 36, false);
        assert_eq!(STAMPS.recent(), [], "beyond the user's half");
    }
}
