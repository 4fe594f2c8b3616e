//! The range TLB: fully associative, with LRU, beside the TLBs of the last level and looked up
//! together with these. An entry translates a range of pages of any length. Karakostas et al.,
//! Redundant memory mappings, ISCA 2015.
//!
//! A hit here serves a miss of the nearer levels; the TLB beside it counts a use if it has the page
//! too, and is not filled otherwise. Where both miss, the page table is walked, and meanwhile the
//! range of the page, if it is in one, is loaded; that walk of the range table is not counted. An
//! entry was a whole range when it was loaded. Where ranges have grown together since, it is a part
//! of one, but no two entries have a page in common.

use crate::mappings::{Mappings, SpacePages};
use std::ops::Range;
use superpage_pages::Vpn;

/// The entries, last used first.
#[derive(Clone, Debug)]
pub(crate) struct RangeTlb {
    /// Each with the hardware thread whose it is.
    entries: Vec<(u32, SpacePages)>,
    most: usize,
    /// The current hardware thread of the core.
    sibling: u32,
}

impl RangeTlb {
    /// An empty one with room for `most` entries.
    pub(crate) fn new(most: usize) -> RangeTlb {
        RangeTlb { entries: Vec::with_capacity(most), most, sibling: 0 }
    }

    /// The number of entries, in use or not.
    pub(crate) fn entries(&self) -> usize {
        self.most
    }

    /// Serves this hardware thread from now on.
    pub(crate) fn set_sibling(&mut self, sibling: u32) {
        self.sibling = sibling;
    }

    /// Uses the entry that has this page; returns whether there is one.
    pub(crate) fn hit(&mut self, space: u32, page: Vpn) -> bool {
        let has = |held: &SpacePages| held.space == space && held.pages.contains(&page.0);
        let of = self.sibling;
        let Some(at) = self.entries.iter().position(|(sibling, held)| *sibling == of && has(held)) else {
            return false;
        };
        self.entries[..=at].rotate_right(1);
        true
    }

    /// Loads the range of this page, which no entry has, in place of entries that were parts of it.
    pub(crate) fn fill(&mut self, mappings: &Mappings, space: u32, page: Vpn) {
        if let Some(pages) = mappings.range(space, page) {
            let of = self.sibling;
            self.entries.retain(|(sibling, held)| *sibling != of || !held.meets(space, &pages));
            self.entries.truncate(self.most - 1);
            self.entries.insert(0, (of, SpacePages { space, pages }));
        }
    }

    /// Drops entries that have one of these pages; returns their number.
    pub(crate) fn forget(&mut self, space: u32, pages: &Range<u64>) -> u64 {
        let before = self.entries.len();
        self.entries.retain(|(_, held)| !held.meets(space, pages));
        (before - self.entries.len()) as u64
    }

    /// The order of the smallest aligned block around this page in which it has another page than
    /// these.
    pub(crate) fn held_around(&self, space: u32, page: Vpn, own: &Range<u64>) -> Option<u32> {
        let ranges = self.entries.iter().map(|(_, held)| held).filter(|held| held.space == space);
        let others = ranges.flat_map(|SpacePages { pages: held, .. }| {
            [held.start..held.end.min(own.start), held.start.max(own.end)..held.end]
                .into_iter()
                .filter(|part| !part.is_empty())
        });
        let order = |part: Range<u64>| {
            // The page of it that is nearest to this one is at one of its ends, as it lies on one
            // side.
            let nearest = if part.end <= page.0 { part.end - 1 } else { part.start };
            u64::BITS - (nearest ^ page.0).leading_zeros()
        };
        others.map(order).min()
    }

    /// Drops all of the current hardware thread.
    pub(crate) fn flush(&mut self) {
        let of = self.sibling;
        self.entries.retain(|(sibling, _)| *sibling != of);
    }

    /// The number of entries in use.
    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Checks that each entry is within a range, and that no two have a page in common.
    pub(crate) fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        for (at, (of, SpacePages { space, pages: held })) in self.entries.iter().enumerate() {
            let range = mappings.range(*space, Vpn(held.start));
            if range.is_none_or(|range| held.start < range.start || range.end < held.end) {
                return Err(format!("the range TLB holds {held:?} of space {space}, which is no range"));
            }
            let twice = self.entries[at + 1..].iter().any(|(by, other)| by == of && other.meets(*space, held));
            if twice || self.entries.len() > self.most {
                return Err(format!("the range TLB holds {held:?} of space {space} twice, or too much"));
            }
        }
        Ok(())
    }
}
