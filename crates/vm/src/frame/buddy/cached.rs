//! Cache pages in the buddy allocator (Navarro et al., section 5.1): frames that are clean and
//! unmapped, and whose contents are still good.
//!
//! A mark says that a frame holds one. It stays through [`Buddy::allocate`] and [`Buddy::free`]
//! until the owner of the contents drops them, because taking an extent as a reservation does not
//! yet overwrite its frames. A maximal free extent with a marked frame is in the ordered set of its
//! size ([`Aged`]), every other one in the plain bitmap, and none in both. The marks and the sets
//! are allocated at the first mark: a manager without a page cache has none.

use super::aged::Aged;
use super::{Buddy, FREE_ALREADY, Tier};
use crate::frame::bitmap::Bitmap;
use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::{Extent, Level, Pfn};

/// The cache pages and the free extents that contain any.
#[derive(Clone)]
pub(super) struct Cached {
    /// The frames that hold one, free or not.
    marks: Bitmap,
    /// How many of the free frames are marked.
    free_marks: u64,
    /// For each size of the ladder, its maximal free extents with a mark.
    aged: Vec<Aged>,
    /// The stamp of the last extent that became free: a count of them.
    now: u64,
}

impl PartialEq for Cached {
    fn eq(&self, other: &Cached) -> bool {
        self.marks == other.marks && self.aged.iter().zip(&other.aged).all(|(one, two)| one.by_age().eq(two.by_age()))
    }
}

impl Cached {
    /// With nothing marked, for memory of these tiers.
    pub(super) fn new(tiers: &[Tier]) -> Result<Cached, TryReserveError> {
        let aged = tiers.iter().map(|tier| Aged::new(tier.plain.len())).collect::<Result<_, _>>()?;
        Ok(Cached { marks: Bitmap::new(tiers[0].plain.len())?, free_marks: 0, aged, now: 0 })
    }

    /// The maximal free extents of this level that have cache pages.
    #[inline]
    pub(super) fn aged(&self, level: usize) -> &Aged {
        &self.aged[level]
    }

    /// Whether nothing is marked.
    pub(super) fn is_empty(&self) -> bool {
        self.marks.count() == 0
    }

    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let aged: usize = self.aged.iter().map(|aged| size_of::<Aged>() + aged.bytes()).sum();
        size_of::<Cached>() + self.marks.bytes() + aged
    }

    /// The number of marks in extent `index` of `1 << order` frames. Cost: one word if there is
    /// none, else one per 64 frames.
    fn marks_in(&self, index: usize, order: u32) -> u64 {
        let start = index << order;
        if self.marks.is_clear(start, order) { 0 } else { self.marks.count_group(start, order) as u64 }
    }

    /// A new stamp.
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
}

impl Buddy {
    /// Like [`Buddy::free`], but marks every frame of the extent as holding a cache page. Cost: as
    /// there, one word per 64 frames, and at the first call O(frames / 64). Navarro et al., section
    /// 5.1 (1).
    ///
    /// Panics as `free` does, and if the marks cannot be allocated at the first call.
    pub fn free_cached(&mut self, extent: Extent) {
        self.check_taken(extent);
        self.check_not_aged(extent);
        let order = self.ladder.order(extent.level);
        self.with_cached().marks.fill_group(extent.start.0 as usize, order);
        self.put_back(extent);
    }

    /// Whether the frame, free or allocated, is marked as holding a cache page. False for a frame
    /// that is not in this memory. Cost: one word.
    #[inline]
    pub fn is_cached(&self, frame: Pfn) -> bool {
        frame.0 < self.frames && self.cached.as_ref().is_some_and(|cached| cached.marks.contains(frame.0 as usize))
    }

    /// Marks a frame, free or allocated, as holding a cache page. A maximal free extent that had
    /// none becomes, now, one with cache pages. Does nothing if it is marked already. Cost: O(L),
    /// and for a free frame an insertion into the order.
    ///
    /// Panics if memory has no such frame, or if the marks cannot be allocated at the first call.
    pub fn mark_cached(&mut self, frame: Pfn) {
        assert!(frame.0 < self.frames, "cannot mark {frame:?}: there are {} frames", self.frames);
        let holder = self.holder(Extent { start: frame, level: Level::BASE });
        self.with_cached();
        let Some(cached) = &mut self.cached else { return };
        if cached.marks.contains(frame.0 as usize) {
            return;
        }
        cached.marks.insert(frame.0 as usize);
        let Some(level) = holder else { return };
        cached.free_marks += 1;
        let tier = &mut self.tiers[level];
        let index = tier.index(frame);
        if tier.plain.contains(index) {
            tier.remove(index);
            let now = cached.tick();
            cached.aged[level].insert(index, now);
        }
    }

