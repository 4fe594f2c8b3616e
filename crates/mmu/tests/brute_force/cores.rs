//! Several cores against naive ones, of which each has everything of its own but the mappings:
//! random operations of several spaces. A shootdown interrupts the hardware threads that run the
//! space and no other; one that comes back to a space that has changed drops all of it.

use crate::machines::machines;
use crate::mapped;
use crate::naive::{Mapping, Naive, Stop};
use proptest::prelude::*;
use std::collections::BTreeMap;
use superpage_mmu::{Machine, Mmu, Request, Trap};
use superpage_pages::{Access, Mapped, PageSize, Protection, Random, Vpn};

const CORES: usize = 3;
const SPACES: u64 = 4;

/// Both models. All naive cores see all changes.
struct Cores {
    mmu: Mmu,
    naive: Vec<Naive>,
    machine: Machine,
    random: Random,
    /// The hardware threads of a core, and the one that goes on, those of a core side by side.
    siblings: usize,
    at: usize,
    /// What each runs: nothing at first, and after its space has ended.
    runs: Vec<Option<u32>>,
    /// The announced changes of each space, and those that each had seen when it left it.
    changes: BTreeMap<u32, u64>,
    seen: BTreeMap<(usize, u32), u64>,
    /// The core that has what each group of cores shares of each line cache.
    holders: BTreeMap<(usize, usize), usize>,
    /// Shootdowns sent and received, and late flushes.
    expected: [u64; 3],
}

impl Cores {
    fn new(machine: &Machine, seed: u64) -> Cores {
        let mut mmu = Mmu::on_cores(&[machine]);
        if seed.is_multiple_of(2) {
            mmu.defer();
        }
        let siblings = machine.clock.threads_per_core as usize;
        let mut runs = vec![None; CORES * siblings];
        runs[0] = Some(0);
        Cores {
            mmu,
            naive: (0..CORES).map(|_| Naive::new(machine)).collect(),
            machine: machine.clone(),
            random: Random::new(seed),
            siblings,
            at: 0,
            runs,
            changes: BTreeMap::new(),
            seen: BTreeMap::new(),
            holders: BTreeMap::new(),
            expected: [0; 3],
        }
    }

    /// The core that goes on.
    fn core(&self) -> usize {
        self.at / self.siblings
    }

    fn pages(&self, size: PageSize) -> u64 {
        self.naive[0].pages(size)
    }

    fn page(&mut self) -> u64 {
        let far = [0, 1 << 18][self.random.below(2) as usize];
        far + self.random.below(4) * 512 + self.random.below(2) * self.random.below(512)
    }

    fn space(&mut self) -> u32 {
        self.random.below(SPACES) as u32
    }

    fn protection(&mut self) -> Protection {
        [Protection::ALL, Protection::ALL, Protection::READ_WRITE][self.random.below(3) as usize]
    }

    /// Any mapping of any space.
    fn any(&mut self) -> Option<(u32, u64, Mapping)> {
        let count = self.naive[0].mappings.len() as u64;
        let nth = if count == 0 { 0 } else { self.random.below(count) };
        self.naive[0].mappings.iter().nth(nth as usize).map(|((space, at), mapping)| (*space, *at, *mapping))
    }

    /// Makes a change of a space on all naive cores and in the model, and expects its shootdowns.
    fn change<T>(&mut self, space: u32, mut naive: impl FnMut(&mut Naive), ours: impl FnOnce(&mut Mmu) -> T) -> T {
        let before = self.mmu.shared().shootdowns;
        self.naive.iter_mut().for_each(&mut naive);
        let changed = ours(&mut self.mmu);
        let announced = self.mmu.shared().shootdowns - before;
        *self.changes.entry(space).or_default() += announced;
        let receives = |(thread, runs): &(usize, &Option<u32>)| *thread != self.at && **runs == Some(space);
        let receivers = self.runs.iter().enumerate().filter(receives).count() as u64;
        self.expected[0] += if receivers > 0 { announced } else { 0 };
        self.expected[1] += announced * receivers;
        changed
    }

    fn enter(&mut self, space: u32, at: u64, to: Mapped, access: Access) {
        self.change(space, |naive| naive.enter(space, at, to, access), |mmu| mmu.enter(space, Vpn(at), to, access));
    }

    fn remove(&mut self, space: u32, at: u64, size: PageSize) {
        self.change(space, |naive| _ = naive.remove(space, at), |mmu| mmu.remove(space, Vpn(at), size));
    }

