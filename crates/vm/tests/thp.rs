//! What Linux does beside taking a huge page at the first touch: `defrag`, khugepaged, deferred and
//! underused split, folios of several sizes.

use crate::background::{SECOND, X86, advance};
use crate::machine::Machine;
use superpage_pages::{Extent, Hint, Level, Pfn, Vpn};
use superpage_vm::{Growth, How, Map, Place, Policy, Prefer, Region, Why};

/// Memory in which each third page of a full one is left, so that no extent of 2 MB is free; faults
/// take huge pages from now on.
fn scattered(policy: &str) -> Machine {
    let mut machine = Machine::new("4K 2M", 4096, &format!("{policy},place=base"));
    machine.anonymous(1 << 16, 4032, Growth::Fixed);
    (0..4032).for_each(|page| machine.put((1 << 16) + page, page));
    (0..4032).filter(|page| page % 3 > 0).for_each(|page| machine.unmap((1 << 16) + page, 1));
    assert_eq!(machine.vm.buddy().free_extents(Level(1)), 0);
    let (space, huge) = (machine.space, Prefer { place: Some(Place::Extent), ..Prefer::default() });
    machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| assert!(system.prefer(space, None, huge)));
    machine
}

/// The table of `vma_thp_gfp_mask`: by `defrag`, whether a fault compacts and whether the thread
/// does, elsewhere and where the program asks for huge pages.
#[test]
fn defrag_says_who_compacts_by_what_is_asked_for() {
    for (defrag, fault, thread) in [
        ("always", [true, true], [false, false]),
        ("defer", [false, false], [true, true]),
        ("defer+madvise", [false, true], [true, false]),
        ("madvise", [false, true], [false, false]),
        ("never", [false, false], [false, false]),
    ] {
        for policy in ["thp:", "mthp:size=2M,"] {
            for (advised, hint) in [Hint::None, Hint::Huge].into_iter().enumerate() {
                let mut machine = scattered(&format!("{policy}defrag={defrag}"));
                let case = format!("{policy}defrag={defrag}, {hint}");
                let map = Map::anonymous(Vpn(512), 1024).hint(hint);
                machine.vm.map(&mut machine.pmap, machine.space, map).unwrap();
                let level = |huge: bool| Level(u8::from(huge));
                assert_eq!(machine.write(512).mapped, level(fault[advised]), "{case}");
                assert_eq!(machine.vm.stats().compactions, u64::from(fault[advised]), "{case}");
                assert_eq!(machine.vm.due(), thread[advised].then_some(0), "{case}");
                let next = machine.vm.advance(&mut machine.pmap, &mut machine.disk, 1, 0);
                assert_eq!((next, machine.vm.due()), (None, None), "{case}");
                machine.vm.validate(&machine.pmap).unwrap();
                let done = fault[advised] || thread[advised];
                assert_eq!(machine.vm.stats().compactions, u64::from(done), "{case}");
                assert_eq!(machine.write(1024).mapped, level(done), "{case}");
                assert!((0..1344).all(|page| machine.get((1 << 16) + 3 * page) == 3 * page), "{case}");
                machine.end();
            }
        }
    }
}

#[test]
fn compaction_at_the_fault_is_one_answer_with_two_names() {
    let answers = |text: &str| text.parse::<Policy>().unwrap().answers;
    assert_eq!(answers("thp:defrag=always"), answers("thp:compact=on"));
    assert_eq!(answers("thp"), answers("thp:defrag=never,compact=advised"));
    assert_eq!(answers("thp:defrag=never"), answers("thp:compact=off"));
    assert_eq!("thp:compact=off".parse::<Policy>().unwrap().to_string(), "thp:compact=off");
    assert_eq!("thp:compact=advised".parse::<Policy>().unwrap().to_string(), "thp");
}

