//! What the policies `freebsd`, `talluri-hill`, `thp` and `mthp` do differently.

use crate::common::setting;
use crate::machine::{ALPHA, Machine};
use superpage_pages::{Extent, Ladder, Level, PageSize, Pfn, Vpn};
use superpage_vm::{FaultKind, Growth, Pmap, Policy, SoftPmap, Stats};

const ARM: &str = "4K 64K 2M";

/// Whatever it is: what it prints is read again as the same policy.
#[test]
fn the_text_of_a_policy_is_the_policy() {
    for number in 0..4000_u128 {
        let text = setting(number as u8, number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835), 0).policy;
        // There is no file to read here.
        if text.starts_with("watch") || text.starts_with("plan") {
            continue;
        }
        let policy: Policy = text.parse().unwrap();
        let printed = policy.to_string();
        let again: Policy = printed.parse().unwrap_or_else(|error| panic!("{text}: {printed}: {error}"));
        assert_eq!((again.answers, again.given()), (policy.answers, policy.given()), "{text}: {printed}");
        assert_eq!(again.to_string(), printed, "{text}");
    }
}

#[test]
fn freebsd_reserves_what_its_page_tables_map_whatever_else_a_machine_has() {
    // Not the gigabyte of x86-64, which no real program fills; there is no 64 KB there.
    let mut machine = Machine::new("4K 2M 1G", 4096, "freebsd");
    machine.anonymous(0, 1024, Growth::Fixed);
    assert_eq!(machine.write(0).allocated, Some(Level(1)));
    machine.write_all(1..512);
    assert_eq!(machine.level(0), Some(Level(1)));
    machine.end();
    let mut machine = Machine::new("4K 64K 2M 32M", 16 * 1024, "freebsd");
    machine.anonymous(0, 8192, Growth::Fixed);
    assert_eq!(machine.write(0).allocated, Some(Level(2)));
    machine.end();
    // Where there are no 2 MB, what is largest.
    let mut machine = Machine::new(ALPHA, 4096, "freebsd");
    machine.anonymous(0, 512, Growth::Fixed);
    assert_eq!(machine.write(0).allocated, Some(machine.vm.ladder().largest()));
    machine.end();
}

#[test]
fn freebsd_with_the_largest_size_alone_reserves_that_or_nothing() {
    let mut machine = Machine::new(ARM, 4096, "freebsd:reserve=largest");
    machine.anonymous(512, 512, Growth::Fixed);
    assert_eq!(machine.write(512).allocated, Some(Level(2)));
    machine.write_all(513..528);
    assert_eq!(machine.level(512), Some(Level(1)), "smaller superpages are made inside");
    // A file of less than 2 MB reserves nothing, though it holds 64 KB.
    machine.file(2048, 100, true, 0);
    machine.vm.open(2, 100).unwrap();
    assert_eq!(machine.read_file(2, 0).unwrap().allocated, Some(Level::BASE));
    machine.vm.close(2).unwrap();
    machine.vm.remove_file(2).unwrap();
    machine.end();
}

#[test]
fn freebsd_takes_64_kb_where_2_mb_are_not_free_and_base_pages_if_it_may_not() {
    let mut machine = Machine::new(ARM, 511, "freebsd");
    machine.anonymous(512, 512, Growth::Fixed);
    assert_eq!(machine.write(512).allocated, Some(Level(1)));
    machine.end();
    let mut machine = Machine::new(ARM, 511, "freebsd:reserve=largest");
    machine.anonymous(512, 512, Growth::Fixed);
    assert_eq!(machine.write(512).allocated, Some(Level::BASE), "64 KB are free, but never reserved alone");
    assert_eq!(machine.write(528).allocated, Some(Level::BASE));
    assert_eq!(machine.vm.stats().reservations_made, 0);
    machine.end();
}

#[test]
fn freebsd_reserves_past_the_end_of_anonymous_objects_only() {
    for (policy, anonymous) in [("freebsd:reserve=largest", 2), ("reservation", 1)] {
        let mut machine = Machine::new(ARM, 4096, policy);
        machine.anonymous(1024, 20, Growth::Fixed);
        assert_eq!(machine.write(1024).allocated, Some(Level(anonymous)), "{policy}");
        machine.vm.open(1, 20).unwrap();
        let file = machine.read_file(1, 0).unwrap().allocated;
        assert_eq!(file, Some(Level(u8::from(policy == "reservation"))), "{policy}");
        machine.vm.close(1).unwrap();
        machine.end();
    }
}

