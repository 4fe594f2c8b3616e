//! The pages that a process has touched and written. While a sampled recording leaves accesses out, this decides
//! whether an access is the first to its page and must be kept. It also records the order in which pages were last used
//! meanwhile, so that the next window can begin with TLBs that hold what they would hold (Barr et al., ISPASS 2005: a
//! memory timestamp record).

use crate::schedule::RECENT;
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering::Relaxed};

const LEAF_BITS: u32 = 18;
const LEAF_PAGES: usize = 1 << LEAF_BITS;
const LEAVES: usize = 1 << 17;

const LEAF: std::alloc::Layout = std::alloc::Layout::new::<Leaf>();

const TOUCHED: u8 = 1;
const WRITTEN: u8 = 2;

/// Marks and stamps of pages for 47 bits of address, in leaves of 1 GB allocated at the first touch. Shared by threads:
/// two that touch a page for the first time at once may both be told that they are first, and have equal stamps.
pub(crate) struct Touched {
    leaves: [AtomicPtr<Leaf>; LEAVES],
    /// A stamp that some thread has reached; see [`Clock`].
    clock: AtomicU32,
    /// How often `recent` was called, modulo 2^32.
    era: AtomicU32,
}

/// Marks and stamps are apart: marks are waited for, and so should be near; stamps are only written.
pub(crate) struct Leaf {
    marks: [AtomicU8; LEAF_PAGES],
    /// When each page was last used: by loads and stores, by fetches. 0: not since the last call of `recent`.
    stamps: [[AtomicU32; LEAF_PAGES]; 2],
}

impl Leaf {
    /// Whether a page has been touched or, with `write`, written.
    #[inline(always)]
    pub(crate) fn is_known(&self, page: u64, write: bool) -> bool {
        self.marks[page as usize % LEAF_PAGES].load(Relaxed) & if write { WRITTEN } else { TOUCHED } != 0
    }

    /// Records that a page was used at `now`, by a load or store or by a fetch.
    #[inline(always)]
    pub(crate) fn stamp(&self, page: u64, fetch: bool, now: u32) {
        self.stamps[usize::from(fetch)][page as usize % LEAF_PAGES].store(now, Relaxed);
    }
}

/// A thread's own clock for stamps. Threads compare theirs only now and then, so that they need not wait for each other's memory:
/// stamps of one thread are in order, and those of two differ by no more than [`TOGETHER`] from it.
pub(crate) struct Clock {
    now: Cell<u32>,
    era: Cell<u32>,
}

/// So many ticks pass before a thread looks at the clocks of others.
const TOGETHER: u32 = 1024;

impl Clock {
    pub(crate) const fn new() -> Clock {
        Clock { now: Cell::new(0), era: Cell::new(0) }
    }

    /// Two ticks: the stamps for what was used before, and for what is used now. After 2^32 ticks all later uses are
    /// equally recent.
    #[inline(always)]
    pub(crate) fn tick(&self, touched: &Touched) -> [u32; 2] {
        let now = self.now.get();
        if now.is_multiple_of(TOGETHER) || self.era.get() != touched.era.load(Relaxed) {
            self.compare(touched);
        }
        let next = self.now.get().saturating_add(2);
        self.now.set(next);
        [next - 1, next]
    }

    #[cold]
    #[inline(never)]
    fn compare(&self, touched: &Touched) {
        let era = touched.era.load(Relaxed);
        let own = if self.era.replace(era) == era { self.now.get() } else { 0 };
        self.now.set(own.max(touched.clock.fetch_max(own, Relaxed)));
    }
}

impl Touched {
    pub(crate) const fn new() -> Touched {
        let leaves = [const { AtomicPtr::new(std::ptr::null_mut()) }; LEAVES];
        Touched { leaves, clock: AtomicU32::new(0), era: AtomicU32::new(0) }
    }

    /// Marks a page and returns whether that is new: not touched before, or with `write` not written before. Pages
    /// beyond 47 bits (the kernel's own) are never new.
    pub(crate) fn mark(&self, page: u64, write: bool) -> bool {
        let Some(slot) = self.slot(page) else { return false };
        let old = slot.load(Relaxed);
        let new = old | if write { TOUCHED | WRITTEN } else { TOUCHED };
        if new != old {
            slot.fetch_or(new, Relaxed);
        }
        new != old
    }

