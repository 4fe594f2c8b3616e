//! `switch`: processes in a ring pass a token of 4 bytes through pipes, and each sums an array of
//! its own before it passes it on (`lat_ctx.c`).
//!
//! An operation is one pass: a read, the sum, a write and the switch that follows. LmBench
//! subtracts what a write and a read of a pipe take within one process, and a sum whose array is in
//! the caches: `processes=1` is that.

use super::super::Kind;
use super::super::parameters::{MOST_COUNT, Parameter, Values};
use super::super::program::{Out, PAGE};
use super::process::{self, Object, Stub};
use super::{Benchmark, Each, measure};
use crate::{Error, Source};
use superpage_pages::Access;

pub(crate) const KIND: Kind = Kind {
    name: "switch",
    help: "processes pass a token around; an operation is one pass (LmBench, lat_ctx)",
    parameters: &[
        Parameter { name: "processes", default: "2", help: "the number of processes; 1: what LmBench subtracts" },
        Parameter { name: "bytes", default: "0", help: "the array that each sums: a size from 0 to 1M" },
        Parameter {
            name: "times",
            default: "1000",
            help: "measured rounds of the token, each of as many operations as processes",
        },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let processes = values.count("processes", 1..=64)?;
    let bytes = match values.text("bytes") {
        "0" => 0,
        _ => values.bytes("bytes", 1..=1 << 20)?,
    };
    let times = values.count("times", 1..=MOST_COUNT / 64)?;
    let runs = processes * (10 + bytes.div_ceil(PAGE));
    Ok(measure(values, Switch { processes, bytes, heap: 0 }, times, Each { steps: processes, runs }))
}

struct Switch {
    processes: u64,
    bytes: u64,
    heap: u64,
}

/// The page of the program's text with the sum, which is unrolled.
const SUM: u64 = 4;

impl Benchmark for Switch {
    fn begin(&mut self, out: &mut Out) {
        self.heap = process::start(out, Object::program("switch"));
        process::work(out, 1, 64);
        if self.bytes > 0 {
            process::allocate(out, self.heap, self.bytes);
        }
        for _ in 0..self.processes {
            process::system(out, Stub::Files, process::null()); // pipe
        }
        for child in 1..self.processes {
            process::fork(out, child as u32);
        }
        self.zero(out);
    }

    fn step(&mut self, out: &mut Out, number: u64) {
        let next = (number + 1) % self.processes;
        process::work(out, 1, 24);
        process::system(out, Stub::Write, process::call("pipe-write", process::stack(), 4));
        if number + 1 < self.processes {
            // It has not run yet: it closes the ends of pipes that it does not need, and finds the
            // token when it reads.
            process::enter(out, Stub::Read);
            process::begin_child(out, next as u32);
            for _ in 0..2 * self.processes - 2 {
                process::system(out, Stub::Files, process::null());
            }
            self.zero(out);
            process::system(out, Stub::Read, process::call("pipe-read", process::stack(), 4));
        } else if self.processes == 1 {
            process::system(out, Stub::Read, process::call("pipe-read", process::stack(), 4));
        } else {
            process::wait_for(out, next as u32, 4);
        }
        process::pass(out, SUM, self.heap, self.bytes, Access::Read);
    }

    fn end(&mut self, out: &mut Out) {
        for process in (0..self.processes).rev() {
            if self.processes > 1 {
                process::switch(out, process as u32);
            }
            process::exit(out);
        }
    }
}

impl Switch {
    fn zero(&self, out: &mut Out) {
        process::pass(out, SUM + 1, self.heap, self.bytes, Access::Write);
    }
}
