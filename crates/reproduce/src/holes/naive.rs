//! The random benchmark counted by brute force: TLBs as lists, one page at a time, from the layout
//! alone. No code of the model is used.

use super::drive::{Counted, Drive};
use super::layout::{Layout, Made, Placed};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use superpage_mmu::Machine;
use superpage_trace::{Batch, workload};

/// What an entry holds: of which kind it is, and its number among these.
type Entry = (char, u64);

/// A TLB or a walk cache: in each set the entries, the last used in front.
struct Lists {
    sets: Vec<Vec<Entry>>,
    ways: usize,
}

impl Lists {
    fn new(entries: usize, ways: usize) -> Lists {
        Lists { sets: vec![Vec::new(); entries / ways], ways }
    }

    fn hit(&mut self, entry: Entry) -> bool {
        let sets = self.sets.len() as u64;
        let set = &mut self.sets[(entry.1 % sets) as usize];
        let Some(at) = set.iter().position(|held| *held == entry) else { return false };
        let held = set.remove(at);
        set.insert(0, held);
        true
    }

    fn fill(&mut self, entry: Entry) {
        let sets = self.sets.len() as u64;
        let set = &mut self.sets[(entry.1 % sets) as usize];
        set.insert(0, entry);
        set.truncate(self.ways);
    }

    /// A hit, or else a fill.
    fn use_of(&mut self, entry: Entry) -> bool {
        let hit = self.hit(entry);
        if !hit {
            self.fill(entry);
        }
        hit
    }

    fn count(&self, kind: char) -> u64 {
        self.sets.iter().flatten().filter(|entry| entry.0 == kind).count() as u64
    }
}

/// The second level of Skylake-SP with LRU, its first level for data, and its walk caches; what it
/// misses, and what walks read.
struct Naive {
    small: Lists,
    large: Lists,
    second: Lists,
    /// The caches of entries of levels 2, 3 and 4.
    walk: [Lists; 3],
    perforates: bool,
    hits: u64,
    misses: u64,
    walked: u64,
}

impl Naive {
    fn new(perforates: bool) -> Naive {
        let walk = [32, 8, 4].map(|entries| Lists::new(entries, entries));
        let (small, large, second) = (Lists::new(64, 4), Lists::new(32, 4), Lists::new(1536, 12));
        Naive { small, large, second, walk, perforates, hits: 0, misses: 0, walked: 0 }
    }

    /// Entries above level `to` that a walk must read: those below the nearest that a cache has.
    fn climb(&mut self, page: u64, to: u32) {
        for level in to + 1..=4 {
            if self.walk[level as usize - 2].use_of(('t', page >> (9 * (level - 1)))) {
                return;
            }
            self.walked += 1;
        }
    }

    fn access(&mut self, page: u64, holes: Option<&[bool]>) {
        let region = page / 512;
        let Some(holes) = holes else {
            if self.large.use_of(('2', region)) {
                return;
            }
            if self.second.use_of(('2', region)) {
                self.hits += 1;
                return;
            }
            self.misses += 1;
            self.walked += 1;
            return self.climb(page, 2);
        };
        if self.small.use_of(('4', page)) {
            return;
        }
        if self.second.hit(('4', page)) {
            self.hits += 1;
            return;
        }
        let count = holes.iter().filter(|hole| **hole).count();
        if !self.perforates || count > 256 {
            self.second.fill(('4', page));
            self.misses += 1;
            self.walked += 1;
            return self.climb(page, 1);
        }
        let place = (page % 512) as usize;
        let near = holes[place / 64 * 64..][..64].contains(&true);
        let whole = self.second.hit(('p', region));
        let fragment = near && self.second.hit(('f', page / 32));
        if whole && !holes[place] && (fragment || !near) {
            self.hits += 1;
            return;
        }
        self.misses += 1;
        if near && !fragment {
            self.second.fill(('f', page / 32));
            self.walked += 1;
        }
        if !whole {
            self.walked += 1;
            self.climb(page, 2);
        }
        if holes[place] {
            self.second.fill(('4', page));
            self.walked += 1;
            if !self.walk[0].use_of(('s', region)) {
                self.walked += 1;
            }
        } else if !whole {
            self.second.fill(('p', region));
        }
    }
}