    fn protect(&mut self, space: u32, at: u64, size: PageSize, rights: Protection) {
        let ours = |mmu: &mut Mmu| mmu.protect(space, Vpn(at), size, rights);
        self.change(space, |naive| naive.protect(space, at, rights), ours);
    }

    fn go_to(&mut self, thread: usize) {
        let (core, sibling) = (thread / self.siblings, thread % self.siblings);
        self.mmu.go_to(core, sibling);
        self.naive[core].go_to(sibling as u32);
        self.at = thread;
        for (cache, spec) in self.machine.line_cache.iter().enumerate().filter(|(_, spec)| spec.shared_by > 1) {
            let holder = self.holders.entry((cache, core / spec.shared_by as usize)).or_insert(core);
            if let Ok([from, to]) = self.naive.get_disjoint_mut([std::mem::replace(holder, core), core]) {
                std::mem::swap(&mut from.line_caches[cache].1, &mut to.line_caches[cache].1);
            }
        }
        if self.runs[thread].is_none() {
            let space = self.space();
            self.switch(space);
        }
    }

    fn switch(&mut self, space: u32) {
        let (changes, naive) =
            (|of| self.changes.get(&of).copied().unwrap_or(0), &mut self.naive[self.at / self.siblings]);
        match self.runs[self.at].replace(space) {
            Some(left) if left == space => return,
            Some(left) => _ = self.seen.insert((self.at, left), changes(left)),
            // That of no space.
            None => naive.space = u32::MAX,
        }
        naive.switch(space);
        if self.seen.get(&(self.at, space)).is_some_and(|seen| *seen != changes(space)) {
            naive.come_back(space);
            self.expected[2] += 1;
        }
        self.mmu.switch(space);
    }

    /// All of a space is unmapped, and its number is free.
    fn end(&mut self, space: u32) {
        for (thread, runs) in self.runs.iter_mut().enumerate() {
            *runs = runs.filter(|runs| *runs != space || thread == self.at);
        }
        self.change(space, |naive| naive.flush(space), |mmu| mmu.flush(space));
        let of = self.naive[0].mappings.range((space, 0)..(space + 1, 0));
        for (at, size) in of.map(|((_, at), mapping)| (*at, mapping.size)).collect::<Vec<_>>() {
            self.remove(space, at, size);
        }
        self.naive.iter_mut().for_each(|naive| naive.destroy(space));
        self.mmu.destroy(space);
        self.changes.remove(&space);
        self.seen.retain(|(_, of), _| *of != space);
        self.runs.iter_mut().for_each(|runs| *runs = runs.filter(|runs| *runs != space));
        self.go_to(self.at);
    }

    fn step(&mut self, choice: u8) {
        let sizes = self.machine.pages.sizes.clone();
        match choice {
            0..6 => self.burst(),
            6..9 => {
                let thread = self.random.below(self.runs.len() as u64) as usize;
                self.go_to(thread);
            }
            9..11 => {
                let space = self.space();
                self.switch(space);
            }
            11..13 => {
                // Pages side by side, which can be promoted.
                let (space, protection) = (self.space(), self.protection());
                let at = self.page() & !511;
                for page in at..at + [8, 512][self.random.below(2) as usize] {
                    if self.naive[0].mapping(space, page).is_none() {
                        self.enter(space, page, mapped(space, page, sizes[0], protection), Access::Read);
                    }
                }
            }
            13 => (0..20).for_each(|_| self.promote()),
            14 => {
                if let Some((space, at, mapping)) = self.any().filter(|(.., mapping)| mapping.size > sizes[0]) {
                    let smaller: Vec<PageSize> = sizes.iter().copied().filter(|size| *size < mapping.size).collect();
                    let to = smaller[self.random.below(smaller.len() as u64) as usize];
                    let ours = |mmu: &mut Mmu| mmu.demote(space, Vpn(at), mapping.size, to);
                    self.change(space, |naive| naive.demote(space, at, mapping.size, to), ours);
                }
            }
            15 => {
                for _ in 0..self.random.below(64) {
                    if let Some((space, at, mapping)) = self.any() {
                        self.remove(space, at, mapping.size);
                    }
                }
            }
            16 => {
                if let Some((space, at, mapping)) = self.any() {
                    let protection = self.protection();
                    self.protect(space, at, mapping.size, protection);
                }
            }
            17 => {
                if let Some((space, at, Mapping { size, referenced, dirty, .. })) = self.any() {
                    let used = self.mmu.used(space, Vpn(at), size);
                    assert_eq!((used.referenced, used.modified), (referenced, dirty));
                    let ours = |mmu: &mut Mmu| _ = mmu.clear_referenced(space, Vpn(at), size);
                    self.change(space, |naive| _ = naive.clear(space, at, false), ours);
                    let ours = |mmu: &mut Mmu| _ = mmu.clear_modified(space, Vpn(at), size);
                    self.change(space, |naive| _ = naive.clear(space, at, true), ours);
                }
            }
            _ => {
                let space = self.space();
                if self.random.below(4) == 0 {
                    self.end(space);
                }
            }
        }
    }

