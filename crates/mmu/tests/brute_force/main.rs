//! The crate against the most naive model of the same hardware: miss for miss, level by level, over
//! random sequences of accesses, table operations and switches on every built-in machine and on
//! made-up ones.

mod cache;
mod clustered;
mod cores;
mod groups;
mod host;
mod hosted;
mod index;
mod joins;
mod lines;
mod machines;
mod naive;
mod perforated;
mod ranges;
mod reach;
mod replacement;
mod runs;
mod shadow;
mod skewed;
mod together;
mod victima;

use machines::{
    machines, selecting, with_another_index, with_another_second_level, with_another_walker, with_other_costs,
};
use naive::{Naive, Stop};
use proptest::prelude::*;
use superpage_mmu::{Counters, Host, Index, Machine, Replacement, Request, Trap};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};
use together::Together;

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Execute];

/// The frame of a page: contiguous wherever pages are, so that any promotion is possible.
fn frame(space: u32, page: u64) -> Pfn {
    Pfn(page + (space as u64) * (1 << 40))
}

/// A page, mapped to its frame.
fn mapped(space: u32, page: u64, size: PageSize, protection: Protection) -> Mapped {
    Mapped { frame: frame(space, page), size, protection }
}

/// Where a base page is: in a row with others, or a few blocks or a few frames off.
fn scattered(space: u32, page: u64, luck: u64) -> Pfn {
    let off = match luck % 8 {
        0..4 => 0,
        4 => 1 << 20,
        5 => (1 << 21) + 1 + luck % 3,
        6 => 16 * (1 + luck % 5),
        _ => 4,
    };
    Pfn(frame(space, page).0 + off)
}

/// Both models, and what keeps them in step. The naive one is of the first machine.
struct Pair {
    mmu: Together,
    naive: Naive,
    machine: Machine,
    state: u64,
    /// Whether frames of base pages are not always in a row, and how those entered now are.
    scatters: bool,
    luck: u64,
}

impl Pair {
    fn new(machines: &[Machine], seed: u64) -> Pair {
        let (machine, mmu) = (machines[0].clone(), Together::new(machines));
        let ranged = machine.range_tlb.is_some();
        let scatters = ranged || machine.perforated.is_some() || machine.tlb.iter().any(|tlb| tlb.joins.is_some());
        Pair { mmu, naive: Naive::new(&machine), machine, state: seed | 1, scatters, luck: 0 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 20) % below
    }

    fn pages(&self, size: PageSize) -> u64 {
        self.naive.pages(size)
    }

    /// A page of the playing field: a few stretches far apart, some beyond the reach of the tree.
    fn page(&mut self) -> u64 {
        let far = [0, 1 << 18, 1 << 27, 0x7_ffff_f000, 0xf_ffff_ffff_0000][self.random(5) as usize];
        far + self.random(5) * 512 + self.random(2) * self.random(512)
    }

    fn protection(&mut self) -> Protection {
        [Protection::ALL, Protection::ALL, Protection::READ_WRITE, Protection::READ_EXECUTE][self.random(4) as usize]
    }

    fn free(&self, space: u32, at: u64, pages: u64) -> bool {
        self.naive.mapping(space, at).is_none()
            && self.naive.mappings.range((space, at)..(space, at + pages)).next().is_none()
    }

    fn enter(&mut self, space: u32, at: u64, to: Mapped, access: Access) {
        let mut to = to;
        if self.scatters && to.size == self.machine.pages.sizes[0] {
            to.frame = scattered(space, at, self.luck);
        }
        // Some that nobody touches; the stream stays what it was.
        if access == Access::Read && (at >> 2).is_multiple_of(5) {
            self.naive.enter_used(space, at, to, (false, false));
            self.mmu.enter_untouched(space, Vpn(at), to);
        } else {
            self.naive.enter(space, at, to, access);
            self.mmu.enter(space, Vpn(at), to, access);
        }
        self.back();
    }