/// Three reservations of 2 MB and no frame beside them, the least recent with a page in its first
/// 64 KB and one in the next; then a page that preempts it. The first frames of the reservations
/// that are left, and the machine.
fn preempt(policy: &str) -> (Vec<Pfn>, Machine) {
    let mut machine = Machine::new(ARM, 3 * 512, policy);
    machine.anonymous(0, 3 * 512, Growth::Fixed);
    for page in [0, 17, 512, 1024] {
        machine.write(page);
    }
    machine.file(1 << 20, 1, true, 0);
    assert_eq!(machine.write(1 << 20).preempted, 1);
    let left = machine.vm.ladder().levels().flat_map(|level| machine.vm.reservations(level)).map(|extent| extent.start);
    let mut left: Vec<Pfn> = left.collect();
    left.sort_unstable();
    (left, machine)
}

#[test]
fn freebsd_breaks_all_of_a_reservation_and_frees_every_hole() {
    let (left, machine) = preempt("freebsd");
    assert_eq!(left, [Pfn(512), Pfn(1024)], "nothing of the least recent one stays reserved");
    // Its two pages and the new one are all that is populated of it.
    assert_eq!(machine.vm.buddy().free_frames(), 512 - 3);
    assert_eq!(machine.vm.stats().pieces_kept, 0);
    machine.end();
    let (left, machine) = preempt("reservation:preempt=off");
    assert_eq!(left, [Pfn(0), Pfn(16), Pfn(512), Pfn(1024)], "what is partially populated does");
    assert_eq!(machine.vm.buddy().free_frames(), 512 - 2 * 16 - 1);
    machine.end();
}

#[test]
fn freebsd_has_one_queue_whatever_a_reservation_would_yield() {
    // The least recent reservation yields 64 KB, a more recent one only base pages: a list for each
    // size finds that first.
    for (policy, first) in [("freebsd", true), ("freebsd:lists=by-size", false)] {
        let mut machine = Machine::new(ARM, 1024, policy);
        machine.anonymous(0, 1024, Growth::Fixed);
        machine.write(0);
        machine.write_all((0..32).map(|part| 512 + 16 * part));
        assert_eq!(machine.lists()[..2], [1, 1]);
        machine.file(1 << 20, 1, true, 0);
        assert_eq!(machine.write(1 << 20).preempted, 1);
        assert_eq!(machine.lists()[..2], if first { [1, 0] } else { [0, 1] }, "{policy}");
        machine.end();
    }
}

#[test]
fn freebsd_demotes_to_base_pages_and_keeps_no_cache_pages() {
    let answers = |text: &str| text.parse::<Policy>().unwrap().answers;
    assert_eq!(
        answers("freebsd"),
        answers(
            "reservation:growing-limit=off,past-end=anonymous,reserve=tables,preempt=off,pieces=free,lists=one,\
        stepwise=off,demote-on-unmap=off,speculate=0/4,cache=free,wake=memory,close=keep,resident=extent"
        )
    );
    let mut machine = Machine::new(ARM, 1024, "freebsd");
    machine.file(512, 512, true, 0);
    (512..1024).for_each(|page| assert_eq!(machine.get(page), 0));
    assert_eq!(machine.level(512), Some(Level(2)));
    machine.put(512 + 100, 1);
    assert_eq!(machine.vm.stats().mapped[..3], [512, 0, 0], "at the first write");
    machine.squeeze_with_file();
    assert_eq!(machine.read(512).kind, FaultKind::File);
    assert_eq!(machine.vm.stats().cache_reactivated, 0);
    machine.end();
}

/// Touches the first `touched` pages of 64 under a policy: what came of it.
fn touch(sizes: &str, policy: &str, touched: u64) -> (Stats, Machine) {
    let mut machine = Machine::new(sizes, 4096, policy);
    machine.anonymous(512, 64, Growth::Fixed);
    (0..touched).for_each(|page| machine.put(512 + page, page + 1));
    (0..touched).for_each(|page| assert_eq!(machine.get(512 + page), page + 1));
    (machine.vm.stats(), machine)
}

#[test]
fn talluri_hill_populates_the_rest_at_half_and_counts_the_bloat() {
    let (stats, machine) = touch("4K 64K", "talluri-hill", 7);
    assert_eq!((stats.touched_pages, stats.resident_pages, stats.untouched_pages), (7, 7, 0));
    machine.end();
    let (stats, mut machine) = touch("4K 64K", "talluri-hill", 8);
    assert_eq!((stats.touched_pages, stats.resident_pages, stats.untouched_pages), (8, 16, 8));
    assert_eq!((stats.promotions[1], machine.level(512 + 15)), (1, Some(Level(1))));
    assert_eq!(stats.bytes_zeroed, 16 * 4096);
    assert_eq!(machine.get(512 + 12), 0, "what was populated beside is filled too");
    // The next region of the mapping starts anew.
    assert_eq!(machine.write(512 + 16).allocated, Some(Level(1)));
    machine.unmap(512, 64);
    let stats = machine.vm.stats();
    assert_eq!((stats.touched_pages, stats.resident_pages, stats.untouched_pages), (0, 0, 0));
    assert_eq!((stats.peak_touched_pages, stats.peak_resident_pages), (9, 17));
    machine.end();
}

