//! Trident: three sizes at faults, and by a khugepaged with smart compaction. 4 MB stands for 1 GB.

use crate::machine::Machine;
use superpage_pages::{Hint, Level, Vpn};
use superpage_vm::Growth;

const SIZES: &str = "4K 2M 4M";

fn advance(machine: &mut Machine, seconds: u64) {
    machine.vm.advance(&mut machine.pmap, &mut machine.disk, seconds * 1_000_000_000, 0);
    machine.vm.validate(&machine.pmap).unwrap();
}

#[test]
fn a_fault_takes_the_largest_page_in_its_mapping_and_khugepaged_collapses_later() {
    for (parameters, at_once) in [("", Level(2)), (":fault=huge", Level(1))] {
        let mut machine = Machine::new(SIZES, 8192, &format!("trident{parameters}"));
        machine.anonymous(1024, 1024 + 512, Growth::Fixed);
        [1024, 2048].iter().for_each(|page| machine.put(*page, *page));
        assert_eq!([1024, 2048].map(|page| machine.level(page)), [Some(at_once), Some(Level(1))]);
        advance(&mut machine, 9);
        assert_eq!(machine.level(1024), Some(at_once));
        advance(&mut machine, 10);
        assert_eq!([1024, 2048].map(|page| machine.level(page)), [Some(Level(2)), Some(Level(1))], "{parameters}");
        assert_eq!([1024, 2048].map(|page| machine.get(page)), [1024, 2048]);
        machine.end();
    }
}

#[test]
fn smart_compaction_makes_room_for_the_largest_size() {
    for (parameters, level) in [("", Level(2)), (",retries=0", Level::BASE)] {
        let mut machine = Machine::new(SIZES, 4096, &format!("trident:fault=huge{parameters}"));
        let all = 4096 - 64;
        machine.anonymous(8192, all, Growth::Fixed);
        machine.vm.advise(&mut machine.pmap, machine.space, Vpn(8192).pages(all), Hint::Base).unwrap();
        (8192..8192 + all).for_each(|page| machine.put(page, page));
        (8192..8192 + all).filter(|page| page % 3 > 0).for_each(|page| machine.unmap(page, 1));
        machine.anonymous(1024, 1024, Growth::Fixed);
        machine.put(1024, 1);
        assert_eq!(machine.level(1024), Some(Level::BASE));
        advance(&mut machine, 10);
        assert_eq!(machine.level(1024), Some(level), "{parameters}");
        assert_eq!(machine.vm.stats().compactions > 0, level > Level::BASE);
        assert!((8192..8192 + all).filter(|page| page % 3 == 0).all(|page| machine.get(page) == page));
        machine.end();
    }
}
