//! The preferred size of a reservation (Navarro et al., section 4.2).

use crate::machine::{ALPHA, Machine};
use superpage_pages::Level;
use superpage_vm::Growth;

/// The level of the extent that a write to `page` allocates.
fn allocated(machine: &mut Machine, page: u64) -> Option<Level> {
    machine.write(page).allocated
}

#[test]
fn a_fixed_object_is_covered_by_the_largest_aligned_extents_inside_it() {
    let mut machine = Machine::alpha(4096);
    // 4 MB + 512 KB + 64 KB + 8 KB, from an address aligned to 4 MB.
    machine.anonymous(1024, 512 + 64 + 8 + 1, Growth::Fixed);
    assert_eq!(allocated(&mut machine, 1024 + 300), Some(Level(3)));
    assert_eq!(allocated(&mut machine, 1024 + 512 + 3), Some(Level(2)));
    assert_eq!(allocated(&mut machine, 1024 + 512 + 64 + 7), Some(Level(1)));
    assert_eq!(allocated(&mut machine, 1024 + 512 + 64 + 8), Some(Level(0)));
    assert_eq!(allocated(&mut machine, 1024), None, "the frame was reserved");
    machine.end();
}

#[test]
fn a_fixed_object_is_not_reached_over_at_its_start_either() {
    let mut machine = Machine::alpha(4096);
    machine.anonymous(1024 + 8, 512 - 8, Growth::Fixed);
    assert_eq!(allocated(&mut machine, 1024 + 8), Some(Level(1)));
    assert_eq!(allocated(&mut machine, 1024 + 64), Some(Level(2)));
    machine.end();
}

#[test]
fn a_heap_reserves_past_its_end_but_no_more_than_its_size() {
    let mut machine = Machine::alpha(4096);
    machine.anonymous(1024, 1, Growth::Up);
    assert_eq!(allocated(&mut machine, 1024), Some(Level(0)), "an object of one page");
    let grow = |machine: &mut Machine, pages| {
        machine.vm.grow(&mut machine.pmap, machine.space, superpage_pages::Vpn(1024), pages).unwrap();
    };
    grow(&mut machine, 10);
    assert_eq!(allocated(&mut machine, 1024 + 9), Some(Level(1)), "64 KB, of which two pages are in the object");
    grow(&mut machine, 65);
    assert_eq!(allocated(&mut machine, 1024 + 64), Some(Level(2)), "512 KB, of which one page is in the object");
    assert_eq!(allocated(&mut machine, 1024 + 1), Some(Level(0)), "a page in 64 KB is taken: overlap");
    assert_eq!(allocated(&mut machine, 1024 + 63), Some(Level(1)), "64 KB beside them are free");
    machine.end();
}

#[test]
fn a_stack_grows_down_to_the_pages_touched() {
    let mut machine = Machine::alpha(4096);
    machine.anonymous(1024, 512, Growth::Down);
    let top = 1024 + 512;
    assert_eq!(allocated(&mut machine, top - 1), Some(Level(0)));
    assert_eq!(allocated(&mut machine, top - 8), Some(Level(0)), "its 64 KB hold a page already");
    assert_eq!(allocated(&mut machine, top - 9), Some(Level(1)), "nine pages now: 64 KB");
    assert_eq!(allocated(&mut machine, top - 65), Some(Level(2)), "65 pages: 512 KB");
    machine.end();
}

#[test]
fn the_rules_for_growing_objects_can_be_switched_off() {
    let mut machine = Machine::new(ALPHA, 4096, "reservation:growing-limit=off");
    machine.anonymous(1024, 1, Growth::Up);
    assert_eq!(allocated(&mut machine, 1024), Some(Level(3)));
    machine.end();
    let mut machine = Machine::new(ALPHA, 4096, "reservation:past-end=off");
    machine.anonymous(1024, 100, Growth::Up);
    assert_eq!(allocated(&mut machine, 1024 + 99), Some(Level(0)));
    assert_eq!(allocated(&mut machine, 1024 + 5), Some(Level(2)));
    machine.end();
}
