//! Perforated pages: how long walks are, what TLBs hold, and that nothing of them is stale.

use superpage_mmu::{Contents, Machine, Mmu, Request, Trap};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

/// One level of every cache that matters, so that each walk is seen: no walk caches.
fn machine() -> Machine {
    let mut machine = Machine::builtin("skylake-sp+perforated").unwrap();
    machine.walk_cache.clear();
    machine
}

fn enter(mmu: &mut Mmu, page: u64, frame: u64) {
    let size: PageSize = "4K".parse().unwrap();
    mmu.enter(0, Vpn(page), Mapped { frame: Pfn(frame), size, protection: Protection::READ_WRITE }, Access::Read);
}

fn read(mmu: &mut Mmu, pages: impl IntoIterator<Item = u64>) {
    let requests: Vec<Request> = pages.into_iter().map(|page| Request::new(Vpn(page), Access::Read)).collect();
    assert_eq!(mmu.run(&requests), None);
    mmu.validate().unwrap();
}

/// References of one read of a page.
fn references(mmu: &mut Mmu, page: u64) -> u64 {
    let before = mmu.counters(0).walk_memory_references();
    read(mmu, [page]);
    mmu.counters(0).walk_memory_references() - before
}

fn held(mmu: &Mmu, contents: Contents) -> u64 {
    mmu.held(0).iter().filter(|held| held.contents == contents).map(|held| held.entries).sum()
}

/// A region whose pages with numbers that are a multiple of four within its first half are
/// elsewhere: 64 holes.
fn holey() -> Mmu {
    holey_on(&machine())
}

fn holey_on(machine: &Machine) -> Mmu {
    let mut mmu = Mmu::new(machine);
    for page in 0..512 {
        let hole = page < 256 && page % 4 == 0;
        enter(&mut mmu, page, if hole { 10_000 + page } else { 512 + page });
    }
    mmu.validate().unwrap();
    mmu
}

#[test]
fn a_walk_is_as_long_as_the_paper_says() {
    // A base page takes four references, a superpage three.
    let mut plain = Mmu::new(&machine());
    enter(&mut plain, 0, 0);
    assert_eq!(references(&mut plain, 0), 4);
    // The filter says that there is no hole near: as a superpage.
    assert_eq!(references(&mut holey(), 300), 3);
    // There may be one: the bitmap is read.
    assert_eq!(references(&mut holey(), 1), 4);
    // A hole: bitmap, shadow entry and its own entry besides the three.
    assert_eq!(references(&mut holey(), 4), 6);
}

#[test]
fn what_a_tlb_knows_is_not_read_again() {
    let mut mmu = holey();
    assert_eq!(references(&mut mmu, 300), 3);
    assert_eq!((held(&mmu, Contents::Perforated), held(&mmu, Contents::Bitmap)), (1, 0));
    assert_eq!(references(&mut mmu, 301), 0, "the perforated page's entry has it");
    assert_eq!(references(&mut mmu, 1), 1, "only the bitmap");
    assert_eq!(held(&mmu, Contents::Bitmap), 1);
    assert_eq!(references(&mut mmu, 31), 0, "the same fragment");
    assert_eq!(references(&mut mmu, 33), 1, "the next fragment");
    assert_eq!(references(&mut mmu, 4), 2, "shadow entry and own entry");
    assert_eq!(references(&mut mmu, 36), 2);
    assert_eq!(references(&mut mmu, 252), 3, "the bitmap too");
    // At most 16 fragments for a page, here the eight of the half that has holes.
    read(&mut mmu, 0..512);
    assert_eq!((held(&mmu, Contents::Perforated), held(&mmu, Contents::Bitmap)), (1, 8));
    // All is held now: the second level has the perforated page, its fragments, and the holes.
    let before = mmu.counters(0).tlb_misses();
    read(&mut mmu, (0..512).rev());
    assert_eq!(mmu.counters(0).tlb_misses(), before);
}

