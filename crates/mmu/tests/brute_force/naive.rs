//! The hardware written out with no thought for speed: every structure is a list that is searched,
//! nothing is remembered between two steps that could be found again, and no code is shared with
//! the crate but the machine file.

mod around;
mod groups;
mod pointers;
mod spaces;
mod walk;

use crate::cache::Cache;
use crate::clustered::Clustered;
use crate::groups::Groups;
use crate::host::Host;
use crate::joins;
use crate::perforated::{self, Region};
use crate::ranges::Ranges;
use crate::reach::{self, Entry, SIBLING};
use crate::victima::Victima;
use std::collections::{BTreeMap, BTreeSet};
use superpage_mmu::{
    Contents, Index, Joins, LineCacheSpec, LineCounts, Machine, Replacement, TableKind, TlbSpec, UseBit, UseBits,
    WalkCacheSpec,
};
use superpage_pages::{Access, Mapped, PageSize, Protection};

/// What a walk cache holds: space, level, page-number bits above what the entry spans.
type Pointer = (u32, usize, u64);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    /// The frame of its first page.
    pub(crate) frame: u64,
    pub(crate) size: PageSize,
    pub(crate) protection: Protection,
    pub(crate) referenced: bool,
    pub(crate) dirty: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) references: [u64; 3],
    pub(crate) misses: [[u64; 3]; 8],
    pub(crate) walk_references: u64,
    pub(crate) walk_cache_hits: [u64; 5],
    pub(crate) host_walk_cache_hits: [u64; 5],
    pub(crate) line_hits: [u64; 4],
    pub(crate) line_misses: u64,
    pub(crate) program_lines: [LineCounts; 3],
    pub(crate) use_bits: UseBits,
    pub(crate) use_bit_entries: UseBits,
    pub(crate) shootdowns: u64,
    pub(crate) shootdown_entries: u64,
    pub(crate) flushes: u64,
}

#[derive(Debug)]
pub(crate) struct Naive {
    pub(crate) machine: Machine,
    tlbs: Vec<(TlbSpec, Cache<Entry>)>,
    walk_caches: Vec<(WalkCacheSpec, Cache<Pointer>)>,
    /// Of lines of page tables (`true`) and of the program.
    pub(crate) line_caches: Vec<(LineCacheSpec, Cache<(bool, u64)>)>,
    instruction_cache: Option<Cache<(bool, u64)>>,
    /// The last lines of the streams that are prefetched, the latest first.
    streams: Vec<u64>,
    /// Whether loads and stores are preloaded.
    pub(crate) preloading: bool,
    pub(crate) mappings: BTreeMap<(u32, u64), Mapping>,
    pub(crate) host: Option<Host>,
    clustered: Option<Clustered>,
    pub(crate) groups: Option<Groups>,
    pub(crate) victima: Option<Victima>,
    ranges: Option<Ranges>,
    /// Perforated pages by space and first page, as TLBs may know them.
    regions: BTreeMap<(u32, u64), Region>,
    /// Nodes by space, level, and page-number bits above what they span.
    nodes: BTreeMap<Pointer, u64>,
    free: Vec<u64>,
    pub(crate) ever: u64,
    /// When each node was last made.
    made: BTreeMap<u64, u64>,
    clock: u64,
    /// What the TLBs were last told to forget, with no access since: space, first page, the page
    /// after the last.
    forgotten: Option<(u32, u64, u64)>,
    pub(crate) space: u32,
    /// The hardware thread that runs, and what else there is of it for each other one: its space,
    /// and the lists below.
    sibling: u32,
    others: BTreeMap<u32, (u32, BTreeSet<u32>, Vec<u32>)>,
    /// Whether a TLB had the pointer to the table of the page that missed last.
    pointer: bool,
    /// The most that [`Naive::table_bytes`] was since the peak was begun.
    pub(crate) peak: u64,
    numbered: BTreeSet<u32>,
    /// All spaces that have been current, in order.
    history: Vec<u32>,
    pub(crate) counts: Counts,
}