#[test]
fn talluri_hill_knows_one_superpage_size() {
    let (stats, machine) = touch(ALPHA, "talluri-hill", 64);
    assert_eq!(stats.promotions[..4], [0, 8, 0, 0]);
    assert_eq!(stats.allocations[..4], [0, 8, 0, 0]);
    assert_eq!((stats.touched_pages, stats.untouched_pages), (32, 32), "of each 64 KB the first half faulted");
    machine.end();
}

#[test]
fn the_threshold_is_a_parameter_of_every_policy() {
    for eighths in 1..8 {
        let policy = format!("reservation:threshold={eighths}/8");
        let (stats, machine) = touch("8K 64K", &policy, eighths);
        assert_eq!((stats.touched_pages, stats.resident_pages), (eighths, 8), "{policy}");
        machine.end();
    }
    let (stats, machine) = touch("8K 64K", "reservation", 7);
    assert_eq!((stats.touched_pages, stats.resident_pages), (7, 7));
    machine.end();
}

#[test]
fn a_region_with_untouched_pages_is_promoted_unless_all_must_be_accessed() {
    for (policy, touched, promoted) in [
        ("reservation:threshold=4/8", 4, 1),
        ("reservation:threshold=4/8,accessed=all", 4, 0),
        ("reservation:accessed=all", 8, 1),
        ("reservation:accessed=all", 7, 0),
    ] {
        let (stats, machine) = touch("8K 64K", policy, touched);
        assert_eq!(stats.promotions[1], promoted, "{policy}");
        machine.end();
    }
    // Of each 16 KB three pages are touched and the fourth is populated beside them; then three of
    // four touched, and nothing beside.
    let (stats, machine) = touch("4K 16K 64K", "reservation:threshold=6/8,accessed=all", 15);
    assert_eq!((stats.resident_pages, &stats.promotions[1..3]), (16, &[0, 0][..]));
    machine.end();
    let (stats, machine) = touch("4K 16K 64K", "reservation:threshold=7/8,accessed=all", 14);
    assert_eq!((stats.resident_pages, &stats.promotions[1..3]), (14, &[3, 0][..]));
    machine.end();
}

#[test]
fn pages_of_a_file_that_are_populated_beside_are_read() {
    let mut machine = Machine::new("4K 64K", 4096, "talluri-hill");
    (0..16).for_each(|page| {
        machine.disk.stored.insert((Some(1), page), page + 1);
    });
    machine.file(512, 64, true, 0);
    (0..8).for_each(|page| assert_eq!(machine.get(512 + page), page + 1));
    let stats = machine.vm.stats();
    assert_eq!((stats.page_ins, stats.untouched_pages), (16, 8));
    (8..16).for_each(|page| assert_eq!(machine.get(512 + page), page + 1));
    assert_eq!(machine.vm.stats().faults, 8);
    machine.end();
}

#[test]
fn talluri_hill_preempts_when_memory_is_full() {
    let mut machine = Machine::new("4K 64K", 32, "talluri-hill");
    machine.anonymous(0, 64, Growth::Fixed);
    (0..2).for_each(|region| machine.put(16 * region, region));
    let fault = machine.write(32);
    assert_eq!(
        (fault.preempted, fault.allocated),
        (1, Some(Level::BASE)),
        "a reservation of 16 with a page in it yields no 16"
    );
    let free = Extent { start: Pfn(2), level: Level::BASE };
    assert!(machine.vm.buddy().is_free(free));
    assert_eq!((machine.get(0), machine.get(16)), (0, 1));
    machine.end();
}

/// Linux's sizes on x86-64.
const X86: &str = "4K 2M 1G";

