//! What processes ask for at the edges: bad ranges, growth and shrinkage, moves, policy `base`,
//! ladders of one size.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Access, Level, Protection, Vpn};
use superpage_vm::{Backing, Error, FaultError, FaultKind, Growth, Map, PAGES_LIMIT, SpaceId};

#[test]
fn bad_requests_are_errors_that_change_nothing() {
    let mut machine = Machine::alpha(512);
    let mut map = Map::anonymous(Vpn(0), 0).protection(Protection::READ);
    for (start, pages) in [(0, 0), (1, u64::MAX), (PAGES_LIMIT, 1), (1, PAGES_LIMIT)] {
        (map.start, map.pages) = (Vpn(start), pages);
        let error = Error::Range { start, pages };
        assert_eq!(machine.vm.map(&mut machine.pmap, machine.space, map), Err(error));
        assert_eq!(machine.vm.unmap(&mut machine.pmap, machine.space, Vpn(start).pages(pages)), Err(error));
        assert_eq!(machine.vm.discard(&mut machine.pmap, machine.space, Vpn(start).pages(pages)), Err(error));
    }
    (map.start, map.pages) = (Vpn(8), 8);
    assert_eq!(machine.vm.map(&mut machine.pmap, SpaceId(7), map), Err(Error::NoSpace(SpaceId(7))));
    machine.vm.map(&mut machine.pmap, machine.space, map).unwrap();
    assert_eq!(machine.try_touch(7, Access::Read), Err(FaultError::Unmapped(Vpn(7))));
    assert_eq!(machine.try_touch(8, Access::Write), Err(FaultError::Protection(Vpn(8), Access::Write)));
    let grow = machine.vm.grow(&mut machine.pmap, machine.space, Vpn(9), 4);
    assert_eq!(grow, Err(Error::Unmapped(Vpn(9))));
    let remap = machine.vm.remap(&mut machine.pmap, machine.space, Vpn(8).pages(8), Vpn(10).pages(8));
    assert_eq!(remap, Err(Error::Overlap(Vpn(10))));
    map.backing = Backing::File { file: 0, pages: 1, offset: PAGES_LIMIT };
    assert!(machine.vm.map(&mut machine.pmap, machine.space, map).is_err());
    machine.vm.validate(&machine.pmap).unwrap();
    machine.end();
}

#[test]
fn a_fault_on_what_is_mapped_already_does_nothing() {
    let mut machine = Machine::alpha(512);
    machine.anonymous(0, 8, Growth::Fixed);
    let first = machine.write(3);
    let again = machine.fault(machine.space, 3, Access::Read).unwrap();
    assert_eq!((again.kind, again.frame), (FaultKind::Spurious, first.frame));
    machine.end();
}

#[test]
fn a_file_cannot_be_mapped_beyond_what_files_can_be_long() {
    let mut machine = Machine::alpha(512);
    let map = Map::file(Vpn(0), 8, 0, 1, PAGES_LIMIT - 8).protection(Protection::READ).shared(true);
    machine.vm.map(&mut machine.pmap, machine.space, map).unwrap();
    let error = Err(Error::Range { start: PAGES_LIMIT - 8, pages: 9 });
    assert_eq!(machine.vm.remap(&mut machine.pmap, machine.space, Vpn(0).pages(8), Vpn(16).pages(9)), error);
    assert_eq!(machine.vm.grow(&mut machine.pmap, machine.space, Vpn(0), 9), error);
    machine.end();
}

#[test]
fn a_heap_grows_and_shrinks_to_nothing() {
    let mut machine = Machine::alpha(2048);
    machine.anonymous(512, 8, Growth::Up);
    for pages in [512, 700, 3, 600, 0] {
        machine.vm.grow(&mut machine.pmap, machine.space, Vpn(512), pages).unwrap();
        for page in 512..512 + pages {
            machine.try_touch(page, Access::Write).unwrap();
        }
        assert_eq!(machine.vm.stats().resident_pages, pages);
    }
    machine.end();
}

#[test]
fn a_move_keeps_superpages_that_stay_aligned() {
    let mut machine = Machine::alpha(2048);
    machine.anonymous(512, 512, Growth::Fixed);
    machine.write_all(512..1024);
    machine.vm.remap(&mut machine.pmap, machine.space, Vpn(512).pages(512), Vpn(2048).pages(512)).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!((machine.level(2048), machine.level(512)), (Some(Level(3)), None));
    machine.vm.remap(&mut machine.pmap, machine.space, Vpn(2048).pages(512), Vpn(4096 + 8).pages(600)).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(machine.vm.stats().mapped[..4], [0, 64, 0, 0], "64 KB are aligned there, no more");
    assert_eq!(machine.vm.stats().faults, 512, "nothing faulted again");
    machine.write(4096 + 8 + 599);
    machine.end();
}

#[test]
fn contents_that_are_discarded_free_their_frames_but_keep_the_reservation() {
    let mut machine = Machine::alpha(512);
    machine.anonymous(0, 64, Growth::Fixed);
    machine.write_all(0..64);
    machine.vm.discard(&mut machine.pmap, machine.space, Vpn(10).pages(20)).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(machine.vm.stats().resident_pages, 44);
    assert_eq!(machine.lists(), [0, 1, 0, 0], "the largest hole in the 512 KB has 64 KB");
    assert_eq!(machine.write(15).allocated, None);
    machine.vm.discard(&mut machine.pmap, machine.space, Vpn(0).pages(64)).unwrap();
    assert_eq!(machine.vm.buddy().free_frames(), 512);
    machine.end();
}

#[test]
fn base_uses_only_base_pages_on_any_ladder() {
    for sizes in [ALPHA, "4K", "4K 2M 1G"] {
        for policy in ["base", "reservation"] {
            let mut machine = Machine::new(sizes, 900, policy);
            machine.anonymous(0, 600, Growth::Fixed);
            machine.write_all(0..600);
            let stats = machine.vm.stats();
            if policy == "base" || sizes == "4K" {
                assert_eq!((stats.mapped[0], stats.reservations_made), (600, 0));
                assert_eq!(stats.contiguity_requests, 0, "a base page asks for none");
            } else {
                assert!(stats.mapped[1] > 0);
            }
            machine.end();
        }
    }
}

/// The object of a heap shrinks with it: what is added later belongs to the same object, and a
/// superpage spans both.
#[test]
fn a_heap_that_shrank_and_grew_again_is_one_superpage() {
    let mut machine = Machine::alpha(1024);
    machine.anonymous(512, 64, Growth::Up);
    let grow = |machine: &mut Machine, pages| {
        machine.vm.grow(&mut machine.pmap, machine.space, Vpn(512), pages).unwrap();
        machine.vm.validate(&machine.pmap).unwrap();
    };
    machine.write_all(512..576);
    grow(&mut machine, 20);
    grow(&mut machine, 64);
    machine.write_all(532..576);
    assert_eq!(machine.level(512), Some(Level(2)));
    machine.end();
}

/// A heap that ends leaves the one before it as it was, which reserves as much as before.
#[test]
fn a_heap_that_ends_changes_no_other() {
    let mut machine = Machine::alpha(1024);
    machine.anonymous(448, 64, Growth::Up);
    machine.unmap(480, 32);
    machine.anonymous(480, 8, Growth::Up);
    machine.vm.grow(&mut machine.pmap, machine.space, Vpn(480), 0).unwrap();
    assert_eq!(machine.write(448).allocated, Some(Level(2)), "as large as the object, of which a part was unmapped");
    machine.end();
}
