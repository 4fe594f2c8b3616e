//! Two-dimensional walks: how many references they make.

use superpage_mmu::{Machine, Mmu, Request};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

/// References of the first walk to a page of this size, on a host with pages of that, and no caches in either dimension.
fn references(guest: &str, host: &str) -> u64 {
    let mut machine = Machine::builtin("skylake-sp+nested").unwrap();
    machine.walk_cache.clear();
    let of = machine.host.as_mut().unwrap();
    of.backs_by = Some(host.parse().unwrap());
    (of.nested_tlb, of.walk_cache) = (0, Vec::new());
    let mut mmu = Mmu::new(&machine);
    let size: PageSize = guest.parse().unwrap();
    mmu.enter(0, Vpn(0), Mapped { frame: Pfn(512), size, protection: Protection::READ }, Access::Read);
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
    // The four tables of the guest are neighbours: the host's first walk takes four references, the next three one each. The page is
    // far from them.
    assert_eq!(reads(0), 4 + 3 + 4 + 4);
    // The walk cache has the guest's last table, at its translated address; the page's has the host's last entry to read.
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
