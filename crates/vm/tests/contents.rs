//! What a frame holds when a program sees it, and what is left of a fault whose frame could not be
//! filled.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Access, Vpn};
use superpage_vm::{FaultError, FaultKind, Growth};

/// Frames are filled so often and no more.
fn allow(machine: &mut Machine, fills: Option<u64>) {
    machine.disk.fills = fills;
}

#[test]
fn a_fault_whose_frame_cannot_be_filled_leaves_nothing_behind() {
    for policy in ["base", "reservation", "freebsd", "thp", "talluri-hill"] {
        let mut machine = Machine::new("4K 2M", 2048, policy);
        machine.anonymous(0, 1024, Growth::Down);
        allow(&mut machine, Some(0));
        for access in [Access::Read, Access::Write] {
            let fault = machine.fault(machine.space, 700, access);
            assert_eq!(fault, Err(FaultError::Contents(Vpn(700))), "{policy}");
            machine.vm.validate(&machine.pmap).unwrap();
        }
        let stats = machine.vm.stats();
        assert_eq!((stats.faults, stats.resident_pages, stats.bytes_zeroed), (0, 0, 0), "{policy}");
        assert_eq!(machine.vm.buddy().free_frames(), 2048, "{policy}: no reservation is left without a page");
        allow(&mut machine, None);
        assert_eq!(machine.write(700).kind, FaultKind::Zero);
        assert_eq!(machine.get(700), 0);
        machine.end();
    }
}

#[test]
fn what_cannot_be_read_back_stays_in_swap_space() {
    let mut machine = Machine::with_swap(ALPHA, 256, "reservation", 4096);
    machine.anonymous(0, 64, Growth::Fixed);
    (0..64).for_each(|page| machine.put(page, 1000 + page));
    machine.squeeze();
    allow(&mut machine, Some(0));
    let page = (0..64).find(|page| machine.frame(*page).is_none()).expect("something was evicted");
    let used = machine.vm.stats().swap_used_pages;
    for access in [Access::Read, Access::Write] {
        assert_eq!(machine.fault(machine.space, page, access), Err(FaultError::Contents(Vpn(page))));
        machine.vm.validate(&machine.pmap).unwrap();
    }
    assert_eq!(machine.vm.stats().swap_used_pages, used);
    allow(&mut machine, None);
    (0..64).for_each(|page| assert_eq!(machine.get(page), 1000 + page));
    machine.end();
}

#[test]
fn a_child_whose_copy_cannot_be_read_has_what_it_had() {
    let mut machine = Machine::with_swap(ALPHA, 256, "reservation", 4096);
    machine.anonymous(0, 8, Growth::Fixed);
    (0..8).for_each(|page| machine.put(page, 50 + page));
    let parent = machine.space;
    let child = machine.vm.fork(&mut machine.pmap, parent).unwrap();
    machine.squeeze();
    machine.space = child;
    allow(&mut machine, Some(0));
    for page in 0..8 {
        assert_eq!(machine.fault(child, page, Access::Write), Err(FaultError::Contents(Vpn(page))));
        machine.vm.validate(&machine.pmap).unwrap();
    }
    allow(&mut machine, None);
    for page in 0..8 {
        let value = machine.get(page);
        machine.put(page, value + 100);
    }
    (0..8).for_each(|page| assert_eq!(machine.get(page), 150 + page));
    machine.space = parent;
    (0..8).for_each(|page| assert_eq!(machine.get(page), 50 + page));
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.end();
}

#[test]
fn prepopulation_ends_where_contents_end() {
    // With half of eight pages populated the rest follow, of which only one can be filled.
    let mut machine = Machine::new(ALPHA, 256, "talluri-hill");
    machine.file(0, 8, true, 0);
    (0..3).for_each(|page| _ = machine.read(page));
    allow(&mut machine, Some(2));
    assert_eq!(machine.read(3).kind, FaultKind::File);
    let stats = machine.vm.stats();
    assert_eq!((stats.resident_pages, stats.untouched_pages, stats.promotions[1]), (5, 1, 0));
    assert_eq!(machine.mapped(0..8), [0, 1, 2, 3, 4]);
    allow(&mut machine, None);
    assert_eq!(machine.read(5).kind, FaultKind::File);
    assert_eq!((machine.vm.stats().resident_pages, machine.vm.stats().promotions[1]), (8, 1));
    machine.end();
}
