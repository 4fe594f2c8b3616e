//! A block: up to 65536 runs as columns, and the events between them.
//!
//! A run is a code (an index into the block's dictionary of (page, kind)), a byte of references and
//! a byte of instructions, each in its own column. Values that do not fit into a byte are in a list
//! next to the column. So decoding is a gather and two widenings for each run, whatever they
//! hold, and a patch for the few long ones.

use super::bytes::{Bytes, Damage, put_number};
use super::events;
use super::frame::Front;
use super::totals::{Counter, RunSum};
use crate::event::{Batch, Event, Info, Run, TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};
use hashbrown::HashMap;
use superpage_pages::Access;

/// The most runs in a block.
pub const BLOCK_RUNS: usize = 1 << 16;

/// A block ends when its events take this many bytes.
const EVENT_BYTES: usize = 1 << 20;

/// The most bytes of a block before compression: the columns at their worst, the events, and some
/// room.
pub(crate) const RAW_BYTES: usize = 4 << 20;

/// The byte in a column that refers to its list.
const LONG: u8 = 255;

/// The runs and events of one block as columns, codes by first appearance.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// Each (page or line, kind) once, in order of appearance.
    tags: Vec<u64>,
    codes: Vec<u16>,
    references: Column,
    instructions: Column,
    events: Vec<u8>,
    event_count: u32,
    last_event: u32,
}

/// Values of one byte, and a list of those that need more.
#[derive(Debug, Default)]
struct Column {
    short: Vec<u8>,
    long_places: Vec<u8>,
    long_values: Vec<u8>,
}

impl Column {
    /// Notes the value of the run at `place`, which does not fit into a byte.
    #[cold]
    fn long(&mut self, place: usize, value: u32) {
        self.long_places.extend((place as u16).to_le_bytes());
        self.long_values.extend(value.to_le_bytes());
    }

    fn clear(&mut self) {
        self.short.clear();
        self.long_places.clear();
        self.long_values.clear();
    }
}

impl Columns {
    pub(crate) fn runs(&self) -> usize {
        self.codes.len()
    }

    pub(crate) fn events(&self) -> u32 {
        self.event_count
    }

    /// Encodes the block into `raw`, replacing its contents, and empties the columns. `lines`:
    /// whether runs are of lines.
    pub(crate) fn encode(&mut self, raw: &mut Vec<u8>, lines: bool) {
        raw.clear();
        let mut sorted: Vec<u16> = (0..self.tags.len()).map(|place| place as u16).collect();
        sorted.sort_unstable_by_key(|&place| self.tags[usize::from(place)]);
        let mut dictionary = Vec::with_capacity(2 * sorted.len());
        let mut codes = vec![0u16; sorted.len()];
        let mut before = 0;
        for (code, &place) in sorted.iter().enumerate() {
            let tag = stored(self.tags[usize::from(place)], lines);
            put_number(&mut dictionary, tag - before);
            before = tag;
            codes[usize::from(place)] = code as u16;
        }
        for count in [
            sorted.len(),
            dictionary.len(),
            self.references.long_places.len() / 2,
            self.instructions.long_places.len() / 2,
            self.events.len(),
        ] {
            raw.extend((count as u32).to_le_bytes());
        }
        raw.extend(dictionary);
        self.codes.iter_mut().for_each(|code| *code = codes[usize::from(*code)]);
        raw.extend(self.codes.iter().map(|&code| code as u8));
        if sorted.len() > 256 {
            raw.extend(self.codes.iter().map(|&code| (code >> 8) as u8));
        }
        for column in [&mut self.references, &mut self.instructions] {
            raw.extend(&column.short);
            raw.extend(&column.long_places);
            raw.extend(&column.long_values);
            column.clear();
        }
        raw.extend(&self.events);
        self.tags.clear();
        self.codes.clear();
        self.events.clear();
        (self.event_count, self.last_event) = (0, 0);
    }
}

/// A run's tag as it stands in a file.
fn stored(tag: u64, lines: bool) -> u64 {
    if lines { tag } else { tag >> PAGE_BITS << 2 | tag & 3 }
}

/// The tag that [`stored`] made this.
fn read_tag(stored: u64, lines: bool) -> u64 {
    if lines { stored } else { stored >> 2 << PAGE_BITS | stored & 3 }
}

/// The bits of a tag below its page.
const PAGE_BITS: u32 = 2 + TRACE_PAGE_SHIFT - TRACE_LINE_SHIFT;

