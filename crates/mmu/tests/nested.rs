//! Two-dimensional walks: how many references they make.

use superpage_mmu::{Machine, Mmu, Request};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

/// References of the first walk to a page of this size, on a host with pages of that, and no caches
/// in either dimension: all of one size, or as a memory manager of the host has mapped them.
fn references(guest: &str, host: &str) -> u64 {
    let fixed = references_on(guest, host, false);
    assert_eq!(references_on(guest, host, true), fixed, "{guest} {host}");
    fixed
}

/// The host maps all that the guest has touched by pages of this size.
fn back(mmu: &mut Mmu, size: PageSize) {
    let pages = size.bytes() >> 12;
    for range in mmu.take_touched().into_iter().chain([mmu.guest_tables()]) {
        for at in (range.start.0 / pages * pages..range.start.0 + range.pages).step_by(pages as usize) {
            if mmu.host_lookup(Vpn(at)).is_none() {
                mmu.host_enter(Vpn(at), Mapped { frame: Pfn(at), size, protection: Protection::ALL }, Access::Write);
            }
        }
    }
}

fn references_on(guest: &str, host: &str, managed: bool) -> u64 {
    let mut machine = Machine::builtin("skylake-sp+nested").unwrap();
    machine.walk_cache.clear();
    let of = machine.host.as_mut().unwrap();
    of.backs_by = Some(host.parse().unwrap());
    (of.nested_tlb, of.walk_cache, of.managed) = (0, Vec::new(), managed);
    let mut mmu = Mmu::new(&machine);
    let size: PageSize = guest.parse().unwrap();
    mmu.enter(0, Vpn(0), Mapped { frame: Pfn(512), size, protection: Protection::READ }, Access::Read);
    if managed {
        back(&mut mmu, host.parse().unwrap());
    }
    assert_eq!(mmu.run(&[Request::new(Vpn(0), Access::Read)]), None);
    mmu.validate().unwrap();
    mmu.counters(0).walk_memory_references()
}

#[test]
fn n_levels_in_m_take_nm_plus_n_plus_m() {
    // 4 x 4 levels; of 3 in either where pages are of 2 MB, of 2 where they are of 1 GB.
    assert_eq!(references("4K", "4K"), 24);
    assert_eq!(references("2M", "4K"), 3 * 4 + 3 + 4);
    assert_eq!(references("4K", "2M"), 4 * 3 + 4 + 3);
    assert_eq!(references("2M", "2M"), 15);
    assert_eq!(references("4K", "1G"), 4 * 2 + 4 + 2);
}

#[test]
fn a_translation_is_as_large_as_guest_and_host_both_map_it() {
    let mut machine = Machine::builtin("zen5+nested").unwrap();
    machine.host.as_mut().unwrap().managed = true;
    let mut mmu = Mmu::new(&machine);
    let (base, huge): (PageSize, PageSize) = ("4K".parse().unwrap(), "2M".parse().unwrap());
    let to = |at: u64, size| Mapped { frame: Pfn(at), size, protection: Protection::ALL };
    (0..1024).step_by(512).for_each(|page| mmu.enter(0, Vpn(page), to(1024 + page, huge), Access::Write));
    // The host has the first by pages of 4 KB, and the second as one.
    assert_eq!(mmu.take_touched(), [Vpn(1024).pages(512), Vpn(1536).pages(512)]);
    (1024..1536).for_each(|at| mmu.host_enter(Vpn(at), to(at, base), Access::Write));
    mmu.host_enter(Vpn(1536), to(1536, huge), Access::Write);
    back(&mut mmu, base);
    let requests: Vec<Request> = (0..1024).map(|page| Request::new(Vpn(page), Access::Read)).collect();
    let walks = |mmu: &mut Mmu| {
        let before = mmu.counters(0).walks[0];
        assert_eq!(mmu.run(&requests), None);
        mmu.validate().unwrap();
        mmu.counters(0).walks[0] - before
    };
    assert_eq!([walks(&mut mmu), walks(&mut mmu)], [512 + 1, 0], "the TLBs hold them all");
    // A change of the host leaves nothing of the old size: now both are whole, and then the second
    // is not.
    mmu.host_promote(Vpn(1024), base, huge);
    assert_eq!([walks(&mut mmu), walks(&mut mmu)], [2, 0]);
    mmu.host_demote(Vpn(1536), huge, base);
    assert_eq!([walks(&mut mmu), walks(&mut mmu)], [1 + 512, 0]);
    assert_eq!(
        (mmu.host_counters().shootdowns, mmu.counters(0).shootdowns),
        (2, 0),
        "the guest's tables are what they were"
    );
    // What the host has unmapped is asked for again.
    mmu.host_remove(Vpn(1536 + 7), base);
    assert!(walks(&mut mmu) > 0 && mmu.take_touched() == [Vpn(1536 + 7).pages(1)]);
    mmu.host_enter(Vpn(1536 + 7), to(1536 + 7, base), Access::Write);
    assert_eq!([walks(&mut mmu), walks(&mut mmu)], [1 + 512, 0]);
}

