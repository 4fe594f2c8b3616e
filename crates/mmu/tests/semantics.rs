//! The rules of honest numbers, one by one, where a reader can check them by hand.

use superpage_mmu::{Contents, Machine, Mmu, Replacement, Request, Trap};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

fn machine(name: &str) -> Machine {
    Machine::builtin(name).unwrap()
}

fn size(text: &str) -> PageSize {
    text.parse().unwrap()
}

/// Section 6.6: where PTEs are replicated, three promotions and three demotions go through each PTE
/// six times.
#[test]
fn every_pte_is_traversed_six_times() {
    let mut mmu = Mmu::new(&machine("alpha-21264"));
    let ladder = [size("8K"), size("64K"), size("512K"), size("4M")];
    for page in 0..512 {
        mmu.enter(
            0,
            Vpn(page),
            Mapped { frame: Pfn(page), size: ladder[0], protection: Protection::READ_WRITE },
            Access::Write,
        );
    }
    for (pair, step) in ladder.windows(2).zip([8, 64, 512]) {
        (0..512).step_by(step).for_each(|page| mmu.promote(0, Vpn(page), pair[0], pair[1]));
    }
    for (pair, step) in ladder.windows(2).rev().zip([512, 64, 8]) {
        (0..512).step_by(step).for_each(|page| mmu.demote(0, Vpn(page), pair[1], pair[0]));
    }
    assert_eq!(mmu.counters(0).pte_traversals, 6 * 512);
    assert_eq!(
        mmu.lookup(0, Vpn(77)),
        Some(Mapped { frame: Pfn(77), size: ladder[0], protection: Protection::READ_WRITE })
    );
    mmu.validate().unwrap();
}

/// Pages 8 MB apart, each in a page of the linear table of its own: a page takes an entry for
/// itself and one for that page of the table. 64 such pages fill the 128 entries; 65 find nothing
/// again, round and round; an overlay whose entries hold several pages has none of the table's.
#[test]
fn pages_of_the_linear_table_take_entries_of_the_same_tlb() {
    let misses = |name: &str, pages: u64| {
        let mut mmu = Mmu::new(&machine(name));
        for page in 0..pages {
            let to = Mapped { frame: Pfn(page), size: size("8K"), protection: Protection::READ_WRITE };
            mmu.enter(0, Vpn(page << 10), to, Access::Read);
        }
        let requests: Vec<Request> = (0..pages).map(|page| Request::new(Vpn(page << 10), Access::Read)).collect();
        (0..3).for_each(|_| assert_eq!(mmu.run(&requests), None));
        mmu.validate().unwrap();
        let counters = mmu.counters(0);
        (counters.misses(0, Access::Read), counters.walk_memory_references())
    };
    // The entry, and at first the two above it.
    assert_eq!(misses("alpha-21264", 64), (64, 64 * 3));
    assert_eq!(misses("alpha-21264", 65), (65 * 3, 65 * 3 * 3));
    assert_eq!(misses("alpha-21264+coalescing", 65), (65, 65 * 3));
    // A fetch that misses loads the table's page for data.
    let mut mmu = Mmu::new(&machine("alpha-21264"));
    mmu.enter(
        0,
        Vpn(5),
        Mapped { frame: Pfn(5), size: size("8K"), protection: Protection::READ_EXECUTE },
        Access::Execute,
    );
    assert_eq!(mmu.run(&[Request::new(Vpn(5), Access::Execute)]), None);
    let held: Vec<_> = mmu.held(0).iter().map(|held| (held.tlb, held.contents)).collect();
    assert_eq!(held, [(0, Contents::Pointer), (1, Contents::Mapping)]);
}

