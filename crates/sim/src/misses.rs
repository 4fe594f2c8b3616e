//! TLB misses counted by region of the address space.

use crate::Hot;
use std::collections::BTreeMap;
use superpage_pages::{PageRange, PageSize, Vpn};

/// The misses of a simulation by region, and what was mapped there. What several processes have at
/// an address is one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MissesByRegion {
    /// Base pages of a region.
    pages: u64,
    /// Misses by the number of the region.
    misses: BTreeMap<u64, u64>,
    /// Mappings by their first page, with their ends, the last one made at a page.
    mappings: BTreeMap<u64, u64>,
}

impl MissesByRegion {
    /// None yet, by regions of `pages` base pages.
    pub(crate) fn new(pages: u64) -> MissesByRegion {
        MissesByRegion { pages, misses: BTreeMap::new(), mappings: BTreeMap::new() }
    }

    /// A request missed that is for a mapped page.
    pub(crate) fn missed(&mut self, page: Vpn) {
        *self.misses.entry(page.0 / self.pages).or_default() += 1;
    }

    /// A range was mapped.
    pub(crate) fn mapped(&mut self, PageRange { start, pages }: PageRange) {
        self.mappings.insert(start.0, start.0 + pages);
    }

    /// The regions that missed, those with most misses first.
    pub(crate) fn hot(&self, base: PageSize) -> Vec<Hot> {
        let hot = |(region, misses): (&u64, &u64)| {
            let first = region * self.pages;
            let holds = self.mappings.range(..first + self.pages).rev().find(|(_, end)| **end > first);
            let mapping = holds.map_or(0..0, |(start, end)| start * base.bytes()..end * base.bytes());
            Hot { address: first * base.bytes(), misses: *misses, mapping }
        };
        let mut all: Vec<Hot> = self.misses.iter().map(hot).collect();
        all.sort_by_key(|hot| (std::cmp::Reverse(hot.misses), hot.address));
        all
    }
}
