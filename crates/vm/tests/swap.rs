//! Swap space: pages of anonymous memory written there and read back, when it is full, and when its
//! slots are given back.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Access, Vpn};
use superpage_vm::{FaultError, FaultKind, Growth};

const FRAMES: u64 = 64;

/// A value for each page.
fn value(page: u64) -> u64 {
    3 * page + 1
}

fn filled(policy: &str, pages: u64, swap_pages: u64) -> Machine {
    let mut machine = Machine::with_swap("8K 64K", FRAMES, policy, swap_pages);
    machine.anonymous(0, pages, Growth::Fixed);
    (0..pages).for_each(|page| machine.put(page, value(page)));
    machine
}

#[test]
fn four_times_as_much_as_memory_holds_what_was_written() {
    for policy in ["base", "reservation", "freebsd", "talluri-hill", "thp"] {
        let mut machine = filled(policy, 4 * FRAMES, 4 * FRAMES);
        for round in 0..3 {
            (0..4 * FRAMES).for_each(|page| assert_eq!(machine.get(page), value(page), "{policy}, round {round}"));
        }
        let stats = machine.vm.stats();
        assert_eq!(stats.page_outs, 4 * FRAMES, "{policy}: each page was written once");
        assert!(stats.page_ins >= 3 * 3 * FRAMES, "{policy}: {}", stats.page_ins);
        machine.end();
    }
}

#[test]
fn a_huge_page_goes_whole_where_swap_space_has_room_for_all_of_it() {
    // More than the last eight faults have mapped, which stays.
    const FRAMES: u64 = 256;
    let filled = |policy, slots| {
        let mut machine = Machine::with_swap("8K 64K", FRAMES, policy, slots);
        machine.anonymous(0, FRAMES, Growth::Fixed);
        (0..FRAMES).for_each(|page| machine.put(page, value(page)));
        machine
    };
    for (policy, slots, whole) in
        [("thp", 8, 1), ("thp", 7, 0), ("thp:demote-on-evict=on", 8, 0), ("thp:cache=held", 8, 1)]
    {
        let mut machine = filled(policy, slots);
        machine.anonymous(1024, 1, Growth::Fixed);
        machine.put(1024, value(1024));
        let stats = machine.vm.stats();
        let gone = stats.evictions;
        assert_eq!((stats.superpages_evicted, stats.page_outs), (whole, gone), "{policy}, {slots} slots");
        // All that the daemon needs is in one huge page.
        assert_eq!(stats.mapped[1], FRAMES / 8 - 1, "{policy}, {slots} slots");
        assert_eq!(stats.demotions[1], 1 - whole, "{policy}, {slots} slots");
        assert_eq!(machine.mapped(0..FRAMES).len() as u64, FRAMES - gone, "{policy}, {slots} slots");
        (0..FRAMES).for_each(|page| assert_eq!(machine.get(page), value(page), "{policy}, {slots} slots"));
        assert_eq!(machine.get(1024), value(1024));
        machine.end();
    }
    // A page that a child has mapped too.
    let mut machine = filled("thp", 2 * FRAMES);
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    let parent = std::mem::replace(&mut machine.space, child);
    (0..FRAMES).for_each(|page| assert_eq!(machine.get(page), value(page)));
    machine.anonymous(1024, FRAMES, Growth::Fixed);
    (1024..1024 + FRAMES).for_each(|page| machine.put(page, page));
    assert!(machine.vm.stats().superpages_evicted > 0);
    for space in [parent, child] {
        machine.space = space;
        (0..FRAMES).for_each(|page| assert_eq!(machine.get(page), value(page)));
    }
    machine.vm.exit(&mut machine.pmap, parent).unwrap();
    machine.end();
}

#[test]
fn memory_and_swap_space_full_is_an_error_and_nothing_is_lost() {
    for policy in ["base", "reservation", "freebsd"] {
        let mut machine = Machine::with_swap("8K 64K", FRAMES, policy, 5);
        machine.anonymous(0, 100, Growth::Fixed);
        (0..FRAMES + 5).for_each(|page| machine.put(page, value(page)));
        for _ in 0..2 {
            let full = machine.try_put(FRAMES + 5, 1);
            assert_eq!(full, Err(FaultError::OutOfMemory(Vpn(FRAMES + 5))), "{policy}");
            assert!(!machine.daemon(), "no page can go");
        }
        assert_eq!(machine.vm.stats().resident_pages, FRAMES);
        // The contents of what stayed, and with room made, of what went.
        let resident = machine.mapped(0..FRAMES + 5);
        assert_eq!(resident.len() as u64, FRAMES);
        assert!(resident.iter().all(|page| machine.get(*page) == value(*page)));
        machine.unmap(FRAMES - 16, 16);
        let mut left = (0..FRAMES - 16).chain(FRAMES..FRAMES + 5);
        assert!(left.all(|page| machine.get(page) == value(page)), "{policy}");
        machine.end();
    }
}

