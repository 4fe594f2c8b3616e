//! The preemption adversary of Navarro et al., section 6.6: 4 MB of memory, touched with a stride
//! of 4 MB.

use crate::machine::Machine;
use superpage_vm::Growth;

#[test]
fn every_seven_allocations_preempt_one_reservation() {
    let mut machine = Machine::alpha(512);
    machine.anonymous(0, 500 * 512, Growth::Fixed);
    let mut since = 0;
    for touch in 0..500 {
        let before = machine.vm.stats();
        let fault = machine.write(touch * 512);
        let after = machine.vm.stats();
        if touch == 0 {
            assert_eq!((fault.preempted, fault.allocated), (0, Some(superpage_pages::Level(3))));
            continue;
        }
        if fault.preempted == 0 {
            since += 1;
            continue;
        }
        assert_eq!(fault.preempted, 1);
        assert!(touch == 1 || since == 6, "a preemption serves its own allocation and six more, not {since}");
        since = 0;
        // Eight pieces: one stays with its page, one is taken at once, six go to the free list.
        assert_eq!(after.pieces_freed - before.pieces_freed, 7);
        assert_eq!(machine.vm.buddy().free_extents(fault.allocated.unwrap()), 6);
    }
    assert_eq!(machine.vm.stats().reservations_preempted, 499u64.div_ceil(7));
    machine.end();
}
