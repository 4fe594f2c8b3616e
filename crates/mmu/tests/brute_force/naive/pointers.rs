//! Pointers to tables of the lowest level in a TLB, in place of a walk cache.

use super::{Mapping, Naive, Pointer};
use crate::reach::{Entry, SIBLING};
use superpage_mmu::Contents;

impl Naive {
    /// Looks for the pointer to the lowest table of this page, if there is one and the page is not
    /// mapped above, and loads it where it is not; returns whether it was there.
    pub(super) fn use_pointer(&mut self, page: u64, mapping: Option<(u64, Mapping)>) -> bool {
        let mut named = self.machine.walk_cache.iter().filter_map(|cache| self.machine.within(cache));
        let Some(name) = named.next().map(|tlb| tlb.name.clone()) else { return false };
        let above = mapping.is_some_and(|(_, mapping)| self.leaf_level(mapping.size) > 1);
        if above || !self.nodes.contains_key(&self.node(self.space, page, 1)) {
            return false;
        }
        let (order, space) = (self.below(2), self.own());
        let (number, pages) = (page >> order, 1 << order);
        let (first, size, contents) = (number << order, self.machine.pages.sizes[0], Contents::Pointer);
        let (_, cache) = self.tlbs.iter_mut().find(|(spec, _)| spec.name == name).unwrap();
        if cache.hit(number, |held| held.contents == contents && held.covers(space, page)).is_some() {
            return true;
        }
        cache.fill(number, Entry { space, first, pages, size, held: None, contents });
        false
    }

    /// A table is no more.
    pub(super) fn drop_pointer(&mut self, (space, level, above): Pointer) {
        let first = above << self.below(2);
        let gone = |held: Entry| (held.contents, held.space % SIBLING, held.first) == (Contents::Pointer, space, first);
        for (_, cache) in self.tlbs.iter_mut().filter(|_| level == 1) {
            cache.drop(gone);
        }
    }
}
