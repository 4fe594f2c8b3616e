//! What the TLBs hold around a page, block by block.

use super::Naive;
use superpage_mmu::Contents;

impl Naive {
    /// The order of the smallest aligned block around the page in which another mapping is held.
    pub(crate) fn held_around(&self, page: u64) -> Option<u32> {
        let own =
            self.mapping(self.space, page).map_or((page, 1), |(first, mapping)| (first, self.pages(mapping.size)));
        let (own, end) = (own.0, own.0 + own.1);
        (0..64).find(|order| {
            let first = page >> order << order;
            // The parts of the block before and behind the mapping.
            let parts = [(first, own), (end, first + (1 << order))];
            parts.into_iter().filter(|(from, to)| from < to).any(|(from, to)| {
                let mut held = self.tlbs.iter().flat_map(|(_, tlb)| tlb.entries());
                let kinds = [Contents::Mapping, Contents::Pages];
                held.any(|entry| kinds.contains(&entry.contents) && entry.meets(self.space, from, to - from))
                    || self.ranges.as_ref().is_some_and(|ranges| ranges.meet(self.space, from, to))
            })
        })
    }
}
