//! `sequential`: 8-byte loads over a region from its start to its end, some number of times. The
//! region is one fixed anonymous mapping, filled first by a pass of 8-byte stores unless
//! `populate=no`. 3 instructions a load are assumed: load, advance, branch.

use super::Kind;
use super::parameters::{MOST_BYTES, MOST_COUNT, Parameter, Values};
use super::program::{Out, PAGE, Pass, Program, REGION, Running};
use crate::{Error, Source};
use superpage_pages::Access;

pub(super) const KIND: Kind = Kind {
    name: "sequential",
    help: "8-byte loads from the start of a region to its end",
    parameters: &[
        Parameter { name: "bytes", default: "256M", help: "the size of the region" },
        Parameter { name: "passes", default: "4", help: "how many times it is read" },
        Parameter { name: "populate", default: "yes", help: "whether the region is written once before: yes or no" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", PAGE..=MOST_BYTES)?.next_multiple_of(PAGE);
    let passes = values.count("passes", 0..=MOST_COUNT)?;
    let populate = values.choice("populate", "yes", "no")?;
    let pass = Pass::populate(REGION, if populate { bytes } else { 0 });
    let runs = (bytes / PAGE).saturating_mul(passes) + pass.pages();
    Ok(Running::start(values, Scan { bytes, left: passes, pass, state: State::Start }, false, runs))
}

struct Scan {
    bytes: u64,
    /// Passes that have not begun.
    left: u64,
    pass: Pass,
    state: State,
}

enum State {
    Start,
    Pass,
    Done,
}

impl Program for Scan {
    fn step(&mut self, out: &mut Out) -> bool {
        match self.state {
            State::Start => {
                out.begin();
                out.map_anonymous(REGION, self.bytes);
                self.state = State::Pass;
            }
            State::Pass => {
                if self.pass.step(out) {
                } else if self.left > 0 {
                    self.left -= 1;
                    self.pass = Pass::new(REGION, self.bytes, 8, Access::Read, 3);
                } else {
                    out.unmap_and_exit(REGION, self.bytes);
                    self.state = State::Done;
                }
            }
            State::Done => return false,
        }
        true
    }
}
