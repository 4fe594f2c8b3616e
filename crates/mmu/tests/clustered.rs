//! Clustered page tables: what walks read, what nodes take, and what changes of them cost, counted
//! by hand.

use superpage_mmu::{Machine, Mmu, Request};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

/// 4096 buckets of 8 bytes.
const BUCKETS: u64 = 4096 * 8;

fn size(text: &str) -> PageSize {
    text.parse().unwrap()
}

fn enter(mmu: &mut Mmu, page: u64, frame: u64, of: &str) {
    let to = Mapped { frame: Pfn(frame), size: size(of), protection: Protection::READ_WRITE };
    mmu.enter(0, Vpn(page), to, Access::Read);
    mmu.validate().unwrap();
}

fn on(overlay: &str) -> Mmu {
    Mmu::new(&Machine::builtin(&format!("skylake-sp+contiguous+{overlay}")).unwrap())
}

/// The lines that one read of a page references, and how many of them were read before.
fn references(mmu: &mut Mmu, page: u64) -> (u64, u64) {
    let before = mmu.counters(0);
    assert_eq!(mmu.run(&[Request::new(Vpn(page), Access::Read)]), None);
    let after = mmu.counters(0);
    let of = |then: superpage_mmu::Counters| (then.walk_memory_references(), then.line_hits[0]);
    (of(after).0 - of(before).0, of(after).1 - of(before).1)
}

#[test]
fn a_walk_reads_the_bucket_the_tag_and_the_mapping() {
    let mut mmu = on("clustered");
    // Block 0 has the first node: the lines of words 0 to 17 of a page. Its tag and the first six
    // mappings are in one line.
    (0..16).for_each(|page| enter(&mut mmu, page, 7 * page, "4K"));
    assert_eq!(references(&mut mmu, 5), (2, 0));
    assert_eq!(references(&mut mmu, 4), (2, 2));
    assert_eq!(references(&mut mmu, 6), (3, 2), "the mapping is in the next line");
    assert_eq!(references(&mut mmu, 14), (3, 2), "and the last two in the one after");
    // A block in the same bucket: its node is the second in memory, words 18 to 35, and the first
    // of the chain.
    let other = (4096 << 12 | 4096) * 16;
    enter(&mut mmu, other, 1000, "4K");
    assert_eq!(references(&mut mmu, other), (2, 2), "the words 18 to 20 are where the mappings of page 14 and 15 are");
    // Past it, tag and next in one line, to the node of block 0: its tag, and the mapping in
    // another line.
    assert_eq!(references(&mut mmu, 15), (4, 4));
}

#[test]
fn nodes_take_what_they_have() {
    // Of one base page, of all of a block, of a superpage of a block, and of one of 32 blocks.
    for (overlay, bytes) in [
        ("clustered", [144, 144, 24, 768]),
        ("clustered-subblock", [24, 24, 24, 768]),
        ("hashed", [24, 16 * 24, 16 * 24, 512 * 24]),
    ] {
        let mut mmu = on(overlay);
        let mut sizes = vec![mmu.peak_page_table_bytes() - BUCKETS];
        enter(&mut mmu, 512, 512, "4K");
        sizes.push(mmu.peak_page_table_bytes() - BUCKETS);
        (513..528).for_each(|page| enter(&mut mmu, page, page, "4K"));
        sizes.push(mmu.peak_page_table_bytes() - BUCKETS);
        mmu.promote(0, Vpn(512), size("4K"), size("64K"));
        mmu.restart_page_table_peak();
        sizes.push(mmu.peak_page_table_bytes() - BUCKETS);
        mmu.remove(0, Vpn(512), size("64K"));
        mmu.restart_page_table_peak();
        assert_eq!(mmu.peak_page_table_bytes(), BUCKETS, "{overlay}");
        enter(&mut mmu, 512, 512, "2M");
        sizes.push(mmu.peak_page_table_bytes() - BUCKETS);
        assert_eq!(sizes[0], 0);
        assert_eq!(sizes[1..], bytes, "{overlay}");
    }
}

#[test]
fn partial_subblocks_are_pages_at_their_places_with_the_same_rights() {
    let mut mmu = on("clustered-subblock");
    let bytes = |mmu: &mut Mmu| {
        mmu.validate().unwrap();
        mmu.restart_page_table_peak();
        mmu.peak_page_table_bytes() - BUCKETS
    };
    enter(&mut mmu, 3, 35, "4K");
    enter(&mut mmu, 9, 41, "4K");
    assert_eq!(bytes(&mut mmu), 24);
    enter(&mut mmu, 10, 43, "4K");
    assert_eq!(bytes(&mut mmu), 144, "a page is elsewhere");
    mmu.remove(0, Vpn(10), size("4K"));
    assert_eq!(bytes(&mut mmu), 24);
    mmu.protect(0, Vpn(9), size("4K"), Protection::READ);
    assert_eq!(bytes(&mut mmu), 144, "a page has other rights");
    mmu.protect(0, Vpn(3), size("4K"), Protection::READ);
    assert_eq!(bytes(&mut mmu), 24);
}

#[test]
fn a_mapping_is_written_once_a_block() {
    let mut mmu = on("clustered");
    let work = |mmu: &mut Mmu, change: &dyn Fn(&mut Mmu)| {
        let before = mmu.counters(0);
        change(mmu);
        mmu.validate().unwrap();
        (mmu.counters(0).pte_writes - before.pte_writes, mmu.counters(0).pte_traversals - before.pte_traversals)
    };
    assert_eq!(work(&mut mmu, &|mmu| (0..512).for_each(|page| enter(mmu, page, page, "4K"))), (512, 0));
    assert_eq!(work(&mut mmu, &|mmu| mmu.promote(0, Vpn(0), size("4K"), size("64K"))), (1, 16));
    assert_eq!(work(&mut mmu, &|mmu| mmu.demote(0, Vpn(0), size("64K"), size("4K"))), (16, 16));
    assert_eq!(work(&mut mmu, &|mmu| mmu.promote(0, Vpn(0), size("4K"), size("2M"))), (32, 512));
    assert_eq!(work(&mut mmu, &|mmu| mmu.protect(0, Vpn(0), size("2M"), Protection::READ)), (32, 0));
    assert_eq!(work(&mut mmu, &|mmu| assert!(mmu.clear_referenced(0, Vpn(0), size("2M")))), (32, 0));
    assert_eq!(work(&mut mmu, &|mmu| _ = mmu.remove(0, Vpn(0), size("2M"))), (32, 0));
}

#[test]
fn a_machine_that_cannot_have_one_says_why() {
    let said = |text: &str| {
        let overlay = format!("name = \"mine\"\ndescription = \"mine\"\n{text}");
        let machine = Machine::named("zen5+mine.toml", |_| Ok(overlay.clone()));
        machine.unwrap_err().to_string()
    };
    let table = "[page-table]\nkind = \"clustered\"\n";
    let of =
        |pages: u64, buckets: u64| format!("[clustered]\npages = {pages}\nbuckets = {buckets}\nsource = \"mine\"\n");
    assert!(said(table).contains("goes with a table [clustered]"));
    assert!(said(&of(16, 16)).contains("goes with a table [clustered]"));
    assert!(said(&format!("{table}{}", of(16, 16))).contains("walk-cache = []"));
    assert!(said(&format!("walk-cache = []\n{table}{}", of(12, 16))).contains("expected a power of two"));
    assert!(said(&format!("walk-cache = []\n{table}{}", of(16, 100))).contains("clustered.buckets"));
    assert!(said(&format!("walk-cache = []\n{table}{}", of(128, 16))).contains("from 1 to 64"));
}
