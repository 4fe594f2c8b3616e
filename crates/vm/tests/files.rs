//! Files mapped by several processes, where addresses are compatible with superpages and where not
//! (section 5.3), and their dirty bits.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Access, Level, Vpn};
use superpage_vm::{Error, FaultError, FaultKind, SpaceId};

#[test]
fn two_processes_share_the_pages_and_both_get_superpages() {
    let mut machine = Machine::alpha(2048);
    machine.file(512, 64, false, 64);
    (512..576).for_each(|page| assert_eq!(machine.read(page).kind, FaultKind::File));
    assert_eq!(machine.level(512), Some(Level(2)));
    let first = machine.space;
    machine.space = machine.vm.create_space();
    machine.file(1024, 64, true, 64);
    (1024..1088).rev().for_each(|page| assert_eq!(machine.read(page).kind, FaultKind::Resident));
    assert_eq!(machine.level(1024), Some(Level(2)));
    assert_eq!(machine.vm.stats().resident_pages, 64);
    machine.vm.exit(&mut machine.pmap, first).unwrap();
    machine.end();
}

#[test]
fn a_mapping_at_an_incompatible_address_gets_base_pages() {
    let mut machine = Machine::alpha(2048);
    machine.file(512 + 1, 64, true, 64);
    machine.write_all(513..577);
    assert_eq!(machine.vm.stats().mapped[..3], [64, 0, 0]);
    machine.file(1024, 64, true, 64);
    (1024..1088).for_each(|page| {
        machine.read(page);
    });
    assert_eq!(machine.level(1024), Some(Level(2)), "only physical alignment is the file's");
    machine.end();
}

#[test]
fn an_address_is_chosen_that_aligns_with_the_file() {
    let mut machine = Machine::alpha(2048);
    let place = |machine: &Machine, pages, offset| {
        machine.vm.place(machine.space, pages, offset, Vpn(1000)..Vpn(100_000)).unwrap().unwrap().0
    };
    assert_eq!(place(&machine, 64, 0), 1024, "aligned to 512 KB");
    assert_eq!(place(&machine, 63, 3), 1003, "aligned to 64 KB, three pages on");
    assert_eq!(place(&machine, 512, 0), 1024);
    machine.file(1100, 10, true, 0);
    assert_eq!(place(&machine, 512, 7), 1536 + 7);
    assert_eq!(machine.vm.place(machine.space, 64, 0, Vpn(0)..Vpn(63)).unwrap(), None);
}

#[test]
fn pages_of_a_file_are_promoted_if_all_or_none_are_dirty() {
    for (policy, promoted) in [("reservation", false), ("reservation:dirty=nowhere", true)] {
        let mut machine = Machine::new(ALPHA, 2048, policy);
        machine.file(512, 64, true, 0);
        machine.write(512);
        (513..520).for_each(|page| {
            machine.read(page);
        });
        assert_eq!(machine.level(512) == Some(Level(1)), promoted, "one of eight is dirty");
        machine.write_all(520..528);
        assert_eq!(machine.level(520), Some(Level(1)), "all of eight are dirty");
        machine.end();
    }
    // In an anonymous object the bits may differ, unless the policy says otherwise.
    for (policy, promoted) in [("reservation", true), ("reservation:dirty=all", false)] {
        let mut machine = Machine::new(ALPHA, 2048, policy);
        machine.anonymous(512, 64, superpage_vm::Growth::Fixed);
        machine.write(512);
        (513..520).for_each(|page| {
            machine.read(page);
        });
        assert_eq!(machine.level(512) == Some(Level(1)), promoted);
        machine.end();
    }
}

#[test]
fn a_private_mapping_copies_at_a_write() {
    let mut machine = Machine::alpha(2048);
    machine.file(512, 64, false, 0);
    let read = machine.read(520);
    let write = machine.try_touch(520, Access::Write).unwrap().unwrap();
    assert_eq!((write.kind, write.source), (FaultKind::Copy, Some(read.frame)));
    assert_eq!(machine.write(521).kind, FaultKind::File, "never read before: straight into the private object");
    machine.end();
}

/// A process of its own that maps the file from its start.
fn another(machine: &mut Machine, start: u64, pages: u64) {
    machine.space = machine.vm.create_space();
    machine.file(start, pages, true, 0);
}

#[test]
fn the_page_cache_serves_those_who_come_later_at_compatible_addresses() {
    let mut machine = Machine::alpha(2048);
    let first = machine.space;
    machine.file(512, 64, true, 0);
    (0..64).for_each(|page| machine.put(512 + page, page + 1));
    machine.vm.exit(&mut machine.pmap, first).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    let before = machine.vm.stats();
    assert_eq!((before.resident_pages, before.page_outs), (64, 0), "the last mapping has gone, the pages stay");
    another(&mut machine, 4096, 64);
    (0..64).for_each(|page| assert_eq!(machine.read(4096 + page).kind, FaultKind::Resident));
    (0..64).for_each(|page| assert_eq!(machine.get(4096 + page), page + 1));
    assert_eq!((machine.level(4096), machine.vm.stats().page_ins), (Some(Level(2)), before.page_ins));
    machine.sync();
    assert_eq!(machine.vm.stats().page_outs, 64, "still dirty from the process that is gone");
    machine.end();
}

