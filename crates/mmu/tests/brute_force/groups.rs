//! A hash table of groups once more: a list of entries for each group, contexts in the order in
//! which they were needed.

use crate::lines::check_with;
use crate::naive::Naive;
use superpage_mmu::{Block, Flush, GroupCounts, Handler, Machine, Mmu, Request, Search, Touch, Upkeep};
use superpage_pages::{Access, Counts, Mapped, Pfn, Protection, Random, Vpn};

/// An entry: context, number of the segment in it, page in the segment.
type Place = (u64, u64, u64);

#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) software: bool,
    pub(crate) upkeep: Upkeep,
    pub(crate) table: Vec<[Option<Place>; 8]>,
    /// For each eight segments that a space has used: space, context, if it has not lost it, and
    /// the segments.
    contexts: Vec<(u32, u64, bool, Vec<u64>)>,
    given: u64,
    /// The numbers of processes by space, where context numbers are these.
    pub(crate) processes: Vec<(u32, u64)>,
    turn: usize,
    hand: usize,
    zombies: bool,
    /// The most entries that ever were in use.
    pub(crate) most: u64,
    pub(crate) counts: GroupCounts,
}

impl Groups {
    /// That of a machine, if it has one.
    pub(crate) fn new(machine: &Machine) -> Option<Groups> {
        let of = machine.groups.as_ref()?;
        Some(Groups {
            software: of.search == Search::Software,
            upkeep: Upkeep::default(),
            table: vec![[None; 8]; of.groups as usize],
            contexts: Vec::new(),
            given: 0,
            processes: Vec::new(),
            turn: 0,
            hand: 0,
            zombies: false,
            most: 0,
            counts: GroupCounts::default(),
        })
    }

    fn known(&self, space: u32, page: u64) -> Option<Place> {
        if self.upkeep.kernel == Some(space) {
            return Some((0, (page >> 16) % 16, page % (1 << 16)));
        }
        let of_space = self.contexts.iter().filter(|(of, _, lives, _)| *of == space && *lives);
        of_space
            .flat_map(|(_, context, _, segments)| {
                let at = segments.iter().position(|segment| *segment == page >> 16);
                at.map(|at| (*context, at as u64, page % (1 << 16)))
            })
            .next()
    }

    fn place(&mut self, space: u32, page: u64) -> Place {
        if let Some(place) = self.known(space, page) {
            return place;
        }
        let full = |segments: &Vec<u64>| segments.len() == 8;
        let room = self.contexts.iter_mut().find(|(of, _, lives, segments)| *of == space && *lives && !full(segments));
        match room {
            Some((.., segments)) => segments.push(page >> 16),
            None => {
                let scattered = |number: u64| number * u64::from(self.upkeep.scatter) % (1 << 20);
                let context = if self.upkeep.by_process {
                    let held = self.contexts.iter().filter(|(of, _, lives, _)| *of == space && *lives).count() as u64;
                    let process = self.processes.iter().find(|(of, _)| *of == space).unwrap().1;
                    let mut number = process % 32767 + 1 + 32768 * held;
                    while self.lives((scattered(number), 0, 0)) {
                        number += 1;
                    }
                    scattered(number)
                } else {
                    self.given += 1;
                    scattered(self.given)
                };
                self.contexts.push((space, context, true, vec![page >> 16]));
            }
        }
        self.known(space, page).unwrap()
    }

    fn lives(&self, place: Place) -> bool {
        place.0 == 0 || self.contexts.iter().any(|(_, context, lives, _)| *context == place.0 && *lives)
    }

    /// The entries of both groups, in the order of a search.
    fn both(&self, (context, segment, index): Place) -> Vec<(usize, usize)> {
        let hash = ((context * 16 + segment) ^ index) as usize;
        let groups = [hash % self.table.len(), self.table.len() - 1 - hash % self.table.len()];
        groups.into_iter().flat_map(|group| (0..8).map(move |way| (group, way))).collect()
    }

    fn upto(&self, place: Place, wanted: Option<Place>) -> (Vec<u64>, Option<(usize, usize)>) {
        let mut looked = Vec::new();
        for (group, way) in self.both(place) {
            looked.push((1 << 30) + (group * 8 + way) as u64);
            if self.table[group][way] == wanted {
                return (looked, Some((group, way)));
            }
        }
        (looked, None)
    }

