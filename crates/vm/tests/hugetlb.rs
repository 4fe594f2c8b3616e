//! The static pool of Linux: set aside before or after memory is fragmented, reserved by mappings,
//! never taken by anybody else.

use crate::machine::Machine;
use superpage_pages::{Access, Extent, Hint, Level, PageSize, Pfn, Protection, Vpn};
use superpage_vm::{Config, Error, FaultError, Growth, How, Map, Region, SoftPmap, Vm, Why};

const MB2: u64 = 512;

fn pool(policy: &str) -> Machine {
    Machine::new("4K 2M", 32 * MB2, policy)
}

/// Pages of the pool: all, free, reserved, surplus.
fn counts(machine: &Machine) -> [u64; 4] {
    machine.vm.validate(&machine.pmap).unwrap();
    let stats = machine.vm.stats();
    [stats.pool_frames, stats.pool_free_frames, stats.pool_reserved_frames, stats.pool_surplus_frames].map(|n| n / MB2)
}

fn try_map(machine: &mut Machine, start: u64, pages: u64) -> Result<(), Error> {
    machine.vm.map(&mut machine.pmap, machine.space, Map::anonymous(Vpn(start), pages))
}

#[test]
fn a_mapping_reserves_its_pages_and_a_fault_takes_one_whole() {
    let mut machine = pool("hugetlb:pool=8M");
    assert_eq!((counts(&machine), machine.vm.buddy().free_frames()), ([4, 4, 0, 0], 28 * MB2));
    // Two pages lie whole in it; its ends are base pages.
    machine.anonymous(MB2 - 3, 2 * MB2 + 8, Growth::Fixed);
    assert_eq!(counts(&machine), [4, 4, 2, 0]);
    let fault = machine.write(MB2 + 5);
    assert_eq!((fault.wanted, fault.allocated, fault.mapped), (Level(1), Some(Level(1)), Level(1)));
    assert_eq!((fault.zeroed, fault.copied), (2 << 20, 0));
    assert_eq!((counts(&machine), machine.level(MB2)), ([4, 3, 1, 0], Some(Level(1))));
    assert_eq!(machine.write(MB2 - 1).mapped, Level::BASE);
    assert_eq!((machine.vm.stats().faults_pool, machine.vm.stats().bytes_zeroed), (1, (2 << 20) + 4096));
    machine.unmap(MB2, 2 * MB2);
    assert_eq!(counts(&machine), [4, 4, 0, 0]);
    machine.vm.exit(&mut machine.pmap, machine.space).unwrap();
    assert_eq!((counts(&machine), machine.vm.buddy().free_frames()), ([4, 4, 0, 0], 28 * MB2));
    assert_eq!(machine.vm.leaked_frames(), 0);
}

#[test]
fn what_does_not_fit_is_refused_with_what_fits() {
    let ladder = *Machine::new("4K 2M", 1, "base").vm.ladder();
    let new =
        |policy: &str| Vm::new(Config { ladder, frames: 8 * MB2, policy: policy.parse().unwrap(), swap_pages: 0 });
    let error = new("hugetlb:pool=17M").err().unwrap();
    let size: PageSize = "2M".parse().unwrap();
    assert_eq!(error, Error::PoolRoom { size, wanted: 9, fits: 8 });
    assert_eq!(
        error.to_string(),
        "a pool of 18.0 MB does not fit: 8 free extents of 2M are left, 16.0 MB; ask for at most that"
    );
    assert_eq!(new("hugetlb:pool=2G,size=1G").err(), Some(Error::PoolSize("1G".parse().unwrap())));
    // Late, memory is fragmented first: half of the extents hold a page.
    let mut vm = new("hugetlb:pool=10M,at=late").unwrap();
    (0..4).for_each(|extent| vm.hold(Pfn(2 * extent * MB2)).unwrap());
    assert_eq!(vm.make_pool(), Err(Error::PoolRoom { size, wanted: 5, fits: 4 }));
    vm.validate(&SoftPmap::new(ladder)).unwrap();
    let mut vm = new("hugetlb:pool=8M,at=late").unwrap();
    (0..4).for_each(|extent| vm.hold(Pfn(2 * extent * MB2)).unwrap());
    vm.make_pool().unwrap();
    assert_eq!((vm.stats().pool_frames, vm.buddy().free_extents(Level(1))), (4 * MB2, 0));
}

