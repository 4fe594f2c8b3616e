//! Ranges: what one TLB entry serves, and that nothing of it is stale.

use superpage_mmu::{Machine, Mmu, Request, Trap};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

fn size(text: &str) -> PageSize {
    text.parse().unwrap()
}

fn enter(mmu: &mut Mmu, page: u64, frame: u64, of: &str) {
    let to = Mapped { frame: Pfn(frame), size: size(of), protection: Protection::READ_WRITE };
    mmu.enter(0, Vpn(page), to, Access::Write);
}

fn read(mmu: &mut Mmu, pages: impl IntoIterator<Item = u64>) -> u64 {
    let before = mmu.counters(0).tlb_misses();
    let requests: Vec<Request> = pages.into_iter().map(|page| Request::new(Vpn(page), Access::Read)).collect();
    assert_eq!(mmu.run(&requests), None);
    mmu.validate().unwrap();
    mmu.counters(0).tlb_misses() - before
}

fn on(name: &str) -> Mmu {
    Mmu::new(&Machine::builtin(name).unwrap())
}

#[test]
fn a_range_of_any_length_and_of_pages_of_several_sizes_is_one_entry() {
    for (name, misses) in [("zen5", 5096 + 3), ("zen5+range", 1)] {
        let mut mmu = on(name);
        // 5000 base pages, up to where superpages begin, three of these, and 96 base pages.
        (120..5120).for_each(|page| enter(&mut mmu, page, 1 << 20 | page, "4K"));
        (10..13).for_each(|two| enter(&mut mmu, two * 512, (1 << 20) + two * 512, "2M"));
        (6656..6752).for_each(|page| enter(&mut mmu, page, 1 << 20 | page, "4K"));
        assert_eq!(read(&mut mmu, 120..6752), misses, "{name}");
    }
}

#[test]
fn a_range_ends_where_frames_or_rights_do() {
    let mut mmu = on("zen5+range");
    (0..20).for_each(|page| enter(&mut mmu, page, page + u64::from(page >= 10), "4K"));
    mmu.protect(0, Vpn(14), size("4K"), Protection::READ);
    // Frames end a range before page 10, rights before page 14 and behind it: a page alone is none.
    assert_eq!(read(&mut mmu, 0..20), 4);
    assert_eq!(mmu.ranges_held(0), 3);
    let store = Request::new(Vpn(14), Access::Write);
    assert_eq!(mmu.run(&[store]), Some((0, Trap::Rights { held: Protection::READ })));
}

#[test]
fn nothing_of_a_range_is_stale() {
    let mut mmu = on("zen5+range");
    (0..200).for_each(|page| enter(&mut mmu, page, 7 + page, "4K"));
    assert_eq!(read(&mut mmu, 0..200), 1);
    mmu.remove(0, Vpn(150), size("4K"));
    assert_eq!(mmu.ranges_held(0), 0);
    let read_it = Request::new(Vpn(150), Access::Read);
    assert_eq!(mmu.run(&[read_it]), Some((0, Trap::Absent)));
    enter(&mut mmu, 150, 9000, "4K");
    assert_eq!(read(&mut mmu, [150]), 1);
    // The first level has 96 entries, the second those of the walks alone: two more ranges, and the
    // page alone.
    assert_eq!(read(&mut mmu, 0..200), 2);
    // Ranges that grow together are loaded as one, in place of those that are held.
    mmu.remove(0, Vpn(150), size("4K"));
    enter(&mut mmu, 150, 157, "4K");
    assert_eq!(mmu.ranges_held(0), 2);
    assert_eq!(read(&mut mmu, [150]), 1);
    assert_eq!(mmu.ranges_held(0), 1);
    // A dirty bit that is cleared drops the page, and with it its range.
    assert!(mmu.clear_modified(0, Vpn(3), size("4K")));
    assert_eq!(mmu.ranges_held(0), 0);
}

#[test]
fn the_least_recently_used_range_goes() {
    let mut mmu = on("zen5+range");
    // 33 ranges of 200 pages, so that each visit misses in the first level.
    let first = |range: u64| range << 20;
    for range in 0..33 {
        (0..200).for_each(|page| enter(&mut mmu, first(range) + page, first(range) + page, "4K"));
    }
    let visit = |mmu: &mut Mmu, range: u64| read(mmu, (0..100).map(|page| first(range) + page));
    assert_eq!((0..32).map(|range| visit(&mut mmu, range)).sum::<u64>(), 32);
    assert_eq!(visit(&mut mmu, 0), 0);
    assert_eq!(visit(&mut mmu, 32), 1);
    assert_eq!(mmu.ranges_held(0), 32);
    assert_eq!(visit(&mut mmu, 0), 0);
    // Its first page was walked for, and is in the second level.
    assert_eq!(read(&mut mmu, (1..100).map(|page| first(1) + page)), 1);
}
