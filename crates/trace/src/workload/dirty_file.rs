//! `dirty-file`: "a program that maps a 100MB file, reads every page thus triggering superpage
//! promotion, then writes into every 512th page, flushes the file and exits" (Navarro et al.,
//! section 6.7). A kernel that keeps a superpage with one dirty bit writes 512 pages for each.
//!
//! The file is mapped shared. One word of each page of 4 KB is read in order, so that every page of
//! every machine is; then one word is written into every `every`-th page of `page` bytes, the first
//! included. 4 instructions per access are assumed. With `same` above 0 that share of the writes,
//! chosen at random, stores what the page already holds (an [`Event::Rewrite`] marks them), like a
//! program that overwrites a field with the same value: a case for a kernel that compares digests
//! of contents (section 4.7). With `idle` the processor is idle between the reads and the writes,
//! and a kernel can compute such digests then.

use super::Kind;
use super::files::{data_file, open_and_map, unmap_and_close};
use super::parameters::{MOST_BYTES, MOST_COUNT, Parameter, Values};
use super::program::{Out, PAGE, Pass, Program, REGION, Running};
use crate::{Batch, Error, Event, Source};
use superpage_pages::Random;
use superpage_pages::{Access, Protection};

pub(super) const KIND: Kind = Kind {
    name: "dirty-file",
    help: "read all of a mapped file, write into a few of its pages, flush it (Navarro et al., section 6.7)",
    parameters: &[
        Parameter { name: "bytes", default: "100M", help: "the length of the file" },
        Parameter { name: "every", default: "512", help: "one page in this many is written" },
        Parameter { name: "page", default: "8K", help: "the size of these pages, a multiple of 4K" },
        Parameter { name: "same", default: "0", help: "the share of the writes that store what is already there" },
        Parameter { name: "seed", default: "1", help: "chooses these writes" },
        Parameter { name: "idle", default: "0", help: "milliseconds of idle time between the reads and the writes" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", 1..=MOST_BYTES)?.next_multiple_of(PAGE);
    let page = values.bytes("page", PAGE..=1 << 30)?;
    if !page.is_multiple_of(PAGE) {
        return Err(values.wrong("page", "a multiple of 4K, the page of a stream"));
    }
    let step = page.saturating_mul(values.count("every", 1..=MOST_COUNT)?);
    let same = values.fraction("same", 0.0..=1.0)?;
    let random = Random::new(values.seed()?);
    let idle = values.count("idle", 0..=1_000_000)?;
    let pass = Pass::new(REGION, bytes, PAGE, Access::Read, 4);
    let runs = pass.pages() + bytes.div_ceil(step);
    Ok(Running::start(values, Dirty { bytes, page, step, same, random, idle, pass, state: State::Start }, false, runs))
}

struct Dirty {
    bytes: u64,
    page: u64,
    /// The distance of the writes.
    step: u64,
    same: f64,
    random: Random,
    /// Milliseconds in which nothing runs, before the writes.
    idle: u64,
    pass: Pass,
    state: State,
}

enum State {
    Start,
    Read,
    /// The offset of the next write.
    Write(u64),
    Done,
}

impl Program for Dirty {
    fn step(&mut self, out: &mut Out) -> bool {
        let (file, pages) = (data_file("dirty-file", 0), self.bytes / PAGE);
        match self.state {
            State::Start => {
                out.begin();
                open_and_map(out, file, pages, REGION, Protection::READ_WRITE);
                self.state = State::Read;
            }
            State::Read => {
                if !self.pass.step(out) {
                    if self.idle > 0 {
                        out.event(Event::Idle { microseconds: self.idle * 1000 });
                    }
                    self.state = State::Write(0);
                }
            }
            State::Write(mut offset) => {
                for _ in 0..Batch::RUNS {
                    if offset >= self.bytes {
                        break;
                    }
                    self.write(out, offset);
                    offset = offset.saturating_add(self.step);
                }
                self.state = State::Write(offset);
                if offset >= self.bytes {
                    out.event(Event::Sync { file });
                    unmap_and_close(out, file, pages, REGION);
                    out.event(Event::Exit);
                    self.state = State::Done;
                }
            }
            State::Done => return false,
        }
        true
    }
}

impl Dirty {
    fn write(&mut self, out: &mut Out, offset: u64) {
        let start = (REGION + offset) / PAGE;
        let same = self.random.fraction() < self.same;
        if same {
            out.event(Event::Rewrite { start, pages: self.page / PAGE });
        }
        out.data(start * PAGE, Access::Write, 1, 4);
        if same {
            out.event(Event::Rewrite { start: 0, pages: 0 });
        }
    }
}