const RANDOM: &str = "random:bytes=96M,references=100K,populate=no,seed=3";

fn brute_force(layout: Layout, perforates: bool) -> Naive {
    let mut naive = Naive::new(perforates);
    let mut regions: BTreeMap<u64, Option<Vec<bool>>> = BTreeMap::new();
    let (mut source, mut batch) = (workload::parse(RANDOM).unwrap(), Batch::default());
    while source.fill(&mut batch).unwrap() {
        for page in batch.runs.iter().map(|run| run.page()) {
            let draw = |region: u64| layout.is_broken(region).then(|| layout.holes(region, 512));
            let holes = regions.entry(page / 512).or_insert_with(|| draw(page / 512));
            naive.access(page, holes.as_deref());
        }
    }
    naive
}

fn counted(machine: &str, layout: Layout) -> Counted {
    let machine = Machine::builtin(machine).unwrap();
    run(&machine, layout, false)
}

fn run(machine: &Machine, layout: Layout, lines: bool) -> Counted {
    let parse = if lines { workload::parse_lines } else { workload::parse };
    let (mut source, stop) = (parse(RANDOM).unwrap(), AtomicBool::new(false));
    let run = Drive::new(machine, layout, lines).unwrap().run(source.as_mut(), 0, &stop);
    run.unwrap_or_else(|_| panic!("the stream runs to its end"))
}

#[test]
fn random_accesses_count_as_brute_force_counts_them() {
    let mixed = Layout { made: Made::Mixed, share: 50, holes: 25, placed: Placed::Gathered, seed: 1 };
    let layouts = [
        mixed,
        Layout { placed: Placed::Dispersed, ..mixed },
        Layout { share: 100, holes: 50, ..mixed },
        Layout { share: 75, holes: 60, ..mixed },
        Layout { share: 25, holes: 0, ..mixed },
        Layout { made: Made::Base, share: 0, holes: 0, ..mixed },
        Layout { made: Made::Superpage, share: 0, holes: 0, ..mixed },
    ];
    for layout in layouts {
        for (machine, perforates) in [("skylake-sp+lru", false), ("skylake-sp+lru+perforated", true)] {
            let (naive, counted) = (brute_force(layout, perforates), counted(machine, layout));
            let entries = counted.entries;
            let held = [entries.superpages, entries.perforated, entries.bitmaps, entries.base];
            let found = ([counted.second, counted.misses].map(|count| count as u64), held);
            let expected = ([naive.hits, naive.misses], ['2', 'p', 'f', '4'].map(|kind| naive.second.count(kind)));
            assert_eq!(found, expected, "{machine}, {layout:?}");
            // A first touch walks to nothing, and then what was mapped is loaded at no cost: what
            // these walks read differs.
            let regions = 48.0 * 5.0;
            assert!((counted.walked - naive.walked as f64).abs() <= regions, "{machine}, {layout:?}");
        }
    }
}

/// With lines TLBs miss as without; what walks and loads wait depends on the caches, which here
/// have no room for 96 MB.
#[test]
fn lines_add_waits_and_change_no_miss() {
    let mixed = Layout { made: Made::Mixed, share: 50, holes: 25, placed: Placed::Dispersed, seed: 1 };
    for machine in ["skylake-sp", "skylake-sp+perforated"] {
        let machine = Machine::builtin(machine).unwrap();
        let [plain, lined] = [false, true].map(|lines| run(&machine, mixed, lines));
        assert_eq!((lined.misses, lined.second, lined.instructions), (plain.misses, plain.second, plain.instructions));
        let memory = machine.memory.latency_cycles as f64 / machine.memory.overlap;
        let waited = (lined.cycles - plain.cycles) / 100_000.0;
        assert!((0.5 * memory..1.5 * memory).contains(&waited), "{waited} cycles an access, {memory} of memory");
    }
}