/// Two regions a wake-up, whichever policy the thread belongs to; faults take what each answers.
#[test]
fn khugepaged_is_a_switch_of_thp() {
    for policy in ["thp:khugepaged=on,pages=1024,place=base", "khugepaged:pages=1024,fault=off", "thp:place=base"] {
        let mut machine = Machine::new(X86, 8192, policy);
        machine.anonymous(512, 5 * 512, Growth::Fixed);
        (1..6).for_each(|region| machine.put(region * 512, region));
        let mut huge = Vec::new();
        for second in [9, 10, 20, 30] {
            advance(&mut machine, second, 0);
            huge.push((1..6).filter(|region| machine.level(region * 512) == Some(Level(1))).count());
        }
        assert_eq!(huge, if policy.contains("pages") { [0, 2, 4, 5] } else { [0; 4] }, "{policy}");
        machine.end();
    }
    let mut machine = Machine::new(X86, 8192, "thp:khugepaged=on,defrag=defer");
    machine.anonymous(512, 512, Growth::Fixed);
    assert_eq!((machine.write(512).mapped, machine.vm.due()), (Level(1), Some(10 * SECOND)));
    machine.end();
}

/// What is refused for its own sake, here since it cannot be zeroed, does not keep the blocks
/// behind it from a try.
#[test]
fn khugepaged_tries_each_block_of_a_region() {
    let mut machine = Machine::new("4K 64K 2M", 4096, "mthp:size=64K,khugepaged=on,place=base");
    machine.anonymous(512, 512, Growth::Fixed);
    (0..32).for_each(|block| machine.put(512 + 16 * block, block));
    machine.disk.fills = Some(0);
    advance(&mut machine, 10, 0);
    let refused: Vec<(Why, u64)> = machine.vm.refusals().filter(|(_, count)| *count > 0).collect();
    assert!(matches!(refused[..], [(Why::Contents, 32..)]), "{refused:?}");
    machine.disk.fills = None;
    advance(&mut machine, 20, 0);
    assert!((512..1024).all(|page| machine.level(page) == Some(Level(1))));
    machine.end();
}

#[test]
fn khugepaged_collapses_what_enabled_allows() {
    for (enabled, levels) in [("always", [1, 1, 0]), ("madvise", [0, 1, 0])] {
        let policy = format!("thp:khugepaged=on,enabled={enabled},place=base");
        let mut machine = Machine::new(X86, 8192, &policy);
        for (start, hint) in [(512, Hint::None), (1024, Hint::Huge), (1536, Hint::Base)] {
            machine.vm.map(&mut machine.pmap, machine.space, Map::anonymous(Vpn(start), 512).hint(hint)).unwrap();
            machine.put(start, start);
        }
        advance(&mut machine, 10, 0);
        assert_eq!([512, 1024, 1536].map(|page| machine.level(page).unwrap()), levels.map(Level), "{enabled}");
        let of = |start| Region { space: machine.space, start: Vpn(start), level: Level(1) };
        let [none, _, base] = [512, 1024, 1536].map(of);
        let mut promote = |region| machine.vm.promote_region(&mut machine.pmap, &mut machine.disk, region, How::Either);
        assert_eq!(promote(base), Err(Why::AdvisedAgainst));
        assert_eq!(promote(none), Err(if enabled == "madvise" { Why::NotAdvised } else { Why::Superpage }));
        machine.end();
    }
}

#[test]
fn khugepaged_compacts_once_unless_it_is_told_not_to() {
    for (compacts, level, next) in [("on", Level(1), 20), ("off", Level::BASE, 70)] {
        let policy = format!("thp:khugepaged=on,khugepaged-defrag={compacts},pages=512,place=base");
        let mut machine = Machine::new(X86, 2048, &policy);
        // Somebody else's page in each extent.
        (0..4).for_each(|extent| machine.vm.hold(Pfn(extent * 512 + 5)).unwrap());
        machine.anonymous(512, 512, Growth::Fixed);
        machine.put(512, 7);
        assert_eq!(advance(&mut machine, 10, 0), Some(next * SECOND), "{compacts}");
        assert_eq!((machine.level(512), machine.get(512)), (Some(level), 7), "{compacts}");
        assert_eq!(machine.vm.stats().compactions, u64::from(level.0), "{compacts}");
        machine.vm.exit(&mut machine.pmap, machine.space).unwrap();
        assert_eq!((machine.vm.buddy().free_frames(), machine.vm.leaked_frames()), (2048 - 4, 0));
    }
    // Where it cannot, it sleeps.
    let mut machine = Machine::new(X86, 2048, "thp:khugepaged=on,place=base");
    for extent in 0..4 {
        machine.vm.wire(Extent { start: Pfn(extent * 512 + 5), level: Level::BASE }).unwrap();
    }
    machine.anonymous(512, 512, Growth::Fixed);
    machine.put(512, 7);
    assert_eq!(advance(&mut machine, 10, 0), Some(70 * SECOND));
    assert_eq!((machine.level(512), machine.get(512)), (Some(Level::BASE), 7));
    machine.vm.validate(&machine.pmap).unwrap();
}

