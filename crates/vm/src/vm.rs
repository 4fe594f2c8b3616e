//! The memory manager as a whole: its rooms, wired frames, reports.

use crate::frame::Frames;
use crate::object::Objects;
use crate::policy::running::Running;
use crate::policy::{Answers, Policy};
use crate::queue::Daemon;
use crate::queue::pages::List;
use crate::space::Spaces;
use crate::{Buddy, Error, Memory, Stats};
use superpage_pages::{Extent, Ladder, Level, Pfn};

/// The fixed parameters of a memory manager.
#[derive(Clone, Debug)]
pub struct Config {
    /// The page sizes in use.
    pub ladder: Ladder,
    /// Physical memory, in base pages.
    pub frames: u64,
    /// What the operating system does.
    pub policy: Policy,
    /// Swap space, in base pages; used only if the policy reclaims pages.
    pub swap_pages: u64,
}

/// A memory manager for one physical memory and any number of address spaces. One structure,
/// without locks: the caller serializes its calls.
pub struct Vm {
    pub(crate) frames: Frames,
    pub(crate) objects: Objects,
    pub(crate) spaces: Spaces,
    pub(crate) policy: Running,
    pub(crate) daemon: Daemon,
}

impl Vm {
    /// A memory manager with all frames free and no address space.
    ///
    /// Panics if the policy's colours are no power of two.
    ///
    /// # Errors
    /// [`Error::Frames`] unless there are from 1 to 2^32 - 1 frames; [`Error::PoolSize`],
    /// [`Error::PoolRoom`] if the policy's static pool cannot be made.
    pub fn new(config: Config) -> Result<Vm, Error> {
        let Config { ladder, frames, policy, swap_pages } = config;
        Ok(Vm {
            frames: Frames::new(ladder, frames, swap_pages, &policy.answers)?,
            objects: Objects::new(),
            spaces: Spaces::new(ladder),
            policy: Running::new(&policy),
            daemon: Daemon::default(),
        })
    }

    /// The page sizes in use.
    pub fn ladder(&self) -> &Ladder {
        &self.frames.ladder
    }

    /// The answers of the policy: how the fault path behaves.
    pub fn answers(&self) -> &Answers {
        &self.policy.answers
    }

    /// The free frames: how many, and in which extents.
    pub fn buddy(&self) -> &Buddy {
        &self.frames.buddy
    }

    /// Those of [`Vm::stats`] that only grow, and pages that are mapped and resident, without a
    /// copy: peaks, pages on lists and slots may be out of date.
    #[inline]
    pub fn counts(&self) -> &Stats {
        &self.frames.stats
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        let mut stats = self.frames.stats;
        stats.note_peak();
        if let Some(pages) = &self.frames.pages {
            stats.active_pages = pages.count(List::Active) + pages.count(List::Unswappable);
            stats.inactive_pages = pages.count(List::Inactive);
            stats.cache_pages = pages.count(List::Cache);
            stats.unswappable_pages = pages.count(List::Unswappable);
        }
        stats.swap_used_pages = self.frames.swap_and_cache.slots_used();
        stats
    }

    /// Wires the frames of an extent permanently, as the kernel's own.
    ///
    /// # Errors
    /// [`Error::NotFree`], with nothing changed, if not all of them are free.
    pub fn wire(&mut self, extent: Extent) -> Result<(), Error> {
        let fits = extent.level.index() < self.frames.ladder.len();
        if fits && self.frames.wire(extent) { Ok(()) } else { Err(Error::NotFree) }
    }

    /// Zeroes up to `most` free extents of `level` ahead of need, and returns how many: an idle
    /// kernel calls this, or the background of a policy
    /// ([`System::zero_ahead`](crate::System::zero_ahead)). A fault that takes a whole extent of
    /// that level prefers them, and need not zero it; reservations are filled page by page and do
    /// not profit. O(free extents + pages zeroed). Counted in
    /// [`Stats::bytes_zeroed`](crate::Stats::bytes_zeroed) here, and not again at the fault.
    pub fn zero_ahead(&mut self, memory: &mut impl Memory, level: Level, most: u64) -> u64 {
        self.frames.zero_ahead(memory, level, most)
    }

    /// Allocates a frame for the kernel's own use: from a pool of contiguous frames, or wherever
    /// one is free, as the policy says. A pool takes the largest free extent of at most 1/64 of
    /// memory. O(log pools).
    ///
    /// # Errors
    /// [`Error::NoFrame`] if none is left: run the page daemon, and try again.
    pub fn wire_page(&mut self) -> Result<Pfn, Error> {
        self.frames.wire_page(&self.policy.answers).map(|frame| Pfn(u64::from(frame))).ok_or(Error::NoFrame)
    }

    /// Frees a frame that [`Vm::wire_page`] returned.
    ///
    /// # Errors
    /// [`Error::NotWired`], with nothing changed, if it did not return this frame.
    pub fn unwire_page(&mut self, frame: Pfn) -> Result<(), Error> {
        let number = u32::try_from(frame.0).map_err(|_| Error::NotWired(frame))?;
        if self.frames.unwire_page(number) { Ok(()) } else { Err(Error::NotWired(frame)) }
    }

    /// The number of blocks of memory with frames that cannot move, where the policy steers these
    /// ([`Unmovable`](crate::Unmovable)); otherwise 0.
    pub fn tainted_blocks(&self) -> u64 {
        self.frames.tainted_blocks()
    }

    /// The number of frames of kernel pools that are in use; [`crate::Stats::wired_frames`] counts
    /// whole pools.
    pub fn kernel_frames(&self) -> u64 {
        self.frames.kernel_frames()
    }

    /// Gives a free base page to somebody whom the manager does not know, such as a program that
    /// was there before, for good. Unlike a wired one it can be relocated, by compaction
    /// ([`System::compact`](crate::System::compact)); it is never evicted.
    ///
    /// # Errors
    /// [`Error::NotFree`], with nothing changed, if it is not free.
    pub fn hold(&mut self, frame: Pfn) -> Result<(), Error> {
        if self.frames.hold(frame) { Ok(()) } else { Err(Error::NotFree) }
    }

    /// The frames of somebody else, ascending.
    pub fn held(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.frames.held()
    }

    /// From now on base pages that are allocated singly come from all over memory, at random: as on
    /// a machine that has run for long, whose lists of free pages programs have filled that came
    /// and went.
    ///
    /// # Errors
    /// [`Error::Frames`]: there is no memory for it.
    pub fn scatter(&mut self, seed: u64) -> Result<(), Error> {
        let frames = self.frames.buddy.frames();
        self.frames.buddy.scatter(seed).map_err(|_| Error::Frames(frames))
    }

    /// The reservations that would yield an extent of this size, in the order of preemption.
    /// O(reservations there).
    pub fn reservations(&self, level: Level) -> impl Iterator<Item = Extent> + '_ {
        self.frames.reservations(level)
    }

    /// The bytes that the manager's own structures hold: frames, reservations, population maps,
    /// objects, map entries. Page tables are not included.
    pub fn metadata_bytes(&self) -> usize {
        self.frames.metadata_bytes()
            + self.objects.metadata_bytes()
            + self.spaces.metadata_bytes()
            + self.policy.metadata_bytes()
    }
}
