//! Mappings for traces that contain none.

use crate::{Backing, Event, Growth, TRACE_PAGE_SHIFT};
use hashbrown::HashMap;
use superpage_pages::{Access, Protection};

/// Touched pages with at most so many untouched ones between them are one region: 1 MB.
const GAP: u64 = 256;

/// The pages that a trace touches, and which of them it fetches from.
#[derive(Default)]
pub(super) struct Touched {
    fetched: HashMap<u64, bool>,
    /// The page of the previous access of each kind of stream.
    last: [Option<u64>; 2],
}

impl Touched {
    pub(super) fn access(&mut self, access: Access, address: u64, bytes: u64) {
        let fetch = access == Access::Execute;
        let end = address.saturating_add(bytes.saturating_sub(1));
        for page in address >> TRACE_PAGE_SHIFT..=end >> TRACE_PAGE_SHIFT {
            let last = &mut self.last[usize::from(fetch)];
            if *last != Some(page) {
                *last = Some(page);
                *self.fetched.entry(page).or_default() |= fetch;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fetched.is_empty()
    }

    /// Whether any instruction was fetched.
    pub(super) fn fetches(&self) -> bool {
        self.fetched.values().any(|&fetched| fetched)
    }

    /// The numbers of the pages, in any order.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> {
        self.fetched.keys().copied()
    }

    /// A note that describes what follows, and a mapping for each region.
    pub(super) fn events(&self, format: &str) -> Vec<Event> {
        let mut pages: Vec<(u64, bool)> = self.fetched.iter().map(|(&page, &fetched)| (page, fetched)).collect();
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