    /// Clears the mark of a frame, free or allocated: its cache page is gone, or in use again. If
    /// it was the last of a maximal free extent, that becomes one without cache pages. Does nothing
    /// if it is not marked. Cost: O(L), and for a free frame a removal from the order.
    pub fn forget_cached(&mut self, frame: Pfn) {
        if !self.is_cached(frame) {
            return;
        }
        let holder = self.holder(Extent { start: frame, level: Level::BASE });
        let Some(cached) = &mut self.cached else { return };
        cached.marks.remove(frame.0 as usize);
        let Some(level) = holder else { return };
        cached.free_marks -= 1;
        let tier = &mut self.tiers[level];
        let index = tier.index(frame);
        if cached.marks.is_clear(index << tier.order, tier.order) {
            cached.aged[level].remove(index);
            tier.insert(index);
        }
    }

    /// The number of frames, free or allocated, that are marked as holding a cache page.
    pub fn cached_frames(&self) -> u64 {
        self.cached.as_ref().map_or(0, |cached| cached.marks.count() as u64)
    }

    /// The number of free frames that hold no cache page. Cost: O(L).
    pub fn plain_frames(&self) -> u64 {
        self.free_frames() - self.cached.as_ref().map_or(0, |cached| cached.free_marks)
    }

    /// The marked frames of an extent, free or allocated, ascending; empty for what is not an
    /// extent of this memory. Cost: one word per 64 frames.
    pub fn cached_in(&self, extent: Extent) -> impl Iterator<Item = Pfn> {
        let cached = self.cached.as_ref().filter(|_| self.has(extent));
        cached.into_iter().flat_map(move |cached| {
            let order = self.ladder.order(extent.level);
            cached.marks.iter_group(extent.start.0 as usize, order).map(|frame| Pfn(frame as u64))
        })
    }

    /// The state of cache pages, which is made if there is none.
    fn with_cached(&mut self) -> &mut Cached {
        let (tiers, frames) = (&self.tiers, self.frames);
        self.cached.get_or_insert_with(|| {
            let cached = Cached::new(tiers);
            Box::new(cached.unwrap_or_else(|_| panic!("no memory for the marks of cache pages in {frames} frames")))
        })
    }

    /// [`Buddy::free`] where there are cache pages.
    #[inline(never)]
    pub(super) fn free_marked(&mut self, extent: Extent) {
        self.check_taken(extent);
        self.check_not_aged(extent);
        self.put_back(extent);
    }

    /// Panics if a frame of `extent` is free in an extent with cache pages.
    fn check_not_aged(&self, extent: Extent) {
        let Some(cached) = &self.cached else { return };
        let at = extent.level.index();
        let order = self.tiers[at].order;
        let not_aged = self.tiers.iter().zip(&cached.aged).enumerate().all(|(level, (tier, aged))| {
            let index = tier.index(extent.start);
            if level < at { aged.bits().is_clear(index, order - tier.order) } else { !aged.bits().contains(index) }
        });
        if !not_aged {
            self.refuse(extent, FREE_ALREADY);
        }
    }

    /// Frees `extent`, none of whose frames is free, where there are cache pages, and coalesces it.
    /// If the resulting extent has a cache page, it becomes free now.
    fn put_back(&mut self, extent: Extent) {
        let Some(cached) = &mut self.cached else { return };
        let mut level = extent.level.index();
        let tier = &mut self.tiers[level];
        let index = tier.index(extent.start);
        let marks = cached.marks_in(index, tier.order);
        if marks == 0 {
            tier.insert(index);
        } else {
            cached.free_marks += marks;
            let now = cached.tick();
            cached.aged[level].insert(index, now);
        }
        loop {
            let tier = &self.tiers[level];
            let first = tier.first_sibling(tier.index(extent.start));
            if !self.is_whole(level, first) {
                return;
            }
            let (Some(cached), ratio) = (&mut self.cached, tier.ratio) else { return };
            self.tiers[level].clear_siblings(first);
            let marked = cached.aged[level].remove_group(first, ratio);
            level += 1;
            if marked {
                let now = cached.tick();
                cached.aged[level].insert(first >> ratio, now);
            } else {
                self.tiers[level].insert(first >> ratio);
            }
        }
    }

    /// [`Buddy::allocate`] where there are cache pages.
    #[inline(never)]
    pub(super) fn allocate_by_age(&mut self, level: Level) -> Option<Extent> {
        for from in level.index()..self.tiers.len() {
            let tier = &mut self.tiers[from];
            if let Some(index) = tier.pop_first() {
                let extent = Extent { start: Pfn((index as u64) << tier.order), level };
                self.split(from, extent);
                return Some(extent);
            }
            let oldest = self.allocate_oldest(from, level);
            if oldest.is_some() {
                return oldest;
            }
        }
        None
    }

