//! The buddy allocator (Navarro et al., sections 4.4 and 4.8), over any ladder of sizes.
//!
//! Free memory is a set of *maximal* free extents: wholly free, aligned to a size of the ladder,
//! and not part of a larger extent that is wholly free too. The "free list" of a size is a bitmap
//! of the maximal extents of that size. So it is always in address order, coalescing is a test of
//! the siblings' bits, and nothing is stored in a frame, and nothing about it but its bit. An
//! allocation takes the lowest maximal extent of the requested size, and only if there is none
//! splits the lowest one of the next larger size that has one. This first fit lets the high end of
//! memory become free again, and so preserves contiguity, which a list in order of use wears away.
//! What such a list does can be had by next fit ([`Buddy::with_next_fit`]).
//!
//! A free frame may hold a cache page: clean, unmapped, its contents still valid (section 5.1).
//! Free extents with such frames coalesce with the others, but are taken after those of their size
//! that have none, in the order in which they became free. Beyond that the allocator knows nothing
//! of reservations or of the contents of a frame: the owner of an extent frees it, whole or in
//! pieces.

mod aged;
mod cached;
mod colour;

use crate::frame::bitmap::Bitmap;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cached::Cached;
use colour::ByColour;
use core::fmt;
use core::ops::Range;
use superpage_pages::{Extent, Ladder, Level, Pfn, Random};

/// The free frames of a machine's memory, as maximal free extents.
///
/// Costs: with `L` sizes in the ladder, a ratio `R` between neighbours and `N` frames, each
/// operation reads and writes O(L log64 N) words, and O(R / 64) more for each size that it splits
/// or coalesces. Metadata is a little more than one bit for each extent of each size. Once there
/// has been a cache page, there are twice as many bits and one more for each frame, an operation on
/// an extent with cache pages reads one word per 64 frames of it, and inserting such an extent into
/// the order of age, or removing it, costs O(log of those of its size), with about 50 bytes for
/// each.
#[derive(Clone)]
pub struct Buddy {
    ladder: Ladder,
    frames: u64,
    tiers: Vec<Tier>,
    /// The state of cache pages; absent until the first one, unless there are colours.
    cached: Option<Box<Cached>>,
    /// The number of colours; 0 without colouring.
    colours: u64,
}

/// One size of the ladder.
#[derive(Clone, PartialEq, Eq)]
struct Tier {
    /// The maximal free extents of this size without cache pages, by index: the first frame's
    /// number divided by the size. The length is the number of extents of this size in memory.
    plain: Bitmap,
    /// The base-two logarithm of the frames in an extent.
    order: u32,
    /// The base-two logarithm of the number of extents of this size in one of the next larger; 0
    /// for the largest.
    ratio: u32,
    /// A mask with as many ones as siblings have bits in one word.
    siblings: u64,
    /// The plain extents by colour, if there are more colours than frames in an extent.
    by_colour: Option<Box<ByColour>>,
    choice: Choice,
}

/// Which of the plain extents of a size is taken.
#[derive(Clone, PartialEq, Eq)]
enum Choice {
    Lowest,
    /// The first from this one on, round and round.
    Next(usize),
    /// The first from a random one on.
    Anywhere(Random),
}

impl Tier {
    /// The index of the extent of this size that holds `frame`.
    #[inline]
    fn index(&self, frame: Pfn) -> usize {
        (frame.0 >> self.order) as usize
    }

    /// The index of the first of the siblings of extent `index`.
    #[inline]
    fn first_sibling(&self, index: usize) -> usize {
        index >> self.ratio << self.ratio
    }

    /// Adds a plain extent, also by colour.
    fn insert(&mut self, index: usize) {
        self.plain.insert(index);
        if let Some(by_colour) = &mut self.by_colour {
            by_colour.insert(index);
        }
    }

    /// Removes a plain extent, also by colour.
    fn remove(&mut self, index: usize) {
        self.plain.remove(index);
        if let Some(by_colour) = &mut self.by_colour {
            by_colour.remove(index);
        }
    }

