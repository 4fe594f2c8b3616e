//! The caches through which walks read page-table lines.
//!
//! Page-table lines compete only with each other: the program's own data is not in these caches, so the latencies of
//! walks are a lower bound.

use crate::batch::{BATCH, each};
use crate::cache::Cache;
use crate::counters::{Counters, MAX_LINE_LEVELS, MAX_WALK_LEVELS};
use crate::machine::{LineCacheSpec, Machine};

/// Bytes of a page-table entry, the same on all machines.
pub(crate) const ENTRY_BYTES: u64 = 8;

/// The most lines that the walks of a batch read.
const WANTED: usize = BATCH * MAX_WALK_LEVELS;

/// The line caches of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    caches: Vec<Cache>,
    /// The shift from an entry's number (its address divided by [`ENTRY_BYTES`]) to its line's number.
    shift: u32,
    /// The lines that are referenced, in order.
    wanted: [u32; WANTED],
}

/// What walks read page-table lines through, and where that is counted.
pub(crate) struct Reads<'a> {
    pub(crate) lines: &'a mut Lines,
    pub(crate) counters: &'a mut Counters,
}

impl Lines {
    /// Empty caches, as the machine file describes them.
    pub(crate) fn new(machine: &Machine) -> Lines {
        let cache =
            |spec: &LineCacheSpec| Cache::new(spec.sets(machine.memory.line_bytes), spec.ways, spec.replacement);
        let caches: Vec<Cache> = machine.line_cache.iter().map(cache).collect();
        assert!(caches.len() <= MAX_LINE_LEVELS, "the machine file was checked");
        let shift = (machine.memory.line_bytes / ENTRY_BYTES).ilog2();
        Lines { caches, shift, wanted: [0; WANTED] }
    }

    /// As [`Cache::bytes`], of one of them.
    pub(crate) fn bytes(machine: &Machine, spec: &LineCacheSpec) -> (u64, u64) {
        <Cache>::bytes(spec.sets(machine.memory.line_bytes), spec.ways, spec.replacement)
    }

    /// The line of this entry.
    #[inline(always)]
    pub(crate) fn line(&self, entry: u32) -> u32 {
        entry >> self.shift
    }

    /// Queues the line of this entry to be read at this position.
    #[inline(always)]
    pub(crate) fn want(&mut self, place: usize, entry: u32) {
        self.wanted[place] = entry >> self.shift;
    }

    /// Reads the first `count` queued lines.
    #[inline(always)]
    pub(crate) fn read(&mut self, count: usize, counters: &mut Counters) {
        let mut left = count;
        for (cache, hits) in self.caches.iter_mut().zip(&mut counters.line_hits) {
            if left == 0 {
                return;
            }
            let lines = &mut self.wanted[..left];
            let missed = read(cache, lines);
            *hits += (left - missed) as u64;
            left = missed;
        }
        counters.line_misses += left as u64;
    }

    /// Checks that the caches hold only lines at their places.
    pub(crate) fn validate(&self) -> Result<(), String> {
        for (level, cache) in self.caches.iter().enumerate() {
            cache.validate()?;
            for (set, way, line, ()) in cache.entries() {
                if !cache.selects(line as u64, set) || cache.find(line as u64, line) != Some(way) {
                    return Err(format!("line cache {level} holds line {line:#x} in set {set} way {way}"));
                }
            }
        }
        Ok(())
    }
}

/// Reads lines through one cache and inserts those that miss. Moves these to the front and returns their number.
#[inline(always)]
fn read(cache: &mut Cache, lines: &mut [u32]) -> usize {
    let mut missed = 0;
    for first in (0..lines.len()).step_by(BATCH) {
        let some = &lines[first..lines.len().min(first + BATCH)];
        let those = cache.access(u64::MAX >> (BATCH - some.len()), |at| (some[at] as u64, some[at]));
        for at in each(those) {
            lines[missed] = lines[first + at];
            missed += 1;
        }
    }
    missed
}
