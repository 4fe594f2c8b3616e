//! The buddy allocator (Navarro et al., sections 4.4 and 4.8), over any ladder of sizes.
//!
//! The free memory is a set of *maximal* free extents: wholly free, aligned to a size of the ladder, and in no larger
//! extent that is wholly free too. The "free list" of a size is a bitmap of the maximal extents of that size, so it is
//! in address order by nature, coalescing is a look at the bits of the siblings, and nothing is stored in or about a
//! frame but its bit. An allocation takes the lowest maximal extent of the size asked for, and only when there is none
//! splits the lowest of the next larger size that has one: first fit, which lets the high end of memory become free
//! again, and so keeps contiguity where a list in order of use wears it away.
//!
//! It knows nothing of reservations or of what a frame holds: who takes an extent gives it back, whole or in pieces.

use crate::bitmap::Bitmap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use superpage_pages::{Extent, Ladder, Level, Pfn};

/// The free frames of a machine's memory, as maximal free extents.
///
/// Costs: with `L` sizes in the ladder, a ratio `R` between neighbours and `N` frames, each operation reads and writes
/// O(L log64 N) words, and O(R / 64) more for each size that it splits or coalesces. Metadata is a little more than one
/// bit for each extent of each size.
#[derive(Clone, PartialEq, Eq)]
pub struct Buddy {
    ladder: Ladder,
    frames: u64,
    tiers: Vec<Tier>,
}

/// One size of the ladder.
#[derive(Clone, PartialEq, Eq)]
struct Tier {
    /// The maximal free extents of this size, by their index: the first frame's number over the size. The length is
    /// the number of extents of this size that memory has.
    free: Bitmap,
    /// The base-two logarithm of the frames in an extent.
    order: u32,
    /// The base-two logarithm of the number of extents of this size in one of the next larger; 0 for the largest.
    ratio: u32,
    /// As many ones as siblings have bits in one word.
    siblings: u64,
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
}

/// Why there is no allocator for so much memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuddyError {
    /// Memory of no frames.
    NoFrames,
    /// The bitmaps of so many frames do not fit in the memory that the allocator itself may use.
    TooManyFrames(u64),
}

impl fmt::Display for BuddyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuddyError::NoFrames => f.write_str("memory is smaller than one base page; give at least one"),
            BuddyError::TooManyFrames(frames) => {
                write!(f, "there is no room for the free bitmaps of {frames} frames; give the machine less memory")
            }
        }
    }
}

impl core::error::Error for BuddyError {}