    /// Removes the lowest plain extent, or the one that is chosen otherwise, also by colour.
    fn pop_first(&mut self) -> Option<usize> {
        let from = match &mut self.choice {
            Choice::Lowest => None,
            Choice::Next(next) => Some(*next),
            Choice::Anywhere(random) => Some((random.next() % self.plain.len() as u64) as usize),
        };
        let index = match from {
            None => self.plain.pop_first()?,
            Some(from) => {
                let index = self.plain.next(from).or_else(|| self.plain.next(0))?;
                self.plain.remove(index);
                index
            }
        };
        if let Choice::Next(next) = &mut self.choice {
            *next = index + 1;
        }
        if let Some(by_colour) = &mut self.by_colour {
            by_colour.remove(index);
        }
        Some(index)
    }

    /// Adds extent `index` and its siblings as plain ones, also by colour, but for `index` itself.
    fn insert_siblings(&mut self, index: usize) {
        let first = self.first_sibling(index);
        self.plain.insert_run(first, 1 << self.ratio);
        self.plain.remove(index);
        if let Some(by_colour) = &mut self.by_colour {
            let siblings = first..first + (1 << self.ratio);
            siblings.filter(|sibling| *sibling != index).for_each(|sibling| by_colour.insert(sibling));
        }
    }

    /// Removes what is plain of extent `first` and its siblings, also by colour.
    fn clear_siblings(&mut self, first: usize) {
        if let Some(by_colour) = &mut self.by_colour {
            self.plain.iter_group(first, self.ratio).for_each(|index| by_colour.remove(index));
        }
        self.plain.clear_group(first, self.ratio);
    }
}

/// Why an allocator cannot be made for an amount of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuddyError {
    /// Memory of no frames.
    #[error("memory is smaller than one base page; give at least one")]
    NoFrames,
    /// There is not enough memory for the bitmaps of so many frames.
    #[error("there is no room for the free bitmaps of {0} frames; give the machine less memory")]
    TooManyFrames(u64),
}

/// Why an extent cannot be freed: its owner has freed it, or part of it, before.
const FREE_ALREADY: &str = "free already, or a part of it is";

impl Buddy {
    /// An allocator of `frames` frames from number 0, all free. Memory beyond the last multiple of
    /// the largest size is free as smaller extents. Cost: O(`frames` / 64).
    ///
    /// # Errors
    /// There are no frames, or no memory for their bitmaps.
    pub fn new(ladder: Ladder, frames: u64) -> Result<Buddy, BuddyError> {
        if frames == 0 {
            return Err(BuddyError::NoFrames);
        }
        let too_many = BuddyError::TooManyFrames(frames);
        let all = usize::try_from(frames).map_err(|_| too_many)?;
        let mut tiers = Vec::with_capacity(ladder.len());
        for level in ladder.levels() {
            let order = ladder.order(level);
            let ratio = if level == ladder.largest() { 0 } else { ladder.order(level.up()) - order };
            let plain = Bitmap::new(all >> order).map_err(|_| too_many)?;
            let siblings = if ratio < u64::BITS.ilog2() { (1 << (1 << ratio)) - 1 } else { u64::MAX };
            tiers.push(Tier { plain, order, ratio, siblings, by_colour: None, choice: Choice::Lowest });
        }
        let mut given = 0;
        for tier in tiers.iter_mut().rev() {
            let (first, end) = (given >> tier.order, tier.plain.len());
            if first < end {
                tier.plain.insert_run(first, end - first);
                given = end << tier.order;
            }
        }
        Ok(Buddy { ladder, frames, tiers, cached: None, colours: 0 })
    }

    /// The same allocator, whose choice among plain extents of a size begins behind the one that
    /// was taken last: so what is freed is taken after all else, as from a list at whose end it is
    /// put. Costs are those of an allocator that has had cache pages.
    ///
    /// # Errors
    /// There is no memory for the bitmaps.
    pub fn with_next_fit(mut self) -> Result<Buddy, BuddyError> {
        self.tiers.iter_mut().for_each(|tier| tier.choice = Choice::Next(0));
        self.with_ages()?;
        Ok(self)
    }

