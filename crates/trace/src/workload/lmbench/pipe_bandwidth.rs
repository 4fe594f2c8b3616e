//! `pipe-bandwidth`: a child writes 64 KB again and again to a pipe, which its parent reads
//! (`bw_pipe.c`, which moves 10 MB).
//!
//! A pipe holds a page, so a write goes in 16 pieces: the writer fills the pipe and waits, the
//! reader's `read` of 64 KB returns the 4 KB that are there, always to the start of its buffer, and
//! it waits in the next. Each piece is a call in the stream, and two switches follow it. An
//! operation is a write of 64 KB: all the bytes, over 64 K.

use super::super::Kind;
use super::super::parameters::{MOST_BYTES, Parameter, Values};
use super::super::program::{Out, PAGE};
use super::process::{self, Object, Stub};
use super::{Benchmark, Each, TRANSFER, measure};
use crate::{Error, Source};
use superpage_pages::Access;

pub(crate) const KIND: Kind = Kind {
    name: "pipe-bandwidth",
    help: "write to a process through a pipe; an operation is 64K (LmBench, bw_pipe)",
    parameters: &[Parameter { name: "bytes", default: "10M", help: "bytes that are measured, rounded up to 64K" }],
    start,
};

/// `PIPE_BUF`.
const PIPE: u64 = 4 << 10;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let writes = values.bytes("bytes", 1..=MOST_BYTES)?.div_ceil(TRANSFER);
    Ok(measure(values, PipeBandwidth { buffer: 0 }, writes, Each { steps: 1, runs: 16 * 7 }))
}

struct PipeBandwidth {
    /// The address of the buffer, in both processes.
    buffer: u64,
}

impl Benchmark for PipeBandwidth {
    fn begin(&mut self, out: &mut Out) {
        self.buffer = process::start(out, Object::program("pipe-bandwidth"));
        process::allocate(out, self.buffer, TRANSFER);
        for at in (0..TRANSFER).step_by(PAGE as usize) {
            process::work(out, 2, 4);
            out.data(self.buffer + at, Access::Write, 1, 0);
        }
        for _ in 0..2 {
            process::system(out, Stub::Files, process::null()); // pipe
        }
        process::fork(out, 1);
        // How much to write, in another pipe.
        process::system(out, Stub::Write, process::call("pipe-write", process::stack(), 4));
        process::enter(out, Stub::Read);
        process::begin_child(out, 1);
        process::system(out, Stub::Read, process::call("pipe-read", process::stack(), 4));
        process::work(out, 1, 16);
        process::enter(out, Stub::Write);
    }

    fn step(&mut self, out: &mut Out, _: u64) {
        for at in (0..TRANSFER).step_by(PIPE as usize) {
            out.event(process::call("pipe-write", self.buffer + at, PIPE));
            if at + PIPE == TRANSFER {
                process::leave(out, Stub::Write);
                process::work(out, 1, 16);
                process::enter(out, Stub::Write);
            }
            process::switch(out, 0);
            out.event(process::call("pipe-read", self.buffer, PIPE));
            process::leave(out, Stub::Read);
            process::work(out, 3, 16);
            process::enter(out, Stub::Read);
            process::switch(out, 1);
        }
    }

    fn end(&mut self, out: &mut Out) {
        process::exit(out);
        process::switch(out, 0);
        process::exit(out);
    }
}
