//! Superpages over scattered frames: what they reach, what they cost, and what the memory manager
//! sees of them.

use superpage_mmu::{Machine, Mmu, Remaps, Request};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

const BASE: &str = "8K";
const ALPHA: &str = "alpha-21264+shadow";

fn size(text: &str) -> PageSize {
    text.parse().unwrap()
}

fn on(name: &str) -> Mmu {
    Mmu::new(&Machine::builtin(name).unwrap())
}

/// Maps base pages in a row to frames that are nowhere in a row.
fn scatter(mmu: &mut Mmu, pages: std::ops::Range<u64>) {
    for page in pages {
        let to = Mapped { frame: Pfn(page * 40503 % (1 << 16)), size: size(BASE), protection: Protection::ALL };
        mmu.enter(0, Vpn(page), to, Access::Read);
    }
    settle(mmu);
}

/// What follows from changes is there at the next access.
fn settle(mmu: &mut Mmu) {
    assert_eq!(mmu.run_lines(&[], &[]), None);
}

/// Reads the first line of each page, so often.
fn read(mmu: &mut Mmu, pages: std::ops::Range<u64>, rounds: usize) {
    let requests: Vec<Request> = pages.map(|page| Request::new(Vpn(page), Access::Read)).collect();
    for _ in 0..rounds {
        assert_eq!(mmu.run_lines(&requests, &vec![0; requests.len()]), None);
    }
}

#[test]
fn a_superpage_over_scattered_frames_is_one_entry() {
    let (mut plain, mut shadow) = (on("alpha-21264"), on(ALPHA));
    for (mmu, misses) in [(&mut plain, 512 * 10), (&mut shadow, 1)] {
        scatter(mmu, 0..512);
        read(mmu, 0..512, 10);
        assert_eq!(mmu.counters(0).tlb_misses(), misses);
        let seen: Vec<_> = (0..512).map(|page| mmu.lookup(0, Vpn(page)).unwrap()).collect();
        assert!(
            seen.iter()
                .enumerate()
                .all(|(page, to)| to.size == size(BASE) && to.frame.0 == page as u64 * 40503 % (1 << 16))
        );
    }
    // 64 of 64 KB, 8 of 512 KB, and that of 4 MB; each page gets three shadow addresses, and loses
    // two of them. Each page-table entry is read and written for each.
    let counters = shadow.counters(0);
    assert_eq!((counters.pte_writes, counters.pte_traversals), (512 * 4, 512 * 3));
    let remaps = counters.remaps;
    let made = Remaps { promotions: 64 + 8 + 1, table_writes: 512 * 5, flushed_pages: 512 * 3, ..remaps };
    assert_eq!((remaps, remaps.demotions, remaps.flushed_lines), (made, 0, 0));
    // All lines miss in the first round. 512 pages are more than the controller's TLB has entries.
    assert_eq!((remaps.hits, remaps.misses), ([0; 2], [512, 0]));
}

#[test]
fn each_base_page_has_use_bits_of_its_own() {
    let mut mmu = on(ALPHA);
    scatter(&mut mmu, 0..8);
    let used =
        |mmu: &Mmu, page| (mmu.used(0, Vpn(page), size(BASE)).referenced, mmu.used(0, Vpn(page), size(BASE)).modified);
    for page in 0..8 {
        assert!(mmu.clear_referenced(0, Vpn(page), size(BASE)) && !mmu.clear_modified(0, Vpn(page), size(BASE)));
    }
    assert_eq!(
        mmu.run_lines(&[Request::new(Vpn(3), Access::Write), Request::new(Vpn(5), Access::Read)], &[0, 0]),
        None
    );
    for page in 0..8 {
        assert_eq!(used(&mmu, page), (page == 3 || page == 5, page == 3));
    }
    // When it splits, they are in the page table.
    mmu.remove(0, Vpn(0), size(BASE));
    assert_eq!(mmu.counters(0).remaps.demotions, 1);
    assert_eq!([1, 3, 5].map(|page| used(&mmu, page)), [(false, false), (true, true), (true, false)]);
}

#[test]
fn what_surrounds_a_page_that_changes_stays_as_large_as_can_be() {
    let mut mmu = on(ALPHA);
    scatter(&mut mmu, 0..512);
    let before = mmu.counters(0);
    mmu.remove(0, Vpn(100), size(BASE));
    // 7 superpages of 512 KB, 7 of 64 KB, and 7 base pages.
    let after = mmu.counters(0);
    assert_eq!((after.remaps.promotions, after.remaps.demotions), (before.remaps.promotions, 1));
    assert_eq!(after.pte_writes - before.pte_writes, 512 + 1, "all entries, and that of the page that goes");
    read(&mut mmu, 0..100, 1);
    read(&mut mmu, 101..512, 1);
    assert_eq!(mmu.counters(0).tlb_misses(), 7 + 7 + 7);
}

#[test]
fn a_frame_that_is_mapped_twice_is_in_no_shadow_superpage() {
    let mut mmu = on(ALPHA);
    scatter(&mut mmu, 0..8);
    let (to, before) = (mmu.lookup(0, Vpn(4)).unwrap(), mmu.counters(0).pte_writes);
    mmu.enter(1, Vpn(4), to, Access::Read);
    let after = mmu.counters(0);
    // The entries of the eight pages that it was, and that of the new one.
    assert_eq!((after.remaps.demotions, after.pte_writes - before), (1, 8 + 1));
    mmu.remove(1, Vpn(4), size(BASE));
    // It is made again when one of its own pages changes.
    mmu.protect(0, Vpn(0), size(BASE), Protection::ALL);
    settle(&mut mmu);
    assert_eq!(mmu.counters(0).remaps.promotions, 2);
}

