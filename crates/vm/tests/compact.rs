//! Compaction: pages are relocated out of an extent, and nothing else changes.

use crate::machine::Machine;
use superpage_pages::{Access, Extent, Level, Pfn};
use superpage_vm::{Compacted, FaultError, Growth, Prefer};

/// Compacts an extent of a level, or the best.
fn compact(machine: &mut Machine, level: Level, start: Option<u64>) -> Compacted {
    let target = start.map(|start| Extent { start: Pfn(start), level });
    let done = machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| system.compact(level, target));
    machine.vm.validate(&machine.pmap).unwrap();
    done.unwrap()
}

/// Each third page of memory that was full is left: no extent is free.
fn scattered(policy: &str, frames: u64) -> (Machine, Vec<u64>) {
    let mut machine = Machine::new("4K 2M", frames, policy);
    let all = frames - 64;
    machine.anonymous(4096, all, Growth::Fixed);
    (4096..4096 + all).for_each(|page| machine.put(page, page));
    let left: Vec<u64> = (4096..4096 + all).filter(|page| page % 3 == 0).collect();
    (4096..4096 + all).filter(|page| page % 3 > 0).for_each(|page| machine.unmap(page, 1));
    (machine, left)
}

#[test]
fn the_pages_of_an_extent_are_elsewhere_afterwards() {
    let (mut machine, left) = scattered("base:cache=free", 4096);
    let before = machine.vm.stats();
    assert_eq!(machine.vm.buddy().free_extents(Level(1)), 0);
    let inside = left.iter().filter(|page| machine.frame(**page).unwrap().0 >> 9 == 2).count() as u64;
    let faults = machine.vm.stats().faults;
    let done = compact(&mut machine, Level(1), Some(1024));
    assert_eq!(done, Compacted { moved: inside, failed: 0, free: true });
    let stats = machine.vm.stats();
    assert_eq!((stats.pages_moved, stats.compactions, stats.compactions_failed), (inside, 1, 0));
    assert_eq!(stats.bytes_copied - before.bytes_copied, inside * 4096);
    assert_eq!(stats.resident_pages, before.resident_pages);
    assert!(left.iter().all(|page| machine.get(*page) == *page));
    assert_eq!(machine.vm.stats().faults, faults, "all of them are mapped as before");
    assert!(machine.vm.buddy().free_extents(Level(1)) > 0);
    // As many become free as free frames can fill, and then nothing moves.
    for free in machine.vm.buddy().free_extents(Level(1)) + 1..=machine.vm.buddy().free_frames() / 512 {
        assert!(compact(&mut machine, Level(1), None).free);
        assert_eq!(machine.vm.buddy().free_extents(Level(1)), free);
    }
    assert_eq!(compact(&mut machine, Level(1), None), Compacted::default());
    assert!(left.iter().all(|page| machine.get(*page) == *page));
    machine.end();
}

#[test]
fn an_extent_with_a_wired_frame_is_left_as_it_is() {
    let (mut machine, left) = scattered("base:cache=free", 2048);
    let wired = (0..600).map(|_| machine.vm.wire_page().unwrap()).collect::<Vec<_>>();
    let with = wired.iter().map(|frame| frame.0 >> 9).min().unwrap();
    let done = compact(&mut machine, Level(1), Some(with << 9));
    assert!(done.moved == 0 && done.failed > 0 && !done.free, "{done:?}");
    assert_eq!(machine.vm.stats().compactions_failed, 1);
    wired.into_iter().for_each(|frame| machine.vm.unwire_page(frame).unwrap());
    assert!(compact(&mut machine, Level(1), None).free);
    assert!(left.iter().all(|page| machine.get(*page) == *page));
    // Outside memory, and of a level that there is not.
    assert_eq!(compact(&mut machine, Level(1), Some(1 << 20)), Compacted::default());
    assert_eq!(compact(&mut machine, Level(7), None), Compacted::default());
    machine.end();
}

/// Superpages of a smaller size move whole; reservations are broken; what a fork shares stays
/// shared.
#[test]
fn superpages_move_whole() {
    let mut machine = Machine::new("4K 64K 2M", 4096, "reservation:cache=free");
    for region in 0..64 {
        machine.anonymous(8192 + region * 512, 16, Growth::Fixed);
        (0..16).for_each(|page| machine.put(8192 + region * 512 + page, region * 100 + page));
    }
    machine.anonymous(1 << 20, 16, Growth::Fixed);
    (0..5).for_each(|page| machine.put((1 << 20) + page, page));
    assert_eq!(machine.level(8192), Some(Level(1)));
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    let promoted = machine.vm.stats().promotions;
    let start = machine.frame(8192).unwrap().0 & !511;
    let done = compact(&mut machine, Level(2), Some(start));
    assert!(done.free && done.moved >= 16, "{done:?}");
    let stats = machine.vm.stats();
    assert_eq!((stats.promotions, stats.demotions[1], stats.mapped[1]), (promoted, 0, 64));
    assert_eq!(machine.level(8192), Some(Level(1)));
    for region in 0..64 {
        (0..16).for_each(|page| assert_eq!(machine.get(8192 + region * 512 + page), region * 100 + page));
    }
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    machine.end();
}

