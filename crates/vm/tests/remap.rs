//! What moves with a mapping (`mremap`): contents, and whether they are dirty, in base pages and in
//! superpages.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Level, Vpn};
use superpage_vm::{Backed, Growth, Pmap};

const START: u64 = 512;
const ALPHA_BASE: u64 = 8 << 10;

fn value(page: u64) -> u64 {
    3 * page + 1
}

fn move_to(machine: &mut Machine, to: u64, pages: u64) {
    machine.vm.remap(&mut machine.pmap, machine.space, Vpn(START).pages(pages), Vpn(to).pages(pages)).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
}

/// Where 16 pages move to: aligned as before, and so that superpages must be demoted.
const PLACES: [u64; 2] = [4096, 4096 + 3];

#[test]
fn dirty_pages_of_a_file_are_still_dirty_after_a_move_and_clean_ones_clean() {
    for policy in ["base", "reservation", "reservation:demote-on-write=off", "freebsd", "talluri-hill"] {
        for to in PLACES {
            let mut machine = Machine::new(ALPHA, 512, policy);
            machine.file(START, 16, true, 0);
            (0..8).for_each(|page| machine.put(START + page, value(page)));
            (8..16).for_each(|page| assert_eq!(machine.get(START + page), 0));
            move_to(&mut machine, to, 16);
            machine.sync();
            let written: Vec<u64> =
                (0..16).filter(|page| machine.disk.stored.contains_key(&(Some(1), *page))).collect();
            assert_eq!(written, (0..8).collect::<Vec<_>>(), "{policy}, to {to}");
            assert!((0..8).all(|page| machine.disk.stored[&(Some(1), page)] == value(page)));
            machine.end();
        }
    }
}

#[test]
fn a_move_is_no_use_of_pages() {
    for (pages, policy) in [(16, "base"), (8, "reservation")] {
        let mut machine = Machine::new(ALPHA, 512, policy);
        machine.anonymous(START, 16, Growth::Fixed);
        (0..pages).for_each(|page| assert_eq!(machine.get(START + page), 0));
        let size = machine.pmap.lookup(machine.space, Vpn(START)).unwrap().size;
        let step = size.bytes() / ALPHA_BASE;
        // Every other mapping has been idle.
        (0..pages).step_by(2 * step as usize).for_each(|page| {
            machine.pmap.clear_referenced(machine.space, Vpn(START + page), size);
        });
        move_to(&mut machine, 4096, 16);
        for page in (0..pages).step_by(step as usize) {
            let idle = (page / step).is_multiple_of(2);
            assert_eq!(
                machine.pmap.clear_referenced(machine.space, Vpn(4096 + page), size),
                !idle,
                "{policy}, page {page}"
            );
        }
        machine.end();
    }
}

#[test]
fn anonymous_pages_that_moved_are_written_out_when_they_go() {
    for policy in ["base", "reservation", "thp"] {
        for to in PLACES {
            let mut machine = Machine::with_swap("8K 64K", 64, policy, 1000);
            machine.anonymous(START, 16, Growth::Fixed);
            (0..16).for_each(|page| machine.put(START + page, value(page)));
            move_to(&mut machine, to, 16);
            assert_eq!(machine.mapped(to..to + 16).len(), 16, "{policy}: the pages moved with their frames");
            machine.squeeze();
            assert!(machine.mapped(to..to + 16).is_empty());
            assert!((0..16).all(|page| machine.get(to + page) == value(page)), "{policy}, to {to}");
            machine.end();
        }
    }
}

#[test]
fn a_superpage_that_stays_aligned_moves_whole_and_another_is_demoted() {
    for (to, levels) in [(4096, [1, 1]), (4096 + 3, [0, 0])] {
        let mut machine = Machine::alpha(512);
        machine.file(START, 16, true, 0);
        (0..16).for_each(|page| machine.put(START + page, value(page)));
        move_to(&mut machine, to, 16);
        assert_eq!([0, 8].map(|page| machine.level(to + page)), levels.map(|level| Some(Level(level))));
        machine.sync();
        assert_eq!(machine.disk.log.len(), 16);
        assert_eq!(machine.disk.log[15], Backed::File { file: 1, page: 15 });
        machine.end();
    }
}

#[test]
fn a_superpage_that_moves_may_be_demoted_where_it_could_stay_one() {
    for (policy, stays) in [("thp", true), ("thp:demote-on-move=on", false)] {
        let mut machine = Machine::new("4K 2M", 4096, policy);
        machine.anonymous(START, 512, Growth::Fixed);
        (0..512).for_each(|page| machine.put(START + page, value(page)));
        move_to(&mut machine, 4096, 512);
        assert_eq!(machine.level(4096), Some(Level(u8::from(stays))), "{policy}");
        assert!((0..512).all(|page| machine.get(4096 + page) == value(page)));
        machine.end();
    }
}
