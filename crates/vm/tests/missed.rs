//! Policies that are told of misses in the TLBs: `romer`, `pcc`, `leshy`, `hybrid`, each with its
//! rule against a few regions.

use crate::machine::{ALPHA, Machine};
use superpage_pages::Vpn;
use superpage_vm::{Costs, Growth, Time};

const MS: Time = 1_000_000;

/// So many misses of a page, told one by one; the TLBs hold another page of a block of this order.
fn miss(machine: &mut Machine, page: u64, times: u64, neighbour: Option<u32>, now: Time) {
    for _ in 0..times {
        machine.vm.missed(&machine.pmap, machine.space, Vpn(page), neighbour);
        advance(machine, now);
    }
}

fn advance(machine: &mut Machine, now: Time) {
    machine.vm.advance(&mut machine.pmap, &mut machine.disk, now, 0);
    machine.vm.validate(&machine.pmap).unwrap();
}

fn levels<const N: usize>(machine: &Machine, pages: [u64; N]) -> [u8; N] {
    pages.map(|page| machine.level(page).map_or(99, |level| level.0))
}

#[test]
fn romer_promotes_size_by_size_what_charged_misses_paid_for() {
    // By costs: (8 * 300 + 50) / 100 ns are 24.5 misses, (64 * 300 + 50) / 100 ns are 192.5.
    for (parameters, [first, second]) in [("penalty=100ns", [25, 193]), ("misses=2", [16, 128])] {
        let mut machine = Machine::new(ALPHA, 4096, &format!("romer:{parameters}"));
        machine.vm.started(Some(Costs { copy: 300, shootdown: 50, ..Costs::default() }));
        machine.anonymous(512, 1024, Growth::Fixed);
        (512..544).for_each(|page| machine.put(page, page));
        advance(&mut machine, 0);
        // Nobody charges a miss where the TLBs hold no other page, nor a region without one.
        miss(&mut machine, 512, 1000, None, 0);
        miss(&mut machine, 520, 40, Some(6), 0);
        miss(&mut machine, 512, first - 1, Some(3), 0);
        assert_eq!(levels(&machine, [512, 520]), [0, 0], "{parameters}");
        miss(&mut machine, 513, 1, Some(1), 0);
        assert_eq!(levels(&machine, [512, 519, 520]), [1, 1, 0], "{parameters}");
        // All of these misses were charged to the region of 64 pages too.
        miss(&mut machine, 512, second - first - 40 - 1, Some(6), 0);
        assert_eq!(levels(&machine, [512, 520]), [1, 0], "{parameters}");
        miss(&mut machine, 528, 1, Some(5), 0);
        assert_eq!(levels(&machine, [512, 520, 575, 576]), [2, 2, 2, 99], "{parameters}");
        assert!((512..544).all(|page| machine.get(page) == page) && machine.get(560) == 0);
        let stats = machine.vm.stats();
        assert_eq!((stats.promotions[1], stats.promotions[2], stats.promotions_by_copying), (1, 1, 2));
        // What was charged before it is unmapped is forgotten.
        machine.put(1024, 1);
        miss(&mut machine, 1024, first - 1, Some(3), 0);
        machine.unmap(1024, 8);
        machine.anonymous(1024, 8, Growth::Fixed);
        machine.put(1024, 1);
        miss(&mut machine, 1024, first - 1, Some(3), 0);
        assert_eq!(levels(&machine, [1024]), [0], "{parameters}");
        miss(&mut machine, 1024, 1, Some(3), 0);
        assert_eq!(levels(&machine, [1024]), [1], "{parameters}");
        assert_eq!(machine.vm.miss_cycles(), 120);
        machine.end();
    }
}

#[test]
fn romer_asap_promotes_what_is_full_size_by_size_and_needs_no_miss() {
    let mut machine = Machine::new(ALPHA, 4096, "romer:rule=asap");
    machine.anonymous(512, 1024, Growth::Fixed);
    advance(&mut machine, 0);
    for page in 512..576 {
        machine.put(page, page);
        advance(&mut machine, 0);
        let full = (page - 511) / 8;
        let expected = if full == 8 { [0, 8, 1] } else { [0, full, 0] };
        let promotions = machine.vm.stats().promotions;
        assert_eq!([0, promotions[1], promotions[2]], expected, "page {page}");
    }
    assert_eq!(levels(&machine, [512, 575]), [2, 2]);
    assert!(!machine.vm.wants_misses());
    assert!((512..576).all(|page| machine.get(page) == page));
    machine.end();
}

#[test]
fn pcc_promotes_the_regions_with_the_most_walks_that_its_cache_holds() {
    let mut machine = Machine::new("4K 2M", 8192, "pcc:entries=3,most=2,bits=4,interval=10ms");
    machine.anonymous(512, 8 * 512, Growth::Fixed);
    let regions = [1, 2, 3, 4, 5].map(|region| region * 512);
    regions.iter().for_each(|page| machine.put(*page, *page));
    advance(&mut machine, 0);
    // Four regions and three entries: of those with the fewest walks, the least recent one goes.
    for (region, walks) in [(1, 5), (2, 2), (3, 2), (4, 1), (3, 2), (4, 4), (2, 3)] {
        miss(&mut machine, region * 512, walks, None, MS);
    }
    advance(&mut machine, 10 * MS - 1);
    assert_eq!(levels(&machine, regions), [0; 5]);
    // Left are 1 with 5 walks, 4 with 5, and 2 with 3, since 3 with 4 went for 2.
    advance(&mut machine, 10 * MS);
    assert_eq!(levels(&machine, regions), [1, 0, 0, 1, 0]);
    // All are halved when a counter of 4 bits is at 15, so 3 passes 2.
    miss(&mut machine, 1024, 8, None, 11 * MS);
    miss(&mut machine, 5 * 512, 15, None, 11 * MS);
    miss(&mut machine, 3 * 512, 6, None, 11 * MS);
    advance(&mut machine, 20 * MS);
    assert_eq!(levels(&machine, regions), [1, 0, 1, 1, 1]);
    advance(&mut machine, 30 * MS);
    assert_eq!(levels(&machine, regions), [1; 5]);
    machine.end();
}

