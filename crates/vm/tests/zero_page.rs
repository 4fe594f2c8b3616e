//! The zero page of Linux: reads of memory that was never written map zeroes that all share; the
//! first write takes a frame.

use crate::background::X86;
use crate::machine::Machine;
use superpage_pages::{Access, Hint, Level, Pfn, Protection, Vpn};
use superpage_vm::{FaultKind, Growth, How, Map, Pmap, Region, Why};

const HUGE: Level = Level(1);

/// Four regions of 2 MB from page 512 on.
fn machine(policy: &str) -> Machine {
    let mut machine = Machine::new("4K 2M", 8192, policy);
    machine.anonymous(512, 4 * 512, Growth::Fixed);
    machine
}

/// Base pages that are resident, and that map the zero page; the state is valid.
fn counts(machine: &Machine) -> (u64, u64) {
    machine.vm.validate(&machine.pmap).unwrap();
    let stats = machine.vm.stats();
    (stats.resident_pages, stats.zero_page_mapped)
}

#[test]
fn a_read_takes_no_memory_and_the_first_write_does() {
    let mut machine = machine("base:zero-page=base");
    let first = machine.read(600);
    assert_eq!((first.kind, first.mapped, first.allocated), (FaultKind::ZeroPage, Level::BASE, None));
    assert_eq!(machine.read(601).frame, first.frame, "all share one frame");
    assert_eq!(counts(&machine), (0, 2));
    let write = machine.write(600);
    assert_eq!((write.kind, write.source), (FaultKind::Zero, None), "it is zeroed, not copied");
    assert_ne!(write.frame, first.frame);
    assert_eq!(counts(&machine), (1, 1));
    machine.put(600, 7);
    assert_eq!((machine.get(600), machine.get(601)), (7, 0));
    let stats = machine.vm.stats();
    assert_eq!((stats.faults, stats.faults_zero_page, stats.faults_zero, stats.bytes_copied), (3, 2, 1, 0));
    assert_eq!((stats.wired_frames, stats.bytes_zeroed), (1, 2 << 12), "the zero page is the kernel's own");
    machine.end();
}

#[test]
fn it_is_off_unless_asked_for() {
    for policy in superpage_vm::Policy::names() {
        let mut machine = machine(policy);
        assert_eq!(machine.read(600).kind, FaultKind::Zero, "{policy}");
        assert_eq!(machine.vm.zero_page().count(), 0);
    }
}

/// A write to a huge page of zeroes: Linux 5.8 to 6.12 split it and took a base page, others take a
/// huge page.
#[test]
fn a_write_to_a_huge_page_of_zeroes_splits_or_replaces_it() {
    for (value, resident, zeroes) in [("huge-split", 1, 511), ("huge", 512, 0)] {
        let mut machine = machine(&format!("thp:zero-page={value}"));
        let read = machine.read(600);
        assert_eq!((read.kind, read.mapped), (FaultKind::ZeroPage, HUGE));
        assert_eq!((machine.frame(512), machine.frame(600)), (Some(Pfn(read.frame.0 - 88)), Some(read.frame)));
        assert_eq!((counts(&machine), machine.vm.stats().mapped[..2] == [0, 1]), ((0, 512), true));
        let write = machine.write(700);
        assert_eq!((write.kind, write.mapped == HUGE), (FaultKind::Zero, value == "huge"));
        assert_eq!(counts(&machine), (resident, zeroes), "{value}");
        assert_eq!(machine.vm.stats().demotions[1], u64::from(value == "huge-split"));
        machine.put(700, 3);
        assert!((512..1024).all(|page| machine.get(page) == if page == 700 { 3 } else { 0 }));
        // Each of the others faults at its own write.
        assert_eq!(machine.try_touch(701, Access::Write).unwrap().is_some(), value == "huge-split");
        machine.end();
    }
}

#[test]
fn no_extent_is_taken_where_a_part_maps_zeroes() {
    let mut machine = machine("thp:zero-page=huge,hints=opt-out");
    let advise = |machine: &mut Machine, hint| {
        machine.vm.advise(&mut machine.pmap, machine.space, Vpn(512).pages(2048), hint).unwrap();
    };
    advise(&mut machine, Hint::Base);
    assert_eq!(machine.read(600).mapped, Level::BASE);
    advise(&mut machine, Hint::None);
    assert_eq!(machine.read(601).mapped, Level::BASE, "nothing huge is mapped around what is mapped");
    assert_eq!(machine.write(602).mapped, Level::BASE);
    assert_eq!((machine.write(601).mapped, machine.write(1024).mapped), (Level::BASE, HUGE));
    assert_eq!(counts(&machine), (2 + 512, 1));
    machine.end();
}