/// A superpage that is unmapped leaves the TLBs once, though each of its entries is written and it
/// is taken apart before; a space that ends is flushed once. What is used in between must be
/// shot down again.
#[test]
fn a_superpage_is_one_shootdown_and_a_space_that_ends_one_flush() {
    let mut mmu = Mmu::new(&machine("alpha-21264"));
    let [base, large] = [size("8K"), size("64K")];
    for page in [0, 8, 16] {
        mmu.enter(
            0,
            Vpn(page),
            Mapped { frame: Pfn(page), size: large, protection: Protection::READ_WRITE },
            Access::Write,
        );
    }
    let request = |page| Request::new(Vpn(page), Access::Read);
    assert_eq!(mmu.run(&[request(0), request(8), request(16)]), None);
    mmu.demote(0, Vpn(0), large, base);
    (0..8).for_each(|page| _ = mmu.remove(0, Vpn(page), base));
    assert_eq!((mmu.counters(0).shootdowns, mmu.counters(0).pte_traversals), (1, 8));
    mmu.demote(0, Vpn(8), large, base);
    mmu.remove(0, Vpn(8), base);
    assert_eq!(mmu.counters(0).shootdowns, 2);
    assert_eq!(mmu.run(&[request(9)]), None);
    mmu.remove(0, Vpn(9), base);
    mmu.remove(0, Vpn(10), base);
    assert_eq!(mmu.counters(0).shootdowns, 4, "pages that were used since, each for itself");
    mmu.flush(0);
    (11..16).for_each(|page| _ = mmu.remove(0, Vpn(page), base));
    mmu.remove(0, Vpn(16), large);
    assert_eq!(mmu.counters(0).shootdowns, 5);
    mmu.flush(7);
    mmu.gather(7, 0..8);
    assert_eq!(mmu.counters(0).shootdowns, 5, "a space that has no tables");
    for page in 0..16 {
        let to = Mapped { frame: Pfn(page), size: base, protection: Protection::READ_WRITE };
        mmu.enter(0, Vpn(page), to, Access::Write);
    }
    assert_eq!(mmu.run(&[request(0), request(8)]), None);
    mmu.gather(0, 0..8);
    (0..8).for_each(|page| _ = mmu.remove(0, Vpn(page), base));
    assert_eq!(mmu.counters(0).shootdowns, 6, "one for all that was gathered");
    mmu.remove(0, Vpn(8), base);
    assert_eq!(mmu.counters(0).shootdowns, 7, "which this page was not part of");
    mmu.validate().unwrap();
}

/// A reference that faults counts one miss; the retry finds what the fault loaded, and is not
/// counted, but where software must place the page into a hash table first.
#[test]
fn a_fault_is_one_miss() {
    for name in Machine::names() {
        let machine = machine(name);
        let mut mmu = Mmu::new(&machine);
        let request = Request::new(Vpn(5), Access::Write);
        assert_eq!(mmu.run(&[request]), Some((0, Trap::Absent)));
        mmu.enter(
            0,
            Vpn(5),
            Mapped { frame: Pfn(9), size: machine.ladder().base(), protection: Protection::READ_WRITE },
            Access::Write,
        );
        assert_eq!(mmu.retry(request), Ok(()));
        assert_eq!(mmu.run(&[request]), None);
        let counters = mmu.counters(0);
        let again = u64::from(machine.groups.is_some());
        assert_eq!((counters.references, counters.tlb_misses()), ([0, 2 + again, 0], 1 + again), "{name}");
        assert_eq!(counters.use_bits.dirty, 0, "{name}: the fault was for a write");
        if again > 0 {
            continue;
        }
        // Another page of the same table misses later, and finds its entry: that walk ended in no
        // fault.
        mmu.enter(
            0,
            Vpn(6),
            Mapped { frame: Pfn(10), size: machine.ladder().base(), protection: Protection::READ_WRITE },
            Access::Write,
        );
        let walked = mmu.counters(0);
        assert_eq!(mmu.run(&[Request::new(Vpn(6), Access::Read)]), None);
        assert_eq!((mmu.counters(0).tlb_misses(), mmu.faulting(0).tlb_misses()), (2, 1), "{name}");
        assert_eq!(mmu.faulting(0).walk_memory_references(), walked.walk_memory_references(), "{name}");
    }
}

