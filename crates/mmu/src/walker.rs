//! The walker: page-walk caches, and the caches that page-table lines go through.
//!
//! A walk starts below the lowest table whose pointer a walk cache holds, then reads one entry a level from memory. The
//! walk caches are searched from the lowest level up; only the one that hits counts as used, and those below it are
//! filled. Page-table lines compete only with each other: the program's own data are not in these caches, so the
//! latencies of walks are a lower bound.

use crate::associative::Associative;
use crate::counters::{Counters, MAX_WALK_LEVELS};
use crate::machine::Machine;
use crate::record::{PLACES, Record, TABLE_PLACE_BITS};
use crate::replacement::Replacement;
use crate::table::{NO_PARENT, Tables};

const PLACE_MASK: u64 = (1 << TABLE_PLACE_BITS) - 1;

/// Bytes of a page-table entry, all machines alike.
pub(crate) const ENTRY_BYTES: u64 = 8;

/// One cache for page-table lines.
#[derive(Clone, Debug)]
struct LineCache {
    lines: Associative,
    /// Where in a line's places the way in this cache is noted.
    shift: u32,
    mask: u32,
}

/// Walk caches and line caches of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Walker {
    /// For pointers at level n, at index n - 1; the lowest level has none.
    caches: [Option<Associative>; MAX_WALK_LEVELS],
    line_caches: Vec<LineCache>,
    /// For each line of the tables, its ways in the line caches.
    places: Vec<u32>,
    /// From a record's number to its line's.
    line_shift: u32,
    node_bits: u32,
}

impl Walker {
    /// Empty caches, as the machine file describes them.
    pub(crate) fn new(machine: &Machine, tables: &Tables) -> Walker {
        let mut caches = [const { None }; MAX_WALK_LEVELS];
        for cache in &machine.walk_cache {
            caches[cache.level - 1] = Some(Associative::new(1, cache.entries, Replacement::Lru));
        }
        let mut shift = 0;
        let line_caches = machine.line_cache.iter().map(|cache| {
            let lines = Associative::new(cache.sets(machine.memory.line_bytes), cache.ways, cache.replacement);
            let bits = lines.way_bits();
            let cache = LineCache { lines, shift, mask: (1 << bits) - 1 };
            shift += bits;
            cache
        });
        Walker {
            caches,
            line_caches: line_caches.collect(),
            places: Vec::new(),
            line_shift: (machine.memory.line_bytes / ENTRY_BYTES).ilog2(),
            node_bits: tables.node_bits(),
        }
    }

    /// Walks to the record `id` of `level`, a leaf or the absent entry that ends the walk.
    #[inline(always)]
    pub(crate) fn walk(&mut self, tables: &mut Tables, id: u32, level: usize, counters: &mut Counters) {
        let above = tables.parents[(id >> self.node_bits) as usize];
        // By far most walks find the pointer to the last table, or the one above it.
        if level < MAX_WALK_LEVELS
            && let Some(cache) = &mut self.caches[level]
            && above != NO_PARENT
        {
            let place = tables.records[above as usize].place(PLACES, PLACE_MASK);
            if cache.holds(0, place, above) {
                cache.touch(0, place);
                counters.walk_cache_hits[level] += 1;
                self.reference(id, counters);
                return;
            }
        }
        self.climb(tables, id, level, above, counters);
    }

    fn climb(&mut self, tables: &mut Tables, id: u32, level: usize, above: u32, counters: &mut Counters) {
        // The pointers on the way that no walk cache holds, from the lowest.
        let mut pointers = [0; MAX_WALK_LEVELS];
        let (mut missed, mut above) = (0, above);
        while above != NO_PARENT {
            let at = level + missed;
            if let Some(cache) = &mut self.caches[at] {
                let place = tables.records[above as usize].place(PLACES, PLACE_MASK);
                if cache.holds(0, place, above) {
                    cache.touch(0, place);
                    counters.walk_cache_hits[at] += 1;
                    break;
                }
            }
            pointers[missed] = above;
            missed += 1;
            above = tables.parents[(above >> self.node_bits) as usize];
        }
        for index in (0..missed).rev() {
            let pointer = pointers[index];
            self.reference(pointer, counters);
            if let Some(cache) = &mut self.caches[level + index] {
                let (place, _) = cache.fill(0, pointer);
                let record = &mut tables.records[pointer as usize];
                *record = record.with_place(PLACES, PLACE_MASK, place);
            }
        }
        self.reference(id, counters);
    }

    /// Reads a record from memory through the line caches.
    #[inline(always)]
    fn reference(&mut self, id: u32, counters: &mut Counters) {
        counters.walk_memory_references += 1;
        let line = (id >> self.line_shift) as usize;
        if line >= self.places.len() {
            self.grow(line);
        }
        let mut places = self.places[line];
        let mut hit = self.line_caches.len();
        for (level, cache) in self.line_caches.iter_mut().enumerate() {
            let (set, way) = (cache.lines.set_of(line as u64), (places >> cache.shift & cache.mask) as usize);
            if cache.lines.holds(set, way, line as u32) {
                cache.lines.touch(set, way);
                hit = level;
                break;
            }
        }
        match counters.line_hits.get_mut(hit) {
            Some(hits) if hit < self.line_caches.len() => *hits += 1,
            _ => counters.line_misses += 1,
        }
        if hit > 0 {
            for cache in &mut self.line_caches[..hit] {
                let (way, _) = cache.lines.fill(cache.lines.set_of(line as u64), line as u32);
                places = places & !(cache.mask << cache.shift) | (way as u32) << cache.shift;
            }
            self.places[line] = places;
        }
    }

    #[cold]
    fn grow(&mut self, line: usize) {
        self.places.resize((line + 1).next_power_of_two().max(1 << 12), 0);
    }

    /// Drops the pointer at `level` from its walk cache.
    pub(crate) fn forget(&mut self, id: u32, level: usize, record: Record) {
        if let Some(cache) = &mut self.caches[level - 1] {
            let place = record.place(PLACES, PLACE_MASK);
            if cache.holds(0, place, id) {
                cache.invalidate(0, place);
            }
        }
    }

    /// Empties the walk caches; the line caches hold physical memory and stay.
    pub(crate) fn flush(&mut self) {
        self.caches.iter_mut().flatten().for_each(Associative::flush);
    }

    /// Checks that walk caches hold only pointers of their level, where the records say, and line caches only lines at
    /// their places.
    pub(crate) fn validate(&self, tables: &Tables) -> Result<(), String> {
        for (index, cache) in self.caches.iter().enumerate() {
            let Some(cache) = cache else { continue };
            cache.validate()?;
            for (_, way, id) in cache.entries() {
                let record = tables.records[id as usize];
                if !record.is_table() || tables.level_of(id) != index + 1 || record.place(PLACES, PLACE_MASK) != way {
                    return Err(format!("walk cache {} holds record {id:#x} in way {way}: {record:?}", index + 1));
                }
            }
        }
        for (level, cache) in self.line_caches.iter().enumerate() {
            cache.lines.validate()?;
            for (set, way, line) in cache.lines.entries() {
                let noted = (self.places[line as usize] >> cache.shift & cache.mask) as usize;
                if cache.lines.set_of(line as u64) != set || noted != way {
                    return Err(format!("line cache {level} holds line {line:#x} in set {set} way {way}, not {noted}"));
                }
            }
        }
        Ok(())
    }
}
