//! The pages that a process has touched and written. While a sampled recording leaves accesses out,
//! this decides whether an access is the first to its page and must be kept. It also records the
//! order in which pages were last used meanwhile, so that the next window can begin with TLBs that
//! hold what they would hold (Barr et al., ISPASS 2005: a memory timestamp record).

use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::SeqCst,
};

const LEAF_BITS: u32 = 18;
const LEAF_PAGES: usize = 1 << LEAF_BITS;
const LEAVES: usize = 1 << 17;
/// Pages of a leaf are looked for in groups of so many.
const GROUP: usize = 512;

const LEAF: std::alloc::Layout = std::alloc::Layout::new::<Leaf>();

const TOUCHED: u8 = 1;
const WRITTEN: u8 = 2;
/// The page may not be read any more.
const UNREADABLE: u8 = 4;
/// Nor executed.
const NOT_EXECUTABLE: u8 = 8;

/// Marks and stamps of pages for 47 bits of address, in leaves of 1 GB allocated at the first
/// touch. Shared by threads: two that touch a page for the first time at once may both be told that
/// they are first, and have equal stamps.
pub(crate) struct Touched {
    leaves: [AtomicPtr<Leaf>; LEAVES],
    /// A time that some thread's clock has reached.
    clock: AtomicU64,
    /// How often pages were forgotten or restricted.
    changes: AtomicU64,
}

/// Marks and stamps are apart: marks are waited for, and so should be near; stamps are only
/// written.
struct Leaf {
    marks: [AtomicU8; LEAF_PAGES],
    /// When each page was last used: by loads and stores, by fetches. 0: not since the last call of
    /// `recent`.
    stamps: [[AtomicU64; LEAF_PAGES]; 2],
    /// Whether any page of a group has marks, and whether any may have stamps.
    marked: [AtomicBool; LEAF_PAGES / GROUP],
    stamped: [AtomicBool; LEAF_PAGES / GROUP],
}

impl Touched {
    pub(crate) const fn new() -> Touched {
        let leaves = [const { AtomicPtr::new(std::ptr::null_mut()) }; LEAVES];
        Touched { leaves, clock: AtomicU64::new(0), changes: AtomicU64::new(0) }
    }

    /// Marks a page and returns whether that is new: not touched before, or with `write` not
    /// written before. Pages beyond 47 bits (the kernel's own) are never new.
    pub(crate) fn mark(&self, page: u64, write: bool) -> bool {
        let Some(leaf) = self.leaf_made(page) else { return false };
        let slot = &leaf.marks[page as usize % LEAF_PAGES];
        let old = slot.load(Relaxed);
        let new = old | if write { TOUCHED | WRITTEN } else { TOUCHED };
        if new != old {
            leaf.marked[page as usize % LEAF_PAGES / GROUP].store(true, Relaxed);
            slot.fetch_or(new, Relaxed);
        }
        new != old
    }

    /// Whether a page was written.
    pub(crate) fn is_written(&self, page: u64) -> bool {
        self.leaf(page).is_some_and(|leaf| leaf.marks[page as usize % LEAF_PAGES].load(Relaxed) & WRITTEN != 0)
    }

    /// Records that a page was used at `now`, by a load or store or by a fetch; ignored if it may
    /// not be used any more or was never touched.
    pub(crate) fn stamp(&self, page: u64, fetch: bool, now: u64) {
        let Some(leaf) = self.leaf(page) else { return };
        let place = page as usize % LEAF_PAGES;
        let denied = if fetch { NOT_EXECUTABLE } else { UNREADABLE };
        if leaf.marks[place].load(Relaxed) & (TOUCHED | denied) == TOUCHED {
            leaf.stamps[usize::from(fetch)][place].store(now, Relaxed);
            leaf.stamped[place / GROUP].store(true, Relaxed);
        }
    }

    /// The latest time of the threads' clocks that is known: of those compared before, and `own`.
    pub(crate) fn compare_clocks(&self, own: u64) -> u64 {
        own.max(self.clock.fetch_max(own, Relaxed))
    }