/// Half of a reservation is populated, so that breaking it leaves an extent larger than the target,
/// of which a page beside the target is still being read.
#[test]
fn what_is_populated_whole_around_an_extent_stays() {
    let mut machine = Machine::with_swap("4K 8K 16K 32K", 256, "reservation", 64);
    machine.disk.stored.insert((Some(1), 3), 77);
    machine.file(512, 64, true, 0);
    (512..515).for_each(|page| assert_eq!(machine.get(page), 0));
    machine.disk.slow = true;
    let Err(FaultError::Busy(frame)) = machine.fault(machine.space, 515, Access::Read) else { panic!("it is read") };
    machine.disk.slow = false;
    let first = machine.frame(512).unwrap();
    assert_eq!((frame, first.0 % 8), (first + 3, 0));
    let done = compact(&mut machine, Level(1), Some(first.0));
    assert_eq!(done, Compacted { moved: 0, failed: 2, free: false });
    assert_eq!((machine.frame(512), machine.vm.stats().reservations_preempted), (Some(first), 0));
    machine.read_done(frame, Ok(()));
    assert_eq!((machine.read(515).frame, machine.get(515)), (frame, 77));
    // All of them fit into an extent that is larger.
    assert_eq!(compact(&mut machine, Level(3), Some(first.0)), Compacted { moved: 4, failed: 0, free: true });
    assert_eq!(machine.get(515), 77);
    machine.end();
}

#[test]
fn a_fault_compacts_for_the_extent_that_it_wants() {
    for (policy, level) in [("thp:compact=on,cache=free", Level(1)), ("thp:cache=free", Level::BASE)] {
        let (mut machine, left) = scattered(&format!("{policy},place=base"), 4096);
        let extents = Prefer { place: Some(superpage_vm::Place::Extent), ..Prefer::default() };
        machine.anonymous(1 << 20, 512, Growth::Fixed);
        let space = machine.space;
        machine
            .vm
            .as_system(&mut machine.pmap, &mut machine.disk, |system| assert!(system.prefer(space, None, extents)));
        machine.put(1 << 20, 7);
        assert_eq!(machine.level(1 << 20), Some(level), "{policy}");
        assert_eq!(machine.vm.stats().compactions, u64::from(level.0));
        machine.vm.validate(&machine.pmap).unwrap();
        assert!(left.iter().all(|page| machine.get(*page) == *page));
        assert_eq!((machine.get(1 << 20), machine.get((1 << 20) + 511)), (7, 0));
        machine.end();
    }
}

#[test]
fn direct_compaction_moves_nothing_where_each_extent_has_a_wired_frame() {
    let mut machine = Machine::new("4K 2M", 2048, "thp:compact=on,cache=free");
    for extent in 0..4 {
        machine.vm.wire(Extent { start: Pfn(extent * 512 + 100), level: Level::BASE }).unwrap();
    }
    machine.anonymous(512, 100 * 512, Growth::Fixed);
    (1..100).for_each(|region| machine.put(region * 512, region));
    // No extent qualifies, so nothing is moved at all.
    assert_eq!((machine.vm.stats().compactions, machine.vm.stats().pages_moved), (0, 0));
    assert!((1..100).all(|region| machine.get(region * 512) == region));
    machine.vm.validate(&machine.pmap).unwrap();
}

/// What somebody else holds moves too, and is nobody's page afterwards as before.
#[test]
fn frames_of_somebody_else_move() {
    let mut machine = Machine::new("4K 2M", 2048, "base:cache=free");
    machine.vm.scatter(1).unwrap();
    (0..4).for_each(|region| (0..100).for_each(|at| machine.vm.hold(Pfn(region * 512 + at * 3)).unwrap()));
    assert_eq!((machine.vm.held().count(), machine.vm.hold(Pfn(0)).is_err()), (400, true));
    machine.anonymous(4096, 64, Growth::Fixed);
    (4096..4160).for_each(|page| machine.put(page, page));
    // From all over memory: hardly one page follows the one before it.
    let frames: Vec<u64> = (4096..4160).map(|page| machine.frame(page).unwrap().0).collect();
    assert!(frames.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 8, "{frames:?}");
    let inside = frames.iter().filter(|frame| **frame >> 9 == 1).count() as u64;
    let done = compact(&mut machine, Level(1), Some(512));
    assert_eq!(done, Compacted { moved: 100 + inside, failed: 0, free: true });
    assert!(machine.vm.held().all(|frame| frame.0 >> 9 != 1) && machine.vm.held().count() == 400);
    assert!((4096..4160).all(|page| machine.get(page) == page));
    assert_eq!(machine.vm.leaked_frames(), 0);
}