/// Collects the runs and events of one block.
#[derive(Debug)]
pub(crate) struct Encoder {
    columns: Columns,
    /// The index of each (page, kind) in the columns' tags, and the stretch of one process in which
    /// it last occurred.
    places: HashMap<u64, (u16, u32)>,
    /// The places of tags that were looked up in this stretch and block, by a hash of the tag: most
    /// runs find theirs here.
    memo: Box<[u16; MEMO]>,
    /// Incremented when the process changes, so that the pages of each are counted.
    stretch: u32,
}

/// The entries of the memo.
const MEMO: usize = 4096;

/// Runs that are added at once.
const TILE: usize = 1024;

/// The bits of the sum of that many runs' references.
const SUM_BITS: u32 = 32 + TILE.trailing_zeros();

impl Default for Encoder {
    fn default() -> Encoder {
        let (columns, places) = (Columns::default(), HashMap::default());
        Encoder { columns, places, memo: Box::new([u16::MAX; MEMO]), stretch: 1 }
    }
}

impl Encoder {
    pub(crate) fn is_empty(&self) -> bool {
        self.columns.codes.is_empty() && self.columns.event_count == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.columns.codes.len() == BLOCK_RUNS || self.columns.events.len() >= EVENT_BYTES
    }

    pub(crate) fn runs(&self) -> usize {
        self.columns.codes.len()
    }

    /// Adds runs, at most as many as there is room for.
    pub(crate) fn add_runs(&mut self, runs: &[Run], counter: &mut Counter) {
        assert!(self.columns.codes.len() + runs.len() <= BLOCK_RUNS, "more runs than a block holds");
        runs.chunks(TILE).for_each(|runs| self.add_tile(runs, counter));
    }

    /// Adds at most [`TILE`] runs. This is most of what recording costs on top of the program: it
    /// has no branches but those that nearly always go one way.
    fn add_tile(&mut self, runs: &[Run], counter: &mut Counter) {
        let (mut codes, mut references, mut instructions) = ([0u16; TILE], [0u8; TILE], [0u8; TILE]);
        // By kind: the accesses, and in the upper bits the runs.
        let (mut sums, mut all) = ([0u64; 4], 0);
        let columns = codes.iter_mut().zip(&mut references).zip(&mut instructions);
        for (at, (run, ((code, short_references), short_instructions))) in runs.iter().zip(columns).enumerate() {
            let (tag, less) = (run.tag(), run.references.wrapping_sub(1));
            let place = self.memo[memo_place(tag)];
            let known = self.columns.tags.get(usize::from(place)).is_some_and(|known| *known == tag);
            *code = if known { place } else { self.look_up(tag, counter) };
            *short_references = less as u8;
            if less >= u32::from(LONG) {
                *short_references = LONG;
                self.columns.references.long(self.columns.codes.len() + at, less);
            }
            let execute = tag & 2 != 0;
            let stored = if execute { run.references.wrapping_sub(run.instructions) } else { run.instructions };
            *short_instructions = stored as u8;
            if stored >= u32::from(LONG) {
                *short_instructions = LONG;
                self.columns.instructions.long(self.columns.codes.len() + at, stored);
            }
            sums[(tag & 3) as usize] += u64::from(run.references) + (1 << SUM_BITS);
            all += u64::from(run.instructions);
        }
        let columns = &mut self.columns;
        columns.codes.extend(&codes[..runs.len()]);
        columns.references.short.extend(&references[..runs.len()]);
        columns.instructions.short.extend(&instructions[..runs.len()]);
        let sums = sums.map(|sum| RunSum { runs: sum >> SUM_BITS, references: sum % (1 << SUM_BITS) });
        counter.runs([sums[0], sums[1], sums[2]], all);
    }

    /// The place of a tag that the memo lacks, which then has it.
    #[inline(never)]
    fn look_up(&mut self, tag: u64, counter: &mut Counter) -> u16 {
        let tags = &mut self.columns.tags;
        let (place, seen) = self.places.entry(tag).or_insert_with(|| {
            tags.push(tag);
            ((tags.len() - 1) as u16, 0)
        });
        if *seen != self.stretch {
            *seen = self.stretch;
            counter.page(tag >> PAGE_BITS);
        }
        self.memo[memo_place(tag)] = *place;
        *place
    }

    /// Adds an event after the runs so far.
    pub(crate) fn add_event(&mut self, event: &Event, counter: &mut Counter) {
        if counter.event(event) {
            self.begin_stretch();
        }
        let columns = &mut self.columns;
        let place = columns.codes.len() as u32;
        put_number(&mut columns.events, u64::from(place - columns.last_event));
        columns.last_event = place;
        events::put(&mut columns.events, event);
        columns.event_count += 1;
    }

