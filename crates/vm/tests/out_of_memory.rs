//! When memory is full: an error, and a state from which everything goes on.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Access, Extent, Level, Pfn, Vpn};
use superpage_vm::{FaultError, Growth};

#[test]
fn a_full_memory_is_an_error_until_something_is_freed() {
    for policy in ["base", "reservation", "reservation:preempt=off", "reservation:pieces=free"] {
        let mut machine = Machine::new(ALPHA, 100, policy);
        machine.anonymous(0, 4096, Growth::Fixed);
        // Scattered, so that there are reservations to preempt.
        let pages: Vec<u64> = (0..100).map(|i| i * 37).collect();
        machine.write_all(pages.iter().copied());
        assert_eq!(machine.vm.buddy().free_frames(), 0, "{policy}");
        let before = machine.vm.stats();
        assert_eq!(machine.try_touch(5, Access::Write), Err(FaultError::OutOfMemory(Vpn(5))), "{policy}");
        let after = machine.vm.stats();
        assert_eq!(after.faults_out_of_memory, before.faults_out_of_memory + 1);
        assert_eq!((after.faults, after.resident_pages), (before.faults, 100));
        machine.unmap(37, 1);
        machine.write(5);
        machine.end();
    }
}

#[test]
fn a_copy_that_finds_no_frame_leaves_both_processes_as_they_were() {
    let mut machine = Machine::alpha(8);
    machine.anonymous(0, 8, Growth::Fixed);
    machine.write_all(0..8);
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    let failed = machine.fault(child, 3, Access::Write);
    assert_eq!(failed, Err(FaultError::OutOfMemory(Vpn(3))));
    machine.vm.validate(&machine.pmap).unwrap();
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    assert_eq!(machine.vm.stats().resident_pages, 8);
    machine.write(3);
    machine.end();
}

#[test]
fn wired_frames_are_gone_for_ever() {
    let mut machine = Machine::alpha(512);
    machine.vm.wire(Extent { start: Pfn(5), level: Level(0) }).unwrap();
    assert!(machine.vm.wire(Extent { start: Pfn(0), level: Level(1) }).is_err());
    machine.anonymous(0, 512, Growth::Fixed);
    assert_eq!(machine.write(0).allocated, Some(Level(2)), "no 4 MB extent is free any more");
    assert_eq!(machine.vm.stats().wired_frames, 1);
    machine.vm.exit(&mut machine.pmap, machine.space).unwrap();
    assert_eq!((machine.vm.buddy().free_frames(), machine.vm.leaked_frames()), (511, 0));
}
