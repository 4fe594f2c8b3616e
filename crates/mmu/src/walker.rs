//! The walker: page-walk caches, and the caches that page-table lines go through.
//!
//! A walk starts below the lowest table whose pointer a walk cache holds, then reads one entry a level from memory. The
//! walk caches are searched from the lowest level up; only the one that hits counts as used, and those below it are
//! filled. Page-table lines compete only with each other: the program's own data are not in these caches, so the
//! latencies of walks are a lower bound.

use crate::bank::{Bank, Outcome, Parts, Shape};
use crate::counters::{Counters, MAX_LINE_LEVELS, MAX_WALK_LEVELS};
use crate::machine::Machine;
use crate::record::Record;
use crate::replacement::Replacement;
use crate::table::{NO_PARENT, Nodes, Tables};

/// Bytes of a page-table entry, all machines alike.
pub(crate) const ENTRY_BYTES: u64 = 8;

/// One cache for page-table lines.
#[derive(Clone, Copy, Debug, Default)]
struct LineCache {
    shape: Shape,
    /// Where in a line's places the way in this cache is noted.
    shift: u32,
    mask: u32,
}

/// Walk caches and line caches of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Walker {
    bank: Bank,
    /// For pointers at level n, at index n - 1; the lowest level has none.
    caches: [Option<Shape>; MAX_WALK_LEVELS + 1],
    line_caches: [LineCache; MAX_LINE_LEVELS],
    line_levels: usize,
    /// For each line of the tables, its ways in the line caches.
    places: Vec<u32>,
    /// From a record's number to its line's.
    line_shift: u32,
    node_bits: u32,
}

/// The walker lent for a stretch of work.
pub(crate) struct Lent<'a> {
    parts: Parts<'a>,
    caches: &'a [Option<Shape>; MAX_WALK_LEVELS + 1],
    line_caches: &'a [LineCache; MAX_LINE_LEVELS],
    line_levels: usize,
    places: &'a mut [u32],
    line_shift: u32,
    node_bits: u32,
}

impl Walker {
    /// Empty caches, as the machine file describes them.
    pub(crate) fn new(machine: &Machine, tables: &Tables) -> Walker {
        let mut bank = Bank::default();
        let mut caches = [None; MAX_WALK_LEVELS + 1];
        for cache in &machine.walk_cache {
            caches[cache.level - 1] = Some(bank.add(1, cache.entries, Replacement::Lru));
        }
        let mut line_caches = [LineCache::default(); MAX_LINE_LEVELS];
        let mut shift = 0;
        for (slot, cache) in line_caches.iter_mut().zip(&machine.line_cache) {
            let shape = bank.add(cache.sets(machine.memory.line_bytes), cache.ways, cache.replacement);
            let bits = usize::BITS - (cache.ways - 1).leading_zeros();
            *slot = LineCache { shape, shift, mask: ((1u64 << bits) - 1) as u32 };
            shift = (shift + bits).min(u32::BITS - 1);
        }
        Walker {
            bank,
            caches,
            line_caches,
            line_levels: machine.line_cache.len(),
            places: Vec::new(),
            line_shift: (machine.memory.line_bytes / ENTRY_BYTES).ilog2(),
            node_bits: tables.node_bits(),
        }
    }

