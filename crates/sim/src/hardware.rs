//! The seam: what the kernel asks of its hardware, carried out on modelled page tables and TLBs.

use superpage_mmu::Mmu;
use superpage_pages::{Access, PageSize, Pfn, Protection, Vpn};
use superpage_vm::{Mapped, Pmap, SpaceId, Used};

/// The modelled hardware as [`Pmap`]; one call there is one call here.
pub(crate) struct Hardware<'a>(pub(crate) &'a mut Mmu);

impl Pmap for Hardware<'_> {
    fn enter(&mut self, space: SpaceId, at: Vpn, frame: Pfn, size: PageSize, protection: Protection, access: Access) {
        self.0.enter(space.0, at, frame, size, protection, access);
    }

    fn remove(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        let used = self.0.remove(space.0, at, size);
        Used { referenced: used.referenced, modified: used.modified }
    }

    fn protect(&mut self, space: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        self.0.protect(space.0, at, size, protection);
    }

    fn promote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.0.promote(space.0, at, from, to);
    }

    fn demote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.0.demote(space.0, at, from, to);
    }

    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped> {
        self.0.lookup(space.0, at).map(|(frame, size, protection)| Mapped { frame, size, protection })
    }

    fn used(&self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        let used = self.0.used(space.0, at, size);
        Used { referenced: used.referenced, modified: used.modified }
    }

    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.0.clear_referenced(space.0, at, size)
    }

    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.0.clear_modified(space.0, at, size)
    }

    fn flush(&mut self, space: SpaceId) {
        self.0.flush(space.0);
    }

    fn destroy(&mut self, space: SpaceId) {
        self.0.destroy(space.0);
    }
}
