//! `start`: forks, executes a small dynamically linked program that writes a line, and waits for
//! its end (`lat_proc.c exec` and `hello.c`). An operation is all of that, one process.
//!
//! The child shares its parent's pages until it writes its stack, closes its standard output and
//! executes `hello`: the kernel maps it and the dynamic linker, which maps the C library as a whole
//! and then its data over that, and relocates it.
//!
//! With `beside` another process lives all the while, which LmBench has not: after each operation
//! it wakes, reads a word of each of its pages, and sleeps again.

use super::super::Kind;
use super::super::parameters::{Parameter, Values};
use super::super::program::{Out, PAGE};
use super::process::{self, Object, START_RUNS, Stub};
use super::{Benchmark, Each, measure};
use crate::{Error, Event, Source};
use superpage_pages::Access;

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
        Parameter {
            name: "beside",
            default: "0",
            help: "the memory of another process, which reads a word of each page after each: a size from 0 to 512M",
        },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    // Each is a process, and their numbers have 32 bits.
    let times = values.count("times", 1..=1_000_000_000)?;
    let idle = values.count("idle", 0..=1_000_000_000)?;
    let beside = match values.text("beside") {
        "0" => 0,
        _ => values.bytes("beside", 1..=512 << 20)?,
    };
    let runs = START_RUNS + 2 * beside.div_ceil(PAGE);
    Ok(measure(values, Start { idle, beside, heap: 0 }, times, Each { steps: 1, runs }))
}

struct Start {
    /// Microseconds after each operation.
    idle: u64,
    /// The memory of the other process, and where it is; its number is 1.
    beside: u64,
    heap: u64,
}

impl Benchmark for Start {
    fn begin(&mut self, out: &mut Out) {
        process::read_files(out);
        self.heap = process::start(out, Object::program("start"));
        if self.beside > 0 {
            process::fork(out, 1);
            process::begin_child(out, 1);
            process::allocate(out, self.heap, self.beside);
            self.touch(out, Access::Write);
            process::enter(out, Stub::Wait);
            process::switch(out, 0);
        }
    }

    fn step(&mut self, out: &mut Out, number: u64) {
        let child = number as u32 + if self.beside > 0 { 2 } else { 1 };
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
        if self.beside > 0 {
            self.wake_other(out);
            self.touch(out, Access::Read);
            process::enter(out, Stub::Wait);
        }
        if self.idle > 0 {
            out.event(Event::Idle { microseconds: self.idle });
        }
        if self.beside > 0 {
            process::switch(out, 0);
        }
    }

    fn end(&mut self, out: &mut Out) {
        if self.beside > 0 {
            self.wake_other(out);
            process::exit(out);
            process::switch(out, 0);
        }
        process::exit(out);
    }
}

impl Start {
    /// The other process runs: what it waited for is over.
    fn wake_other(&self, out: &mut Out) {
        process::switch(out, 1);
        out.event(process::null());
        process::leave(out, Stub::Wait);
    }

    /// A word of each page of the other process.
    fn touch(&self, out: &mut Out, access: Access) {
        for at in (0..self.beside).step_by(PAGE as usize) {
            process::work(out, 3, 8);
            process::words(out, self.heap + at + at / PAGE * 64 % PAGE, access, 1);
        }
    }
}
