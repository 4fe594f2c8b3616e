//! A value for each piece of 1 GB of the program's memory, made when it is first needed.

use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};

const LEAF_BITS: u32 = 18;
/// The pages of a leaf.
pub(crate) const LEAF_PAGES: usize = 1 << LEAF_BITS;
/// Leaves for 47 bits of address: those beyond are the kernel's.
const LEAVES: usize = 1 << 17;
/// All pages that have a leaf.
pub(crate) const ALL_PAGES: u64 = (LEAVES * LEAF_PAGES) as u64;
/// Pages of a leaf are looked for in groups of so many.
pub(crate) const GROUP: usize = 512;
/// The groups of a leaf.
pub(crate) const GROUPS: usize = LEAF_PAGES / GROUP;

/// What a leaf may be.
///
/// # Safety
/// All zeroes must be a valid value, and the type must have a size.
pub(crate) unsafe trait Zeroed {}

/// The leaves by their places. Any thread may add one.
pub(crate) struct Leaves<T>([AtomicPtr<T>; LEAVES]);

impl<T: Zeroed> Leaves<T> {
    /// None yet.
    pub(crate) const fn new() -> Leaves<T> {
        Leaves([const { AtomicPtr::new(std::ptr::null_mut()) }; LEAVES])
    }

    /// The leaf of a page, if it was made.
    pub(crate) fn of(&self, page: u64) -> Option<&T> {
        let pointer = self.0.get((page >> LEAF_BITS) as usize)?.load(Acquire);
        // SAFETY: a pointer here is null or is that of a leaf of zeroes made in `made`, which is a
        // valid value, and is never freed while `self` lives.
        unsafe { pointer.as_ref() }
    }

    /// The leaf of a page, made now if it was not; `None` beyond 47 bits, or without memory.
    pub(crate) fn made(&self, page: u64) -> Option<&T> {
        let place = self.0.get((page >> LEAF_BITS) as usize)?;
        if let Some(leaf) = self.of(page) {
            return Some(leaf);
        }
        let layout = std::alloc::Layout::new::<T>();
        // SAFETY: the layout has a size.
        let fresh: *mut T = unsafe { std::alloc::alloc_zeroed(layout) }.cast();
        if fresh.is_null() {
            return None;
        }
        if place.compare_exchange(std::ptr::null_mut(), fresh, AcqRel, Acquire).is_err() {
            // SAFETY: another thread was first; nobody has seen `fresh`.
            unsafe { std::alloc::dealloc(fresh.cast(), layout) };
        }
        self.of(page)
    }

    /// All that were made, each with its first page.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &T)> {
        let pages = (0..ALL_PAGES).step_by(LEAF_PAGES);
        pages.filter_map(|page| self.of(page).map(|leaf| (page, leaf)))
    }

    /// Calls `change` with each page of a range whose leaf was made and whose group, by its number
    /// in the leaf, `may` have something.
    pub(crate) fn each(&self, start: u64, pages: u64, may: impl Fn(&T, usize) -> bool, change: impl Fn(&T, usize)) {
        let end = start.saturating_add(pages).min(ALL_PAGES);
        let mut page = start;
        while page < end {
            let Some(leaf) = self.of(page) else {
                page = (page | (LEAF_PAGES as u64 - 1)) + 1;
                continue;
            };
            let stop = end.min((page | (GROUP as u64 - 1)) + 1);
            if may(leaf, place(page) / GROUP) {
                (page..stop).for_each(|page| change(leaf, place(page)));
            }
            page = stop;
        }
    }
}

/// The place of a page in its leaf.
pub(crate) const fn place(page: u64) -> usize {
    page as usize % LEAF_PAGES
}
