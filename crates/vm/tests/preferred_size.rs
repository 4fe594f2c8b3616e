//! The preferred size of a reservation (Navarro et al., section 4.2).

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Hint, Level, Protection, Vpn};
use superpage_vm::{Growth, Map};

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
fn memory_that_continues_its_neighbour_is_of_the_same_object() {
    for starts in [[1024, 1027], [1027, 1024]] {
        let mut machine = Machine::alpha(4096);
        let pages = |start| if start == 1024 { 3 } else { 5 };
        starts.iter().for_each(|start| machine.anonymous(*start, pages(*start), Growth::Fixed));
        assert_eq!(allocated(&mut machine, 1029), Some(Level(1)), "64 KB in both mappings, {starts:?}");
        assert_eq!(allocated(&mut machine, 1024), None);
        // Also where something was in between.
        machine.unmap(1026, 2);
        machine.anonymous(1026, 2, Growth::Fixed);
        (1024..1032).for_each(|page| machine.put(page, page));
        assert_eq!(machine.level(1026), Some(Level(1)));
        machine.vm.validate(&machine.pmap).unwrap();
        machine.end();
    }
}

#[test]
fn what_a_child_had_is_continued_once_the_child_has_ended() {
    let mut machine = Machine::alpha(4096);
    machine.anonymous(1024, 4, Growth::Fixed);
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.anonymous(1028, 4, Growth::Fixed);
    (1024..1032).for_each(|page| machine.put(page, page));
    assert_eq!(machine.level(1024), Some(Level(1)));
    machine.vm.validate(&machine.pmap).unwrap();
    machine.end();
}

/// As what is mapped for a stack in traces: the hint comes after the mapping.
#[test]
fn what_is_advised_before_it_is_used_is_as_if_it_had_been_mapped_so() {
    for (first, hint, then) in [(1028, Hint::Huge, 1024), (1024, Hint::Base, 1028)] {
        let mut machine = Machine::new("8K 64K 512K 4M", 4096, "reservation");
        let advise = |machine: &mut Machine, start, pages, hint| {
            machine.vm.advise(&mut machine.pmap, machine.space, Vpn(start).pages(pages), hint).unwrap();
            machine.vm.validate(&machine.pmap).unwrap();
        };
        // Its neighbours are two that are alike, and one of them comes later: both are one object
        // then.
        machine.anonymous(1032, 4, Growth::Fixed);
        machine.anonymous(1036, 8, Growth::Fixed);
        advise(&mut machine, 1036, 8, hint);
        machine.anonymous(first, 4, Growth::Fixed);
        machine.anonymous(then, 4, Growth::Fixed);
        assert_eq!(allocated(&mut machine, 1033), Some(Level(0)), "no 64 KB of it are whole, {hint:?}");
        assert_eq!(allocated(&mut machine, 1030), Some(Level(1)), "the advised part is of another object, {hint:?}");
        // What continues the advised part is of its object once it is advised too.
        machine.anonymous(1044, 4, Growth::Fixed);
        advise(&mut machine, 1044, 4, hint);
        assert_eq!(allocated(&mut machine, 1046), Some(Level(1)), "{hint:?}");
        // What holds something stays where it is.
        advise(&mut machine, 1032, 4, hint);
        machine.put(1033, 7);
        assert_eq!(machine.get(1033), 7);
        machine.vm.validate(&machine.pmap).unwrap();
        machine.end();
    }
}

#[test]
fn what_is_left_of_an_object_ends_where_its_mapping_does() {
    let mut machine = Machine::alpha(4096);
    machine.anonymous(1024, 4, Growth::Fixed);
    machine.anonymous(1028, 4, Growth::Fixed);
    machine.unmap(1028, 4);
    assert_eq!(allocated(&mut machine, 1024), Some(Level(0)));
    machine.unmap(1024, 1);
    // What was beside it does not keep it from growing.
    machine.anonymous(2048, 4, Growth::Fixed);
    machine.anonymous(2052, 4, Growth::Fixed);
    machine.unmap(2052, 4);
    machine.vm.remap(&mut machine.pmap, machine.space, Vpn(2048).pages(4), Vpn(2048).pages(8)).unwrap();
    assert_eq!(allocated(&mut machine, 2053), Some(Level(1)));
    machine.vm.validate(&machine.pmap).unwrap();
    machine.end();
}

#[test]
fn memory_that_differs_from_its_neighbour_is_of_another_object() {
    let differs = |what: &str, make: &dyn Fn(&mut Machine)| {
        let mut machine = Machine::alpha(4096);
        machine.anonymous(1024, 4, Growth::Fixed);
        make(&mut machine);
        assert_eq!(allocated(&mut machine, 1028), Some(Level(0)), "{what}");
        machine.vm.validate(&machine.pmap).unwrap();
        machine.end();
    };
    let map = |machine: &mut Machine, map: Map| machine.vm.map(&mut machine.pmap, machine.space, map).unwrap();
    let new = Map::anonymous(Vpn(1028), 4);
    differs("rights", &|machine| map(machine, new.protection(Protection::READ_WRITE | Protection::EXECUTE)));
    differs("sharing", &|machine| map(machine, new.shared(true)));
    differs("growth", &|machine| map(machine, new.growth(Growth::Up)));
    differs("a child has it too", &|machine| {
        machine.write(1024);
        let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
        map(machine, new);
        machine.vm.exit(&mut machine.pmap, child).unwrap();
    });
    differs("it has another mapping", &|machine| {
        machine.anonymous(1020, 4, Growth::Fixed);
        machine.protect(1020, 1, Protection::READ);
        map(machine, new);
    });
    differs("what was there has moved", &|machine| {
        machine.vm.unmap(&mut machine.pmap, machine.space, Vpn(1024).pages(4)).unwrap();
        machine.anonymous(1024, 8, Growth::Fixed);
        machine.put(1029, 7);
        machine.vm.remap(&mut machine.pmap, machine.space, Vpn(1028).pages(4), Vpn(2052).pages(4)).unwrap();
        map(machine, new);
        assert_eq!((machine.get(2053), machine.get(1029)), (7, 0));
    });
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