#[test]
fn an_extent_of_a_file_in_memory_is_mapped_at_its_first_touch_where_the_policy_says_so() {
    for (policy, faults) in [("reservation:resident=extent", 1), ("reservation", 64)] {
        let mut machine = Machine::new(ALPHA, 2048, policy);
        machine.file(512, 64, true, 0);
        (0..64).for_each(|page| machine.put(512 + page, page + 1));
        another(&mut machine, 4096, 64);
        let before = machine.vm.stats().faults;
        (0..64).rev().for_each(|page| assert_eq!(machine.get(4096 + page), page + 1));
        assert_eq!((machine.vm.stats().faults - before, machine.level(4096)), (faults, Some(Level(2))), "{policy}");
        machine.put(4096 + 9, 1000);
        let other = std::mem::replace(&mut machine.space, SpaceId(0));
        assert_eq!(machine.get(512 + 9), 1000);
        machine.vm.exit(&mut machine.pmap, other).unwrap();
        machine.end();
    }
    // Neither a part that is not in memory, nor one with a private copy, nor one that is mapped,
    // nor what lies otherwise.
    let mut machine = Machine::new(ALPHA, 2048, "reservation:resident=extent");
    machine.file(512, 64, true, 0);
    (0..40).for_each(|page| machine.put(512 + page, page + 1));
    machine.space = machine.vm.create_space();
    machine.file(4096, 64, false, 0);
    machine.put(4096 + 3, 7);
    (0..40).for_each(|page| assert_eq!(machine.get(4096 + page), if page == 3 { 7 } else { page + 1 }));
    let levels = [0, 8, 32].map(|page| machine.level(4096 + page));
    assert_eq!(levels, [Some(Level(0)), Some(Level(1)), Some(Level(1))]);
    machine.file(8192 + 1, 64, true, 0);
    (0..40).for_each(|page| assert_eq!(machine.get(8193 + page), page + 1));
    assert_eq!(machine.level(8193), Some(Level(0)));
    machine.vm.exit(&mut machine.pmap, SpaceId(0)).unwrap();
    machine.end();
}

#[test]
fn of_two_incompatible_addresses_one_gets_superpages() {
    for (own, other) in [(512, 4096 + 1), (512 + 1, 4096)] {
        let mut machine = Machine::alpha(2048);
        machine.file(own, 64, true, 0);
        (0..64).for_each(|page| machine.put(own + page, page + 1));
        let first = machine.space;
        another(&mut machine, other, 64);
        (0..64).for_each(|page| assert_eq!(machine.get(other + page), page + 1));
        let here = machine.level(other);
        let second = std::mem::replace(&mut machine.space, first);
        let levels = [machine.level(own), here];
        let aligned = if own == 512 { [Some(Level(2)), Some(Level(0))] } else { [Some(Level(0)), Some(Level(2))] };
        assert_eq!(levels, aligned, "whose address is aligned as the file is");
        // What one writes the other reads, whatever maps it.
        machine.put(own + 9, 1000);
        machine.space = second;
        assert_eq!(machine.get(other + 9), 1000);
        machine.vm.exit(&mut machine.pmap, first).unwrap();
        machine.end();
    }
}

#[test]
fn addresses_that_differ_by_64_kb_share_superpages_of_that_size() {
    let mut machine = Machine::alpha(2048);
    machine.file(512, 64, true, 0);
    (0..64).for_each(|page| machine.put(512 + page, page));
    let first = machine.space;
    another(&mut machine, 4096 + 8, 64);
    (0..64).for_each(|page| assert_eq!(machine.get(4096 + 8 + page), page));
    assert!((0..8).all(|part| machine.level(4096 + 8 + 8 * part) == Some(Level(1))));
    machine.vm.exit(&mut machine.pmap, first).unwrap();
    machine.end();
}

#[test]
fn what_was_read_and_written_without_a_mapping_is_there_when_mapped() {
    let mut machine = Machine::alpha(2048);
    (0..64).for_each(|page| {
        machine.disk.stored.insert((Some(1), page), page + 1);
    });
    machine.vm.open(1, 64).unwrap();
    for page in 0..64 {
        let writing = page % 8 == 3;
        let fault = if writing { machine.write_file(1, page) } else { machine.read_file(1, page) }.unwrap();
        // What is written whole is not read before.
        assert_eq!(fault.kind, if writing { FaultKind::Zero } else { FaultKind::File });
        if writing {
            machine.disk.memory[fault.frame.0 as usize] = 100 + page;
        }
    }
    machine.vm.validate(&machine.pmap).unwrap();
    let stats = machine.vm.stats();
    assert_eq!((stats.page_ins, stats.bytes_zeroed, stats.reservations_made), (56, 0, 1));
    machine.file(512, 64, false, 0);
    let expected = |page| if page % 8 == 3 { 100 + page } else { page + 1 };
    (0..64).for_each(|page| assert_eq!(machine.get(512 + page), expected(page)));
    assert_eq!((machine.vm.stats().faults_resident, machine.level(512)), (64, Some(Level(2))));
    // A private write is not the file's.
    machine.put(512 + 5, 7);
    let fault = machine.read_file(1, 5).unwrap();
    assert_eq!((fault.kind, machine.disk.memory[fault.frame.0 as usize]), (FaultKind::Resident, 6));
    machine.sync();
    assert_eq!((machine.vm.stats().page_outs, machine.disk.stored[&(Some(1), 11)]), (8, 111));
    machine.vm.close(1).unwrap();
    machine.end();
}

#[test]
fn a_file_that_is_closed_or_beyond_reach_is_an_error() {
    let mut machine = Machine::alpha(2048);
    assert_eq!(machine.read_file(1, 0), Err(FaultError::NotOpen(1)));
    assert_eq!(machine.vm.close(1), Err(Error::NotOpen(1)));
    machine.vm.open(1, 4).unwrap();
    assert_eq!(machine.write_file(1, 9).unwrap().kind, FaultKind::Zero, "a write makes it longer");
    machine.vm.close(1).unwrap();
    assert_eq!(machine.write_file(1, 0), Err(FaultError::NotOpen(1)));
    machine.vm.remove_file(1).unwrap();
    assert_eq!(machine.vm.stats().resident_pages, 0);
    machine.end();
}
