//! The kernel's interface to its hardware, implemented on modelled page tables and TLBs.

use std::ops::Range;
use superpage_mmu::Mmu;
use superpage_pages::{Access, PageSize, Protection, Vpn};
use superpage_vm::{Contiguity, Mapped, Pmap, SpaceId, Used};

/// The modelled hardware as [`Pmap`]; one call there is one call here.
pub(crate) struct Hardware<'a> {
    mmu: &'a mut Mmu,
    /// The page sizes of the machine.
    sizes: &'a [PageSize],
    /// Whether what one change of mappings removes is shot down together, as for the changes of a
    /// policy's background.
    gathers: bool,
}

impl<'a> Hardware<'a> {
    pub(crate) fn new(mmu: &'a mut Mmu, sizes: &'a [PageSize]) -> Hardware<'a> {
        Hardware { mmu, sizes, gathers: false }
    }

    pub(crate) fn gathering(mmu: &'a mut Mmu, sizes: &'a [PageSize]) -> Hardware<'a> {
        Hardware { mmu, sizes, gathers: true }
    }
}

impl Pmap for Hardware<'_> {
    fn enter(&mut self, space: SpaceId, at: Vpn, to: Mapped, access: Access) {
        self.mmu.enter(space.0, at, to, access);
    }

    fn enter_untouched(&mut self, space: SpaceId, at: Vpn, to: Mapped) {
        self.mmu.enter_untouched(space.0, at, to);
    }

    fn remove(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        let used = self.mmu.remove(space.0, at, size);
        Used { referenced: used.referenced, modified: used.modified }
    }

    fn protect(&mut self, space: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        self.mmu.protect(space.0, at, size, protection);
    }

    fn promote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.mmu.promote(space.0, at, from, to);
    }

    fn demote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.mmu.demote(space.0, at, from, to);
    }

    fn contiguity(&self, size: PageSize) -> Contiguity {
        if self.sizes.contains(&size) { Contiguity::Whole } else { Contiguity::Parts }
    }

    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped> {
        self.mmu.lookup(space.0, at)
    }

    fn used(&self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        let used = self.mmu.used(space.0, at, size);
        Used { referenced: used.referenced, modified: used.modified }
    }

    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.mmu.clear_referenced(space.0, at, size)
    }

    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.mmu.clear_modified(space.0, at, size)
    }

    fn begin_gather(&mut self, space: SpaceId, pages: Range<Vpn>) {
        if self.gathers {
            self.mmu.gather(space.0, pages.start.0..pages.end.0);
        }
    }

    fn flush(&mut self, space: SpaceId) {
        self.mmu.flush(space.0);
        self.mmu.uncover_all(space.0);
    }

    fn destroy(&mut self, space: SpaceId) {
        self.mmu.destroy(space.0);
    }
}
