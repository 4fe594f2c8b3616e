//! An allocator with size classes, laid out as jemalloc 5 does it for one arena without thread
//! caches.
//!
//! *Classes* are multiples of 16 up to 128 and then four to each doubling. A *run* (jemalloc: slab)
//! is the fewest pages that whole slots of one class fill; from 16 KB on that is one slot. A
//! request takes the lowest free slot of the lowest run of its class that has one. A run all of
//! whose slots are free becomes free pages, unless it is the run that the next request takes from.
//! Free pages are joined with their neighbours, and a new run takes the smallest piece that is
//! large enough, of these the lowest; else the heap grows.
//!
//! Pages that become free are discarded at once (`MADV_DONTNEED`), or never: jemalloc waits, ten
//! seconds by default, a time that this stream does not have. Beside the heap there are 128 bytes
//! for each run, one word of which, its bitmap, is read and written at each allocation and release.
//! What else jemalloc keeps (bins, the tree that finds a run by an address, the sets of free pages)
//! is not in the stream.

use crate::Event;
use crate::workload::program::{Growing, Out, PAGE, REGION};
use std::collections::{BTreeMap, BTreeSet};
use superpage_pages::Access;

/// What heap and runs' data grow by.
const STEP: u64 = 2 << 20;

/// Bytes of a run's data.
const DATA: u64 = 128;

/// Room for runs' data: for those of more pages than any store here has.
const DATA_ROOM: u64 = 4 * REGION;

const INSTRUCTIONS: u32 = 3;

/// The size of the class for a request of `bytes` bytes, from 1 on.
pub(super) fn class_size(bytes: u64) -> u64 {
    let step = if bytes <= 128 { 16 } else { 1 << ((bytes - 1).ilog2() - 2) };
    bytes.next_multiple_of(step)
}

/// The pages of a run of slots of this size.
fn run_pages(size: u64) -> u64 {
    (1..).find(|pages| (pages * PAGE).is_multiple_of(size)).expect("a page of each of the size's bytes at most")
}

struct Run {
    /// The first page, from the start of the heap.
    start: u32,
    size: u32,
    slots: u32,
    free: u32,
    /// The slots that are free, a bit each.
    bitmap: [u64; 4],
}

pub(super) struct Slabs {
    start: u64,
    heap: Growing,
    /// Whether free pages are discarded.
    discard: bool,
    data: Growing,
    runs: Vec<Run>,
    /// Numbers of runs that are none now.
    unused: Vec<u32>,
    /// The run of each page of the heap; any number for a free page.
    run_of: Vec<u32>,
    /// For each size, the first pages of the runs that have a free slot.
    open: BTreeMap<u32, BTreeSet<u32>>,
    /// Pieces of free pages: the length of each by its first page, and all by length.
    pieces: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
}

impl Slabs {
    /// An empty heap, whose data begin at `start`, a multiple of 1 GB.
    pub(super) fn new(start: u64, discard: bool) -> Slabs {
        let heap = start + DATA_ROOM;
        Slabs {
            start: heap,
            heap: Growing::new(heap, STEP),
            discard,
            data: Growing::new(start, STEP),
            runs: Vec::new(),
            unused: Vec::new(),
            run_of: Vec::new(),
            open: BTreeMap::new(),
            pieces: BTreeMap::new(),
            by_length: BTreeSet::new(),
        }
    }

    /// Returns the address of a slot of at least `bytes` bytes, from 1 on.
    pub(super) fn allocate(&mut self, out: &mut Out, bytes: u64) -> u64 {
        let size = class_size(bytes) as u32;
        let lowest = self.open.get(&size).and_then(|open| open.first().copied());
        let number = match lowest {
            Some(page) => self.run_of[page as usize],
            None => self.new_run(out, size),
        };
        self.bitmap(out, number);
        let run = &mut self.runs[number as usize];
        let word = run.bitmap.iter().position(|word| *word != 0).expect("an open run");
        let bit = run.bitmap[word].trailing_zeros();
        run.bitmap[word] &= run.bitmap[word] - 1;
        run.free -= 1;
        if run.free == 0 {
            self.open.get_mut(&size).expect("the set that the run is in").remove(&run.start);
        }
        let slot = word as u64 * 64 + u64::from(bit);
        self.start + u64::from(run.start) * PAGE + slot * u64::from(size)
    }