#[test]
fn thp_takes_all_of_two_megabytes_at_the_first_touch() {
    for (sizes, huge) in [(X86, 1), (ARM, 2)] {
        let mut machine = Machine::new(sizes, 8192, "thp");
        // From half of 2 MB on: two whole ones.
        machine.anonymous(256, 256 + 1024 + 100, Growth::Fixed);
        machine.put(600, 7);
        assert_eq!(machine.level(512), Some(Level(huge)), "{sizes}");
        let stats = machine.vm.stats();
        assert_eq!((stats.faults, stats.touched_pages, stats.untouched_pages), (1, 1, 511));
        assert_eq!(stats.bytes_zeroed, 2 << 20, "all of it is zeroed");
        assert_eq!((stats.reservations_made, stats.reserved_found), (0, 0), "{sizes}: nothing is reserved");
        // Whatever sizes lie between: one entry, made at once.
        assert_eq!((stats.promotions.iter().sum::<u64>(), stats.promotions_at_fault), (1, 1), "{sizes}");
        let mut mapped = [0; 4];
        mapped[usize::from(huge)] = 1;
        assert_eq!(stats.mapped[..4], mapped, "{sizes}");
        assert_eq!((machine.get(1023), machine.get(600)), (0, 7));
        assert_eq!(machine.vm.stats().faults, 1);
        // What does not lie wholly in the mapping is base pages, and nothing beside them.
        for page in [256, 511, 1536, 1635] {
            assert_eq!(machine.write(page).allocated, Some(Level::BASE), "{page}");
        }
        let stats = machine.vm.stats();
        assert_eq!((stats.resident_pages, stats.reservations_preempted), (512 + 4, 0));
        assert_eq!(machine.lists().iter().sum::<usize>(), 0, "no reservation outlives its fault");
        machine.unmap(256, 1380);
        assert_eq!(machine.vm.stats().resident_pages, 0);
        machine.end();
    }
}

#[test]
fn thp_leaves_files_growing_ends_and_fragments_in_base_pages() {
    let mut machine = Machine::new(X86, 2048, "thp");
    machine.file(4096, 512, true, 0);
    assert_eq!(machine.write(4096).allocated, Some(Level::BASE), "files");
    machine.anonymous(1024, 300, Growth::Up);
    assert_eq!(machine.write(1024).allocated, Some(Level::BASE), "an object that may grow, but has not");
    machine.end();
    // Of 511 frames none is an extent of 2 MB: base pages, one by one.
    let mut machine = Machine::new(X86, 511, "thp");
    machine.anonymous(0, 512, Growth::Fixed);
    machine.write_all(0..511);
    assert_eq!((machine.vm.stats().faults, machine.vm.stats().untouched_pages), (511, 0));
    assert_eq!(machine.lists().iter().sum::<usize>(), 0);
    machine.end();
}

#[test]
fn thp_fills_no_hole_that_was_given_back() {
    let mut machine = Machine::new(X86, 4096, "thp");
    machine.anonymous(512, 512, Growth::Fixed);
    machine.write(512);
    machine.unmap(600, 8);
    machine.anonymous(600, 8, Growth::Fixed);
    machine.write(603);
    let stats = machine.vm.stats();
    assert_eq!(stats.resident_pages, 512 - 8 + 1);
    machine.end();
}

#[test]
fn an_extent_that_may_not_be_one_page_is_base_pages_at_once() {
    for (policy, level) in [("thp:promote=never", 0), ("thp:dirty=all", 0), ("reservation:place=extent", 1)] {
        let mut machine = Machine::new(X86, 4096, policy);
        machine.anonymous(512, 512, Growth::Fixed);
        machine.put(700, 3);
        let stats = machine.vm.stats();
        assert_eq!((stats.faults, stats.resident_pages, stats.bytes_zeroed), (1, 512, 2 << 20), "{policy}");
        assert_eq!((stats.reservations_made, machine.level(513)), (0, Some(Level(level))), "{policy}");
        assert_eq!((machine.get(701), machine.get(700)), (0, 3));
        machine.unmap(600, 50);
        assert_eq!(machine.get(700), 3);
        machine.end();
    }
}

#[test]
fn mthp_takes_the_largest_size_that_lies_in_the_mapping() {
    let mut machine = Machine::new(ARM, 8192, "mthp:size=64K+2M");
    // Two times 64 KB, 2 MB, 64 KB, and four pages.
    machine.anonymous(480, 32 + 512 + 20, Growth::Fixed);
    for (page, level) in [(600, 2), (490, 1), (500, 1), (1030, 1), (1042, 0), (1043, 0)] {
        let fault = machine.write(page);
        assert_eq!((fault.allocated, fault.mapped), (Some(Level(level)), Level(level)), "{page}");
    }
    let stats = machine.vm.stats();
    assert_eq!((stats.faults, stats.touched_pages, stats.resident_pages), (6, 6, 512 + 3 * 16 + 2));
    assert_eq!((&stats.mapped[..3], stats.promotions_at_fault), (&[2, 3, 1][..], 4));
    assert_eq!((stats.bytes_zeroed, stats.reservations_made), (4096 * stats.resident_pages, 0));
    machine.file(4096, 512, true, 0);
    assert_eq!(machine.write(4096).allocated, Some(Level::BASE), "files");
    machine.end();
    // Only what is enabled.
    let mut machine = Machine::new(ARM, 8192, "mthp");
    machine.anonymous(512, 512, Growth::Fixed);
    (512..1024).for_each(|page| machine.put(page, page));
    let stats = machine.vm.stats();
    assert_eq!((stats.faults, &stats.mapped[..3]), (32, &[0, 32, 0][..]));
    machine.end();
}

