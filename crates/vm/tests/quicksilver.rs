//! Quicksilver: reservations that are filled early, by faults or in the background, and evicted
//! while inactive.

use crate::machine::Machine;
use superpage_pages::Level;
use superpage_vm::Growth;

const X86: &str = "4K 2M 1G";

fn advance(machine: &mut Machine, seconds: u64) {
    machine.vm.advance(&mut machine.pmap, &mut machine.disk, seconds * 1_000_000_000, 0);
    machine.vm.validate(&machine.pmap).unwrap();
}

fn put(machine: &mut Machine, region: u64, pages: u64) {
    (region * 512..region * 512 + pages).for_each(|page| machine.put(page, page));
}

fn huge(machine: &Machine) -> Vec<u64> {
    (1..6).filter(|region| machine.level(region * 512) == Some(Level(1))).collect()
}

#[test]
fn two_reservations_a_second_are_filled_the_last_populated_first() {
    let mut machine = Machine::new(X86, 8192, "quicksilver:evict=off");
    machine.anonymous(512, 5 * 512, Growth::Fixed);
    (1..5).for_each(|region| put(&mut machine, region, 63));
    advance(&mut machine, 0);
    [2, 3, 1].iter().for_each(|region| machine.put(region * 512 + 63, 7));
    advance(&mut machine, 1);
    assert_eq!(huge(&machine), [1, 2]);
    put(&mut machine, 5, 100);
    machine.put(4 * 512 + 63, 7);
    advance(&mut machine, 2);
    assert_eq!(huge(&machine), [1, 2, 4, 5], "the third has been as it is for longer");
    advance(&mut machine, 3);
    let stats = machine.vm.stats();
    assert_eq!((huge(&machine).len(), stats.promotions_by_copying, stats.untouched_pages), (5, 0, 4 * 448 + 412));
    assert_eq!([63, 64].map(|page| machine.get(512 + page)), [7, 0]);
    machine.end();
}

#[test]
fn a_fault_fills_an_eighth_at_once() {
    let mut machine = Machine::new(X86, 8192, "quicksilver:mode=sync,evict=off");
    machine.anonymous(512, 5 * 512, Growth::Fixed);
    put(&mut machine, 1, 63);
    advance(&mut machine, 1);
    assert_eq!(huge(&machine), [0_u64; 0]);
    put(&mut machine, 1, 64);
    assert_eq!(huge(&machine), [1]);
    machine.end();
}

#[test]
fn what_has_not_changed_for_ten_seconds_is_evicted() {
    // All of memory is reserved.
    let mut machine = Machine::new(X86, 3 * 512, "quicksilver");
    machine.anonymous(512, 5 * 512, Growth::Fixed);
    (1..4).for_each(|region| put(&mut machine, region, 10));
    advance(&mut machine, 0);
    machine.put(3 * 512 + 10, 3 * 512 + 10);
    (1..10).for_each(|second| advance(&mut machine, second));
    assert_eq!((machine.vm.buddy().free_frames(), machine.vm.stats().reserved_released), (0, 0));
    advance(&mut machine, 10);
    assert_eq!(machine.vm.stats().reserved_released, 2 * 502);
    assert_eq!(machine.vm.buddy().free_extents(Level(1)), 1, "the pages of one were relocated");
    advance(&mut machine, 11);
    assert_eq!(machine.vm.stats().reserved_released, 2 * 502 + 501);
    for region in 1..4 {
        assert!((region * 512..region * 512 + 10).all(|page| machine.get(page) == page));
    }
    machine.end();
}
