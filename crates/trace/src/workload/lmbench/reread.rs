//! `reread`: reads a file that is in memory, 64 KB at a time, and sums it (`bw_file_rd.c io_only`).
//! An operation is the whole file, from a call that goes to its start on.

use super::super::Kind;
use super::super::files::data_file;
use super::super::parameters::{MOST_COUNT, Parameter, Values};
use super::super::program::{Out, PAGE};
use super::process::{self, Object, Stub};
use super::{Benchmark, Each, TRANSFER, measure};
use crate::{Error, Event, Source};
use superpage_pages::Access;

pub(crate) const KIND: Kind = Kind {
    name: "reread",
    help: "read a cached file by 64K and sum it; an operation is the whole file (LmBench, bw_file_rd)",
    parameters: &[
        Parameter { name: "bytes", default: "8M", help: "the length of the file, rounded up to 4K" },
        Parameter { name: "times", default: "3", help: "operations that are measured" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", 1..=1 << 30)?.next_multiple_of(PAGE);
    let times = values.count("times", 1..=MOST_COUNT / (1 << 20))?;
    let reads = bytes.div_ceil(TRANSFER);
    Ok(measure(values, Reread { bytes, reads, buffer: 0 }, times, Each { steps: reads, runs: reads * 22 }))
}

struct Reread {
    bytes: u64,
    /// Calls in which the whole file is read.
    reads: u64,
    buffer: u64,
}

/// The page of the program's text with the sum, which is unrolled.
const SUM: u64 = 4;

impl Benchmark for Reread {
    fn begin(&mut self, out: &mut Out) {
        self.buffer = process::start(out, Object::program("reread"));
        process::work(out, 1, 32);
        process::allocate(out, self.buffer, TRANSFER);
        process::pass(out, SUM + 1, self.buffer, TRANSFER, Access::Write);
        let (file, file_pages) = (data_file("reread", 0), self.bytes / PAGE);
        process::system(out, Stub::Files, Event::Open { file, file_pages });
    }

    fn step(&mut self, out: &mut Out, number: u64) {
        let read = number % self.reads;
        process::work(out, 1, 16);
        if read == 0 {
            process::system(out, Stub::Files, process::null()); // lseek
        }
        let at = read * TRANSFER;
        let bytes = TRANSFER.min(self.bytes - at);
        process::enter(out, Stub::Read);
        out.event(Event::Read { file: data_file("reread", 0), start: at / PAGE, pages: bytes / PAGE });
        out.event(process::call("read", self.buffer, bytes));
        process::leave(out, Stub::Read);
        process::pass(out, SUM, self.buffer, bytes, Access::Read);
    }

    fn end(&mut self, out: &mut Out) {
        process::exit(out);
    }
}
