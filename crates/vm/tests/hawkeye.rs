//! HawkEye: bins by accesses, in turn for each process, and pages of zeroes that are given back.

use crate::machine::Machine;
use superpage_pages::{Access, Level, Vpn};
use superpage_vm::{Growth, Map};

const MS: u64 = 1_000_000;

fn advance(machine: &mut Machine, milliseconds: u64) {
    machine.vm.advance(&mut machine.pmap, &mut machine.disk, milliseconds * MS, 0);
    machine.vm.validate(&machine.pmap).unwrap();
}

#[test]
fn what_is_accessed_most_is_promoted_first_in_turn_for_each_process() {
    let mut machine = Machine::new("4K 2M 1G", 16384, "hawkeye:rate=1,interval=1s");
    let spaces = [machine.space, machine.vm.create_space()];
    // Pages of the regions: those of the second process are accessed less.
    let regions = [(0, 1, 100), (0, 2, 512), (0, 3, 512), (1, 1, 300), (1, 2, 2), (1, 3, 500)];
    for space in spaces {
        machine.space = space;
        machine.vm.map(&mut machine.pmap, space, Map::anonymous(Vpn(512), 3 * 512)).unwrap();
    }
    let touch = |machine: &mut Machine| {
        for (space, region, pages) in regions {
            machine.space = spaces[space];
            (0..pages).for_each(|page| _ = machine.access(region * 512 + page, Access::Write).unwrap());
        }
    };
    touch(&mut machine);
    advance(&mut machine, 0);
    touch(&mut machine);
    let mut order = Vec::new();
    for second in 1..8 {
        advance(&mut machine, 1000 * second);
        for (space, region, _) in regions {
            machine.space = spaces[space];
            let at = (space, region);
            if machine.level(region * 512) == Some(Level(1)) && !order.contains(&at) {
                order.push(at);
            }
        }
    }
    // Averages of 60, 307, 307, 180, 1 and 300 pages: 257 to 512 are the top bin.
    assert_eq!(order, [(1, 3), (0, 2), (0, 3), (1, 1), (0, 1)]);
    for space in spaces {
        machine.vm.exit(&mut machine.pmap, space).unwrap();
    }
    assert_eq!(machine.vm.buddy().free_frames(), 16384);
}

#[test]
fn pages_of_zeroes_are_given_back_below_15_percent_and_up_to_30() {
    let mut machine = Machine::new("4K 2M", 16 * 512, "hawkeye:place=extent,zero=0,rate=1000");
    machine.anonymous(512, 14 * 512, Growth::Fixed);
    // A huge page each, of which one page is used.
    (1..15).for_each(|region| machine.put(region * 512 + 7, region));
    let free = machine.vm.buddy().free_frames();
    assert_eq!(machine.vm.memory_state().total, 16 * 512);
    assert!(free * 100 < 15 * 16 * 512);
    advance(&mut machine, 0);
    // Three are enough for 30 %, 2458 pages.
    let huge = (1..15).filter(|region| machine.level(region * 512 + 7) == Some(Level(1))).count();
    assert_eq!((huge, machine.vm.stats().zeroes_given_back), (14 - 3, 3 * 511), "{free}");
    assert!((1..15).all(|region| machine.get(region * 512 + 7) == region));
    // They are not promoted again.
    (1..40).for_each(|second| advance(&mut machine, 1000 * second));
    assert_eq!((1..15).filter(|region| machine.level(region * 512 + 7) == Some(Level(1))).count(), huge);
    machine.end();
}
