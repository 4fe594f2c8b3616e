//! `pipe-latency`: two processes pass a byte to and fro through two pipes (`lat_pipe.c`). An
//! operation is to and fro: two writes, two reads, two switches.

use super::super::Kind;
use super::super::parameters::{MOST_COUNT, Parameter, Values};
use super::super::program::Out;
use super::process::{self, Object, Stub};
use super::{Benchmark, Each, measure};
use crate::{Error, Source};

pub(crate) const KIND: Kind = Kind {
    name: "pipe-latency",
    help: "pass a byte to and fro between two processes; an operation is both ways (LmBench, lat_pipe)",
    parameters: &[Parameter { name: "times", default: "1000", help: "operations that are measured" }],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let times = values.count("times", 1..=MOST_COUNT)?;
    Ok(measure(values, PipeLatency, times, Each { steps: 1, runs: 20 }))
}

struct PipeLatency;

impl PipeLatency {
    fn write(out: &mut Out) {
        process::work(out, 1, 16);
        process::system(out, Stub::Write, process::call("pipe-write", process::stack(), 1));
    }
}

impl Benchmark for PipeLatency {
    fn begin(&mut self, out: &mut Out) {
        process::start(out, Object::program("pipe-latency"));
        for _ in 0..2 {
            process::system(out, Stub::Files, process::null()); // pipe
        }
        process::fork(out, 1);
        // The child waits first.
        process::enter(out, Stub::Wait);
        process::begin_child(out, 1);
        process::enter(out, Stub::Read);
        process::switch(out, 0);
        process::leave(out, Stub::Wait);
    }

    fn step(&mut self, out: &mut Out, _: u64) {
        PipeLatency::write(out);
        process::wait_for(out, 1, 1);
        PipeLatency::write(out);
        process::wait_for(out, 0, 1);
    }

    fn end(&mut self, out: &mut Out) {
        process::switch(out, 1);
        process::exit(out);
        process::switch(out, 0);
        process::exit(out);
    }
}
