//! Entries that hold several base pages: what they save, what they never span, and that they are
//! forgotten.

use proptest::prelude::*;
use superpage_mmu::{Machine, Mmu, Request, Trap, Ways};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

const BASE: &str = "4K";
const OVERLAYS: [&str; 6] = ["coalescing", "coalescing-32k", "colt", "partial-subblock", "complete-subblock", "mosaic"];

fn machine(overlay: &str) -> Machine {
    Machine::builtin(&format!("zen5+{overlay}")).unwrap()
}

fn enter(mmu: &mut Mmu, page: u64, frame: u64, protection: Protection) {
    let size: PageSize = BASE.parse().unwrap();
    mmu.enter(0, Vpn(page), Mapped { frame: Pfn(frame), size, protection }, Access::Read);
}

fn read(mmu: &mut Mmu, pages: impl Iterator<Item = u64>) -> u64 {
    let before = mmu.misses(0);
    let requests: Vec<Request> = pages.map(|page| Request::new(Vpn(page), Access::Read)).collect();
    assert_eq!(mmu.run(&requests), None);
    mmu.validate().unwrap();
    mmu.misses(0) - before
}

/// Misses of one pass over 64 pages whose frames are in a row from this one on.
fn pass(overlay: &str, frame: u64) -> u64 {
    let mut mmu = Mmu::new(&machine(overlay));
    (0..64).for_each(|page| enter(&mut mmu, page, frame + page, Protection::READ_WRITE));
    read(&mut mmu, 0..64)
}

#[test]
fn an_entry_holds_what_its_kind_can() {
    let aligned = OVERLAYS.map(|overlay| pass(overlay, 0));
    assert_eq!(aligned, [16, 8, 8, 4, 4, 16]);
    // Two frames off: aligned groups are none, runs and complete subblocks need no alignment.
    let off = OVERLAYS.map(|overlay| pass(overlay, 2));
    assert_eq!(off, [64, 64, 8, 64, 4, 16]);
    // Off by half a subblock: groups of 4 and of 8 are aligned still.
    let half = OVERLAYS.map(|overlay| pass(overlay, 8));
    assert_eq!(half, [16, 8, 8, 64, 4, 16]);
}

#[test]
fn scattered_frames_are_joined_only_by_complete_subblocks() {
    for (overlay, misses) in OVERLAYS.into_iter().zip([64, 64, 64, 64, 4, 16]) {
        let mut mmu = Mmu::new(&machine(overlay));
        (0..64).for_each(|page| enter(&mut mmu, page, 1 + page * 3, Protection::READ_WRITE));
        assert_eq!(read(&mut mmu, 0..64), misses, "{overlay}");
    }
}

#[test]
fn a_page_alone_is_in_the_set_of_its_block() {
    // Of 2000 pages no two are in one block of 16: their numbers select 16 of 256 sets of the
    // second level, those of their blocks all.
    let second = |overlay: &str, full: bool| {
        let mut machine = machine(overlay);
        if full {
            machine.tlb.iter_mut().for_each(|tlb| tlb.ways = Ways::Full);
        }
        let mut mmu = Mmu::new(&machine);
        let pages = || (0..2000).map(|page| 16 * page);
        pages().for_each(|page| enter(&mut mmu, page, 3 * page + 1, Protection::READ_WRITE));
        (read(&mut mmu, pages()), read(&mut mmu, pages()))
    };
    let sets = OVERLAYS.map(|overlay| second(overlay, false));
    assert_eq!(sets, [2000, 2000, 2000, 2000, 0, 2000].map(|again| (2000, again)));
    // Where all entries are one set, nothing is gained by sets.
    assert_eq!(OVERLAYS.map(|overlay| second(overlay, true)), [(2000, 0); 6]);
}

#[test]
fn an_entry_never_spans_rights() {
    for (overlay, misses) in OVERLAYS.into_iter().zip([16, 8, 8, 8, 4, 16]) {
        let mut mmu = Mmu::new(&machine(overlay));
        // Of 16 pages the last 8 cannot be written.
        for page in 0..64 {
            let rights = if page % 16 >= 8 { Protection::READ } else { Protection::READ_WRITE };
            enter(&mut mmu, page, page, rights);
        }
        assert_eq!(read(&mut mmu, 0..64), misses, "{overlay}");
        // A write to each page that cannot be written traps, though its neighbours in the block can
        // be.
        for page in 0..64 {
            let trapped = mmu.run(&[Request::new(Vpn(page), Access::Write)]);
            let expected = (page % 16 >= 8).then_some((0, Trap::Rights { held: Protection::READ }));
            assert_eq!(trapped, expected, "{overlay} {page}");
        }
    }
}

