//! What the page daemon does before it evicts: it splits huge pages that lost pages
//! (`frame/deferred.rs`), and takes their pages of zeroes from those that are underused (Linux
//! 6.12, mm/huge_memory.c: `deferred_split_scan`). Not modelled: the zero page that Linux maps in
//! their place; that a share of the list is scanned for each share of the page lists.

use crate::object::population::NodeId;
use crate::{Memory, Pmap, Region, Vm};
use superpage_pages::{Extent, Pfn};

impl Vm {
    /// Splits huge pages that were to be split later until so many frames are available, the oldest
    /// first; and those that are underused, if that is the policy. Returns whether that freed a
    /// frame. O(pages of those that are looked at).
    pub(crate) fn split_deferred(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, target: u64) -> bool {
        let mut freed = false;
        while self.frames.available(&self.policy.answers) < target
            && let Some(taken) = self.frames.take_oldest()
        {
            freed |= match (taken, self.policy.answers.demote.underused) {
                (Ok(()), _) => true,
                (Err(extent), Some(most)) => self.split_if_underused(pmap, memory, extent, most),
                (Err(_), None) => false,
            };
        }
        freed
    }

    /// Frees the pages of zeroes of a huge page that has more than `most`, which splits it. Returns
    /// whether it did.
    fn split_if_underused(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        extent: Extent,
        most: u32,
    ) -> bool {
        let (first, pages) = (extent.start.0 as u32, self.frames.ladder.pages(extent.level) as u32);
        let whole = |node: &NodeId| {
            let population = &self.frames.population;
            let starts = population.node(node.level, node.slot).frame == first;
            node.level == extent.level.0 && starts && population.is_full(node.level, node.slot)
        };
        let Some(page) = self.frames.covering(first).filter(whole).and_then(|_| self.frames.page_of(first)) else {
            return false;
        };
        // Looking ends when so many pages are in use that the rest cannot be enough.
        let (mut zeroes, mut used) = (0, 0);
        for frame in first..first + pages {
            if used + most >= pages {
                break;
            }
            let zero = memory.is_zero(Pfn(u64::from(frame)));
            *if zero { &mut zeroes } else { &mut used } += 1;
        }
        self.frames.stats.background_scanned += u64::from(zeroes + used);
        let Some(mapping) = self.spaces.mappings(&self.objects, pmap, page, first).into_iter().next() else {
            return false;
        };
        let region = Region { space: mapping.space, start: mapping.at, level: extent.level };
        zeroes > most && self.free_zero_filled(pmap, memory, region).is_ok_and(|freed| freed > 0)
    }
}
