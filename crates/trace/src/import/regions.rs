//! Mappings for traces that contain none.

use crate::{Backing, Event, Growth, TRACE_PAGE_SHIFT};
use hashbrown::HashMap;
use superpage_pages::{Access, Protection};

/// Touched pages with at most this many untouched ones between them are one region: 1 MB.
const GAP: u64 = 256;

/// Pages of a leaf, as a power of two.
const LEAF_BITS: u32 = 6;
/// Leaves that are found without a search: those of 256 MB.
const RECENT: usize = 1024;

/// The pages that a trace touches, and which of them it fetches from.
pub(super) struct Touched {
    /// By the number of the leaf.
    leaves: HashMap<u64, Leaf>,
    /// Leaves that were accessed last, by the low bits of their number.
    recent: Box<[(u64, Leaf); RECENT]>,
}

/// Bit sets of the pages of a leaf.
#[derive(Clone, Copy, Default)]
struct Leaf {
    touched: u64,
    fetched: u64,
}

impl Default for Touched {
    fn default() -> Touched {
        Touched { leaves: HashMap::new(), recent: Box::new([(u64::MAX, Leaf::default()); RECENT]) }
    }
}

impl Touched {
    #[inline]
    pub(super) fn access(&mut self, access: Access, address: u64, bytes: u64) {
        let fetch = access == Access::Execute;
        let end = address.saturating_add(bytes.saturating_sub(1));
        for page in address >> TRACE_PAGE_SHIFT..=end >> TRACE_PAGE_SHIFT {
            let (number, bit) = (page >> LEAF_BITS, page & ((1 << LEAF_BITS) - 1));
            let (recent, Leaf { touched, fetched }) = self.recent[number as usize % RECENT];
            let known = if fetch { fetched } else { touched };
            if recent != number || known >> bit & 1 == 0 {
                self.note(number, 1 << bit, fetch);
            }
        }
    }

    #[inline(never)]
    fn note(&mut self, number: u64, page: u64, fetch: bool) {
        let leaf = self.leaves.entry(number).or_default();
        leaf.touched |= page;
        leaf.fetched |= if fetch { page } else { 0 };
        self.recent[number as usize % RECENT] = (number, *leaf);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Whether any instruction was fetched.
    pub(super) fn fetches(&self) -> bool {
        self.leaves.values().any(|leaf| leaf.fetched != 0)
    }

    /// The numbers of the pages, in any order.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> {
        self.each().map(|(page, _)| page)
    }

    /// Each page, and whether it is fetched from, in any order.
    fn each(&self) -> impl Iterator<Item = (u64, bool)> {
        self.leaves.iter().flat_map(|(number, leaf)| {
            let bits = (0..1u64 << LEAF_BITS).filter(|bit| leaf.touched >> bit & 1 != 0);
            bits.map(move |bit| (number << LEAF_BITS | bit, leaf.fetched >> bit & 1 != 0))
        })
    }

    /// A note that describes what follows, and a mapping for each region.
    pub(super) fn events(&self, format: &str) -> Vec<Event> {
        let mut pages: Vec<(u64, bool)> = self.each().collect();
        pages.sort_unstable();
        let regions = pages.chunk_by(|before, after| after.0 - before.0 <= GAP + 1);
        let maps = regions.map(|region| {
            let (first, last) = (region[0].0, region[region.len() - 1].0);
            let fetched = region.iter().any(|&(_, fetched)| fetched);
            Event::Map {
                start: first,
                pages: last - first + 1,
                protection: if fetched { Protection::ALL } else { Protection::READ_WRITE },
                shared: false,
                backing: Backing::Anonymous,
                growth: Growth::Fixed,
            }
        });
        let note = format!(
            "imported from a {format} trace, which contains no mappings: touched pages with at most {GAP} untouched ones \
             between them are taken as one anonymous mapping"
        );
        std::iter::once(Event::Note(note)).chain(maps).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gaps_are_closed_and_large_ones_kept() {
        let mut touched = Touched::default();
        let page = |number: u64| number << TRACE_PAGE_SHIFT;
        touched.access(Access::Read, page(1000), 1);
        touched.access(Access::Write, page(1000 + GAP + 1), 1);
        touched.access(Access::Execute, page(1000 + 2 * GAP + 3) - 1, 2);
        touched.access(Access::Read, page(5000), 1);
        assert!(touched.fetches());
        let maps: Vec<_> = touched
            .events("lackey")
            .into_iter()
            .filter_map(|event| match event {
                Event::Map { start, pages, protection, .. } => Some((start, pages, protection)),
                _ => None,
            })
            .collect();
        assert_eq!(maps, [(1000, 2 * GAP + 4, Protection::ALL), (5000, 1, Protection::READ_WRITE)]);
    }
}