    fn begin_stretch(&mut self) {
        self.stretch += 1;
        self.memo.fill(u16::MAX);
    }

    /// Ends the block: takes its columns, and leaves empty ones.
    pub(crate) fn take(&mut self, empty: Columns) -> Columns {
        self.places.clear();
        self.stretch = 0;
        self.begin_stretch();
        std::mem::replace(&mut self.columns, empty)
    }
}

/// Where the memo has a tag, if it has it.
#[inline]
fn memo_place(tag: u64) -> usize {
    // The golden ratio spreads neighbours.
    (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - MEMO.trailing_zeros())) as usize
}

/// A decompressed and checked block, and the position up to which it has been read.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    raw: Vec<u8>,
    /// The dictionary, with references and instructions 0.
    tags: Vec<Run>,
    low: usize,
    /// Equal to `low` if codes are one byte.
    high: usize,
    references: Place,
    instructions: Place,
    events: Vec<(u32, Event)>,
    /// The process and thread before the block.
    current: (u32, u32),
    runs: usize,
    next_run: usize,
    next_event: usize,
}

/// Where a column is in the raw bytes, and how many of its long values have been used.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    short: usize,
    places: usize,
    values: usize,
    long: usize,
    used: usize,
}

impl Place {
    /// The long values at runs before `end`, each with the run's place in the block.
    fn long_before<'a>(&mut self, raw: &'a [u8], end: usize) -> impl Iterator<Item = (usize, u32)> + use<'a> {
        let place = |index: usize| usize::from(u16::from_le_bytes([raw[index], raw[index + 1]]));
        let from = self.used;
        while self.used < self.long && place(self.places + 2 * self.used) < end {
            self.used += 1;
        }
        let (places, values) = (self.places, self.values);
        (from..self.used).map(move |index| {
            let value = &raw[values + 4 * index..][..4];
            (place(places + 2 * index), u32::from_le_bytes([value[0], value[1], value[2], value[3]]))
        })
    }
}

impl Decoder {
    /// The buffer for the next block's decompressed bytes, emptied.
    pub(crate) fn raw(&mut self) -> &mut Vec<u8> {
        (self.runs, self.next_run, self.next_event) = (0, 0, 0);
        self.events.clear();
        self.raw.clear();
        &mut self.raw
    }

    /// Parses the layout of [`Decoder::raw`] and checks everything that decoding assumes.
    pub(crate) fn open(&mut self, front: &Front, info: &Info) -> Result<(), Damage> {
        let (lines, runs) = (info.lines, front.runs as usize);
        let raw = &self.raw[..];
        let mut bytes = Bytes(raw);
        let [tags, dictionary, long_references, long_instructions, event_bytes] = {
            let mut counts = [0; 5];
            for count in &mut counts {
                *count = bytes.word()? as usize;
            }
            counts
        };
        let most_events = EVENT_BYTES + 2 * events::NOTE_BYTES;
        if tags > runs || long_references > runs || long_instructions > runs || event_bytes > most_events {
            return Err(Damage("its counts contradict each other"));
        }
        let mut dictionary = Bytes(bytes.take(dictionary)?);
        self.tags.clear();
        let mut tag = 0u64;
        for _ in 0..tags {
            tag = tag.checked_add(dictionary.number()?).ok_or(Damage("its page numbers overflow"))?;
            if tag & 3 == 3 {
                return Err(Damage("it holds a run of an unknown kind"));
            }
            if !lines && tag.leading_zeros() < PAGE_BITS - 2 {
                return Err(Damage("its page numbers overflow"));
            }
            self.tags.push(Run::tagged(read_tag(tag, lines), 0, 0));
        }
        dictionary.end()?;
        self.low = raw.len() - bytes.0.len();
        let low = bytes.take(runs)?;
        self.high = raw.len() - bytes.0.len();
        let largest = if tags > 256 {
            let high = bytes.take(runs)?;
            let codes = low.iter().zip(high).map(|(&low, &high)| u16::from_le_bytes([low, high]));
            codes.fold(0, u16::max)
        } else {
            self.high = self.low;
            low.iter().copied().fold(0, u8::max).into()
        };
        if runs > 0 && usize::from(largest) >= tags {
            return Err(Damage("it refers past the end of its dictionary"));
        }
        let mut values: [&[u8]; 2] = [&[]; 2];
        let columns = [(&mut self.references, long_references), (&mut self.instructions, long_instructions)];
        for ((column, long), values) in columns.into_iter().zip(&mut values) {
            let short = raw.len() - bytes.0.len();
            bytes.take(runs)?;
            let places = bytes.take(2 * long)?;
            let mut before = None;
            for place in places.chunks_exact(2) {
                let place = u16::from_le_bytes([place[0], place[1]]);
                if usize::from(place) >= runs || before >= Some(place) {
                    return Err(Damage("its long values are out of order"));
                }
                before = Some(place);
            }
            *values = bytes.take(4 * long)?;
            *column = Place { short, places: short + runs, values: short + runs + 2 * long, long, used: 0 };
        }
        // One less than the references is stored.
        if values[0].chunks_exact(4).any(|value| value == [u8::MAX; 4]) {
            return Err(Damage("it has a run of no references"));
        }
        let mut list = Bytes(bytes.take(event_bytes)?);
        bytes.end()?;
        let mut place = 0u64;
        for _ in 0..front.events {
            place = place.checked_add(list.number()?).ok_or(Damage("its events overflow"))?;
            if place > runs as u64 {
                return Err(Damage("it holds an event after its last run"));
            }
            let event = events::get(&mut list)?;
            if !info.calls && matches!(event, Event::Call { .. }) {
                return Err(Damage("it holds a system call, and the header says that there is none"));
            }
            self.events.push((place as u32, event));
        }
        list.end()?;
        self.runs = runs;
        self.current = front.current;
        Ok(())
    }

