//! Whether simulations fit into the memory of the machine that runs them: checked before any is allocated.

use crate::group::groups;
use crate::{Error, Setup, Watch};
use superpage_mmu::Mmu;
use superpage_report::bytes;
use superpage_trace::TRACE_PAGE_SHIFT;
use superpage_trace::file::Reader;

/// The most bytes of the manager's own structures per frame: page lists, free extents and reservations.
const FRAME_BYTES: u64 = 17;
/// One byte for so many frames is written when the simulation begins; the rest as frames are used.
const FRAMES_BEGUN: u64 = 2;
/// Bytes more for each extent of a superpage size, written when the simulation begins: much where sizes are close together.
const EXTENT_BYTES: u64 = 4;
/// Bytes for each base page of a program, if pages lie together: page tables, population maps, and the frame.
const PAGE_BYTES: u64 = 40;
/// Bytes more for each region of a superpage size in the program: its node in the population map.
const NODE_BYTES: u64 = 64;
/// Bytes of a range, in nodes of a tree that are at least half full.
const RANGE_BYTES: u64 = 96;
/// The most bytes of a node of a clustered page table: while their list grows there are two of it, and the new one is twice as long.
const CLUSTER_BYTES: u64 = 72;
/// Bytes for an entry of a page table, with its frame.
const TABLE_ENTRY_BYTES: u64 = 16;
/// Bytes for a mapping, and for a page that lies alone in it.
const MAPPING_BYTES: u64 = 1024;
/// Bytes for each frame of a machine with shadow superpages, while the list of them grows, and for each base page of these, of
/// which there are two while superpages are joined.
const SHADOW_BYTES: (u64, u64) = (16, 32);
/// Bytes for each base page of a program on each machine: its places in TLBs with many ways.
const PLACE_BYTES: u64 = 4;

/// The needs of a stream, if known before it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Pages of 4 KB that are accessed.
    pub pages: u64,
    /// Mappings that are made.
    pub mappings: u64,
}

impl Extent {
    /// Of a trace, as its file says it.
    pub fn of(trace: &Reader) -> Extent {
        trace.totals().map_or(Extent::default(), |totals| Extent {
            pages: totals.pages,
            mappings: totals.events.get("map").copied().unwrap_or(0),
        })
    }
}

/// A limit of the memory that simulations may use here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes that are left of it.
    pub bytes: u64,
    /// What it is the limit of, as words for a sentence.
    pub of: String,
    /// Whether memory that was never written to counts.
    pub counts_untouched: bool,
}

/// The needs of simulations, in bytes.
#[derive(Clone, Copy)]
struct Need {
    /// When it begins, as far as it is written to.
    begun: u64,
    /// When the program uses all memory, without page tables.
    whole: u64,
    /// For the pages and mappings of the program.
    program: u64,
}

impl Need {
    fn and(self, other: Need) -> Need {
        Need {
            begun: self.begun.saturating_add(other.begun),
            whole: self.whole.saturating_add(other.whole),
            program: self.program.saturating_add(other.program),
        }
    }
}

/// The pages of a program that are populated at once, at most.
fn populated(setup: &Setup, extent: Extent) -> u64 {
    let most = setup.frames.saturating_add(setup.swap_pages);
    (extent.pages >> (setup.ladder.base().shift() - TRACE_PAGE_SHIFT)).min(most)
}

/// The extents of all superpage sizes in so many base pages.
fn extents(setup: &Setup, pages: u64) -> u64 {
    setup.ladder.levels().skip(1).map(|level| pages >> setup.ladder.order(level)).sum()
}

