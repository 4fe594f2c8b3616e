//! Superpages made by copying.

use crate::machine::Machine;
use superpage_pages::{Access, Level, Protection, Vpn};
use superpage_vm::{Growth, How, Promoted, Region, Why};

const X86: &str = "4K 2M 1G";

fn promote(machine: &mut Machine, start: u64, how: How) -> Result<Promoted, Why> {
    let (pmap, disk) = (&mut machine.pmap, &mut machine.disk);
    let done =
        machine.vm.promote_region(pmap, disk, Region { space: machine.space, start: Vpn(start), level: Level(1) }, how);
    machine.vm.validate(&machine.pmap).unwrap();
    done
}

#[test]
fn pages_that_lie_anywhere_become_one() {
    let mut machine = Machine::new(X86, 4096, "base");
    machine.anonymous(512, 1024, Growth::Fixed);
    (512..1024).rev().filter(|page| page % 3 > 0).for_each(|page| machine.put(page, page));
    let before = machine.vm.stats();
    let free = machine.vm.buddy().free_frames();
    let populated = before.resident_pages;
    assert_eq!(promote(&mut machine, 512, How::InPlace), Err(Why::Otherwise));
    assert_eq!(promote(&mut machine, 512, How::Either), Ok(Promoted { copied: populated, zeroed: 512 - populated }));
    let stats = machine.vm.stats();
    assert_eq!((stats.promotions[1], stats.promotions_by_copying, stats.mapped[..2].to_vec()), (1, 1, vec![0, 1]));
    assert_eq!(stats.bytes_copied - before.bytes_copied, populated * 4096);
    assert_eq!(stats.bytes_zeroed - before.bytes_zeroed, (512 - populated) * 4096);
    assert_eq!((stats.touched_pages, stats.untouched_pages), (populated, 512 - populated));
    assert_eq!(machine.vm.buddy().free_frames(), free - (512 - populated));
    assert_eq!(machine.level(700), Some(Level(1)));
    for page in 512..1024 {
        assert_eq!(machine.get(page), if page % 3 > 0 { page } else { 0 });
    }
    assert_eq!(machine.vm.stats().faults, before.faults, "all of it is mapped");
    assert_eq!(promote(&mut machine, 512, How::Either), Err(Why::Superpage));
    machine.unmap(600, 1);
    assert_eq!(promote(&mut machine, 512, How::Either), Err(Why::TooSmall));
    machine.end();
}

#[test]
fn a_region_in_an_extent_is_filled_where_it_lies() {
    let mut machine = Machine::new(X86, 4096, "reservation");
    machine.anonymous(512, 512, Growth::Fixed);
    (512..700).for_each(|page| machine.put(page, page));
    assert_eq!(promote(&mut machine, 512, How::ByCopying), Err(Why::Otherwise));
    assert_eq!(promote(&mut machine, 512, How::Either), Ok(Promoted { copied: 0, zeroed: 512 - 188 }));
    assert_eq!((machine.level(512), machine.vm.stats().promotions_by_copying), (Some(Level(1)), 0));
    assert_eq!((machine.get(699), machine.get(700)), (699, 0));
    machine.end();
}

/// Mappings with different rights, and none, as a fork leaves them behind.
#[test]
fn mappings_that_differ_are_made_anew_where_they_lie() {
    for missing in [512, 700, 1023] {
        let mut machine = Machine::new(X86, 4096, "reservation");
        machine.anonymous(512, 512, Growth::Fixed);
        (512..1024).filter(|page| *page != missing).for_each(|page| machine.put(page, page));
        let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
        machine.vm.exit(&mut machine.pmap, child).unwrap();
        machine.put(600, 600);
        let frame = machine.frame(513).unwrap();
        assert_eq!(promote(&mut machine, 512, How::InPlace), Ok(Promoted { copied: 0, zeroed: 1 }));
        assert_eq!((machine.level(512), machine.frame(513)), (Some(Level(1)), Some(frame)));
        let stats = machine.vm.stats();
        assert_eq!((stats.promotions_by_copying, stats.mapped[..2].to_vec()), (0, vec![0, 1]));
        let faults = machine.vm.stats().faults;
        for page in 512..1024 {
            assert_eq!(machine.get(page), if page == missing { 0 } else { page });
        }
        assert_eq!(machine.vm.stats().faults, faults, "all of it is mapped");
        machine.end();
    }
}

#[test]
fn what_others_have_and_what_does_not_fit_is_left_alone() {
    let mut machine = Machine::new(X86, 1024, "base");
    machine.anonymous(512, 1024, Growth::Fixed);
    assert_eq!(promote(&mut machine, 512, How::Either), Err(Why::NotPopulated));
    assert_eq!(promote(&mut machine, 100, How::Either), Err(Why::TooSmall));
    (512..1024).for_each(|page| machine.put(page, page));
    // 512 of 1024 frames are in use, one of the other half is wired.
    let wired = machine.vm.wire_page().unwrap();
    assert_eq!(promote(&mut machine, 512, How::Either), Err(Why::NoExtent));
    machine.vm.unwire_page(wired).unwrap();
    let child = machine.vm.fork(&mut machine.pmap, machine.space).unwrap();
    assert_eq!(promote(&mut machine, 512, How::Either), Err(Why::SharedByFork));
    machine.vm.exit(&mut machine.pmap, child).unwrap();
    machine.put(512, 512);
    assert!(promote(&mut machine, 512, How::Either).is_ok(), "the only one that is left has it again");
    machine.vm.protect(&mut machine.pmap, machine.space, Vpn(512).pages(512), Protection::READ).unwrap();
    assert!(machine.try_touch(512, Access::Write).is_err());
    assert!((512..1024).all(|page| machine.get(page) == page));
    machine.file(1 << 20, 512, true, 0);
    machine.write(1 << 20);
    assert_eq!(promote(&mut machine, 1 << 20, How::Either), Err(Why::FileFolios));
    assert!(Why::ALL.iter().enumerate().all(|(number, why)| *why as usize == number));
    let counted: Vec<(&str, u64)> =
        machine.vm.refusals().filter(|(_, count)| *count > 0).map(|(why, count)| (why.name(), count)).collect();
    let expected = ["too-small", "file-folios", "not-populated", "shared-by-fork", "no-extent"].map(|name| (name, 1));
    assert_eq!(counted, expected);
    machine.end();
}

#[test]
fn nothing_is_lost_where_the_rest_cannot_be_zeroed() {
    let mut machine = Machine::new(X86, 4096, "base");
    machine.anonymous(512, 512, Growth::Fixed);
    (512..600).for_each(|page| machine.put(page, page));
    machine.disk.fills = Some(100);
    assert_eq!(promote(&mut machine, 512, How::Either), Err(Why::Contents));
    machine.disk.fills = None;
    assert!((512..600).all(|page| machine.get(page) == page));
    assert_eq!(machine.vm.stats().mapped[..2], [88, 0]);
    machine.end();
}
