//! Switches to other spaces: what TLBs hold of others.

use super::Naive;
use crate::reach::SIBLING;
use std::collections::BTreeSet;
use superpage_pages::Access;

impl Naive {
    pub(crate) fn switch(&mut self, space: u32) {
        if space == self.space {
            return;
        }
        self.space = space;
        self.history.push(space);
        self.keep_spaces();
        let bits = self.machine.spaces.number_bits;
        let flush = if bits == 0 {
            true
        } else if self.numbered.contains(&space) {
            false
        } else {
            let exhausted = self.numbered.len() as u64 == 1 << bits;
            if exhausted {
                self.numbered.clear();
            }
            self.numbered.insert(space);
            exhausted
        };
        if flush {
            self.counts.flushes += 1;
            self.flush_all();
        }
    }

    /// Another hardware thread of the core goes on.
    pub(crate) fn go_to(&mut self, sibling: u32) {
        let next = self.others.remove(&sibling).unwrap_or((0, BTreeSet::from([0]), vec![0]));
        if sibling != self.sibling {
            let before = std::mem::replace(&mut self.sibling, sibling);
            let (space, numbered, history) = next;
            let numbered = std::mem::replace(&mut self.numbered, numbered);
            let history = std::mem::replace(&mut self.history, history);
            self.others.insert(before, (std::mem::replace(&mut self.space, space), numbered, history));
        }
    }

    /// Drops what walks of the hardware thread that runs have found.
    pub(super) fn flush_walk_caches(&mut self) {
        let sibling = self.sibling;
        self.walk_caches.iter_mut().for_each(|(_, cache)| _ = cache.drop(|held| held.0 / SIBLING == sibling));
        self.drop_all_blocks();
    }

    /// Another core has asked for this page: its walk may have made a root, and its access sets use
    /// bits.
    pub(crate) fn made_elsewhere(&mut self, space: u32, page: u64, access: Access) {
        self.forgotten = None;
        let Some((first, mapping)) = self.mapping(space, page) else {
            return self.make(self.node(space, page, self.levels()));
        };
        if mapping.protection.allows(access) {
            let mapping = self.mappings.get_mut(&(space, first)).expect("it was found");
            mapping.referenced = true;
            mapping.dirty |= access == Access::Write;
        }
    }

    /// Drops all of a space that has changed while another ran here, and what walks have found.
    pub(crate) fn come_back(&mut self, space: u32) {
        let own = space + self.sibling * SIBLING;
        self.tlbs.iter_mut().for_each(|(_, cache)| _ = cache.drop(|held| held.space == own));
        self.flush_walk_caches();
    }

    /// Some TLBs keep only entries of the spaces that were current last.
    fn keep_spaces(&mut self) {
        for index in 0..self.tlbs.len() {
            let outer = self.tlbs[index].0.clone();
            let Some(most) = outer.spaces else { continue };
            let mut kept: Vec<u32> = Vec::new();
            for space in self.history.iter().rev() {
                if kept.len() < most && !kept.contains(space) {
                    kept.push(*space);
                }
            }
            for (other, (spec, cache)) in self.tlbs.iter_mut().enumerate() {
                if other == index || outer.inclusive && Naive::is_inner(spec, &outer) {
                    cache.drop(|held| held.space / SIBLING == self.sibling && !kept.contains(&(held.space % SIBLING)));
                }
            }
        }
    }
}
