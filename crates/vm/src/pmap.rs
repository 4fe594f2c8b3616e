//! The interface between the memory manager and the hardware.

use core::ops::Range;
use superpage_pages::{Access, Mapped, PageRange, PageSize, Pfn, Protection, Used, Vpn};

/// The number of an address space. Numbers of ended spaces are reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(pub u32);

impl SpaceId {
    /// A page of this space.
    pub const fn page(self, at: Vpn) -> Address {
        Address { space: self, at }
    }
}

/// A page of an address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The space.
    pub space: SpaceId,
    /// The page.
    pub at: Vpn,
}

/// What page tables make of an extent of a size: contiguous frames under contiguous pages, both
/// aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Contiguity {
    /// One mapping.
    Whole,
    /// Mappings of smaller sizes, which TLBs may coalesce. The manager never asks for a mapping of
    /// the size, and allocates extents of it all the same where the policy wants them
    /// (`mthp:size=64K` on x86-64).
    Parts,
}

impl Contiguity {
    /// Whether the extent can be one mapping.
    #[inline]
    pub fn is_whole(self) -> bool {
        self == Contiguity::Whole
    }
}

/// The page tables and TLBs, as the memory manager sees them; the name is BSD's.
///
/// A kernel implements it on real page tables, the simulator on modelled ones. The calls cannot
/// fail: the manager only asks for what its own state allows, `at` is always aligned to the given
/// size, and every call leaves the TLBs consistent (the implementation shoots down what it must),
/// except within one gathered change ([`Pmap::gather`]). A mapping is named by its first
/// page and its size. A frame has its contents ([`crate::Memory`]) before it is entered, so other
/// processors may use it at once.
///
/// *Frames for page tables* come from the manager, which counts them as the kernel's own. It asks
/// how many are lacking before it enters a mapping, provides that many, and takes back those that
/// are no longer needed. Demoting a superpage needs tables too, at a time when memory may be short.
/// So they are requested when the superpage is entered, and the tables that a promotion makes
/// superfluous are kept, as in FreeBSD and Linux. An implementation whose tables come from
/// elsewhere keeps the default of these three methods.
pub trait Pmap {
    /// Adds a mapping where nothing is mapped; `at` is its first page, and `to.frame` the frame of
    /// that. `access` is the access that it is made for: the mapping starts referenced, and
    /// modified if that is a write.
    fn enter(&mut self, space: SpaceId, at: Vpn, to: Mapped, access: Access);

    /// Maps base pages side by side, where nothing is mapped: `to.frame` is the frame of the first,
    /// and those of the others follow. The same as a call of [`Pmap::enter`] for each, in this
    /// order, but an implementation need walk its tables only once a table. Called where a policy
    /// populates all of an extent and maps it as base pages.
    fn enter_pages(&mut self, space: SpaceId, at: PageRange, to: Mapped, access: Access) {
        let PageRange { start, pages } = at;
        (0..pages).for_each(|page| self.enter(space, start + page, Mapped { frame: to.frame + page, ..to }, access));
    }

    /// As [`Pmap::enter`] of a page that nobody touches: the mapping starts without a reference
    /// bit.
    fn enter_untouched(&mut self, space: SpaceId, at: Vpn, to: Mapped) {
        self.enter(space, at, to, Access::Read);
        self.clear_referenced(space, at, to.size);
    }

    /// Removes a mapping and returns its reference and dirty bits.
    fn remove(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Used;

    /// Changes the rights of a mapping.
    fn protect(&mut self, space: SpaceId, at: Vpn, size: PageSize, protection: Protection);

    /// Replaces all mappings of `from` in a region, which have contiguous frames and equal rights,
    /// by one mapping of `to`. The new one is referenced or modified if any of them was.
    fn promote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize);

    /// Replaces one mapping of `from` by mappings of `to`, each with its rights and its reference
    /// and dirty bits.
    fn demote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize);

    /// What the hardware makes of an extent of this size of the ladder.
    fn contiguity(&self, _size: PageSize) -> Contiguity {
        Contiguity::Whole
    }

    /// The mapping of the base page `at`, if there is one.
    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped>;

    /// The reference and dirty bits of a mapping: its use since they were last cleared.
    fn used(&self, space: SpaceId, at: Vpn, size: PageSize) -> Used;

    /// Clears the reference bit of a mapping and returns whether it was set.
    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool;

    /// Clears the dirty bit of a mapping and returns whether it was set.
    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool;

    /// Makes one change of these pages of the space, between [`Pmap::begin_gather`] and
    /// [`Pmap::flush_gathered`]. Not to be implemented.
    fn gather<T>(&mut self, space: SpaceId, pages: Range<Vpn>, change: impl FnOnce(&mut Self) -> T) -> T
    where
        Self: Sized,
    {
        self.begin_gather(space, pages);
        let changed = change(self);
        self.flush_gathered(space);
        changed
    }

    /// Begins one change of these pages of the space, which lasts until [`Pmap::flush_gathered`].
    /// What is removed or loses rights meanwhile may stay in TLBs until then, to be invalidated
    /// together, by page or all at once. Until then the manager neither reuses nor writes out a
    /// frame that was mapped there, and an implementation must not reuse a page table that became
    /// empty. Changes do not nest.
    fn begin_gather(&mut self, _space: SpaceId, _pages: Range<Vpn>) {}

    /// Says of the change that was begun that its pages are copied into one extent, for a
    /// superpage. For statistics alone.
    fn gathers_to_promote(&mut self) {}

    /// Ends the change: on return TLBs hold nothing of what it removed or restricted.
    fn flush_gathered(&mut self, _space: SpaceId) {}

    /// How many more frames the page tables need before a mapping of this size can be entered and,
    /// if it is a superpage, later demoted.
    fn tables_lacking(&self, _space: SpaceId, _at: Vpn, _size: PageSize) -> u64 {
        0
    }

    /// Takes a frame for page tables; its contents are undefined.
    fn give_table(&mut self, _frame: Pfn) {}

    /// Returns a frame to the manager that was given for page tables and is needed neither now nor
    /// for a demotion, if there is one.
    fn take_table(&mut self) -> Option<Pfn> {
        None
    }

    /// Announces that all mappings of the space will be removed, one by one, and that none is used
    /// meanwhile: an implementation may flush the TLBs once here instead of for each.
    fn flush(&mut self, _space: SpaceId) {}

    /// Destroys the space, all of whose mappings are gone; its number may be reused.
    fn destroy(&mut self, space: SpaceId);
}