    /// From now on the choice among plain base pages is random: as from lists that programs have
    /// filled which came and went. Costs are those of an allocator that has had cache pages.
    ///
    /// # Errors
    /// There is no memory for the bitmaps.
    pub fn scatter(&mut self, seed: u64) -> Result<(), BuddyError> {
        self.tiers[0].choice = Choice::Anywhere(Random::new(seed));
        self.with_ages()
    }

    fn with_ages(&mut self) -> Result<(), BuddyError> {
        if self.cached.is_none() {
            let cached = Cached::new(&self.tiers).map_err(|_| BuddyError::TooManyFrames(self.frames))?;
            self.cached = Some(Box::new(cached));
        }
        Ok(())
    }

    /// The ladder of sizes.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// The number of frames, free or not.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Takes an extent of `level`. Of that size, it takes the lowest maximal free extent without
    /// cache pages; if there is none, the one with cache pages that became free in its present form
    /// the longest ago (the lowest, if several did at once). If there is neither, an extent of the
    /// next larger size that has one, chosen in the same way, is split size by size, with the same
    /// choice among the pieces each time. Returns `None` if no extent of that size is wholly free,
    /// or if the ladder has no such level.
    ///
    /// The frames keep their marks as cache pages: [`Buddy::cached_in`] returns which they are.
    #[inline]
    pub fn allocate(&mut self, level: Level) -> Option<Extent> {
        if self.cached.is_some() {
            return self.allocate_by_age(level);
        }
        let wanted = level.index();
        for from in wanted..self.ladder.len() {
            let tier = &mut self.tiers[from];
            if let Some(index) = tier.plain.pop_first() {
                let extent = Extent { start: Pfn((index as u64) << tier.order), level };
                if from > wanted {
                    self.split(from, extent);
                }
                return Some(extent);
            }
        }
        None
    }

    /// Takes this very extent, splitting the larger free extent that it lies in. Returns false,
    /// with nothing changed, if it is not wholly free or is not an extent of this memory. The
    /// frames keep their marks as cache pages.
    pub fn allocate_at(&mut self, extent: Extent) -> bool {
        if !self.has(extent) {
            return false;
        }
        let Some(from) = self.holder(extent) else { return false };
        let tier = &mut self.tiers[from];
        let index = tier.index(extent.start);
        if tier.plain.contains(index) {
            tier.remove(index);
            self.split(from, extent);
        } else {
            self.allocate_aged(from, extent);
        }
        true
    }

    /// Frees an extent: one that was allocated, a piece of one, or a whole put together from such
    /// pieces. It coalesces with its siblings as far up the ladder as they are free. Frames of it
    /// that are marked as cache pages stay marked, and then it becomes free, now, as an extent with
    /// cache pages.
    ///
    /// Panics if a frame of it is free already, or if it is not an extent of this memory
    /// (misaligned, beyond the end, or of a level that the ladder lacks): the caller has lost count
    /// of its frames, and to go on would give one frame to two owners. The check is complete, and
    /// costs one word for each size.
    #[inline]
    pub fn free(&mut self, extent: Extent) {
        if self.cached.is_some() {
            return self.free_marked(extent);
        }
        self.check_taken(extent);
        let tier = &mut self.tiers[extent.level.index()];
        let index = tier.index(extent.start);
        let word = tier.plain.insert(index);
        // Most frees leave a sibling that is not free, and for most of those the word at hand shows
        // one.
        if word >> (tier.first_sibling(index) % 64) & tier.siblings == tier.siblings {
            self.coalesce(extent);
        }
    }

    /// The lowest extent of a level that is wholly free and lies in a range of frames, in the
    /// smallest maximal extents that have one there; nothing is taken. O(L log64 N).
    pub(crate) fn find_in(&self, range: Range<u64>, level: Level) -> Option<Extent> {
        let pages = 1 << self.tiers[level.index()].order;
        self.tiers.iter().enumerate().skip(level.index()).find_map(|(from, tier)| {
            let aged = self.cached.as_ref().map(|cached| cached.aged(from).bits());
            let first = (range.start >> tier.order) as usize;
            let found = [tier.plain.next(first), aged.and_then(|aged| aged.next(first))].into_iter().flatten().min()?;
            let start = ((found as u64) << tier.order).max(range.start.next_multiple_of(pages));
            (start + pages <= range.end).then_some(Extent { start: Pfn(start), level })
        })
    }

