//! A host that backs superpages by base pages: TLBs hold pieces, walks end at the superpage's own
//! entry.

use superpage_mmu::{Counters, Machine, Mmu, Request};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

const HOST: &str = "\n[host]\nbacks-by = \"4K\"\nsource = \"this test\"\n";

fn guest() -> Machine {
    let text = format!("{}{HOST}", include_str!("../../../machines/zen4.toml"));
    Machine::parse(&text, "guest.toml").unwrap()
}

fn size(text: &str) -> PageSize {
    text.parse().unwrap()
}

fn touch(machine: &Machine, pages: u64, rounds: u64) -> (Counters, Mmu) {
    let mut mmu = Mmu::new(machine);
    for page in (0..pages).step_by(512) {
        mmu.enter(
            0,
            Vpn(page),
            Mapped { frame: Pfn(page), size: size("2M"), protection: Protection::READ_WRITE },
            Access::Write,
        );
    }
    let requests: Vec<Request> = (0..pages).map(|page| Request::new(Vpn(page), Access::Read)).collect();
    (0..rounds).for_each(|_| assert_eq!(mmu.run(&requests), None));
    mmu.validate().unwrap();
    (mmu.counters(0), mmu)
}

#[test]
fn a_superpage_takes_an_entry_for_each_piece_that_is_used() {
    let metal = Machine::builtin("zen4").unwrap();
    // The second level has 3072 entries: 2048 pieces stay, 4096 do not.
    for (pages, walks) in [(2048, 2048), (4096, 3 * 4096)] {
        assert_eq!(touch(&metal, pages, 3).0.walks[0], pages / 512);
        let (counters, mmu) = touch(&guest(), pages, 3);
        assert_eq!(counters.walks[0], walks, "{pages}");
        let second = mmu.held(0).into_iter().find(|held| held.tlb == 2).unwrap();
        assert_eq!((second.size, second.entries), (size("2M"), pages.min(3072)));
    }
}

#[test]
fn walks_to_pieces_are_as_short_as_to_the_superpage() {
    let (huge, _) = touch(&guest(), 4096, 1);
    let mut mmu = Mmu::new(&guest());
    for page in 0..4096 {
        mmu.enter(
            0,
            Vpn(page),
            Mapped { frame: Pfn(page), size: size("4K"), protection: Protection::READ_WRITE },
            Access::Write,
        );
    }
    let requests: Vec<Request> = (0..4096).map(|page| Request::new(Vpn(page), Access::Read)).collect();
    assert_eq!(mmu.run(&requests), None);
    let references = |counters: &Counters| counters.line_hits.iter().sum::<u64>() + counters.line_misses;
    assert_eq!(huge.walks[0], mmu.counters(0).walks[0]);
    // Eight superpages have their entries in one line on each of four levels; 4096 base pages have
    // 512 lines of entries.
    assert_eq!((huge.line_misses, huge.walk_cache_hits[1]), (4, 0));
    assert!(references(&huge) <= references(&mmu.counters(0)) && mmu.counters(0).line_misses > 512);
}

#[test]
fn operations_see_whole_superpages() {
    let mut mmu = Mmu::new(&guest());
    let (base, huge) = (size("4K"), size("2M"));
    for page in 0..512 {
        mmu.enter(
            0,
            Vpn(page),
            Mapped { frame: Pfn(page), size: base, protection: Protection::READ_WRITE },
            Access::Read,
        );
    }
    mmu.promote(0, Vpn(0), base, huge);
    assert_eq!(mmu.lookup(0, Vpn(77)), Some(Mapped { frame: Pfn(77), size: huge, protection: Protection::READ_WRITE }));
    assert_eq!(mmu.run(&[Request::new(Vpn(300), Access::Write)]), None);
    assert!(mmu.used(0, Vpn(0), huge).modified, "the use of a piece is the superpage's");
    assert!(mmu.clear_modified(0, Vpn(0), huge) && !mmu.clear_modified(0, Vpn(0), huge));
    mmu.protect(0, Vpn(0), huge, Protection::READ);
    assert!(mmu.run(&[Request::new(Vpn(511), Access::Write)]).is_some());
    mmu.demote(0, Vpn(0), huge, base);
    assert_eq!(mmu.lookup(0, Vpn(77)), Some(Mapped { frame: Pfn(77), size: base, protection: Protection::READ }));
    mmu.validate().unwrap();
    (0..512).for_each(|page| assert!(mmu.remove(0, Vpn(page), base).referenced));
    mmu.enter(0, Vpn(512), Mapped { frame: Pfn(512), size: huge, protection: Protection::READ_WRITE }, Access::Write);
    assert!(mmu.remove(0, Vpn(512), huge).modified);
    assert_eq!(mmu.lookup(0, Vpn(600)), None);
    mmu.validate().unwrap();
}

#[test]
fn a_host_has_pages_of_a_size_of_the_guest() {
    let hosted = |host: &str| {
        let text = format!("{}\n[host]\n{host}source = \"this test\"\n", include_str!("../../../machines/zen4.toml"));
        Machine::parse(&text, "guest.toml")
    };
    let error = hosted("backs-by = \"16K\"\n").unwrap_err().to_string();
    assert!(error.contains("host.backs-by: 16K is not one of pages.sizes"), "{error}");
    // Backed by pages of 2 MB those of 2 MB are whole; base pages are what nothing is said of.
    let walks = |host: &str| touch(&hosted(host).unwrap(), 4096, 3).0.walks[0];
    assert_eq!([walks("backs-by = \"2M\"\n"), walks("backs-by = \"4K\"\n"), walks("")], [8, 3 * 4096, 3 * 4096]);
}