/// Why a request trapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    Absent,
    Rights,
}

impl Naive {
    pub(crate) fn new(machine: &Machine) -> Naive {
        let line = machine.memory.line_bytes;
        Naive {
            machine: machine.clone(),
            tlbs: machine.tlb.iter().map(|tlb| (tlb.clone(), Cache::of(tlb, machine.pages.sizes[0]))).collect(),
            walk_caches: machine
                .walk_cache
                .iter()
                .filter(|cache| machine.within(cache).is_none())
                .map(|cache| (cache.clone(), Cache::new(1, cache.entries, Index::Low, Replacement::Lru)))
                .collect(),
            line_caches: machine
                .line_cache
                .iter()
                .map(|spec| (spec.clone(), Cache::new(spec.sets(line), spec.ways, Index::Low, spec.replacement)))
                .collect(),
            instruction_cache: machine
                .instruction_cache
                .as_ref()
                .map(|spec| Cache::new(spec.sets(line), spec.ways, Index::Low, spec.replacement)),
            streams: Vec::new(),
            preloading: false,
            mappings: BTreeMap::new(),
            host: Host::new(machine),
            clustered: Clustered::new(machine),
            groups: Groups::new(machine),
            victima: Victima::new(machine),
            ranges: Ranges::new(machine),
            regions: BTreeMap::new(),
            nodes: BTreeMap::new(),
            free: Vec::new(),
            ever: 0,
            made: BTreeMap::new(),
            clock: 0,
            forgotten: None,
            space: 0,
            sibling: 0,
            others: BTreeMap::new(),
            pointer: false,
            peak: Clustered::new(machine).map_or(0, |clustered| clustered.bytes()),
            numbered: BTreeSet::from([0]),
            history: vec![0],
            counts: Counts::default(),
        }
    }

    /// What the page tables of the machine take now: a root for each space that has any, and the
    /// nodes below.
    pub(crate) fn table_bytes(&self) -> u64 {
        if let Some(clustered) = &self.clustered {
            return clustered.bytes();
        }
        let page = self.machine.pages.sizes[0].bytes();
        let of = |level: usize| {
            let bytes = 8u64 << self.machine.page_table.bits[level - 1];
            match self.machine.page_table.kind {
                TableKind::Linear => bytes.div_ceil(page) * page,
                _ if level == 2 && self.machine.perforated.is_some() => 2 * bytes,
                _ => bytes,
            }
        };
        let roots: BTreeSet<u32> = self.nodes.keys().map(|(space, ..)| *space).collect();
        let below = self.nodes.keys().map(|(_, level, _)| *level).filter(|level| *level < self.levels());
        roots.len() as u64 * of(self.levels()) + below.map(of).sum::<u64>()
    }

    pub(crate) fn order(&self, size: PageSize) -> u32 {
        size.shift() - self.machine.pages.sizes[0].shift()
    }

    pub(crate) fn pages(&self, size: PageSize) -> u64 {
        1 << self.order(size)
    }

    pub(crate) fn mapping(&self, space: u32, page: u64) -> Option<(u64, Mapping)> {
        let (key, mapping) = self.mappings.range(..=(space, page)).next_back()?;
        (key.0 == space && page < key.1 + self.pages(mapping.size)).then_some((key.1, *mapping))
    }

    /// The page-number bits below an entry of the level.
    pub(crate) fn below(&self, level: usize) -> u32 {
        self.machine.page_table.bits[..level - 1].iter().map(|bits| *bits as u32).sum()
    }

    fn levels(&self) -> usize {
        self.machine.page_table.bits.len()
    }

    pub(crate) fn leaf_level(&self, size: PageSize) -> usize {
        match self.machine.page_table.kind {
            TableKind::Linear => 1,
            _ => (1..=self.levels()).rev().find(|l| self.below(*l) <= self.order(size)).unwrap(),
        }
    }

