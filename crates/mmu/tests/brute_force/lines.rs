//! Streams with lines against the naive model: the program's lines and those of page tables in the
//! same caches.

use crate::naive::{Mapping, Naive, Stop};
use crate::{ACCESSES, groups, machines, replacement};
use proptest::prelude::*;
use superpage_mmu::{GroupCounts, LineCacheSpec, Machine, Mmu, Replacement, Request, Trap, Upkeep};
use superpage_pages::{Access, Mapped, Pfn, Protection, Random, Vpn};

/// Frames that physical memory has here: few, so that lines meet.
const FRAMES: u64 = 1 << 20;

/// All machines, and some whose caches are so small that walks and data push each other out.
fn lined() -> Vec<Machine> {
    let mut all: Vec<Machine> = machines();
    all.retain(|machine| Mmu::refuses_lines(machine, 1 << 30).is_none());
    let small = |cache: &mut LineCacheSpec, size: u64| (cache.size, cache.ways) = (size, 2);
    for (name, streams, own) in [("zen5", 2, true), ("golden-cove", 0, false), ("zen4+nested", 1, true)] {
        let mut machine = Machine::builtin(name).unwrap();
        machine.name = format!("{name} with small caches");
        machine.memory.streams = streams;
        machine.line_cache.iter_mut().zip([1 << 10, 4 << 10, 16 << 10]).for_each(|(cache, size)| small(cache, size));
        machine.instruction_cache.iter_mut().for_each(|cache| small(cache, 1 << 10));
        machine.instruction_cache.take_if(|_| !own);
        all.push(machine);
    }
    // Any replacement in all caches, whatever reads page tables.
    for (number, replacement) in Replacement::ALL.iter().enumerate() {
        let name = ["zen5", "zen4+nested", "skylake-sp+perforated"][number % 3];
        let mut machine = Machine::builtin(name).unwrap();
        machine.name = format!("{name} with {} in all caches", replacement.name());
        let ways = replacement::nearest(*replacement, 3);
        for (cache, sets) in machine.line_cache.iter_mut().chain(&mut machine.instruction_cache).zip([8, 12, 64, 4]) {
            (cache.replacement, cache.ways, cache.size) = (*replacement, ways, (sets * ways * 64) as u64);
        }
        all.push(machine);
    }
    // Lines of 128 bytes, two of the stream.
    let mut wide = Machine::builtin("neoverse-v2").unwrap();
    (wide.name, wide.memory.line_bytes) = ("lines of 128 bytes".into(), 128);
    wide.line_cache.iter_mut().chain(&mut wide.instruction_cache).for_each(|cache| small(cache, 8 << 10));
    all.push(wide);
    all
}

fn check(machine: &Machine, seed: u64, steps: usize) {
    check_with(machine, None, seed, steps);
}

/// The same where an operating system keeps a hash table of groups up to date.
pub(crate) fn check_with(machine: &Machine, upkeep: Option<Upkeep>, seed: u64, steps: usize) -> GroupCounts {
    let (mut mmu, mut naive, mut random) = (Mmu::new(machine), Naive::new(machine), Random::new(seed));
    if let Some(upkeep) = &upkeep {
        groups::begin(&mut mmu, &mut naive, upkeep);
    }
    let base = machine.pages.sizes[0];
    let programs = |((space, _), _): &(&(u32, u64), &Mapping)| *space < 2;
    let lines = base.bytes() / 64;
    for _ in 0..steps {
        if upkeep.is_some() {
            groups::step(&mut mmu, &mut naive, &mut random);
        }
        let space = random.below(2) as u32;
        match random.below(9) {
            0..3 => {
                let size = machine.pages.sizes[random.below(machine.pages.sizes.len() as u64) as usize];
                let pages = naive.pages(size);
                if pages > FRAMES {
                    continue;
                }
                let at = random.below(1 << 20) / pages * pages;
                let free = (at..at + pages).step_by(512).chain([at + pages - 1]);
                let used = naive.mappings.range((space, at)..(space, at + pages)).next().is_some();
                if used || free.into_iter().any(|page| naive.mapping(space, page).is_some()) {
                    continue;
                }
                let frame = Pfn(random.below(FRAMES / pages) * pages);
                let to = Mapped { frame, size, protection: Protection::ALL };
                naive.enter(space, at, to, Access::Read);
                mmu.enter(space, Vpn(at), to, Access::Read);
            }
            3 => {
                let nth = random.below(naive.mappings.len().max(1) as u64) as usize;
                if let Some((&(space, at), mapping)) = naive.mappings.iter().filter(programs).nth(nth) {
                    let size = mapping.size;
                    naive.remove(space, at);
                    mmu.remove(space, Vpn(at), size);
                }
            }
            // Rights that some accesses trap on.
            4 => {
                let nth = random.below(naive.mappings.len().max(1) as u64) as usize;
                if let Some((&(space, at), mapping)) = naive.mappings.iter().filter(programs).nth(nth) {
                    let size = mapping.size;
                    naive.protect(space, at, Protection::READ);
                    mmu.protect(space, Vpn(at), size, Protection::READ);
                }
            }
            5 => {
                naive.switch(space);
                mmu.switch(space);
            }
            _ => burst(&mut mmu, &mut naive, &mut random, (machine, lines)),
        }
        let (ours, theirs) = (mmu.counters(0), naive.counts);
        for level in 0..machine.tlb_levels() {
            let misses = ACCESSES.map(|access| ours.misses(level, access));
            assert_eq!(misses, theirs.misses[level], "{}: misses in level {}", machine.name, level + 1);
        }
        assert_eq!(ours.program_lines, theirs.program_lines, "{}: lines of the program", machine.name);
        assert_eq!(ours.line_hits, theirs.line_hits, "{}: lines of page tables", machine.name);
        assert_eq!(ours.line_misses, theirs.line_misses, "{}: lines of page tables", machine.name);
        assert_eq!(ours.groups, naive.groups.as_ref().map_or(GroupCounts::default(), |groups| groups.counts));
        mmu.validate().unwrap_or_else(|error| panic!("{}: {error}", machine.name));
    }
    mmu.counters(0).groups
}

