//! `random`: 8-byte loads spread evenly over a region, the worst case of every TLB and of every simulator.
//!
//! The region is one fixed anonymous mapping, filled first by a sequential pass of 8-byte stores unless `populate=no`, so
//! that the loads find all of it resident. 8 instructions a load are assumed: a random number and the load.

use super::Kind;
use super::parameters::{MOST_BYTES, MOST_COUNT, Parameter, Values};
use super::prng::Random;
use super::program::{Out, PAGE, Pass, Program, REGION, Running};
use crate::{Batch, Error, Source};
use superpage_pages::Access;

pub(super) const KIND: Kind = Kind {
    name: "random",
    help: "8-byte loads at uniformly random places",
    parameters: &[
        Parameter { name: "bytes", default: "256M", help: "the size of the region" },
        Parameter { name: "references", default: "100M", help: "the number of loads" },
        Parameter { name: "seed", default: "1", help: "chooses the places" },
        Parameter { name: "populate", default: "yes", help: "whether the region is written once before: yes or no" },
    ],
    start,
};

/// Instructions a load: assumed.
const INSTRUCTIONS: u32 = 8;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", PAGE..=MOST_BYTES)?.next_multiple_of(PAGE);
    let left = values.count("references", 0..=MOST_COUNT)?;
    let populate = values.choice("populate", "yes", "no")?;
    let pass = Pass::populate(REGION, if populate { bytes } else { 0 });
    let runs = left + pass.pages();
    Ok(Running::start(
        values,
        Loads { bytes, pass, left, random: Random::new(values.seed()?), state: State::Start },
        false,
        runs,
    ))
}

struct Loads {
    bytes: u64,
    pass: Pass,
    left: u64,
    random: Random,
    state: State,
}

enum State {
    Start,
    Populate,
    Load,
    Done,
}

impl Program for Loads {
    fn step(&mut self, out: &mut Out) -> bool {
        match self.state {
            State::Start => {
                out.begin();
                out.map_anonymous(REGION, self.bytes);
                self.state = State::Populate;
            }
            State::Populate => {
                if !self.pass.step(out) {
                    self.state = State::Load;
                }
            }
            State::Load if self.left == 0 => {
                out.unmap_and_exit(REGION, self.bytes);
                self.state = State::Done;
            }
            State::Load => {
                let count = self.left.min(Batch::RUNS as u64);
                self.left -= count;
                let pages = self.bytes / PAGE;
                for _ in 0..count {
                    let page = REGION / PAGE + self.random.below(pages);
                    out.data(page, Access::Read, 1, INSTRUCTIONS);
                }
            }
            State::Done => return false,
        }
        true
    }
}