    /// The page-table entries of a mapping of the current space.
    fn entries(&self, first: u64, size: PageSize) -> u64 {
        match &self.clustered {
            Some(clustered) => clustered.entries(self.space, first, self.pages(size)),
            None => 1 << (self.order(size) - self.below(self.leaf_level(size))),
        }
    }

    /// The node of the level that translates the page.
    fn node(&self, space: u32, page: u64, level: usize) -> Pointer {
        let spanned = self.below(level) + self.machine.page_table.bits[level - 1] as u32;
        (space, level, page >> spanned)
    }

    /// Makes the nodes that mappings need, from the root down, and gives back those that none
    /// needs, from the leaves up. Roots stay.
    pub(crate) fn rebuild(&mut self) {
        let mut needed = BTreeSet::new();
        // Mappings are in order, so most need the nodes that the one before needs.
        let mut last = BTreeMap::new();
        for ((space, first), mapping) in &self.mappings {
            for level in self.leaf_level(mapping.size)..=self.levels() {
                let node = self.node(*space, *first, level);
                if last.insert(level, node) != Some(node) {
                    needed.insert(node);
                }
            }
        }
        let mut gone: Vec<Pointer> =
            self.nodes.keys().copied().filter(|node| !needed.contains(node) && node.1 < self.levels()).collect();
        gone.sort_by_key(|node| (node.1, node.0, node.2));
        for node in gone {
            self.free.push(self.nodes.remove(&node).unwrap());
            self.drop_pointer(node);
            // The entry above that pointed to it is at the next level.
            for (_, cache) in self.walk_caches.iter_mut().filter(|(spec, _)| spec.level == node.1 + 1) {
                cache.drop(|held| (held.0 % SIBLING, held.1, held.2) == (node.0, node.1 + 1, node.2));
            }
        }
        let mut new: Vec<Pointer> = needed.into_iter().filter(|node| !self.nodes.contains_key(node)).collect();
        new.sort_by_key(|node| (std::cmp::Reverse(node.1), node.0, node.2));
        for node in new {
            self.make(node);
        }
    }

    fn make(&mut self, node: Pointer) {
        if !self.nodes.contains_key(&node) {
            let number = self.free.pop().unwrap_or_else(|| {
                self.ever += 1;
                self.ever - 1
            });
            self.nodes.insert(node, number);
            self.clock += 1;
            self.made.insert(number, self.clock);
            self.peak = self.peak.max(self.table_bytes());
        }
    }

    pub(crate) fn shoot(&mut self, space: u32, first: u64, size: PageSize) {
        let pages = self.pages(size);
        for space in self.of_all(space) {
            for (spec, cache) in &mut self.tlbs {
                self.counts.shootdown_entries += Naive::forget(spec, cache, space, first, pages);
            }
            let ranges = self.ranges.as_mut().map_or(0, |ranges| ranges.forget(space, first, pages));
            self.counts.shootdown_entries += ranges;
        }
        self.drop_blocks(space, first, size);
    }

    /// Takes a page out of the entries that hold several.
    fn forget_shared(joins: &Joins, cache: &mut Cache<Entry>, space: u32, page: u64) {
        let shared = |held: Entry| held.held.is_some() && held.covers(space, page);
        if joins::has_valid_bits(joins) {
            let left = |held: Entry| held.held.map(|set| set & !(1 << (page - held.first)));
            cache.rewrite(|held| if shared(held) { Entry { held: left(held), ..held } } else { held });
            cache.drop(|held| held.held == Some(0));
        } else {
            cache.drop(shared);
        }
    }

    /// Drops pages from a TLB: where entries have valid bits, others of an entry stay. Returns the
    /// entries dropped.
    fn forget(spec: &TlbSpec, cache: &mut Cache<Entry>, space: u32, first: u64, pages: u64) -> u64 {
        if spec.joins.as_ref().is_some_and(joins::has_valid_bits) {
            let left = |held: Entry| match held.held {
                Some(set) if pages == 1 && held.covers(space, first) => {
                    Entry { held: Some(set & !(1 << (first - held.first))), ..held }
                }
                _ => held,
            };
            cache.rewrite(left);
            return cache.drop(|held| held.held == Some(0) || held.meets(space, first, pages));
        }
        cache.drop(|held| held.contents != Contents::Pointer && held.meets(space, first, pages))
    }

