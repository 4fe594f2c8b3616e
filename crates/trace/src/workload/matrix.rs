//! `matrix`: the non-blocked transposition of a matrix into another (Navarro et al., sections 6.2
//! and 6.3).
//!
//! The process is the one of [`process`](super::process): 64 KB of code, data, a stack, and a heap
//! that `brk` moves up once for each matrix, to whole pages of 8 KB, as the `malloc` of FreeBSD 4
//! does for large blocks. Then:
//!
//! 1. the source is filled row by row: one store for each element, 4 instructions;
//! 2. `rounds` times, for each row `i` and column `j`, `b[j][i] = a[i][j]`: one load that goes
//!    along a row and one store that goes down a column, 6 instructions.
//!
//! The stores of a column each touch another page once a row has more than a page's bytes, which is
//! the paper's "one TLB miss for every two memory accesses" as soon as there are more rows than TLB
//! entries. Filling the source adds `n * n` references and almost no misses; with 100 rounds that
//! dilutes the ratio by half a percent. That the paper's program did about 100 rounds is inferred:
//! its counter shows 188 steps of 512 K misses (the 90.43 % of table 3 are `1 - 18/188`), and a
//! round of 1000 x 1000 misses 0.98 M times in 128 entries for 8 KB pages.
//!
//! The paper's superpages for it (table 1: 3 of 4 MB, 5 of 512 KB, 12 of 64 KB; 15616 KB together)
//! are those of two adjacent matrices of 7816 KB, so of one heap and no separate mappings, and tell
//! where that heap began: with only two pages of 4 MB, as any start below 752 KB into a region of 4
//! MB gives, the target is not covered and the reduction that table 3 shows for 4 MB pages alone is
//! out of reach. `heap` is the start's distance from a 4 MB boundary; the default, 1072 KB, is the
//! least at which all three counts of table 1 are met. What lay before the heap there is not
//! modelled.
//!
//! Instruction fetches are in the stream: the start-up goes through the code, the loops stay on one
//! page each.

use super::parameters::{Parameter, Values};
use super::process::{LEAST_HEAP, MALLOC_PAGE, Process};
use super::program::{Out, PAGE, Pass, Program, Running};
use super::{Kind, file};
use crate::{Batch, Error, Event, Source};
use superpage_pages::Access;

pub(super) const KIND: Kind = Kind {
    name: "matrix",
    help: "non-blocked transposition of an n x n matrix of doubles (Navarro et al., section 6.2)",
    parameters: &[
        Parameter { name: "n", default: "1000", help: "rows and columns" },
        Parameter { name: "rounds", default: "100", help: "how many times the matrix is transposed" },
        Parameter { name: "heap", default: "1072K", help: "where the heap starts, counted from a 4 MB boundary" },
    ],
    start,
};

/// The most rows: the instructions of a round, 6 an element, must fit the count of one run.
const MOST_ROWS: u64 = 25_000;
/// The farthest that the heap may start from the code.
const MOST_HEAP: u64 = 1 << 30;
/// Instructions an element when the source is filled, and when it is transposed.
const FILL: u32 = 4;
const TRANSPOSE: u32 = 6;
/// The pages of code where `main` and the two loops are.
const MAIN: u64 = 1;
const FILL_LOOP: u64 = 2;
const TRANSPOSE_LOOP: u64 = 3;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let n = values.count("n", 1..=MOST_ROWS)?;
    let rounds = values.count("rounds", 1..=1_000_000_000)?;
    let heap = values.bytes("heap", LEAST_HEAP..=MOST_HEAP)?;
    if !heap.is_multiple_of(MALLOC_PAGE) {
        return Err(values.wrong("heap", "a multiple of 8K, the page of the program's malloc"));
    }
    let runs = n * n * 2 * rounds + n * n * 8 / PAGE;
    let matrix = Matrix { n, rounds, heap, phase: Phase::Start, source: 0, target: 0 };
    Ok(Running::start(values, matrix, true, runs))
}

struct Matrix {
    n: u64,
    rounds: u64,
    heap: u64,
    phase: Phase,
    source: u64,
    target: u64,
}

enum Phase {
    Start,
    Fill(Pass),
    /// The next element of a round, row by row.
    Transpose {
        row: u64,
        column: u64,
    },
    Done,
}

impl Program for Matrix {
    fn step(&mut self, out: &mut Out) -> bool {
        match &mut self.phase {
            Phase::Start => {
                out.begin();
                let mut process = Process::start(out, file("matrix"), self.heap, true);
                out.fetch(Process::code(MAIN), 64);
                let bytes = self.n * self.n * 8;
                self.source = process.grow_heap(out, bytes);
                self.target = process.grow_heap(out, bytes);
                out.fetch(Process::code(FILL_LOOP), (self.n * self.n) as u32 * FILL);
                self.phase = Phase::Fill(Pass::new(self.source, bytes, 8, Access::Write, 0));
            }
            Phase::Fill(pass) => {
                if !pass.step(out) {
                    self.begin_round(out);
                }
            }
            Phase::Transpose { row, column } => {
                let n = self.n;
                let end = n.min(*column + Batch::RUNS as u64 / 2);
                let mut load = self.source + (*row * n + *column) * 8;
                let mut store = self.target + (*column * n + *row) * 8;
                // The first load may belong to the run of the store before it, when the matrices
                // share a page's neighbours; every other access is on another page than the one
                // before, as the matrices share none.
                out.data(load, Access::Read, 1, 0);
                out.distinct((1..2 * (end - *column)).map(|i| {
                    if i & 1 == 1 {
                        let at = store;
                        load += 8;
                        store += n * 8;
                        (at, Access::Write, 1, 0)
                    } else {
                        (load, Access::Read, 1, 0)
                    }
                }));
                *column = end;
                if end == n {
                    (*row, *column) = (*row + 1, 0);
                    if *row == n {
                        self.rounds -= 1;
                        self.begin_round(out);
                    }
                }
            }
            Phase::Done => return false,
        }
        true
    }
}

impl Matrix {
    /// `main` calls the next transposition, or ends the process.
    fn begin_round(&mut self, out: &mut Out) {
        out.fetch(Process::code(MAIN), 16);
        if self.rounds == 0 {
            out.event(Event::Exit);
            self.phase = Phase::Done;
        } else {
            out.fetch(Process::code(TRANSPOSE_LOOP), (self.n * self.n) as u32 * TRANSPOSE);
            self.phase = Phase::Transpose { row: 0, column: 0 };
        }
    }
}