/// Linux has the zero page of base pages and of 2 MB, whatever sizes of folios it has.
#[test]
fn folios_of_other_sizes_have_no_zero_page() {
    for (sizes, huge) in [("64K", false), ("64K+2M", true)] {
        let mut machine = Machine::new("4K 64K 2M", 8192, &format!("mthp:size={sizes},zero-page=huge-split"));
        machine.anonymous(512, 1024, Growth::Fixed);
        assert_eq!(machine.read(600).mapped, if huge { Level(2) } else { Level::BASE }, "{sizes}");
        assert_eq!(machine.write(601).mapped, Level::BASE, "zeroes lie in its 64 KB");
        assert_eq!(machine.write(640).mapped, if huge { Level::BASE } else { Level(1) }, "{sizes}");
        machine.unmap(512, 512);
        machine.anonymous(512, 512, Growth::Fixed);
        assert_eq!(machine.write(512).mapped, if huge { Level(2) } else { Level(1) }, "nothing is left of them");
        counts(&machine);
        machine.end();
    }
}

#[test]
fn what_maps_zeroes_is_empty_for_khugepaged() {
    let mut machine = machine("thp:zero-page=huge-split");
    let region = Region { space: machine.space, start: Vpn(512), level: HUGE };
    let collapse = |machine: &mut Machine| {
        let done = machine.vm.promote_region(&mut machine.pmap, &mut machine.disk, region, How::Either);
        machine.vm.validate(&machine.pmap).unwrap();
        done.map(|done| (done.copied, done.zeroed))
    };
    machine.read(600);
    assert_eq!(collapse(&mut machine), Err(Why::Superpage), "as a huge page is");
    machine.put(700, 3);
    let (space, pmap, disk) = (machine.space, &mut machine.pmap, &mut machine.disk);
    machine.vm.as_system(pmap, disk, |system| {
        let look = system.look(space, HUGE, 1);
        assert_eq!((look.populated, look.accessed, look.superpage), (1, Some(1), false));
        assert_eq!(system.accessed(space, HUGE, 1), Some(1));
        assert_eq!(system.population(space, HUGE, 1).unwrap().populated, 1);
    });
    assert_eq!(collapse(&mut machine), Ok((1, 511)));
    assert_eq!((counts(&machine), machine.level(600)), ((512, 0), Some(HUGE)));
    assert_eq!((machine.get(700), machine.get(600)), (3, 0));
    machine.end();
}

#[test]
fn a_region_is_populated_in_place_over_zeroes() {
    for policy in ["reservation:zero-page=base", "reservation:zero-page=base,around=8,threshold=4/8"] {
        let mut machine = machine(policy);
        (512..1024).step_by(3).for_each(|page| assert_eq!(machine.get(page), 0));
        assert_eq!(counts(&machine).0, 0);
        // With fault-around, windows that are populated hold pages that map zeroes.
        (512..1024).for_each(|page| machine.put(page, page));
        assert_eq!((counts(&machine), machine.level(512)), ((512, 0), Some(HUGE)), "{policy}");
        assert!((512..1024).all(|page| machine.get(page) == page));
        machine.end();
    }
    let mut machine = machine("reservation:zero-page=huge");
    machine.read(600);
    machine.put(601, 1);
    let region = Region { space: machine.space, start: Vpn(512), level: HUGE };
    machine.vm.promote_region(&mut machine.pmap, &mut machine.disk, region, How::InPlace).unwrap();
    assert_eq!((counts(&machine), machine.level(600)), ((512, 0), Some(HUGE)));
    machine.end();
}

#[test]
fn parent_and_child_read_zeroes_until_one_writes() {
    let mut machine = machine("thp:zero-page=huge-split");
    machine.read(600);
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    let parent = std::mem::replace(&mut machine.space, child);
    assert_eq!(machine.read(600).mapped, HUGE);
    machine.put(600, 5);
    assert_eq!((counts(&machine), machine.get(600)), ((1, 512 + 511), 5));
    machine.space = parent;
    assert_eq!((machine.level(600), machine.get(600)), (Some(HUGE), 0));
    machine.put(600, 6);
    machine.space = child;
    assert_eq!((machine.get(600), machine.get(601)), (5, 0));
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.space = parent;
    assert_eq!((counts(&machine), machine.get(600)), ((1, 511), 6));
    machine.end();
}

