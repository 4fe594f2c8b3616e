//! Runs of a stream ask for all that its accesses would ask for: the crate, given one request for
//! each run, against the naive model, given every access, on all machines.

use crate::naive::Naive;
use crate::{ACCESSES, machines, mapped};
use proptest::prelude::*;
use superpage_mmu::{Machine, Mmu, Request, Serves};
use superpage_pages::{Access, Mapped, PageSize, Protection, Vpn};
use superpage_trace::{Batch, RunBuilder, TRACE_PAGE_SHIFT};

/// Whether runs are exact there: no level that encloses nearer ones serves data and fetches, and
/// none that is the first to be asked, see `Run`. A TLB of ranges serves both, and is asked first
/// by stores that have no TLB of the first level. A first-level TLB with pointers to page tables
/// serves its accesses, and the walks of all others.
fn is_exact(machine: &Machine) -> bool {
    let first = |access: Access| {
        let serves = |serves: Serves| match access {
            Access::Read => matches!(serves, Serves::Data | Serves::Load | Serves::Unified),
            Access::Write => matches!(serves, Serves::Data | Serves::Store | Serves::Unified),
            Access::Execute => matches!(serves, Serves::Instruction | Serves::Unified),
        };
        machine.tlb.iter().any(|tlb| tlb.level == 1 && serves(tlb.serves))
    };
    let pointers = machine.walk_cache.iter().filter_map(|cache| machine.within(cache));
    machine.tlb.iter().all(|tlb| !(tlb.inclusive && tlb.serves == Serves::Unified))
        && pointers.into_iter().all(|tlb| tlb.level > 1)
        && (machine.range_tlb.is_none() || crate::ACCESSES.into_iter().all(first))
}

/// Pages of 4 KB of data and, behind them, of code.
const DATA: u64 = 160;
const CODE: u64 = 48;

/// One address, and how a program goes on around there: more accesses to the page by kinds in turn,
/// fetches between.
#[derive(Clone, Copy, Debug)]
struct Visit {
    page: u64,
    kinds: u16,
    accesses: u8,
    fetched: u64,
}

fn visits() -> impl Strategy<Value = Vec<Visit>> {
    let page = prop_oneof![3 => 0u64..24, 2 => 0u64..DATA];
    let visit = (page, any::<u16>(), 1u8..14, 0u64..CODE);
    let visit = visit.prop_map(|(page, kinds, accesses, fetched)| Visit { page, kinds, accesses, fetched });
    prop::collection::vec(visit, 1..400)
}

/// The accesses of the visits, each with its page of 4 KB; code lies behind the data.
fn accesses(visits: &[Visit]) -> Vec<(Access, u64)> {
    let mut accesses = Vec::new();
    for visit in visits {
        for number in 0..visit.accesses {
            let kind = if visit.kinds >> number & 1 == 0 { Access::Read } else { Access::Write };
            accesses.push((kind, visit.page));
            if visit.kinds >> number & 4 != 0 {
                accesses.push((Access::Execute, DATA + (visit.fetched + u64::from(number) * 7) % CODE));
            }
        }
    }
    accesses
}

fn check(machine: &Machine, visits: &[Visit], sizes: &[usize]) {
    let (mut naive, mut mmu) = (Naive::new(machine), Mmu::new(machine));
    let shift = machine.pages.sizes[0].shift() - TRACE_PAGE_SHIFT;
    // Stretches of 64 KB in base pages, pages of 64 KB, or of 2 MB (one for each stretch of the
    // program); the first write to each page traps. Addresses are spread so that every stretch has
    // 2 MB to itself.
    let place = |page: u64| (page / 16 * 512 + page % 16) >> shift;
    let rungs: Vec<PageSize> = machine.pages.sizes.iter().copied().filter(|size| size.bytes() <= 2 << 20).collect();
    for stretch in 0..(DATA + CODE) / 16 {
        let size = rungs[sizes[stretch as usize % sizes.len()] % rungs.len()];
        let start = place(stretch * 16);
        for at in (start..start + (16 >> shift)).step_by(naive.pages(size) as usize) {
            let to = mapped(0, at, size, Protection::READ_EXECUTE);
            naive.enter(0, at, to, Access::Read);
            mmu.enter(0, Vpn(at), to, Access::Read);
        }
    }
    let (mut builder, mut batch) = (RunBuilder::new(), Batch::default());
    for (access, page) in accesses(visits) {
        let page = place(page);
        if naive.access(page, access).is_some() {
            let (first, _) = naive.mapping(0, page).unwrap();
            naive.protect(0, first, Protection::ALL);
            naive.retry(page, access);
        }
        let address = page << shift << TRACE_PAGE_SHIFT;
        match access {
            Access::Read => builder.read(&mut batch, address, 1),
            Access::Write => builder.write(&mut batch, address, 1),
            Access::Execute => builder.fetch(&mut batch, address, 1),
        }
    }
    builder.close(&mut batch);
    let requests: Vec<Request> =
        batch.runs.iter().map(|run| Request::new(Vpn(run.page() >> shift), run.access())).collect();
    let mut left = &requests[..];
    while let Some((index, _)) = mmu.run(left) {
        let Mapped { size, .. } = mmu.lookup(0, left[index].page()).unwrap();
        let pages = naive.pages(size);
        mmu.protect(0, Vpn(left[index].page().0 / pages * pages), size, Protection::ALL);
        assert_eq!(mmu.retry(left[index]), Ok(()));
        left = &left[index + 1..];
    }
    let (ours, naive_counts) = (mmu.counters(0), &naive.counts);
    for level in 0..machine.tlb_levels() {
        for access in ACCESSES {
            // Where no TLB of the level serves an access, every one goes by, and their number says
            // nothing.
            if machine.tlb.iter().any(|tlb| tlb.level == level + 1 && Naive::serves(tlb, access)) {
                let (misses, expected) = (ours.misses(level, access), naive_counts.misses[level][access as usize]);
                assert_eq!(misses, expected, "{}: {access:?} misses in level {}", machine.name, level + 1);
            }
        }
    }
    assert_eq!(ours.walk_memory_references(), naive_counts.walk_references, "{}: walk references", machine.name);
    assert_eq!(ours.line_hits, naive_counts.line_hits, "{}: line hits", machine.name);
    assert_eq!(ours.use_bits, naive_counts.use_bits, "{}: use bits", machine.name);
    let held: Vec<_> = mmu.held(0).iter().map(|held| (held.tlb, held.contents, held.size, held.entries)).collect();
    assert_eq!(held, naive.held(), "{}", machine.name);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_request_for_each_run_is_enough(visits in visits(), sizes in prop::collection::vec(0usize..3, 20)) {
        for machine in machines().iter().filter(|machine| is_exact(machine)) {
            check(machine, &visits, &sizes);
        }
    }
}

#[test]
fn a_store_and_then_a_load_ask_two_tlbs() {
    // More pages than either first level of Golden Cove holds, in four rounds.
    let visit = |page| Visit { page, kinds: 1, accesses: 2, fetched: 0 };
    let visits: Vec<Visit> = (0..4).flat_map(|_| (0..DATA).map(visit)).collect();
    for name in ["golden-cove", "harpertown"] {
        check(&Machine::builtin(name).unwrap(), &visits, &[0]);
    }
}
