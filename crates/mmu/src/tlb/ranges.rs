//! The range TLB: fully associative, with LRU, beside the TLBs of the last level and looked up
//! together with these. An entry translates a range of pages of any length. Karakostas et al.,
//! Redundant memory mappings, ISCA 2015.
//!
//! A hit serves a miss of the nearer levels; the TLB beside it is used if it has the page too, and
//! else not filled. Where both miss, the page table is walked, and the range of the page, if it is
//! in one, is loaded meanwhile: the walk of the range table is not counted. What is held was one
//! range when it was loaded, so where ranges have grown together it may be a part of one, but no
//! two entries have a page in common.

use crate::mappings::Mappings;
use std::ops::Range;
use superpage_pages::Vpn;

/// What it holds, the entry used last first.
#[derive(Clone, Debug)]
pub(crate) struct RangeTlb {
    entries: Vec<(u32, Range<u64>)>,
    most: usize,
}

impl RangeTlb {
    /// An empty one of so many entries.
    pub(crate) fn new(most: usize) -> RangeTlb {
        RangeTlb { entries: Vec::with_capacity(most), most }
    }

    /// The entries that it has, in use or not.
    pub(crate) fn entries(&self) -> usize {
        self.most
    }

    /// Uses the entry that has this page; returns whether there is one.
    pub(crate) fn hit(&mut self, space: u32, page: Vpn) -> bool {
        let Some(at) = self.entries.iter().position(|(of, pages)| *of == space && pages.contains(&page.0)) else {
            return false;
        };
        self.entries[..=at].rotate_right(1);
        true
    }

    /// Loads the range of this page, which no entry has, in place of entries that were parts of it.
    pub(crate) fn fill(&mut self, mappings: &Mappings, space: u32, page: Vpn) {
        if let Some(range) = mappings.range(space, page) {
            self.forget(space, &range);
            self.entries.truncate(self.most - 1);
            self.entries.insert(0, (space, range));
        }
    }

    /// Drops entries that have one of these pages; returns their number.
    pub(crate) fn forget(&mut self, space: u32, pages: &Range<u64>) -> u64 {
        let before = self.entries.len();
        self.entries.retain(|(of, held)| *of != space || held.end <= pages.start || pages.end <= held.start);
        (before - self.entries.len()) as u64
    }

    /// The order of the smallest aligned block around this page in which it has another page than
    /// these.
    pub(crate) fn held_around(&self, space: u32, page: Vpn, own: &Range<u64>) -> Option<u32> {
        let ranges = self.entries.iter().filter(|(of, _)| *of == space);
        let others = ranges.flat_map(|(_, held)| {
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

    /// Empties it.
    pub(crate) fn flush(&mut self) {
        self.entries.clear();
    }

    /// The number of entries in use.
    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Checks that each entry is within a range, and that no two have a page in common.
    pub(crate) fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        for (at, (space, held)) in self.entries.iter().enumerate() {
            let range = mappings.range(*space, Vpn(held.start));
            if range.is_none_or(|range| held.start < range.start || range.end < held.end) {
                return Err(format!("the range TLB holds {held:?} of space {space}, which is no range"));
            }
            let meets =
                |(of, other): &(u32, Range<u64>)| of == space && held.start < other.end && other.start < held.end;
            if self.entries[at + 1..].iter().any(meets) || self.entries.len() > self.most {
                return Err(format!("the range TLB holds {held:?} of space {space} twice, or too much"));
            }
        }
        Ok(())
    }
}
