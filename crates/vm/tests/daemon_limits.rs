//! When the page daemon wakes, what it aims at and when it stops (Navarro et al., section 5.1: the
//! daemon of FreeBSD 4): it is woken with less than about 0.5 % of memory available, makes four
//! times as much available, and keeps half as much again inactive.

use crate::machine::Machine;
use superpage_vm::Growth;

/// One page after another is written until the daemon is wanted: so many frames are left.
fn press(machine: &mut Machine, fresh: &mut u64) -> u64 {
    while !machine.vm.daemon_wanted() {
        machine.put(*fresh, *fresh);
        *fresh += 1;
    }
    machine.vm.buddy().free_frames()
}

#[test]
fn it_wakes_with_half_a_percent_left_and_makes_four_times_as_much_available() {
    // Frames of memory; those left when it wakes, and when it has run.
    for (frames, left, target) in [
        (2, 0, 1),
        (3, 0, 1),
        (4, 0, 1),
        (8, 0, 2),
        (16, 1, 4),
        (24, 2, 6),
        (32, 3, 8),
        (64, 3, 16),
        (200, 4, 20),
        (1000, 8, 36),
        (4000, 23, 96),
    ] {
        let mut machine = Machine::with_swap("8K", frames, "base:cache=free", 10_000);
        machine.anonymous(0, 1 << 20, Growth::Fixed);
        let mut fresh = 0;
        for _ in 0..3 {
            assert_eq!(press(&mut machine, &mut fresh), left, "of {frames}");
            assert!(machine.daemon() && !machine.vm.daemon_wanted());
            assert_eq!(machine.vm.buddy().free_frames(), target, "of {frames}");
            // With enough it does nothing, be it wanted or not.
            let before = machine.vm.stats();
            assert!(!machine.daemon());
            assert_eq!(machine.vm.stats().evictions, before.evictions);
        }
        machine.end();
    }
}

#[test]
fn a_run_without_need_takes_nothing() {
    let mut machine = Machine::with_swap("8K", 64, "base:cache=free", 1000);
    machine.anonymous(0, 100, Growth::Fixed);
    (0..60).for_each(|page| machine.put(page, page));
    assert_eq!(machine.vm.buddy().free_frames(), 4, "less than it aims at, but enough");
    assert!(!machine.vm.daemon_wanted() && !machine.daemon());
    assert_eq!((machine.mapped(0..60).len(), machine.vm.stats().daemon_scanned), (60, 0));
    machine.end();
}

#[test]
fn pages_that_hold_their_frames_in_the_cache_count_as_available() {
    let mut machine = Machine::with_swap("8K", 64, "base:cache=held", 1000);
    machine.anonymous(0, 1000, Growth::Fixed);
    let mut fresh = 0;
    press(&mut machine, &mut fresh);
    assert!(machine.daemon() && !machine.vm.daemon_wanted());
    let stats = machine.vm.stats();
    assert_eq!((stats.evictions, stats.cache_pages), (13, 13), "they and three free frames are 16");
    // Twelve new pages take the free frames, and those of the cache.
    let first = fresh;
    press(&mut machine, &mut fresh);
    assert_eq!(fresh - first, 13);
    machine.end();
}

#[test]
fn half_as_much_again_as_it_aims_at_is_kept_inactive() {
    let mut machine = Machine::with_swap("8K", 640, "base:cache=free", 10_000);
    machine.anonymous(0, 1 << 20, Growth::Fixed);
    let mut fresh = 0;
    press(&mut machine, &mut fresh);
    machine.daemon();
    // It aims at 28 frames, of 640.
    let stats = machine.vm.stats();
    assert_eq!((machine.vm.buddy().free_frames(), stats.inactive_pages), (28, 28 + 14));
    machine.end();
}
