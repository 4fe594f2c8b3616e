//! The contiguity-aware page daemon (Navarro et al., section 5.1, changes 2 and 3): woken by failed
//! requests for extents, it restores what failed and no more, out of inactive pages; and closed
//! files make pages inactive.

use crate::machine::Machine;
use superpage_pages::{Access, Extent, Level, Pfn, Vpn};
use superpage_vm::{FaultKind, Growth};

/// The plain daemon that the paper compares with.
const PLAIN: &str = "reservation:cache=held,wake=memory,close=keep";

/// A memory of ten extents of 64 KB: nine hold 72 pages of a file that was read, of the last one
/// frame is the kernel's. So seven frames are available, which is enough, but no extent.
fn full(policy: &str) -> Machine {
    let mut machine = Machine::with_swap("8K 64K", 80, policy, 1000);
    machine.vm.wire(Extent { start: Pfn(79), level: Level::BASE }).unwrap();
    machine.vm.open(1, 72).unwrap();
    (0..72).for_each(|page| assert_eq!(read(&mut machine, page), FaultKind::File));
    assert_eq!(machine.vm.buddy().free_extents(Level(1)), 0);
    assert!(!machine.vm.daemon_wanted());
    machine
}

/// Reads a page of the open file without a mapping.
fn read(machine: &mut Machine, page: u64) -> FaultKind {
    let fault = machine.read_file(1, page).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    fault.kind
}

/// So many regions that would take an extent each, if there was one.
fn fail(machine: &mut Machine, count: u64) {
    for region in 0..count {
        let start = 4096 + 64 * region;
        machine.anonymous(start, 8, Growth::Fixed);
        assert_eq!(machine.write(start).allocated, Some(Level::BASE));
    }
    assert_eq!(machine.vm.stats().contiguity_failed, count);
}

/// Runs the daemon; gives what it evicted and the extents that are free then.
fn run(machine: &mut Machine) -> (u64, u64) {
    let before = machine.vm.stats().evictions;
    machine.daemon();
    (machine.vm.stats().evictions - before, machine.vm.buddy().free_extents(Level(1)))
}

fn end(mut machine: Machine) {
    machine.vm.exit(&mut machine.pmap, machine.space).unwrap();
    machine.vm.remove_file(1).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
    assert_eq!(machine.vm.buddy().free_frames(), 79);
}

#[test]
fn the_daemon_restores_exactly_the_extents_that_failed() {
    for failed in [1, 2, 3] {
        let mut machine = full("reservation");
        machine.vm.close(1).unwrap();
        fail(&mut machine, failed);
        assert!(machine.vm.daemon_wanted());
        assert_eq!(run(&mut machine), (8 * failed, failed));
        assert_eq!(machine.vm.stats().contiguity_restored, failed);
        // It has done what it was woken for.
        assert!(!machine.vm.daemon_wanted());
        assert_eq!(run(&mut machine), (0, failed));
        // The least recent went; their contents are kept as long as nobody takes the frames.
        machine.vm.open(1, 72).unwrap();
        assert_eq!(read(&mut machine, 8 * failed), FaultKind::Resident);
        assert_eq!(read(&mut machine, 8 * failed - 1), FaultKind::Cached);
        machine.anonymous(2048, 8, Growth::Fixed);
        let allocated = machine.write(2048).allocated;
        assert_eq!(allocated, Some(Level(u8::from(failed > 1))), "the extent that was not taken back");
        end(machine);
    }
}

#[test]
fn only_pages_that_contribute_are_moved() {
    let mut machine = full("reservation");
    // The first extent gets a dirty page, the second one that is used again after the close.
    let fault = machine.write_file(1, 5).unwrap();
    machine.disk.memory[fault.frame.0 as usize] = 77;
    machine.vm.close(1).unwrap();
    machine.vm.open(1, 72).unwrap();
    read(&mut machine, 9);
    fail(&mut machine, 2);
    assert_eq!(run(&mut machine), (16, 2));
    let kinds = [0, 5, 8, 9, 15, 16, 31, 32].map(|page| read(&mut machine, page));
    let (there, cached) = (FaultKind::Resident, FaultKind::Cached);
    assert_eq!(kinds, [there, there, there, there, there, cached, cached, there]);
    assert_eq!(machine.vm.stats().page_outs, 0);
    end(machine);
}

#[test]
fn mapped_pages_that_are_referenced_stay() {
    let mut machine = full("reservation");
    machine.file(512, 72, true, 0);
    (0..72).for_each(|page| assert_eq!(machine.get(512 + page), 0));
    machine.unmap(512 + 8, 64);
    machine.vm.close(1).unwrap();
    fail(&mut machine, 1);
    assert_eq!(run(&mut machine), (0, 0), "as long as the file is mapped its pages are active");
    machine.unmap(512, 8);
    fail_again(&mut machine);
    assert_eq!(run(&mut machine), (8, 1));
    end(machine);
}

/// One more request that fails.
fn fail_again(machine: &mut Machine) {
    machine.anonymous(8192, 8, Growth::Fixed);
    assert_eq!(machine.write(8192).allocated, Some(Level::BASE));
}

