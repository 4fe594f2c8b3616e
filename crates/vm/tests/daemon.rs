//! The page daemon (Navarro et al., section 5.1): which pages go when memory is short, and what
//! becomes of their frames.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Level, Protection};
use superpage_vm::{FaultKind, Growth, SpaceId};

/// Where the file is mapped.
const FILE: u64 = 512;
/// What only one process may read.
const SECRET: u64 = u64::MAX / 3;

fn value(page: u64) -> u64 {
    3 * page + 1
}

/// 64 frames, so that the daemon wakes at fewer than 4 and aims at 16.
fn small(policy: &str) -> Machine {
    Machine::with_swap("8K 64K", 64, policy, 1000)
}

/// All but three of the frames hold pages of a file, read in order, of which the daemon has taken
/// the oldest out of use: all of the first 64 KB, and five pages of the next.
fn thirteen_evicted(policy: &str) -> Machine {
    let mut machine = small(policy);
    machine.file(FILE, 200, true, 0);
    (0..200).for_each(|page| {
        machine.disk.stored.insert((Some(1), page), value(page));
    });
    (0..61).for_each(|page| assert_eq!(machine.get(FILE + page), value(page)));
    assert_eq!(machine.vm.stats().mapped[..2], [5, 7]);
    assert!(machine.daemon());
    assert_eq!(machine.mapped(FILE..FILE + 61), (FILE + 13..FILE + 61).collect::<Vec<_>>(), "the oldest went");
    machine.disk.stored.clear();
    machine
}

#[test]
fn the_oldest_pages_go_first_and_those_in_use_stay() {
    let mut machine = small("base");
    machine.anonymous(0, 400, Growth::Fixed);
    (0..60).for_each(|page| machine.put(page, value(page)));
    assert!(!machine.vm.daemon_wanted(), "four frames are enough");
    machine.put(60, value(60));
    assert!(machine.vm.daemon_wanted() && machine.daemon() && !machine.vm.daemon_wanted());
    assert_eq!(machine.mapped(0..61), (13..61).collect::<Vec<_>>());
    assert_eq!(machine.vm.stats().evictions, 13, "16 frames are available");
    // The oldest twelve of those left are used again; the daemon is woken by thirteen new ones.
    (13..25).chain(61..74).for_each(|page| machine.put(page, value(page)));
    assert!(machine.vm.daemon_wanted() && machine.daemon());
    assert_eq!(machine.mapped(0..74), (13..25).chain(38..74).collect::<Vec<_>>());
    assert!((0..74).all(|page| machine.get(page) == value(page)));
    machine.end();
}

#[test]
fn superpages_grow_old_no_faster_than_base_pages() {
    // The first 40 pages, in superpages or not, are used between one run of the daemon and the
    // next.
    let lost = ["reservation:speculate=0/4,wake=memory", "base"].map(|policy| {
        let mut machine = small(policy);
        machine.anonymous(0, 400, Growth::Fixed);
        (0..40).for_each(|page| machine.put(page, value(page)));
        let (mut fresh, mut lost) = (40, 0);
        for _ in 0..20 {
            while !machine.vm.daemon_wanted() {
                machine.put(fresh, value(fresh));
                fresh += 1;
            }
            (0..40).for_each(|page| assert_eq!(machine.get(page), value(page)));
            machine.daemon();
            lost += 40 - machine.mapped(0..40).len();
        }
        machine.end();
        lost
    });
    assert!(4 * lost[0] < 5 * lost[1], "{lost:?} of the pages in use went, of superpages and of base pages");
}

#[test]
fn clean_pages_are_not_written_and_dirty_ones_once() {
    for policy in ["base", "reservation", "freebsd", "talluri-hill", "thp"] {
        let mut machine = small(policy);
        machine.file(FILE, 200, true, 0);
        (0..200).for_each(|page| assert_eq!(machine.get(FILE + page), 0));
        assert_eq!(machine.vm.stats().page_outs, 0, "{policy}");
        let dirty: Vec<u64> = (0..200).step_by(9).collect();
        dirty.iter().for_each(|page| machine.put(FILE + page, value(*page)));
        for _ in 0..2 {
            let expected = |page| if page % 9 == 0 { value(page) } else { 0 };
            assert!((0..200).all(|page| machine.get(FILE + page) == expected(page)), "{policy}");
        }
        let mut written: Vec<u64> = machine.disk.stored.keys().map(|(_, page)| *page).collect();
        written.sort_unstable();
        assert_eq!((&written, machine.disk.log.len()), (&dirty, dirty.len()), "{policy}");
        machine.end();
    }
}