#[test]
fn a_part_of_a_huge_page_of_zeroes_is_unmapped_discarded_or_protected() {
    let read = || {
        let mut machine = machine("thp:zero-page=huge-split");
        machine.read(600);
        machine
    };
    let mut unmapped = read();
    unmapped.unmap(600, 10);
    assert_eq!((counts(&unmapped), unmapped.frame(600)), ((0, 502), None));
    unmapped.anonymous(600, 10, Growth::Fixed);
    assert_eq!(unmapped.read(605).mapped, Level::BASE);
    unmapped.end();
    let mut discarded = read();
    discarded.vm.discard(&mut discarded.pmap, discarded.space, Vpn(512).pages(100)).unwrap();
    assert_eq!((counts(&discarded), discarded.frame(600)), ((0, 412), None));
    discarded.end();
    let mut protected = read();
    protected.protect(600, 10, Protection::NONE);
    assert_eq!(counts(&protected), (0, 512));
    assert!(protected.try_touch(605, Access::Read).is_err());
    protected.protect(600, 10, Protection::READ_WRITE);
    assert_eq!(protected.try_touch(605, Access::Read), Ok(None), "it never went");
    protected.put(605, 1);
    assert_eq!(counts(&protected), (1, 511));
    protected.end();
    let mut advised = read();
    advised.vm.advise(&mut advised.pmap, advised.space, Vpn(600).pages(10), Hint::Huge).unwrap();
    assert_eq!((counts(&advised), advised.level(605)), ((0, 512), Some(Level::BASE)));
    advised.end();
    let mut whole = read();
    whole.protect(512, 512, Protection::READ);
    assert_eq!((counts(&whole), whole.level(605)), ((0, 512), Some(HUGE)));
    whole.unmap(512, 512);
    assert_eq!((counts(&whole), whole.vm.stats().demotions[1]), ((0, 0), 0));
    whole.end();
}

#[test]
fn zeroes_move_with_their_mapping() {
    for (to, answers, level) in
        [(8192, "", HUGE), (8192 + 3, "", Level::BASE), (8192, ",demote-on-move=on", Level::BASE)]
    {
        let mut machine = machine(&format!("thp:zero-page=huge-split{answers}"));
        machine.read(600);
        machine.put(1024, 9);
        let (from, to) = (Vpn(512).pages(1024), Vpn(to).pages(1024));
        machine.vm.remap(&mut machine.pmap, machine.space, from, to).unwrap();
        assert_eq!((counts(&machine), machine.level(to.start.0 + 88)), ((512, 512), Some(level)), "{to:?}{answers}");
        assert_eq!((machine.frame(600), machine.get(to.start.0 + 512)), (None, 9));
        machine.put(to.start.0 + 88, 1);
        assert_eq!((counts(&machine), machine.get(to.start.0 + 89)), ((513, 511), 0));
        machine.end();
    }
}

#[test]
fn shared_memory_and_files_have_no_zero_page() {
    let mut machine = Machine::new(X86, 8192, "thp:zero-page=huge");
    let shared = Map::anonymous(Vpn(512), 512).shared(true);
    machine.vm.map(&mut machine.pmap, machine.space, shared).unwrap();
    machine.file(1024, 16, false, 0);
    assert_eq!((machine.read(512).kind, machine.read(1024).kind), (FaultKind::Zero, FaultKind::File));
    assert_eq!(counts(&machine), (2, 0));
    machine.end();
}

#[test]
fn pages_of_zeroes_that_are_given_back_map_the_zero_page() {
    for (value, zeroes) in [("off", 0), ("base", 511)] {
        let mut machine = machine(&format!("thp:zero-page={value}"));
        machine.put(600, 4);
        let (space, pmap, disk) = (machine.space, &mut machine.pmap, &mut machine.disk);
        assert_eq!(machine.vm.as_system(pmap, disk, |system| system.shrink(space, HUGE, 1)), 511);
        assert_eq!((counts(&machine), machine.frame(601).is_some()), ((1, zeroes), zeroes > 0), "{value}");
        assert_eq!((machine.get(600), machine.get(601)), (4, 0));
        machine.end();
    }
}

#[test]
fn a_read_takes_memory_where_there_is_no_frame_or_no_zero_for_the_zero_page() {
    // No 2 MB is free.
    let mut small = Machine::new("4K 2M", 600, "thp:zero-page=huge");
    small.anonymous(512, 512, Growth::Fixed);
    (0..88).for_each(|_| _ = small.vm.wire_page().unwrap());
    small.vm.wire(superpage_pages::Extent { start: Pfn(100), level: Level::BASE }).unwrap();
    assert_eq!(small.read(600).mapped, Level::BASE);
    assert_eq!(counts(&small), (0, 1));
    // The store below has no room: the state is as before.
    let mut failing = machine("base:zero-page=base");
    failing.disk.fills = Some(0);
    assert!(failing.try_touch(600, Access::Read).is_err());
    assert_eq!((counts(&failing), failing.vm.buddy().free_frames()), ((0, 0), 8192));
    failing.disk.fills = None;
    assert_eq!(failing.read(600).kind, FaultKind::ZeroPage);
    assert!(failing.pmap.lookup(failing.space, Vpn(600)).is_some());
    failing.end();
}