    /// One shootdown, unless nothing of the pages can have come into a TLB since the last one.
    pub(crate) fn announce(&mut self, space: u32, first: u64, pages: u64) {
        let end = first.saturating_add(pages);
        match self.forgotten {
            Some((of, low, high)) if of == space && low <= first && end <= high => {}
            _ => {
                self.counts.shootdowns += 1;
                self.forgotten = Some((space, first, end));
                self.keep_up(space, first, end);
            }
        }
    }

    /// Nodes of a clustered table and perforated pages follow what is mapped now.
    fn follow(&mut self, space: u32, at: u64, pages: u64) {
        self.cluster(space, at, pages);
        self.perforate(space, at, pages);
    }

    fn cluster(&mut self, space: u32, at: u64, pages: u64) {
        let Some(mut clustered) = self.clustered.take() else { return };
        for block in clustered.blocks(at, pages) {
            let mapping = |page| self.mapping(space, page).map(|(first, one)| (first, self.pages(one.size), one));
            clustered.update(space, block, mapping);
            self.peak = self.peak.max(clustered.bytes());
        }
        self.clustered = Some(clustered);
    }

    fn perforate(&mut self, space: u32, at: u64, pages: u64) {
        let Some(n) = perforated::pages(&self.machine) else { return };
        for first in (at / n * n..at + pages).step_by(n as usize) {
            let now = perforated::region(&self.machine, &self.mappings, space, first);
            let Some(old) = self.regions.remove(&(space, first)) else {
                now.map(|now| self.regions.insert((space, first), now));
                continue;
            };
            let (whole, fragments) = old.forgotten(&self.machine, now.as_ref());
            now.map(|now| self.regions.insert((space, first), now));
            for (_, cache) in &mut self.tlbs {
                let gone = |held: Entry| {
                    held.space % SIBLING == space
                        && match held.contents {
                            Contents::Perforated => whole && held.first == first,
                            Contents::Bitmap => fragments.contains(&held.first),
                            _ => false,
                        }
                };
                let dropped = cache.drop(gone);
                self.counts.shootdown_entries += if whole { dropped } else { 0 };
            }
            // A hole that is filled is announced to nobody; where the table is gone, nothing more
            // is.
            if whole && self.nodes.contains_key(&self.node(space, first, 1)) {
                self.announce(space, at, pages);
            }
        }
    }

    /// Removes all mappings of a space after one flush.
    pub(crate) fn flush(&mut self, space: u32) {
        if self.nodes.keys().any(|node| node.0 == space) {
            self.announce(space, 0, u64::MAX);
        }
    }

    pub(crate) fn enter(&mut self, space: u32, at: u64, to: Mapped, access: Access) {
        self.enter_used(space, at, to, (true, access == Access::Write));
    }

    /// With these use bits, referenced and dirty.
    pub(crate) fn enter_used(&mut self, space: u32, at: u64, to: Mapped, (referenced, dirty): (bool, bool)) {
        let Mapped { size, protection, frame } = to;
        self.mappings.insert((space, at), Mapping { frame: frame.0, size, protection, referenced, dirty });
        self.rebuild();
        self.follow(space, at, self.pages(size));
    }

    pub(crate) fn remove(&mut self, space: u32, at: u64) -> Mapping {
        let mapping = self.mappings.remove(&(space, at)).unwrap();
        self.shoot(space, at, mapping.size);
        self.announce(space, at, self.pages(mapping.size));
        self.groups.iter_mut().for_each(|groups| groups.drop(space, at));
        self.rebuild();
        self.follow(space, at, self.pages(mapping.size));
        mapping
    }