#[test]
fn a_superpage_that_splits_has_a_table_again() {
    let mut mmu = on("zen5+shadow");
    for page in 0..512 {
        let to = Mapped { frame: Pfn(page * 40503 % (1 << 16)), size: size("4K"), protection: Protection::ALL };
        mmu.enter(0, Vpn(page), to, Access::Read);
    }
    settle(&mut mmu);
    let work = |mmu: &Mmu| (mmu.counters(0).pte_writes, mmu.counters(0).pte_traversals);
    assert_eq!(work(&mmu), (512 + 1, 512));
    mmu.remove(0, Vpn(5), size("4K"));
    // The table's 512 entries, the pointer to it, and the page that goes.
    assert_eq!(work(&mmu), (513 + 512 + 1 + 1, 512));
    mmu.validate().unwrap();
}

/// Of a space that ends, each superpage is split whole: base pages are all that is left.
#[test]
fn the_superpages_of_a_space_that_ends_are_split() {
    let mut mmu = on(ALPHA);
    scatter(&mut mmu, 0..16);
    let before = mmu.counters(0);
    mmu.uncover_all(1);
    assert_eq!(mmu.counters(0), before, "another space");
    mmu.uncover_all(0);
    let after = mmu.counters(0);
    assert_eq!((after.remaps.demotions, after.pte_writes - before.pte_writes), (2, 16));
    mmu.validate().unwrap();
}

/// Whoever removes no mapping first leaves its superpages to the end of the space.
#[test]
fn a_space_that_ends_with_a_superpage_takes_its_lines_from_the_caches() {
    let mut mmu = on(ALPHA);
    scatter(&mut mmu, 0..8);
    read(&mut mmu, 0..8, 1);
    let flushed = |mmu: &Mmu| mmu.counters(0).remaps.flushed_lines;
    assert_eq!(flushed(&mmu), 0);
    mmu.destroy(0);
    assert!(flushed(&mmu) >= 8, "{}", flushed(&mmu));
    mmu.validate().unwrap();
}

/// What is undone before the next access never was: a promotion by the kernel, or rights that are
/// taken and given page by page.
#[test]
fn only_what_lasts_until_an_access_is_made() {
    let mut mmu = on(ALPHA);
    for page in 0..8 {
        let to = Mapped { frame: Pfn(page), size: size(BASE), protection: Protection::ALL };
        mmu.enter(0, Vpn(page), to, Access::Read);
    }
    mmu.promote(0, Vpn(0), size(BASE), size("64K"));
    settle(&mut mmu);
    assert_eq!(mmu.counters(0).remaps, Remaps::default());
    let mut mmu = on(ALPHA);
    scatter(&mut mmu, 0..64);
    let before = mmu.counters(0).remaps;
    for page in 0..64 {
        mmu.protect(0, Vpn(page), size(BASE), Protection::READ);
    }
    settle(&mut mmu);
    // Its 8 of 64 KB, all but the first of which were there for a time, and that of 512 KB.
    let after = mmu.counters(0).remaps;
    assert_eq!((before.promotions, after.promotions, after.demotions), (9, 9 + 9, 1 + 7));
}

#[test]
fn without_a_full_block_all_counts_are_those_of_the_plain_machine() {
    let (mut plain, mut shadow) = (on("zen5"), on("zen5+shadow"));
    for mmu in [&mut plain, &mut shadow] {
        for page in (0..4000).filter(|page| page % 512 != 77) {
            let to = Mapped { frame: Pfn(page * 40503 % (1 << 16)), size: size("4K"), protection: Protection::ALL };
            mmu.enter(0, Vpn(page), to, Access::Read);
        }
        let requests: Vec<Request> =
            (0..4000).filter(|page| page % 512 != 77).map(|page| Request::new(Vpn(page), Access::Write)).collect();
        for line in 0..4 {
            assert_eq!(mmu.run_lines(&requests, &vec![line * 9; requests.len()]), None);
        }
        mmu.remove(0, Vpn(5), size("4K"));
    }
    assert_eq!(plain.counters(0), shadow.counters(0));
    assert_eq!(plain.peak_page_table_bytes(), shadow.peak_page_table_bytes());
}

#[test]
fn machines_that_cannot_have_a_controller_say_so() {
    for (name, why) in [
        ("zen5+nested+shadow", "without [host]"),
        ("zen5+perforated+shadow", "[perforated]"),
        ("zen5+clustered+shadow", "[clustered]"),
        ("zen5+range+shadow", "[range-tlb]"),
    ] {
        let error = Machine::builtin(name).unwrap_err().to_string();
        assert!(error.contains("shadow") && error.contains(why), "{error}");
    }
    for (set, why) in [
        ("size=33G", "size is at most 32 GB"),
        ("entries=0", "shadow"),
        ("ways=0", "shadow"),
        ("entries=127", "127 entries are not a whole number of sets of 2 ways"),
        ("entries=130,shadow.ways=65", "at most 64 ways, not 65"),
    ] {
        let error = Machine::builtin(&format!("zen5+shadow:shadow.{set}")).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    Machine::builtin("zen5+shadow:shadow.entries=128,shadow.ways=64").unwrap();
    let shadow = Machine::builtin("zen5+shadow").unwrap();
    assert_eq!(Mmu::refuses_lines(&shadow, 64 << 30), None);
    let why = Mmu::refuses_lines(&shadow, 65 << 30).unwrap();
    assert!(why.contains("at most 64 GB of memory"), "{why}");
    // It shares no mappings with a machine without one.
    let plain = Machine::builtin("zen5").unwrap();
    assert!(!shadow.shares_mappings(&plain) && shadow.shares_mappings(&shadow));
}
