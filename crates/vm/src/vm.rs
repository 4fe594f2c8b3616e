//! The memory manager as a whole: its state, address spaces, wired frames, reports.

use crate::frame::Frames;
use crate::object::Objects;
use crate::policy::running::Running;
use crate::policy::{Answers, Policy};
use crate::reclaim::Daemon;
use crate::reclaim::pages::List;
use crate::space::{Entry, Pooled, Spaces};
use crate::{Buddy, Error, Memory, PAGES_LIMIT, Pmap, SpaceId, Stats};
use alloc::vec::Vec;
use superpage_pages::{Extent, Ladder, Level, Pfn, Protection, Vpn};

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

    /// Creates an address space with nothing mapped, with the smallest unused number.
    pub fn create_space(&mut self) -> SpaceId {
        self.spaces.create()
    }

    /// Executes another program in a process: its mappings are removed, its address space remains.
    /// O(pages mapped).
    ///
    /// # Errors
    /// The address space does not exist, or a page of it is busy ([`Error::Busy`]).
    pub fn exec(&mut self, pmap: &mut impl Pmap, space: SpaceId) -> Result<(), Error> {
        self.none_busy(space, 0..PAGES_LIMIT, None)?;
        pmap.flush(space);
        self.policy.gone(space);
        self.remove(pmap, space, 0..PAGES_LIMIT);
        Ok(())
    }

    /// Ends a process: its mappings are removed, and its number may be reused. O(pages mapped).
    ///
    /// # Errors
    /// The address space does not exist, or a page of it is busy ([`Error::Busy`]).
    pub fn exit(&mut self, pmap: &mut impl Pmap, space: SpaceId) -> Result<(), Error> {
        self.none_busy(space, 0..PAGES_LIMIT, None)?;
        pmap.flush(space);
        self.remove(pmap, space, 0..PAGES_LIMIT);
        pmap.destroy(space);
        self.frames.take_tables(pmap);
        self.policy.gone(space);
        self.spaces.remove(space);
        Ok(())
    }

    /// Forks a process. Shared mappings are shared with the child; the pages of private ones are
    /// shared until one of the two writes, so the parent's mappings lose the right to write. The
    /// child starts with an empty page table: it faults on resident pages. O(pages mapped).
    ///
    /// # Errors
    /// The address space does not exist.
    pub fn fork(&mut self, pmap: &mut impl Pmap, parent: SpaceId) -> Result<SpaceId, Error> {
        let entries: Vec<Entry> = self.spaces.get(parent)?.iter().copied().collect();
        self.frames.stats.note_peak();
        let child = self.create_space();
        self.spaces.share(parent, child);
        let first = entries.first().map_or(Vpn(0), |entry| Vpn(entry.start));
        pmap.gather(parent, first..Vpn(entries.last().map_or(0, |entry| entry.end)), |pmap| {
            for entry in entries {
                let object = self.objects.get_mut(entry.object);
                object.entries += 1;
                object.sole = false;
                let copy = !entry.shared;
                if copy && !entry.copy {
                    self.each_mapped(pmap, parent, &entry, |vm, pmap, leaf| {
                        if leaf.rights.contains(Protection::WRITE) {
                            let size = vm.frames.ladder.size(leaf.level);
                            pmap.protect(parent, leaf.at, size, entry.rights_without_write());
                        }
                    });
                    self.spaces.get_mut(parent).put(Entry { copy, ..entry });
                }
                // What the parent has reserved in the static pool stays the parent's alone, as in
                // Linux.
                let pooled = if entry.pooled == Pooled::Reserved { Pooled::Unreserved } else { entry.pooled };
                self.spaces.get_mut(child).put(Entry { copy, pooled, ..entry });
            }
        });
        Ok(child)
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
