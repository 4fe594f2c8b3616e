//! The caches through which walks read page-table lines and, in a stream with lines, the program
//! reads and writes its data.
//!
//! In a stream of pages, page-table lines compete only with each other, so the latencies of walks
//! are a lower bound. With lines ([`crate::Mmu::run_lines`]) the program's lines are in the same
//! caches, by physical address, and walks read through the data side. Fetches have a separate first
//! level if the machine file has one. If the machine has a prefetcher, it follows streams of lines:
//! a miss next to the last line of a stream takes no time, and is counted separately. The kernel's
//! reads and writes go through no cache, and a line that leaves an outer level stays in nearer
//! ones.

use crate::counters::{Counters, Remaps};
use crate::machine::Replacement;
use crate::machine::{ENTRY_BYTES, MAX_LINE_LEVELS, MAX_WALK_LEVELS, SHADOW_LINES, STREAM_LINE_SHIFT};
use crate::machine::{LineCacheSpec, Machine};
use crate::tlb::reach::Entry;
use crate::tlb::storage::Cache;
use crate::tlb::uses::{BATCH, EntryId, Uses, each};
use std::ops::Range;

/// Bytes of a line of a stream.
const STREAM_LINE_BYTES: u64 = 1 << STREAM_LINE_SHIFT;

/// The most lines that the walks of a batch read.
pub(crate) const WANTED: usize = BATCH * MAX_WALK_LEVELS;

/// Lines of the program are below this number: the key of a line is its number and a bit that tells
/// these from page-table lines, and the largest number of 32 bits is no key. Keys are kept small:
/// some caches have a table by key.
pub(crate) const PROGRAM_LINES: u64 = (1 << 31) - 1;

/// Even keys from here on are not lines, but entries that a format keeps among the lines: it looks
/// them up, drops and checks them ([`crate::walk::formats`]).
pub(crate) const KEPT: u32 = 1 << 31;

/// The key of a page-table line.
#[inline(always)]
pub(crate) fn of_table(line: u32) -> u32 {
    line << 1
}

/// Whether this is the key of something that a format keeps.
pub(crate) fn is_kept(key: u32) -> bool {
    key >= KEPT && key & 1 == 0
}

/// The key of a line of the program.
#[inline(always)]
fn of_program(line: u32) -> u32 {
    line << 1 | 1
}

/// The entry of the line with this key.
#[inline(always)]
fn of_line(key: u32) -> EntryId {
    EntryId { number: u64::from(key >> 1), key }
}

/// The line caches of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(crate) caches: Vec<Cache>,
    /// By how many cores each is shared.
    shared_by: Vec<u32>,
    /// The first level for fetches, if they have their own.
    instructions: Option<Cache>,
    /// The last lines of the streams that are prefetched, the latest first.
    streams: Vec<u32>,
    /// The TLB of the memory controller, if it has one.
    remapping: Option<Remapping>,
    /// Whether all loads and stores are preloaded: the program waits for none.
    pub(crate) preloading: bool,
    /// How many lines a line of a stream is, if it is not smaller: an access is to all of them.
    parts: u32,
    /// The shift from an entry's number (its address divided by [`ENTRY_BYTES`]) to its line's
    /// number.
    shift: u32,
    /// The lines that are referenced, in order.
    wanted: [u32; WANTED],
    /// The numbers of some of them.
    numbers: [u64; BATCH],
}

/// The TLB of a memory controller that maps shadow addresses, by base page.
#[derive(Clone, Debug)]
struct Remapping {
    cache: Cache,
    /// The shift from a line's number to that of its base page.
    shift: u32,
}

impl Remapping {
    fn page(&self, line: u32) -> u32 {
        (line - SHADOW_LINES as u32) >> self.shift
    }
}

/// The caches through which walks read page-table lines, and the counters of that.
pub(crate) struct Reads<'a> {
    pub(crate) lines: &'a mut Lines,
    pub(crate) counters: &'a mut Counters,
    /// The part of it that is due to walks to absent pages, for those in a batch.
    pub(crate) faulting: &'a mut Counters,
}

impl Reads<'_> {
    /// Lends it to one of several walks.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> Reads<'_> {
        Reads { lines: &mut *self.lines, counters: &mut *self.counters, faulting: &mut *self.faulting }
    }

    /// Reads the first `count` queued lines, of which those are for walks to absent pages that are
    /// true in `absent`.
    #[inline(never)]
    pub(crate) fn read_absent(&mut self, count: usize, absent: &mut [bool; WANTED]) {
        let (mut left, mut of_absent) = (count, count_true(&absent[..count]));
        for (level, cache) in self.lines.caches.iter_mut().enumerate() {
            let (wanted, numbers) = (&mut self.lines.wanted, &mut self.lines.numbers);
            let missed = read(cache, left, wanted, numbers, |place, from| absent[place] = absent[from]);
            let missed_absent = count_true(&absent[..missed]);
            self.counters.line_hits[level] += (left - missed) as u64;
            self.faulting.line_hits[level] += of_absent - missed_absent;
            (left, of_absent) = (missed, missed_absent);
        }
        self.counters.line_misses += left as u64;
        self.faulting.line_misses += of_absent;
    }
}

