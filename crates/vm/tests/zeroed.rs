//! Extents that are zeroed ahead of the faults that take them.

use crate::machine::Machine;
use superpage_pages::Level;
use superpage_vm::Growth;

const X86: &str = "4K 2M 1G";
const HUGE: u64 = 2 << 20;

#[test]
fn a_fault_takes_what_was_zeroed_and_zeroes_it_no_more() {
    let mut machine = Machine::new(X86, 4 * 512, "thp");
    machine.anonymous(512, 3 * 512, Growth::Fixed);
    assert_eq!(machine.vm.zero_ahead(&mut machine.disk, Level(1), 2), 2);
    assert_eq!(machine.vm.zero_ahead(&mut machine.disk, Level(2), 1), 0, "memory has no extent of 1 GB");
    assert_eq!(
        (machine.vm.stats().bytes_zeroed, machine.vm.buddy().free_frames()),
        (2 * HUGE, 4 * 512),
        "they are free"
    );
    for (region, zeroed) in [(1, 2), (2, 2), (3, 3)] {
        machine.put(512 * region + 7, region);
        assert_eq!(machine.vm.stats().bytes_zeroed, zeroed * HUGE, "two were ready, the third was not");
        assert_eq!((machine.level(512 * region), machine.get(512 * region + 8)), (Some(Level(1)), 0));
    }
    machine.vm.validate(&machine.pmap).unwrap();
    machine.end();
}

#[test]
fn what_was_taken_in_part_and_came_back_is_not_taken_for_zeroes() {
    let mut machine = Machine::new(X86, 512, "thp");
    assert_eq!(machine.vm.zero_ahead(&mut machine.disk, Level(1), 5), 1);
    assert_eq!(machine.vm.zero_ahead(&mut machine.disk, Level(1), 5), 0, "it is zeroed already");
    machine.anonymous(100, 1, Growth::Fixed);
    machine.put(100, 77);
    machine.vm.validate(&machine.pmap).unwrap();
    machine.unmap(100, 1);
    machine.anonymous(512, 512, Growth::Fixed);
    assert!((512..1024).all(|page| machine.get(page) == 0));
    assert_eq!(machine.vm.stats().bytes_zeroed, 2 * HUGE, "the page was ready, the extent was not");
    machine.unmap(512, 512);
    // The same where the kernel takes a frame.
    assert_eq!(machine.vm.zero_ahead(&mut machine.disk, Level(1), 1), 1);
    let frame = machine.vm.wire_page().unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    machine.vm.unwire_page(frame).unwrap();
    assert_eq!(machine.vm.zero_ahead(&mut machine.disk, Level(1), 1), 1, "who knows what the kernel left there");
    machine.end();
}
