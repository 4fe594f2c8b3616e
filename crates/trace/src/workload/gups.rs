//! `gups`: random updates of a table of words, as RandomAccess of the HPC Challenge benchmark makes
//! them.
//!
//! The table has a power of two of 8-byte words and is written first in order: the part `fill`.
//! Then `updates` of its words are read, changed and written, the part `update`: those whose
//! indices are the low bits of the benchmark's sequence, `x^1`, `x^2`, ... modulo `x^64 + x^2 + x +
//! 1` over the field of two elements. As there, the sequence is cut into 128 pieces, which take
//! turns, since each of its elements is the one before it shifted by a bit. The benchmark makes
//! four updates for each word; the default here is fewer. There is no seed: neither has the
//! benchmark.
//!
//! 8 instructions an update are assumed: shift, test, exclusive or, mask, load, exclusive or,
//! store, branch.

use super::Kind;
use super::parameters::{MOST_BYTES, MOST_COUNT, Parameter, Values};
use super::program::{Out, PAGE, Pass, Program, REGION, Running};
use crate::{Error, Event, Source};
use superpage_pages::Access;

pub(super) const KIND: Kind = Kind {
    name: "gups",
    help: "random updates of a table of words (RandomAccess of HPCC)",
    parameters: &[
        Parameter { name: "bytes", default: "1G", help: "the size of the table, a power of two" },
        Parameter { name: "updates", default: "100M", help: "words read, changed and written" },
    ],
    start,
};

/// The pieces of the sequence that take turns.
const PIECES: usize = 128;

/// Rounds of turns in a step.
const ROUNDS: u64 = 16;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", PAGE..=MOST_BYTES)?;
    if !bytes.is_power_of_two() {
        return Err(values.wrong("bytes", "a power of two, such as 1G"));
    }
    let updates = values.count("updates", 0..=MOST_COUNT)?;
    let pass = Pass::populate(REGION, bytes);
    let runs = pass.pages() + 2 * updates;
    let table = Table { bytes, pass, pieces: pieces(updates), left: updates, state: State::Start };
    Ok(Running::start(values, table, false, runs))
}

/// The element after this one: multiplied by x.
#[inline]
fn next(element: u64) -> u64 {
    let carry = if element >> 63 == 1 { 0b111 } else { 0 };
    element << 1 ^ carry
}

/// The product of two elements.
fn product(a: u64, b: u64) -> u64 {
    (0..64).rev().fold(0, |sum, bit| next(sum) ^ if b >> bit & 1 == 1 { a } else { 0 })
}

/// Element `n` of the sequence, `x^n`; element 0 is 1.
fn element(mut n: u64) -> u64 {
    let (mut power, mut square) = (1, 2);
    while n > 0 {
        if n & 1 == 1 {
            power = product(power, square);
        }
        square = product(square, square);
        n >>= 1;
    }
    power
}

/// The element before each piece, of `updates` updates in all. The first pieces are one longer
/// where 128 does not divide the updates.
fn pieces(updates: u64) -> [u64; PIECES] {
    let (each, longer) = (updates / PIECES as u64, updates % PIECES as u64);
    std::array::from_fn(|piece| element(piece as u64 * each + longer.min(piece as u64)))
}

struct Table {
    bytes: u64,
    pass: Pass,
    /// The last element of each piece.
    pieces: [u64; PIECES],
    /// Updates to come.
    left: u64,
    state: State,
}

enum State {
    Start,
    Fill,
    Update,
    Done,
}

impl Program for Table {
    fn step(&mut self, out: &mut Out) -> bool {
        match self.state {
            State::Start => {
                out.begin();
                out.event(Event::Mark("fill".into()));
                out.map_anonymous(REGION, self.bytes);
                self.state = State::Fill;
            }
            State::Fill => {
                if !self.pass.step(out) {
                    out.event(Event::Mark("update".into()));
                    self.state = State::Update;
                }
            }
            State::Update if self.left == 0 => {
                out.unmap_and_exit(REGION, self.bytes);
                self.state = State::Done;
            }
            State::Update => {
                for _ in 0..ROUNDS {
                    self.round(out);
                }
            }
            State::Done => return false,
        }
        true
    }
}

impl Table {
    /// An update of each piece; of the longer ones alone in the last round.
    fn round(&mut self, out: &mut Out) {
        let count = self.left.min(PIECES as u64);
        self.left -= count;
        for piece in &mut self.pieces[..count as usize] {
            *piece = next(*piece);
            let address = REGION + 8 * (*piece & (self.bytes / 8 - 1));
            out.data(address, Access::Read, 1, 5);
            out.data(address, Access::Write, 1, 3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_begins_where_the_one_before_it_ends() {
        // The recurrence of the benchmark, step by step.
        let step = |element: u64| (element << 1) ^ if (element as i64) < 0 { 7 } else { 0 };
        let mut all = vec![1_u64];
        (0..100_000).for_each(|n| all.push(step(all[n])));
        assert!((0..all.len()).step_by(77).all(|n| element(n as u64) == all[n]));
        for updates in [0, 1, 127, 128, 129, 1000, 100_000] {
            let (mut at, each) = (0, updates / 128);
            for (piece, before) in pieces(updates).into_iter().enumerate() {
                assert_eq!(before, all[at], "piece {piece} of {updates}");
                at += (each + u64::from((piece as u64) < updates % 128)) as usize;
            }
            assert_eq!(at as u64, updates);
        }
    }

    #[test]
    fn the_sequence_repeats_after_the_period_of_the_benchmark() {
        assert_eq!(element(1_317_624_576_693_539_401), 1);
    }
}