#[test]
fn at_the_end_of_the_inactive_list_it_sleeps_again() {
    let mut machine = full("reservation");
    machine.vm.close(1).unwrap();
    machine.vm.open(1, 72).unwrap();
    // Of nine extents all but the last have a page in use.
    (0..8).for_each(|extent| assert_eq!(read(&mut machine, 8 * extent + 3), FaultKind::Resident));
    fail(&mut machine, 3);
    assert_eq!(run(&mut machine), (8, 1));
    assert!(!machine.vm.daemon_wanted());
    assert_eq!(run(&mut machine), (0, 1));
    end(machine);
}

#[test]
fn the_plain_daemon_does_nothing_for_contiguity() {
    let mut machine = full(PLAIN);
    machine.vm.close(1).unwrap();
    fail(&mut machine, 3);
    assert!(!machine.vm.daemon_wanted());
    assert_eq!(run(&mut machine), (0, 0));
    end(machine);
    // With the switches one by one: woken by memory only; woken, but nothing is inactive.
    for (switch, wanted, evicted) in [("wake=memory", false, 0), ("close=keep", true, 0), ("cache=held", true, 24)] {
        let mut machine = full(&format!("reservation:{switch}"));
        machine.vm.close(1).unwrap();
        fail(&mut machine, 3);
        assert_eq!(machine.vm.daemon_wanted(), wanted, "{switch}");
        assert_eq!(run(&mut machine), (evicted, evicted / 8), "{switch}");
        end(machine);
    }
}

#[test]
fn pages_become_inactive_at_the_last_close_only() {
    let mut machine = full("reservation");
    machine.vm.open(1, 72).unwrap();
    machine.vm.close(1).unwrap();
    fail(&mut machine, 1);
    assert_eq!(run(&mut machine), (0, 0), "it is open still");
    machine.vm.close(1).unwrap();
    fail_again(&mut machine);
    assert_eq!(run(&mut machine), (8, 1));
    end(machine);
}

/// A file of superpages of 8 pages, read whole through a mapping by a process that goes on to use
/// little of it: some of it is inactive and still in superpages. No extent is free, though memory
/// is not short.
fn inactive_superpages(speculate: &str) -> Machine {
    let policy = format!("reservation:speculate={speculate}");
    let mut machine = Machine::with_swap("8K 64K", 8 * 65, &policy, 1000);
    machine.file(512, 8 * 64 + 5, true, 0);
    (0..8 * 64 + 5).for_each(|page| assert_eq!(machine.get(512 + page), 0));
    assert!(machine.vm.daemon_wanted() && machine.daemon() && !machine.vm.daemon_wanted());
    assert!(machine.vm.stats().inactive_pages > 8);
    let free: Vec<Extent> = machine.vm.buddy().iter().filter(|extent| extent.level == Level(1)).collect();
    free.iter().for_each(|extent| machine.vm.wire(Extent { level: Level::BASE, ..*extent }).unwrap());
    fail(&mut machine, 1);
    assert!(machine.vm.daemon_wanted());
    machine
}

#[test]
fn inactive_pages_that_are_used_again_are_no_contiguity() {
    for used in [false, true] {
        let mut machine = inactive_superpages("0/4");
        if used {
            // The hardware sets reference bits, and nobody else knows.
            let mapped = machine.mapped(512..512 + 8 * 65);
            mapped.into_iter().for_each(|page| assert!(machine.pmap.access(machine.space, Vpn(page), Access::Read)));
        }
        let (evicted, extents) = run(&mut machine);
        assert_eq!((evicted > 0, extents), (!used, u64::from(!used)));
        assert_eq!(machine.vm.stats().contiguity_restored, extents);
    }
}

#[test]
fn the_search_for_contiguity_demotes_no_superpage() {
    // Speculative demotion is for memory that is short (section 4.6).
    let mut machine = inactive_superpages("2/4");
    let mapped = machine.mapped(512..512 + 8 * 65);
    mapped.into_iter().for_each(|page| assert!(machine.pmap.access(machine.space, Vpn(page), Access::Read)));
    let before = machine.vm.stats();
    run(&mut machine);
    let now = machine.vm.stats();
    assert!(now.daemon_scanned > before.daemon_scanned + 4, "it sampled some");
    assert_eq!(now.speculative_demotions, before.speculative_demotions);
    assert_eq!(now.demotions, before.demotions);
}

#[test]
fn a_daemon_that_found_no_contiguity_sleeps_until_a_page_may_contribute() {
    let mut machine = full("reservation");
    fail(&mut machine, 1);
    assert!(machine.vm.daemon_wanted(), "nothing is inactive, but it does not know");
    assert_eq!(run(&mut machine), (0, 0));
    fail_again(&mut machine);
    assert!(!machine.vm.daemon_wanted(), "nothing has changed");
    machine.vm.close(1).unwrap();
    assert!(machine.vm.daemon_wanted());
    assert_eq!(run(&mut machine), (8, 1));
    end(machine);
}