/// A first write to a clean page updates the entry where it stands: one dirty update, no miss.
#[test]
fn a_first_write_is_no_miss() {
    for name in ["alpha-21264", "zen5", "skylake-sp"] {
        let machine = machine(name);
        let mut mmu = Mmu::new(&machine);
        mmu.enter(
            0,
            Vpn(5),
            Mapped { frame: Pfn(9), size: machine.ladder().base(), protection: Protection::READ_WRITE },
            Access::Read,
        );
        assert!(!mmu.used(0, Vpn(5), machine.ladder().base()).modified);
        let [read, write] = [Access::Read, Access::Write].map(|access| Request::new(Vpn(5), access));
        assert_eq!(mmu.run(&[read, write, write, read]), None);
        assert_eq!((mmu.counters(0).tlb_misses(), mmu.counters(0).use_bits.dirty), (1, 1), "{name}");
        assert!(mmu.used(0, Vpn(5), machine.ladder().base()).modified);
    }
}

/// With address space numbers a space finds its entries again; without, a switch empties the TLBs.
#[test]
fn switches_flush_only_without_numbers() {
    for (name, misses) in [("alpha-21264", 2), ("harpertown", 4)] {
        let machine = machine(name);
        let mut mmu = Mmu::new(&machine);
        for space in 0..2 {
            mmu.enter(
                space,
                Vpn(5),
                Mapped { frame: Pfn(9), size: machine.ladder().base(), protection: Protection::ALL },
                Access::Read,
            );
        }
        for space in [0, 1, 0, 1] {
            mmu.switch(space);
            assert_eq!(mmu.run(&[Request::new(Vpn(5), Access::Execute)]), None);
        }
        assert_eq!((mmu.counters(0).switches, mmu.counters(0).instruction_misses()), (3, misses), "{name}");
    }
}

/// A write without the right traps and has been counted as a hit; the rights are those of the page
/// table.
#[test]
fn rights_are_checked_on_a_hit() {
    let machine = machine("golden-cove");
    let base = machine.ladder().base();
    let mut mmu = Mmu::new(&machine);
    mmu.enter(0, Vpn(5), Mapped { frame: Pfn(9), size: base, protection: Protection::READ }, Access::Read);
    let [read, write] = [Access::Read, Access::Write].map(|access| Request::new(Vpn(5), access));
    assert_eq!(mmu.run(&[read, write]), Some((1, Trap::Rights { held: Protection::READ })));
    mmu.protect(0, Vpn(5), base, Protection::READ_WRITE);
    assert_eq!(mmu.retry(write), Ok(()));
    // The write missed in the TLB for stores and hit in the second level.
    assert_eq!((mmu.counters(0).tlb_misses(), mmu.counters(0).hits(1, Access::Write)), (1, 1));
}

/// As measured (TLB;DR, section 4.5): a page is found in the second level until four other spaces
/// have been current, and in the first level only if none has.
#[test]
fn a_tlb_keeps_entries_of_the_spaces_that_were_current_last() {
    let request = |page| Request::new(Vpn(page), Access::Read);
    let after = |name: &str, others: u32| {
        let mut mmu = Mmu::new(&machine(name));
        let to = Mapped { frame: Pfn(0), size: size("4K"), protection: Protection::READ };
        mmu.enter(0, Vpn(0), to, Access::Read);
        assert_eq!(mmu.run(&[request(0)]), None);
        // Which of the others is current more than once makes no difference.
        (1..=others).chain(1..others).chain([0]).for_each(|space| mmu.switch(space));
        mmu.validate().unwrap();
        assert_eq!(mmu.run(&[request(0)]), None);
        let counters = mmu.counters(0);
        assert_eq!((counters.flushes, counters.shootdown_entries), (0, 0));
        [counters.hits(0, Access::Read), counters.hits(1, Access::Read), counters.walks[0]]
    };
    assert_eq!(after("skylake-sp", 0), [1, 0, 1]);
    assert_eq!([1, 2, 3].map(|others| after("skylake-sp", others)), [[0, 1, 1]; 3]);
    assert_eq!([4, 5, 9].map(|others| after("skylake-sp", others)), [[0, 0, 2]; 3]);
    assert_eq!([1, 4, 9].map(|others| after("skylake-sp+lru", others)), [[1, 0, 1]; 3]);
}

