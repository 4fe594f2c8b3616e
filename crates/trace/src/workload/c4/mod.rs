//! `c4`: a search for the value of a position of connect-4, by alpha-beta with a transposition
//! table, as the benchmark fhourstones does it (Navarro et al., section 6.2).
//!
//! The game is really played ([`board`], [`search`], [`table`]); the program is our own and not
//! fhourstones. In the stream are the loads and stores of
//!
//! - the table: one for each place that is looked at, and for each word or byte that is written; it
//!   is cleared first, by 8-byte stores;
//! - the history of moves, from which their order is taken: a load for each move, stores where it
//!   changes;
//! - the stack: a call writes a frame of 128 bytes, the return from a node reads it.
//!
//! Positions are sets of bits and stay in registers. 150 instructions for each node and 3 a
//! reference are assumed. The process is the one of [`process`](super::process), the table in its
//! heap right behind its data.
//!
//! The paper does not give the position; the default is one of 12 plies too, and its search does
//! not end within the default of `nodes`. It breaks off there, which bounds the time; a note says
//! how it ended. The paper's counter shows 23 steps of 512 K misses (the 95.65 % of table 1 are
//! `1 - 1/23`).

mod board;
mod search;
mod table;

use super::parameters::{MOST_COUNT, Parameter, Values};
use super::process::{LEAST_HEAP, Process};
use super::program::{Out, Pass, Program, Running};
use super::{Kind, file};
use crate::{Error, Event, Source};
use board::Board;
use search::Search;
use superpage_pages::Access;
use table::Table;

pub(super) const KIND: Kind = Kind {
    name: "c4",
    help: "alpha-beta search of a position of connect-4 with a transposition table (Navarro et al., section 6.2)",
    parameters: &[
        Parameter { name: "position", default: "444444323377", help: "the moves so far, as columns from 1 to 7" },
        Parameter { name: "nodes", default: "2M", help: "after how many nodes to break off" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let wrong = || values.wrong("position", "columns from 1 to 7 of moves that do not end the game, such as 4435");
    let board = Board::parse(values.text("position")).ok_or_else(wrong)?;
    let nodes = values.count("nodes", 1..=MOST_COUNT)?;
    Ok(Running::start(values, Player { board, nodes, state: State::Start }, false, nodes.saturating_mul(RUNS) + 1500))
}

/// Runs of a node, about.
const RUNS: u64 = 6;

/// One load or store of a word or byte at an address, and the instructions around it.
fn access(out: &mut Out, address: u64, access: Access) {
    out.data(address, access, 1, 3);
}

struct Player {
    board: Board,
    /// Nodes after which to break off.
    nodes: u64,
    state: State,
}

enum State {
    Start,
    Clear(Table, [Pass; 2]),
    Search(Box<Search>),
    Done,
}

impl Program for Player {
    fn step(&mut self, out: &mut Out) -> bool {
        self.state = match std::mem::replace(&mut self.state, State::Done) {
            State::Start => {
                out.begin();
                let mut process = Process::start(out, file("c4"), LEAST_HEAP, false);
                let (table, clear) = Table::new(out, &mut process);
                State::Clear(table, clear)
            }
            State::Clear(table, mut clear) => {
                if clear.iter_mut().any(|pass| pass.step(out)) {
                    State::Clear(table, clear)
                } else {
                    let (search, value) = Search::new(out, self.board, table);
                    self.go_on(out, Box::new(search), value)
                }
            }
            State::Search(mut search) => {
                let value = search.step(out);
                self.go_on(out, search, value)
            }
            State::Done => return false,
        };
        true
    }
}

impl Player {
    fn go_on(&self, out: &mut Out, search: Box<Search>, value: Option<i8>) -> State {
        let nodes = search.nodes();
        let end = match value {
            Some(-1) => "is lost",
            Some(0) => "is drawn",
            Some(_) => "is won",
            None if nodes >= self.nodes => "is still open",
            None => return State::Search(search),
        };
        out.event(Event::Note(format!("c4: the position {end} for the player to move, after {nodes} nodes")));
        out.event(Event::Exit);
        State::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_pages::Random;

    /// The value of a position by trying everything.
    fn value(board: Board) -> i8 {
        let moves = (0..board::COLUMNS).map(|column| board.moves() & board::column_set(column)).filter(|s| *s != 0);
        moves.map(|square| if board.wins(square) { 1 } else { -value(board.play(square)) }).max().unwrap_or(0)
    }

    #[test]
    fn the_search_finds_what_trying_everything_finds() {
        let (mut random, mut seen) = (Random::new(5), [0; 3]);
        while seen.iter().sum::<u32>() < 60 || seen.contains(&0) {
            // A position of 30 plies, reached at random.
            let (mut moves, mut plies) = (String::new(), 0);
            for _ in 0..500 {
                let longer = format!("{moves}{}", 1 + random.below(7));
                if plies < 30 && Board::parse(&longer).is_some() {
                    (moves, plies) = (longer, plies + 1);
                }
            }
            if plies < 30 {
                continue;
            }
            let board = Board::parse(&moves).expect("legal moves");
            let mut out = Out::default();
            let mut process = Process::start(&mut out, 0, LEAST_HEAP, false);
            let (table, _) = Table::new(&mut out, &mut process);
            let (mut search, mut found) = Search::new(&mut out, board, table);
            while found.is_none() {
                found = search.step(&mut out);
            }
            assert_eq!(found, Some(value(board)), "{moves}");
            seen[(value(board) + 1) as usize] += 1;
        }
    }
}
