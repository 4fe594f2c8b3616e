//! Huge pages of programs' text (`CONFIG_READ_ONLY_THP_FOR_FS`).

use crate::background::{X86, advance};
use crate::machine::Machine;
use superpage_pages::{Access, Level, Protection, Vpn};
use superpage_vm::{Error, FaultKind, How, Map, Promoted, Region, SpaceId, Why};

const POLICY: &str = "thp:text=on";
const TEXT: Protection = Protection::READ_EXECUTE;

/// Text of 1024 pages from page 512 of a file on, at address 1024, in a file that holds each page's
/// number.
fn machine(policy: &str) -> Machine {
    let mut machine = Machine::new(X86, 8192, policy);
    (0..4096).for_each(|page| assert!(machine.disk.stored.insert((Some(1), page), page).is_none()));
    map(&mut machine, 1024, TEXT);
    machine
}

fn map(machine: &mut Machine, start: u64, rights: Protection) {
    let map = Map::file(Vpn(start), 1024, 1, 4096, 512).protection(rights);
    machine.vm.map(&mut machine.pmap, machine.space, map).unwrap();
}

fn run(machine: &mut Machine, page: u64) -> Option<FaultKind> {
    let fault = machine.try_touch(page, Access::Execute).unwrap();
    let frame = machine.frame(page).unwrap();
    assert_eq!(machine.disk.memory[frame.0 as usize], page - 512, "the contents of page {page}");
    fault.map(|fault| fault.kind)
}

fn collapse(machine: &mut Machine, start: u64, how: How) -> Result<Promoted, Why> {
    let region = Region { space: machine.space, start: Vpn(start), level: Level(1) };
    let done = machine.vm.promote_region(&mut machine.pmap, &mut machine.disk, region, how);
    machine.vm.validate(&machine.pmap).unwrap();
    done
}

/// Another process, which maps the same text at this address.
fn other(machine: &mut Machine, start: u64) -> SpaceId {
    let first = core::mem::replace(&mut machine.space, machine.vm.create_space());
    map(machine, start, TEXT);
    core::mem::replace(&mut machine.space, first)
}

#[test]
fn all_programs_map_one_huge_page_at_their_next_access() {
    let mut machine = machine(POLICY);
    let second = other(&mut machine, 2048);
    (1024..1124).for_each(|page| assert_eq!(run(&mut machine, page), Some(FaultKind::File)));
    let first = core::mem::replace(&mut machine.space, second);
    for page in 2048..2100 {
        assert_eq!(machine.read(page).kind, FaultKind::Resident);
    }
    machine.space = first;
    assert_eq!(collapse(&mut machine, 1024, How::InPlace), Err(Why::Otherwise));
    let before = machine.vm.stats();
    assert_eq!(collapse(&mut machine, 1024, How::Either), Ok(Promoted { copied: 512, zeroed: 0 }));
    let stats = machine.vm.stats();
    assert_eq!(stats.page_ins - before.page_ins, 412, "what was missing was read");
    assert_eq!((stats.mapped[0], stats.mapped[1], stats.resident_pages), (0, 0, 512));
    assert_eq!((stats.promotions_by_copying, stats.bytes_copied - before.bytes_copied), (1, 512 * 4096));
    assert_eq!(run(&mut machine, 1300), Some(FaultKind::Resident));
    assert_eq!((machine.level(1024), run(&mut machine, 1535)), (Some(Level(1)), None));
    machine.space = second;
    assert_eq!((machine.read(2500).mapped, machine.get(2048)), (Level(1), 512));
    assert_eq!(collapse(&mut machine, 2048, How::Either), Err(Why::Superpage));
    machine.vm.exit(&mut machine.pmap, second).unwrap();
    machine.space = first;
    assert_eq!(run(&mut machine, 1024), None);
    machine.end();
}

/// What lies in an extent already needs no copy, but mappings of its pages.
#[test]
fn text_in_an_extent_is_mapped_again() {
    let mut machine = machine(POLICY);
    run(&mut machine, 1024);
    collapse(&mut machine, 1024, How::Either).unwrap();
    run(&mut machine, 1024);
    machine.protect(1030, 1, Protection::READ);
    machine.protect(1030, 1, TEXT);
    assert_eq!(machine.level(1024), Some(Level(0)), "other rights demoted it");
    assert_eq!(collapse(&mut machine, 1024, How::ByCopying), Err(Why::Otherwise));
    assert_eq!(collapse(&mut machine, 1024, How::InPlace), Ok(Promoted::default()));
    assert_eq!((run(&mut machine, 1031), machine.level(1024)), (Some(FaultKind::Resident), Some(Level(1))));
    assert_eq!(machine.vm.stats().promotions_by_copying, 1);
    machine.end();
}

