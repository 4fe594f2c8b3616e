//! Fork and copy-on-write.

use crate::machine::Machine;
use superpage_pages::{Access, Level, Protection, Vpn};
use superpage_vm::{FaultKind, Growth, SpaceId};

fn forked() -> (Machine, SpaceId) {
    let mut machine = Machine::alpha(2048);
    machine.anonymous(512, 64, Growth::Fixed);
    machine.write_all(512..576);
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    (machine, child)
}

fn end(mut machine: Machine, child: SpaceId) {
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    machine.end();
}

#[test]
fn the_child_shares_pages_until_a_write() {
    let (mut machine, child) = forked();
    assert_eq!(machine.vm.stats().resident_pages, 64);
    assert_eq!(machine.level(512), Some(Level(2)), "the parent's superpage only lost the right to write");
    let read = machine.fault(child, 520, Access::Read).unwrap();
    assert_eq!(read.kind, FaultKind::Resident);
    let write = machine.fault(child, 520, Access::Write).unwrap();
    assert_eq!((write.kind, write.source), (FaultKind::Copy, Some(read.frame)));
    assert_eq!((write.zeroed, write.copied), (0, 8192));
    assert_eq!(write.allocated, Some(Level(2)), "copies get reservations of their own");
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(machine.vm.stats().bytes_copied, 8192);
    end(machine, child);
}

#[test]
fn a_child_that_reads_all_gets_the_parents_superpages() {
    let (mut machine, child) = forked();
    let mapped = (512..576).map(|page| machine.fault(child, page, Access::Read));
    assert_eq!(mapped.last().unwrap().unwrap().mapped, Level(2));
    assert_eq!(machine.vm.stats().resident_pages, 64);
    end(machine, child);
}

#[test]
fn a_write_of_the_parent_demotes_only_around_its_page() {
    let (mut machine, child) = forked();
    let fault = machine.write(530);
    assert_eq!(fault.kind, FaultKind::Copy);
    assert_eq!(machine.vm.stats().mapped[..3], [8, 7, 0]);
    end(machine, child);
}

#[test]
fn a_parent_that_is_alone_again_copies_nothing() {
    let (mut machine, child) = forked();
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    let fault = machine.write(530);
    assert_eq!((fault.kind, fault.mapped), (FaultKind::Rights, Level(2)));
    assert_eq!(machine.vm.stats().bytes_copied, 0);
    machine.end();
}

#[test]
fn a_copy_takes_over_what_nobody_else_needs() {
    let (mut machine, child) = forked();
    machine.write(530);
    assert_eq!(machine.vm.stats().resident_pages, 65);
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    let stats = machine.vm.stats();
    assert_eq!((stats.collapses, stats.resident_pages), (1, 64), "the page behind the copy is free");
    machine.end();
}

/// A guard page in a mapping divides it into windows on one object, which stays as long as one of
/// them does.
#[test]
fn what_both_have_copied_goes_with_one_of_them_also_behind_a_guard_page() {
    for guard in [false, true] {
        let mut machine = Machine::alpha(2048);
        machine.anonymous(512, 64, Growth::Fixed);
        machine.write_all(512..576);
        if guard {
            machine.protect(575, 1, Protection::NONE);
        }
        for _ in 0..3 {
            let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
            machine.write_all(512..540);
            for page in 512..530 {
                let _ = machine.fault(child, page, Access::Write).unwrap();
            }
            machine.vm.validate(&machine.pmap).unwrap();
            machine.vm.exit(&mut machine.pmap, child).unwrap();
            machine.vm.validate(&machine.pmap).unwrap();
            assert_eq!(machine.vm.stats().resident_pages, 64, "guard {guard}");
        }
        machine.end();
    }
}

#[test]
fn memory_that_grows_after_a_fork_shows_nothing_of_before() {
    let (mut machine, child) = forked();
    machine.unmap(520, 56);
    let (old, new) = (Vpn(512).pages(8), Vpn(512).pages(64));
    machine.vm.remap(&mut machine.pmap, machine.space, old, new).unwrap();
    assert_eq!(machine.read(530).kind, FaultKind::Zero, "the child's page 530 is not the parent's any more");
    end(machine, child);
}