    /// Any mapping of any space.
    fn any(&mut self) -> Option<(u32, u64, naive::Mapping)> {
        let count = self.naive.mappings.len() as u64;
        if count == 0 {
            return None;
        }
        let nth = self.random(count) as usize;
        self.naive.mappings.iter().nth(nth).map(|((space, at), mapping)| (*space, *at, *mapping))
    }

    fn step(&mut self, choice: u8) {
        let sizes = self.machine.pages.sizes.clone();
        if self.scatters {
            self.luck = self.random(1 << 10);
        }
        match choice {
            0..8 => self.burst(),
            8..11 => {
                // A single page of any size.
                let size = sizes[self.random(sizes.len() as u64) as usize];
                let (space, pages) = (self.random(4) as u32, self.pages(size));
                let at = self.page() / pages * pages;
                if self.free(space, at, pages) {
                    let (protection, access) = (self.protection(), ACCESSES[self.random(3) as usize]);
                    self.enter(space, at, mapped(space, at, size, protection), access);
                }
            }
            11..13 if sizes.len() > 1 => {
                // An extent full of smaller pages, which can be promoted.
                let level = self.random(sizes.len().min(10) as u64 - 1) as usize;
                let (space, small, large) = (self.random(4) as u32, sizes[level], sizes[level + 1]);
                let (pages, protection) = (self.pages(large), self.protection());
                let at = self.page() / pages * pages;
                if pages <= 512 && self.free(space, at, pages) {
                    let changes = self.scatters && self.random(3) == 0;
                    for part in (at..at + pages).step_by(self.pages(small) as usize) {
                        if changes && self.random(6) == 0 {
                            self.luck = self.random(1 << 10);
                        }
                        self.enter(space, part, mapped(space, part, small, protection), Access::Read);
                    }
                }
            }
            11..13 => {}
            13 => (0..20).for_each(|_| self.promote()),
            14 => {
                if let Some((space, at, mapping)) = self.any()
                    && mapping.size > sizes[0]
                    && self.pages(mapping.size) <= 512
                {
                    let smaller: Vec<PageSize> = sizes.iter().copied().filter(|size| *size < mapping.size).collect();
                    let to = smaller[self.random(smaller.len() as u64) as usize];
                    self.naive.demote(space, at, mapping.size, to);
                    self.mmu.demote(space, Vpn(at), mapping.size, to);
                    // Some are unmapped part by part right away.
                    let some = if self.random(4) == 0 { self.random(self.pages(mapping.size)) } else { 0 };
                    for part in (at..at + some).step_by(self.pages(to) as usize) {
                        self.naive.remove(space, part);
                        self.mmu.remove(space, Vpn(part), to);
                    }
                }
            }
            15 => {
                for _ in 0..self.random(64) {
                    if let Some((space, at, mapping)) = self.any() {
                        let (expected, used) =
                            (self.naive.remove(space, at), self.mmu.remove(space, Vpn(at), mapping.size));
                        assert_eq!((used.referenced, used.modified), (expected.referenced, expected.dirty));
                    }
                }
            }
            16 => {
                if let Some((space, at, mapping)) = self.any() {
                    let protection = self.protection();
                    self.naive.protect(space, at, protection);
                    self.mmu.protect(space, Vpn(at), mapping.size, protection);
                }
            }
            17 => {
                if let Some((space, at, mapping)) = self.any() {
                    let used = self.mmu.used(space, Vpn(at), mapping.size);
                    assert_eq!((used.referenced, used.modified), (mapping.referenced, mapping.dirty));
                    let cleared = self.mmu.clear_referenced(space, Vpn(at), mapping.size);
                    assert_eq!(cleared, self.naive.clear(space, at, false));
                    let cleared = self.mmu.clear_modified(space, Vpn(at), mapping.size);
                    assert_eq!(cleared, self.naive.clear(space, at, true));
                }
            }
            18 => {
                let space = self.random(6) as u32;
                self.naive.switch(space);
                self.mmu.switch(space);
            }
            _ => {
                let space = self.random(6) as u32;
                if self.random(8) == 0 {
                    self.naive.flush(space);
                    self.mmu.flush(space);
                    let of = |key: &&(u32, u64)| key.0 == space;
                    let all: Vec<(u32, u64)> = self.naive.mappings.keys().filter(of).copied().collect();
                    for (space, at) in all {
                        let mapping = self.naive.remove(space, at);
                        self.mmu.remove(space, Vpn(at), mapping.size);
                    }
                }
                if !self.naive.mappings.keys().any(|key| key.0 == space) {
                    self.naive.destroy(space);
                    self.mmu.destroy(space);
                }
            }
        }
    }

