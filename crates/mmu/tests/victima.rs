//! Blocks of translations in the second line cache: what a miss of all TLBs reads there, and what
//! drops a block, counted by hand.

use superpage_mmu::{Machine, Mmu, Request};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

fn size(text: &str) -> PageSize {
    text.parse().unwrap()
}

/// Zen 5 with one entry in each TLB, so that a page asked for after another misses, and without
/// walk caches: a walk to a base page has five references.
fn machine(number_bits: u32) -> Machine {
    let mut machine = Machine::builtin("zen5+victima").unwrap();
    for tlb in &mut machine.tlb {
        (tlb.entries, tlb.ways) = (1, superpage_mmu::Ways::Full);
    }
    machine.walk_cache.clear();
    machine.spaces.number_bits = number_bits;
    machine
}

fn enter(mmu: &mut Mmu, page: u64, of: &str) {
    let to = Mapped { frame: Pfn(page), size: size(of), protection: Protection::READ_WRITE };
    mmu.enter(0, Vpn(page), to, Access::Write);
}

/// The references of a miss that reads this page, and how many of them the second line cache
/// serves.
fn references(mmu: &mut Mmu, page: u64) -> (u64, u64) {
    let before = mmu.counters(0);
    assert_eq!(mmu.run(&[Request::new(Vpn(page), Access::Read)]), None);
    mmu.validate().unwrap();
    let after = mmu.counters(0);
    assert_eq!(after.tlb_misses(), before.tlb_misses() + 1, "the page is in a TLB");
    let of = |then: superpage_mmu::Counters| (then.walk_memory_references(), then.line_hits[1]);
    (of(after).0 - of(before).0, of(after).1 - of(before).1)
}

/// Pages 0 to 23 but for page 5, and two of 2 MB; all were asked for that have an entry in the
/// lines of page 0 and of the large ones.
fn warm(number_bits: u32) -> Mmu {
    let mut mmu = Mmu::new(&machine(number_bits));
    (0..24).filter(|page| *page != 5).for_each(|page| enter(&mut mmu, page, "4K"));
    [512, 1024].iter().for_each(|page| enter(&mut mmu, *page, "2M"));
    assert_eq!(references(&mut mmu, 0), (5, 0));
    assert_eq!(references(&mut mmu, 512), (4, 0));
    // The TLBs have none of these pages then.
    enter(&mut mmu, 1 << 20, "4K");
    assert_eq!(references(&mut mmu, 1 << 20), (5, 0));
    mmu
}

#[test]
fn a_block_serves_eight_neighbours_by_one_reference() {
    let mut mmu = warm(12);
    for page in [7, 1, 4, 1030, 600, 0, 2] {
        assert_eq!(references(&mut mmu, page), (1, 1), "{page}");
    }
    // The next line of the table, by a walk.
    assert_eq!(references(&mut mmu, 8).0, 5);
    assert_eq!(references(&mut mmu, 15), (1, 1));
}

#[test]
fn a_page_that_was_mapped_later_is_walked_for_once() {
    let mut mmu = warm(12);
    enter(&mut mmu, 5, "4K");
    assert_eq!(references(&mut mmu, 6), (1, 1), "the block stays: nothing that it has was changed");
    assert_eq!(references(&mut mmu, 5).0, 5);
    assert_eq!(references(&mut mmu, 4), (1, 1));
    assert_eq!(references(&mut mmu, 5), (1, 1));
}

#[test]
fn a_block_goes_whole_with_any_of_its_mappings() {
    let (base, large) = (size("4K"), size("2M"));
    type Change = (&'static str, fn(&mut Mmu, PageSize, PageSize), u64, u64);
    let changes: [Change; 5] = [
        ("remove", |mmu, base, _| _ = mmu.remove(0, Vpn(3), base), 0, 5),
        ("protect", |mmu, base, _| mmu.protect(0, Vpn(3), base, Protection::READ), 0, 5),
        ("clear", |mmu, base, _| assert!(mmu.clear_modified(0, Vpn(3), base)), 0, 5),
        ("demote", |mmu, base, large| mmu.demote(0, Vpn(512), large, base), 1030, 4),
        ("demote the other", |mmu, base, large| mmu.demote(0, Vpn(1024), large, base), 600, 4),
    ];
    for (what, change, page, walk) in changes {
        let mut mmu = warm(12);
        change(&mut mmu, base, large);
        mmu.validate().unwrap();
        assert_eq!(references(&mut mmu, page).0, walk, "{what}");
        assert_eq!(references(&mut mmu, if page == 0 { 600 } else { 1 }), (1, 1), "{what}: others stay");
    }
    let mut mmu = warm(12);
    (1024..1536).for_each(|page| enter(&mut mmu, 1024 + page, "4K"));
    assert_eq!(references(&mut mmu, 2048).0, 5);
    mmu.promote(0, Vpn(2048), base, large);
    mmu.validate().unwrap();
    // The new superpage is not in the block, whose others are.
    assert_eq!(references(&mut mmu, 600), (1, 1));
    assert_eq!(references(&mut mmu, 2048).0, 4);
}

/// A switch drops blocks where spaces have no numbers, and else keeps them: those of the other
/// space are others.
#[test]
fn a_switch_without_numbers_drops_all_blocks() {
    for (bits, walk) in [(0, 5), (12, 1)] {
        let mut mmu = warm(bits);
        mmu.switch(1);
        let to = Mapped { frame: Pfn(0), size: size("4K"), protection: Protection::ALL };
        mmu.enter(1, Vpn(0), to, Access::Read);
        assert_eq!(references(&mut mmu, 0).0, 5, "{bits} bits");
        mmu.switch(0);
        assert_eq!(references(&mut mmu, 0).0, walk, "{bits} bits");
    }
}

#[test]
fn machines_that_cannot_keep_blocks_are_refused_in_a_sentence() {
    let refused = |name: &str| Machine::builtin(name).unwrap_err().to_string();
    let says = |name: &str, what: &str| assert!(refused(name).contains(what), "{name}: {}", refused(name));
    says("alpha-21264+victima", "this overlay is for machines with radix tables");
    says("zen5+fractured+victima", "\"victima\" is for machines without [host] and [shadow]");
    says("zen5+shadow+victima", "\"victima\" is for machines without [host] and [shadow]");
    let text = include_str!("../machines/zen5.toml").replace("kind = \"radix\"", "kind = \"victima\"");
    let parse = |text: &str| Machine::parse(text, "test.toml").map(drop).map_err(|error| error.to_string());
    assert_eq!(parse(&text), Ok(()));
    let ways = text.replace("size = \"1M\"\nways = 16", "size = \"1M\"\nways = 128");
    assert!(parse(&ways).unwrap_err().contains("has at most 64 ways"), "{ways}");
    let lines = text.replace("line-bytes = 64", "line-bytes = 1024");
    assert!(parse(&lines).unwrap_err().contains("a line holds 1 to 64 entries"), "{lines}");
    let first = text.find("[[line-cache]]\nname = \"L2\"").expect("zen5 has a second level");
    let end = text.find("[instruction-cache]").expect("and an instruction cache");
    let one = format!("{}{}", &text[..first], &text[end..]);
    assert!(parse(&one).unwrap_err().contains("in the second [[line-cache]], and there is none"), "{one}");
}