    /// The entries that a search looks at, and whether it finds the page.
    pub(crate) fn search(&mut self, space: u32, page: u64) -> (Vec<u64>, bool) {
        let place = self.place(space, page);
        let (looked, found) = self.upto(place, Some(place));
        self.counts.searches += 1;
        self.counts.found += u64::from(found.is_some());
        self.counts.looked += looked.len() as u64;
        (looked, found.is_some())
    }

    /// Whether a search would find it.
    pub(crate) fn finds(&self, space: u32, page: u64) -> bool {
        self.known(space, page).is_some_and(|place| self.upto(place, Some(place)).1.is_some())
    }

    /// Places a page; returns the entries that were looked at.
    pub(crate) fn insert(&mut self, space: u32, page: u64) -> Vec<u64> {
        let place = self.place(space, page);
        let (mut all, mut free) = self.upto(place, None);
        self.counts.looked_to_place += all.len() as u64;
        if free.is_none() && self.upkeep.reclaims_on_demand && self.zombies {
            self.counts.looked_to_place += self.table.len() as u64 * 8;
            all.extend(self.reclaim(self.table.len() * 8));
            self.zombies = false;
            let (again, now) = self.upto(place, None);
            self.counts.looked_to_place += again.len() as u64;
            all.extend(again);
            free = now;
        }
        self.counts.reloads += 1;
        let (group, way) = free.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % 8;
            (self.both(place)[0].0, self.turn)
        });
        if let Some(old) = self.table[group][way] {
            self.counts.evicts += 1;
            self.counts.live_evicts += u64::from(self.lives(old));
        }
        self.table[group][way] = Some(place);
        self.most = self.most.max(self.table.iter().flatten().flatten().count() as u64);
        all
    }

    /// Frees the page's entry; returns what was looked at for it.
    pub(crate) fn flush_page(&mut self, space: u32, page: u64) -> Vec<u64> {
        if !self.upkeep.table {
            return Vec::new();
        }
        // A segment that was never used has a number too; nothing is in the table under it.
        let place = self.known(space, page).unwrap_or((1 << 20, (page >> 16) % 8, page % (1 << 16)));
        let (looked, at) = self.upto(place, Some(place));
        self.counts.flushed += 1;
        self.counts.looked_to_flush += looked.len() as u64;
        if let Some((group, way)) = at {
            self.table[group][way] = None;
        }
        looked
    }

    pub(crate) fn drop(&mut self, space: u32, page: u64) {
        if let Some(place) = self.known(space, page)
            && let (_, Some((group, way))) = self.upto(place, Some(place))
        {
            self.table[group][way] = None;
        }
    }

    pub(crate) fn renew(&mut self, space: u32) {
        self.counts.renewed += 1;
        self.zombies = true;
        self.end(space);
    }

    /// The space has its contexts no more.
    pub(crate) fn end(&mut self, space: u32) {
        self.contexts.iter_mut().filter(|(of, ..)| *of == space).for_each(|context| context.2 = false);
    }

    /// Frees zombies among the next entries; returns these.
    pub(crate) fn reclaim(&mut self, entries: usize) -> Vec<u64> {
        let mut looked = Vec::new();
        for _ in 0..entries.min(self.table.len() * 8) {
            let (group, way) = (self.hand / 8, self.hand % 8);
            looked.push((1 << 30) + self.hand as u64);
            if self.table[group][way].is_some_and(|place| !self.lives(place)) {
                self.table[group][way] = None;
                self.counts.reclaimed += 1;
            }
            self.hand = (self.hand + 1) % (self.table.len() * 8);
        }
        looked
    }

    /// Whether a flush of these pages gives the space another number.
    pub(crate) fn renews(&self, space: u32, first: u64, end: u64) -> bool {
        let whole = (first, end) == (0, u64::MAX);
        match self.upkeep.flush {
            Flush::Eager => false,
            _ if self.upkeep.kernel == Some(space) => false,
            Flush::Lazy { cutoff } => whole || (cutoff > 0 && end - first > cutoff),
        }
    }
}

/// The kernel's space and memory.
const KERNEL: u32 = 7;
const FIRST: u64 = 0xc_0000;
const PAGES: u64 = 96;