/// Entries of page directories that are in the second-level TLB shorten walks of data and
/// instructions, and take room there.
#[test]
fn a_tlb_may_hold_what_a_walk_cache_would() {
    let run = |name: &str| {
        let mut mmu = Mmu::new(&machine(name));
        let to = |page| Mapped { frame: Pfn(page), size: size("4K"), protection: Protection::ALL };
        (0..3).for_each(|page| mmu.enter(0, Vpn(512 * page), to(512 * page), Access::Read));
        mmu.enter(0, Vpn(1), to(1), Access::Read);
        let first: Vec<Request> = (0..3).map(|page| Request::new(Vpn(512 * page), Access::Read)).collect();
        assert_eq!(mmu.run(&first), None);
        let before = mmu.counters(0).walk_memory_references();
        assert_eq!(mmu.run(&[Request::new(Vpn(1), Access::Execute)]), None);
        mmu.validate().unwrap();
        let of = |contents| {
            mmu.held(0).iter().filter(|held| held.contents == contents).map(|held| held.entries).sum::<u64>()
        };
        let counters = mmu.counters(0);
        (before, counters.walk_memory_references() - before, counters.walk_cache_hits[1], of(Contents::Pointer))
    };
    // Five levels; then the entry of the directory and the page's own, twice; the last page's
    // alone.
    assert_eq!(run("zen5"), (5 + 2 + 2, 1, 1, 0));
    assert_eq!(run("zen5+shared-walk-cache"), (5 + 2 + 2, 1, 1, 3));
}

/// Linux on x86 clears reference bits and leaves the TLBs alone; elsewhere the page is shot down.
/// The next access sets the bit in both cases.
#[test]
fn a_cleared_reference_bit_is_shot_down_where_the_machine_says_so() {
    for (name, flushes) in [("zen5", 0), ("neoverse-v2", 1), ("alpha-21264", 1)] {
        let machine = machine(name);
        let (mut mmu, base) = (Mmu::new(&machine), machine.pages.sizes[0]);
        let read = [Request::new(Vpn(1), Access::Read)];
        mmu.enter(0, Vpn(1), Mapped { frame: Pfn(7), size: base, protection: Protection::READ }, Access::Read);
        assert_eq!(mmu.run(&read), None);
        for again in 1..4 {
            assert!(mmu.clear_referenced(0, Vpn(1), base) && !mmu.clear_referenced(0, Vpn(1), base));
            assert!(!mmu.used(0, Vpn(1), base).referenced);
            assert_eq!((mmu.run(&read), mmu.used(0, Vpn(1), base).referenced), (None, true), "{name}");
            let counted = mmu.counters(0);
            assert_eq!((counted.shootdowns, counted.data_misses()), (flushes * again, 1 + flushes * again), "{name}");
        }
        mmu.validate().unwrap();
    }
    let trapping = superpage_mmu::Machine::named("alpha-21264+./own.toml", |_| {
        Ok("name = \"own\"\ndescription = \"one more\"\n[page-table]\nflush-referenced = false\n".into())
    });
    let refused = trapping.unwrap_err().to_string();
    assert!(refused.contains("flush-referenced") && refused.contains("leave it out"), "{refused}");
}

/// Where the system emulates use bits (section 6.8), clearing one and the trap that sets it again
/// each write all replicated entries of a superpage; hardware writes what the system does not
/// count. An access that sets both bits traps once.
#[test]
fn emulated_use_bits_cost_each_replicated_entry() {
    let traps = |name: &str, large: &str| {
        let machine = machine(name);
        let size = size(large);
        let mut mmu = Mmu::new(&machine);
        mmu.enter(0, Vpn(0), Mapped { frame: Pfn(0), size, protection: Protection::READ_WRITE }, Access::Read);
        let entered = mmu.counters(0).pte_writes;
        assert!(mmu.clear_referenced(0, Vpn(0), size));
        assert_eq!(mmu.counters(0).pte_writes, 2 * entered, "{name}: clearing writes what entering wrote");
        assert_eq!(mmu.run(&[Request::new(Vpn(0), Access::Read); 2]), None);
        let referenced = machine.translation_cycles(&mmu.counters(0)).use_traps;
        assert!(mmu.clear_referenced(0, Vpn(0), size));
        assert_eq!(mmu.run(&[Request::new(Vpn(0), Access::Write)]), None);
        assert_eq!(machine.translation_cycles(&mmu.counters(0)).use_traps, 2 * referenced, "{name}: one trap for both");
        (entered, referenced)
    };
    let costs = machine("alpha-21264").costs;
    for (size, entries) in [("8K", 1), ("64K", 8), ("512K", 64), ("4M", 512)] {
        assert_eq!(traps("alpha-21264", size), (entries, costs.use_trap + entries * costs.pte_write), "{size}");
    }
    assert_eq!(traps("zen5", "2M"), (1, 0));
}