    /// Promotes an extent whose mappings allow it.
    fn promote(&mut self) {
        let Some((space, at, first)) = self.any() else { return };
        let sizes = self.machine.pages.sizes.clone();
        let larger: Vec<PageSize> = sizes.iter().copied().filter(|size| *size > first.size).collect();
        if larger.is_empty() {
            return;
        }
        let to = larger[self.random(larger.len() as u64) as usize];
        let at = at / self.pages(to) * self.pages(to);
        let parts = (at..at + self.pages(to)).step_by(self.pages(first.size) as usize);
        let fits = |part: u64| {
            let mapping = self.naive.mappings.get(&(space, part));
            let frame = frame(space, part).0;
            mapping
                .is_some_and(|part| (part.size, part.protection, part.frame) == (first.size, first.protection, frame))
        };
        if self.pages(to) <= 512 && parts.clone().all(fits) {
            self.naive.promote(space, at, first.size, to);
            self.mmu.promote(space, Vpn(at), first.size, to);
        }
    }

    /// Some hundred accesses to what the current space maps and a few to what it does not.
    fn burst(&mut self) {
        let space = self.naive.space;
        let near: Vec<(u64, u64)> = {
            let range = self.naive.mappings.range((space, 0)..(space + 1, 0));
            range.map(|((_, at), mapping)| (*at, self.pages(mapping.size))).collect()
        };
        let mut requests = Vec::new();
        let hot = 1 + self.random(400);
        for _ in 0..self.random(600) {
            let page = if near.is_empty() || self.random(100) == 0 {
                self.page()
            } else {
                let (at, pages) = near[(self.random(hot) * 7919 % near.len() as u64) as usize];
                at + self.random(pages)
            };
            let access = [Access::Read, Access::Read, Access::Write, Access::Execute][self.random(4) as usize];
            requests.push(Request::new(Vpn(page), access));
        }
        let mut done = 0;
        while done < requests.len() {
            let stopped = self.mmu.run(&requests[done..]);
            let upto = stopped.map_or(requests.len(), |(index, _)| done + index);
            for request in &requests[done..upto] {
                let stop = self.naive.access(request.page().0, request.access());
                assert_eq!(stop, None, "{request:?}");
            }
            done = upto;
            if let Some((_, trap)) = stopped {
                self.trap(requests[done], trap);
                done += 1;
            }
        }
    }

    fn trap(&mut self, request: Request, trap: Trap) {
        let (page, access, space) = (request.page().0, request.access(), self.naive.space);
        let stop = self.naive.access(page, access);
        match trap {
            Trap::Absent => {
                assert_eq!(stop, Some(Stop::Absent), "{request:?}");
                assert_eq!(self.mmu.retry(request), Err(trap));
                if self.random(8) == 0 {
                    return;
                }
                self.enter(space, page, mapped(space, page, self.machine.pages.sizes[0], Protection::ALL), access);
            }
            Trap::Rights { held } => {
                assert_eq!(stop, Some(Stop::Rights), "{request:?}");
                let (first, mapping) = self.naive.mapping(space, page).unwrap();
                assert_eq!(held, mapping.protection);
                self.naive.protect(space, first, Protection::ALL);
                self.mmu.protect(space, Vpn(first), mapping.size, Protection::ALL);
            }
        }
        self.naive.retry(page, access);
        assert_eq!(self.mmu.retry(request), Ok(()));
    }

