//! What an entry of a TLB covers, once more: as pages, with nothing packed.

use superpage_mmu::{Contents, Machine};
use superpage_pages::PageSize;

/// Where hardware threads share a TLB, the space of an entry is that of its thread: the number of
/// the space, and so often this as the thread's number says.
pub(crate) const SIBLING: u32 = 1 << 16;

/// A TLB entry: pages of a space, within one mapping of this size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) space: u32,
    pub(crate) first: u64,
    pub(crate) pages: u64,
    pub(crate) size: PageSize,
    /// If it holds several mappings, which of the pages.
    pub(crate) held: Option<u64>,
    pub(crate) contents: Contents,
}

impl Entry {
    /// Whether it covers the page.
    pub(crate) fn covers(&self, space: u32, page: u64) -> bool {
        let within = self.space == space && (self.first..self.first + self.pages).contains(&page);
        within && self.held.is_none_or(|held| held >> (page - self.first) & 1 != 0)
    }

    /// Whether it covers any of the pages.
    pub(crate) fn meets(&self, space: u32, first: u64, pages: u64) -> bool {
        let overlap = (self.first.max(first), (self.first + self.pages).min(first + pages));
        match self.held {
            None => self.space == space && overlap.0 < overlap.1,
            Some(_) => (overlap.0..overlap.1).any(|page| self.covers(space, page)),
        }
    }
}

/// An entry that holds these pages of the block of `pages` that they are in.
pub(crate) fn joint(space: u32, pages: u64, held: &[u64], base: PageSize) -> Entry {
    let first = held[0] / pages * pages;
    let held = held.iter().fold(0, |set, page| set | 1 << (page - first));
    Entry { space, first, pages, size: base, held: Some(held), contents: Contents::Pages }
}

/// The size of what is looked up where a page of this size is mapped: which TLBs hold it, and what
/// number selects the set.
pub(crate) fn translated(machine: &Machine, size: PageSize) -> PageSize {
    match &machine.host {
        None => size,
        Some(host) => size.min(host.backs_by.unwrap_or(machine.pages.sizes[0])),
    }
}

/// A new entry for the aligned pages around this one, in a mapping of this size.
pub(crate) fn entry((space, page): (u32, u64), pages: u64, size: PageSize) -> Entry {
    Entry { space, first: page / pages * pages, pages, size, held: None, contents: Contents::Mapping }
}
