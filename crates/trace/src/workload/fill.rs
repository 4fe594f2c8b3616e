//! `fill`: allocates anonymous memory, writes its pages and exits, so that the memory becomes free:
//! the "synthetic application that uses enough anonymous memory to maximize the number of free
//! pages in the system when it exits" (Navarro et al., section 6.5).
//!
//! One fixed anonymous mapping; each page of 4 KB that is written is written whole, in order, by
//! 8-byte stores of 3 instructions each (assumed: store, advance, branch). With a `share` below 1
//! only that share of the pages is, evenly spread. The memory is not unmapped: it goes with the
//! process.

use super::Kind;
use super::parameters::{MOST_BYTES, Parameter, Values};
use super::program::{Out, PAGE, Program, REGION, Running};
use crate::{Batch, Error, Event, Source};
use superpage_pages::Access;

pub(super) const KIND: Kind = Kind {
    name: "fill",
    help: "write anonymous memory page by page and exit (Navarro et al., section 6.5)",
    parameters: &[
        Parameter { name: "bytes", default: "512M", help: "the size of the memory" },
        Parameter { name: "share", default: "1", help: "the share of its pages that is written" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let pages = values.bytes("bytes", 1..=MOST_BYTES)?.div_ceil(PAGE);
    let share = values.fraction("share", 0.0..=1.0)?;
    let runs = (pages as f64 * share) as u64;
    Ok(Running::start(values, Fill { pages, share, next: None }, false, runs))
}

struct Fill {
    pages: u64,
    share: f64,
    /// The next page; `None` before the mapping is made.
    next: Option<u64>,
}

impl Program for Fill {
    fn step(&mut self, out: &mut Out) -> bool {
        let Some(next) = self.next else {
            out.begin();
            out.map_anonymous(REGION, self.pages * PAGE);
            self.next = Some(0);
            return true;
        };
        if next > self.pages {
            return false;
        }
        let end = self.pages.min(next + Batch::RUNS as u64);
        // Page number `i` is written if it increases the number of written pages up to it.
        let written = |pages: u64| (pages as f64 * self.share) as u64;
        for page in (next..end).filter(|page| written(page + 1) > written(*page)) {
            out.words(REGION + page * PAGE, Access::Write, PAGE / 8, 3);
        }
        self.next = Some(end);
        if end == self.pages {
            out.event(Event::Exit);
            self.next = Some(end + 1);
        }
        true
    }
}
