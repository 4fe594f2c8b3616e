//! The multi-list reservation scheme, by the examples of Navarro et al., section 4.8.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Extent, Level, Pfn, Vpn};
use superpage_vm::Growth;

/// Takes every free frame away.
fn wire_rest(machine: &mut Machine) {
    let rest: Vec<Extent> = machine.vm.buddy().iter().collect();
    rest.into_iter().for_each(|extent| machine.vm.wire(extent).unwrap());
}

#[test]
fn a_reservation_is_on_the_list_of_the_largest_extent_it_would_yield() {
    let mut machine = Machine::alpha(512);
    machine.anonymous(0, 512, Growth::Fixed);
    machine.write(0);
    assert_eq!(machine.lists(), [0, 0, 1, 0], "4 MB with one page yields 512 KB");
    machine.write_all((1..8).map(|part| part * 64));
    assert_eq!(machine.lists(), [0, 1, 0, 0], "a page in each 512 KB: it yields 64 KB");
    machine.write_all((0..64).filter(|part| part % 8 != 0).map(|part| part * 8));
    assert_eq!(machine.lists(), [1, 0, 0, 0], "a page in each 64 KB: it yields 8 KB");
    machine.write_all((0..512).filter(|page| page % 8 != 0));
    assert_eq!(machine.lists(), [0, 0, 0, 0], "fully populated, so on no list");
    machine.end();
}

#[test]
fn a_preempted_reservation_is_broken_into_the_next_smaller_size() {
    let mut machine = Machine::alpha(512);
    machine.anonymous(0, 64, Growth::Fixed);
    // Of a 512 KB reservation: one 64 KB piece full, two partially populated, five unpopulated.
    machine.write_all(0..8);
    machine.write(8);
    machine.write(17);
    assert_eq!(machine.lists(), [0, 1, 0, 0]);
    wire_rest(&mut machine);
    machine.anonymous(1024, 8, Growth::Fixed);
    let fault = machine.write(1024);
    assert_eq!((fault.allocated, fault.preempted), (Some(Level(1)), 1));
    // The two pieces at the head, and the new reservation of 64 KB behind them.
    let listed: Vec<Pfn> = machine.vm.reservations(Level(0)).map(|extent| extent.start).collect();
    assert_eq!(listed, [Pfn(16), Pfn(8), Pfn(24)]);
    assert_eq!(machine.vm.buddy().free_extents(Level(1)), 4);
    assert_eq!(machine.vm.stats().pieces_freed, 5);
    assert_eq!(machine.level(0), Some(Level(1)), "the full piece stays what it was");
    assert_eq!(machine.write(9).allocated, None, "a partial piece is still reserved");
}

#[test]
fn the_least_recently_allocated_in_is_preempted_first() {
    let mut machine = Machine::alpha(3 * 64);
    for start in [0, 512, 1024] {
        machine.anonymous(start, 64, Growth::Fixed);
        machine.write(start);
    }
    machine.write(1); // the first is the most recent now
    machine.anonymous(2048, 8, Growth::Fixed);
    assert_eq!(machine.write(2048).preempted, 1);
    assert_eq!(machine.write(2).allocated, None, "the first is untouched");
    assert_eq!(machine.write(1024 + 8).allocated, None, "so is the third");
    // Of the second, the first piece stays reserved; the rest went.
    assert_eq!(machine.write(512 + 1).allocated, None);
    assert_eq!(machine.write(512 + 8).allocated, Some(Level(1)));
}

#[test]
fn the_order_is_buddy_same_size_larger_sizes_smaller_sizes() {
    // Two reservations of 512 KB: one yields 64 KB, in the 64 KB list; one of 4 MB yields 512 KB.
    let mut machine = Machine::alpha(512 + 64 + 8);
    machine.anonymous(0, 512, Growth::Fixed);
    machine.write(0);
    machine.anonymous(1024, 64, Growth::Fixed);
    machine.write(1024);
    assert_eq!(machine.lists(), [0, 1, 1, 0]);
    machine.anonymous(2048, 512, Growth::Fixed);
    machine.unmap(2048 + 8, 504);
    machine.anonymous(2048, 8, Growth::Fixed);
    let order: Vec<u32> = (0..3)
        .map(|i| {
            let start = 4096 + 64 * i;
            machine.anonymous(start, 8, Growth::Fixed);
            let fault = machine.write(start);
            assert_eq!(fault.allocated, Some(Level(1)));
            fault.preempted
        })
        .collect();
    assert_eq!(order, [0, 1, 0], "buddy; then the 64 KB list, which yields seven");
    assert_eq!(machine.lists()[2], 1, "the larger reservation is spared as long as the right list has one");
    // Six of the seven are left in the buddy allocator. Then the list of the larger size has its
    // turn.
    for i in 3..8 {
        machine.anonymous(4096 + 64 * i, 8, Growth::Fixed);
        assert_eq!(machine.write(4096 + 64 * i).preempted, 0);
    }
    machine.anonymous(6144, 8, Growth::Fixed);
    assert_eq!(machine.write(6144).preempted, 1);
    assert_eq!(machine.lists()[2], 0);
}