/// A table translates a part of the page number: each stretch of pages that share the other bits
/// has a root, and walks in it have as many references.
#[test]
fn each_stretch_of_addresses_has_a_root_of_its_own() {
    let mut machine = machine("zen5");
    machine.walk_cache.clear();
    let stretch = 1 << machine.page_table.bits.iter().sum::<u8>();
    let pages: Vec<u64> = [0, 1, 5, 100].iter().map(|number| 5 + number * stretch).collect();
    let mut mmu = Mmu::new(&machine);
    for (frame, page) in pages.iter().enumerate() {
        let to = Mapped { frame: Pfn(frame as u64), size: machine.pages.sizes[0], protection: Protection::READ };
        mmu.enter(0, Vpn(*page), to, Access::Read);
        mmu.validate().unwrap();
    }
    let read = |mmu: &mut Mmu, pages: &[u64]| {
        let requests: Vec<Request> = pages.iter().map(|page| Request::new(Vpn(*page), Access::Read)).collect();
        assert_eq!(mmu.run(&requests), None);
        let counters = mmu.counters(0);
        (counters.tlb_misses(), counters.walk_memory_references())
    };
    // Each misses once, by a walk of a reference a level, and then hits: no entry is shared.
    let levels = machine.page_table.bits.len() as u64;
    assert_eq!(read(&mut mmu, &pages), (4, 4 * levels));
    assert_eq!(read(&mut mmu, &pages), (4, 4 * levels));
    for (frame, page) in pages.iter().enumerate() {
        assert_eq!(mmu.lookup(0, Vpn(*page)).map(|mapped| mapped.frame), Some(Pfn(frame as u64)));
    }
}

/// 800 pages of code, more than the first level holds, and between two of them five of 4000 pages
/// of data: with LRU the second level, which they share, has none of them when it is asked for
/// again, and with `itp` the code, from the second or third time on.
#[test]
fn code_is_kept_over_data_in_a_level_that_both_share() {
    let missed = |replacement: Replacement| {
        let mut machine = machine("skylake-sp");
        machine.tlb.iter_mut().filter(|tlb| tlb.level > 1).for_each(|tlb| tlb.replacement = replacement);
        let mut mmu = Mmu::new(&machine);
        let (code, data) = (|at: u64| Vpn(at), |at: u64| Vpn(1 << 20 | at));
        for page in (0..800).map(code).chain((0..4000).map(data)) {
            let to = Mapped { frame: Pfn(page.0), size: size("4K"), protection: Protection::ALL };
            mmu.enter(0, page, to, Access::Read);
        }
        let requests = (0..800).flat_map(|at| {
            let five = (5 * at..5 * at + 5).map(|at| Request::new(data(at), Access::Read));
            std::iter::once(Request::new(code(at), Access::Execute)).chain(five)
        });
        let requests: Vec<Request> = requests.collect();
        (0..10).for_each(|_| assert_eq!(mmu.run(&requests), None));
        mmu.validate().unwrap();
        [Access::Execute, Access::Read].map(|access| mmu.counters(0).misses(1, access))
    };
    assert_eq!(missed(Replacement::Lru), [8000, 40_000]);
    // At first some code gives way, before it was used often.
    let [code, data] = missed(Replacement::Itp);
    assert!((800..1600).contains(&code) && data > 30_000, "{code} {data}");
}