    /// Takes back the slot at this address.
    pub(super) fn free(&mut self, out: &mut Out, address: u64) {
        let number = self.run_of[((address - self.start) / PAGE) as usize];
        self.bitmap(out, number);
        let run = &mut self.runs[number as usize];
        let slot = (address - self.start - u64::from(run.start) * PAGE) / u64::from(run.size);
        run.bitmap[slot as usize / 64] |= 1 << (slot % 64);
        run.free += 1;
        let open = self.open.get_mut(&run.size).expect("the set of the run's size");
        let before = open.first().copied();
        open.insert(run.start);
        let lowest = open.first().copied();
        // This one, or the one that was the lowest until now, may be a free run that the next
        // request does not take from.
        for page in [Some(run.start), before.filter(|_| before != lowest)].into_iter().flatten() {
            let number = self.run_of[page as usize];
            let run = &self.runs[number as usize];
            if run.free == run.slots && lowest != Some(page) {
                self.give_back(out, number);
            }
        }
    }

    /// Reads and writes a run's bitmap.
    fn bitmap(&self, out: &mut Out, number: u32) {
        let address = self.start - DATA_ROOM + u64::from(number) * DATA;
        out.data(address, Access::Read, 1, INSTRUCTIONS);
        out.data(address, Access::Write, 1, INSTRUCTIONS);
    }

    fn new_run(&mut self, out: &mut Out, size: u32) -> u32 {
        let pages = run_pages(size.into()) as u32;
        let start = self.take_pages(out, pages);
        let slots = (u64::from(pages) * PAGE / u64::from(size)) as u32;
        let bitmap = std::array::from_fn(|word| match slots.saturating_sub(64 * word as u32) {
            0 => 0,
            slots => u64::MAX >> 64_u32.saturating_sub(slots),
        });
        let run = Run { start, size, slots, free: slots, bitmap };
        let number = if let Some(number) = self.unused.pop() {
            self.runs[number as usize] = run;
            number
        } else {
            self.data.take(out, DATA);
            self.runs.push(run);
            (self.runs.len() - 1) as u32
        };
        self.run_of[start as usize..(start + pages) as usize].fill(number);
        self.open.entry(size).or_default().insert(start);
        number
    }

    fn take_pages(&mut self, out: &mut Out, pages: u32) -> u32 {
        if let Some((length, start)) = self.by_length.range((pages, 0)..).next().copied() {
            self.by_length.remove(&(length, start));
            self.pieces.remove(&start);
            if length > pages {
                self.by_length.insert((length - pages, start + pages));
                self.pieces.insert(start + pages, length - pages);
            }
            return start;
        }
        let address = self.heap.take(out, u64::from(pages) * PAGE);
        self.run_of.resize(self.run_of.len() + pages as usize, 0);
        ((address - self.start) / PAGE) as u32
    }

    /// Turns a run all of whose slots are free into free pages.
    fn give_back(&mut self, out: &mut Out, number: u32) {
        let Run { start, size, slots, .. } = self.runs[number as usize];
        self.runs[number as usize].slots = 0;
        self.unused.push(number);
        self.open.get_mut(&size).expect("the set of the run's size").remove(&start);
        let pages = (u64::from(slots) * u64::from(size) / PAGE) as u32;
        if self.discard {
            let first = self.start / PAGE + u64::from(start);
            out.event(Event::Discard { start: first, pages: pages.into() });
        }
        let (mut first, mut end) = (start, start + pages);
        if let Some((before, length)) =
            self.pieces.range(..start).next_back().map(|(before, length)| (*before, *length))
            && before + length == start
        {
            self.by_length.remove(&(length, before));
            first = before;
        }
        if let Some(length) = self.pieces.remove(&end) {
            self.by_length.remove(&(length, end));
            end += length;
        }
        self.pieces.insert(first, end - first);
        self.by_length.insert((end - first, first));
    }