#[test]
fn a_cache_page_is_taken_back_from_the_buddy_allocator_with_its_contents() {
    let mut machine = thirteen_evicted("reservation:speculate=0/4");
    assert_eq!(machine.vm.buddy().free_extents(Level(1)), 1, "coalesced, as if it held nothing");
    let before = machine.vm.stats();
    let fault = machine.read(FILE + 3);
    assert_eq!((fault.kind, fault.source, fault.preempted), (FaultKind::Cached, None, 0));
    assert_eq!(fault.allocated, Some(Level(1)), "with the extent around it");
    assert_eq!(machine.get(FILE + 3), value(3));
    // The others are in its reservation now.
    let fault = machine.read(FILE + 4);
    assert_eq!((fault.kind, fault.source, fault.reserved), (FaultKind::Cached, None, true));
    assert_eq!(machine.get(FILE + 4), value(4));
    assert_eq!(machine.vm.stats().page_ins, before.page_ins);
    assert_eq!(machine.vm.stats().cache_reactivated, before.cache_reactivated + 2);
    machine.end();
}

#[test]
fn a_cache_page_is_taken_back_from_its_own_reservation() {
    let mut machine = thirteen_evicted("reservation:speculate=0/4");
    let beside = machine.frame(FILE + 13).unwrap();
    let fault = machine.read(FILE + 12);
    assert_eq!((fault.kind, fault.source), (FaultKind::Cached, None));
    assert_eq!((fault.reserved, fault.preempted, fault.frame.0 + 1), (true, 0, beside.0));
    assert_eq!(machine.get(FILE + 12), value(12));
    (8..12).for_each(|page| assert_eq!(machine.get(FILE + page), value(page)));
    assert_eq!(machine.level(FILE + 8), Some(Level(1)), "complete again");
    machine.end();
}

#[test]
fn a_cache_page_whose_frame_is_reserved_elsewhere_is_copied_there() {
    let mut machine = small("reservation:speculate=0/4");
    machine.file(FILE, 8, true, 0);
    machine.disk.stored.insert((Some(1), 3), value(3));
    (0..8).for_each(|page| assert_eq!(machine.get(FILE + page), if page == 3 { value(3) } else { 0 }));
    let cached = machine.frame(FILE).unwrap();
    machine.anonymous(0, 53, Growth::Fixed);
    (0..53).for_each(|page| machine.put(page, value(page)));
    assert!(machine.daemon() && machine.mapped(FILE..FILE + 8).is_empty(), "all of the file went");
    // Another program has the frame of its second page, and there is an extent elsewhere.
    machine.unmap(0, 8);
    machine.anonymous(2048, 16, Growth::Fixed);
    let taken = [2049, 2057].map(|page| (machine.write(page).frame, page));
    let (_, elsewhere) = *taken.iter().find(|(frame, _)| *frame != cached + 1).unwrap();
    machine.unmap(elsewhere - 1, 8);
    let fault = machine.read(FILE + 1);
    assert_eq!((fault.kind, fault.allocated, fault.copied), (FaultKind::File, Some(Level(1)), 0));
    let copied = machine.vm.stats().bytes_copied;
    let fault = machine.read(FILE + 3);
    assert_eq!((fault.kind, fault.reserved, fault.source), (FaultKind::Cached, true, Some(cached + 3)));
    assert_eq!((fault.zeroed, fault.copied, machine.vm.stats().bytes_copied - copied), (0, 8192, 8192));
    assert_eq!(machine.get(FILE + 3), value(3));
    machine.end();
}

#[test]
fn a_cache_page_is_taken_back_from_the_reservation_of_another_which_is_preempted() {
    let mut machine = thirteen_evicted("reservation:speculate=0/4");
    machine.anonymous(2048, 8, Growth::Fixed);
    assert_eq!(machine.write(2049).allocated, Some(Level(1)), "cache pages are there for reservations");
    let fault = machine.read(FILE + 3);
    assert_eq!((fault.kind, fault.source, fault.preempted), (FaultKind::Cached, None, 1));
    assert_eq!(machine.get(FILE + 3), value(3));
    let fault = machine.read(FILE + 4);
    assert_eq!((fault.kind, fault.preempted), (FaultKind::Cached, 0), "what was not populated is free again");
    assert_eq!(machine.read(FILE + 1).kind, FaultKind::File, "there the other one has its page");
    assert_eq!(machine.read(2050).allocated, Some(Level(0)));
    machine.end();
}

#[test]
fn cache_pages_count_as_free_or_hold_their_frames_or_are_freed() {
    for (cache, extents, level, again) in
        [("available", 1, 1, FaultKind::Cached), ("held", 0, 0, FaultKind::Resident), ("free", 1, 1, FaultKind::File)]
    {
        let mut machine = thirteen_evicted(&format!("reservation:speculate=0/4,cache={cache}"));
        assert_eq!(machine.vm.buddy().free_extents(Level(1)), extents, "{cache}");
        assert_eq!(machine.read(FILE + 12).kind, again, "{cache}");
        machine.anonymous(2048, 8, Growth::Fixed);
        assert_eq!(machine.write(2048).allocated, Some(Level(level)), "{cache}");
        assert_eq!(machine.vm.stats().contiguity_failed, 1 - extents, "{cache}");
        machine.end();
    }
}