    fn compare(&mut self) {
        let (ours, naive, naive_peak) = (self.mmu.counters(), self.naive.counts, self.naive.peak);
        assert_eq!(ours.references, naive.references);
        for level in 0..self.machine.tlb_levels() {
            let misses = ACCESSES.map(|access| ours.misses(level, access));
            assert_eq!(misses, naive.misses[level], "misses in level {}", level + 1);
        }
        assert_eq!(ours.walk_memory_references(), naive.walk_references, "walk references");
        assert_eq!(ours.walk_cache_hits, naive.walk_cache_hits, "walk cache hits");
        assert_eq!(ours.host_walk_cache_hits, naive.host_walk_cache_hits, "walk cache hits of the host");
        assert_eq!(ours.line_hits, naive.line_hits, "line hits");
        assert_eq!(ours.line_misses, naive.line_misses, "line misses");
        assert_eq!(ours.use_bits, naive.use_bits, "use bits");
        assert_eq!(ours.use_bit_entries, naive.use_bit_entries, "entries of use bits");
        assert_eq!(ours.shootdowns, naive.shootdowns, "shootdowns");
        assert_eq!(ours.shootdown_entries, naive.shootdown_entries, "entries shot down");
        assert_eq!(ours.flushes, naive.flushes, "flushes");
        assert_eq!(self.mmu.peak_page_table_bytes(), naive_peak, "bytes of page tables");
        if self.state.is_multiple_of(8) {
            self.mmu.restart_page_table_peak();
            self.naive.peak = self.naive.table_bytes();
        }
        let held: Vec<_> =
            self.mmu.held().iter().map(|held| (held.tlb, held.contents, held.size, held.entries)).collect();
        assert_eq!(held, self.naive.held());
        assert_eq!(self.mmu.ranges_held(), self.naive.ranges_held());
        for _ in 0..8 {
            let (space, page) = (self.random(4) as u32, self.page());
            let expected = self.naive.mapping(space, page).map(|(first, m)| Mapped {
                frame: Pfn(m.frame + (page - first)),
                size: m.size,
                protection: m.protection,
            });
            assert_eq!(self.mmu.lookup(space, Vpn(page)), expected);
            assert_eq!(self.mmu.held_around(Vpn(page)), self.naive.held_around(page), "{page:#x}");
        }
        self.mmu.validate().unwrap_or_else(|error| panic!("{error}"));
    }
}