    /// Panics unless all counts agree and each page of the heap is in one run or free. Returns the
    /// bytes of all slots in use.
    #[cfg(test)]
    pub(super) fn validate(&self) -> u64 {
        let mut owner = vec![None; self.run_of.len()];
        let mut own = |start: u32, pages: u32, who: u32| {
            let pages = &mut owner[start as usize..(start + pages) as usize];
            assert!(pages.iter().all(Option::is_none), "a page twice");
            pages.fill(Some(who));
        };
        let (mut live, mut open) = (0, BTreeSet::new());
        for (number, run) in self.runs.iter().enumerate().filter(|(_, run)| run.slots > 0) {
            let pages = run.slots * run.size / PAGE as u32;
            assert_eq!((run.slots * run.size) % PAGE as u32, 0);
            own(run.start, pages, number as u32);
            assert!(self.run_of[run.start as usize..][..pages as usize].iter().all(|of| *of as usize == number));
            assert_eq!(run.bitmap.iter().map(|word| word.count_ones()).sum::<u32>(), run.free);
            live += u64::from(run.slots - run.free) * u64::from(run.size);
            if run.free > 0 {
                open.insert((run.size, run.start));
            }
            if run.free == run.slots {
                assert_eq!(self.open[&run.size].first(), Some(&run.start), "a free run that no request takes from");
            }
        }
        let listed = self.open.iter().flat_map(|(size, starts)| starts.iter().map(|start| (*size, *start)));
        assert!(listed.eq(open));
        assert_eq!(self.unused.len(), self.runs.iter().filter(|run| run.slots == 0).count());
        let mut end = None;
        for (start, length) in &self.pieces {
            assert!(end.is_none_or(|end| end < *start), "two pieces side by side");
            own(*start, *length, u32::MAX);
            end = Some(start + length);
        }
        assert!(self.pieces.iter().map(|(start, length)| (*length, *start)).collect::<BTreeSet<_>>() == self.by_length);
        assert!(owner.iter().all(Option::is_some), "a page that nobody has");
        live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_pages::Random;

    #[test]
    fn classes_and_runs_are_those_of_jemalloc() {
        let classes = (1..=4096).map(class_size).collect::<BTreeSet<_>>();
        let expected = [
            16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536,
            1792, 2048, 2560, 3072, 3584, 4096,
        ];
        assert!(classes.into_iter().eq(expected));
        assert_eq!([16, 48, 80, 128, 160, 3584, 14336, 16384, 20480].map(run_pages), [1, 3, 5, 1, 5, 7, 7, 4, 5]);
        assert_eq!((class_size(1 << 20), class_size((1 << 20) - 1)), (1 << 20, 1 << 20));
    }

    #[test]
    fn slots_never_overlap_and_free_pages_are_used_again() {
        let (mut slabs, mut out, mut random) = (Slabs::new(REGION, true), Out::default(), Random::new(1));
        let (mut live, mut most) = (BTreeMap::new(), 0);
        for round in 0..40_000 {
            let grow = round / 5000 % 2 == 0;
            if live.is_empty() || random.below(10) < if grow { 7 } else { 3 } {
                let bytes = [24, 100, 700, 3000, 9000, 40_000][random.below(6) as usize] - random.below(8);
                let address = slabs.allocate(&mut out, bytes);
                let before = live.range(..address + class_size(bytes)).next_back();
                assert!(before.is_none_or(|(start, bytes)| start + class_size(*bytes) <= address));
                live.insert(address, bytes);
            } else {
                let start = slabs.start + random.below(slabs.run_of.len() as u64) * PAGE;
                let address = *live.range(start..).next().or(live.first_key_value()).unwrap().0;
                live.remove(&address);
                slabs.free(&mut out, address);
            }
            most = most.max(live.len());
            if round % 500 == 0 {
                assert_eq!(slabs.validate(), live.values().map(|bytes| class_size(*bytes)).sum::<u64>());
            }
        }
        for address in std::mem::take(&mut live).into_keys() {
            slabs.free(&mut out, address);
        }
        // What is left is a run of each class (of 93 to 100 bytes there are two), from which the
        // next request takes.
        assert_eq!((slabs.validate(), slabs.runs.len() - slabs.unused.len()), (0, 7));
        assert!((slabs.run_of.len() as u64 * PAGE) < most as u64 * 12_000, "{} pages", slabs.run_of.len());
    }

    #[test]
    fn the_lowest_slot_goes_out_first() {
        let (mut slabs, mut out) = (Slabs::new(REGION, true), Out::default());
        let slots: Vec<u64> = (0..130).map(|_| slabs.allocate(&mut out, 64)).collect();
        assert!(slots.iter().enumerate().all(|(index, slot)| *slot == slabs.start + 64 * index as u64));
        for slot in [slots[100], slots[70], slots[3]] {
            slabs.free(&mut out, slot);
        }
        assert_eq!(
            [0; 4].map(|_| slabs.allocate(&mut out, 64)),
            [slots[3], slots[70], slots[100], slabs.start + 64 * 130]
        );
    }
}
