//! `draw`: a program that draws, as an X server does: it maps the frame buffer, tells the kernel so
//! (`ioremap`), and copies rectangles of a pixmap to random places of the screen, row by row. Not
//! of LmBench: Dougan, Mackerras and Yodaiken speak of such programs in section 5.1, and measured
//! none. All sizes are assumed. The frame buffer is a shared mapping of a file, whose pages are all
//! written once at the start.

use super::super::Kind;
use super::super::files::data_file;
use super::super::parameters::{MOST_COUNT, Parameter, Values};
use super::super::program::{Out, PAGE};
use super::process::{self, Object, Stub};
use super::{Benchmark, Each, measure};
use crate::{Backing, Error, Event, Growth, Source};
use superpage_pages::{Access, Protection, Random};

pub(crate) const KIND: Kind = Kind {
    name: "draw",
    help: "copy rectangles of 256 bytes by 48 rows to a frame buffer that is mapped; an operation is one",
    parameters: &[
        Parameter { name: "bytes", default: "2M", help: "the frame buffer: a power of two from 128K to 16M" },
        Parameter { name: "row", default: "2K", help: "the bytes of a row: a power of two from 256 to 16K" },
        Parameter { name: "times", default: "1000", help: "operations that are measured" },
        Parameter { name: "seed", default: "1", help: "of the places" },
    ],
    start,
};

/// Where the frame buffer is mapped.
const SCREEN: u64 = 0x4000_0000;
const PIXMAP: u64 = 256 << 10;
const WIDTH: u64 = 256;
const HEIGHT: u64 = 48;
/// The page of the program's text with the copy.
const COPY: u64 = 4;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let power = |name: &str, range| {
        let bytes = values.bytes(name, range)?;
        if bytes.is_power_of_two() { Ok(bytes) } else { Err(values.wrong(name, "a power of two")) }
    };
    let (bytes, row) = (power("bytes", 128 << 10..=16 << 20)?, power("row", WIDTH..=16 << 10)?);
    let times = values.count("times", 1..=MOST_COUNT)?;
    let draw = Draw { bytes, row, pixmap: 0, random: Random::new(values.seed()?) };
    Ok(measure(values, draw, times, Each { steps: 1, runs: 2 * HEIGHT * WIDTH.div_ceil(64) + 8 }))
}

struct Draw {
    bytes: u64,
    row: u64,
    pixmap: u64,
    random: Random,
}

impl Benchmark for Draw {
    fn begin(&mut self, out: &mut Out) {
        self.pixmap = process::start(out, Object::program("draw"));
        process::work(out, 1, 32);
        process::allocate(out, self.pixmap, PIXMAP);
        process::pass(out, COPY + 1, self.pixmap, PIXMAP, Access::Write);
        let (file, pages) = (data_file("draw", 0), self.bytes / PAGE);
        process::system(out, Stub::Files, Event::Open { file, file_pages: pages });
        let (start, protection, growth) = (SCREEN / PAGE, Protection::READ_WRITE, Growth::Fixed);
        let backing = Backing::File { file, file_pages: pages, offset: 0 };
        process::system(out, Stub::Map, Event::Map { start, pages, protection, shared: true, backing, growth });
        process::system(out, Stub::Files, process::call("ioremap", SCREEN, 0));
        for page in 0..pages {
            process::work(out, 2, 4);
            out.data(SCREEN + page * PAGE, Access::Write, 1, 0);
        }
    }

    fn step(&mut self, out: &mut Out, _: u64) {
        let rows = self.bytes / self.row;
        let (x, y) = (self.random.below(self.row / WIDTH) * WIDTH, self.random.below(rows));
        let from = self.pixmap + self.random.below(PIXMAP / (WIDTH * HEIGHT)) * WIDTH * HEIGHT;
        process::work(out, 1, 200);
        for line in 0..HEIGHT {
            // Below the last row comes the first.
            let to = SCREEN + (y + line) % rows * self.row + x;
            process::copy(out, COPY, from + line * WIDTH, to, WIDTH);
        }
    }

    fn end(&mut self, out: &mut Out) {
        process::exit(out);
    }
}
