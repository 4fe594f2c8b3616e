//! `sp`: the scalar pentadiagonal solver of the NAS Parallel Benchmarks, version 2.3, serial
//! (Navarro et al., section 6.2): its arrays and its loops, without the arithmetic.
//!
//! The grid has n^3 points, 36^3 in the "workstation class". The program keeps 38 values of 8 bytes
//! for each point, in this order: the solution u (5), us, vs, ws, qs, ainv, rho_i, speed, square,
//! the right-hand side rhs (5), forcing (5), and the left-hand side lhs (15). Each is an array of
//! its own, (i, j, k) with i contiguous, each dimension padded to an odd number: 38 * 37^3 * 8
//! bytes are 15.4 MB of the program's zeroed data, right behind which are the lines' work arrays.
//! The program first fills each array, in order, and touches no padding: `do i = 0, grid_points -
//! 1` in all its loops. So of each array the 37th plane, 11 KB, is memory that no time step touches
//! either. Then a time step goes through
//!
//! 1. the right-hand side: speeds and squares from u, a copy of forcing, fluxes and dissipation in
//!    each direction, scaling;
//! 2. txinvr, and for each direction the left-hand side, forward elimination, back substitution,
//!    and a product with rhs;
//! 3. the addition of rhs to u.
//!
//! All loops but one in each direction go in the order of memory. A row of n elements is then one
//! piece: of each array that the loop touches in it first the loads and then the stores, an element
//! of an array counted once for each. That the rows of one loop alternate element by element is no
//! concern of a TLB that holds a page of each, 50 at most. The exception computes three of the lhs
//! line by line in the direction: it loads rho_i and a speed along the line into the work arrays,
//! and then stores five of the lhs along it. Along k consecutive elements are 11 KB apart, 36 pages
//! of 8 KB for each of seven arrays, more than a TLB of 128 entries holds: here each access stands
//! for itself. These make 0.28 M of the 0.30 M misses of a time step in 128 round-robin entries for
//! 8 KB pages; the paper's counter shows 223 steps of 512 K misses (99.55 % are `1 - 1/223`), 0.29
//! M for each of the class's 400 time steps. The default is 10 of them. What happens at the planes
//! of the border is taken with the rest; 2 instructions a reference are assumed.

use super::parameters::{Parameter, Values};
use super::process::{LEAST_HEAP, Process};
use super::program::{Out, PAGE, Program, Running};
use super::{Kind, file};
use crate::{Error, Event, Source};
use superpage_pages::Access;

pub(super) const KIND: Kind = Kind {
    name: "sp",
    help: "the scalar pentadiagonal solver of NAS, as its loops touch its arrays (Navarro et al., section 6.2)",
    parameters: &[
        Parameter { name: "n", default: "36", help: "points along each dimension: 36 is the workstation class" },
        Parameter { name: "steps", default: "10", help: "time steps; the class has 400" },
    ],
    start,
};

/// The first array of each name, in the order of memory, and their number.
const U: usize = 0;
const US: usize = 5;
const QS: usize = 8;
const RHO_I: usize = 10;
const SPEED: usize = 11;
const SQUARE: usize = 12;
const RHS: usize = 13;
const FORCING: usize = 18;
const LHS: usize = 23;
const ARRAYS: usize = 38;
/// The speed of each direction: us, vs, ws.
const SPEEDS: [usize; 3] = [US, US + 1, US + 2];

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let n = values.count("n", 8..=400)?;
    let steps = values.count("steps", 0..=1_000_000)?;
    let grid = Grid::new(n);
    let loops = loops();
    let rows: u64 = loops.iter().map(|nest| nest.loads.len() + nest.stores.len()).sum::<usize>() as u64;
    let runs = grid.bytes().div_ceil(PAGE) + steps * (n * n * rows + n * n * n * 3 * 4);
    Ok(Running::start(values, Solver { grid, loops, left: steps, next: (0, 0), state: State::Start }, false, runs))
}

/// Where the arrays are.
struct Grid {
    n: u64,
    /// Elements of a row with its padding.
    row: u64,
    start: u64,
}

/// A loop over the points in the order of memory, or along lines.
struct Nest {
    /// The direction that offsets are along: 0 contiguous, 2 the farthest.
    direction: usize,
    /// Points from 0 on to `n` less `end` along the direction, or for the whole grid in each; else
    /// from 1 on to the last but one.
    whole: bool,
    /// From the far end to the near one along the direction.
    backwards: bool,
    /// Whether it is the loop along lines, which has no loads and stores of rows.
    lines: bool,
    /// Arrays and offsets along the direction.
    loads: Vec<(usize, i64)>,
    stores: Vec<(usize, i64)>,
}

struct Solver {
    grid: Grid,
    /// The loops of a time step.
    loops: Vec<Nest>,
    /// Time steps to come.
    left: u64,
    /// The next array to fill or the next loop, and in it the next plane.
    next: (usize, u64),
    state: State,
}