#[test]
fn leshy_takes_the_largest_blocks_of_which_enough_entries_missed() {
    let mut machine = Machine::new("4K 64K 2M 32M", 32768, "leshy:interval=10ms,most=600");
    machine.anonymous(8192, 16384, Growth::Fixed);
    advance(&mut machine, 0);
    let missed = |machine: &mut Machine, pages: core::ops::Range<u64>, now| {
        pages.for_each(|page| {
            machine.put(page, page);
            miss(machine, page, 1, None, now);
        });
    };
    // Of 2 MB one page is missing to half of them, so 16 blocks of 64 KB are chosen; the last one
    // has a page less.
    missed(&mut machine, 8192..8192 + 255, MS);
    // Half of the pages of 2 MB; half of 64 KB; one less than that.
    missed(&mut machine, 9216..9216 + 256, MS);
    missed(&mut machine, 10240..10248, MS);
    missed(&mut machine, 11264..11271, MS);
    miss(&mut machine, 10240, 400, None, MS);
    advance(&mut machine, 10 * MS);
    // 2 MB has the most misses but for the 64 KB before it, and after it there were 528 of 600 base
    // pages.
    assert_eq!(levels(&machine, [10240, 9216, 8192, 8208, 8256, 8272, 11264]), [1, 2, 1, 1, 1, 0, 0]);
    assert_eq!(machine.vm.stats().promotions[1..4], [6, 1, 0]);
    // A first touch in what was promoted takes the whole of it; elsewhere a base page.
    for (page, level) in [(8256, 1), (11264, 0)] {
        machine.vm.discard(&mut machine.pmap, machine.space, Vpn(page).pages(16)).unwrap();
        machine.put(page, page);
        assert_eq!(levels(&machine, [page]), [level]);
    }
    (11265..11271).for_each(|page| machine.put(page, page));
    // The misses of the interval before still count: the 64 KB that lacked a page are half full
    // with another. Some in a superpage of 2 MB do not make it smaller, and one that its mapping
    // cuts is made of 64 KB.
    missed(&mut machine, 11271..11272, 11 * MS);
    missed(&mut machine, 9216..9216 + 16, 11 * MS);
    machine.unmap(12288 + 300, 212);
    missed(&mut machine, 12288..12288 + 272, 11 * MS);
    advance(&mut machine, 20 * MS);
    assert_eq!(levels(&machine, [11264, 9216, 12288, 12288 + 271, 12288 + 272]), [1, 2, 1, 1, 99]);
    // Of 32 MB the entries are of 2 MB: one miss in each of 8.
    for region in 0..7 {
        missed(&mut machine, 16384 + region * 512..16384 + region * 512 + 1, 21 * MS);
    }
    advance(&mut machine, 30 * MS);
    assert_eq!(levels(&machine, [16384]), [0]);
    missed(&mut machine, 16384 + 7 * 512..16384 + 7 * 512 + 1, 31 * MS);
    advance(&mut machine, 40 * MS);
    assert_eq!(levels(&machine, [16384, 16384 + 8191]), [3, 3]);
    assert!((0..8).all(|region| machine.get(16384 + region * 512) == 16384 + region * 512));
    machine.end();
}

#[test]
fn hybrid_copies_where_no_frame_is_reserved_and_misses_are_many() {
    let mut machine = Machine::new(ALPHA, 256, "hybrid:misses=2,share=10%");
    advance(&mut machine, 0);
    machine.anonymous(512, 64, Growth::Fixed);
    // Only single pages are free, and eight of them are taken.
    let wired: Vec<_> = (0..256).map_while(|_| machine.vm.wire_page().ok()).collect();
    let (kept, given): (Vec<_>, Vec<_>) = wired.into_iter().partition(|frame| frame.0 % 8 == 0);
    given.into_iter().for_each(|frame| machine.vm.unwire_page(frame).unwrap());
    (512..520).for_each(|page| machine.put(page, page));
    kept.into_iter().for_each(|frame| machine.vm.unwire_page(frame).unwrap());
    // The next eight are reserved, and three of them are missing.
    (520..525).for_each(|page| machine.put(page, page));
    miss(&mut machine, 512, 15, None, 0);
    miss(&mut machine, 520, 15, None, 0);
    assert_eq!(levels(&machine, [512, 520]), [0, 0]);
    miss(&mut machine, 513, 1, None, 0);
    miss(&mut machine, 521, 1, None, 0);
    assert_eq!(levels(&machine, [512, 520]), [1, 0]);
    // Of the 64 pages, too, enough are populated and have missed, but the three are reserved.
    miss(&mut machine, 512, 128 - 32, None, 0);
    assert_eq!(levels(&machine, [512, 520]), [1, 0]);
    (525..528).for_each(|page| machine.put(page, page));
    assert_eq!(levels(&machine, [512, 520]), [1, 1]);
    miss(&mut machine, 512, 127, None, 0);
    assert_eq!(levels(&machine, [512, 520]), [1, 1]);
    miss(&mut machine, 520, 1, None, 0);
    assert_eq!(levels(&machine, [512, 520]), [2, 2]);
    assert_eq!(machine.vm.stats().promotions_by_copying, 2);
    assert!((512..528).all(|page| machine.get(page) == page));
    machine.end();
}
