//! Files mapped by several processes, where addresses are compatible with superpages and where not (section 5.3), and
//! their dirty bits.

mod machine;

use machine::Machine;
use superpage_pages::{Access, Level, Vpn};
use superpage_vm::FaultKind;

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
        let mut machine = Machine::new(machine::ALPHA, 2048, policy);
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
        let mut machine = Machine::new(machine::ALPHA, 2048, policy);
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
