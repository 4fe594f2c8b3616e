//! The caches through which walks read page-table lines.
//!
//! Page-table lines compete only with each other: the program's own data is not in these caches, so the latencies of
//! walks are a lower bound.

use crate::batch::BATCH;
use crate::cache::{Cache, Sets, on_sets};
use crate::counters::{Counters, MAX_LINE_LEVELS, MAX_WALK_LEVELS};
use crate::machine::Machine;
use crate::reach::Exact;
use crate::replacement::Replace;

/// Bytes of a page-table entry, the same on all machines.
pub(crate) const ENTRY_BYTES: u64 = 8;

/// The most lines that the walks of a batch read.
const WANTED: usize = BATCH * MAX_WALK_LEVELS;

/// One cache for page-table lines.
#[derive(Clone, Debug)]
struct LineCache {
    cache: Cache,
    /// Where in a line's places the way in this cache is noted.
    shift: u32,
    mask: u32,
}

/// The line caches of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    caches: Vec<LineCache>,
    /// For each line of the tables, the ways that hold it in the caches.
    places: Vec<u32>,
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
        let mut caches = Vec::new();
        let mut shift = 0;
        for spec in &machine.line_cache {
            let cache = Cache::new(spec.sets(machine.memory.line_bytes), spec.ways, spec.replacement, spec.ways);
            let bits = usize::BITS - (spec.ways - 1).leading_zeros();
            caches.push(LineCache { cache, shift, mask: ((1u64 << bits) - 1) as u32 });
            shift = (shift + bits).min(u32::BITS - 1);
        }
        assert!(caches.len() <= MAX_LINE_LEVELS, "the machine file was checked");
        let shift = (machine.memory.line_bytes / ENTRY_BYTES).ilog2();
        Lines { caches, places: Vec::new(), shift, wanted: [0; WANTED] }
    }

    /// Queues the line of this entry to be read at this position.
    #[inline(always)]
    pub(crate) fn want(&mut self, place: usize, entry: u32) {
        self.wanted[place] = entry >> self.shift;
    }

    /// Reads the first `count` queued lines, of a memory of so many entries.
    #[inline(always)]
    pub(crate) fn read(&mut self, count: usize, entries: usize, counters: &mut Counters) {
        let lines = (entries >> self.shift) + 1;
        if lines > self.places.len() {
            self.places.resize(lines.next_power_of_two(), 0);
        }
        let mut left = count;
        for (LineCache { cache, shift, mask }, hits) in self.caches.iter_mut().zip(&mut counters.line_hits) {
            if left == 0 {
                return;
            }
            let (lines, places) = (&mut self.wanted[..left], &mut self.places[..]);
            let missed = on_sets!(cache, sets => read(&mut sets, lines, places, *shift, *mask));
            *hits += (left - missed) as u64;
            left = missed;
        }
        counters.line_misses += left as u64;
    }

    /// Checks that the caches hold only lines at their places.
    pub(crate) fn validate(&self) -> Result<(), String> {
        for (level, LineCache { cache, shift, mask }) in self.caches.iter().enumerate() {
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
}

/// Reads lines through one cache and inserts those that miss. Moves these to the front and returns their number.
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
