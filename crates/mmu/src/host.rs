//! The page tables of a host that has a memory manager ([`crate::Host::managed`]): they map the
//! frames of its guest.
//!
//! To the host the guest's frames are pages, and so are the guest's page tables, with numbers above
//! all frames ([`Mmu::guest_tables`]). A host does not know by which addresses its guest reaches a
//! frame. So a change of an existing mapping flushes everything that is derived from any mapping:
//! TLBs, the walk caches of both and the nested TLB (`INVEPT`: Intel, Software Developer's Manual,
//! volume 3, section 29.4.3.1; KVM flushes all entries of the guest). A new mapping flushes
//! nothing.

use crate::counters::Counters;
use crate::mappings::pte::Pte;
use crate::mappings::{Backing, Invalidate, Mapping, MappingId, Pointer, Stale, Work};
use crate::mmu::Mmu;
use crate::request::{Request, Trap};
use crate::tlb::first::FirstLevel;
use crate::walk::formats::TABLES;
use std::ops::Range;
use superpage_pages::{Access, Mapped, PageRange, PageSize, Protection, Used, Vpn};

/// The state of the host besides its tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostState {
    /// Work on its page tables: entries written and traversed, and shootdowns.
    counters: Counters,
    /// Everything was flushed, and nothing translated since.
    pub(crate) shot: bool,
    /// Accesses have found frames without a page, of which TLBs hold entries of no size.
    missed: bool,
}

/// No caches to invalidate: they were flushed before the change, or keep what they hold.
pub(crate) struct NoCaches;

impl Invalidate for NoCaches {
    fn drop_leaf(&mut self, _: Mapping) {}
    fn drop_pointer(&mut self, _: Pointer) {}
    fn drop_region(&mut self, _: u32, _: Vpn, _: Stale) {}
    fn drop_lines(&mut self, _: Range<u64>) {}
}

/// The mapping of this size from this frame of the guest on.
fn mapping(at: Vpn, size: PageSize) -> MappingId {
    MappingId { space: 0, at, size }
}

impl Mmu {
    /// As [`Mmu::run`], of a guest: its walks set use bits in the host's tables.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_as_guest(&mut self, requests: &[Request]) -> Option<(usize, Trap)> {
        self.host.shot = false;
        let (first_levels, mappings, space) = (self.first_levels.get_mut(), &mut self.mappings, self.space);
        // Machines with such hosts share no page tables: there is one.
        let trap =
            first_levels.iter_mut().fold(None, |_, first_level| first_level.run::<true>(mappings, space, requests));
        let backing = self.mappings.backing.as_mut().expect("the caller has checked it");
        for walker in self.first_levels.get_mut().iter_mut().flat_map(FirstLevel::walkers) {
            let reached = walker.reached();
            reached.used.iter().for_each(|head| backing.tables.write(*head));
            self.host.missed |= !reached.unbacked.is_empty();
            backing.touched.extend(reached.unbacked.iter().map(|frame| Vpn(*frame).pages(1)));
        }
        trap
    }

    fn backing(&mut self) -> &mut Backing {
        self.mappings.backing.as_mut().expect("a machine whose host has a memory manager")
    }

    fn flush_host(&mut self) {
        self.first_levels.get_mut().iter_mut().for_each(FirstLevel::flush_host);
    }

    /// A mapping of the host is about to change.
    fn shoot_host(&mut self) {
        if !std::mem::replace(&mut self.host.shot, true) {
            self.host.counters.shootdowns += 1;
            self.host.counters.shootdowns_running += 1;
            self.flush_host();
        }
    }

    fn count_host(&mut self, work: Work) {
        self.host.counters.pte_writes += work.writes;
        self.host.counters.pte_traversals += work.traversals;
    }

    /// Takes the frames of the guest that its kernel has mapped since the last call, and has
    /// filled, and those that an access found without a page of the host. The host must back them
    /// before anything is translated.
    pub fn take_touched(&mut self) -> Vec<PageRange> {
        std::mem::take(&mut self.backing().touched)
    }

    /// The guest's page tables so far, a base page each, as the host numbers them.
    pub fn guest_tables(&self) -> PageRange {
        Vpn(TABLES).pages(self.mappings.nodes.count())
    }

    /// Work on the page tables of the host: entries written and traversed, and shootdowns.
    pub fn host_counters(&self) -> Counters {
        self.host.counters
    }

    /// Maps frames of the guest that the host has not mapped, as [`Mmu::enter`] does; likewise
    /// below.
    pub fn host_enter(&mut self, at: Vpn, to: Mapped, access: Access) {
        if std::mem::take(&mut self.host.missed) {
            self.flush_host();
        }
        let work = self.backing().tables.enter(0, at, to, access);
        self.count_host(work);
    }

    /// Removes a mapping of the host.
    pub fn host_remove(&mut self, at: Vpn, size: PageSize) -> Used {
        self.shoot_host();
        let (pte, work) = self.backing().tables.remove(mapping(at, size), &mut NoCaches);
        self.count_host(work);
        pte.used()
    }

    /// Changes the rights of a mapping of the host.
    pub fn host_protect(&mut self, at: Vpn, size: PageSize, protection: Protection) {
        self.shoot_host();
        let work = self.backing().tables.protect(mapping(at, size), protection, &mut NoCaches);
        self.count_host(work);
    }

    /// Replaces all mappings of `from` in a region by one of `to`.
    pub fn host_promote(&mut self, at: Vpn, from: PageSize, to: PageSize) {
        self.shoot_host();
        let work = self.backing().tables.promote(mapping(at, from), to, &mut NoCaches);
        self.count_host(work);
    }

    /// Replaces one mapping of `from` by mappings of `to`.
    pub fn host_demote(&mut self, at: Vpn, from: PageSize, to: PageSize) {
        self.shoot_host();
        let work = self.backing().tables.demote(mapping(at, from), to, &mut NoCaches);
        self.count_host(work);
    }

    /// The frame of the host for a frame of the guest, the size of the mapping, and its rights.
    pub fn host_lookup(&self, at: Vpn) -> Option<Mapped> {
        self.mappings.backing.as_ref().and_then(|backing| backing.tables.lookup(0, at))
    }

    /// The use bits of a mapping of the host: walks that reach it set both.
    pub fn host_used(&self, at: Vpn, size: PageSize) -> Used {
        let backing = self.mappings.backing.as_ref();
        backing.map_or(Used::default(), |backing| backing.tables.used(mapping(at, size)).used())
    }

    /// Clears the reference bit of a mapping of the host and returns whether it was set.
    pub fn host_clear_referenced(&mut self, at: Vpn, size: PageSize) -> bool {
        self.clear_host(at, size, Pte::without_referenced).referenced
    }

    /// Clears the dirty bit of a mapping of the host and returns whether it was set.
    pub fn host_clear_modified(&mut self, at: Vpn, size: PageSize) -> bool {
        self.clear_host(at, size, Pte::without_dirty).modified
    }

    fn clear_host(&mut self, at: Vpn, size: PageSize, change: fn(Pte) -> Pte) -> Used {
        let (before, work) = self.backing().tables.clear(mapping(at, size), change, &mut NoCaches);
        if work != Work::default() {
            self.shoot_host();
            self.count_host(work);
        }
        before.used()
    }

    /// Announces that all mappings of the host will be removed.
    pub fn host_flush(&mut self) {
        self.shoot_host();
    }

    /// Frees the host's tables.
    pub fn host_destroy(&mut self) {
        self.shoot_host();
        self.backing().tables.destroy(0, &mut NoCaches);
    }
}