enum State {
    Start,
    Fill,
    Solve,
    Done,
}

impl Program for Solver {
    fn step(&mut self, out: &mut Out) -> bool {
        match self.state {
            State::Start => {
                out.begin();
                Process::start(out, file("sp"), LEAST_HEAP, false);
                out.map_anonymous(self.grid.start, self.grid.bytes());
                self.state = State::Fill;
            }
            State::Fill => {
                let (array, plane) = self.next;
                self.grid.fill(out, array, plane);
                if self.advance(ARRAYS) {
                    out.words(self.grid.work(), Access::Write, 26 * self.grid.n, 3);
                    self.state = State::Solve;
                }
            }
            State::Solve if self.left == 0 => {
                out.event(Event::Exit);
                self.state = State::Done;
            }
            State::Solve => {
                let (nest, plane) = self.next;
                self.loops[nest].plane(out, &self.grid, plane);
                self.left -= u64::from(self.advance(self.loops.len()));
            }
            State::Done => return false,
        }
        true
    }
}

impl Solver {
    /// Goes on to the next plane; returns whether that was the last one of so many arrays or loops,
    /// and begins with the first again.
    fn advance(&mut self, all: usize) -> bool {
        self.next.1 += 1;
        if self.next.1 == self.grid.n {
            self.next = ((self.next.0 + 1) % all, 0);
        }
        self.next == (0, 0)
    }
}

impl Grid {
    fn new(n: u64) -> Grid {
        Grid { n, row: n / 2 * 2 + 1, start: Process::code(0) * PAGE + LEAST_HEAP }
    }

    /// The bytes of all arrays, and of the work arrays after them: 26 values for each point of a
    /// line.
    fn bytes(&self) -> u64 {
        (ARRAYS as u64 * self.row.pow(3) + 26 * self.n) * 8
    }

    /// Fills the points of one plane of an array.
    fn fill(&self, out: &mut Out, array: usize, plane: u64) {
        (0..self.n).for_each(|j| out.words(self.at(array, [0, j, plane]), Access::Write, self.n, 3));
    }

    /// The address of an element.
    fn at(&self, array: usize, [i, j, k]: [u64; 3]) -> u64 {
        self.start + (((array as u64 * self.row + k) * self.row + j) * self.row + i) * 8
    }

    /// The address of the work arrays of the lines.
    fn work(&self) -> u64 {
        self.at(ARRAYS, [0; 3])
    }
}

impl Nest {
    /// A loop in the order of memory over the inner points.
    fn over(direction: usize, loads: Vec<(usize, i64)>, stores: Vec<(usize, i64)>) -> Nest {
        Nest { direction, whole: false, backwards: false, lines: false, loads, stores }
    }

    /// The first point along a dimension and the one after the last.
    fn range(&self, n: u64, dimension: usize) -> std::ops::Range<u64> {
        let far = self.loads.iter().map(|(_, offset)| *offset).max().unwrap_or(0) as u64;
        match (self.whole, self.direction == dimension) {
            // Elimination and substitution go along whole lines, as far as the elements ahead
            // exist.
            (true, true) if far > 0 => 0..n - far,
            (true, _) if far == 0 => 0..n,
            _ => 1..n - 1,
        }
    }

    /// Goes through one of the n planes, if it is one of the loop's.
    fn plane(&self, out: &mut Out, grid: &Grid, plane: u64) {
        let n = grid.n;
        if self.lines {
            return self.plane_of_lines(out, grid, plane);
        }
        let turned = |dimension: usize, at: u64| {
            if self.backwards && self.direction == dimension { n - 1 - at } else { at }
        };
        let k = turned(2, plane);
        if !self.range(n, 2).contains(&k) {
            return;
        }
        let i = self.range(n, 0);
        for j in (0..n).map(|j| turned(1, j)).filter(|j| self.range(n, 1).contains(j)) {
            for (touched, access) in [(&self.loads, Access::Read), (&self.stores, Access::Write)] {
                for (array, offset) in touched {
                    let moved = |dimension: usize, at: u64| {
                        at.checked_add_signed(if self.direction == dimension { *offset } else { 0 })
                    };
                    // Elements that lie outside the grid are not touched.
                    let (Some(j), Some(k)) = (moved(1, j), moved(2, k)) else { continue };
                    let (from, to) = (moved(0, i.start).unwrap_or(0), moved(0, i.end).unwrap_or(0).min(n));
                    if j < n && k < n {
                        out.words(grid.at(*array, [from, j, k]), access, to - from, 2);
                    }
                }
            }
        }
    }

