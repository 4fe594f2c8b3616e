//! Frames for the kernel's own use: in pools, or singly wherever a base page is free; for page
//! tables; and those of the zero page, mapped or free.

use crate::frame::{Allocated, Frames};
use crate::object::population::NONE;
use crate::policy::{Answers, Wired};
use crate::{Address, Memory, Page, Pmap};
use superpage_pages::{Extent, Level, Pfn};

/// A pool is at most this share of memory.
const SHARE: u64 = 64;

impl Frames {
    /// Wires an extent permanently. Returns `false`, with nothing changed, if not all of it is
    /// free.
    pub(crate) fn wire(&mut self, extent: Extent) -> bool {
        let taken = self.buddy.allocate_at(extent);
        if taken {
            self.taken(extent);
            self.note_wired(extent);
        }
        taken
    }

    /// An extent that was taken is the kernel's own from now on.
    pub(crate) fn note_wired(&mut self, extent: Extent) {
        self.wired.push(extent);
        self.tainted.taint(&self.ladder, extent);
        self.stats.wired_frames += self.ladder.pages(extent.level);
    }

    /// A frame for the kernel. `None` if none is left.
    pub(crate) fn wire_page(&mut self, answers: &Answers) -> Option<u32> {
        let frame = self.pools.take().or_else(|| self.new_pool(answers));
        debug_assert_ne!(frame, Some(NONE));
        frame
    }

    /// Makes a pool and returns its first frame.
    fn new_pool(&mut self, answers: &Answers) -> Option<u32> {
        let most = match answers.reclaim.wired {
            Wired::Scatter => Level::BASE,
            Wired::Cluster => {
                let fits = |level: &Level| self.ladder.pages(*level) <= self.buddy.frames() / SHARE;
                self.ladder.levels().rev().find(fits).unwrap_or(Level::BASE)
            }
        };
        let steered = self.tainted.find(answers.reclaim.unmovable, &self.buddy);
        let steered = steered.filter(|extent| self.buddy.allocate_at(*extent));
        let free = steered.or_else(|| (1..=most.0).rev().find_map(|level| self.buddy.allocate(Level(level))));
        let extent = match free {
            Some(extent) => {
                self.taken(extent);
                extent
            }
            None => self.allocate_base(answers)?,
        };
        let pages = self.ladder.pages(extent.level);
        self.stats.wired_frames += pages;
        self.tainted.taint(&self.ladder, extent);
        Some(self.pools.add(extent, pages))
    }

    /// A base page for the kernel itself.
    pub(crate) fn allocate_base(&mut self, answers: &Answers) -> Option<Extent> {
        let Allocated { extent, .. } = self.allocate(answers, Level::BASE, None)?;
        self.drop_cached_in(extent);
        Some(extent)
    }
    /// Frees a frame of the kernel's. Returns whether it was one.
    pub(crate) fn unwire_page(&mut self, frame: u32) -> bool {
        let (known, gone) = self.pools.give_back(&self.ladder, frame);
        if let Some(extent) = gone {
            self.stats.wired_frames -= self.ladder.pages(extent.level);
            self.tainted.clean(&self.ladder, extent);
            self.buddy.free(extent);
        }
        known
    }

    /// Gives `pmap` the frames that its tables lack for a mapping of this level. Returns `false` if
    /// memory does not have that many; those given stay there for the next try.
    #[inline]
    pub(crate) fn give_tables(
        &mut self,
        answers: &Answers,
        pmap: &mut impl Pmap,
        Address { space, at }: Address,
        level: Level,
    ) -> bool {
        for _ in 0..pmap.tables_lacking(space, at, self.ladder.size(level)) {
            let Some(frame) = self.wire_page(answers) else { return false };
            self.stats.table_frames += 1;
            pmap.give_table(Pfn(u64::from(frame)));
        }
        true
    }

    /// As [`Frames::give_tables`], without preempting any reservation.
    pub(crate) fn give_spare_tables(
        &mut self,
        answers: &Answers,
        pmap: &mut impl Pmap,
        to: Address,
        level: Level,
    ) -> bool {
        let lacking = pmap.tables_lacking(to.space, to.at, self.ladder.size(level));
        lacking <= self.buddy.free_frames() && self.give_tables(answers, pmap, to, level)
    }

    /// Takes back the frames that the page tables no longer need.
    #[inline]
    pub(crate) fn take_tables(&mut self, pmap: &mut impl Pmap) {
        while let Some(frame) = pmap.take_table() {
            let ours = u32::try_from(frame.0).is_ok_and(|frame| self.unwire_page(frame));
            assert!(ours, "frame {} was not given for page tables", frame.0);
            self.stats.table_frames -= 1;
        }
    }

    /// The extents of the zero page.
    pub(crate) fn zero_pages(&self) -> impl Iterator<Item = Extent> + '_ {
        self.zero_page.iter().copied()
    }

    /// Whether it is a frame of the zero page: a leaf that maps it holds no page.
    pub(crate) fn is_zero_page(&self, frame: Pfn) -> bool {
        self.zero_page.iter().any(|extent| frame.align_down(self.ladder.pages(extent.level)) == extent.start)
    }

    /// The first frame of the zero page of a level. It is taken and zeroed at the first call, and
    /// kept. `None` if no extent of that size is free, or cannot be zeroed.
    pub(crate) fn zero_page_of(&mut self, memory: &mut impl Memory, level: Level) -> Option<Pfn> {
        if let Some(known) = self.zero_page.iter().find(|extent| extent.level == level) {
            return Some(known.start);
        }
        let (extent, pages) = (self.buddy.allocate(level)?, self.ladder.pages(level));
        if !self.taken(extent) {
            if memory.zero(extent.start, pages, Page::Free).is_err() {
                self.free(extent);
                return None;
            }
            self.stats.bytes_zeroed += pages * self.ladder.base().bytes();
        }
        self.note_wired(extent);
        self.zero_page.push(extent);
        Some(extent.start)
    }

    /// Zeroes up to so many free extents of a level ahead of need, and returns how many.
    pub(crate) fn zero_ahead(&mut self, memory: &mut impl Memory, level: Level, most: u64) -> u64 {
        let done = self.zeroed.zero_ahead(&self.buddy, memory, level, most);
        self.stats.bytes_zeroed += done * self.ladder.size(level).bytes();
        done
    }

    /// Whether an extent of just this level was zeroed ahead.
    pub(crate) fn has_zeroed(&self, level: Level) -> bool {
        self.zeroed.find(level).is_some()
    }

    /// Frames of pools in use.
    pub(crate) fn kernel_frames(&self) -> u64 {
        self.pools.used()
    }

    /// Blocks of memory with frames that cannot move, where these are steered.
    pub(crate) fn tainted_blocks(&self) -> u64 {
        self.tainted.count()
    }
}
