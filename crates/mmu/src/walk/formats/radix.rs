//! A radix tree: a page is one entry at the highest level whose entries do not span more than it;
//! for a size between two levels (64 KB with the contiguous bit) the entry is repeated within one
//! table.
//!
//! The index of the mappings has the shape of the tree: the number of a page-table entry times
//! eight is its *synthetic physical address*. Tables lie in a separate memory, aligned, in the
//! order in which they are needed; freed ones are reused, and each has room for the widest. So the
//! cache lines that a walk touches depend only on the sequence of operations.
//!
//! A walk starts below the lowest table whose pointer a walk cache holds, then reads one entry per
//! level.

use super::{TableFormat, Walks};
use crate::machine::MAX_WALK_LEVELS;
use crate::machine::Machine;
use crate::mappings::pte::SIZE_LEVELS;
use crate::mappings::{Found, Layout, Mappings, Pointer, Shape, SpacePage};
use crate::tlb::batch::Batch;
use crate::tlb::reach::PartialHits;
use crate::tlb::uses::{BATCH, each};
use crate::walk::lines::{Lines, Reads, WANTED};
use crate::walk::walk_caches::WalkCaches;
use superpage_pages::Ladder;

/// The most levels of a tree.
pub(crate) const MAX_LEVELS: usize = MAX_WALK_LEVELS;

/// The walk caches of the tree, and where walks end.
#[derive(Clone, Debug)]
pub(crate) struct Radix {
    pub(super) caches: WalkCaches,
    levels: usize,
    /// The level of the entries of pages at each level of the ladder.
    leaf_levels: [u8; SIZE_LEVELS],
    /// The shift from the number of a page-table entry to that of its table.
    node_bits: u32,
    /// For each level the pointers that the walks of a batch reach; in the lowest their last
    /// entries.
    pointers: [[u32; BATCH]; MAX_LEVELS],
    /// The tables of those at one level.
    tables: [u32; BATCH],
}

impl TableFormat for Radix {
    fn refuses(bits: &[u8], ladder: &Ladder) -> Option<String> {
        let largest = ladder.size(ladder.largest());
        let order = largest.shift() - ladder.base().shift();
        (order > bits.iter().map(|bits| *bits as u32).sum()).then(|| format!("a page of {largest} exceeds the tree"))
    }

    fn shape(machine: &Machine) -> Shape {
        Shape::new(machine, |spans, order| {
            let level = spans.iter().rposition(|span| *span <= order).unwrap_or(0);
            Layout { level: level + 1, replicas: order - spans[level] }
        })
    }

    fn new(machine: &Machine, shape: &Shape) -> Radix {
        let mut leaf_levels = [1; SIZE_LEVELS];
        for (level, layout) in leaf_levels.iter_mut().zip(&shape.layouts) {
            *level = layout.level as u8;
        }
        let (levels, node_bits) = (shape.bits.len(), shape.node_bits());
        let caches = WalkCaches::new(machine);
        Radix { caches, levels, leaf_levels, node_bits, pointers: [[0; BATCH]; MAX_LEVELS], tables: [0; BATCH] }
    }

    #[inline(always)]
    fn walk(&mut self, mappings: &Mappings, batch: &Batch, walks: Walks, reads: Reads<'_>) {
        let mut levels = [0; MAX_LEVELS];
        for group in batch.groups() {
            let level = group.absent().unwrap_or(self.leaf_levels[group.size_level() % SIZE_LEVELS].into());
            levels[level - 1] |= group.requests & walks.requests;
        }
        let (pointer_hits, absent) = (walks.partial.pointers, batch.absent & walks.requests);
        self.climb(mappings, Climb { entries: &batch.entries, levels, pointer_hits, absent }, reads);
    }

    fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, partial: PartialHits, reads: Reads<'_>) {
        let found = mappings.find(page.space, page.page, 1).expect("the root exists");
        if partial.pointers & 1 != 0 {
            reads.counters.walk_cache_hits[1] += 1;
            reads.lines.want(0, found.id);
            return reads.lines.read(1, reads.counters);
        }
        let path = self.path(mappings, found, &mut reads.counters.walk_cache_hits);
        path.top_down().enumerate().for_each(|(at, id)| reads.lines.want(at, id));
        reads.lines.read(path.len, reads.counters);
    }

    fn drop_pointer(&mut self, Pointer { level, pte, .. }: Pointer) {
        self.caches.forget(level - 1, pte.child() >> self.node_bits);
    }

    fn caches(&mut self) -> Option<&mut WalkCaches> {
        Some(&mut self.caches)
    }

    fn flush(&mut self) {
        self.caches.flush();
    }

    fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.caches.validate(mappings, self.node_bits)
    }
}