    pub(crate) fn protect(&mut self, space: u32, at: u64, protection: Protection) {
        let mapping = self.mappings.get_mut(&(space, at)).unwrap();
        mapping.protection = protection;
        let size = mapping.size;
        self.shoot(space, at, size);
        self.announce(space, at, self.pages(size));
        self.groups.iter_mut().for_each(|groups| groups.drop(space, at));
        self.follow(space, at, self.pages(size));
    }

    pub(crate) fn promote(&mut self, space: u32, at: u64, from: PageSize, to: PageSize) {
        let mut whole: Option<Mapping> = None;
        for first in (at..at + self.pages(to)).step_by(self.pages(from) as usize) {
            let part = self.mappings.remove(&(space, first)).unwrap();
            self.shoot(space, first, from);
            let so_far = whole.unwrap_or(part);
            let referenced = so_far.referenced || part.referenced;
            whole = Some(Mapping { size: to, referenced, dirty: so_far.dirty || part.dirty, ..so_far });
        }
        self.announce(space, at, self.pages(to));
        self.mappings.insert((space, at), whole.unwrap());
        self.rebuild();
        self.follow(space, at, self.pages(to));
    }

    pub(crate) fn demote(&mut self, space: u32, at: u64, from: PageSize, to: PageSize) {
        let whole = self.mappings.remove(&(space, at)).unwrap();
        self.shoot(space, at, from);
        self.announce(space, at, self.pages(from));
        for first in (at..at + self.pages(from)).step_by(self.pages(to) as usize) {
            self.mappings.insert((space, first), Mapping { size: to, frame: whole.frame + (first - at), ..whole });
        }
        self.rebuild();
        self.follow(space, at, self.pages(from));
    }

    /// A page whose reference bit is cleared leaves the TLBs, or stays there as it is.
    fn flushes_referenced(&self) -> bool {
        let joined = |tlb: &TlbSpec| tlb.sizes.contains(&self.machine.pages.sizes[0]);
        let compares = |tlb: &&TlbSpec| tlb.joins.as_ref().is_some_and(|joins| !joins.alike.is_empty());
        self.machine.page_table.flush_referenced || self.machine.tlb.iter().filter(compares).any(joined)
    }

    pub(crate) fn clear(&mut self, space: u32, at: u64, dirty: bool) -> bool {
        let mapping = self.mappings.get_mut(&(space, at)).unwrap();
        let bit = if dirty { &mut mapping.dirty } else { &mut mapping.referenced };
        let was = std::mem::replace(bit, false);
        let size = mapping.size;
        if was && (dirty || self.flushes_referenced()) {
            self.shoot(space, at, size);
            self.announce(space, at, self.pages(size));
            self.groups.iter_mut().for_each(|groups| groups.drop(space, at));
        }
        was
    }

    pub(crate) fn destroy(&mut self, space: u32) {
        assert!(!self.mappings.keys().any(|key| key.0 == space));
        self.groups.iter_mut().for_each(|groups| groups.end(space));
        let roots: Vec<Pointer> = self.nodes.keys().copied().filter(|node| node.0 == space).collect();
        // Roots are given back in the order in which they were made.
        let mut roots: Vec<(u64, Pointer)> = roots.into_iter().map(|root| (self.nodes[&root], root)).collect();
        roots.sort_by_key(|(number, _)| self.made[number]);
        for (number, root) in roots {
            self.nodes.remove(&root);
            self.free.push(number);
        }
    }

    /// The size of the translation of a page.
    fn translated(&self, page: u64, (first, mapping): (u64, Mapping)) -> PageSize {
        match self.host.as_ref().and_then(|host| host.tables.as_ref()) {
            None => reach::translated(&self.machine, mapping.size),
            Some(tables) => {
                let host = tables.mapping(0, mapping.frame + (page - first));
                host.map_or(self.machine.pages.sizes[0], |(_, host)| host.size.min(mapping.size))
            }
        }
    }

    /// Drops all that depends on spaces, and blocks.
    pub(crate) fn flush_all(&mut self) {
        let (sibling, alone) = (self.sibling, self.machine.clock.threads_per_core == 1);
        for (_, cache) in &mut self.tlbs {
            if alone { cache.flush() } else { _ = cache.drop(|held| held.space / SIBLING == sibling) }
        }
        self.ranges.iter_mut().for_each(|ranges| ranges.flush(sibling));
        self.flush_walk_caches();
    }