    /// Takes an extent of `level` out of the oldest extent with cache pages of the size `from`,
    /// where there is no free extent from `level` up to below `from`, and none of size `from`
    /// without cache pages.
    fn allocate_oldest(&mut self, from: usize, level: Level) -> Option<Extent> {
        let (mut index, stamp) = self.cached.as_mut()?.aged[from].pop_oldest()?;
        for at in (level.index()..from).rev() {
            let first = index << self.tiers[at].ratio;
            self.spread(at, first, stamp);
            let tier = &mut self.tiers[at];
            if let Some(piece) = tier.pop_first() {
                let extent = Extent { start: Pfn((piece as u64) << tier.order), level };
                self.split(at, extent);
                return Some(extent);
            }
            index = self.cached.as_mut()?.aged[at].pop_oldest()?.0;
        }
        let (order, cached) = (self.tiers[level.index()].order, self.cached.as_mut()?);
        cached.free_marks -= cached.marks_in(index, order);
        Some(Extent { start: Pfn((index as u64) << order), level })
    }

    /// Takes this very extent out of the one with cache pages, of level `from`, that holds it.
    pub(super) fn allocate_aged(&mut self, from: usize, extent: Extent) {
        let whole = self.tiers[from].index(extent.start);
        let Some(cached) = &mut self.cached else { return };
        let stamp = cached.aged[from].remove(whole);
        for at in (extent.level.index()..from).rev() {
            let piece = self.tiers[at].index(extent.start);
            self.spread(at, self.tiers[at].first_sibling(piece), stamp);
            let (tier, Some(cached)) = (&mut self.tiers[at], &mut self.cached) else { return };
            if tier.plain.contains(piece) {
                tier.remove(piece);
                return self.split(at, extent);
            }
            cached.aged[at].remove(piece);
        }
        let (tier, Some(cached)) = (&self.tiers[extent.level.index()], &mut self.cached) else { return };
        cached.free_marks -= cached.marks_in(tier.index(extent.start), tier.order);
    }

    /// Frees, each as an extent, the siblings from `first` of `level` into which an extent
    /// with cache pages and stamp `stamp` is split. Those with cache pages keep that stamp.
    fn spread(&mut self, level: usize, first: usize, stamp: u64) {
        let (tier, Some(cached)) = (&mut self.tiers[level], &mut self.cached) else { return };
        for index in first..first + (1 << tier.ratio) {
            if cached.marks.is_clear(index << tier.order, tier.order) {
                tier.insert(index);
            } else {
                cached.aged[level].insert(index, stamp);
            }
        }
    }

    /// The part of [`Buddy::validate`] that concerns cache pages.
    pub(super) fn validate_cached(&self) -> Result<(), String> {
        let Some(cached) = &self.cached else { return Ok(()) };
        cached.marks.validate().map_err(|error| format!("marks of cache pages: {error}"))?;
        if cached.marks.len() as u64 != self.frames {
            return Err(format!("{} marks of cache pages for {} frames", cached.marks.len(), self.frames));
        }
        let mut free_marks = 0;
        for (level, (tier, aged)) in self.tiers.iter().zip(&cached.aged).enumerate() {
            aged.validate(cached.now).map_err(|error| format!("extents with cache pages of level {level}: {error}"))?;
            if aged.bits().len() != tier.plain.len() {
                return Err(format!("level {level} has {} extents, or {}", tier.plain.len(), aged.bits().len()));
            }
            if let Some(index) = tier.plain.iter().find(|index| aged.bits().contains(*index)) {
                return Err(format!("extent {index} of level {level} is free both with and without cache pages"));
            }
            if let Some(index) = tier.plain.iter().find(|index| cached.marks_in(*index, tier.order) != 0) {
                return Err(format!("extent {index} of level {level} has cache pages but is free as if it had none"));
            }
            let mut marks = aged.bits().iter().map(|index| (index, cached.marks_in(index, tier.order)));
            if let Some((index, _)) = marks.find(|(_, marks)| *marks == 0) {
                return Err(format!("extent {index} of level {level} is free as one with cache pages but has none"));
            }
            free_marks += aged.bits().iter().map(|index| cached.marks_in(index, tier.order)).sum::<u64>();
        }
        if free_marks != cached.free_marks {
            return Err(format!("{free_marks} free frames are marked, but the count is {}", cached.free_marks));
        }
        Ok(())
    }
}