fn check(machines: &[Machine], seed: u64, steps: &[u8]) -> Counters {
    let mut pair = Pair::new(machines, seed);
    for step in steps {
        pair.step(*step);
        pair.compare();
    }
    pair.mmu.counters()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn counts_are_those_of_the_naive_model(
        which in 0..machines().len(),
        seed: u64,
        steps in prop::collection::vec(0u8..20, 1..120),
    ) {
        check(&machines()[which..=which], seed, &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Any index function with any replacement, in sets of any size that it takes; on metal, or as
    /// a guest.
    #[test]
    fn any_index_with_any_replacement(
        (index, replacement) in (prop::sample::select(Index::ALL), prop::sample::select(replacement::all())),
        (bits, ways) in (0u32..7, 1usize..17),
        guest: bool,
        seed: u64,
        steps in prop::collection::vec(0u8..20, 1..80),
    ) {
        // Skewed ones have LRU, at least four sets, and no host.
        let skewed = index == Index::Skewed;
        let (replacement, bits) = if skewed { (Replacement::Lru, bits.max(2)) } else { (replacement, bits) };
        let ways = replacement::nearest(replacement, ways);
        let mut machine = selecting(index, replacement, 1 << bits, ways);
        machine.host = (guest && !skewed).then(Host::default);
        check(&[machine], seed, &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Machines that run the same are one [`superpage_mmu::Mmu`], and each has the counts that it
    /// has alone: those of the box and made-up ones with the same page tables, some with the same
    /// TLBs, some with the same first level, some with another; of the first two also with other
    /// walkers and other costs.
    #[test]
    fn machines_count_together_as_alone(
        which in 0..machines().len(),
        seed: u64,
        steps in prop::collection::vec(0u8..20, 1..80),
    ) {
        let machines = machines();
        let first = &machines[which];
        if !first.shares_mappings(first) {
            return Ok(());
        }
        let second = with_another_second_level(first);
        let mut group = vec![first.clone(), second.clone(), with_another_index(first)];
        group.extend([first, &second].map(with_another_walker));
        group.extend([first, &second].map(with_other_costs));
        let alike = machines.iter().filter(|other| first.shares_mappings(other) && other.name != first.name);
        group.extend(alike.skip(seed as usize % 5).step_by(3).take(4).cloned());
        check(&group, seed, &steps);
    }
}

/// Long streams on each machine, so that none depends on the luck of the generator; in two halves,
/// for two processors.
fn agree_over_a_long_stream(half: usize) {
    for machine in machines().iter().skip(half).step_by(2) {
        println!("{}", machine.name);
        let mut steps = vec![11, 11, 8, 8, 0, 0, 12, 13, 0, 14, 0];
        let mut state = 1u64;
        for _ in 0..280 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            steps.push((state >> 33) as u8 % 20);
        }
        let counters = check(std::slice::from_ref(machine), 42, &steps);
        // The stream has gone where it matters.
        assert!(counters.tlb_misses() > 1000 && counters.level_hits(0) > 1000, "{counters:?}");
        assert!(machine.tlb_levels() == 1 || counters.level_hits(1) > 100, "{counters:?}");
        // Where entries hold several pages, fewer are dropped; where frames are not in a row, fewer
        // pages are promoted.
        let joined = machine.range_tlb.is_some()
            || machine.perforated.is_some()
            || machine.tlb.iter().any(|tlb| tlb.joins.is_some());
        // A node of one mapping is one word of a promotion.
        let promoted = if machine.clustered.is_some() { 20 } else { 100 };
        let dropped = if joined { 20 } else { 100 };
        let promoted = counters.pte_traversals > promoted || machine.pages.sizes.len() == 1;
        assert!(counters.shootdown_entries > dropped && promoted, "{counters:?}");
        assert!(machine.spaces.number_bits > 1 || counters.flushes > 1, "{counters:?}");
    }
}

#[test]
fn every_second_machine_agrees_over_a_long_stream() {
    agree_over_a_long_stream(0);
}

#[test]
fn every_other_machine_agrees_over_a_long_stream() {
    agree_over_a_long_stream(1);
}

/// 200 000 accesses to pages of all sizes, far more than the TLBs hold, with nothing else in
/// between: fully associative with 128 entries, round-robin and LRU, and set associative in two
/// levels.
#[test]
fn mixed_sizes_miss_alike_for_long() {
    let wanted = ["alpha-21264", "alpha-21264 lru", "skylake-sp", "neoverse-v2", "xor lru 32 x 4"];
    for machine in machines().iter().filter(|machine| wanted.contains(&machine.name.as_str())) {
        let mut pair = Pair::new(std::slice::from_ref(machine), 7);
        let sizes: Vec<PageSize> = machine.pages.sizes.iter().copied().filter(|size| size.bytes() <= 4 << 20).collect();
        for stretch in 0..120u64 {
            let (size, start) = (sizes[stretch as usize % sizes.len()], stretch << 12);
            let pages = pair.pages(size);
            for at in (start..start + 16.max(pages)).step_by(pages as usize) {
                pair.enter(0, at, mapped(0, at, size, Protection::ALL), Access::Read);
            }
        }
        for _ in 0..200 {
            let requests: Vec<Request> = (0..1000)
                .map(|_| {
                    let page = pair.random(120) << 12 | pair.random(16);
                    Request::new(Vpn(page), ACCESSES[pair.random(3) as usize])
                })
                .collect();
            assert_eq!(pair.mmu.run(&requests), None);
            for request in requests {
                assert_eq!(pair.naive.access(request.page().0, request.access()), None);
            }
            pair.compare();
        }
        assert!(pair.mmu.counters().tlb_misses() > 10_000, "{}: {:?}", machine.name, pair.mmu.counters());
    }
}