    /// Goes through the lines along the direction that lie in a plane.
    fn plane_of_lines(&self, out: &mut Out, grid: &Grid, plane: u64) {
        let (n, inner) = (grid.n, 1..grid.n - 1);
        if !inner.contains(&plane) {
            return;
        }
        for line in inner.clone() {
            // The innermost of the other dimensions varies faster.
            let point = |at: u64| match self.direction {
                0 => [at, line, plane],
                1 => [line, at, plane],
                _ => [line, plane, at],
            };
            for at in 0..n {
                one(out, grid.at(RHO_I, point(at)), Access::Read, 1);
                one(out, grid.at(SPEEDS[self.direction], point(at)), Access::Read, 1);
                one(out, grid.work(), Access::Write, 2);
            }
            for at in inner.clone() {
                one(out, grid.work(), Access::Read, 5);
                for array in LHS..LHS + 5 {
                    one(out, grid.at(array, point(at)), Access::Write, 1);
                }
            }
        }
    }
}

/// So many accesses to one place.
fn one(out: &mut Out, address: u64, access: Access, count: u32) {
    out.data(address, access, count, 2 * count);
}

/// Each of some arrays at each of some offsets.
fn each(arrays: impl IntoIterator<Item = usize>, offsets: &[i64]) -> Vec<(usize, i64)> {
    arrays.into_iter().flat_map(|array| offsets.iter().map(move |offset| (array, *offset))).collect()
}

/// The loops of a time step.
fn loops() -> Vec<Nest> {
    let rhs = || each(RHS..RHS + 5, &[0]);
    let mut loops = vec![Nest { whole: true, ..Nest::over(0, each(U..U + 5, &[0]), each(US..=SQUARE, &[0])) }];
    loops.extend((0..5).map(|m| Nest { whole: true, ..Nest::over(0, vec![(FORCING + m, 0)], vec![(RHS + m, 0)]) }));
    for direction in 0..3 {
        let near = (U..U + 5).chain(US..=QS).chain([RHO_I, SQUARE]);
        loops.push(Nest::over(direction, [rhs(), each(near, &[-1, 0, 1])].concat(), rhs()));
        loops.extend((0..5).map(|m| {
            let loads = [vec![(RHS + m, 0)], each([U + m], &[-2, -1, 0, 1, 2])].concat();
            Nest::over(direction, loads, vec![(RHS + m, 0)])
        }));
    }
    loops.extend((0..5).map(|m| Nest::over(0, vec![(RHS + m, 0)], vec![(RHS + m, 0)])));
    let invert = (US..=SPEED).collect::<Vec<_>>();
    loops.push(Nest::over(0, [each(invert, &[0]), rhs()].concat(), rhs()));
    for direction in 0..3 {
        solve(&mut loops, direction);
        // The last product takes more than rhs: the speeds, qs, the speed of sound and the density.
        let more = if direction == 2 { each((US..=QS).chain([SPEED, U]), &[0]) } else { Vec::new() };
        loops.push(Nest::over(0, [more, rhs()].concat(), rhs()));
    }
    loops.push(Nest::over(0, [each(U..U + 5, &[0]), rhs()].concat(), each(U..U + 5, &[0])));
    loops
}

/// The loops that solve along a direction.
fn solve(loops: &mut Vec<Nest>, direction: usize) {
    let lhs = |first: usize| each(LHS + first..LHS + first + 5, &[0]);
    loops.push(Nest { lines: true, ..Nest::over(direction, Vec::new(), Vec::new()) });
    // Dissipation, and the two other factors from the first.
    loops.push(Nest::over(direction, lhs(0), lhs(0)));
    loops.push(Nest::over(direction, [lhs(0), each([SPEED], &[-1, 1])].concat(), [lhs(5), lhs(10)].concat()));
    // The first three of rhs share a factor, the others have one each.
    let factors = [(0, 0..3), (5, 3..4), (10, 4..5)];
    for (first, of) in factors.clone() {
        let a = LHS + first;
        let rhs = each(RHS + of.start..RHS + of.end, &[0, 1, 2]);
        let loads =
            [vec![(a + 2, 0), (a + 3, 0), (a + 4, 0), (a + 1, 1), (a + 2, 1), (a + 3, 1)], each(a..a + 3, &[2])];
        let stores = [(a + 3, 0), (a + 4, 0), (a + 2, 1), (a + 3, 1), (a + 1, 2), (a + 2, 2)];
        let (loads, stores) = ([&loads.concat()[..], &rhs].concat(), [&stores[..], &rhs].concat());
        loops.push(Nest { whole: true, ..Nest::over(direction, loads, stores) });
    }
    for (first, of) in factors {
        for m in of {
            let loads = [each([LHS + first + 3, LHS + first + 4], &[0]), each([RHS + m], &[0, 1, 2])].concat();
            let nest = Nest::over(direction, loads, vec![(RHS + m, 0)]);
            loops.push(Nest { whole: true, backwards: true, ..nest });
        }
    }
}