/// The entries that one walk reads.
pub(super) struct Path {
    /// From the last one up.
    ids: [u32; MAX_LEVELS],
    pub(super) len: usize,
    /// Whether a walk cache has the pointer to the first table, so that the walk begins there.
    pub(super) cached: bool,
}

impl Path {
    /// In the order in which the walk reads them.
    pub(super) fn top_down(&self) -> impl Iterator<Item = u32> {
        self.ids[..self.len].iter().rev().copied()
    }
}

/// The walks of a batch, as bit sets.
pub(super) struct Climb<'a> {
    /// The entry at which each ends.
    pub(super) entries: &'a [u32; BATCH],
    /// Walks that end at each level (index 0: the lowest).
    pub(super) levels: [u64; MAX_LEVELS],
    /// Walks for which a TLB has the pointer at level 2.
    pub(super) pointer_hits: u64,
    /// Walks that end at an absent entry.
    pub(super) absent: u64,
}

impl Radix {
    /// The path of a walk to this entry, as [`Radix::climb`] finds it for many. Counts hits in the
    /// walk caches by level.
    pub(super) fn path(&mut self, mappings: &Mappings, found: Found, hits: &mut [u64; MAX_LEVELS]) -> Path {
        let (mut ids, mut len) = ([found.id; MAX_LEVELS], 1);
        for (level, hits) in hits.iter_mut().enumerate().take(self.levels).skip(found.level) {
            let table = ids[len - 1] >> self.node_bits;
            if self.caches.hits(level, table) {
                *hits += 1;
                return Path { ids, len, cached: true };
            }
            ids[len] = mappings.parents[table as usize];
            len += 1;
        }
        Path { ids, len, cached: false }
    }

    /// Does walks: finds their entries from the last one up, then reads these from the top down.
    #[inline(always)]
    pub(super) fn climb(&mut self, mappings: &Mappings, climb: Climb<'_>, mut reads: Reads<'_>) {
        let Climb { entries, levels, pointer_hits, absent } = climb;
        // From the lowest level up, the walks that reach each level: those that no cache below it
        // shortened.
        let mut coming = levels;
        let mut reached = 1;
        self.pointers[0] = *entries;
        for level in 1..self.levels.min(MAX_LEVELS) {
            let (below, here) = self.pointers.split_at_mut(level);
            let (below, here) = (&below[level - 1], &mut here[0]);
            for index in each(levels[level]) {
                here[index] = entries[index];
            }
            // Those whose entry is below this level and that no cache has served yet.
            let climbing = coming[level - 1];
            let bits = self.node_bits;
            let last = (u64::BITS - climbing.leading_zeros()) as usize;
            self.tables.iter_mut().zip(&below[..last]).for_each(|(table, entry)| *table = entry >> bits);
            let tables = &self.tables;
            let missed = self.caches.missed(level, climbing, pointer_hits, tables);
            for index in each(missed) {
                here[index] = mappings.parents[tables[index] as usize];
            }
            reads.counters.walk_cache_hits[level] += (climbing & !missed).count_ones() as u64;
            if absent != 0 {
                reads.faulting.walk_cache_hits[level] += (climbing & !missed & absent).count_ones() as u64;
            }
            coming[level] |= missed;
            if coming[level] != 0 {
                reached = level + 1;
            }
        }

        let walks = levels.iter().fold(0, |all, level| all | level);
        let count = self.want(walks, &coming[..reached], reads.lines);
        if absent == 0 {
            return reads.lines.read(count, reads.counters);
        }
        // What is read for walks to absent entries is counted once more.
        let (mut of_absent, mut place) = ([false; WANTED], 0);
        for index in each(walks) {
            let lines = coming.iter().filter(|coming| *coming >> index & 1 != 0).count();
            of_absent[place..place + lines].fill(absent >> index & 1 != 0);
            place += lines;
        }
        reads.read_absent(count, &mut of_absent);
    }

    /// Queues the lines of these walks, from the highest level down: `coming` are those that reach
    /// each. Returns their number.
    #[inline(always)]
    fn want(&self, walks: u64, coming: &[u64], lines: &mut Lines) -> usize {
        let (mut count, long) = (0, coming[1..].iter().fold(0, |long, level| long | level));
        for index in each(walks) {
            if long >> index & 1 == 0 {
                // It reads the lowest level alone, as most do.
                lines.want(count, self.pointers[0][index]);
                count += 1;
                continue;
            }
            for (coming, pointers) in coming.iter().zip(&self.pointers).rev() {
                lines.want(count, pointers[index]);
                count += (coming >> index & 1) as usize;
            }
        }
        count
    }
}