#[test]
fn mthp_takes_a_smaller_size_where_something_is_populated() {
    let mut machine = Machine::new(ARM, 8192, "mthp:size=64K+2M");
    machine.anonymous(512, 100, Growth::Fixed);
    machine.put(520, 7);
    machine.anonymous(612, 412, Growth::Fixed);
    // 608 to 624 is across two mappings, until they are one.
    assert_eq!(
        machine.write(700).allocated,
        Some(Level(1)),
        "all of 2 MB is mapped by now, and a part of it populated"
    );
    machine.unmap(704, 4);
    machine.anonymous(704, 4, Growth::Fixed);
    machine.write(704);
    assert_eq!((machine.get(520), machine.get(521)), (7, 0));
    machine.end();
}

#[test]
fn mthp_takes_a_smaller_size_where_memory_is_fragmented() {
    // 31 times 64 KB, and 15 pages.
    let mut machine = Machine::new(ARM, 511, "mthp:size=64K+2M");
    machine.anonymous(512, 512, Growth::Fixed);
    (512..1023).for_each(|page| machine.put(page, page));
    let stats = machine.vm.stats();
    assert_eq!((stats.faults, &stats.mapped[..3]), (31 + 15, &[15, 31, 0][..]));
    assert_eq!(stats.allocations[..3], [15, 31, 0]);
    machine.end();
}

#[test]
fn a_folio_that_is_no_page_of_the_machine_is_contiguous_base_pages() {
    for policy in ["mthp:size=64K+2M", "mthp:size=64K+2M,stepwise=on,demote-on-unmap=on"] {
        let mut machine = Machine::new("4K 64K 2M 1G", 8192, policy);
        machine.pmap = SoftPmap::new(Ladder::new(&[PageSize::KB4, PageSize::MB2, PageSize::GB1]).unwrap());
        machine.anonymous(512, 512 + 32, Growth::Fixed);
        machine.put(1030, 3);
        let fault = machine.write(600);
        assert_eq!(fault.mapped, Level(2), "2 MB are one page");
        let stats = machine.vm.stats();
        assert_eq!((stats.faults, stats.allocations[1], &stats.mapped[..3]), (2, 1, &[16, 0, 1][..]), "{policy}");
        let frame = |page: u64| machine.pmap.lookup(machine.space, Vpn(page)).unwrap().frame.0;
        assert_eq!(frame(1024) % 16, 0, "aligned");
        assert!((1024..1040).all(|page| frame(page) == frame(1024) + page - 1024), "contiguous");
        assert_eq!((machine.get(1031), machine.get(1030)), (0, 3));
        assert_eq!(machine.vm.stats().faults, 2);
        // From 2 MB to base pages: there is no size between.
        machine.unmap(700, 1);
        assert_eq!(machine.vm.stats().mapped[..3], [16 + 511, 0, 0]);
        machine.unmap(1024, 16);
        machine.end();
    }
}

/// Found by a random sequence: what is counted of a superpage's parts went wrong where a size
/// between is lacking.
#[test]
fn a_demotion_past_a_size_that_page_tables_lack_counts_its_parts() {
    let mut machine = Machine::new("4K 16K 64K 256K", 1024, "mthp:size=256K,stepwise=on");
    machine.pmap =
        SoftPmap::new(Ladder::new(&[PageSize::KB4, "16K".parse().unwrap(), "256K".parse().unwrap()]).unwrap());
    machine.anonymous(64, 64, Growth::Fixed);
    assert_eq!(machine.write(70).mapped, Level(3));
    // From 256 KB to 16 KB, and one of them to base pages: `unmap` validates the counts of the
    // other fifteen.
    machine.unmap(81, 1);
    assert_eq!(machine.vm.stats().mapped[..4], [3, 15, 0, 0]);
    machine.unmap(64, 4);
    assert_eq!(machine.vm.stats().mapped[..4], [3, 14, 0, 0]);
    machine.end();
}