#[test]
fn caches_shorten_both_dimensions() {
    let mut mmu = Mmu::new(&Machine::builtin("skylake-sp+nested").unwrap());
    let size: PageSize = "4K".parse().unwrap();
    let mut reads = |page: u64| {
        mmu.enter(0, Vpn(page), Mapped { frame: Pfn(512 + page), size, protection: Protection::READ }, Access::Read);
        let before = mmu.counters(0).walk_memory_references();
        assert_eq!(mmu.run(&[Request::new(Vpn(page), Access::Read)]), None);
        mmu.validate().unwrap();
        mmu.counters(0).walk_memory_references() - before
    };
    // The four tables of the guest are neighbours: the host's first walk takes four references, the
    // next three one each. The page is far from them.
    assert_eq!(reads(0), 4 + 3 + 4 + 4);
    // The walk cache has the guest's last table, at its translated address; the page's has the
    // host's last entry to read.
    assert_eq!(reads(1), 1 + 1);
}

#[test]
fn walk_caches_hold_translated_addresses() {
    let mut machine = Machine::builtin("skylake-sp+nested").unwrap();
    let host = machine.host.as_mut().unwrap();
    (host.nested_tlb, host.walk_cache) = (0, Vec::new());
    let mut mmu = Mmu::new(&machine);
    let size: PageSize = "4K".parse().unwrap();
    for page in 0..2 {
        mmu.enter(0, Vpn(page), Mapped { frame: Pfn(512 + page), size, protection: Protection::READ }, Access::Read);
    }
    assert_eq!(mmu.run(&[Request::new(Vpn(0), Access::Read)]), None);
    let before = mmu.counters(0).walk_memory_references();
    assert_eq!(mmu.run(&[Request::new(Vpn(1), Access::Read)]), None);
    // The guest's last entry, and four of the host for the page.
    assert_eq!((before, mmu.counters(0).walk_memory_references() - before), (24, 5));
}

#[test]
fn tables_of_a_host_that_do_not_suit_are_refused() {
    let refused = |host: &str| {
        let text = format!(
            "name = \"mine\"\ndescription = \"mine\"\n[page-table]\nkind = \"nested\"\n[host]\nsource = \"mine\"\n{host}"
        );
        Machine::named("zen5+mine.toml", |_| Ok(text.clone())).unwrap_err().to_string()
    };
    for (host, words) in [
        ("", "goes with a table [host] that has page-table-bits"),
        ("nested-tlb = 4", "give page-table-bits"),
        ("page-table-bits = [9, 9, 1]", "19 bits of page numbers are not enough"),
        ("page-table-bits = [1, 16, 10, 10]", "at most 3 bits more than the lowest, which has 1"),
        ("page-table-bits = [9, 9, 9, 9]\nnested-tlb = 70000", "host.nested-tlb: at most 65535 entries"),
        ("page-table-bits = [9, 9, 9, 9]\nbacks-by = \"3M\"", "backs-by"),
    ] {
        let said = refused(host);
        assert!(said.contains(words) && said.contains("mine.toml"), "{host}: {said}");
    }
}