#[test]
fn a_daemon_that_can_do_nothing_sleeps_until_something_is_freed() {
    // Fewer than four frames are available, and no page can go.
    let mut machine = filled("reservation:wake=memory", FRAMES - 2, 0);
    machine.anonymous(1024, 1, Growth::Fixed);
    assert!(machine.vm.daemon_wanted() && !machine.daemon());
    assert!(!machine.vm.daemon_wanted(), "not at every fault that follows");
    machine.put(1024, 1);
    assert!(!machine.vm.daemon_wanted());
    machine.unmap(1024, 1);
    machine.unmap(0, 1);
    assert!(machine.vm.daemon_wanted());
    assert!(!machine.daemon());
    machine.unmap(8, 16);
    machine.file(2048, 200, true, 0);
    (0..200).for_each(|page| assert_eq!(machine.get(2048 + page), 0));
    assert!(machine.vm.stats().evictions > 0, "memory full of clean pages is an error that it can mend");
    machine.end();
}

#[test]
fn without_swap_space_only_clean_pages_go() {
    let mut machine = Machine::new("8K 64K", FRAMES, "reservation");
    machine.anonymous(0, 40, Growth::Fixed);
    (0..40).for_each(|page| machine.put(page, value(page)));
    machine.file(1024, 200, true, 0);
    for page in 0..200 {
        assert_eq!(machine.get(1024 + page), 0);
    }
    assert!((0..40).all(|page| machine.frame(page).is_some()), "dirty, with no place to be written to");
    assert_eq!(machine.vm.stats().page_outs, 0);
    machine.end();
}

#[test]
fn a_page_keeps_its_slot_until_it_is_given_up() {
    let mut machine = filled("base", 2 * FRAMES, 2 * FRAMES);
    let slots: std::collections::BTreeSet<u64> = machine.disk.stored.keys().map(|(_, slot)| *slot).collect();
    (0..2 * FRAMES).for_each(|page| machine.put(page, value(page) + 1));
    (0..2 * FRAMES).for_each(|page| assert_eq!(machine.get(page), value(page) + 1));
    let again: std::collections::BTreeSet<u64> = machine.disk.stored.keys().map(|(_, slot)| *slot).collect();
    assert!(slots.is_subset(&again));
    assert_eq!(again.len() as u64, 2 * FRAMES, "one slot for each page, written as often as the page changed");
    machine.end();
}

#[test]
fn slots_are_given_back_by_unmap_exit_exec_and_discard() {
    // Swap space has room for one round: what a round leaves behind would end the next.
    let mut machine = Machine::with_swap("8K 64K", FRAMES, "reservation", FRAMES);
    let first = machine.space;
    for round in 0..12 {
        machine.space = machine.vm.create_space();
        machine.anonymous(0, 2 * FRAMES, Growth::Fixed);
        (0..2 * FRAMES).for_each(|page| machine.put(page, value(page)));
        assert!(machine.try_put(0, 1).is_err(), "round {round}: memory and swap space are full");
        match round % 4 {
            0 => machine.unmap(0, 2 * FRAMES),
            1 => machine.vm.exec(&mut machine.pmap, machine.space).unwrap(),
            2 => machine.vm.discard(&mut machine.pmap, machine.space, Vpn(0).pages(2 * FRAMES)).unwrap(),
            _ => {}
        }
        machine.vm.validate(&machine.pmap).unwrap();
        machine.vm.exit(&mut machine.pmap, machine.space).unwrap();
    }
    machine.space = first;
    machine.end();
}

