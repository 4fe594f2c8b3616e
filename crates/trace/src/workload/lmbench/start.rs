//! `start`: forks, executes a small dynamically linked program that writes a line, and waits for its end (`lat_proc.c exec` and
//! `hello.c`). An operation is all of that, one process.
//!
//! The child shares its parent's pages until it writes its stack, closes its standard output and executes `hello`: the kernel
//! maps it and the dynamic linker, which maps the C library as a whole and then its data over that, and relocates it.

use super::super::Kind;
use super::super::parameters::{Parameter, Values};
use super::super::program::Out;
use super::process::{self, Object, START_RUNS, Stub};
use super::{Benchmark, measure};
use crate::{Error, Event, Source};

pub(crate) const KIND: Kind = Kind {
    name: "start",
    help: "fork, execute a small program, wait for it; an operation is one process (LmBench, lat_proc exec)",
    parameters: &[
        Parameter { name: "times", default: "20", help: "operations that are measured" },
        Parameter {
            name: "idle",
            default: "0",
            help: "microseconds in which nothing runs after each, as at a terminal",
        },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    // Each is a process, and their numbers have 32 bits.
    let times = values.count("times", 1..=1_000_000_000)?;
    let idle = values.count("idle", 0..=1_000_000_000)?;
    Ok(measure(values, Start { idle }, times, (1, START_RUNS)))
}

struct Start {
    /// Microseconds after each operation.
    idle: u64,
}

impl Benchmark for Start {
    fn begin(&mut self, out: &mut Out) {
        process::read_files(out);
        process::start(out, Object::program("start"));
    }

    fn step(&mut self, out: &mut Out, number: u64) {
        let child = number as u32 + 1;
        process::work(out, 1, 32);
        process::fork(out, child);
        process::enter(out, Stub::Wait);
        process::begin_child(out, child);
        process::system(out, Stub::Files, process::null());
        process::enter(out, Stub::Exec);
        out.event(Event::Exec);
        process::start(out, Object::hello());
        // To the standard output, which is closed: the call fails and copies nothing.
        process::system(out, Stub::Write, process::null());
        process::exit(out);
        process::switch(out, 0);
        out.event(process::null()); // The rest of wait.
        process::leave(out, Stub::Wait);
        if self.idle > 0 {
            out.event(Event::Idle { microseconds: self.idle });
        }
    }

    fn end(&mut self, out: &mut Out) {
        process::exit(out);
    }
}