    /// The space in entries of the hardware thread that runs.
    pub(crate) fn own(&self) -> u32 {
        self.space + self.sibling * SIBLING
    }

    /// A space in the entries of each hardware thread.
    fn of_all(&self, space: u32) -> Vec<u32> {
        (0..self.machine.clock.threads_per_core).map(|sibling| space + sibling * SIBLING).collect()
    }

    pub(crate) fn serves(spec: &TlbSpec, access: Access) -> bool {
        use superpage_mmu::Serves::*;
        match spec.serves {
            Unified => true,
            Data => access != Access::Execute,
            Load => access == Access::Read,
            Store => access == Access::Write,
            Instruction => access == Access::Execute,
        }
    }

    /// The perforated page of this base page, and what of it is held: its entry, and the fragment.
    fn region(&self, page: u64, mapping: Option<(u64, Mapping)>) -> Option<Region> {
        let base = self.machine.pages.sizes[0];
        mapping.filter(|(_, mapping)| mapping.size == base)?;
        perforated::region(&self.machine, &self.mappings, self.space, page)
    }

    /// Asks the TLBs, nearest first; fills those that missed if the page is mapped. Returns whether
    /// one has the page; if none, what is known of its perforated page: its entry, and the
    /// fragment.
    fn translate(
        &mut self,
        page: u64,
        access: Access,
        mapping: Option<(u64, Mapping)>,
        counted: bool,
    ) -> Result<(), (bool, bool)> {
        self.tlbs.iter_mut().for_each(|(_, cache)| cache.by = Some(access));
        let (own, region) = (self.own(), self.region(page, mapping));
        let absent = match mapping {
            None => perforated::region(&self.machine, &self.mappings, self.space, page),
            Some(_) => None,
        };
        let mut known = (false, false);
        let deepest = self.tlbs.iter().map(|(spec, _)| spec.level).max().unwrap();
        let mut hit = None;
        for level in 1..=deepest {
            let orders: Vec<(PageSize, u32)> =
                self.machine.pages.sizes.iter().map(|size| (*size, self.order(*size))).collect();
            for (spec, cache) in &mut self.tlbs {
                if spec.level == level && Naive::serves(spec, access) {
                    let joint = |held: Entry| held.held.is_some() && held.covers(own, page);
                    let block = spec.joins.as_ref().map(|joins| page / joins.pages as u64);
                    if block.is_some_and(|block| cache.hit(block, joint).is_some()) {
                        assert!(hit.is_none(), "two entries for a page in a level");
                        hit = Some(level);
                        continue;
                    }
                    for (_, order) in orders.iter().filter(|(size, _)| spec.sizes.contains(size)) {
                        let of_size = |held: Entry| held.pages == 1 << order;
                        let wanted =
                            |held: Entry| held.contents == Contents::Mapping && of_size(held) && held.covers(own, page);
                        if let Some(held) = cache.hit_page(page, *order, wanted) {
                            assert!(hit.is_none(), "two entries for a page in a level");
                            assert_eq!(mapping.unwrap().1.size, held.size, "an entry that the table does not know");
                            hit = Some(level);
                        }
                    }
                    let either = region.as_ref().or(absent.as_ref());
                    if let (None, Some(region), true) = (hit, either, perforated::held_by(&self.machine, spec)) {
                        let (space, n) = (own, perforated::pages(&self.machine).unwrap());
                        let of = |contents: Contents| {
                            move |held: Entry| held.contents == contents && held.covers(space, page)
                        };
                        let whole = cache.hit(page / n, of(Contents::Perforated)).is_some();
                        let may = region.may_be_hole(&self.machine, page);
                        let pages = region.fragment(&self.machine, page).1;
                        let fragment = may && cache.hit(page / pages, of(Contents::Bitmap)).is_some();
                        if whole && !region.holes.contains(&page) && (fragment || !may) {
                            hit = Some(level);
                        } else {
                            known = (known.0 || whole, known.1 || fragment);
                        }
                    }
                }
            }
            if level == deepest && self.ranges.as_mut().is_some_and(|ranges| ranges.hit(own, page)) {
                assert!(mapping.is_some(), "a range with a page that is not mapped");
                hit = Some(level);
            }
            if hit.is_some() {
                break;
            }
            if counted {
                self.counts.misses[level - 1][access as usize] += 1;
            }
        }
        if hit.is_none() {
            self.pointer = self.use_pointer(page, mapping);
        }
        let base = self.machine.pages.sizes[0];
        if let Some((first, mapping)) = mapping {
            let size = self.translated(page, (first, mapping));
            let (order, pages) = (self.order(size), self.pages(size));
            let number = page >> order;
            let entry = reach::entry((own, page), pages, mapping.size);
            for level in (1..hit.unwrap_or(deepest + 1)).rev() {
                for index in 0..self.tlbs.len() {
                    let (spec, cache) = &mut self.tlbs[index];
                    if spec.level == level && Naive::serves(spec, access) && spec.sizes.contains(&size) {
                        if let (Some(region), true) = (&region, perforated::held_by(&self.machine, spec)) {
                            let (space, n) = (own, perforated::pages(&self.machine).unwrap());
                            let has = |cache: &Cache<Entry>, contents: Contents| {
                                cache.entries().any(|held| held.contents == contents && held.covers(space, page))
                            };
                            let (first, pages) = region.fragment(&self.machine, page);
                            let large = self.machine.pages.sizes.iter().find(|size| size.bytes() / base.bytes() == n);
                            let part = |first, pages, contents| Entry {
                                space,
                                first,
                                pages,
                                size: *large.unwrap(),
                                held: None,
                                contents,
                            };
                            // Both are looked for before either is loaded.
                            let had = has(cache, Contents::Perforated);
                            if region.may_be_hole(&self.machine, page) && !has(cache, Contents::Bitmap) {
                                cache.fill(page / pages, part(first, pages, Contents::Bitmap));
                            }
                            if region.holes.contains(&page) {
                                cache.fill(number, entry);
                            } else if !had {
                                cache.fill(page / n, part(region.first, n, Contents::Perforated));
                            }
                            continue;
                        }
                        if let Some(joins) = spec.joins.as_ref().filter(|_| mapping.size == base) {
                            let all = joins::together(joins, base, &self.mappings, self.space, page);
                            if !all.is_empty() {
                                let one = joins::has_valid_bits(joins) && !joins.prefetch;
                                let new = if one { vec![page] } else { all.clone() };
                                let new = reach::joint(own, joins.pages as u64, &new, base);
                                let fits = |held: Entry| {
                                    let old =
                                        held.held.filter(|_| all.iter().any(|page| held.covers(new.space, *page)))?;
                                    Some(Entry { held: new.held.map(|new| new | old), ..held })
                                };
                                let block = page / joins.pages as u64;
                                if !cache.change(block, fits) {
                                    cache.fill(block, new);
                                }
                                continue;
                            }
                        }
                        let evicted = cache.fill_page(page, order, entry);
                        let outer = spec.clone();
                        if let (true, Some(evicted)) = (outer.inclusive, evicted) {
                            self.drop_inner(&outer, evicted);
                        }
                    }
                }
            }
        }
        let loads = hit.is_none() && mapping.is_some();
        if let Some(mut ranges) = self.ranges.take_if(|_| loads) {
            let pages = |first| self.pages(self.mappings[&(self.space, first)].size);
            ranges.fill(&self.mappings, own, page, pages);
            self.ranges = Some(ranges);
        }
        if hit.is_some() { Ok(()) } else { Err(known) }
    }