/// As Linux, which counts who maps a page: memory is shared while both sides of a fork live.
#[test]
fn khugepaged_collapses_what_a_child_had_until_it_ended() {
    let mut machine = Machine::new(X86, 4096, "thp:khugepaged=on,max-shared=0,place=base");
    machine.anonymous(512, 1024, Growth::Fixed);
    [512, 1024].iter().for_each(|page| machine.put(*page, *page));
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    machine.put(1024, 7);
    advance(&mut machine, 10, 0);
    assert_eq!([512, 1024].map(|page| machine.level(page)), [0, 1].map(|level| Some(Level(level))), "one was written");
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    advance(&mut machine, 20, 0);
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(
        [512, 1024].map(|page| (machine.level(page), machine.get(page))),
        [512, 7].map(|value| (Some(Level(1)), value))
    );
    machine.put(513, 8);
    assert_eq!((machine.get(513), machine.level(513)), (8, Some(Level(1))));
    machine.end();
}

fn discard(machine: &mut Machine, start: u64, pages: u64) {
    machine.vm.discard(&mut machine.pmap, machine.space, Vpn(start).pages(pages)).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
}

/// A machine with three huge pages, of which the first lost 100 pages and the second 50.
fn parted(policy: &str) -> Machine {
    let mut machine = Machine::with_swap("4K 2M", 2048, policy, 4000);
    machine.anonymous(512, 3 * 512, Growth::Fixed);
    (512..2048).for_each(|page| machine.put(page, page));
    assert_eq!(machine.vm.buddy().free_frames(), 512);
    discard(&mut machine, 600, 100);
    machine.unmap(1030, 50);
    machine
}

#[test]
fn a_huge_page_that_lost_pages_keeps_their_frames() {
    for (policy, held) in [("thp", 150), ("thp:deferred-split=off", 0), ("thp:place=reservation,reserve=huge", 0)] {
        let mut machine = parted(policy);
        let stats = machine.vm.stats();
        assert_eq!((stats.deferred_pages, stats.resident_pages), (held, 3 * 512 - 150), "{policy}");
        if policy.contains("reserv") {
            assert_eq!(machine.vm.buddy().free_frames(), 512, "they are reserved");
            machine.end();
            continue;
        }
        assert_eq!(machine.vm.buddy().free_frames(), 512 + 150 - held, "{policy}");
        // What is touched again lies elsewhere, so that the huge page does not come back.
        let frames: Vec<Pfn> = [599, 700].map(|page| machine.frame(page).unwrap()).into();
        (600..700).for_each(|page| machine.put(page, 7));
        assert_eq!([599, 700].map(|page| machine.frame(page).unwrap()).to_vec(), frames);
        let inside = (600..700).filter(|page| machine.frame(*page).unwrap().0 >> 9 == frames[0].0 >> 9).count();
        assert_eq!(inside, if held > 0 { 0 } else { 100 }, "{policy}");
        assert_eq!((machine.level(599), machine.vm.stats().deferred_pages), (Some(Level::BASE), held), "{policy}");
        // When its last page is gone it is free as a whole.
        let free = machine.vm.buddy().free_extents(Level(1));
        discard(&mut machine, 512, 512);
        assert_eq!(machine.vm.stats().deferred_pages, held / 3, "{policy}");
        assert_eq!(machine.vm.stats().deferred_splits, 0);
        assert!(machine.vm.buddy().free_extents(Level(1)) > free, "{policy}");
        machine.end();
    }
}

