//! What is kept by frame: superpages and dirty bits of mappings, pages that nobody touched, and
//! what goes with a page that moves.

use crate::frame::Frames;
use crate::frame::bitmap::Bitmap;
use crate::object::population::{NONE, NodeId, Walk};
use crate::object::{ObjectId, Objects};
use crate::{PAGES_LIMIT, Used};
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Extent, Level, PageSize, Pfn};

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
        runs.into_iter().flatten().collect()
    }

    /// Whether the contents of the page in the frame differ from its backing store, apart from what
    /// the dirty bits of its mappings say; `false` where there are no page lists.
    pub(crate) fn is_dirty(&self, frame: u32) -> bool {
        self.pages.as_ref().is_some_and(|pages| pages.dirty(frame))
    }

    /// Whether the page in the frame was populated although nobody touched it.
    pub(crate) fn is_untouched(&self, frame: u32) -> bool {
        self.untouched.as_ref().is_some_and(|untouched| untouched.contains(frame as usize))
    }

    /// Records that a page was populated in the frame although nobody touched it.
    pub(crate) fn frame_used_untouched(&mut self, frame: u32) {
        let peak = self.stats.peak_touched_pages;
        self.frame_used(frame);
        self.note_untouched(frame..frame + 1, peak);
    }

    /// As the above, for frames side by side.
    pub(crate) fn frames_used_untouched(&mut self, frames: Range<u32>) {
        let count = u64::from(frames.end - frames.start);
        if count == 0 {
            return;
        }
        let peak = self.stats.peak_touched_pages;
        self.list_used(frames.clone());
        self.stats.touched_pages += count;
        self.stats.resident_pages += count;
        self.stats.peak_resident_pages = self.stats.peak_resident_pages.max(self.stats.resident_pages);
        self.note_untouched(frames, peak);
    }

    /// Changes the pages of frames from touched to untouched; `peak`: the most that were touched
    /// before.
    pub(super) fn note_untouched(&mut self, frames: Range<u32>, peak: u64) {
        if self.untouched.is_none() {
            self.untouched = Bitmap::new(self.buddy.frames() as usize).ok();
        }
        if let Some(untouched) = &mut self.untouched {
            let count = frames.len();
            untouched.insert_run(frames.start as usize, count);
            self.stats.touched_pages -= count as u64;
            self.stats.peak_touched_pages = peak;
            self.stats.untouched_pages += count as u64;
        }
    }

    /// Gives a base page to somebody else. Returns `false`, with nothing changed, if it is not
    /// free, or there is no memory for the bitmap.
    pub(crate) fn hold(&mut self, frame: Pfn) -> bool {
        let extent = Extent { start: frame, level: Level::BASE };
        if self.foreign.is_none() && self.buddy.is_free(extent) {
            self.foreign = Bitmap::new(self.buddy.frames() as usize).ok();
        }
        let taken = self.foreign.is_some() && self.buddy.allocate_at(extent);
        if taken {
            self.taken(extent);
            self.foreign_moved(None, frame.0 as u32);
        }
        taken
    }

    /// Somebody else's page is in this frame now.
    pub(crate) fn foreign_moved(&mut self, from: Option<u32>, to: u32) {
        let foreign = self.foreign.as_mut().expect("there is one");
        from.into_iter().for_each(|from| foreign.remove(from as usize));
        foreign.insert(to as usize);
        self.stats.foreign_frames = foreign.count() as u64;
    }

    pub(crate) fn is_foreign(&self, frame: u32) -> bool {
        self.foreign.as_ref().is_some_and(|foreign| foreign.contains(frame as usize))
    }

    /// The frames of somebody else, ascending.
    pub(crate) fn held(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.foreign.iter().flat_map(Bitmap::iter).map(|frame| Pfn(frame as u64))
    }

    /// What is kept by frame goes with a page that moves.
    pub(crate) fn frame_moved(&mut self, from: u32, to: u32) {
        if let Some(pages) = &mut self.pages {
            pages.transfer(from, to);
        }
        self.digests.moved(from, to);
        if let Some(untouched) = &mut self.untouched
            && untouched.contains(from as usize)
        {
            untouched.remove(from as usize);
            untouched.insert(to as usize);
        }
    }

    /// A node has its extent, or one of its pages its frame, elsewhere.
    pub(crate) fn place_moved(&mut self, NodeId { level, slot }: NodeId, position: u32, of: Level, to: u32) {
        if of == Level::BASE {
            self.set_single(slot, position, to);
        } else {
            debug_assert_eq!(self.population.node(level, slot).reservation, NONE);
            self.take_extent(level, slot);
            self.set_extent(level, slot, to);
        }
    }
}