impl Lines {
    /// Empty caches, as the machine file describes them.
    pub(crate) fn new(machine: &Machine) -> Lines {
        let cache = |spec: &LineCacheSpec| {
            Cache::of_sparse_keys(spec.sets(machine.memory.line_bytes), spec.ways, spec.replacement)
        };
        let caches: Vec<Cache> = machine.line_cache.iter().map(cache).collect();
        assert!(caches.len() <= MAX_LINE_LEVELS, "the machine file was checked");
        let shift = (machine.memory.line_bytes / ENTRY_BYTES).ilog2();
        let instructions = machine.instruction_cache.as_ref().map(cache);
        let parts = (STREAM_LINE_BYTES / machine.memory.line_bytes).max(1) as u32;
        let streams = vec![u32::MAX; machine.memory.streams];
        let page = machine.ladder().base().bytes() / machine.memory.line_bytes;
        let remapping = machine.shadow.as_ref().map(|shadow| Remapping {
            cache: Cache::of_sparse_keys(shadow.entries / shadow.ways, shadow.ways, Replacement::Lru),
            shift: page.ilog2(),
        });
        let preloading = false;
        let shared_by = machine.line_cache.iter().map(|cache| cache.shared_by).collect();
        Lines {
            caches,
            shared_by,
            instructions,
            streams,
            remapping,
            preloading,
            parts,
            shift,
            wanted: [0; WANTED],
            numbers: [0; BATCH],
        }
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
        self.wanted[place] = of_table(self.line(entry));
    }

    /// Reads the first `count` queued lines.
    #[inline(always)]
    pub(crate) fn read(&mut self, count: usize, counters: &mut Counters) {
        let mut left = count;
        for (cache, hits) in self.caches.iter_mut().zip(&mut counters.line_hits) {
            if left == 0 {
                return;
            }
            let missed = read(cache, left, &mut self.wanted, &mut self.numbers, |_, _| ());
            *hits += (left - missed) as u64;
            left = missed;
        }
        counters.line_misses += left as u64;
    }

    /// The program's accesses to these lines of physical memory, of which those are fetches whose
    /// bits are set. Where a line of the stream is several of the caches', they are numbered as the
    /// stream's.
    #[inline(always)]
    pub(crate) fn access(&mut self, lines: &[u32], fetches: u64, counters: &mut Counters) {
        if self.parts == 1 {
            return self.access_lines(lines, fetches, counters);
        }
        for (at, line) in lines.iter().enumerate() {
            for part in 0..self.parts {
                self.access_lines(&[line * self.parts + part], fetches >> at & 1, counters);
            }
        }
    }

    #[inline(always)]
    fn access_lines(&mut self, lines: &[u32], fetches: u64, counters: &mut Counters) {
        debug_assert!(lines.len() <= BATCH && lines.iter().all(|line| u64::from(*line) < PROGRAM_LINES));
        let mut left = if lines.is_empty() { 0 } else { u64::MAX >> (BATCH - lines.len()) };
        let (mut numbers, mut keys) = ([0; BATCH], [0; BATCH]);
        for ((number, key), line) in numbers.iter_mut().zip(&mut keys).zip(lines) {
            (*number, *key) = (u64::from(*line), of_program(*line));
        }
        let [data, fetched, prefetched] = &mut counters.program_lines;
        let mut ahead = 0;
        let mut count = |level: usize, hit: u64, ahead: u64| {
            data.hits[level] += (hit & !fetches & !ahead).count_ones() as u64;
            fetched.hits[level] += (hit & fetches).count_ones() as u64;
            prefetched.hits[level] += (hit & ahead).count_ones() as u64;
        };
        if let Some(cache) = &mut self.instructions
            && fetches != 0
        {
            let missed = cache.access(left & fetches, Uses::unasked(&numbers, &keys));
            count(0, left & fetches & !missed, 0);
            left = left & !fetches | missed;
        }
        for (level, cache) in self.caches.iter_mut().enumerate() {
            let asking = if level == 0 && self.instructions.is_some() { left & !fetches } else { left };
            if asking != 0 {
                let missed = cache.access(asking, Uses::unasked(&numbers, &keys));
                count(level, asking & !missed, ahead);
                left = left & !asking | missed;
            }
            if level == 0 && self.preloading {
                ahead = left & !fetches;
            } else if level == 0 && !self.streams.is_empty() {
                ahead = prefetched_of(&mut self.streams, lines, left & !fetches);
            }
        }
        data.misses += (left & !fetches & !ahead).count_ones() as u64;
        prefetched.misses += (left & ahead).count_ones() as u64;
        fetched.misses += (left & fetches).count_ones() as u64;
        if self.remapping.is_some() {
            self.remap(lines, left, ahead, &mut counters.remaps);
        }
    }

