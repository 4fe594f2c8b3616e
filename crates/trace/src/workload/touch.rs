//! `touch`: the adversary of incremental promotion (Navarro et al., section 6.6). It allocates
//! memory, accesses one byte in each page, and deallocates the memory, so that it pays for every
//! promotion and demotion and gains nothing.
//!
//! The default step is 4 KB and not the 8 KB of the paper's machine: so every page of every machine
//! is touched, whereas a step of 8 KB would leave half of the pages of 4 KB unpopulated and no
//! superpage would form. On a machine with 8 KB pages the two accesses to a page are consecutive:
//! misses, faults and promotions are those of one access, only the references double; `step=8K` has
//! the paper's count. 4 instructions an access are assumed.

use super::Kind;
use super::parameters::{MOST_BYTES, MOST_COUNT, Parameter, Values};
use super::program::{Out, PAGE, Program, REGION, Running};
use crate::{Batch, Error, Event, Source};
use superpage_pages::Access;

pub(super) const KIND: Kind = Kind {
    name: "touch",
    help: "map memory, access one byte in each page, unmap it (Navarro et al., section 6.6)",
    parameters: &[
        Parameter { name: "bytes", default: "64M", help: "the size of the memory" },
        Parameter { name: "step", default: "4K", help: "the distance of the accesses; 8K is the Alpha's page" },
        Parameter { name: "rounds", default: "1", help: "how many times memory is mapped, touched and unmapped" },
        Parameter { name: "access", default: "write", help: "what is done to the bytes: read or write" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", 1..=MOST_BYTES)?;
    let step = values.bytes("step", 1..=MOST_BYTES)?;
    let rounds = values.count("rounds", 1..=MOST_COUNT)?;
    let write = values.choice("access", "write", "read")?;
    let runs = bytes.div_ceil(step.max(PAGE)).saturating_mul(rounds);
    Ok(Running::start(values, Touches::new(bytes, step, rounds, true, write), false, runs))
}

/// Accesses at a constant distance in one fixed anonymous mapping, some number of times:
/// [`touch`](self), which maps and unmaps the memory in each round, and `stride`, which keeps it.
pub(super) struct Touches {
    bytes: u64,
    step: u64,
    rounds: u64,
    /// Whether each round has a new mapping.
    remaps: bool,
    access: Access,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Start,
    /// The offset of the next access.
    At(u64),
    Done,
}

impl Touches {
    pub(super) fn new(bytes: u64, step: u64, rounds: u64, remaps: bool, write: bool) -> Touches {
        let access = if write { Access::Write } else { Access::Read };
        Touches { bytes, step, rounds, remaps, access, state: State::Start }
    }
}

impl Program for Touches {
    fn step(&mut self, out: &mut Out) -> bool {
        match self.state {
            State::Start => {
                out.begin();
                out.map_anonymous(REGION, self.bytes);
                self.state = State::At(0);
            }
            State::At(mut offset) => {
                for _ in 0..Batch::RUNS {
                    if offset >= self.bytes {
                        break;
                    }
                    out.data(REGION + offset, self.access, 1, 4);
                    offset += self.step;
                }
                self.state = State::At(offset);
                if offset >= self.bytes {
                    self.end_round(out);
                }
            }
            State::Done => return false,
        }
        true
    }
}

impl Touches {
    fn end_round(&mut self, out: &mut Out) {
        self.rounds -= 1;
        self.state = State::At(0);
        if self.rounds == 0 {
            out.unmap_and_exit(REGION, self.bytes);
            self.state = State::Done;
        } else if self.remaps {
            out.event(Event::Unmap { start: REGION / PAGE, pages: self.bytes.div_ceil(PAGE) });
            out.map_anonymous(REGION, self.bytes);
        }
    }
}
