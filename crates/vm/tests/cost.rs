//! What a fault costs in lookups of page tables (Navarro et al., section 4.9: population maps say
//! what is populated, so that nobody has to look them up).

use crate::machine::{ALPHA, Machine};
use std::cell::Cell;
use superpage_pages::{Access, Level, PageSize, Protection, Vpn};
use superpage_vm::{Growth, Mapped, NoMemory, Pmap, SoftPmap, SpaceId, Used};

/// Page tables that count how often they were read.
struct Counting {
    tables: SoftPmap,
    lookups: Cell<u64>,
}

impl Pmap for Counting {
    fn enter(&mut self, space: SpaceId, at: Vpn, to: Mapped, access: Access) {
        self.tables.enter(space, at, to, access);
    }

    fn remove(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        self.tables.remove(space, at, size)
    }

    fn protect(&mut self, space: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        self.tables.protect(space, at, size, protection);
    }

    fn promote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.tables.promote(space, at, from, to);
    }

    fn demote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.tables.demote(space, at, from, to);
    }

    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped> {
        self.lookups.set(self.lookups.get() + 1);
        self.tables.lookup(space, at)
    }

    fn used(&self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        self.lookups.set(self.lookups.get() + 1);
        self.tables.used(space, at, size)
    }

    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.tables.clear_referenced(space, at, size)
    }

    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.tables.clear_modified(space, at, size)
    }

    fn destroy(&mut self, space: SpaceId) {
        self.tables.destroy(space);
    }
}

#[test]
fn faults_on_private_memory_look_at_no_page_table_however_much_they_promote() {
    let mut machine = Machine::new(ALPHA, 512, "reservation");
    machine.anonymous(0, 512, Growth::Fixed);
    let tables = SoftPmap::new(*machine.vm.ladder());
    let mut pmap = Counting { tables, lookups: Cell::new(0) };
    for page in 0..512 {
        let _ = machine.vm.fault(&mut pmap, &mut NoMemory, machine.space.page(Vpn(page)), Access::Write).unwrap();
    }
    assert_eq!(machine.vm.stats().promotions[1..4], [64, 8, 1]);
    assert_eq!(machine.vm.ladder().level(pmap.tables.lookup(machine.space, Vpn(0)).unwrap().size), Some(Level(3)));
    assert_eq!(pmap.lookups.get(), 0);
}
