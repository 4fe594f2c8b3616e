//! Workloads after LmBench (McVoy and Staelin, USENIX 1996), which Dougan, Mackerras and Yodaiken
//! measured with (OSDI 1999, sections 4 to 7): each does what the program of that suite does, call
//! for call, as LmBench 2alpha11 (1997) has it; each file names its source.
//!
//! A workload has a tenth as many operations, at least one, after the mark `warm` as it has after
//! the mark `measured`; what ends it comes after the mark `end`. So the part `measured` holds the
//! operations and nothing else, and their number is what the workload's help says.
//!
//! The program's own text, that of the C library and of the dynamic linker are fetched, and the
//! stack is used. The kernel is not in the stream but where it is called ([`Event::Call`]); a call
//! that waits stands where it goes on, after the switch.
//!
//! | what | where it comes from |
//! | --- | --- |
//! | text at 0x01800000, data 64 KB behind its end | GNU ld's `elf32ppc.sh` of that time: `TEXT_START_ADDR`, `MAXPAGESIZE` |
//! | libraries and mapped files from 0x30000000 on, the stack below 0x80000000 | Linux 2.2, `include/asm-ppc/processor.h` |
//! | 64 KB in a transfer, 10 MB through a pipe | LmBench's `bench.h` and `bw_pipe.c` |
//! | a pipe holds a page of 4 KB | Linux 2.2, `PIPE_BUF` |
//! | the dynamic linker: 22 pages of text, 2 of data | assumed |
//! | the C library: 86 pages of text, 4 of data, 4 zeroed, 110 in all | assumed, after the "40-110 pages" of section 7 |
//! | a program: 8 pages of text, 1 of data, 1 zeroed; `hello`: 1, 1 and 1 | assumed |
//! | 512 relocations, 12 pages of the C library run at a start | assumed |
//! | all counts of instructions, and all of `draw`, which is none of LmBench's | assumed |

mod process;

pub(super) mod draw;
pub(super) mod mmap_latency;
pub(super) mod null_call;
pub(super) mod pipe_bandwidth;
pub(super) mod pipe_latency;
pub(super) mod reread;
pub(super) mod start;
pub(super) mod switch;

use super::parameters::Values;
use super::program::{Out, Program, Running};
use crate::{Event, Info, Source};

/// The bytes of a transfer: `XFERSIZE`.
const TRANSFER: u64 = 64 << 10;

/// A program of LmBench.
trait Benchmark: Send {
    /// Starts the process, the current one, and what it needs.
    fn begin(&mut self, out: &mut Out);

    /// Does the step with this number: an operation, or a part of one.
    fn step(&mut self, out: &mut Out, number: u64);

    /// Ends all processes.
    fn end(&mut self, out: &mut Out);
}

/// A benchmark in its parts.
struct Parts<B> {
    benchmark: B,
    warm: u64,
    measured: u64,
    /// Steps done; `None` before the first and after the last part.
    done: Option<u64>,
    ended: bool,
}

/// What one operation consists of: steps, and about how many runs of pages.
struct Each {
    steps: u64,
    runs: u64,
}

/// A benchmark of `operations` operations, as a source.
fn measure(values: &Values, benchmark: impl Benchmark + 'static, operations: u64, each: Each) -> Box<dyn Source> {
    let Each { steps, runs } = each;
    let (warm, measured) = (operations.div_ceil(10) * steps, operations * steps);
    let runs = process::START_RUNS + (operations + operations.div_ceil(10)) * runs;
    let info = Info { fetches: true, calls: true, runs: Some(runs), ..Info::default() };
    Running::described(values, Parts { benchmark, warm, measured, done: None, ended: false }, info)
}

impl<B: Benchmark> Program for Parts<B> {
    fn step(&mut self, out: &mut Out) -> bool {
        let all = self.warm + self.measured;
        match self.done {
            None if self.ended => return false,
            None => {
                out.event(Event::Mark("warm".into()));
                out.begin();
                self.benchmark.begin(out);
                self.done = Some(0);
            }
            Some(done) if done == all => {
                out.event(Event::Mark("end".into()));
                self.benchmark.end(out);
                (self.done, self.ended) = (None, true);
            }
            Some(done) => {
                if done == self.warm {
                    out.event(Event::Mark("measured".into()));
                }
                self.benchmark.step(out, done);
                self.done = Some(done + 1);
            }
        }
        true
    }
}
