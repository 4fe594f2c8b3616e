//! `store`: a key-value store that is filled and then read, over a heap with holes: the sparse
//! store of Park et al., ISCA 2020 (slide "Memory Bloating").
//!
//! The heap is one fixed anonymous mapping, divided into slots of the size of a value. Each slot is
//! in use with the probability `share`, drawn for each by itself; the others are never touched.
//! First all values are written whole, in the order of their addresses: the part `fill` of the
//! stream. Then `reads` times a value in use, each as likely as the others, is read whole: the part
//! `read`, whose counts are those of a full store (`RUN.KEY@read` in an experiment, `superpage sim
//! --parts`). Loads and stores are of 8 bytes, and 3 instructions each are assumed: access,
//! advance, branch. How a key is looked up is not in the stream.

use super::Kind;
use super::parameters::{MOST_BYTES, MOST_COUNT, Parameter, Values};
use super::program::{Out, PAGE, Program, REGION, Running};
use crate::{Batch, Error, Event, Source};
use superpage_pages::{Access, Random};

pub(super) const KIND: Kind = Kind {
    name: "store",
    help: "a key-value store: fill a sparse heap with values, then read random ones (Park et al., memory bloating)",
    parameters: &[
        Parameter { name: "bytes", default: "1G", help: "the size of the heap" },
        Parameter { name: "value", default: "16K", help: "the size of a value, from 8 to 1M, a multiple of 8" },
        Parameter { name: "share", default: "0.84", help: "the share of the heap's slots that hold a value" },
        Parameter { name: "reads", default: "1M", help: "the number of values read after that" },
        Parameter { name: "seed", default: "1", help: "chooses the slots in use and the values read" },
    ],
    start,
};

/// The largest value: a few batches of lines.
const MOST_VALUE: u64 = 1 << 20;

/// The instructions of a load or store: access, advance, branch.
const INSTRUCTIONS: u32 = 3;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", 8..=MOST_BYTES)?;
    let value = values.bytes("value", 8..=bytes.min(MOST_VALUE))?;
    if value % 8 > 0 {
        return Err(values.wrong("value", "a multiple of 8"));
    }
    let share = values.fraction("share", 0.001..=1.0)?;
    let reads = values.count("reads", 0..=MOST_COUNT)?;
    let seed = values.seed()?;
    let heap = Heap { bytes, value, slots: bytes / value, share, seed };
    if reads > 0 && !heap.holds_any() {
        return Err(values.wrong("share", "a share with which some slot holds a value, since values are to be read"));
    }
    let filled = (heap.slots as f64 * share) as u64;
    let runs = filled.saturating_add(reads).saturating_mul(value.div_ceil(PAGE));
    Ok(Running::start(values, Store { heap, reads, random: Random::new(!seed), state: State::Start }, false, runs))
}

/// The slots, and which of them hold a value.
struct Heap {
    bytes: u64,
    value: u64,
    slots: u64,
    share: f64,
    seed: u64,
}

impl Heap {
    fn holds(&self, slot: u64) -> bool {
        Random::at(self.seed, slot).fraction() < self.share
    }

    fn holds_any(&self) -> bool {
        (0..self.slots).any(|slot| self.holds(slot))
    }

    /// Goes through all of a value.
    fn go_through(&self, slot: u64, access: Access, out: &mut Out) {
        out.words(REGION + slot * self.value, access, self.value / 8, INSTRUCTIONS);
    }

    /// How many slots a step goes through.
    fn batch(&self) -> u64 {
        (Batch::RUNS as u64 * PAGE / self.value).clamp(1, Batch::RUNS as u64)
    }
}

struct Store {
    heap: Heap,
    reads: u64,
    random: Random,
    state: State,
}

enum State {
    Start,
    /// The next slot to be filled.
    Fill(u64),
    Read,
    Done,
}

impl Program for Store {
    fn step(&mut self, out: &mut Out) -> bool {
        match self.state {
            State::Start => {
                out.begin();
                out.event(Event::Mark("fill".into()));
                out.map_anonymous(REGION, self.heap.bytes);
                self.state = State::Fill(0);
            }
            State::Fill(next) if next == self.heap.slots => {
                out.event(Event::Mark("read".into()));
                self.state = State::Read;
            }
            State::Fill(next) => {
                let end = self.heap.slots.min(next + self.heap.batch());
                let filled = (next..end).filter(|slot| self.heap.holds(*slot));
                filled.for_each(|slot| self.heap.go_through(slot, Access::Write, out));
                self.state = State::Fill(end);
            }
            State::Read if self.reads == 0 => {
                out.unmap_and_exit(REGION, self.heap.bytes);
                self.state = State::Done;
            }
            State::Read => {
                let count = self.reads.min(self.heap.batch());
                for _ in 0..count {
                    let slot = loop {
                        let slot = self.random.below(self.heap.slots);
                        if self.heap.holds(slot) {
                            break slot;
                        }
                    };
                    self.heap.go_through(slot, Access::Read, out);
                }
                self.reads -= count;
            }
            State::Done => return false,
        }
        true
    }
}
