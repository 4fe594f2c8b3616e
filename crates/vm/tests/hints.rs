//! What a program asks for (madvise(2)): the hint of a map entry, and what a policy makes of it at
//! later faults.

use crate::machine::Machine;
use superpage_pages::{Hint, Level, Protection, Vpn};
use superpage_vm::{Config, Growth, How, Map, Policy, Prefer, Region, Reserve, Target, Vm, Why};

const X86: &str = "4K 2M 1G";

/// A machine in which 2 MB each are mapped at page 512 without a hint, at 1024 with `Huge`, at 1536
/// with `Base`, at 2048 with `Stack`.
fn machine(policy: &str) -> Machine {
    let mut machine = Machine::new(X86, 4096, policy);
    for (start, hint) in [(512, Hint::None), (1024, Hint::Huge), (1536, Hint::Base), (2048, Hint::Stack)] {
        machine.vm.map(&mut machine.pmap, machine.space, Map::anonymous(Vpn(start), 512).hint(hint)).unwrap();
    }
    machine
}

fn advise(machine: &mut Machine, start: u64, pages: u64, hint: Hint) {
    machine.vm.advise(&mut machine.pmap, machine.space, Vpn(start).pages(pages), hint).unwrap();
    machine.vm.validate(&machine.pmap).unwrap();
}

#[test]
fn thp_does_what_is_asked_for() {
    for (policy, levels) in [
        ("thp", [1, 1, 0, 0]),
        ("thp:stacks=any", [1, 1, 0, 1]),
        ("thp:enabled=always", [1, 1, 0, 0]),
        ("thp:enabled=madvise", [0, 1, 0, 0]),
        ("thp:enabled=madvise,stacks=any", [0, 1, 0, 0]),
        ("mthp:size=2M", [1, 1, 0, 0]),
        ("mthp:size=2M,enabled=madvise", [0, 1, 0, 0]),
        ("thp:hints=ignored", [1, 1, 1, 1]),
        ("eager:ceiling=2M", [1, 1, 0, 1]),
        ("base", [0, 0, 0, 0]),
    ] {
        let mut machine = machine(policy);
        for (start, level) in [512, 1024, 1536, 2048].into_iter().zip(levels) {
            assert_eq!(machine.write(start + 7).mapped, Level(level), "{policy}, page {start}");
        }
        machine.end();
    }
}

#[test]
fn where_superpages_are_asked_for_they_may_be_of_another_size() {
    let mut machine = Machine::new(X86, 4096, "base");
    let mut policy: Policy = "thp".parse().unwrap();
    (policy.answers.place.size, policy.answers.place.hinted) = (Reserve::UpTo(64 << 10), Some(Reserve::UpTo(2 << 20)));
    machine.vm = Vm::new(Config { ladder: *machine.vm.ladder(), frames: 4096, policy, swap_pages: 0 }).unwrap();
    machine.space = machine.vm.create_space();
    machine.anonymous(512, 3 * 512, Growth::Fixed);
    advise(&mut machine, 1024, 1024, Hint::Huge);
    assert_eq!([512, 1024].map(|page| machine.write(page).mapped), [Level(0), Level(1)]);
    let space = machine.space;
    let small = Prefer { hinted: Some(Reserve::UpTo(4096)), ..Prefer::default() };
    machine.vm.as_system(&mut machine.pmap, &mut machine.disk, |system| assert!(system.prefer(space, None, small)));
    assert_eq!(machine.write(1536).mapped, Level(0));
    machine.end();
}

#[test]
fn reservations_ask_for_no_hint_unless_they_are_told_to() {
    for (policy, levels) in [
        ("reservation", [1, 1, 1]),
        ("reservation:hints=opt-out", [1, 1, 0]),
        ("reservation:hints=opt-in", [0, 1, 0]),
        ("talluri-hill", [1, 1, 1]),
        ("talluri-hill:hints=opt-in", [0, 1, 0]),
    ] {
        let mut machine = machine(policy);
        (512..2048).for_each(|page| machine.put(page, page));
        let found = [512, 1024, 1536].map(|start| machine.level(start).unwrap());
        assert_eq!(found, levels.map(Level), "{policy}");
        machine.end();
    }
}

#[test]
fn advice_changes_nothing_that_is_mapped_and_later_faults() {
    let mut machine = Machine::new(X86, 4096, "thp");
    machine.anonymous(512, 1024, Growth::Fixed);
    machine.put(512, 1);
    advise(&mut machine, 512, 1024, Hint::Base);
    assert_eq!((machine.level(512), machine.vm.stats().faults), (Some(Level(1)), 1), "it stays");
    assert_eq!(machine.write(1024).mapped, Level::BASE);
    // Given back, it is base pages too; and asked for again, superpages.
    machine.vm.discard(&mut machine.pmap, machine.space, Vpn(512).pages(1024)).unwrap();
    assert_eq!(machine.write(600).mapped, Level::BASE);
    machine.vm.discard(&mut machine.pmap, machine.space, Vpn(512).pages(1024)).unwrap();
    advise(&mut machine, 0, 4096, Hint::Huge);
    assert_eq!(machine.write(600).mapped, Level(1), "holes in the range are no error");
    machine.end();
}

