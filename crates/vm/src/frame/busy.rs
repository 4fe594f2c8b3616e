//! Busy pages: populated, while their contents are still being read from a slow store. They are not
//! mapped, nothing takes them away, and whoever needs one waits. The word is FreeBSD's.

use crate::PAGES_LIMIT;
use crate::object::{ObjectId, PageOf};
use core::ops::Range;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The busy pages, by frame: as many as there are reads under way.
#[derive(Default)]
pub(crate) struct Busy {
    pages: HashMap<u32, Reading, FxBuildHasher>,
}

/// A read that is under way.
#[derive(Clone, Copy)]
struct Reading {
    /// The page that is being read in.
    page: PageOf,
    /// The object whose backing store is read, which may be one behind the page's own.
    from: ObjectId,
}

impl Busy {
    /// Whether no read is under way: the first test of every fault on a populated page.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub(crate) fn contains(&self, frame: u32) -> bool {
        !self.is_empty() && self.pages.contains_key(&frame)
    }

    /// The frames and pages that are busy.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, PageOf)> + '_ {
        self.pages.iter().map(|(frame, reading)| (*frame, reading.page))
    }

    /// The lowest frame of a busy page among the pages of an object with these indices, or of one
    /// that is being read from what the object has in its backing store. O(reads under way).
    pub(crate) fn of(&self, object: ObjectId, pages: &Range<u64>) -> Option<u32> {
        let concerns = |reading: &Reading| {
            (reading.page.object == object || reading.from == object) && pages.contains(&reading.page.index)
        };
        self.pages.iter().filter(|(_, reading)| concerns(reading)).map(|(frame, _)| *frame).min()
    }

    /// As the above, for all pages of an object.
    pub(crate) fn of_all(&self, object: ObjectId) -> Option<u32> {
        self.of(object, &(0..PAGES_LIMIT))
    }

    /// The frame into which the page of this index is being read from the backing store of
    /// `object`.
    pub(crate) fn reading(&self, object: ObjectId, index: u64) -> Option<u32> {
        let reads = |reading: &Reading| reading.from == object && reading.page.index == index;
        self.pages.iter().find(|(_, reading)| reads(reading)).map(|(frame, _)| *frame)
    }

    pub(crate) fn begin(&mut self, page: PageOf, from: ObjectId, frame: u32) {
        self.pages.insert(frame, Reading { page, from });
    }

    /// Ends the read into a frame, and returns the page.
    pub(crate) fn end(&mut self, frame: u32) -> Option<PageOf> {
        self.pages.remove(&frame).map(|reading| reading.page)
    }

    /// The number of reads under way.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pages.allocation_size()
    }
}