    fn drop_inner(&mut self, outer: &TlbSpec, evicted: Entry) {
        for (_, cache) in self.tlbs.iter_mut().filter(|(inner, _)| Naive::is_inner(inner, outer)) {
            // By the address, whoever loaded it.
            let of = |held: Entry| Entry { space: held.space % SIBLING, ..held };
            cache.drop(|held| of(held).meets(evicted.space % SIBLING, evicted.first, evicted.pages));
        }
    }

    /// Whether one TLB is nearer than another, and all that it serves the other does too.
    fn is_inner(inner: &TlbSpec, outer: &TlbSpec) -> bool {
        let all = [Access::Read, Access::Write, Access::Execute];
        let within = all.iter().all(|access| !Naive::serves(inner, *access) || Naive::serves(outer, *access));
        inner.level < outer.level && within
    }

    /// One request, counted.
    pub(crate) fn access(&mut self, page: u64, access: Access) -> Option<Stop> {
        self.forgotten = None;
        self.host.iter_mut().for_each(|host| host.shot = false);
        self.counts.references[access as usize] += 1;
        let mapping = self.mapping(self.space, page);
        let stop = match mapping {
            None => Some(Stop::Absent),
            Some((_, mapping)) if !mapping.protection.allows(access) => Some(Stop::Rights),
            _ => None,
        };
        if stop.is_none() {
            self.mark(page, access);
        }
        if let Err(known) = self.translate(page, access, mapping, true) {
            self.walk(page, mapping, known);
        }
        stop
    }