    /// The pages used last since the previous call, at most [`RECENT`], the most recent last; and whether by a fetch.
    pub(crate) fn recent(&self) -> Vec<(u64, bool)> {
        let mut found = Vec::new();
        for index in 0..LEAVES as u64 {
            let Some(leaf) = self.leaf(index << LEAF_BITS) else { continue };
            for (fetch, stamps) in [false, true].into_iter().zip(&leaf.stamps) {
                for (page, stamp) in stamps.iter().enumerate().filter(|(_, stamp)| stamp.load(Relaxed) > 0) {
                    found.push((stamp.swap(0, Relaxed), index << LEAF_BITS | page as u64, fetch));
                }
            }
        }
        self.clock.store(0, Relaxed);
        self.era.fetch_add(1, Relaxed);
        found.sort_unstable();
        found.drain(..found.len().saturating_sub(RECENT));
        found.into_iter().map(|(_, page, fetch)| (page, fetch)).collect()
    }

    /// Applies new rights to a range: pages that may no longer be read, or executed, do not count as recently used.
    pub(crate) fn restrict(&self, start: u64, pages: u64, read: bool, execute: bool) {
        for (may, stamps) in [read, execute].into_iter().zip(0..) {
            if !may {
                self.each(start, pages, |leaf, page| leaf.stamps[stamps][page].store(0, Relaxed));
            }
        }
    }

    /// Forgets a range of pages: what is touched there next is new.
    pub(crate) fn forget(&self, start: u64, pages: u64) {
        self.each(start, pages, |leaf, page| {
            leaf.marks[page].store(0, Relaxed);
            leaf.stamps.iter().for_each(|stamps| stamps[page].store(0, Relaxed));
        });
    }

    fn each(&self, start: u64, pages: u64, change: impl Fn(&Leaf, usize)) {
        let end = start.saturating_add(pages).min((LEAVES * LEAF_PAGES) as u64);
        let mut page = start;
        while page < end {
            let stop = end.min((page | (LEAF_PAGES as u64 - 1)) + 1);
            if let Some(leaf) = self.leaf(page) {
                (page..stop).for_each(|page| change(leaf, page as usize % LEAF_PAGES));
            }
            page = stop;
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for index in 0..LEAVES as u64 {
            self.forget(index << LEAF_BITS, LEAF_PAGES as u64);
        }
    }

    /// What is known of a page that has been touched, and of its neighbours.
    #[inline(always)]
    pub(crate) fn leaf(&self, page: u64) -> Option<&Leaf> {
        let pointer = self.leaves.get((page >> LEAF_BITS) as usize)?.load(std::sync::atomic::Ordering::Acquire);
        // SAFETY: a pointer here is null or is that of a leaf of zeroes made in `slot`, which is a valid value,
        // and is never freed while `self` lives.
        unsafe { pointer.as_ref() }
    }

    fn slot(&self, page: u64) -> Option<&AtomicU8> {
        let place = self.leaves.get((page >> LEAF_BITS) as usize)?;
        let leaf = match self.leaf(page) {
            Some(leaf) => leaf,
            None => {
                // SAFETY: the layout has a size.
                let fresh: *mut Leaf = unsafe { std::alloc::alloc_zeroed(LEAF) }.cast();
                if fresh.is_null() {
                    return None;
                }
                let swap = place.compare_exchange(
                    std::ptr::null_mut(),
                    fresh,
                    std::sync::atomic::Ordering::AcqRel,
                    std::sync::atomic::Ordering::Acquire,
                );
                if swap.is_err() {
                    // SAFETY: another thread was first; nobody has seen `fresh`.
                    unsafe { std::alloc::dealloc(fresh.cast(), LEAF) };
                }
                self.leaf(page)?
            }
        };
        Some(&leaf.marks[page as usize % LEAF_PAGES])
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
        let known = |page| [false, true].map(|write| TOUCHED.leaf(page).unwrap().is_known(page, write));
        assert_eq!(known(7), [true, false]);
        assert!(TOUCHED.mark(7, true));
        assert!(!TOUCHED.mark(7, true));
        assert_eq!(known(7), [true, true]);
        assert!(TOUCHED.mark(1 << 34, true));
        assert!(!TOUCHED.mark(1 << 34, false));
        assert!(!TOUCHED.mark(1 << 36, true), "beyond the user's half");
    }

    #[test]
    fn the_pages_used_last_are_told_in_order_and_once() {
        static TOUCHED: Touched = Touched::new();
        let clock = Clock::new();
        let stamp = |page, fetch| {
            let [_, now] = clock.tick(&TOUCHED);
            TOUCHED.leaf(page).inspect(|leaf| leaf.stamp(page, fetch, now));
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
        TOUCHED.mark(1 << 30, false);
        (0..RECENT as u64 + 5).for_each(|page| stamp((1 << 30) + page, false));
        let recent = TOUCHED.recent();
        assert_eq!((recent.len(), recent[0]), (RECENT, ((1 << 30) + 5, false)));
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
