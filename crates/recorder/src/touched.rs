//! Which pages a process has touched and written: what decides, while a sampled recording leaves accesses out, that an
//! access is the first to its page and must stay.

use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed};

const LEAF_BITS: u32 = 18;
const LEAF_PAGES: usize = 1 << LEAF_BITS;
const LEAVES: usize = 1 << 17;

const LEAF: std::alloc::Layout = std::alloc::Layout::new::<Leaf>();

const TOUCHED: u8 = 1;
const WRITTEN: u8 = 2;

/// Two bits a page for 47 bits of address, in leaves of 1 GB that come with the first touch. Shared by threads: two that
/// touch a page for the first time at once may both be told so.
pub(crate) struct Touched {
    leaves: [AtomicPtr<Leaf>; LEAVES],
}

struct Leaf([AtomicU8; LEAF_PAGES]);

impl Touched {
    pub(crate) const fn new() -> Touched {
        Touched { leaves: [const { AtomicPtr::new(std::ptr::null_mut()) }; LEAVES] }
    }

    /// Marks a page and returns whether that is news: not touched before, or with `write` not written before. Pages
    /// beyond 47 bits (the kernel's own) are never news.
    pub(crate) fn mark(&self, page: u64, write: bool) -> bool {
        let Some(slot) = self.slot(page) else { return false };
        let old = slot.load(Relaxed);
        let new = old | if write { TOUCHED | WRITTEN } else { TOUCHED };
        if new != old {
            slot.fetch_or(new, Relaxed);
        }
        new != old
    }

    /// Whether a page has been touched, and whether it has been written.
    #[inline]
    pub(crate) fn known(&self, page: u64) -> (bool, bool) {
        let marks = self.leaf(page).map_or(0, |leaf| leaf.0[page as usize % LEAF_PAGES].load(Relaxed));
        (marks & TOUCHED != 0, marks & WRITTEN != 0)
    }

    /// Forgets a range of pages: what is touched there next is new.
    pub(crate) fn forget(&self, start: u64, pages: u64) {
        let end = start.saturating_add(pages).min((LEAVES * LEAF_PAGES) as u64);
        let mut page = start;
        while page < end {
            let stop = end.min((page | (LEAF_PAGES as u64 - 1)) + 1);
            if let Some(leaf) = self.leaf(page) {
                for page in page..stop {
                    leaf.0[page as usize % LEAF_PAGES].store(0, Relaxed);
                }
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

    fn leaf(&self, page: u64) -> Option<&Leaf> {
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
        Some(&leaf.0[page as usize % LEAF_PAGES])
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
        assert_eq!(TOUCHED.known(7), (true, false));
        assert!(TOUCHED.mark(7, true));
        assert!(!TOUCHED.mark(7, true));
        assert_eq!(TOUCHED.known(7), (true, true));
        assert!(TOUCHED.mark(1 << 34, true));
        assert!(!TOUCHED.mark(1 << 34, false));
        assert!(!TOUCHED.mark(1 << 36, true), "beyond the user's half");
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
