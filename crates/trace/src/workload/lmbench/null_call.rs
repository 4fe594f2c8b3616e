//! `null-call`: a system call that does nothing, as LmBench 2 has it (`lat_syscall.c`: `getppid`).
//! LmBench 1 wrote a byte to `/dev/null`.

use super::super::Kind;
use super::super::parameters::{MOST_COUNT, Parameter, Values};
use super::super::program::Out;
use super::process::{self, Object, Stub};
use super::{Benchmark, Each, measure};
use crate::{Error, Source};

pub(crate) const KIND: Kind = Kind {
    name: "null-call",
    help: "system calls that do nothing; an operation is one (LmBench, lat_syscall)",
    parameters: &[Parameter { name: "times", default: "1000", help: "operations that are measured" }],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let times = values.count("times", 1..=MOST_COUNT)?;
    Ok(measure(values, NullCall, times, Each { steps: 1, runs: 4 }))
}

struct NullCall;

impl Benchmark for NullCall {
    fn begin(&mut self, out: &mut Out) {
        process::start(out, Object::program("null-call"));
    }

    fn step(&mut self, out: &mut Out, _: u64) {
        process::work(out, 1, 16);
        process::system(out, Stub::Getppid, process::null());
    }

    fn end(&mut self, out: &mut Out) {
        process::exit(out);
    }
}