#[test]
fn a_superpage_across_the_edge_of_advice_is_demoted() {
    let mut machine = Machine::new(X86, 4096, "thp");
    machine.anonymous(512, 1024, Growth::Fixed);
    machine.put(600, 1);
    machine.put(1024, 2);
    advise(&mut machine, 700, 512, Hint::Huge);
    assert_eq!((machine.level(600), machine.level(1024)), (Some(Level(0)), Some(Level(0))), "both edges");
    assert_eq!((machine.get(600), machine.get(1024)), (1, 2));
    // What is alike again is one entry, in which a superpage may lie.
    advise(&mut machine, 700, 512, Hint::None);
    machine.vm.discard(&mut machine.pmap, machine.space, Vpn(512).pages(1024)).unwrap();
    assert_eq!(machine.write(700).mapped, Level(1));
    // The same advice again changes nothing.
    advise(&mut machine, 800, 10, Hint::None);
    assert_eq!(machine.level(800), Some(Level(1)));
    machine.end();
}

#[test]
fn no_superpage_is_made_again_against_advice() {
    let mut machine = Machine::new(X86, 4096, "reservation:hints=opt-out,demote-on-write=off");
    machine.anonymous(512, 512, Growth::Fixed);
    (512..1024).for_each(|page| machine.put(page, 1));
    // In base pages, and again fully populated in one extent: the next fault there would promote
    // it.
    for hint in [Hint::None, Hint::Base] {
        advise(&mut machine, 512, 512, hint);
        machine.protect(600, 1, Protection::READ);
        machine.protect(600, 1, Protection::READ_WRITE);
        assert_eq!(machine.level(512), Some(Level(0)));
        machine.vm.discard(&mut machine.pmap, machine.space, Vpn(600).pages(1)).unwrap();
        let level = u8::from(hint == Hint::None);
        assert_eq!(machine.write(600).mapped, Level(level), "{hint}");
    }
    machine.end();
}

#[test]
fn nothing_is_prepopulated_against_advice() {
    for (hint, resident) in [(Hint::None, 16), (Hint::Base, 8)] {
        let mut machine = Machine::new("4K 64K", 4096, "talluri-hill:hints=opt-out");
        machine.anonymous(0, 16, Growth::Fixed);
        machine.put(0, 1);
        advise(&mut machine, 0, 16, hint);
        (1..8).for_each(|page| machine.put(page, 1));
        assert_eq!(machine.vm.stats().resident_pages, resident, "{hint}");
        machine.end();
    }
}

#[test]
fn a_hint_is_kept_by_all_but_a_heap_that_grows() {
    let mut machine = machine("thp");
    let hint = |machine: &Machine, page| machine.vm.hint(machine.space, Vpn(page));
    assert_eq!(
        [511, 512, 1024, 1536].map(|page| hint(&machine, page)),
        [None, Some(Hint::None), Some(Hint::Huge), Some(Hint::Base)]
    );
    machine.put(1536, 1);
    machine.protect(1600, 10, Protection::READ);
    machine.vm.discard(&mut machine.pmap, machine.space, Vpn(1700).pages(10)).unwrap();
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    machine.put(1536, 2);
    machine.vm.remap(&mut machine.pmap, machine.space, Vpn(1536).pages(512), Vpn(4096).pages(600)).unwrap();
    assert!((4096..4696).all(|page| hint(&machine, page) == Some(Hint::Base)), "moved, and longer by that");
    assert!((1536..2048).all(|page| machine.vm.hint(child, Vpn(page)) == Some(Hint::Base)), "of a child");
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.anonymous(8192, 10, Growth::Up);
    advise(&mut machine, 8192, 10, Hint::Base);
    machine.vm.grow(&mut machine.pmap, machine.space, Vpn(8192), 30).unwrap();
    assert_eq!([8192, 8201, 8202].map(|page| hint(&machine, page).unwrap()), [Hint::Base, Hint::Base, Hint::None]);
    machine.vm.grow(&mut machine.pmap, machine.space, Vpn(8192), 5).unwrap();
    assert_eq!((hint(&machine, 8196), hint(&machine, 8197)), (Some(Hint::Base), None));
    machine.end();
}

#[test]
fn a_background_promotes_nothing_against_advice() {
    let mut machine = machine("promote:age=1ms,interval=1ms,idle=1ms");
    (512..2048).for_each(|page| machine.put(page, page));
    for time in 1..100 {
        machine.vm.advance(&mut machine.pmap, &mut machine.disk, time * 1_000_000, 0);
    }
    assert_eq!([512, 1024, 1536].map(|page| machine.level(page).unwrap()), [Level(1), Level(1), Level(0)]);
    let refused = Region { space: machine.space, start: Vpn(1536), level: Level(1) };
    let done = machine.vm.promote_region(&mut machine.pmap, &mut machine.disk, refused, How::Either);
    assert_eq!(done, Err(Why::AdvisedAgainst));
    assert_eq!(machine.get(1600), 1600);
    machine.end();
}

#[test]
fn a_live_linux_has_no_parameter_for_hints() {
    let linux =
        Target { name: "a live Linux", has: &[superpage_vm::Need::Settings], own: &[], limits: &[], read: None };
    let error = superpage_vm::Policy::parse("thp:enabled=madvise", &linux).unwrap_err().to_string();
    assert!(error.contains("thp: enabled needs"), "{error}");
}
