//! What frames keep of the mappings of their pages: superpages by node, dirty bits; and who holds a
//! page that is looked for.

use crate::frame::Frames;
use crate::object::population::Walk;
use crate::object::{ObjectId, Objects};
use crate::{PAGES_LIMIT, Used};
use alloc::vec::Vec;
use superpage_pages::{Level, PageSize};

impl Frames {
    /// The level of a size that a page table returned. Page tables only hold sizes that this
    /// manager entered.
    pub(crate) fn level(&self, size: PageSize) -> Level {
        self.ladder.level(size).expect("a page table holds only sizes of the ladder")
    }

    /// The walk to the page in the first object of a chain that has it: populated, cached or in
    /// swap space.
    pub(crate) fn holder(&self, objects: &Objects, front: ObjectId, index: u64) -> Option<Walk> {
        let mut walks = objects.chain(front).map(|object| self.population.walk(object, index));
        let swap_and_cache = &self.swap_and_cache;
        let elsewhere = |page| swap_and_cache.cached(page).is_some() || swap_and_cache.slot(page).is_some();
        walks.find(|walk| walk.populated || !swap_and_cache.is_empty() && elsewhere(walk.page))
    }

    /// Counts a superpage that maps the region of a level on a path, none of which was mapped.
    pub(crate) fn note_superpage(&mut self, objects: &Objects, walk: &Walk, level: Level, at_fault: bool) {
        let stats = &mut self.stats;
        stats.mapped[level.index()] += 1;
        stats.promotions[level.index()] += 1;
        stats.promotions_at_fault += u64::from(at_fault);
        if objects.get(walk.page.object).sole {
            self.count_superpage(walk, level, 1);
            self.count_children(walk, level, 0);
        }
    }

    /// For an object of one mapping: changes the count of superpages at `level` on the path.
    pub(crate) fn count_superpage(&mut self, walk: &Walk, level: Level, change: i32) {
        if level.0 < self.population.top {
            let parent = self.population.node_mut(level.0 + 1, walk.slots[level.index() + 1]);
            parent.extra = parent.extra.wrapping_add_signed(change);
        }
    }

    /// For an object of one mapping: sets how many children of the node at `level` on the path are
    /// mapped by superpages.
    pub(crate) fn count_children(&mut self, walk: &Walk, level: Level, count: u32) {
        if level.0 > 1 {
            self.population.node_mut(level.0, walk.slots[level.index()]).extra = count;
        }
    }

    /// Keeps the dirty bit of a mapping of `count` frames that was removed, in the state of those
    /// frames.
    #[inline]
    pub(crate) fn note_modified(&mut self, used: Used, first: u32, count: u64) {
        let listed = used.modified && !self.in_pool(first);
        if let Some(pages) = &mut self.pages
            && listed
        {
            (first..first + count as u32).for_each(|frame| pages.set_dirty(frame, true));
        }
    }

    /// The indices of the populated pages of an object, ascending.
    pub(crate) fn populated(&self, object: ObjectId) -> Vec<u64> {
        let mut runs = Vec::new();
        self.population.runs(object, 0, PAGES_LIMIT, &mut runs);
        runs.into_iter().flat_map(|(from, to)| from..to).collect()
    }
}
