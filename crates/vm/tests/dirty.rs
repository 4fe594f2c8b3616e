//! Dirty superpages of a file (Navarro et al., sections 4.7, 6.7): demoted at their first write, or
//! not, or their dirty base pages inferred from digests of contents.

use crate::machine::{ALPHA, Machine};
use superpage_pages::Level;
use superpage_vm::{Growth, Stats};

/// The superpages of the file, and where it is mapped.
const COUNT: u64 = 4;
const START: u64 = 512;

/// A file of superpages of 512 pages, mapped and read whole.
fn read_whole(policy: &str) -> Machine {
    let mut machine = Machine::new(ALPHA, 4096, policy);
    machine.file(START, COUNT * 512, true, 0);
    (0..COUNT * 512).for_each(|page| assert_eq!(machine.get(START + page), 0));
    assert_eq!(machine.vm.stats().mapped[..4], [0, 0, 0, COUNT], "all of it is in clean superpages");
    machine
}

/// A page in each of these superpages is written, and the file is written out.
fn write_and_sync(machine: &mut Machine, superpages: impl Iterator<Item = u64>) -> Stats {
    superpages.for_each(|superpage| machine.put(START + superpage * 512 + 77, 7 + superpage));
    machine.sync();
    let stats = machine.vm.stats();
    assert_eq!(stats.page_outs as usize, machine.disk.log.len());
    stats
}

#[test]
fn without_demotion_at_the_first_write_512_times_as_much_is_written() {
    let mut machine = read_whole("reservation");
    let demoting = write_and_sync(&mut machine, 0..COUNT);
    assert_eq!((demoting.page_outs, demoting.demotions_on_write), (COUNT, COUNT));
    assert_eq!(demoting.demotions[..4], [0, COUNT, COUNT, COUNT], "step by step, around the page");
    assert_eq!(demoting.mapped[..4], [8 * COUNT, 7 * COUNT, 7 * COUNT, 0]);
    machine.end();
    let mut machine = read_whole("reservation:demote-on-write=off");
    let keeping = write_and_sync(&mut machine, 0..COUNT);
    assert_eq!(keeping.bytes_written, 512 * demoting.bytes_written);
    assert_eq!((keeping.page_outs, keeping.mapped[3]), (512 * COUNT, COUNT));
    machine.end();
}

#[test]
fn a_second_sync_writes_nothing_and_a_second_write_one_page_again() {
    for (policy, again) in [("reservation", 1), ("reservation:demote-on-write=off", 512)] {
        let mut machine = read_whole(policy);
        let first = write_and_sync(&mut machine, 0..COUNT).page_outs;
        machine.sync();
        assert_eq!(machine.vm.stats().page_outs, first);
        let second = write_and_sync(&mut machine, 2..3).page_outs;
        assert_eq!(second - first, again, "{policy}");
        machine.end();
    }
}

#[test]
fn a_superpage_is_made_again_once_all_its_pages_are_dirty() {
    let mut machine = read_whole("reservation");
    for page in 0..512 {
        assert_eq!(machine.level(START) == Some(Level(3)), page == 0);
        machine.put(START + page, page + 1);
    }
    assert_eq!(machine.level(START), Some(Level(3)));
    let stats = machine.vm.stats();
    assert_eq!(stats.demotions_on_write, 64, "each 64 KB was in a clean superpage until its first page was written");
    machine.sync();
    assert_eq!(machine.vm.stats().page_outs, 512);
    assert_eq!(machine.level(START), Some(Level(3)), "clean again, and as large as it was");
    machine.put(START, 1);
    machine.sync();
    assert_eq!(machine.vm.stats().page_outs, 513, "so that its next first write is noticed too");
    (0..512).for_each(|page| assert_eq!(machine.disk.stored[&(Some(1), page)], page + 1));
    machine.end();
}

#[test]
fn digests_write_no_more_than_demotion_and_keep_the_superpages() {
    for hash in ["read", "late", "idle"] {
        let mut machine = read_whole(&format!("reservation:demote-on-write=off,hash={hash}"));
        machine.vm.idle(&machine.pmap, &mut machine.disk, u64::MAX);
        let stats = write_and_sync(&mut machine, 0..COUNT);
        assert_eq!((stats.page_outs, stats.pages_spared), (COUNT, 511 * COUNT), "hash={hash}");
        assert_eq!((stats.mapped[3], stats.demotions[3]), (COUNT, 0));
        assert_eq!(stats.pages_hashed, 2 * 512 * COUNT, "each page before, and again when written out");
        assert_eq!((machine.disk.stored[&(Some(1), 512 + 77)], machine.disk.stored.len()), (8, COUNT as usize));
        machine.end();
    }
}

#[test]
fn late_digests_are_taken_only_of_superpages_that_are_written() {
    let hashed = |hash: &str| {
        let mut machine = read_whole(&format!("reservation:demote-on-write=off,hash={hash}"));
        let before = machine.vm.stats().pages_hashed;
        let stats = write_and_sync(&mut machine, 1..2);
        assert_eq!((stats.page_outs, stats.pages_spared), (1, 511));
        machine.end();
        (before, stats.pages_hashed - before)
    };
    assert_eq!(hashed("read"), (512 * COUNT, 512), "all that is read, on the program's way");
    assert_eq!(hashed("late"), (0, 2 * 512));
}

#[test]
fn what_the_idle_loop_had_no_time_for_is_written_whole() {
    let mut machine = read_whole("reservation:demote-on-write=off,hash=idle");
    assert_eq!(machine.vm.stats().pages_hashed, 0, "a program never waits");
    assert_eq!(machine.vm.idle(&machine.pmap, &mut machine.disk, 700), 700);
    let stats = write_and_sync(&mut machine, 0..2);
    // All of the first superpage and 188 pages of the second were hashed.
    assert_eq!((stats.page_outs, stats.pages_spared), (1 + (1 + 512 - 188), 511 + 187));
    assert_eq!(stats.pages_hashed, 700 + 700);
    assert_eq!(
        machine.vm.idle(&machine.pmap, &mut machine.disk, u64::MAX),
        2048 - 700,
        "those were never written, or are clean again"
    );
    machine.end();
}

#[test]
fn a_page_whose_contents_are_as_before_is_not_written() {
    let mut machine = read_whole("reservation:demote-on-write=off,hash=read");
    machine.put(START, 1);
    machine.put(START, 0);
    machine.sync();
    assert_eq!((machine.vm.stats().page_outs, machine.vm.stats().pages_spared), (0, 512));
    machine.end();
}

#[test]
fn only_pages_that_were_read_in_are_hashed() {
    let mut machine = Machine::new(ALPHA, 512, "reservation:demote-on-write=off,hash=read,dirty=all");
    machine.anonymous(0, 64, Growth::Fixed);
    (0..64).for_each(|page| assert_eq!(machine.get(page), 0));
    machine.vm.idle(&machine.pmap, &mut machine.disk, u64::MAX);
    assert_eq!(machine.vm.stats().pages_hashed, 0, "zeroes that no store has");
    machine.file(START, 8, true, 0);
    (0..8).for_each(|page| assert_eq!(machine.get(START + page), 0));
    assert_eq!(machine.vm.stats().pages_hashed, 8);
    machine.end();
}
