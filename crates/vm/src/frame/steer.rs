//! Where the kernel's own pages, which cannot move, are taken from: wherever memory is free, from
//! its upper end (two regions with a border that moves, as in Contiguitas, Zhao et al., ISCA 2023),
//! or from blocks that have such pages already (superpageblocks, van Riel, RFC of 2026). So that
//! other blocks stay free of them, and their extents can be had.

use crate::Buddy;
use crate::policy::Unmovable;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::ops::Range;
use superpage_pages::{Extent, Ladder, Level, PageSize};

/// The blocks of memory with frames that cannot move, and how many extents of these each has.
#[derive(Default)]
pub(crate) struct Tainted {
    /// Frames in a block; 0 if nothing is steered.
    frames: u64,
    blocks: BTreeMap<u64, u32>,
}

impl Tainted {
    pub(crate) fn new(unmovable: Unmovable, ladder: &Ladder) -> Tainted {
        let bytes = match unmovable {
            Unmovable::Anywhere => 0,
            Unmovable::Apart => 2 << 20,
            Unmovable::Blocks(bytes) => bytes,
        };
        let frames = if bytes == 0 { 0 } else { (bytes >> ladder.base().shift()).max(1) };
        Tainted { frames, blocks: BTreeMap::new() }
    }

    fn over(&self, ladder: &Ladder, extent: Extent) -> Range<u64> {
        if self.frames == 0 {
            return 0..0;
        }
        extent.start.0 / self.frames..(extent.start.0 + ladder.pages(extent.level)).div_ceil(self.frames)
    }

    /// An extent became one that cannot move.
    pub(crate) fn taint(&mut self, ladder: &Ladder, extent: Extent) {
        self.over(ladder, extent).for_each(|block| *self.blocks.entry(block).or_insert(0) += 1);
    }

    /// An extent ceased to be one.
    pub(crate) fn clean(&mut self, ladder: &Ladder, extent: Extent) {
        for block in self.over(ladder, extent) {
            let count = self.blocks.get_mut(&block).expect("it was tainted");
            *count -= 1;
            if *count == 0 {
                self.blocks.remove(&block);
            }
        }
    }

    /// The number of blocks with frames that cannot move.
    pub(crate) fn count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Checks that these are the blocks of these extents.
    pub(crate) fn validate(&self, ladder: &Ladder, extents: impl Iterator<Item = Extent>) -> Result<(), String> {
        let mut right = Tainted { frames: self.frames, blocks: BTreeMap::new() };
        extents.for_each(|extent| right.taint(ladder, extent));
        let wrong = || format!("the blocks with frames that cannot move are {:?}, not {:?}", right.blocks, self.blocks);
        if right.blocks == self.blocks { Ok(()) } else { Err(wrong()) }
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.blocks.len() * size_of::<(u64, u32)>()
    }

    /// A free extent where the policy wants the kernel's: at the top of memory, or in a block that
    /// has such frames. It is of 2 MB, or of what is there up to that: what the kernel takes in
    /// base pages programs would fill up, and Linux has pages of one mobility in blocks of 2 MB.
    /// `None` if nothing is free there. O(blocks) for the former, O(tainted blocks) for the latter.
    pub(crate) fn find(&self, unmovable: Unmovable, buddy: &Buddy) -> Option<Extent> {
        let (frames, all, ladder) = (self.frames, buddy.frames(), buddy.ladder());
        let block = |block: u64| block * frames..((block + 1) * frames).min(all);
        let find = |level: u8| match unmovable {
            Unmovable::Anywhere => None,
            Unmovable::Apart => (0..all.div_ceil(frames)).rev().find_map(|at| buddy.find_in(block(at), Level(level))),
            Unmovable::Blocks(_) => self.blocks.keys().find_map(|at| buddy.find_in(block(*at), Level(level))),
        };
        let levels = ladder.levels().rev().filter(|level| ladder.size(*level) <= PageSize::MB2);
        levels.map(|level| level.0).find_map(find)
    }
}