#[test]
fn shadow_entries_are_in_walk_caches() {
    let mut mmu = Mmu::new(&Machine::builtin("skylake-sp+perforated").unwrap());
    (0..512).for_each(|page| enter(&mut mmu, page, if page % 8 == 0 { 10_000 + page } else { 512 + page }));
    assert_eq!(references(&mut mmu, 0), 6);
    assert_eq!(references(&mut mmu, 1), 1, "of the upper entries the walk caches hold those above the perforated one");
    assert_eq!(references(&mut mmu, 8), 1, "the hole's own: its fragment and the shadow entry are held");
}

#[test]
fn holes_may_be_absent_or_have_other_rights() {
    let mut mmu = Mmu::new(&machine());
    (0..512).filter(|page| page % 4 != 0).for_each(|page| enter(&mut mmu, page, 512 + page));
    assert_eq!(references(&mut mmu, 1), 4);
    assert_eq!(held(&mmu, Contents::Perforated), 1);
    // A fault's walk to a hole is as short as another's: the shadow entry and the absent one.
    let before = mmu.counters(0).walk_memory_references();
    assert_eq!(mmu.run(&[Request::new(Vpn(4), Access::Read)]), Some((0, Trap::Absent)));
    assert_eq!(mmu.counters(0).walk_memory_references() - before, 2);
    // It is filled: no hole any more, once what was known of the bitmap is dropped.
    enter(&mut mmu, 4, 516);
    mmu.validate().unwrap();
    assert_eq!((held(&mmu, Contents::Perforated), held(&mmu, Contents::Bitmap)), (1, 0));
    assert_eq!(references(&mut mmu, 5), 1);
    assert_eq!(mmu.run(&[Request::new(Vpn(4), Access::Read)]), None);
    // Other rights make a hole.
    let size: PageSize = "4K".parse().unwrap();
    mmu.protect(0, Vpn(5), size, Protection::READ);
    mmu.validate().unwrap();
    assert_eq!(mmu.run(&[Request::new(Vpn(6), Access::Write)]), None);
    let trap = Trap::Rights { held: Protection::READ };
    assert_eq!(mmu.run(&[Request::new(Vpn(5), Access::Write)]), Some((0, trap)));
    mmu.validate().unwrap();
}

#[test]
fn a_hole_that_is_filled_is_no_shootdown() {
    let (mut mmu, size) = (Mmu::new(&machine()), "4K".parse::<PageSize>().unwrap());
    let shot = |mmu: &Mmu| (mmu.counters(0).shootdowns, mmu.counters(0).shootdown_entries);
    (0..512).filter(|page| page % 4 != 0).for_each(|page| enter(&mut mmu, page, 512 + page));
    read(&mut mmu, [1]);
    for page in (0..512).step_by(4) {
        // The fragment that has its bit is held when it is filled.
        read(&mut mmu, [page + 1]);
        assert_eq!(mmu.run(&[Request::new(Vpn(page), Access::Read)]), Some((0, Trap::Absent)));
        enter(&mut mmu, page, 512 + page);
        read(&mut mmu, [page]);
    }
    assert_eq!(shot(&mmu), (0, 0));
    // A page that becomes a hole is one, also where it only moves.
    mmu.remove(0, Vpn(8), size);
    let before = shot(&mmu);
    assert_eq!(before.0, 1);
    enter(&mut mmu, 8, 10_000);
    read(&mut mmu, [8]);
    assert_eq!(shot(&mmu), before);
}

#[test]
fn another_extent_of_a_region_is_a_shootdown() {
    let mut machine = machine();
    machine.perforated.as_mut().unwrap().most_holes_percent = 60;
    let mut mmu = Mmu::new(&machine);
    (0..206).for_each(|page| enter(&mut mmu, page, 512 + page));
    (300..506).for_each(|page| enter(&mut mmu, page, 1024 + page));
    read(&mut mmu, [0, 300]);
    assert_eq!((held(&mmu, Contents::Perforated), mmu.counters(0).shootdowns), (1, 0));
    // Most pages are in the other extent now: who holds the old one's entry must not read the new
    // one's bitmap.
    let [writes, traversals] = work(&mmu);
    enter(&mut mmu, 506, 1024 + 506);
    assert_eq!(work(&mmu), [writes + 1 + 10, traversals + 512]);
    mmu.validate().unwrap();
    assert_eq!((held(&mmu, Contents::Perforated), mmu.counters(0).shootdowns), (0, 1));
}