#[test]
fn without_any_list_that_yields_it_a_smaller_size_is_taken() {
    let mut machine = Machine::alpha(8 + 2);
    machine.anonymous(0, 8, Growth::Fixed);
    machine.write(0);
    machine.anonymous(64, 16, Growth::Fixed);
    // 64 KB are nowhere: base pages, from the buddy allocator first, then by preemption from the 8
    // KB list.
    let faults: Vec<_> = (64..67).map(|page| machine.write(page)).collect();
    assert!(faults.iter().all(|fault| fault.allocated == Some(Level(0))));
    assert_eq!(faults.iter().map(|fault| fault.preempted).collect::<Vec<_>>(), [0, 0, 1]);
    machine.end();
}

#[test]
fn pieces_can_be_freed_instead() {
    let mut machine = Machine::new(ALPHA, 64, "reservation:pieces=free");
    machine.anonymous(0, 64, Growth::Fixed);
    machine.write(0);
    machine.anonymous(1024, 8, Growth::Fixed);
    machine.write(1024);
    assert_eq!(machine.lists(), [1, 0, 0, 0], "only the new reservation");
    assert_eq!(machine.vm.buddy().free_frames(), 64 - 1 - 8);
    machine.end();
}

#[test]
fn without_preemption_only_a_last_base_page_preempts() {
    let mut machine = Machine::new(ALPHA, 64 + 1, "reservation:preempt=off");
    machine.anonymous(0, 64, Growth::Fixed);
    machine.write(0);
    machine.anonymous(1024, 8, Growth::Fixed);
    let fault = machine.write(1024);
    assert_eq!((fault.allocated, fault.preempted), (Some(Level(0)), 0));
    assert_eq!(machine.write(1025).preempted, 1, "no base page is left");
    machine.end();
}

/// First frames of the reservations on a list, from its head.
fn listed(machine: &Machine, level: u8) -> Vec<u64> {
    machine.vm.reservations(Level(level)).map(|extent| extent.start.0).collect()
}

#[test]
fn with_one_list_the_least_recent_of_all_is_preempted() {
    // A reservation of 4 MB yields 512 KB, a later one of 512 KB yields 64 KB. 64 KB are asked for.
    for (policy, again, larger_goes) in [
        ("reservation:lists=one", false, true),
        ("reservation:lists=one", true, false),
        ("reservation", false, false),
        ("reservation", true, false),
    ] {
        let mut machine = Machine::new(ALPHA, 512 + 64, policy);
        machine.anonymous(0, 512, Growth::Fixed);
        machine.write(0);
        machine.anonymous(1024, 64, Growth::Fixed);
        machine.write(1024);
        assert_eq!(machine.lists(), [0, 1, 1, 0]);
        if again {
            machine.write(1);
        }
        machine.anonymous(2048, 8, Growth::Fixed);
        assert_eq!(machine.write(2048).allocated, Some(Level(1)));
        let gone = [256, 1024 + 32].map(|page| machine.write(page).allocated.is_some());
        assert_eq!(gone, [larger_goes, !larger_goes], "{policy}, used again: {again}");
        machine.end();
    }
}

#[test]
fn a_page_found_in_the_newest_reservation_makes_it_newer_still() {
    // Three lists in one queue: what counts is the last page, not when the reservation came to its
    // list.
    let mut machine = Machine::new(ALPHA, 3 * 64, "reservation:lists=one");
    for start in [0, 512, 1024] {
        machine.anonymous(start, 64, Growth::Fixed);
        machine.write(start);
    }
    // The second yields 8 KB, the third 64 KB, and then the first page of all is followed by
    // another one in the second.
    machine.write_all((1..8).map(|part| 512 + 8 * part));
    machine.write(1);
    machine.write(513);
    let order =
        [Level(0), Level(1)].map(|level| machine.vm.reservations(level).map(|it| it.start.0).collect::<Vec<_>>());
    assert_eq!(order, [vec![64], vec![128, 0]]);
    machine.end();
}

#[test]
fn a_reservation_that_loses_pages_is_the_next_to_be_preempted() {
    // Two of 512 KB: one yields 64 KB, the other, newer one has a page in each 64 KB, or all pages.
    for step in [8, 1] {
        let mut machine = Machine::alpha(2 * 64);
        for start in [0, 512] {
            machine.anonymous(start, 64, Growth::Fixed);
        }
        machine.write(0);
        machine.write_all((0..64).step_by(step).map(|page| 512 + page));
        assert_eq!((listed(&machine, 1), machine.lists()[0]), (vec![0], usize::from(step > 1)));
        machine.vm.discard(&mut machine.pmap, machine.space, Vpn(512 + 24).pages(8)).unwrap();
        machine.vm.validate(&machine.pmap).unwrap();
        assert_eq!(listed(&machine, 1), [64, 0], "it is not being filled");
        machine.anonymous(2048, 8, Growth::Fixed);
        assert_eq!(machine.write(2048).preempted, 1);
        assert_eq!(machine.write(32).allocated, None, "the other one is untouched");
        machine.end();
    }
}

#[test]
fn a_reservation_that_loses_pages_and_yields_no_more_keeps_its_place() {
    let mut machine = Machine::alpha(2 * 64);
    for start in [0, 512] {
        machine.anonymous(start, 64, Growth::Fixed);
        machine.write_all([start, start + 1].into_iter());
    }
    assert_eq!(listed(&machine, 1), [0, 64]);
    machine.vm.discard(&mut machine.pmap, machine.space, Vpn(513).pages(1)).unwrap();
    assert_eq!(listed(&machine, 1), [0, 64]);
    machine.end();
}