#[test]
fn where_memory_is_short_the_oldest_is_split_first() {
    // By a request for a page.
    let mut machine = parted("thp:reclaim=none");
    let mut left = Vec::new();
    while let Ok(frame) = machine.vm.wire_page() {
        left.push((frame, machine.vm.stats().deferred_pages, machine.vm.stats().deferred_splits));
    }
    let held: Vec<(u64, u64)> = left.iter().map(|(_, pages, splits)| (*pages, *splits)).collect();
    assert_eq!(held.len(), 512 + 150);
    assert_eq!([511, 512, 611, 612].map(|at| held[at]), [(150, 0), (50, 1), (50, 1), (0, 2)]);
    left.into_iter().for_each(|(frame, ..)| machine.vm.unwire_page(frame).unwrap());
    machine.end();
    // By the daemon, which evicts nothing while that is enough.
    let mut machine = parted("thp");
    let wired: Vec<Pfn> = (0..504).map(|_| machine.vm.wire_page().unwrap()).collect();
    let memory = machine.vm.memory_state();
    assert_eq!((memory.free, memory.available, machine.vm.daemon_wanted()), (8, 8, true));
    assert!(memory.aim <= 108);
    assert!(machine.vm.run_daemon(&mut machine.pmap, &mut machine.disk));
    machine.vm.validate(&machine.pmap).unwrap();
    let stats = machine.vm.stats();
    assert_eq!((stats.deferred_pages, stats.deferred_splits, stats.evictions), (50, 1, 0));
    assert!((700..1030).chain(1080..2048).all(|page| machine.get(page) == page));
    wired.into_iter().for_each(|frame| machine.vm.unwire_page(frame).unwrap());
    machine.end();
}

#[test]
fn eviction_and_compaction_split_what_they_touch() {
    let mut machine = parted("thp");
    let start = Extent { start: machine.frame(512).unwrap(), level: Level(1) };
    let done =
        machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| system.compact(Level(1), Some(start)));
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(done.map(|done| (done.moved, done.free)), Some((412, true)));
    let stats = machine.vm.stats();
    assert_eq!((stats.deferred_pages, stats.deferred_splits), (50, 1));
    machine.end();
    // Pages of zeroes are given back at once, of a whole huge page and of one that lost pages.
    let mut machine = parted("thp");
    (1080..1180).chain(1536..1636).for_each(|page| machine.put(page, 0));
    let free = machine.vm.buddy().free_frames();
    let space = machine.space;
    let given = machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| {
        [2, 3].map(|region| system.shrink(space, Level(1), region))
    });
    machine.vm.validate(&machine.pmap).unwrap();
    // The mapping of the second region ends at the hole: it is no region any more.
    assert_eq!(given, [0, 100]);
    assert_eq!((machine.vm.buddy().free_frames() - free, machine.vm.stats().deferred_pages), (100, 150));
    machine.end();
}

