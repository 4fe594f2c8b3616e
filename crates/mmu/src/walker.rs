//! The walker: page-walk caches, and the caches that page-table lines go through.
//!
//! A walk starts below the lowest table whose pointer a walk cache holds, then reads one entry a level from memory. The
//! walk caches are searched from the lowest level up; only the one that hits counts as used, and those below it are
//! filled. Page-table lines compete only with each other: the program's own data are not in these caches, so the
//! latencies of walks are a lower bound.

use crate::batch::{BATCH, each};
use crate::cache::{Cache, Sets, on_sets};
use crate::counters::{Counters, MAX_LINE_LEVELS, MAX_WALK_LEVELS};
use crate::machine::Machine;
use crate::reach::Exact;
use crate::record::Record;
use crate::replacement::{Replace, Replacement};
use crate::table::Tables;

/// Bytes of a page-table entry, all machines alike.
pub(crate) const ENTRY_BYTES: u64 = 8;

/// One cache for page-table lines.
#[derive(Clone, Debug)]
struct LineCache {
    cache: Cache,
    /// Where in a line's places the way in this cache is noted.
    shift: u32,
    mask: u32,
}

/// Walk caches and line caches of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Walker {
    /// For pointers at level n, at index n - 1; the lowest level has none.
    caches: [Option<Cache>; MAX_WALK_LEVELS],
    line_caches: Vec<LineCache>,
    /// For each line of the tables, its ways in the line caches.
    places: Vec<u32>,
    /// From a record's number to its line's.
    line_shift: u32,
    node_bits: u32,
    levels: usize,
    /// For each level the pointers that the walks of a batch come to; in the lowest their last entries.
    pointers: [[u32; BATCH]; MAX_WALK_LEVELS],
    /// The lines that are referenced, in order.
    lines: [u32; BATCH * MAX_WALK_LEVELS],
}

impl Walker {
    /// Empty caches, as the machine file describes them.
    pub(crate) fn new(machine: &Machine, tables: &Tables) -> Walker {
        let mut caches = [const { None }; MAX_WALK_LEVELS];
        for cache in &machine.walk_cache {
            caches[cache.level - 1] = Some(Cache::new(1, cache.entries, Replacement::Lru, cache.entries));
        }
        let mut line_caches = Vec::new();
        let mut shift = 0;
        for spec in &machine.line_cache {
            let cache = Cache::new(spec.sets(machine.memory.line_bytes), spec.ways, spec.replacement, spec.ways);
            let bits = usize::BITS - (spec.ways - 1).leading_zeros();
            line_caches.push(LineCache { cache, shift, mask: ((1u64 << bits) - 1) as u32 });
            shift = (shift + bits).min(u32::BITS - 1);
        }
        assert!(line_caches.len() <= MAX_LINE_LEVELS, "the machine was checked");
        Walker {
            caches,
            line_caches,
            places: Vec::new(),
            line_shift: (machine.memory.line_bytes / ENTRY_BYTES).ilog2(),
            node_bits: tables.node_bits(),
            levels: tables.levels(),
            pointers: [[0; BATCH]; MAX_WALK_LEVELS],
            lines: [0; BATCH * MAX_WALK_LEVELS],
        }
    }

    /// Drops the pointer at `level` from its walk cache.
    pub(crate) fn forget(&mut self, id: u32, level: usize, record: Record) {
        if let Some(cache) = &mut self.caches[level - 1] {
            cache.forget(0..1, record.walk_place(), id);
        }
    }

    /// Empties the walk caches; the line caches hold physical memory and stay.
    pub(crate) fn flush(&mut self) {
        self.caches.iter_mut().flatten().for_each(Cache::flush);
    }

    /// Checks that walk caches hold only pointers of their level, where the records say, and line caches only lines at
    /// their places.
    pub(crate) fn validate(&self, tables: &Tables) -> Result<(), String> {
        for (index, cache) in self.caches.iter().enumerate() {
            let Some(cache) = cache else { continue };
            cache.validate()?;
            for (_, way, id, ()) in cache.entries() {
                let record = tables.records[id as usize];
                if !record.is_table() || tables.nodes.level_of(id) != index + 1 || record.walk_place() != way {
                    return Err(format!("walk cache {} holds record {id:#x} in way {way}: {record:?}", index + 1));
                }
            }
        }
        for (level, LineCache { cache, shift, mask }) in self.line_caches.iter().enumerate() {
            cache.validate()?;
            for (set, way, line, ()) in cache.entries() {
                let noted = (self.places[line as usize] >> shift & mask) as usize;
                if !cache.selects(line as u64, set) || noted != way {
                    return Err(format!("line cache {level} holds line {line:#x} in set {set} way {way}, not {noted}"));
                }
            }
        }
        Ok(())
    }

