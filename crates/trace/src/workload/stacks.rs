//! `stacks`: many idle threads, each with a stack of which it touches a few pages at the top: with
//! huge pages at first touches each stack takes a whole one (OpenJDK's JDK-8312182: 10 000 threads,
//! 0.37 GB without, 1.5 to 20 GB with them).
//!
//! The stacks lie side by side in one anonymous mapping, as Linux merges mappings of equal rights,
//! from a boundary of a huge page on. The lowest page of each is its guard, without rights, which
//! ends the mapping there: made before the stack is touched (`guard=early`), so that no stack has a
//! whole huge page, or after that (`guard=late`). With `map-stack=on` they are mapped for stacks
//! (`MAP_STACK`, as glibc does), which Linux heeds since 6.7. 4 instructions a store are assumed.

use super::Kind;
use super::parameters::{MOST_BYTES, Parameter, Values};
use super::program::{Out, PAGE, Program, REGION, Running};
use crate::{Backing, Error, Event, Growth, Source};
use superpage_pages::{Access, Hint, Protection};

pub(super) const KIND: Kind = Kind {
    name: "stacks",
    help: "stacks of idle threads, side by side, of which the top is touched (JDK-8312182)",
    parameters: &[
        Parameter { name: "threads", default: "1000", help: "the number of stacks" },
        Parameter { name: "bytes", default: "2M", help: "the size of a stack, from 8K" },
        Parameter { name: "touched", default: "12K", help: "what is written at the top of each" },
        Parameter {
            name: "guard",
            default: "late",
            help: "the page at its end loses its rights before (early) or after that (late)",
        },
        Parameter {
            name: "map-stack",
            default: "off",
            help: "mapped for stacks (MAP_STACK), as Linux heeds since 6.7",
        },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let threads = values.count("threads", 1..=1 << 20)?;
    let bytes = values.bytes("bytes", 2 * PAGE..=MOST_BYTES)?.next_multiple_of(PAGE);
    if bytes > MOST_BYTES / threads {
        return Err(values.wrong("bytes", "a size with which all stacks together fit into the address space"));
    }
    let touched = values.bytes("touched", 1..=bytes - PAGE)?.div_ceil(PAGE);
    let early = values.choice("guard", "early", "late")?;
    let asks = values.choice("map-stack", "on", "off")?;
    let runs = threads.saturating_mul(touched);
    Ok(Running::start(values, Stacks { threads, bytes, touched, early, asks, next: None }, false, runs))
}

struct Stacks {
    threads: u64,
    bytes: u64,
    /// In pages.
    touched: u64,
    early: bool,
    asks: bool,
    /// The thread that starts next; `None` before the mapping is made.
    next: Option<u64>,
}

impl Stacks {
    fn guard(&self, out: &mut Out, start: u64) {
        out.event(Event::Protect { start: start / PAGE, pages: 1, protection: Protection::NONE });
    }
}

impl Program for Stacks {
    fn step(&mut self, out: &mut Out) -> bool {
        let Some(thread) = self.next else {
            out.begin();
            let (start, pages) = (REGION / PAGE, self.threads * self.bytes / PAGE);
            let (protection, backing, growth) = (Protection::READ_WRITE, Backing::Anonymous, Growth::Fixed);
            out.event(Event::Map { start, pages, protection, shared: false, backing, growth });
            if self.asks {
                out.event(Event::Advise { start, pages, hint: Hint::Stack });
            }
            self.next = Some(0);
            return true;
        };
        if thread == self.threads {
            return false;
        }
        let start = REGION + thread * self.bytes;
        if self.early {
            self.guard(out, start);
        }
        for page in 1..=self.touched {
            out.data(start + self.bytes - page * PAGE, Access::Write, 1, 4);
        }
        if !self.early {
            self.guard(out, start);
        }
        self.next = Some(thread + 1);
        true
    }
}