/// Accesses to lines of some pages, also one after the other.
fn burst(mmu: &mut Mmu, naive: &mut Naive, random: &mut Random, (machine, lines): (&Machine, u64)) {
    let space = naive.space;
    let range = naive.mappings.range((space, 0)..(space + 1, 0));
    let near: Vec<(u64, u64)> = range.map(|((_, at), mapping)| (*at, naive.pages(mapping.size))).collect();
    let (mut requests, mut places) = (Vec::new(), Vec::new());
    let (mut page, mut line) = (0, 0);
    for _ in 0..random.below(400) {
        line += 1;
        if line == lines || random.below(3) == 0 {
            line = random.below(lines);
            page = if near.is_empty() || random.below(60) == 0 {
                random.below(1 << 20)
            } else {
                let (at, pages) = near[random.below(near.len() as u64) as usize];
                at + random.below(pages.min(16))
            };
        }
        let access = [Access::Read, Access::Read, Access::Write, Access::Execute][random.below(4) as usize];
        requests.push(Request::new(Vpn(page), access));
        places.push(line as u32);
    }
    let mut done = 0;
    while done < requests.len() {
        let stopped = mmu.run_lines(&requests[done..], &places[done..]);
        let upto = stopped.map_or(requests.len(), |(index, _)| done + index);
        for (request, line) in requests[done..upto].iter().zip(&places[done..upto]) {
            let stop = naive.access_line(request.page().0, u64::from(*line), request.access());
            assert_eq!(stop, None, "{request:?}");
        }
        done = upto;
        let Some((_, trap)) = stopped else { return };
        let (request, line) = (requests[done], places[done]);
        done += 1;
        let (page, access) = (request.page().0, request.access());
        let stop = naive.access_line(page, u64::from(line), access);
        assert_eq!(mmu.retry_line(request, line), Err(trap));
        // Where the kernel does nothing, as when it kills a process, the line is not accessed.
        let mends = random.below(4) > 0;
        match trap {
            Trap::Absent => {
                assert_eq!(stop, Some(Stop::Absent), "{request:?}");
                if mends {
                    let frame = Pfn(random.below(FRAMES));
                    let to = Mapped { frame, size: machine.pages.sizes[0], protection: Protection::ALL };
                    naive.enter(space, page, to, access);
                    mmu.enter(space, Vpn(page), to, access);
                }
            }
            Trap::Rights { .. } => {
                assert_eq!(stop, Some(Stop::Rights), "{request:?}");
                let (first, mapping) = naive.mapping(space, page).unwrap();
                if mends {
                    naive.protect(space, first, Protection::ALL);
                    mmu.protect(space, Vpn(first), mapping.size, Protection::ALL);
                }
            }
        }
        if mends {
            if naive.groups.is_some() {
                assert_eq!(naive.access_line(page, u64::from(line), access), None);
            } else {
                naive.retry(page, access);
                naive.line(page, u64::from(line), access);
            }
            assert_eq!(mmu.retry_line(request, line), Ok(()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_of_programs_and_of_page_tables_share_caches(which in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let machines = lined();
        check(&machines[which.index(machines.len())], seed, 30);
    }
}

/// Every machine once.
#[test]
fn lines_are_counted_on_every_machine() {
    lined().iter().enumerate().for_each(|(seed, machine)| check(machine, seed as u64 + 1, 30));
}