#[test]
fn nothing_is_stale_after_one_page_changes() {
    let size: PageSize = BASE.parse().unwrap();
    for overlay in OVERLAYS {
        let mut mmu = Mmu::new(&machine(overlay));
        (0..64).for_each(|page| enter(&mut mmu, page, page, Protection::READ_WRITE));
        read(&mut mmu, 0..64);
        assert_eq!(read(&mut mmu, 0..64), 0);
        mmu.remove(0, Vpn(21), size);
        mmu.validate().unwrap();
        assert_eq!(mmu.run(&[Request::new(Vpn(21), Access::Read)]), Some((0, Trap::Absent)), "{overlay}");
        // With another frame it has an entry of its own; the rest of its block is loaded again
        // where entries have no valid bits.
        enter(&mut mmu, 21, 1000, Protection::READ_WRITE);
        let again = read(&mut mmu, 16..32);
        // The group of 4: three pages and itself; of 8: seven and itself; the runs on both sides of
        // it, and itself.
        let expected = match overlay {
            "coalescing" => 4,
            "coalescing-32k" => 8,
            "colt" => 3,
            _ => 1,
        };
        assert_eq!(again, expected, "{overlay}");
        assert_eq!(mmu.lookup(0, Vpn(21)).unwrap().frame, Pfn(1000));
    }
}

#[test]
fn a_block_is_within_a_line_and_a_table() {
    let text = |bits: &str, pages: u32, kind: &str| {
        let joins =
            format!("joins = {{ kind = \"{kind}\", pages = {pages}, source = \"this test\" }}\nserves = \"data\"");
        let zen = include_str!("../machines/zen5.toml").replace("[9, 9, 9, 9, 9]", bits);
        Machine::parse(&zen.replacen("serves = \"data\"", &joins, 1), "mine.toml").map(drop)
    };
    for (bits, pages, kind, refused) in [
        ("[9, 9, 9, 9, 9]", 8, "coalesced", None),
        ("[9, 9, 9, 9, 9]", 16, "runs", Some("from 2 to 8, which one line of the page table holds; it is 16")),
        (
            "[2, 10, 10, 9, 9]",
            8,
            "coalesced",
            Some("from 2 to 4, which a page table of the lowest level holds; it is 8"),
        ),
        ("[9, 9, 9, 9, 9]", 32, "partial-subblock", None),
        ("[9, 9, 9, 9, 9]", 64, "complete-subblock", Some("from 2 to 32, which a block may have; it is 64")),
        ("[9, 9, 9, 9, 9]", 3, "coalesced", Some("a power of two from 2 to 8")),
    ] {
        match (text(bits, pages, kind), refused) {
            (Ok(()), None) => (),
            (Err(error), Some(words)) if error.to_string().contains(words) => (),
            (result, _) => panic!("{bits} {pages} {kind}: {result:?}"),
        }
    }
}

#[test]
fn use_bits_that_must_be_alike_separate_a_page() {
    let text = include_str!("../machines/zen5.toml").replace(
        "level = 1\nserves = \"data\"",
        "level = 1\njoins = { kind = \"coalesced\", pages = 4, alike = [\"dirty\"], source = \"this test\" }\nserves = \"data\"",
    );
    let mut mmu = Mmu::new(&Machine::parse(&text, "alike.toml").unwrap());
    (0..8).for_each(|page| enter(&mut mmu, page, page, Protection::READ_WRITE));
    let hits = |mmu: &Mmu| mmu.counters(0).level_hits(0);
    let all = |mmu: &mut Mmu| {
        let before = hits(mmu);
        read(mmu, 0..8);
        hits(mmu) - before
    };
    assert_eq!(all(&mut mmu), 6, "two entries");
    assert_eq!(all(&mut mmu), 8);
    // One is written: it and the other three have entries of their own until all are.
    assert_eq!(mmu.run(&[Request::new(Vpn(1), Access::Write)]), None);
    assert_eq!(all(&mut mmu), 5, "1 was loaded by the write, 0, 2 and 3 miss");
    let rest: Vec<Request> = [0, 2, 3].map(|page| Request::new(Vpn(page), Access::Write)).into();
    assert_eq!(mmu.run(&rest), None);
    assert_eq!(all(&mut mmu), 8, "those that have entries keep them");
    mmu.validate().unwrap();
}

proptest! {
    /// Where nothing can be joined, the counts are those of the plain machine.
    #[test]
    fn unused_it_costs_nothing(
        touched in prop::collection::vec((0u64..600, 0usize..3), 1..3000),
        large in 0u64..3,
    ) {
        let plain = Machine::builtin("zen5").unwrap();
        let others: Vec<Machine> = OVERLAYS[..4].iter().map(|overlay| machine(overlay)).collect();
        let machines: Vec<&Machine> = std::iter::once(&plain).chain(&others).collect();
        let mut mmu = Mmu::of(&machines);
        // No page is at its place in an aligned block, and none is beside the next.
        (0..600).for_each(|page| enter(&mut mmu, page, 33 * page + 1, Protection::ALL));
        for at in 0..large {
            let size: PageSize = "2M".parse().unwrap();
            mmu.enter(0, Vpn(1024 + at * 512), Mapped { frame: Pfn(at * 512), size, protection: Protection::ALL }, Access::Read);
        }
        let accesses = [Access::Read, Access::Write, Access::Execute];
        let place = |page: u64| if large > 0 && page.is_multiple_of(5) { 1024 + page % (large * 512) } else { page };
        let requests: Vec<Request> = touched.iter().map(|(page, access)| Request::new(Vpn(place(*page)), accesses[*access])).collect();
        prop_assert_eq!(mmu.run(&requests), None);
        mmu.validate().unwrap();
        for (number, machine) in machines.iter().enumerate() {
            prop_assert_eq!(mmu.counters(number), mmu.counters(0), "{}", machine.name);
            prop_assert_eq!(mmu.held(number), mmu.held(0));
        }
    }
}
