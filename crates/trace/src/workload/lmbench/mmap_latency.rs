//! `mmap-latency`: maps all of a file, shared, and unmaps it again (`lat_mmap.c`).
//!
//! Until revision 1.8 (1996) LmBench touched nothing of the mapping; from 1.9 on (June 1997) it
//! stores a byte in each 16 KB of its first tenth (`touch=tenth`). Dougan et al. do not say which
//! they had. 41 us at 133 MHz are 5500 cycles, too few for the 52 page faults of a tenth of 8 MB,
//! so `touch=nothing` is the default. Their size is not given either; 8 MB is what LmBench's script
//! takes by default.

use super::super::Kind;
use super::super::files::data_file;
use super::super::parameters::{MOST_COUNT, Parameter, Values};
use super::super::program::{Out, PAGE};
use super::process::{self, Object, Stub};
use super::{Benchmark, Each, measure};
use crate::{Backing, Error, Event, Growth, Source};
use superpage_pages::{Access, Protection};

pub(crate) const KIND: Kind = Kind {
    name: "mmap-latency",
    help: "map a file and unmap it; an operation is both (LmBench, lat_mmap)",
    parameters: &[
        Parameter { name: "bytes", default: "8M", help: "the length of the file" },
        Parameter { name: "times", default: "100", help: "operations that are measured" },
        Parameter {
            name: "touch",
            default: "nothing",
            help: "what is stored into: nothing, or tenth: every 16K of the first tenth",
        },
    ],
    start,
};

/// `PSIZE`: the distance of the stores.
const STEP: u64 = 16 << 10;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", 1..=1 << 30)?;
    let times = values.count("times", 1..=MOST_COUNT)?;
    let touched = if values.choice("touch", "tenth", "nothing")? { bytes / 10 } else { 0 };
    let runs = 6 + 2 * touched.div_ceil(STEP);
    Ok(measure(values, MmapLatency { bytes, touched }, times, Each { steps: 1, runs }))
}

struct MmapLatency {
    bytes: u64,
    /// The bytes from the start on in which it stores.
    touched: u64,
}

impl Benchmark for MmapLatency {
    fn begin(&mut self, out: &mut Out) {
        process::start(out, Object::program("mmap-latency"));
        process::work(out, 1, 32);
        let (file, file_pages) = (data_file("mmap-latency", 0), self.bytes.div_ceil(PAGE));
        process::system(out, Stub::Files, Event::Open { file, file_pages });
    }

    fn step(&mut self, out: &mut Out, _: u64) {
        let (at, pages) = (process::mapped_file(), self.bytes.div_ceil(PAGE));
        let backing = Backing::File { file: data_file("mmap-latency", 0), file_pages: pages, offset: 0 };
        let (start, protection, growth) = (at / PAGE, Protection::READ_WRITE, Growth::Fixed);
        process::work(out, 1, 32);
        process::system(out, Stub::Map, Event::Map { start, pages, protection, shared: true, backing, growth });
        for offset in (0..self.touched).step_by(STEP as usize) {
            process::work(out, 2, 4);
            out.data(at + offset, Access::Write, 1, 0);
        }
        process::work(out, 1, 8);
        process::system(out, Stub::Map, Event::Unmap { start, pages });
    }

    fn end(&mut self, out: &mut Out) {
        process::exit(out);
    }
}