#[test]
fn a_mapping_without_pages_has_base_pages_or_none() {
    let mut machine = pool("hugetlb:pool=4M");
    machine.anonymous(MB2, 3 * MB2, Growth::Fixed);
    assert_eq!((counts(&machine), machine.vm.stats().pool_fallbacks), ([2, 2, 0, 0], 1));
    assert_eq!(machine.write(MB2).mapped, Level::BASE);
    machine.end_with(2);

    let mut machine = pool("hugetlb:pool=4M,without=kill");
    let error = try_map(&mut machine, MB2, 3 * MB2).unwrap_err();
    assert_eq!(error, Error::PoolShort { wanted: 6 << 20, left: 4 << 20 });
    assert!(!machine.vm.maps_any(machine.space, Vpn(0).pages(1 << 20)));
    try_map(&mut machine, MB2, 2 * MB2).unwrap();
    assert_eq!(counts(&machine), [2, 2, 2, 0]);
    machine.end_with(2);
}

#[test]
fn surplus_comes_from_free_memory_and_goes_back() {
    let mut machine = pool("hugetlb:pool=4M,surplus=4M");
    machine.anonymous(MB2, 3 * MB2, Growth::Fixed);
    assert_eq!((counts(&machine), machine.vm.buddy().free_frames()), ([3, 3, 3, 1], 29 * MB2));
    machine.anonymous(8 * MB2, 2 * MB2, Growth::Fixed);
    assert_eq!((counts(&machine), machine.vm.stats().pool_fallbacks), ([3, 3, 3, 1], 1), "all of it or nothing");
    machine.write(MB2);
    // What was touched goes first, then what was only reserved.
    machine.unmap(MB2, MB2);
    assert_eq!(counts(&machine), [2, 2, 2, 0]);
    machine.anonymous(12 * MB2, 2 * MB2, Growth::Fixed);
    assert_eq!(counts(&machine), [4, 4, 4, 2]);
    machine.unmap(12 * MB2, 2 * MB2);
    assert_eq!(counts(&machine), [2, 2, 2, 0]);
    machine.end_with(2);

    // Nothing is said of a pool: nine tenths may be surplus.
    let mut machine = pool("hugetlb");
    machine.anonymous(0, 28 * MB2, Growth::Fixed);
    assert_eq!((counts(&machine), machine.vm.stats().pool_fallbacks), ([28, 28, 28, 28], 0));
    machine.anonymous(64 * MB2, MB2, Growth::Fixed);
    assert_eq!(machine.vm.stats().pool_fallbacks, 1);
    machine.end();
}

#[test]
fn a_page_that_is_not_reserved_is_a_kill_where_none_is_left() {
    let mut machine = pool("hugetlb:pool=4M,noreserve=on");
    machine.anonymous(MB2, 3 * MB2, Growth::Fixed);
    assert_eq!(counts(&machine), [2, 2, 0, 0]);
    machine.put(MB2, 1);
    machine.put(2 * MB2, 2);
    let space = machine.space;
    assert_eq!(machine.fault(space, 3 * MB2, Access::Write), Err(FaultError::NoPoolPage(Vpn(3 * MB2))));
    assert_eq!((machine.vm.stats().faults_no_pool, machine.vm.stats().faults_pool), (1, 2));
    assert_eq!((machine.get(MB2), machine.get(2 * MB2), counts(&machine)), (1, 2, [2, 0, 0, 0]));
    machine.end_with(2);
}

#[test]
fn a_child_has_no_reservation_and_copies_pages_whole() {
    let mut machine = pool("hugetlb:pool=6M");
    machine.anonymous(MB2, 2 * MB2, Growth::Fixed);
    machine.put(MB2 + 9, 7);
    let (parent, child) = (machine.space, machine.vm.fork(&mut machine.pmap, machine.space).unwrap());
    assert_eq!(counts(&machine), [3, 2, 1, 0]);
    machine.space = child;
    assert_eq!((machine.get(MB2 + 9), machine.level(MB2)), (7, Some(Level(1))));
    machine.put(MB2 + 9, 8);
    assert_eq!((counts(&machine), machine.vm.stats().faults_copy), ([3, 1, 1, 0], 1));
    // The last page is the parent's.
    assert_eq!(machine.fault(child, 2 * MB2, Access::Write), Err(FaultError::NoPoolPage(Vpn(2 * MB2))));
    machine.space = parent;
    assert_eq!(machine.get(MB2 + 9), 7);
    machine.put(2 * MB2, 5);
    assert_eq!(counts(&machine), [3, 0, 0, 0]);
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    assert_eq!((machine.get(MB2 + 9), machine.get(2 * MB2), counts(&machine)), (7, 5, [3, 1, 0, 0]));
    machine.put(MB2 + 9, 6);
    assert_eq!(counts(&machine), [3, 1, 0, 0], "it is the parent's alone again");
    machine.end_with(3);
}

