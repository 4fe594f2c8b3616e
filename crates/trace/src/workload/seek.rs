//! `seek`: an application that does nothing but need contiguity: it "maps, touches and unmaps 1MB
//! of memory, five times a second" (Navarro et al., section 6.5, concurrent execution).
//!
//! Each round maps anonymous memory at the same place, aligned to 1 GB, stores once into each page
//! of 4 KB (4 instructions each, assumed), unmaps it, and is idle. In a mix at once with another
//! workload an idle one gives up its turn, so `web + seek @ slice=N` has a round for every N
//! references of the other: how many the other makes in 200 ms is to be worked out from its
//! modelled time.

use super::Kind;
use super::parameters::{MOST_BYTES, MOST_COUNT, Parameter, Values};
use super::program::{Out, PAGE, Pass, Program, REGION, Running};
use crate::{Error, Event, Source};
use superpage_pages::Access;

pub(super) const KIND: Kind = Kind {
    name: "seek",
    help: "map, touch and unmap memory now and then (Navarro et al., section 6.5)",
    parameters: &[
        Parameter { name: "bytes", default: "1M", help: "the size of the memory" },
        Parameter { name: "times", default: "25", help: "how many times" },
        Parameter { name: "idle", default: "200ms", help: "the pause after each: us, ms or s; 0s for none" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", 1..=MOST_BYTES)?.next_multiple_of(PAGE);
    let times = values.count("times", 1..=MOST_COUNT)?;
    let idle = values.microseconds("idle")?;
    let runs = (bytes / PAGE).saturating_mul(times);
    Ok(Running::start(values, Seek { bytes, left: times, idle, pass: None, begun: false }, false, runs))
}

struct Seek {
    bytes: u64,
    /// Rounds that have not ended.
    left: u64,
    idle: u64,
    /// The touches of the round, while the memory is mapped.
    pass: Option<Pass>,
    begun: bool,
}

impl Program for Seek {
    fn step(&mut self, out: &mut Out) -> bool {
        if let Some(pass) = &mut self.pass {
            if !pass.step(out) {
                out.event(Event::Unmap { start: REGION / PAGE, pages: self.bytes / PAGE });
                if self.idle > 0 {
                    out.event(Event::Idle { microseconds: self.idle });
                }
                self.pass = None;
                self.left -= 1;
                if self.left == 0 {
                    out.event(Event::Exit);
                }
            }
        } else if self.left > 0 {
            if !std::mem::replace(&mut self.begun, true) {
                out.begin();
            }
            out.map_anonymous(REGION, self.bytes);
            self.pass = Some(Pass::new(REGION, self.bytes, PAGE, Access::Write, 4));
        } else {
            return false;
        }
        true
    }
}