    /// Walks to the records `entries`, leaves or the absent entries that end the walks; `levels` says which of them are
    /// at each level (index 0: the lowest), as bit sets.
    #[inline(always)]
    pub(crate) fn walk(
        &mut self,
        records: &mut [Record],
        parents: &[u32],
        entries: &[u32; BATCH],
        levels: [u64; MAX_WALK_LEVELS],
        counters: &mut Counters,
    ) {
        // From the lowest level up, who comes to each level: a walk that no cache below it could shorten.
        let mut coming = levels;
        let mut reached = 1;
        self.pointers[0] = *entries;
        for level in 1..self.levels.min(MAX_WALK_LEVELS) {
            let (below, here) = self.pointers.split_at_mut(level);
            let (below, here) = (&below[level - 1], &mut here[0]);
            for index in each(levels[level]) {
                here[index] = entries[index];
            }
            // Those whose entry is below this level and that no cache served yet.
            let climbing = coming[level - 1];
            for index in each(climbing) {
                here[index] = parents[(below[index] >> self.node_bits) as usize];
            }
            let missed = match &mut self.caches[level] {
                Some(cache) if climbing != 0 => on_sets!(cache, sets => look_up(&mut sets, records, here, climbing)),
                _ => climbing,
            };
            counters.walk_cache_hits[level] += (climbing & !missed).count_ones() as u64;
            coming[level] |= missed;
            if coming[level] != 0 {
                reached = level + 1;
            }
        }

        let mut count = 0;
        for index in each(levels.iter().fold(0, |all, level| all | level)) {
            for level in (0..reached).rev() {
                self.lines[count] = self.pointers[level][index] >> self.line_shift;
                count += (coming[level] >> index & 1) as usize;
            }
        }
        self.reference(count, records.len(), counters);
    }

    /// Reads the first `count` of `lines` from memory through the line caches.
    #[inline(always)]
    fn reference(&mut self, count: usize, records: usize, counters: &mut Counters) {
        let lines = (records >> self.line_shift) + 1;
        if lines > self.places.len() {
            self.places.resize(lines.next_power_of_two(), 0);
        }
        let mut left = count;
        for (LineCache { cache, shift, mask }, hits) in self.line_caches.iter_mut().zip(&mut counters.line_hits) {
            if left == 0 {
                return;
            }
            let (lines, places) = (&mut self.lines[..left], &mut self.places[..]);
            let missed = on_sets!(cache, sets => read(&mut sets, lines, places, *shift, *mask));
            *hits += (left - missed) as u64;
            left = missed;
        }
        counters.line_misses += left as u64;
    }
}

/// Looks pointers up in a walk cache, which is filled by those that miss; returns which.
#[inline(always)]
fn look_up<R: Replace>(
    sets: &mut Sets<'_, Exact, R>,
    records: &mut [Record],
    pointers: &[u32; BATCH],
    asking: u64,
) -> u64 {
    let mut missed = 0;
    for index in each(asking) {
        let id = pointers[index];
        let record = &mut records[id as usize];
        if !sets.hit(0, record.walk_place(), id) {
            record.set_walk_place(sets.fill(0, id).0);
            missed |= 1 << index;
        }
    }
    missed
}

/// Reads lines through one cache, which is filled by those that miss. Leaves these at the front and returns their number.
#[inline(always)]
fn read<R: Replace>(
    sets: &mut Sets<'_, Exact, R>,
    lines: &mut [u32],
    places: &mut [u32],
    shift: u32,
    mask: u32,
) -> usize {
    let mut missed = 0;
    for index in 0..lines.len() {
        let line = lines[index];
        let noted = &mut places[line as usize];
        let (hit, way) = sets.access(line as u64, (*noted >> shift & mask) as usize, line);
        *noted = *noted & !(mask << shift) | (way as u32) << shift;
        lines[missed] = line;
        missed += !hit as usize;
    }
    missed
}