/// What a machine needs by itself.
fn of_hardware(setup: &Setup, extent: Extent) -> Need {
    let (begun, whole) = Mmu::bytes_of(&setup.machine);
    let pages = populated(setup, extent);
    let machine = &setup.machine;
    let parts = machine.perforated.is_some() || machine.tlb.iter().any(|tlb| tlb.joins.is_some());
    let places = if parts { PLACE_BYTES.max(2 * machine.tlb.len() as u64) } else { PLACE_BYTES };
    // The host of a guest has tables for all memory that the guest uses.
    let host = setup.machine.host.as_ref().filter(|host| !host.page_table_bits.is_empty());
    let tables = host.map_or(0, |host| table_bytes(&host.page_table_bits, pages));
    // A clustered table may have a node for each page, and has one for each block of a superpage, most of whose pages may be untouched.
    let nodes = machine.clustered.as_ref().map_or(0, |clustered| {
        let largest = setup.ladder.order(setup.ladder.largest());
        let mapped = (pages << largest.min(20)).min(setup.frames.saturating_add(setup.swap_pages));
        pages.saturating_add(mapped / clustered.pages).saturating_mul(CLUSTER_BYTES)
    });
    // Each page may be a range.
    let ranges = if machine.range_tlb.is_some() { pages.saturating_mul(RANGE_BYTES) } else { 0 };
    let program = pages.saturating_mul(places).saturating_add(tables).saturating_add(nodes).saturating_add(ranges);
    // And perhaps a kernel, with no more than the guest's pages to map.
    let frames = setup.host.as_ref().map_or(0, |host| host.frames);
    let kernel = if frames > 0 { pages.saturating_mul(PAGE_BYTES) } else { 0 };
    Need {
        begun: begun.saturating_add(frames / FRAMES_BEGUN),
        whole: whole.saturating_add(frames.saturating_mul(FRAME_BYTES)),
        program: program.saturating_add(kernel),
    }
}

/// What tables of levels of so many bits take for pages that lie together: all have the room of the widest.
fn table_bytes(bits: &[u8], pages: u64) -> u64 {
    let (mut tables, mut below) = (0u64, 0);
    for bits in bits {
        below += u32::from(*bits);
        tables += pages.checked_shr(below).unwrap_or(0) + u64::from(pages > 0);
    }
    let widest = bits.iter().max().copied().unwrap_or(0);
    tables.saturating_mul(TABLE_ENTRY_BYTES << widest)
}

/// What a kernel needs, with its page tables.
fn of_kernel(setup: &Setup, extent: Extent) -> Need {
    let pages = populated(setup, extent);
    let mappings = extent.mappings.min(pages);
    // Where all levels are as wide, that is among what a page takes.
    let tables = table_bytes(&setup.machine.page_table.bits, pages).saturating_sub(pages.saturating_mul(PAGE_BYTES));
    let in_memory = extents(setup, setup.frames).saturating_mul(EXTENT_BYTES);
    let (of_frame, of_page) = if setup.machine.shadow.is_some() { SHADOW_BYTES } else { (0, 0) };
    Need {
        begun: (setup.frames / FRAMES_BEGUN).saturating_add(in_memory),
        whole: setup.frames.saturating_mul(FRAME_BYTES + of_frame).saturating_add(in_memory),
        program: pages
            .saturating_mul(PAGE_BYTES + of_page)
            .saturating_add(extents(setup, pages).saturating_mul(NODE_BYTES))
            .saturating_add(mappings.saturating_mul(MAPPING_BYTES))
            .saturating_add(tables),
    }
}

fn need(setup: &Setup, extent: Extent) -> Need {
    of_kernel(setup, extent).and(of_hardware(setup, extent))
}

/// The needs of all: machines on which a kernel does the same share it.
fn needs(setups: &[Setup], watch: &Watch, extent: Extent) -> Need {
    let kernels = groups(setups, watch).into_iter().map(|group| of_kernel(&setups[group[0]], extent));
    let machines = setups.iter().map(|setup| of_hardware(setup, extent));
    kernels.chain(machines).fold(Need { begun: 0, whole: 0, program: 0 }, Need::and)
}

