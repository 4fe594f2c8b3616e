//! What must agree before a region becomes a superpage (Navarro et al., sections 4.5, 4.9): all of
//! it lies in one mapping, and its dirty bits are alike where they matter.

use crate::machine::{ALPHA, Machine};
use superpage_pages::{Access, Level, Protection, Vpn};
use superpage_vm::{Backing, FaultError, Growth, Map};

/// Where files are mapped.
const START: u64 = 512;

/// Some pages of the region have other rights than the rest: the first, the last, or one between.
#[test]
fn a_superpage_never_reaches_over_an_edge_of_its_mapping() {
    let edges = [(0, 2), (6, 2), (3, 1)];
    for ((start, pages), last) in edges.into_iter().flat_map(|edge| [0, 3, 7].map(|last| (edge, last))) {
        let mut machine = Machine::alpha(64);
        machine.anonymous(0, 8, Growth::Fixed);
        machine.protect(start, pages, Protection::READ);
        for page in (0..8).filter(|page| *page != last).chain([last]) {
            let access = if (start..start + pages).contains(&page) { Access::Read } else { Access::Write };
            machine.try_touch(page, access).unwrap();
        }
        assert!((0..8).all(|page| machine.level(page) == Some(Level::BASE)), "read only from {start}");
        let refused = machine.try_touch(start, Access::Write);
        assert_eq!(refused, Err(FaultError::Protection(Vpn(start), Access::Write)));
        machine.end();
    }
}

/// The file's pages are mapped with equal rights in equal order, but a part of them by a private
/// mapping, whose pages will be others once they may be written.
#[test]
fn two_mappings_side_by_side_are_no_superpage() {
    for private in [0, 1] {
        let mut machine = Machine::alpha(64);
        for part in 0..2 {
            let backing = Backing::File { file: 1, pages: 8, offset: 4 * part };
            let (start, shared) = (Vpn(START + 4 * part), part != private);
            let map = Map::anonymous(start, 4).protection(Protection::READ).shared(shared).backing(backing);
            machine.vm.map(&mut machine.pmap, machine.space, map).unwrap();
        }
        for page in [0, 7, 1, 6, 2, 5, 4, 3] {
            machine.read(START + page);
        }
        assert!((0..8).all(|page| machine.level(START + page) == Some(Level::BASE)));
        machine.end();
    }
}

/// Pages of a file are read, but these are written: does the region become a superpage?
fn promoted(policy: &str, pages: u64, written: impl Fn(u64) -> bool) -> bool {
    let mut machine = Machine::new(ALPHA, 1024, policy);
    machine.file(START, pages, true, 0);
    for page in 0..pages {
        machine.try_touch(START + page, if written(page) { Access::Write } else { Access::Read }).unwrap();
    }
    let whole = machine.vm.ladder().levels().find(|level| machine.vm.ladder().pages(*level) == pages);
    let promoted = machine.level(START) == whole;
    machine.end();
    promoted
}

#[test]
fn the_dirty_bits_of_all_parts_agree_or_there_is_no_promotion() {
    for policy in ["reservation:demote-on-write=off", "reservation", "reservation:demote-on-write=off,dirty=all"] {
        for pages in [8, 64] {
            let part = pages / 8;
            assert!(promoted(policy, pages, |_| false), "{policy}: clean");
            assert!(promoted(policy, pages, |_| true), "{policy}: dirty");
            for odd in 0..8 {
                assert!(!promoted(policy, pages, |page| page / part == odd), "{policy}: of {pages}, {odd} is dirty");
                assert!(!promoted(policy, pages, |page| page / part != odd), "{policy}: of {pages}, {odd} is clean");
            }
        }
    }
    assert!(promoted("reservation:demote-on-write=off,dirty=nowhere", 8, |page| page == 3), "where it does not matter");
}