/// Both begin with this kernel, whose memory is mapped.
pub(crate) fn begin(mmu: &mut Mmu, naive: &mut Naive, upkeep: &Upkeep) {
    mmu.set_upkeep(upkeep.clone());
    naive.set_upkeep(upkeep.clone());
    // The numbers of processes come round: the second is the first's, or the next.
    for (space, process) in [(0, 5), (1, 5 + u64::from(upkeep.scatter) % 2 * 32767)] {
        mmu.set_process(space, process as u32);
        naive.groups.as_mut().unwrap().processes.push((space, process));
    }
    for page in 0..PAGES {
        let to = Mapped { frame: Pfn((1 << 20) + page), size: "4K".parse().unwrap(), protection: Protection::ALL };
        naive.enter(KERNEL, FIRST + page, to, Access::Write);
        mmu.enter(KERNEL, Vpn(FIRST + page), to, Access::Write);
    }
}

/// Something that only the kernel does.
pub(crate) fn step(mmu: &mut Mmu, naive: &mut Naive, random: &mut Random) {
    let space = random.below(2) as u32;
    match random.below(6) {
        0 => {
            let (first, pages) = (random.below(1 << 20), 1 + random.below(60));
            mmu.flush_range(space, first..first + pages);
            naive.announce(space, first, pages);
        }
        1 => {
            let of = |key: &&(u32, u64)| key.0 == space;
            let all: Vec<(u32, u64)> = naive.mappings.keys().filter(of).copied().collect();
            if random.below(4) == 0 && !all.is_empty() {
                naive.flush(space);
                mmu.flush(space);
                for (space, at) in all {
                    let mapping = naive.remove(space, at);
                    mmu.remove(space, Vpn(at), mapping.size);
                }
            }
        }
        2 => {
            let (entries, cached) = (random.below(300), random.below(2) == 0);
            mmu.reclaim(entries, cached);
            naive.reclaim(entries as usize, cached);
        }
        3 => {
            let first = naive.mappings.keys().find(|key| key.0 == space).map_or(0, |key| key.1);
            let pages = first..first + 1 + random.below(64);
            let blocks = &mut naive.groups.as_mut().unwrap().upkeep.blocks;
            if random.below(2) == 0 {
                blocks.push(Block { space, pages: pages.clone() });
                mmu.add_block(Block { space, pages });
            } else {
                blocks.retain(|block| block.space != space || !block.pages.clone().any(|page| pages.contains(&page)));
                mmu.drop_blocks(space, pages);
            }
        }
        _ => {
            naive.preloading = random.below(3) == 0;
            mmu.preload(naive.preloading);
            let before = mmu.enter_kernel();
            assert_eq!(std::mem::replace(&mut naive.space, KERNEL), before);
            for _ in 0..random.below(200) {
                let (page, line) = (FIRST + random.below(PAGES), random.below(64));
                let access = [Access::Read, Access::Write, Access::Execute][random.below(3) as usize];
                assert_eq!(mmu.run_lines(&[Request::new(Vpn(page), access)], &[line as u32]), None);
                assert_eq!(naive.access_line(page, line, access), None);
            }
            mmu.leave_kernel(before);
            naive.space = before;
            naive.preloading = false;
            mmu.preload(false);
        }
    }
    let table = naive.groups.as_ref().unwrap();
    let used: Vec<u64> = table.table.iter().map(|group| group.iter().flatten().count() as u64).collect();
    assert_eq!(mmu.entries_by_group(0), used);
    let live = table.table.iter().flatten().flatten().filter(|place| table.lives(**place)).count() as u64;
    assert_eq!(mmu.groups_in_use(0), Some([used.iter().sum(), live, used.len() as u64 * 8]));
    assert_eq!(mmu.most_groups_in_use(0), Some(table.most));
    let kernel = naive.held_by(KERNEL);
    assert_eq!(mmu.held_by_kernel(0).0, kernel);
}

fn touches(random: &mut Random) -> Vec<Touch> {
    let touch = |random: &mut Random| Touch {
        page: Vpn(FIRST + random.below(PAGES)),
        line: random.below(64) as u32,
        access: [Access::Read, Access::Write, Access::Execute][random.below(3) as usize],
    };
    (0..random.below(12)).map(|_| touch(random)).collect()
}