    /// Whether every frame of the extent is free, as a maximal free extent or inside one. False for
    /// anything that is not an extent of this memory.
    #[inline]
    pub fn is_free(&self, extent: Extent) -> bool {
        self.has(extent) && self.holder(extent).is_some()
    }

    /// The number of free frames, with or without cache pages. Cost: O(L).
    pub fn free_frames(&self) -> u64 {
        self.ladder.levels().map(|level| self.maximal(level) << self.ladder.order(level)).sum()
    }

    /// The number of disjoint wholly free extents at `level`: the maximal ones, and those that
    /// larger ones would split into. The measure of contiguity. Cost: O(L).
    pub fn free_extents(&self, level: Level) -> u64 {
        let order = self.ladder.order(level);
        let from = self.ladder.levels().skip(level.index());
        from.map(|level| self.maximal(level) << (self.ladder.order(level) - order)).sum()
    }

    /// The number of maximal free extents at `level`, with or without cache pages: the length of
    /// the free list of that size.
    pub fn maximal(&self, level: Level) -> u64 {
        let aged = self.cached.as_ref().map_or(0, |cached| cached.aged(level.index()).bits().count());
        (self.tiers[level.index()].plain.count() + aged) as u64
    }

    /// The maximal free extents: those of the smallest size in address order, then those of the
    /// next. Cost: O(N / 64) for all.
    pub fn iter(&self) -> impl Iterator<Item = Extent> {
        self.ladder.levels().zip(&self.tiers).flat_map(|(level, tier)| {
            let aged = self.cached.as_ref().map(|cached| cached.aged(level.index()).bits());
            let extents = tier.plain.iter_with(aged);
            extents.map(move |bit| Extent { start: Pfn((bit as u64) << tier.order), level })
        })
    }

    /// The memory that the allocator itself takes, in bytes.
    pub fn metadata_bytes(&self) -> usize {
        let bitmaps: usize = self.tiers.iter().map(|tier| tier.plain.bytes()).sum();
        let by_colour = self.tiers.iter().filter_map(|tier| tier.by_colour.as_ref());
        let bitmaps = bitmaps + by_colour.map(|by_colour| by_colour.bytes()).sum::<usize>();
        let cached = self.cached.as_ref().map_or(0, |cached| cached.bytes());
        size_of::<Buddy>() + self.tiers.capacity() * size_of::<Tier>() + bitmaps + cached
    }

    /// Checks that each bitmap agrees with its summaries and its count, that no free extent lies in
    /// another, that each is maximal, and that exactly those with cache pages are in their order of
    /// age, and exactly the others there by colour.
    ///
    /// # Errors
    /// A sentence that says what does not hold. Cost: O(N).
    pub fn validate(&self) -> Result<(), String> {
        for (level, tier) in self.tiers.iter().enumerate() {
            tier.plain.validate().map_err(|error| format!("free bitmap of level {level}: {error}"))?;
            tier.validate_colours().map_err(|error| format!("level {level} by colour: {error}"))?;
            if tier.plain.len() as u64 != self.frames >> tier.order {
                return Err(format!("level {level} has {} extents for {} frames", tier.plain.len(), self.frames));
            }
        }
        self.validate_cached()?;
        for extent in self.iter().filter(|extent| extent.level < self.ladder.largest()) {
            let (level, tier) = (extent.level.index(), &self.tiers[extent.level.index()]);
            if let Some(holder) = self.holder(Extent { start: extent.start, level: extent.level.up() }) {
                return Err(format!("{extent:?} is also free as part of an extent of level {holder}"));
            }
            let index = tier.index(extent.start);
            if index == tier.first_sibling(index) && self.is_whole(level, index) {
                return Err(format!("{extent:?} and all its siblings are free but have not coalesced"));
            }
        }
        Ok(())
    }

    /// Whether memory has this extent.
    #[inline]
    fn has(&self, extent: Extent) -> bool {
        self.tiers.get(extent.level.index()).is_some_and(|tier| {
            extent.start.is_aligned(1 << tier.order) && extent.start.0 >> tier.order < tier.plain.len() as u64
        })
    }