impl Buddy {
    /// An allocator of `frames` frames from number 0, all free. What the end of memory has beyond a multiple of the
    /// largest size is free as smaller extents. Cost: O(`frames` / 64).
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
            let free = Bitmap::new(all >> order).map_err(|_| too_many)?;
            let siblings = if ratio < u64::BITS.ilog2() { (1 << (1 << ratio)) - 1 } else { u64::MAX };
            tiers.push(Tier { free, order, ratio, siblings });
        }
        let mut given = 0;
        for tier in tiers.iter_mut().rev() {
            let (first, end) = (given >> tier.order, tier.free.len());
            if first < end {
                tier.free.insert_run(first, end - first);
                given = end << tier.order;
            }
        }
        Ok(Buddy { ladder, frames, tiers })
    }

    /// The ladder of sizes.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// The number of frames, free or not.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Takes the lowest maximal free extent of `level`, or a piece of the lowest of the next larger size that has one.
    /// `None` if no extent of that size is wholly free, or if the ladder has no such level.
    #[inline]
    pub fn allocate(&mut self, level: Level) -> Option<Extent> {
        let wanted = level.index();
        for from in wanted..self.ladder.len() {
            let tier = &mut self.tiers[from];
            if let Some(index) = tier.free.pop_first() {
                let extent = Extent { start: Pfn((index as u64) << tier.order), level };
                if from > wanted {
                    self.split(from, extent);
                }
                return Some(extent);
            }
        }
        None
    }

    /// Takes this very extent, splitting what larger free extent it lies in. Returns false, with nothing changed, if it
    /// is not wholly free or no extent of this memory.
    pub fn allocate_at(&mut self, extent: Extent) -> bool {
        if !self.has(extent) {
            return false;
        }
        let Some(from) = self.holder(extent) else { return false };
        let tier = &mut self.tiers[from];
        tier.free.remove(tier.index(extent.start));
        self.split(from, extent);
        true
    }

    /// Gives an extent back: one that was allocated, a piece of such a one, or a whole put together from such pieces.
    /// It coalesces with its siblings as far up the ladder as they are free.
    ///
    /// Panics if a frame of it is free already, or if it is no extent of this memory (misaligned, beyond the end, or of
    /// a level that the ladder lacks): the caller's count of its frames is wrong, and going on would give one frame to
    /// two owners. The check is complete, and costs one word for each size.
    #[inline]
    pub fn free(&mut self, extent: Extent) {
        if !self.has(extent) {
            self.refuse(extent, "no extent of this memory");
        }
        if !self.is_taken(extent) {
            self.refuse(extent, "free already, or a part of it is");
        }
        let tier = &mut self.tiers[extent.level.index()];
        let index = tier.index(extent.start);
        let word = tier.free.insert(index);
        // Most frees leave a sibling that is not free, and for most of those the word at hand shows one.
        if word >> (tier.first_sibling(index) % 64) & tier.siblings == tier.siblings {
            self.coalesce(extent);
        }
    }

    /// Whether every frame of the extent is free, be it a maximal free extent or inside one. False for what is no extent
    /// of this memory.
    #[inline]
    pub fn is_free(&self, extent: Extent) -> bool {
        self.has(extent) && self.holder(extent).is_some()
    }

    /// The number of free frames. Cost: O(L).
    pub fn free_frames(&self) -> u64 {
        self.tiers.iter().map(|tier| (tier.free.count() as u64) << tier.order).sum()
    }

    /// The number of disjoint wholly free extents at `level`: the maximal ones, and those that larger ones would split
    /// into. The measure of contiguity. Cost: O(L).
    pub fn free_extents(&self, level: Level) -> u64 {
        let order = self.tiers[level.index()].order;
        self.tiers[level.index()..].iter().map(|tier| (tier.free.count() as u64) << (tier.order - order)).sum()
    }

    /// The number of maximal free extents at `level`: the length of the free list of that size.
    pub fn maximal(&self, level: Level) -> u64 {
        self.tiers[level.index()].free.count() as u64
    }

    /// The maximal free extents: those of the smallest size in order of address, then those of the next. Cost: O(N / 64)
    /// for all.
    pub fn iter(&self) -> impl Iterator<Item = Extent> {
        self.ladder.levels().zip(&self.tiers).flat_map(|(level, tier)| {
            tier.free.iter().map(move |bit| Extent { start: Pfn((bit as u64) << tier.order), level })
        })
    }

    /// The memory that the allocator itself takes, in bytes.
    pub fn metadata_bytes(&self) -> usize {
        let bitmaps: usize = self.tiers.iter().map(|tier| tier.free.bytes()).sum();
        size_of::<Buddy>() + self.tiers.capacity() * size_of::<Tier>() + bitmaps
    }

    /// Checks that each bitmap agrees with its summaries and its count, that no free extent lies in another, and that
    /// each is maximal. The error says what does not hold. Cost: O(N).
    pub fn validate(&self) -> Result<(), String> {
        for (level, tier) in self.tiers.iter().enumerate() {
            tier.free.validate().map_err(|error| format!("free bitmap of level {level}: {error}"))?;
            if tier.free.len() as u64 != self.frames >> tier.order {
                return Err(format!("level {level} has {} extents for {} frames", tier.free.len(), self.frames));
            }
            let Some(up) = self.tiers.get(level + 1) else { continue };
            for index in tier.free.iter() {
                let above = Extent { start: Pfn((index as u64) << tier.order), level: Level(level as u8 + 1) };
                if let Some(holder) = self.holder(above) {
                    return Err(format!(
                        "extent {index} of level {level} is free also as a part of one of level {holder}"
                    ));
                }
            }
            if let Some(whole) = (0..up.free.len()).find(|whole| tier.free.is_full(whole << tier.ratio, tier.ratio)) {
                return Err(format!("all of extent {whole} of level {} is free in pieces of level {level}", level + 1));
            }
        }
        Ok(())
    }

    /// Whether memory has this extent.
    #[inline]
    fn has(&self, extent: Extent) -> bool {
        self.tiers.get(extent.level.index()).is_some_and(|tier| {
            extent.start.is_aligned(1 << tier.order) && extent.start.0 >> tier.order < tier.free.len() as u64
        })
    }

    /// The level of the maximal free extent that holds the frames of `extent`, or is it.
    #[inline]
    fn holder(&self, extent: Extent) -> Option<usize> {
        (extent.level.index()..self.tiers.len()).find(|level| {
            let tier = &self.tiers[*level];
            tier.free.contains(tier.index(extent.start))
        })
    }

    /// Whether no frame of `extent` is free.
    #[inline]
    fn is_taken(&self, extent: Extent) -> bool {
        let (smaller, larger) = self.tiers.split_at(extent.level.index());
        let order = larger[0].order;
        larger.iter().all(|tier| !tier.free.contains(tier.index(extent.start)))
            && smaller.iter().all(|tier| tier.free.is_clear(tier.index(extent.start), order - tier.order))
    }

    /// Splits the extent of level `from` that holds `extent` and is no longer free, step by step down to `extent`: of
    /// each split, all pieces but the one that holds it become maximal.
    fn split(&mut self, from: usize, extent: Extent) {
        for tier in self.tiers[extent.level.index()..from].iter_mut().rev() {
            let index = tier.index(extent.start);
            tier.free.insert_run(tier.first_sibling(index), 1 << tier.ratio);
            tier.free.remove(index);
        }
    }

    /// Makes one extent of `extent`, just freed, and its siblings if all are free, and so on up the ladder.
    fn coalesce(&mut self, extent: Extent) {
        let mut level = extent.level.index();
        while let [tier, up, ..] = &mut self.tiers[level..] {
            let (first, whole) = (tier.first_sibling(tier.index(extent.start)), up.index(extent.start));
            // At the end of memory siblings may be missing: then there is no whole either.
            if whole >= up.free.len() || !tier.free.is_full(first, tier.ratio) {
                return;
            }
            tier.free.remove_group(first, tier.ratio);
            up.free.insert(whole);
            level += 1;
        }
    }

    #[cold]
    fn refuse(&self, extent: Extent, why: &str) -> ! {
        panic!("cannot free {extent:?} ({} frames, sizes {}): it is {why}", self.frames, self.ladder)
    }
}

impl fmt::Debug for Buddy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buddy({} of {} frames free:", self.free_frames(), self.frames)?;
        for (size, tier) in self.ladder.sizes().iter().zip(&self.tiers) {
            write!(f, " {}x{size}", tier.free.count())?;
        }
        f.write_str(")")
    }
}
