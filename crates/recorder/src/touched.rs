//! The pages that a process has touched and written. While a sampled recording leaves accesses out,
//! this decides whether an access is the first to its page and must be kept.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use crate::leaves::{GROUP, GROUPS, LEAF_PAGES, Leaves, Zeroed, place};

const TOUCHED: u8 = 1;
const WRITTEN: u8 = 2;
/// The page may not be read any more.
const UNREADABLE: u8 = 4;
/// Nor executed.
const NOT_EXECUTABLE: u8 = 8;

/// Marks of pages. Shared by threads: two that touch a page for the first time at once may both be
/// told that they are first.
pub(crate) struct Touched {
    leaves: Leaves<Leaf>,
    /// How often pages were forgotten or restricted.
    changes: AtomicU64,
}

struct Leaf {
    marks: [AtomicU8; LEAF_PAGES],
    /// Whether any page of a group has marks.
    marked: [AtomicBool; GROUPS],
}

// SAFETY: numbers and flags.
unsafe impl Zeroed for Leaf {}

impl Leaf {
    fn may_have(&self, group: usize) -> bool {
        self.marked[group].load(Relaxed)
    }
}

impl Touched {
    pub(crate) const fn new() -> Touched {
        Touched { leaves: Leaves::new(), changes: AtomicU64::new(0) }
    }

    /// Marks a page and returns whether that is new: not touched before, or with `write` not
    /// written before. Pages beyond 47 bits (the kernel's own) are never new.
    pub(crate) fn mark(&self, page: u64, write: bool) -> bool {
        let Some(leaf) = self.leaves.made(page) else { return false };
        let slot = &leaf.marks[place(page)];
        let old = slot.load(Relaxed);
        let new = old | if write { TOUCHED | WRITTEN } else { TOUCHED };
        if new != old {
            leaf.marked[place(page) / GROUP].store(true, Relaxed);
            slot.fetch_or(new, Relaxed);
        }
        new != old
    }

    /// The marks of a page.
    fn marks(&self, page: u64) -> u8 {
        self.leaves.of(page).map_or(0, |leaf| leaf.marks[place(page)].load(Relaxed))
    }

    /// Whether a page was written.
    pub(crate) fn is_written(&self, page: u64) -> bool {
        self.marks(page) & WRITTEN != 0
    }

    /// Whether a page was touched and may still be read or, for `fetch`, executed.
    pub(crate) fn is_usable(&self, page: u64, fetch: bool) -> bool {
        let denied = if fetch { NOT_EXECUTABLE } else { UNREADABLE };
        self.marks(page) & (TOUCHED | denied) == TOUCHED
    }

    /// A number that is another one whenever pages were forgotten or restricted.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Applies new rights to a range.
    pub(crate) fn restrict(&self, start: u64, pages: u64, read: bool, execute: bool) {
        let denied = if read { 0 } else { UNREADABLE } | if execute { 0 } else { NOT_EXECUTABLE };
        self.leaves.each(start, pages, Leaf::may_have, |leaf, place| {
            let old = leaf.marks[place].fetch_and(TOUCHED | WRITTEN, Relaxed);
            if old != 0 {
                leaf.marks[place].fetch_or(denied, Relaxed);
            }
        });
        self.changes.fetch_add(1, SeqCst);
    }

    /// Forgets a range of pages: what is touched there next is new.
    pub(crate) fn forget(&self, start: u64, pages: u64) {
        self.leaves.each(start, pages, Leaf::may_have, |leaf, place| leaf.marks[place].store(0, Relaxed));
        self.changes.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaves::ALL_PAGES;

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
    fn a_page_is_usable_once_touched_as_its_rights_allow() {
        static TOUCHED: Touched = Touched::new();
        let usable = || [false, true].map(|fetch| TOUCHED.is_usable(9, fetch));
        assert_eq!(usable(), [false; 2]);
        TOUCHED.mark(9, false);
        assert_eq!(usable(), [true; 2]);
        TOUCHED.restrict(9, 1, true, false);
        assert_eq!(usable(), [true, false]);
        TOUCHED.restrict(9, 1, false, true);
        assert_eq!(usable(), [false, true]);
        TOUCHED.restrict(9, 1, true, true);
        assert_eq!(usable(), [true; 2]);
        TOUCHED.forget(9, 1);
        assert_eq!(usable(), [false; 2]);
    }

    #[test]
    fn a_forgotten_range_is_news_again_and_its_neighbours_are_not() {
        static TOUCHED: Touched = Touched::new();
        let start = LEAF_PAGES as u64 - 2;
        for page in start - 1..start + 5 {
            TOUCHED.mark(page, true);
        }
        TOUCHED.forget(start, 4);
        let news: Vec<bool> = (start - 1..start + 5).map(|page| TOUCHED.mark(page, false)).collect();
        assert_eq!(news, [false, true, true, true, true, false]);
        TOUCHED.forget(0, ALL_PAGES);
        assert!(TOUCHED.mark(start, false));
    }
}