    /// A number that is another one whenever pages were forgotten or restricted.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// The pages used since the previous call, the most recent last; and whether by a fetch.
    pub(crate) fn recent(&self) -> Vec<(u64, bool)> {
        let mut found = Vec::new();
        for index in 0..LEAVES as u64 {
            let Some(leaf) = self.leaf(index << LEAF_BITS) else { continue };
            for (group, _) in leaf.stamped.iter().enumerate().filter(|(_, stamped)| stamped.swap(false, Relaxed)) {
                for place in group * GROUP..(group + 1) * GROUP {
                    for (fetch, stamps) in [false, true].into_iter().zip(&leaf.stamps) {
                        if stamps[place].load(Relaxed) > 0 {
                            let stamp = stamps[place].swap(0, Relaxed);
                            found.push((stamp, index << LEAF_BITS | place as u64, fetch));
                        }
                    }
                }
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(_, page, fetch)| (page, fetch)).collect()
    }

    /// Applies new rights to a range: pages that may no longer be read, or executed, do not count
    /// as recently used.
    pub(crate) fn restrict(&self, start: u64, pages: u64, read: bool, execute: bool) {
        let denied = if read { 0 } else { UNREADABLE } | if execute { 0 } else { NOT_EXECUTABLE };
        self.each(start, pages, |leaf, page| {
            let old = leaf.marks[page].fetch_and(TOUCHED | WRITTEN, Relaxed);
            if old != 0 {
                leaf.marks[page].fetch_or(denied, Relaxed);
            }
            for (may, stamps) in [read, execute].into_iter().zip(&leaf.stamps) {
                if !may {
                    stamps[page].store(0, Relaxed);
                }
            }
        });
    }

    /// Forgets a range of pages: what is touched there next is new.
    pub(crate) fn forget(&self, start: u64, pages: u64) {
        self.each(start, pages, |leaf, page| {
            leaf.marks[page].store(0, Relaxed);
            leaf.stamps.iter().for_each(|stamps| stamps[page].store(0, Relaxed));
        });
    }

    /// Changes the pages of a range that may have marks.
    fn each(&self, start: u64, pages: u64, change: impl Fn(&Leaf, usize)) {
        let end = start.saturating_add(pages).min((LEAVES * LEAF_PAGES) as u64);
        let mut page = start;
        while page < end {
            let Some(leaf) = self.leaf(page) else {
                page = (page | (LEAF_PAGES as u64 - 1)) + 1;
                continue;
            };
            let stop = end.min((page | (GROUP as u64 - 1)) + 1);
            if leaf.marked[page as usize % LEAF_PAGES / GROUP].load(Relaxed) {
                (page..stop).for_each(|page| change(leaf, page as usize % LEAF_PAGES));
            }
            page = stop;
        }
        self.changes.fetch_add(1, SeqCst);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.forget(0, (LEAVES * LEAF_PAGES) as u64);
    }

    /// What is known of a page that has been touched, and of its neighbours.
    fn leaf(&self, page: u64) -> Option<&Leaf> {
        let pointer = self.leaves.get((page >> LEAF_BITS) as usize)?.load(Acquire);
        // SAFETY: a pointer here is null or is that of a leaf of zeroes made in `leaf_made`, which
        // is a valid value, and is never freed while `self` lives.
        unsafe { pointer.as_ref() }
    }

    /// The same, for a page that is touched now.
    fn leaf_made(&self, page: u64) -> Option<&Leaf> {
        let place = self.leaves.get((page >> LEAF_BITS) as usize)?;
        if let Some(leaf) = self.leaf(page) {
            return Some(leaf);
        }
        // SAFETY: the layout has a size.
        let fresh: *mut Leaf = unsafe { std::alloc::alloc_zeroed(LEAF) }.cast();
        if fresh.is_null() {
            return None;
        }
        if place.compare_exchange(std::ptr::null_mut(), fresh, AcqRel, Acquire).is_err() {
            // SAFETY: another thread was first; nobody has seen `fresh`.
            unsafe { std::alloc::dealloc(fresh.cast(), LEAF) };
        }
        self.leaf(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_news_once_for_a_touch_and_once_for_a_write() {
        static TOUCHED: Touched = Touched::new();
        assert!(TOUCHED.mark(7, false));
        assert!(!TOUCHED.mark(7, false));
        assert!(!TOUCHED.is_written(7));
        assert!(TOUCHED.mark(7, true));
        assert!(!TOUCHED.mark(7, true));
        assert!(TOUCHED.is_written(7));
        assert!(TOUCHED.mark(1 << 34, true));
        assert!(!TOUCHED.mark(1 << 34, false));
        assert!(!TOUCHED.mark(1 << 36, true), "beyond the user's half");
    }

    #[test]
    fn the_pages_used_last_are_told_in_order_and_once() {
        static TOUCHED: Touched = Touched::new();
        let clock = std::cell::Cell::new(0);
        let stamp = |page, fetch| {
            clock.update(|now| now + 1);
            TOUCHED.stamp(page, fetch, clock.get());
        };
        for page in 10..20 {
            TOUCHED.mark(page, false);
        }
        for (page, fetch) in [(10, false), (11, true), (12, false), (10, false), (13, false), (14, true), (12, true)] {
            stamp(page, fetch);
        }
        stamp(5 << LEAF_BITS, false);
        TOUCHED.forget(13, 1);
        TOUCHED.restrict(14, 1, true, false);
        assert_eq!(TOUCHED.recent(), [(11, true), (12, false), (10, false), (12, true)]);
        assert_eq!(TOUCHED.recent(), []);
        stamp(14, true);
        assert_eq!(TOUCHED.recent(), [], "not what may not be executed");
        TOUCHED.restrict(14, 1, true, true);
        stamp(14, true);
        assert_eq!(TOUCHED.recent(), [(14, true)]);
        // An entry of a TLB may cover 512 of them, so none is left out.
        for page in (1 << 30..).take(20_000) {
            TOUCHED.mark(page, false);
            stamp(page, false);
        }
        let recent = TOUCHED.recent();
        assert_eq!((recent.len(), recent[0]), (20_000, (1 << 30, false)));
    }

    #[test]
    fn a_forgotten_range_is_news_again_and_its_neighbours_are_not() {
        static TOUCHED: Touched = Touched::new();
        let start = (1 << LEAF_BITS) - 2;
        for page in start - 1..start + 5 {
            TOUCHED.mark(page, true);
        }
        TOUCHED.forget(start, 4);
        let news: Vec<bool> = (start - 1..start + 5).map(|page| TOUCHED.mark(page, false)).collect();
        assert_eq!(news, [false, true, true, true, true, false]);
        TOUCHED.clear();
        assert!(TOUCHED.mark(start, false));
    }
}