/// Page-table entries that were written, and those that were read to make a region.
fn work(mmu: &Mmu) -> [u64; 2] {
    let counters = mmu.counters(0);
    [counters.pte_writes, counters.pte_traversals]
}

/// A region is the entry above, its shadow and eight words of the bitmap; a change of its holes is
/// a word of the bitmap, and its end the entry above. Each comes with the page's own entry.
#[test]
fn a_region_is_written_when_it_begins_changes_or_ends() {
    let (mut mmu, size) = (Mmu::new(&machine()), "4K".parse::<PageSize>().unwrap());
    (0..255).for_each(|page| enter(&mut mmu, page, 512 + page));
    assert_eq!(work(&mmu), [255, 0]);
    enter(&mut mmu, 255, 512 + 255);
    assert_eq!(work(&mmu), [255 + 1 + 10, 512], "half of it: all entries are read once");
    enter(&mut mmu, 256, 512 + 256);
    assert_eq!(work(&mmu), [266 + 2, 512]);
    enter(&mut mmu, 300, 10_000);
    assert_eq!(work(&mmu), [268 + 1, 512], "the hole is one still");
    mmu.remove(0, Vpn(0), size);
    assert_eq!(work(&mmu), [269 + 2, 512]);
    mmu.remove(0, Vpn(1), size);
    assert_eq!(work(&mmu), [271 + 2, 512]);
    mmu.validate().unwrap();
}

#[test]
fn regions_that_begin_at_once_cost_as_much_as_one_by_one() {
    let demoted = |name: &str| {
        let mut mmu = Mmu::new(&Machine::builtin(name).unwrap());
        let [base, huge] = ["4K", "1G"].map(|size| size.parse::<PageSize>().unwrap());
        let to = Mapped { frame: Pfn(0), size: huge, protection: Protection::READ_WRITE };
        mmu.enter(0, Vpn(0), to, Access::Read);
        let before = work(&mmu);
        mmu.demote(0, Vpn(0), huge, base);
        [0, 1].map(|of| work(&mmu)[of] - before[of])
    };
    let (plain, perforated) = (demoted("skylake-sp"), demoted("skylake-sp+perforated"));
    assert_eq!([0, 1].map(|of| perforated[of] - plain[of]), [512 * 10, 512 * 512]);
}

#[test]
fn an_extent_is_found_whatever_comes_before_and_after() {
    let mut mmu = Mmu::new(&machine());
    for page in 0..512 {
        // The others each in an extent of its own.
        let together = (5..507).contains(&page);
        enter(&mut mmu, page, if together { 512 + page } else { 512 * (page + 2) + page });
    }
    mmu.validate().unwrap();
    read(&mut mmu, 0..512);
    assert_eq!(held(&mmu, Contents::Perforated), 1);
}

#[test]
fn of_two_extents_with_as_many_pages_the_first_is_the_region() {
    let mut machine = machine();
    machine.perforated.as_mut().unwrap().most_holes_percent = 60;
    let mut mmu = Mmu::new(&machine);
    (300..506).for_each(|page| enter(&mut mmu, page, 1024 + page));
    (0..205).for_each(|page| enter(&mut mmu, page, 512 + page));
    read(&mut mmu, [300]);
    assert_eq!((held(&mmu, Contents::Perforated), mmu.counters(0).shootdowns), (1, 0));
    enter(&mut mmu, 205, 512 + 205);
    mmu.validate().unwrap();
    assert_eq!((held(&mmu, Contents::Perforated), mmu.counters(0).shootdowns), (0, 1));
}

#[test]
fn a_region_with_too_many_holes_is_none() {
    let mut mmu = holey();
    read(&mut mmu, 0..512);
    let size: PageSize = "4K".parse().unwrap();
    // 64 holes are there; of 512 pages 256 may be.
    for page in 256..448 {
        mmu.remove(0, Vpn(page), size);
        mmu.validate().unwrap();
    }
    assert_eq!(held(&mmu, Contents::Perforated), 0, "who drops a page drops what translates it");
    read(&mut mmu, (0..256).chain(448..512));
    assert_eq!(held(&mmu, Contents::Perforated), 1);
    mmu.remove(0, Vpn(511), size);
    mmu.validate().unwrap();
    read(&mut mmu, (0..256).chain(448..511));
    assert_eq!((held(&mmu, Contents::Perforated), held(&mmu, Contents::Bitmap)), (0, 0));
}