    /// Promotes an extent whose mappings allow it.
    fn promote(&mut self) {
        let Some((space, at, first)) = self.any() else { return };
        let larger = self.machine.pages.sizes.iter().copied().find(|size| *size > first.size);
        let Some(to) = larger.filter(|to| self.pages(*to) <= 512) else { return };
        let at = at / self.pages(to) * self.pages(to);
        let alike = |part: u64| {
            let mapping = self.naive[0].mappings.get(&(space, part));
            mapping.is_some_and(|part| (part.size, part.protection) == (first.size, first.protection))
        };
        if (at..at + self.pages(to)).step_by(self.pages(first.size) as usize).all(alike) {
            let ours = |mmu: &mut Mmu| mmu.promote(space, Vpn(at), first.size, to);
            self.change(space, |naive| naive.promote(space, at, first.size, to), ours);
        }
    }

    /// A request on the current core, which others hear of as far as tables are concerned.
    fn on_naive<T>(&mut self, request: Request, on: impl FnOnce(&mut Naive, u64, Access) -> T) -> T {
        let at = self.core();
        let (page, access, space) = (request.page().0, request.access(), self.naive[at].space);
        for (core, naive) in self.naive.iter_mut().enumerate() {
            if core != at {
                naive.made_elsewhere(space, page, access);
            }
        }
        on(&mut self.naive[at], page, access)
    }

    fn burst(&mut self) {
        let space = self.runs[self.at].expect("it runs a space");
        let near = self.naive[0].mappings.range((space, 0)..(space + 1, 0));
        let near: Vec<(u64, u64)> = near.map(|((_, at), mapping)| (*at, self.pages(mapping.size))).collect();
        let hot = 1 + self.random.below(400);
        let mut requests = Vec::new();
        for _ in 0..self.random.below(300) {
            let page = if near.is_empty() || self.random.below(50) == 0 {
                self.page()
            } else {
                let (at, pages) = near[(self.random.below(hot) * 7919 % near.len() as u64) as usize];
                at + self.random.below(pages)
            };
            let access = [Access::Read, Access::Read, Access::Write, Access::Execute][self.random.below(4) as usize];
            requests.push(Request::new(Vpn(page), access));
        }
        let mut done = 0;
        while done < requests.len() {
            let stopped = self.mmu.run(&requests[done..]);
            let upto = stopped.map_or(requests.len(), |(index, _)| done + index);
            for request in &requests[done..upto] {
                assert_eq!(self.on_naive(*request, Naive::access), None, "{request:?}");
            }
            done = upto;
            if let Some((_, trap)) = stopped {
                self.trap(requests[done], trap);
                done += 1;
            }
        }
    }

    fn trap(&mut self, request: Request, trap: Trap) {
        let (page, space) = (request.page().0, self.naive[self.core()].space);
        let stop = self.on_naive(request, Naive::access);
        match trap {
            Trap::Absent => {
                assert_eq!(stop, Some(Stop::Absent), "{request:?}");
                let to = mapped(space, page, self.machine.pages.sizes[0], Protection::ALL);
                self.enter(space, page, to, request.access());
            }
            Trap::Rights { .. } => {
                assert_eq!(stop, Some(Stop::Rights), "{request:?}");
                let (first, mapping) = self.naive[0].mapping(space, page).unwrap();
                self.protect(space, first, mapping.size, Protection::ALL);
            }
        }
        self.on_naive(request, Naive::retry);
        assert_eq!(self.mmu.retry(request), Ok(()));
    }