    /// The walker, for a stretch of work in which no table is made.
    #[inline(always)]
    pub(crate) fn lend(&mut self, records: usize) -> Lent<'_> {
        let lines = (records >> self.line_shift) + 1;
        if lines > self.places.len() {
            self.places.resize(lines.next_power_of_two(), 0);
        }
        Lent {
            parts: self.bank.parts(),
            caches: &self.caches,
            line_caches: &self.line_caches,
            line_levels: self.line_levels,
            places: &mut self.places,
            line_shift: self.line_shift,
            node_bits: self.node_bits,
        }
    }

    /// Drops the pointer at `level` from its walk cache.
    pub(crate) fn forget(&mut self, id: u32, level: usize, record: Record) {
        if let Some(shape) = &self.caches[level - 1] {
            self.bank.forget(shape, 0, record.walk_place(), id);
        }
    }

    /// Empties the walk caches; the line caches hold physical memory and stay.
    pub(crate) fn flush(&mut self) {
        self.caches.iter().flatten().for_each(|shape| self.bank.flush(shape));
    }

    /// Checks that walk caches hold only pointers of their level, where the records say, and line caches only lines at
    /// their places.
    pub(crate) fn validate(&self, tables: &Tables) -> Result<(), String> {
        for (index, shape) in self.caches.iter().enumerate() {
            let Some(shape) = shape else { continue };
            self.bank.validate(shape)?;
            for (_, way, id) in self.bank.entries(shape) {
                let record = tables.records[id as usize];
                if !record.is_table() || tables.nodes.level_of(id) != index + 1 || record.walk_place() != way {
                    return Err(format!("walk cache {} holds record {id:#x} in way {way}: {record:?}", index + 1));
                }
            }
        }
        for (level, cache) in self.line_caches[..self.line_levels].iter().enumerate() {
            self.bank.validate(&cache.shape)?;
            for (set, way, line) in self.bank.entries(&cache.shape) {
                let noted = (self.places[line as usize] >> cache.shift & cache.mask) as usize;
                if cache.shape.set_of(line as u64) != set || noted != way {
                    return Err(format!("line cache {level} holds line {line:#x} in set {set} way {way}, not {noted}"));
                }
            }
        }
        Ok(())
    }
}

impl Lent<'_> {
    /// Walks to the record `id`, a leaf or the absent entry that ends the walk.
    #[inline(always)]
    pub(crate) fn walk(
        &mut self,
        records: &mut [Record],
        parents: &[u32],
        nodes: &Nodes,
        id: u32,
        counters: &mut Counters,
    ) {
        let level = nodes.level_of(id);
        // The pointers on the way that no walk cache holds, from the lowest.
        let mut pointers = [0; MAX_WALK_LEVELS];
        let mut missed = 0;
        let mut above = parents[(id >> self.node_bits) as usize];
        while above != NO_PARENT && missed < MAX_WALK_LEVELS {
            let at = (level + missed).min(MAX_WALK_LEVELS);
            if let Some(shape) = &self.caches[at] {
                let place = records[above as usize].walk_place();
                match self.parts.access(shape, 0, place, above, true) {
                    Outcome::Filled { way, .. } => records[above as usize].set_walk_place(way),
                    _ => {
                        counters.walk_cache_hits[at % MAX_WALK_LEVELS] += 1;
                        break;
                    }
                }
            }
            pointers[missed] = above;
            missed += 1;
            above = parents[(above >> self.node_bits) as usize];
        }
        while missed > 0 {
            missed -= 1;
            self.reference(pointers[missed], counters);
        }
        self.reference(id, counters);
    }

    /// Reads a record from memory through the line caches.
    #[inline(always)]
    fn reference(&mut self, id: u32, counters: &mut Counters) {
        let line = (id >> self.line_shift) as usize;
        let mut places = self.places[line];
        let mut hit = 0;
        while hit < self.line_levels.min(MAX_LINE_LEVELS) {
            let cache = &self.line_caches[hit];
            let way = (places >> cache.shift & cache.mask) as usize;
            match self.parts.access(&cache.shape, line as u64, way, line as u32, true) {
                Outcome::Filled { way, .. } => {
                    places = places & !(cache.mask << cache.shift) | (way as u32) << cache.shift;
                }
                _ => break,
            }
            hit += 1;
        }
        match hit < self.line_levels {
            true => counters.line_hits[hit % MAX_LINE_LEVELS] += 1,
            false => counters.line_misses += 1,
        }
        if hit > 0 {
            self.places[line] = places;
        }
    }
}