#[test]
fn what_is_no_text_is_left_alone() {
    let mut machine = machine(POLICY);
    assert_eq!(collapse(&mut machine, 1024, How::Either), Err(Why::NotPopulated));
    for rights in [Protection::READ, TEXT | Protection::WRITE] {
        map(&mut machine, 1 << 20, rights);
        machine.read(1 << 20);
        assert_eq!(collapse(&mut machine, 1 << 20, How::Either), Err(Why::FileFolios), "{rights:?}");
    }
    // A debugger's copy of one page: private memory, with the file behind it.
    map(&mut machine, 1 << 20, TEXT | Protection::WRITE);
    machine.write((1 << 20) + 7);
    machine.protect(1 << 20, 1024, TEXT);
    assert_eq!(collapse(&mut machine, 1 << 20, How::Either), Err(Why::SharedByFork));
    // A page that the process wrote through a shared mapping, and that was not written out.
    let map = Map::file(Vpn(1 << 21), 1, 1, 4096, 600).shared(true);
    machine.vm.map(&mut machine.pmap, machine.space, map).unwrap();
    machine.write(1 << 21);
    run(&mut machine, 1025);
    assert_eq!(collapse(&mut machine, 1024, How::Either), Err(Why::Busy), "a page is dirty");
    machine.sync();
    assert!(collapse(&mut machine, 1024, How::Either).is_ok());
    let mut without = self::machine("thp");
    run(&mut without, 1025);
    assert_eq!(collapse(&mut without, 1024, How::Either), Err(Why::FileFolios));
    without.end();
    machine.end();
}

#[test]
fn nothing_is_lost_where_it_cannot_be_read() {
    let mut machine = machine(POLICY);
    run(&mut machine, 1100);
    let free = machine.vm.buddy().free_frames();
    machine.disk.fills = Some(10);
    assert_eq!(collapse(&mut machine, 1024, How::Either), Err(Why::Contents));
    assert_eq!(machine.vm.buddy().free_frames(), free - 10, "what was read stays");
    machine.disk.fills = None;
    machine.disk.slow = true;
    assert_eq!(collapse(&mut machine, 1024, How::Either), Err(Why::Busy));
    let frame = *machine.disk.reading.keys().next().unwrap();
    assert_eq!(machine.vm.unmap(&mut machine.pmap, machine.space, Vpn(1024).pages(4)), Ok(()));
    assert!(matches!(machine.vm.remove_file(1), Err(Error::Busy(_))));
    machine.read_done(frame, Ok(()));
    machine.disk.slow = false;
    assert_eq!(collapse(&mut machine, 1024, How::Either), Err(Why::TooSmall), "its first pages are gone");
    map(&mut machine, 1024, TEXT);
    assert_eq!(collapse(&mut machine, 1024, How::Either), Ok(Promoted { copied: 512, zeroed: 0 }));
    assert_eq!(run(&mut machine, 1024), Some(FaultKind::Resident));
    assert_eq!(machine.level(1100), Some(Level(1)));
    machine.end();
}

/// Of text, khugepaged asks neither how many share it nor whether it was accessed.
#[test]
fn khugepaged_collapses_text_if_it_is_told_to() {
    for (policy, collapsed) in [
        ("khugepaged:text=on", true),
        ("thp:khugepaged=on,text=on", true),
        ("khugepaged:text=on,max-none=411", false),
        ("khugepaged:text=on,max-none=412", true),
        ("khugepaged", false),
    ] {
        let mut machine = machine(policy);
        other(&mut machine, 2048);
        (1024..1124).for_each(|page| assert_eq!(run(&mut machine, page), Some(FaultKind::File)));
        machine.vm.started(None);
        advance(&mut machine, 10, 0);
        assert_eq!(machine.vm.stats().promotions_by_copying, u64::from(collapsed), "{policy}");
        run(&mut machine, 1200);
        assert_eq!(machine.level(1024) == Some(Level(1)), collapsed, "{policy}");
        machine.vm.validate(&machine.pmap).unwrap();
    }
}