#[test]
fn a_segment_is_shared_and_private_memory_is_not_of_the_pool() {
    let mut machine = pool("hugetlb:pool=4M,use=segment");
    machine.anonymous(MB2, MB2, Growth::Fixed);
    let segment = Map::anonymous(Vpn(4 * MB2), 2 * MB2).shared(true);
    machine.vm.map(&mut machine.pmap, machine.space, segment).unwrap();
    assert_eq!((counts(&machine), machine.write(MB2).mapped), ([2, 2, 2, 0], Level::BASE));
    let (parent, child) = (machine.space, machine.vm.fork(&mut machine.pmap, machine.space).unwrap());
    machine.space = child;
    machine.put(4 * MB2 + 1, 3);
    assert_eq!(counts(&machine), [2, 1, 1, 0], "the child takes what the segment has reserved");
    machine.space = parent;
    assert_eq!(machine.get(4 * MB2 + 1), 3);
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.end_with(2);
}

#[test]
fn pages_are_not_cut_nor_advised_on_nor_moved_by_less_than_one() {
    let mut machine = pool("hugetlb:pool=8M");
    machine.anonymous(MB2, 3 * MB2, Growth::Fixed);
    machine.put(2 * MB2 + 3, 4);
    let (vm, pmap, space) = (&mut machine.vm, &mut machine.pmap, machine.space);
    let part = Vpn(2 * MB2 + 8).pages(MB2);
    let refused = |at: u64| Err(Error::PoolPage(Vpn(at)));
    assert_eq!(vm.unmap(pmap, space, part), refused(2 * MB2 + 8));
    assert_eq!(vm.protect(pmap, space, part, Protection::READ), refused(2 * MB2 + 8));
    assert_eq!(vm.discard(pmap, space, part), refused(2 * MB2 + 8));
    assert_eq!(vm.map(pmap, space, Map::anonymous(part.start, 1)), refused(2 * MB2 + 8));
    assert_eq!(vm.advise(pmap, space, Vpn(MB2).pages(MB2), Hint::Base), refused(MB2));
    let (from, away) = (Vpn(2 * MB2).pages(MB2), Vpn(9 * MB2 + 4).pages(MB2));
    assert_eq!(vm.remap(pmap, space, from, away), refused(2 * MB2));
    assert_eq!(vm.remap(pmap, space, from, Vpn(9 * MB2).pages(2 * MB2)), refused(2 * MB2), "none grows");
    let region = Region { space, start: from.start, level: Level(1) };
    assert_eq!(vm.promote_region(pmap, &mut machine.disk, region, How::Either), Err(Why::Otherwise));
    assert_eq!(vm.pool_page(space, Vpn(2 * MB2 + 8)), Some(from));
    vm.remap(pmap, space, from, Vpn(9 * MB2).pages(MB2)).unwrap();
    assert_eq!((machine.get(9 * MB2 + 3), machine.level(9 * MB2), counts(&machine)), (4, Some(Level(1)), [4, 3, 2, 0]));
    // Contents that are given up are reserved again.
    machine.vm.discard(&mut machine.pmap, machine.space, Vpn(9 * MB2).pages(MB2)).unwrap();
    assert_eq!((counts(&machine), machine.get(9 * MB2 + 3)), ([4, 4, 3, 0], 0));
    machine.end_with(4);
}

#[test]
fn nothing_else_gets_a_frame_of_the_pool_however_short_memory_is() {
    let mut machine = Machine::with_swap("4K 2M", 12 * MB2, "hugetlb:pool=8M,compact=on", 200 * MB2);
    machine.anonymous(MB2, 2 * MB2, Growth::Fixed);
    (1..3).for_each(|page| machine.put(page * MB2 + page, page));
    let frames: Vec<Option<Pfn>> = (1..3).map(|page| machine.frame(page * MB2)).collect();
    machine.squeeze();
    assert_eq!((1..3).map(|page| machine.frame(page * MB2)).collect::<Vec<_>>(), frames, "they stayed mapped");
    assert!((1..3).all(|page| machine.get(page * MB2 + page) == page));
    assert_eq!(counts(&machine), [4, 2, 0, 0]);
    let pool = Extent { start: frames[0].unwrap(), level: Level(1) };
    assert!(machine.vm.wire(pool).is_err());
    machine.end_with(4);
}

#[test]
fn one_gigabyte_at_a_time() {
    let mut machine = Machine::new("4K 2M 1G", 3 << 18, "hugetlb:pool=2G,size=1G");
    machine.anonymous(1 << 18, 1 << 18, Growth::Fixed);
    machine.anonymous(6 << 18, MB2, Growth::Fixed);
    assert_eq!((machine.write((1 << 18) + 77).mapped, machine.write(6 << 18).mapped), (Level(2), Level::BASE));
    assert_eq!(machine.vm.stats().pool_frames, 2 << 18);
    machine.end_with(2 << 9);
}
