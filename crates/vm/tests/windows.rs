//! What a mapping gave up is gone, whoever shared it: after fork, no page outlives the last mapping
//! that could reach it, and none of them comes back when the mapping grows again.

use crate::machine::Machine;
use superpage_pages::{Access, Vpn};
use superpage_vm::{FaultKind, Growth, SpaceId};

const PAGES: u64 = 20;
const KEPT: u64 = 5;

/// How a mapping loses all but its first pages.
const SHRINK: [fn(&mut Machine); 3] = [
    |machine| machine.vm.grow(&mut machine.pmap, machine.space, Vpn(0), KEPT).unwrap(),
    |machine| machine.unmap(KEPT, PAGES - KEPT),
    |machine| machine.vm.remap(&mut machine.pmap, machine.space, Vpn(0).pages(PAGES), Vpn(0).pages(KEPT)).unwrap(),
];

/// How it is made as long as it was.
const GROW: [fn(&mut Machine); 2] = [
    |machine| machine.vm.grow(&mut machine.pmap, machine.space, Vpn(0), PAGES).unwrap(),
    |machine| machine.vm.remap(&mut machine.pmap, machine.space, Vpn(0).pages(KEPT), Vpn(0).pages(PAGES)).unwrap(),
];

/// Two ladders, with memory for several times what is used, and so little that most of it is in
/// swap space.
const MACHINES: [(&str, u64); 3] = [("8K 64K", 256), ("4K", 256), ("8K 64K", 32)];

fn heap(sizes: &str, frames: u64, policy: &str) -> Machine {
    let mut machine = Machine::with_swap(sizes, frames, policy, 1000);
    machine.anonymous(0, PAGES, Growth::Up);
    (0..PAGES).for_each(|page| machine.put(page, 100 + page));
    machine
}

fn fork(machine: &mut Machine) -> SpaceId {
    machine.vm.fork(&mut machine.pmap, machine.space).unwrap()
}

fn exit(machine: &mut Machine, space: SpaceId) {
    machine.vm.exit(&mut machine.pmap, space).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
}

/// Calls `work` for each way to shrink and to grow, policy and machine.
fn each(work: impl Fn(Machine, fn(&mut Machine), fn(&mut Machine))) {
    for (sizes, frames) in MACHINES {
        for policy in ["base", "reservation", "freebsd", "thp"] {
            for shrink in SHRINK {
                GROW.into_iter().for_each(|grow| work(heap(sizes, frames, policy), shrink, grow));
            }
        }
    }
}

/// The mapping has what it kept, and zeroes in what it grew by.
fn as_new(mut machine: Machine, kept: impl Fn(u64) -> u64, grow: fn(&mut Machine)) {
    assert!(machine.vm.stats().resident_pages <= KEPT, "{:?}", machine.vm.stats());
    assert!(machine.vm.stats().swap_used_pages <= KEPT, "{:?}", machine.vm.stats());
    grow(&mut machine);
    machine.vm.validate(&machine.pmap).unwrap();
    (0..KEPT).for_each(|page| assert_eq!(machine.get(page), kept(page)));
    for page in KEPT..PAGES {
        // A policy may have populated it with the page before.
        let fault = machine.try_touch(page, Access::Read).unwrap();
        assert!(fault.is_none_or(|fault| fault.kind == FaultKind::Zero), "page {page}");
        assert_eq!(machine.get(page), 0, "page {page}");
    }
    machine.end();
}

#[test]
fn what_the_parent_gave_up_goes_with_the_child() {
    each(|mut machine, shrink, grow| {
        let child = fork(&mut machine);
        machine.put(2, 1);
        shrink(&mut machine);
        machine.vm.validate(&machine.pmap).unwrap();
        exit(&mut machine, child);
        as_new(machine, |page| if page == 2 { 1 } else { 100 + page }, grow);
    });
}

#[test]
fn also_if_the_parent_never_wrote() {
    each(|mut machine, shrink, grow| {
        let child = fork(&mut machine);
        shrink(&mut machine);
        exit(&mut machine, child);
        as_new(machine, |page| 100 + page, grow);
    });
}

#[test]
fn also_if_the_child_gave_it_up_first() {
    each(|mut machine, shrink, grow| {
        let parent = machine.space;
        let child = fork(&mut machine);
        machine.put(3, 1);
        machine.space = child;
        machine.put(10, 2);
        shrink(&mut machine);
        machine.space = parent;
        shrink(&mut machine);
        machine.vm.validate(&machine.pmap).unwrap();
        assert!(machine.vm.stats().resident_pages <= 2 * KEPT, "nobody can reach what both gave up");
        exit(&mut machine, child);
        as_new(machine, |page| if page == 3 { 1 } else { 100 + page }, grow);
    });
}

#[test]
fn along_the_whole_chain_of_nested_forks() {
    each(|mut machine, shrink, grow| {
        let mut children = Vec::new();
        for generation in 0..4 {
            children.push(fork(&mut machine));
            (generation..PAGES).step_by(4).for_each(|page| machine.put(page, 1000 + page));
        }
        shrink(&mut machine);
        machine.vm.validate(&machine.pmap).unwrap();
        // Neither in the order of the forks nor against it.
        [2, 0, 3, 1].into_iter().for_each(|child| exit(&mut machine, children[child]));
        as_new(machine, |page| 1000 + page, grow);
    });
}

#[test]
fn a_discard_gives_up_what_only_it_could_reach() {
    each(|mut machine, _, grow| {
        let child = fork(&mut machine);
        machine.put(2, 1);
        machine.vm.discard(&mut machine.pmap, machine.space, Vpn(KEPT).pages(PAGES - KEPT)).unwrap();
        exit(&mut machine, child);
        machine.unmap(KEPT, PAGES - KEPT);
        as_new(machine, |page| if page == 2 { 1 } else { 100 + page }, grow);
    });
}