#[test]
fn a_held_cache_page_goes_when_a_base_page_is_needed_the_oldest_first() {
    let mut machine = thirteen_evicted("reservation:speculate=0/4,cache=held");
    machine.anonymous(2048, 8, Growth::Fixed);
    // The first page of an extent full of cache pages: the rest of it is a reservation, and is
    // broken for it.
    assert_eq!((0..3).map(|page| machine.write(2048 + page).preempted).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(machine.read(FILE + 3).kind, FaultKind::Resident, "three of thirteen are gone");
    assert_eq!(machine.read(FILE + 2).kind, FaultKind::File);
    assert_eq!(machine.read(FILE + 4).kind, FaultKind::File, "it went for the one before");
    machine.end();
}

#[test]
fn an_eviction_demotes_step_by_step_around_the_victim() {
    for (stepwise, demotions, beside) in [("on", [0, 5, 1, 1], 2), ("off", [0, 0, 0, 1], 0)] {
        let policy = format!("reservation:speculate=0/4,stepwise={stepwise}");
        let mut machine = Machine::with_swap(ALPHA, 1200, &policy, 1000);
        machine.anonymous(0, 4096, Growth::Fixed);
        (0..1195).for_each(|page| machine.put(page, value(page)));
        assert_eq!([0, 512, 1024].map(|page| machine.level(page).unwrap().0), [3, 3, 2]);
        // Five frames are available: the goal is 40.
        assert!(machine.daemon());
        assert_eq!(machine.mapped(0..1195), (35..1195).collect::<Vec<_>>());
        assert_eq!(machine.vm.stats().demotions[..4], demotions);
        assert_eq!((machine.level(39), machine.level(64)), (Some(Level(0)), Some(Level(beside))));
        assert_eq!(machine.level(40), Some(Level(u8::from(beside > 0))));
        machine.end();
    }
}

/// The policies that map an extent of a file in memory at once, and keep evicted pages in their
/// frames until others need them.
const EXTENTS_AND_CACHE: [&str; 2] = ["freebsd:cache=held", "reservation:cache=held,resident=extent"];

/// Another process writes its secret to so many pages, more than there are free frames, so that
/// cache pages lose theirs. Returns that process.
fn another_writes(machine: &mut Machine, pages: u64) -> SpaceId {
    let space = std::mem::replace(&mut machine.space, machine.vm.create_space());
    machine.anonymous(0, pages, Growth::Fixed);
    (0..pages).for_each(|page| machine.put(page, SECRET));
    std::mem::replace(&mut machine.space, space)
}

/// A cache page may lose its frame at any time and without its mappings being looked for. So no
/// superpage is mapped over one: through it a process would read what another has written to that
/// frame since.
#[test]
fn no_superpage_is_mapped_over_cache_pages_whose_frames_others_get() {
    for policy in EXTENTS_AND_CACHE {
        let mut machine = thirteen_evicted(policy);
        // Another process reads a page that is in memory. Of the eight pages around it five are in
        // the cache only.
        let first = std::mem::replace(&mut machine.space, machine.vm.create_space());
        machine.file(FILE, 200, true, 0);
        assert_eq!(machine.get(FILE + 13), value(13));
        let writer = another_writes(&mut machine, 12);
        let held: Vec<u64> = (8..13).map(|page| machine.get(FILE + page)).collect();
        assert!(!held.contains(&SECRET), "{policy}: {held:?} were read");
        machine.vm.validate(&machine.pmap).unwrap();
        machine.vm.exit(&mut machine.pmap, writer).unwrap();
        machine.vm.exit(&mut machine.pmap, first).unwrap();
        machine.end();
    }
}

/// The same where the process that lost the pages touches one again, all of whose neighbours are
/// cache pages, and the superpage is demoted once their frames belong to others: no base page of it
/// may stay.
#[test]
fn no_base_pages_are_left_where_cache_pages_lost_their_frames() {
    for policy in EXTENTS_AND_CACHE {
        let mut machine = thirteen_evicted(policy);
        assert_eq!(machine.get(FILE + 3), value(3));
        let writer = another_writes(&mut machine, 15);
        machine.protect(FILE + 3, 1, Protection::READ);
        machine.vm.validate(&machine.pmap).unwrap();
        assert_eq!(machine.mapped(FILE..FILE + 13), [FILE + 3], "{policy}");
        machine.vm.exit(&mut machine.pmap, writer).unwrap();
        machine.end();
    }
}

/// Once all of its pages are in use again, they are a superpage again.
#[test]
fn cache_pages_that_are_all_used_again_become_a_superpage() {
    for policy in EXTENTS_AND_CACHE {
        let mut machine = thirteen_evicted(policy);
        for page in 0..8 {
            assert_eq!(machine.get(FILE + page), value(page));
            let level = if page < 7 { 0 } else { 1 };
            assert_eq!(machine.level(FILE + page), Some(Level(level)), "{policy}: page {page}");
            machine.vm.validate(&machine.pmap).unwrap();
        }
        machine.end();
    }
}