    /// The level of the maximal free extent that contains `extent`.
    #[inline]
    fn holder(&self, extent: Extent) -> Option<usize> {
        (extent.level.index()..self.tiers.len()).find(|level| {
            let tier = &self.tiers[*level];
            let index = tier.index(extent.start);
            tier.plain.contains(index) || self.cached.as_ref().is_some_and(|c| c.aged(*level).bits().contains(index))
        })
    }

    /// Whether extent `first` of `level`, the first of its siblings, and all the others are maximal
    /// free extents.
    fn is_whole(&self, level: usize, first: usize) -> bool {
        let tier = &self.tiers[level];
        let exists = self.tiers.get(level + 1).is_some_and(|up| first >> tier.ratio < up.plain.len());
        exists
            && match &self.cached {
                Some(cached) => tier.plain.is_full_with(cached.aged(level).bits(), first, tier.ratio),
                None => tier.plain.is_full(first, tier.ratio),
            }
    }

    /// Panics if `extent` is not of this memory, or if a frame of it is free in an extent without
    /// cache pages.
    #[inline]
    fn check_taken(&self, extent: Extent) {
        if !self.has(extent) {
            self.refuse(extent, "not an extent of this memory");
        }
        if !self.is_taken(extent) {
            self.refuse(extent, FREE_ALREADY);
        }
    }

    /// Whether no frame of `extent` is free in an extent without cache pages.
    #[inline]
    fn is_taken(&self, extent: Extent) -> bool {
        let (smaller, larger) = self.tiers.split_at(extent.level.index());
        let order = larger[0].order;
        larger.iter().all(|tier| !tier.plain.contains(tier.index(extent.start)))
            && smaller.iter().all(|tier| tier.plain.is_clear(tier.index(extent.start), order - tier.order))
    }

    /// Splits the extent of level `from` that contains `extent`, has no cache page and is no longer
    /// free, step by step down to `extent`. Of each split, all pieces but the one that contains it
    /// become maximal.
    fn split(&mut self, from: usize, extent: Extent) {
        for tier in self.tiers[extent.level.index()..from].iter_mut().rev() {
            tier.insert_siblings(tier.index(extent.start));
        }
    }

    /// Makes one extent of `extent`, just freed, and its siblings if all are free, and so on up the
    /// ladder, as long as there are no cache pages.
    fn coalesce(&mut self, extent: Extent) {
        let mut level = extent.level.index();
        while let [tier, up, ..] = &mut self.tiers[level..] {
            let (first, whole) = (tier.first_sibling(tier.index(extent.start)), up.index(extent.start));
            // At the end of memory siblings may be missing: then there is no larger extent either.
            if whole >= up.plain.len() || !tier.plain.is_full(first, tier.ratio) {
                return;
            }
            tier.plain.remove_group(first, tier.ratio);
            up.plain.insert(whole);
            level += 1;
        }
    }

    #[cold]
    fn refuse(&self, extent: Extent, why: &str) -> ! {
        panic!("cannot free {extent:?} ({} frames, sizes {}): it is {why}", self.frames, self.ladder)
    }
}

/// Allocators are equal if they have the same free extents and marks, and if those of a size with
/// cache pages have the same order of age, whatever was done to them before.
impl PartialEq for Buddy {
    fn eq(&self, other: &Buddy) -> bool {
        (self.ladder, self.frames) == (other.ladder, other.frames)
            && self.tiers == other.tiers
            && match (&self.cached, &other.cached) {
                (Some(one), Some(two)) => one == two,
                (one, two) => [one, two].into_iter().flatten().all(|cached| cached.is_empty()),
            }
    }
}

impl Eq for Buddy {}

impl fmt::Debug for Buddy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buddy({} of {} frames free:", self.free_frames(), self.frames)?;
        for level in self.ladder.levels() {
            write!(f, " {}x{}", self.maximal(level), self.ladder.size(level))?;
        }
        write!(f, "; {} frames marked as cache pages)", self.cached_frames())
    }
}