    fn mark(&mut self, page: u64, access: Access) {
        let (first, mapping) = self.mapping(self.space, page).unwrap();
        let write = access == Access::Write;
        let (dirty, referenced) = (write && !mapping.dirty, !mapping.referenced);
        let entries = self.entries(first, mapping.size);
        for (bits, count) in [(&mut self.counts.use_bits, 1), (&mut self.counts.use_bit_entries, entries)] {
            bits.dirty += if dirty { count } else { 0 };
            bits.referenced += if referenced { count } else { 0 };
            bits.both += if dirty && referenced { count } else { 0 };
        }
        if mapping.size == self.machine.pages.sizes[0] {
            self.separate(page, !mapping.referenced, write && !mapping.dirty);
        }
        let mapping = self.mappings.get_mut(&(self.space, first)).unwrap();
        mapping.referenced = true;
        mapping.dirty |= write;
    }

    /// A base page leaves the entries that it shares, where a use bit that they look at is about to
    /// change.
    fn separate(&mut self, page: u64, referenced: bool, dirty: bool) {
        let space = self.space;
        for (spec, cache) in &mut self.tlbs {
            let Some(joins) = spec.joins.clone() else { continue };
            let changes = |bit: &UseBit| match bit {
                UseBit::Referenced => referenced,
                UseBit::Dirty => dirty,
            };
            if joins.alike.iter().any(changes) {
                Naive::forget_shared(&joins, cache, space, page);
            }
        }
    }

    /// The request again, after the operating system has acted: fills the TLBs and counts nothing.
    pub(crate) fn retry(&mut self, page: u64, access: Access) {
        let mapping = self.mapping(self.space, page);
        assert!(mapping.is_some_and(|(_, mapping)| mapping.protection.allows(access)));
        if self.groups.is_some() {
            assert_eq!(self.access(page, access), None);
            return;
        }
        self.forgotten = None;
        self.host.iter_mut().for_each(|host| host.shot = false);
        self.mark(page, access);
        let _ = self.translate(page, access, mapping, false);
    }

    /// Ranges in the range TLB.
    pub(crate) fn ranges_held(&self) -> u64 {
        self.ranges.as_ref().map_or(0, Ranges::len)
    }

    /// Entries in each TLB by what they hold and size.
    pub(crate) fn held(&self) -> Vec<(usize, Contents, PageSize, u64)> {
        let mut held = BTreeMap::new();
        for (index, (_, cache)) in self.tlbs.iter().enumerate() {
            cache.entries().for_each(|entry| *held.entry((index, entry.contents, entry.size)).or_default() += 1);
        }
        held.into_iter().map(|((index, contents, size), count)| (index, contents, size, count)).collect()
    }
}