/// Checks simulations of one stream against these limits.
///
/// # Errors
/// One simulation alone exceeds a limit; or all together do (they run at once, whatever the number of threads), when
/// they begin or with what the stream is known to need.
pub fn check_memory(setups: &[Setup], watch: &Watch, extent: Extent, limits: &[Limit]) -> Result<(), Error> {
    let all = needs(setups, watch, extent);
    for Limit { bytes: left, of, counts_untouched } in limits {
        let left = *left;
        let left_of = format!("{} are left of {of}", bytes(left));
        if let Some(setup) = setups.iter().find(|setup| need(setup, Extent::default()).whole > left) {
            let (name, memory) = (&setup.machine.name, bytes(setup.frames << setup.ladder.base().shift()));
            return Err(Error::Usage(format!(
                "machine {name} with {memory} of memory takes up to {} to simulate, and {left_of}; give less with \
                 --memory, or fewer entries in its TLBs and line caches",
                bytes(need(setup, Extent::default()).whole)
            )));
        }
        let begun = if *counts_untouched { all.whole } else { all.begun };
        let program = all.program;
        if begun.saturating_add(program) > left {
            let program = match program {
                0 => String::new(),
                program => format!(" and about {} for what the program touches", bytes(program)),
            };
            return Err(Error::Usage(format!(
                "{} rows at once take {} to begin{program}, and {left_of}; give fewer machines or policies at \
                 once, or less with --memory",
                setups.len(),
                bytes(begun)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, plan};
    use superpage_vm::{Config, Vm};

    fn setups(machine: &str, memory: u64) -> Vec<Setup> {
        let conditions = Conditions { memory: Some(memory), ..Conditions::default() };
        plan(&[machine.into()], &["reservation".into()], &conditions).unwrap()
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_allocated() {
        let limit = |bytes, counts_untouched| [Limit { bytes, of: "the system".into(), counts_untouched }];
        let said = |setups: &[Setup], extent, limits: [Limit; 1]| {
            check_memory(setups, &Watch::default(), extent, &limits)
                .err()
                .map_or(String::new(), |error| error.to_string())
        };
        let none = Extent::default();
        let setups = setups("zen5", 64 << 30);
        let Need { begun, whole, .. } = need(&setups[0], none);
        assert_eq!(said(&setups, none, limit(whole, false)), "");
        let one = said(&setups, none, limit(whole - 1, false));
        assert!(one.contains("machine zen5 with 64.0 GB") && one.contains("--memory"), "{one}");
        assert!(one.contains("are left of the system"), "{one}");
        // Where what is not written to counts, two take twice as much at once.
        assert_eq!(setups.len(), 2);
        let two = said(&setups, none, limit(2 * whole - 1, true));
        assert!(two.contains("2 rows at once"), "{two}");
        assert_eq!(said(&setups, none, limit(2 * whole, true)), "");
        let many: Vec<Setup> = setups.iter().cycle().take(200).cloned().collect();
        assert!(begun * 200 > whole, "else this tests nothing");
        let timed = Watch { sample_seconds: Some(1.0), ..Watch::default() };
        let alone = check_memory(&many, &timed, none, &limit(whole, false)).unwrap_err().to_string();
        assert!(alone.contains("200 rows at once"), "{alone}");
        assert_eq!(said(&many, none, limit(whole, false)), "", "they share two kernels");
        // A stream that says how much it touches.
        let extent = Extent { pages: 1 << 24, mappings: 1 << 20 };
        assert_eq!(said(&setups, extent, limit(16 * whole, false)), "");
        let touches = said(&setups, extent, limit(2 * whole, false));
        assert!(touches.contains("for what the program touches"), "{touches}");
        let extent = Extent { pages: u64::MAX, mappings: 0 };
        let most = need(&setups[0], extent).program;
        let pages = 3 * (16 << 20);
        let nodes = (pages / 512 + pages / 512 / 512) * NODE_BYTES;
        assert_eq!(most, pages * (PAGE_BYTES + PLACE_BYTES) + nodes, "memory and swap space hold no more");
    }

    #[test]
    fn a_frame_takes_what_is_said() {
        for setup in [setups("zen5", 4 << 30), setups("zen5+tailored", 4 << 30)].concat() {
            let more = (EXTENT_BYTES * extents(&setup, setup.frames)).div_ceil(setup.frames);
            let Setup { ladder, frames, policy, .. } = setup;
            let held = |frames| {
                Vm::new(Config { ladder, frames, policy: policy.clone(), swap_pages: 0 }).unwrap().metadata_bytes()
                    as u64
            };
            let each = (held(frames) - held(frames / 2)).div_ceil(frames / 2);
            // Page lists, with some 5 bytes a page, are empty yet.
            assert!((2..=FRAME_BYTES + more - 5).contains(&each), "{each} bytes a frame");
        }
    }
}