/// An eager flush of a space, as at a fork, takes its pages out of the table and out of the TLBs,
/// those too whose mappings stay as they are.
#[test]
fn what_is_flushed_leaves_the_tlbs_with_the_table() {
    for (name, table) in [("ppc604", true), ("ppc603", true), ("ppc603", false)] {
        let mut mmu = Mmu::new(&Machine::builtin(name).unwrap());
        mmu.set_upkeep(Upkeep { table, ..Upkeep::default() });
        let to = Mapped { frame: Pfn(1), size: "4K".parse().unwrap(), protection: Protection::READ };
        mmu.enter(0, Vpn(16), to, Access::Read);
        let read = |mmu: &mut Mmu| {
            assert_eq!(mmu.run(&[Request::new(Vpn(16), Access::Read)]), None);
            let counters = mmu.counters(0);
            (counters.data_misses(), counters.groups.reloads)
        };
        let reloads = u64::from(table);
        assert_eq!((read(&mut mmu), read(&mut mmu)), ((1, reloads), (1, reloads)), "{name}");
        for (range, misses) in [(0..u64::MAX, 2), (10..20, 3), (17..40, 3)] {
            mmu.flush_range(0, range);
            assert_eq!(read(&mut mmu), (misses, misses * reloads), "{name}");
        }
    }
}

/// A kernel that flushes eagerly looks for each page of a range, mapped or not, as far as addresses
/// of 32 bits reach; beyond them, and of a whole space, for those that are mapped.
#[test]
fn each_page_of_a_range_is_looked_for_as_far_as_32_bits_reach() {
    let mut mmu = Mmu::new(&Machine::builtin("ppc604").unwrap());
    for page in [16, (1 << 20) + 5] {
        let to = Mapped { frame: Pfn(page % 64), size: "4K".parse().unwrap(), protection: Protection::READ };
        mmu.enter(0, Vpn(page), to, Access::Read);
    }
    let mut flushed = |range| {
        let before = mmu.counters(0).groups.flushed;
        mmu.flush_range(0, range);
        mmu.counters(0).groups.flushed - before
    };
    assert_eq!([flushed(0..20), flushed(0..(1 << 20) + 10), flushed(0..u64::MAX)], [20, (1 << 20) + 1, 2]);
}

/// A space with another number finds none of its entries again: they count as shot down.
#[test]
fn a_lazy_flush_takes_all_entries_of_a_space_from_the_tlbs() {
    let mut mmu = Mmu::new(&Machine::builtin("ppc604").unwrap());
    mmu.set_upkeep(Upkeep { flush: Flush::Lazy { cutoff: 0 }, ..Upkeep::default() });
    let pages = 16..20;
    for page in pages.clone() {
        let to = Mapped { frame: Pfn(page), size: "4K".parse().unwrap(), protection: Protection::READ };
        mmu.enter(0, Vpn(page), to, Access::Read);
    }
    let requests: Vec<Request> = pages.map(|page| Request::new(Vpn(page), Access::Read)).collect();
    assert_eq!(mmu.run(&requests), None);
    mmu.flush_range(0, 0..u64::MAX);
    let counters = mmu.counters(0);
    assert_eq!((counters.shootdown_entries, counters.groups.renewed), (4, 1));
}

/// Kernels of every kind on both processors, with tables so small that pages meet.
#[test]
fn a_hash_table_of_groups_is_kept_up_to_date() {
    let mut all = GroupCounts::default();
    for seed in 0..40u64 {
        let random = &mut Random::new(seed);
        let mut machine = Machine::builtin(["ppc603", "ppc604"][seed as usize % 2]).unwrap();
        let software = seed % 2 == 0;
        machine.groups.as_mut().unwrap().groups = [4, 16, 64, 2048][random.below(4) as usize];
        machine.tlb.iter_mut().for_each(|tlb| tlb.entries = 16);
        let blocks = [0, PAGES / 2, PAGES][random.below(3) as usize];
        let handler = Handler { touches: touches(random), translated: random.below(2) == 0 };
        let flush = [Flush::Eager, Flush::Lazy { cutoff: 0 }, Flush::Lazy { cutoff: 20 }][random.below(3) as usize];
        let upkeep = Upkeep {
            kernel: Some(KERNEL),
            scatter: [1, 897, 128][random.below(3) as usize],
            by_process: flush == Flush::Eager && random.below(2) == 0,
            table: !software || random.below(3) > 0,
            cached_tables: random.below(3) > 0,
            reclaims_on_demand: random.below(3) == 0,
            flush,
            blocks: Vec::from_iter((blocks > 0).then_some(Block { space: KERNEL, pages: FIRST..FIRST + blocks })),
            handler: (random.below(4) > 0).then_some(handler),
        };
        all.add(&check_with(&machine, Some(upkeep), seed, 25));
    }
    let GroupCounts { found, evicts, live_evicts, flushed, renewed, reclaimed, blocks, .. } = all;
    assert!(
        [found, evicts, live_evicts, flushed, renewed, reclaimed, blocks].iter().all(|count| *count > 20),
        "{all:?}"
    );
}