#[test]
fn where_no_page_is_perforated_the_counts_are_those_of_the_plain_machine() {
    let run = |name: &str| {
        let mut mmu = Mmu::new(&Machine::builtin(name).unwrap());
        // Scattered frames; and superpages without holes.
        (0..4096).for_each(|page| enter(&mut mmu, page, 3 * page + 7));
        let huge: PageSize = "2M".parse().unwrap();
        for at in (8192..16384).step_by(512) {
            mmu.enter(0, Vpn(at), Mapped { frame: Pfn(at), size: huge, protection: Protection::ALL }, Access::Read);
        }
        let mut state = 1u64;
        let pages = (0..200_000).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let page = (state >> 33) % 12288;
            if page < 4096 { page } else { page + 4096 }
        });
        read(&mut mmu, pages);
        (mmu.counters(0), mmu.held(0))
    };
    for name in ["zen5", "skylake-sp", "neoverse-v2"] {
        assert_eq!(run(&format!("{name}+perforated")), run(name), "{name}");
    }
}

/// A guest with perforated pages on a host with pages of this size, and no caches in either
/// dimension.
fn guest(host: &str) -> Machine {
    let mut machine = Machine::builtin(&format!("skylake-sp+{host}+perforated")).unwrap();
    machine.walk_cache.clear();
    let of = machine.host.as_mut().unwrap();
    (of.nested_tlb, of.walk_cache) = (0, Vec::new());
    machine
}

#[test]
fn in_a_guest_each_reference_is_translated_by_the_host() {
    // Of the host's four levels a walk reads h: all, or three where its pages are of 2 MB.
    for (host, h) in [("nested", 4), ("nested-2m", 3)] {
        let mut plain = Mmu::new(&guest(host));
        enter(&mut plain, 0, 0);
        assert_eq!(references(&mut plain, 0), 4 * (h + 1) + h);
        // The guest's three levels and the page, as of a superpage; the bitmap; a hole's shadow and
        // own entries.
        let mut fresh = |page: u64| references(&mut holey_on(&guest(host)), page);
        assert_eq!([300, 1, 4].map(&mut fresh), [3, 4, 6].map(|reads| reads * (h + 1) + h));
    }
    assert_eq!(references(&mut holey_on(&guest("nested")), 4), 34);
}

#[test]
fn tlbs_of_a_guest_hold_perforated_pages_where_the_host_has_them_whole() {
    let mut mmu = holey_on(&guest("nested-2m"));
    assert_eq!([300, 301].map(|page| references(&mut mmu, page)), [15, 0]);
    assert_eq!(references(&mut mmu, 1), 4, "the bitmap alone: the entry has the page's frame of the host");
    assert_eq!(references(&mut mmu, 4), 4 + 4 + 3, "shadow entry, own entry, and the page");
    assert_eq!((held(&mmu, Contents::Perforated), held(&mmu, Contents::Bitmap)), (1, 1));
    let mut mmu = holey_on(&guest("nested"));
    assert_eq!([300, 301, 301].map(|page| references(&mut mmu, page)), [19, 19, 0]);
    assert_eq!((held(&mmu, Contents::Perforated), held(&mmu, Contents::Bitmap)), (0, 0));
}

#[test]
fn either_overlay_may_be_laid_first() {
    let of = |name: &str| {
        let mut machine = Machine::builtin(name).unwrap();
        (machine.name, machine.description) = (String::new(), String::new());
        machine
    };
    for host in ["nested", "nested-2m"] {
        assert_eq!(of(&format!("zen5+{host}+perforated")), of(&format!("zen5+perforated+{host}")));
    }
    let fractured = Machine::builtin("zen5+fractured+perforated").unwrap_err().to_string();
    assert!(fractured.contains("perforated: on a host whose tables walks do not go through"), "{fractured}");
}