    /// The process and thread before the block.
    pub(crate) fn current(&self) -> (u32, u32) {
        self.current
    }

    /// The largest number of a page that the block accesses.
    pub(crate) fn largest_page(&self) -> Option<u64> {
        // The dictionary ascends.
        self.tags.last().map(|run| run.page()).filter(|_| self.runs > 0)
    }

    /// Whether everything has been read.
    pub(crate) fn is_done(&self) -> bool {
        self.next_run == self.runs && self.next_event == self.events.len()
    }

    /// Adds up to `limit` runs, and the events before, between and directly after them, to `batch`.
    pub(crate) fn read(&mut self, limit: usize, batch: &mut Batch) {
        let start = self.next_run;
        let end = self.runs.min(start.saturating_add(limit));
        let first = batch.runs.len();
        while let Some((place, event)) = self.events.get_mut(self.next_event).filter(|event| event.0 as usize <= end) {
            let place = (first + *place as usize - start) as u32;
            batch.events.push((place, std::mem::replace(event, Event::Exit)));
            self.next_event += 1;
        }
        self.read_runs(start, end, &mut batch.runs);
        self.next_run = end;
    }

    fn read_runs(&mut self, start: usize, end: usize, out: &mut Vec<Run>) {
        let first = out.len();
        let raw = &self.raw[..];
        let low = &raw[self.low..][start..end];
        let references = &raw[self.references.short..][start..end];
        let instructions = &raw[self.instructions.short..][start..end];
        let counts = references.iter().zip(instructions);
        let tags = &self.tags[..];
        if self.high == self.low {
            out.extend(low.iter().zip(counts).map(|(&code, (&references, &instructions))| {
                short_run(tags[usize::from(code)], references, instructions)
            }));
        } else {
            let high = &raw[self.high..][start..end];
            out.extend(low.iter().zip(high).zip(counts).map(|((&low, &high), (&references, &instructions))| {
                short_run(tags[usize::from(u16::from_le_bytes([low, high]))], references, instructions)
            }));
        }
        let runs = &mut out[first..];
        for (place, value) in self.references.long_before(raw, end) {
            let run = &mut runs[place - start];
            *run = with_counts(*run, value + 1, instructions[place - start].into());
        }
        for (place, value) in self.instructions.long_before(raw, end) {
            let run = &mut runs[place - start];
            *run = with_counts(*run, run.references, value);
        }
    }
}

#[inline]
fn short_run(tag: Run, references: u8, instructions: u8) -> Run {
    with_counts(tag, u32::from(references) + 1, instructions.into())
}

/// The run with its counts. The instructions of a fetch run are stored as the difference from its
/// references.
#[inline]
fn with_counts(mut run: Run, references: u32, stored: u32) -> Run {
    run.references = references;
    run.instructions = if matches!(run.access(), Access::Execute) { references.wrapping_sub(stored) } else { stored };
    run
}
