//! What an entry of a TLB covers, once more: as pages, with nothing packed.

use superpage_mmu::Machine;
use superpage_pages::PageSize;

/// A TLB entry: pages of a space, within one mapping of this size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) space: u32,
    pub(crate) first: u64,
    pub(crate) pages: u64,
    pub(crate) size: PageSize,
}

impl Entry {
    /// Whether it covers the page.
    pub(crate) fn covers(&self, space: u32, page: u64) -> bool {
        self.space == space && (self.first..self.first + self.pages).contains(&page)
    }

    /// Whether it covers any of the pages.
    pub(crate) fn meets(&self, space: u32, first: u64, pages: u64) -> bool {
        self.space == space && self.first < first + pages && first < self.first + self.pages
    }
}

/// The size of what is looked up where a page of this size is mapped: which TLBs hold it, and what number selects the set.
pub(crate) fn translated(machine: &Machine, size: PageSize) -> PageSize {
    match &machine.host {
        None => size,
        Some(host) => size.min(host.backs_by.unwrap_or(machine.pages.sizes[0])),
    }
}

/// A new entry for this page, mapped by one of this size.
pub(crate) fn entry(machine: &Machine, space: u32, page: u64, size: PageSize) -> Entry {
    let pages = translated(machine, size).bytes() / machine.pages.sizes[0].bytes();
    Entry { space, first: page / pages * pages, pages, size }
}
