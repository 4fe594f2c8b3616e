//! Tunes the constant by which context numbers are scattered over the hash table of groups (Dougan,
//! Mackerras and Yodaiken, OSDI 1999, section 5.2), as they did: from the histogram of what the
//! groups get, for programs that are laid out as Linux/PPC laid them out.
//!
//! ```text
//! cargo run --release -p superpage-sim --example scatter [PROCESSES [CONSTANT...]]
//! ```
//!
//! Each process has 8 pages of text at 16 MB, 6 of data behind it, 90 of libraries at 768 MB and 4
//! of stack below 2 GB; all are read once. A constant is better if more of the table is in use and
//! fewer entries replace others.

use superpage_mmu::{Machine, Mmu, Request, Upkeep};
use superpage_pages::{Access, Mapped, Pfn, Protection, Vpn};

/// First page and number of pages of the parts of a process.
const LAYOUT: [(u64, u64); 4] = [(0x1000, 8), (0x1018, 6), (0x3_0000, 90), (0x7_fffc, 4)];

/// Entries in use, entries that replaced others, and how many groups have 0 to 8 entries.
fn fill(scatter: u32, processes: u32) -> (u64, u64, [u64; 9]) {
    let machine = Machine::builtin("ppc604").expect("a built-in machine");
    let mut mmu = Mmu::new(&machine);
    mmu.set_upkeep(Upkeep { scatter, ..Upkeep::default() });
    let mut frame = 0;
    for space in 0..processes {
        mmu.switch(space);
        for page in LAYOUT.iter().flat_map(|(first, pages)| *first..first + pages) {
            let to = Mapped { frame: Pfn(frame), size: machine.pages.sizes[0], protection: Protection::READ };
            mmu.enter(space, Vpn(page), to, Access::Read);
            assert_eq!(mmu.run(&[Request::new(Vpn(page), Access::Read)]), None);
            frame += 1;
        }
    }
    let mut histogram = [0; 9];
    let groups = mmu.entries_by_group(0);
    groups.iter().for_each(|entries| histogram[*entries as usize] += 1);
    (groups.iter().sum(), mmu.counters(0).groups.evicts, histogram)
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| {
        text.parse::<u32>().unwrap_or_else(|_| {
            eprintln!("scatter: {text}: expected the number of processes, then constants below 1048576");
            std::process::exit(2);
        })
    });
    let processes = numbers.next().unwrap_or(150).clamp(1, 10_000);
    let asked: Vec<u32> = numbers.collect();
    if asked.iter().any(|constant| constant.is_multiple_of(512) || *constant >= 1 << 20) {
        eprintln!("scatter: constants are below 1048576 and no multiples of 512");
        std::process::exit(2);
    }
    let constants =
        if asked.is_empty() { (1..1200).step_by(14).chain([16, 64, 128, 256, 897]).collect() } else { asked };
    let mut all: Vec<_> = constants.into_iter().map(|constant| (constant, fill(constant, processes))).collect();
    all.sort_by_key(|(constant, (used, evicts, _))| (std::cmp::Reverse(*used), *evicts, *constant));
    println!("{processes} processes of {} pages; constant, entries in use, evicts, groups with 0 to 8 entries", 108);
    for (constant, (used, evicts, histogram)) in all {
        println!("{constant:7} {:6.1} % {evicts:7} {histogram:?}", 100.0 * used as f64 / 16384.0);
    }
}
