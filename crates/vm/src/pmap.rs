//! The seam between the memory manager and the hardware.

use core::ops::Range;
use superpage_pages::{Access, PageSize, Pfn, Protection, Vpn};

/// The number of an address space. Numbers of ended spaces are used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(pub u32);

/// What a page table holds for a base page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The frame of the base page asked for, wherever in its superpage it lies.
    pub frame: Pfn,
    /// The size of the page that maps it.
    pub size: PageSize,
    /// The rights.
    pub protection: Protection,
}

/// The reference and dirty bits of one mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Accessed since the bit was cleared.
    pub referenced: bool,
    /// Written since the bit was cleared.
    pub modified: bool,
}

/// The page tables and TLBs, as the memory manager sees them: the old BSD name for this boundary.
///
/// A kernel implements it on real page tables; the simulator on modelled ones. The calls cannot fail: the manager only
/// asks for what its own state makes possible, `at` is always aligned to the size named, and every call leaves the TLBs
/// consistent (an implementation shoots down what it must), but for those between [`Pmap::gather`] and [`Pmap::flush_gathered`].
/// A mapping is named by its first page and its size. What is entered has its contents ([`crate::Memory`]), so that other
/// processors may use it at once.
///
/// *Frames for page tables* come from the manager, which counts them as the kernel's own: it asks how many are lacking before it enters
/// a mapping, gives as many, and takes back what is not needed any more. To demote a superpage takes tables too, at a time when memory
/// may be short; so they are asked for when it is entered, and the tables that a promotion makes superfluous are kept, as
/// FreeBSD and Linux do. An implementation whose tables come from elsewhere leaves these three methods as they are.
pub trait Pmap {
    /// Adds a mapping of `size` where nothing is mapped. `access` is what it is made for: the mapping starts referenced,
    /// and modified if that is a write.
    fn enter(&mut self, space: SpaceId, at: Vpn, frame: Pfn, size: PageSize, protection: Protection, access: Access);

    /// Removes a mapping and says how it was used.
    fn remove(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Used;

    /// Changes the rights of a mapping.
    fn protect(&mut self, space: SpaceId, at: Vpn, size: PageSize, protection: Protection);

    /// Makes one mapping of `to` out of all mappings of `from` in it, which have contiguous frames and equal rights. The
    /// new one is referenced or modified if any of them was.
    fn promote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize);

    /// Makes mappings of `to` out of one of `from`, with its rights and use each.
    fn demote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize);

    /// Whether a page of this size of the ladder is one mapping. Where not, an extent of the size is base pages, contiguous and
    /// aligned, which hardware may coalesce, and the manager asks for no mapping of the size.
    fn maps(&self, _size: PageSize) -> bool {
        true
    }

    /// What maps the base page `at`, if anything.
    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped>;

    /// How a mapping was used since that was cleared.
    fn used(&self, space: SpaceId, at: Vpn, size: PageSize) -> Used;

    /// Clears the reference bit of a mapping and says whether it was set.
    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool;

    /// Clears the dirty bit of a mapping and says whether it was set.
    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool;

    /// The calls that follow, until [`Pmap::flush_gathered`], belong to one change of these pages of the space. What is removed or loses
    /// rights meanwhile may stay in TLBs until then, to be invalidated together, by page or all at once. Until then the manager gives
    /// no frame that was mapped there to anyone else and writes none out; an implementation uses no page table again that
    /// became empty. Changes are not nested.
    fn gather(&mut self, _space: SpaceId, _pages: Range<Vpn>) {}

    /// The change is made: TLBs hold nothing any more of what it has removed or restricted.
    fn flush_gathered(&mut self, _space: SpaceId) {}

    /// How many more frames the page tables need before a mapping of this size can be entered, and, if it is a superpage, be
    /// demoted later.
    fn tables_lacking(&self, _space: SpaceId, _at: Vpn, _size: PageSize) -> u64 {
        0
    }

    /// Takes a frame for page tables, with anything in it.
    fn give_table(&mut self, _frame: Pfn) {}

    /// Gives back a frame that was given for page tables and is needed neither now nor for a demotion, if there is one.
    fn take_table(&mut self) -> Option<Pfn> {
        None
    }

    /// All mappings of the space are going to be removed, one by one, and none is used meanwhile: an implementation may empty
    /// the TLBs of them at once here, and need not for each.
    fn flush(&mut self, _space: SpaceId) {}

    /// All mappings of the space are gone and the number may be used for another one.
    fn destroy(&mut self, space: SpaceId);
}
