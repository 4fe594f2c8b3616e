//! `share`: processes that share one piece of memory, as the connections of a web server do, each
//! of which needs its own page tables for it (Piehl, Extended page sizes, 2012, section 1.9).
//!
//! The first process maps anonymous memory, shared, and forks the others; then each touches all of
//! it, one after the other, and only when all have done so do they unmap it and exit. 4
//! instructions an access are assumed, as in `touch`.

use super::Kind;
use super::parameters::{MOST_BYTES, Parameter, Values};
use super::program::{Out, PAGE, Program, REGION, Running};
use crate::{Backing, Batch, Error, Event, Growth, ProcessId, Source};
use superpage_pages::{Access, Protection};

/// The most processes.
const MOST: u64 = 100_000;
/// The most base pages that all map: their entries and page tables take some 30 bytes each while
/// this is simulated, 8 GB.
const MOST_MAPPED: u64 = 1 << 28;
/// So many are forked at once: between steps the simulation can be ended.
const FORKED: u32 = 64;

pub(super) const KIND: Kind = Kind {
    name: "share",
    help: "processes that touch memory which they share, each by its own page tables (Piehl, section 1.9)",
    parameters: &[
        Parameter { name: "bytes", default: "64M", help: "the size of the memory" },
        Parameter { name: "processes", default: "8", help: "the number of processes" },
        Parameter { name: "step", default: "4K", help: "the distance of the accesses" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", 1..=MOST_BYTES)?;
    let processes = values.count("processes", 1..=MOST)? as u32;
    let step = values.bytes("step", 1..=MOST_BYTES)?;
    if bytes.div_ceil(PAGE).saturating_mul(u64::from(processes)) > MOST_MAPPED {
        let most = (MOST_MAPPED * PAGE) >> 30;
        let problem = format!(
            "processes x bytes is more than {most}G, and page tables for more do not fit into memory; give less of one"
        );
        return Err(Error::input("share", problem));
    }
    let runs = bytes.div_ceil(step.max(PAGE)).saturating_mul(u64::from(processes));
    Ok(Running::start(values, Share { bytes, processes, step, state: State::Start }, false, runs))
}

struct Share {
    bytes: u64,
    processes: u32,
    step: u64,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Start,
    /// The process that is forked next.
    Fork(u32),
    /// The process that touches, and the offset of its next access.
    At(u32, u64),
    /// The process that exits next.
    Exit(u32),
}

impl Share {
    fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE)
    }
}

fn switch(out: &mut Out, process: u32) {
    out.event(Event::Switch { process: ProcessId(process), thread: process });
}

impl Program for Share {
    fn step(&mut self, out: &mut Out) -> bool {
        match self.state {
            State::Start => {
                out.begin();
                let (protection, backing, growth) = (Protection::READ_WRITE, Backing::Anonymous, Growth::Fixed);
                let (start, pages) = (REGION / PAGE, self.pages());
                out.event(Event::Map { start, pages, protection, shared: true, backing, growth });
                self.state = State::Fork(1);
            }
            State::Fork(child) => {
                let end = self.processes.min(child + FORKED);
                (child..end).for_each(|child| out.event(Event::Fork { child: ProcessId(child) }));
                self.state = if end < self.processes { State::Fork(end) } else { State::At(0, 0) };
            }
            State::At(process, mut offset) => {
                for _ in 0..Batch::RUNS {
                    if offset >= self.bytes {
                        break;
                    }
                    out.data(REGION + offset, Access::Write, 1, 4);
                    offset += self.step;
                }
                self.state = State::At(process, offset);
                if offset >= self.bytes {
                    let next = process + 1;
                    self.state = if next < self.processes { State::At(next, 0) } else { State::Exit(0) };
                    switch(out, next % self.processes);
                }
            }
            State::Exit(process) if process < self.processes => {
                switch(out, process);
                out.unmap_and_exit(REGION, self.bytes);
                self.state = State::Exit(process + 1);
            }
            State::Exit(_) => return false,
        }
        true
    }
}