/// Three huge pages of which 1, 400 and 401 pages are used, the third the oldest; memory becomes
/// short.
#[test]
fn underused_huge_pages_lose_their_zeroes_where_memory_is_short() {
    for (parameters, given_back, looked) in [
        ("underused=on,max-none=511", 0, 0),
        ("underused=off,max-none=111", 0, 0),
        // 111 pages of zeroes are not more than that. The look at the third ends with its 401st
        // page in use.
        ("underused=on,max-none=111", 112, 401 + 512),
        ("underused=on,max-none=0,deferred-split=off", 111, 512),
        ("underused=on,max-none=400", 511, 512 + 112 + 112),
    ] {
        let mut machine = Machine::with_swap("4K 2M", 2048, &format!("thp:{parameters}"), 4000);
        machine.anonymous(512, 3 * 512, Growth::Fixed);
        for (start, used) in [(1536, 401), (1024, 400), (512, 1)] {
            (start..start + used).for_each(|page| machine.put(page, page));
        }
        let wired: Vec<Pfn> = (0..495).map(|_| machine.vm.wire_page().unwrap()).collect();
        assert!(!machine.vm.daemon_wanted(), "{parameters}");
        let more: Vec<Pfn> = (0..4).map(|_| machine.vm.wire_page().unwrap()).collect();
        assert!(machine.vm.daemon_wanted(), "{parameters}");
        machine.vm.run_daemon(&mut machine.pmap, &mut machine.disk);
        machine.vm.validate(&machine.pmap).unwrap();
        let stats = machine.vm.stats();
        assert_eq!((stats.zeroes_given_back, stats.background_scanned), (given_back, looked), "{parameters}");
        let evicts = given_back == 0;
        assert_eq!(stats.evictions > 0, evicts, "{parameters}");
        for (start, used) in [(1536, 401), (1024, 400), (512, 1)] {
            assert!((start..start + used).all(|page| machine.get(page) == page), "{parameters}");
        }
        wired.into_iter().chain(more).for_each(|frame| machine.vm.unwire_page(frame).unwrap());
        machine.end();
    }
}

#[test]
fn folios_have_their_sizes_by_what_is_asked_for() {
    for (parameters, levels) in [
        ("size=64K", [1, 1, 0]),
        ("size=64K+2M", [2, 2, 0]),
        ("size=64K,madvise=2M", [1, 2, 0]),
        ("size=2M,enabled=madvise", [0, 2, 0]),
        ("size=2M,enabled=madvise,always=64K", [1, 2, 0]),
        ("size=64K,enabled=madvise,always=2M", [2, 2, 0]),
        ("size=64K,enabled=madvise,madvise=2M", [0, 2, 0]),
    ] {
        let mut machine = Machine::new("4K 64K 2M", 4096, &format!("mthp:{parameters}"));
        for (start, hint) in [(512, Hint::None), (1024, Hint::Huge), (1536, Hint::Base)] {
            machine.vm.map(&mut machine.pmap, machine.space, Map::anonymous(Vpn(start), 512).hint(hint)).unwrap();
        }
        let found = [512, 1024, 1536].map(|start| machine.write(start + 7).mapped);
        assert_eq!(found, levels.map(Level), "{parameters}");
        machine.end();
    }
}

/// Of a region of 2 MB the first 64 KB are populated, of the second all but a page, of the fourth
/// one page.
#[test]
fn khugepaged_makes_folios_of_what_is_occupied_and_no_more() {
    for (parameters, levels) in [
        ("size=64K,max-none=511", [1, 1, 0, 1]),
        ("size=64K,max-none=100", [1, 0, 0, 0]),
        ("size=64K,max-none=0", [1, 0, 0, 0]),
        ("size=64K+2M,max-none=0", [1, 0, 0, 0]),
        ("size=64K+2M,max-none=511", [2, 2, 2, 2]),
        // 480 pages are empty.
        ("size=64K+2M,max-none=480", [2, 2, 2, 2]),
        ("size=64K+2M,max-none=479", [1, 0, 0, 0]),
        ("size=64K,always=64K,madvise=2M,max-none=511", [1, 1, 0, 1]),
        ("size=64K,enabled=madvise", [0, 0, 0, 0]),
    ] {
        let mut machine = Machine::new("4K 64K 2M", 4096, &format!("mthp:khugepaged=on,place=base,{parameters}"));
        machine.anonymous(512, 512, Growth::Fixed);
        let pages = || (512..543).chain([560]);
        pages().for_each(|page| machine.put(page, page));
        for second in [10, 20, 30] {
            advance(&mut machine, second, 0);
            let found = [512, 528, 544, 560].map(|page| machine.level(page).unwrap_or(Level::BASE));
            assert_eq!(found, levels.map(Level), "{parameters} after {second} s");
        }
        assert!(pages().all(|page| machine.get(page) == page), "{parameters}");
        machine.end();
    }
}