    /// Looks up the lines of `asking` that have shadow addresses in the controller's TLB, in order;
    /// those of `ahead` are prefetched.
    #[inline(never)]
    fn remap(&mut self, lines: &[u32], asking: u64, ahead: u64, remaps: &mut Remaps) {
        let Some(remapping) = &mut self.remapping else { return };
        for at in each(asking).filter(|at| u64::from(lines[*at]) >= SHADOW_LINES) {
            let (page, kind) = (remapping.page(lines[at]), (ahead >> at & 1) as usize);
            let (hit, _) = remapping.cache.access_one(EntryId { number: page.into(), key: page });
            let counts = if hit { &mut remaps.hits } else { &mut remaps.misses };
            counts[kind] += 1;
        }
    }

    /// Drops these lines of the program, of whole base pages, from all caches, and shadow pages
    /// from the controller's TLB. Returns how many lines a cache held.
    pub(crate) fn flush(&mut self, lines: Range<u32>) -> u64 {
        let mut held = 0;
        for line in lines.start * self.parts..lines.end * self.parts {
            let (number, key) = (u64::from(line), of_program(line));
            let caches = self.caches.iter_mut().chain(&mut self.instructions);
            let dropped = caches.fold(0, |dropped, cache| dropped + cache.forget(&(number..number + 1), key));
            held += u64::from(dropped > 0);
        }
        if let Some(remapping) = &mut self.remapping
            && u64::from(lines.start) >= SHADOW_LINES
        {
            for page in remapping.page(lines.start)..=remapping.page(lines.end - 1) {
                remapping.cache.forget(&(page.into()..u64::from(page) + 1), page);
            }
        }
        held
    }

    /// Exchanges the caches that so many cores share with those of another core.
    pub(crate) fn swap_shared(&mut self, other: &mut Lines, cores: u32) {
        let caches = self.caches.iter_mut().zip(&mut other.caches).zip(&self.shared_by);
        let shared = caches.filter(|(_, shared_by)| **shared_by == cores);
        shared.for_each(|((cache, of_other), _)| std::mem::swap(cache, of_other));
    }

    /// Checks that lines are at their places in the caches.
    pub(crate) fn validate(&self) -> Result<(), String> {
        // The one for fetches is the last.
        self.remapping.iter().try_for_each(|remapping| remapping.cache.validate())?;
        for (level, cache) in self.caches.iter().chain(&self.instructions).enumerate() {
            cache.validate()?;
            for Entry { set, way, key: line, .. } in cache.entries().into_iter().filter(|entry| !is_kept(entry.key)) {
                let number = of_line(line).number;
                if !cache.selects(number, set) || cache.find(number, line) != Some(way) {
                    return Err(format!("line cache {level} holds line {line:#x} in set {set} way {way}"));
                }
            }
        }
        Ok(())
    }
}

/// Which of these misses are next to the last line of a stream, which then goes on; another begins
/// a stream in place of the one that went on longest ago.
fn prefetched_of(streams: &mut [u32], lines: &[u32], missed: u64) -> u64 {
    let mut ahead = 0;
    for at in each(missed) {
        let line = lines[at];
        let of = streams.iter().position(|last| line.abs_diff(*last) == 1);
        ahead |= u64::from(of.is_some()) << at;
        let last = of.unwrap_or(streams.len() - 1);
        streams[..=last].rotate_right(1);
        streams[0] = line;
    }
    ahead
}

/// Reads the first `count` lines through one cache and inserts those that miss. Moves these to the
/// front, each with a call of `moves` with its new place and its old one, and returns their number.
#[inline(always)]
fn read(
    cache: &mut Cache,
    count: usize,
    lines: &mut [u32; WANTED],
    numbers: &mut [u64; BATCH],
    mut moves: impl FnMut(usize, usize),
) -> usize {
    let mut missed = 0;
    for first in (0..count).step_by(BATCH) {
        let (keys, some) = (&lines.as_chunks::<BATCH>().0[first / BATCH], BATCH.min(count - first));
        numbers.iter_mut().zip(&keys[..some]).for_each(|(number, key)| *number = u64::from(key >> 1));
        let those = cache.access(u64::MAX >> (BATCH - some), Uses::unasked(numbers, keys));
        for at in each(those) {
            lines[missed] = lines[first + at];
            moves(missed, first + at);
            missed += 1;
        }
    }
    missed
}

fn count_true(flags: &[bool]) -> u64 {
    flags.iter().map(|flag| u64::from(*flag)).sum()
}