#[test]
fn after_fork_both_read_from_swap_and_a_write_copies() {
    let mut machine = Machine::with_swap("8K 64K", FRAMES, "reservation", 1000);
    machine.anonymous(0, 16, Growth::Fixed);
    (0..16).for_each(|page| machine.put(page, value(page)));
    let parent = machine.space;
    let child = machine.vm.fork(&mut machine.pmap, parent).unwrap();
    machine.squeeze();
    assert!(machine.mapped(0..16).is_empty());
    machine.space = child;
    assert_eq!(machine.read(3).kind, FaultKind::Swap);
    machine.space = parent;
    assert_eq!(machine.read(3).kind, FaultKind::Resident, "one page for both");
    // The write of a page in swap space: it is read into the copy, and stays in swap space for the
    // parent.
    machine.space = child;
    let faults = machine.vm.stats();
    machine.put(4, 1000);
    let now = machine.vm.stats();
    assert_eq!((now.faults_swap - faults.faults_swap, now.faults_copy - faults.faults_copy), (1, 0));
    machine.put(3, 1001);
    machine.squeeze();
    for (space, expected) in [(parent, [value(3), value(4), value(5)]), (child, [1001, 1000, value(5)])] {
        machine.space = space;
        assert_eq!([3, 4, 5].map(|page| machine.get(page)), expected);
    }
    machine.vm.exit(&mut machine.pmap, parent).unwrap();
    assert_eq!([2, 3, 4, 5].map(|page| machine.get(page)), [value(2), 1001, 1000, value(5)]);
    machine.end();
}

#[test]
fn a_copy_takes_over_pages_that_are_in_swap_space() {
    let mut machine = Machine::with_swap("8K 64K", FRAMES, "reservation", 1000);
    machine.anonymous(0, 16, Growth::Fixed);
    (0..16).for_each(|page| machine.put(page, value(page)));
    let parent = machine.space;
    let child = machine.vm.fork(&mut machine.pmap, parent).unwrap();
    (0..8).for_each(|page| machine.put(page, 100 + page));
    machine.squeeze();
    // Of what was in swap space, some is back, in the copy-on-write object and behind it.
    assert_eq!([2, 10].map(|page| machine.get(page)), [102, value(10)]);
    let collapses = machine.vm.stats().collapses;
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(machine.vm.stats().collapses, collapses + 1);
    for round in 0..2 {
        let expected = |page| if page < 8 { 100 + page } else { value(page) };
        assert!((0..16).all(|page| machine.get(page) == expected(page)), "round {round}");
        machine.squeeze();
    }
    machine.end();
}

#[test]
fn a_page_that_was_never_written_has_no_slot() {
    let mut machine = Machine::with_swap("8K 64K", FRAMES, "reservation", 1000);
    machine.anonymous(0, 16, Growth::Fixed);
    (0..16).for_each(|page| assert_eq!(machine.get(page), 0));
    machine.squeeze();
    let before = machine.vm.stats();
    assert_eq!(machine.try_touch(0, Access::Read).unwrap().unwrap().kind, FaultKind::Zero);
    assert_eq!(machine.vm.stats().page_ins, before.page_ins);
    machine.end();
}

#[test]
fn dirty_pages_of_a_file_need_no_swap_space() {
    for policy in ["base", "reservation", "freebsd"] {
        let mut machine = Machine::new("8K 64K", FRAMES, policy);
        machine.file(1024, 4 * FRAMES, true, 0);
        (0..4 * FRAMES).for_each(|page| machine.put(1024 + page, value(page)));
        assert!((0..4 * FRAMES).all(|page| machine.get(1024 + page) == value(page)), "{policy}");
        machine.end();
    }
}

#[test]
fn with_swap_space_full_a_page_can_still_go_to_its_own_slot() {
    let mut machine = filled("base", FRAMES + 5, 5);
    let evicted: Vec<u64> = (0..FRAMES + 5).filter(|page| machine.frame(*page).is_none()).collect();
    assert_eq!(evicted.len(), 5, "swap space is full");
    machine.unmap(FRAMES - 1, 1);
    // Brought in and written, it is dirty and has its slot; then only it can go.
    machine.put(evicted[0], 77);
    machine.anonymous(1024, 1, Growth::Fixed);
    machine.put(1024, 78);
    assert_eq!((machine.frame(evicted[0]), machine.get(1024)), (None, 78));
    assert_eq!(machine.disk.stored.values().filter(|it| **it == 77).count(), 1);
    machine.end();
}

#[test]
fn a_copy_leaves_a_cache_page_that_holds_its_frame_where_it_is() {
    let mut machine = filled("base", FRAMES - 3, 1000);
    let parent = machine.space;
    let child = machine.vm.fork(&mut machine.pmap, parent).unwrap();
    assert!(machine.daemon() && machine.vm.stats().cache_pages > 3);
    machine.space = child;
    assert_eq!(machine.write(3).kind, FaultKind::Copy);
    machine.space = parent;
    assert_eq!(machine.read(3).kind, FaultKind::Resident, "memory has room for both");
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.end();
}

#[test]
fn swap_space_takes_no_memory_before_it_is_used() {
    let with = |pages| Machine::with_swap(ALPHA, 1024, "reservation", pages).vm.metadata_bytes();
    assert_eq!(with(0), with(u64::from(u32::MAX)));
}