    /// The counts are those of all naive cores together, and each core holds what its twin does,
    /// which is nothing that is stale.
    fn compare(&mut self) {
        let ours = self.mmu.counters(0);
        let sum = |of: &dyn Fn(&Naive) -> u64| self.naive.iter().map(of).sum::<u64>();
        for access in [Access::Read, Access::Write, Access::Execute] {
            assert_eq!(ours.references[access as usize], sum(&|naive| naive.counts.references[access as usize]));
            for level in 0..self.machine.tlb_levels() {
                let misses = sum(&|naive| naive.counts.misses[level][access as usize]);
                assert_eq!(ours.misses(level, access), misses, "misses in level {}", level + 1);
            }
        }
        assert_eq!(ours.walk_memory_references(), sum(&|naive| naive.counts.walk_references), "walk references");
        for level in 0..5 {
            assert_eq!(ours.walk_cache_hits[level], sum(&|naive| naive.counts.walk_cache_hits[level]), "walk caches");
        }
        for cache in 0..4 {
            assert_eq!(ours.line_hits[cache], sum(&|naive| naive.counts.line_hits[cache]), "line hits");
        }
        assert_eq!(ours.line_misses, sum(&|naive| naive.counts.line_misses), "line misses");
        assert_eq!(ours.use_bits.referenced, sum(&|naive| naive.counts.use_bits.referenced), "use bits");
        assert_eq!(ours.use_bits.dirty, sum(&|naive| naive.counts.use_bits.dirty), "use bits");
        assert_eq!(ours.shootdown_entries, sum(&|naive| naive.counts.shootdown_entries), "entries shot down");
        assert_eq!(ours.flushes, sum(&|naive| naive.counts.flushes), "flushes");
        assert_eq!(self.mmu.peak_page_table_bytes(), self.naive[0].peak, "bytes of page tables");
        for naive in &self.naive {
            assert_eq!(ours.shootdowns, naive.counts.shootdowns, "shootdowns");
        }
        let sent = [ours.shootdowns_sent, ours.shootdowns_received, ours.late_flushes];
        assert_eq!(sent, self.expected, "sent, received, late");
        let (at, runs) = (self.at, self.runs.clone());
        for thread in (0..runs.len()).filter(|thread| runs[*thread].is_some()).chain([at]) {
            self.go_to(thread);
            let core = self.core();
            let held: Vec<_> =
                self.mmu.held(0).iter().map(|held| (held.tlb, held.contents, held.size, held.entries)).collect();
            assert_eq!(held, self.naive[core].held(), "core {core}");
            assert_eq!(self.mmu.ranges_held(0), self.naive[core].ranges_held());
        }
        self.mmu.validate().unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The machines that can have several cores, and whose hosts do not map memory as it is used.
fn with_cores() -> Vec<Machine> {
    let mut machines = machines();
    machines.retain(|machine| Mmu::refuses_cores(machine).is_none() && machine.host.is_none());
    machines
}

fn check(machine: &Machine, siblings: u32, seed: u64, steps: &[u8]) -> [u64; 3] {
    let mut machine = machine.clone();
    machine.clock.threads_per_core = siblings;
    let mut cores = Cores::new(&machine, seed);
    for step in steps {
        cores.step(*step);
        cores.compare();
    }
    cores.expected
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn cores_count_as_naive_ones(
        which in 0..with_cores().len(),
        seed: u64,
        steps in prop::collection::vec(0u8..20, 1..120),
    ) {
        let machine = &with_cores()[which];
        println!("{}", machine.name);
        check(machine, 1, seed, &steps);
    }

    #[test]
    fn hardware_threads_of_cores_count_as_naive_ones(
        which in 0..with_cores().len(),
        siblings in 2u32..=3,
        seed: u64,
        steps in prop::collection::vec(0u8..20, 1..120),
    ) {
        let machine = &with_cores()[which];
        println!("{}, {siblings} threads a core", machine.name);
        check(machine, siblings, seed, &steps);
    }
}

/// A stream that goes where it matters, whatever the luck of the generator.
#[test]
fn cores_agree_over_a_long_stream() {
    let mut random = Random::new(7);
    let steps: Vec<u8> = (0..150).map(|_| random.below(20) as u8).collect();
    for siblings in [1, 2] {
        let happened = check(&Machine::builtin("zen5").unwrap(), siblings, 42, &steps);
        assert!(happened.iter().all(|count| *count > 0), "{siblings} threads a core: {happened:?}");
    }
}
