//! The search: alpha-beta, one node after the other, with its stack in simulated memory.

use super::access;
use super::board::{Board, COLUMNS, ROWS, column_set};
use super::table::{Bounds, Table};
use crate::workload::process::{DATA, Process};
use crate::workload::program::{Out, PAGE};
use superpage_pages::Access;

/// Bytes of a call's frame on the stack: 16 registers.
const FRAME: u64 = 128;
/// Instructions of a node without those of its references: assumed.
const NODE: u32 = 150;

/// A search under way.
pub(super) struct Search {
    frames: Vec<Frame>,
    table: Table,
    /// For each player and square, how well it did as a move: the history heuristic (Schaeffer
    /// 1983).
    history: [[i32; 64]; 2],
    /// Nodes so far.
    nodes: u64,
}

/// A node whose moves are being tried.
struct Frame {
    board: Board,
    alpha: i8,
    beta: i8,
    /// What the table knew, and the lower end of the window when the search of the node began.
    known: Bounds,
    first_alpha: i8,
    best: i8,
    /// The squares to try, the best first.
    moves: [u64; COLUMNS as usize],
    count: usize,
    tried: usize,
    /// Nodes before this one.
    before: u64,
}

impl Search {
    /// A search for the value of `board` with an empty table.
    pub(super) fn new(out: &mut Out, board: Board, table: Table) -> (Search, Option<i8>) {
        // Squares in the middle first: more rows of four go through them.
        let middle = |square: u32| {
            let (column, row) = ((square / (ROWS + 1)) as i32, (square % (ROWS + 1)) as i32);
            16 - 2 * (column - 3).abs() - (2 * row - 5).abs()
        };
        let history = [std::array::from_fn(|square| middle(square as u32)); 2];
        let mut search = Search { frames: Vec::new(), table, history, nodes: 0 };
        let value = search.call(out, board, -1, 1);
        (search, value)
    }

    /// Nodes so far.
    pub(super) fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Goes on by one move or one return; the value when it is found.
    pub(super) fn step(&mut self, out: &mut Out) -> Option<i8> {
        let frame = self.frames.last_mut().expect("a search that goes on");
        if frame.tried == frame.count || frame.alpha >= frame.beta {
            return self.leave(out);
        }
        let child = frame.board.play(frame.moves[frame.tried]);
        frame.tried += 1;
        let (alpha, beta) = (-frame.beta, -frame.alpha);
        let value = self.call(out, child, alpha, beta)?;
        self.take(value);
        None
    }

    /// Takes the value of the move just tried.
    fn take(&mut self, value: i8) {
        let frame = self.frames.last_mut().expect("the node that tried a move");
        frame.best = frame.best.max(-value);
        frame.alpha = frame.alpha.max(frame.best);
    }

    /// Calls the search for a position: its value if it is seen at once, else a new frame.
    fn call(&mut self, out: &mut Out, board: Board, mut alpha: i8, mut beta: i8) -> Option<i8> {
        self.nodes += 1;
        let frame = Process::stack() + PAGE - FRAME * (self.frames.len() as u64 + 2);
        out.data(frame, Access::Write, 1, NODE + 1);
        out.words(frame + 8, Access::Write, FRAME / 8 - 1, 1);
        let mut moves = board.moves();
        if moves == 0 {
            return Some(0);
        }
        if squares(moves).any(|square| board.wins(square)) {
            return Some(1);
        }
        // Where the other would win he must be stopped, which is possible in one place only.
        let threats: u64 = squares(moves).filter(|square| board.threatened(*square)).sum();
        match threats.count_ones() {
            0 => {}
            1 => moves = threats,
            _ => return Some(-1),
        }
        let known = self.table.find(out, board.key()).unwrap_or(Bounds { low: -1, high: 1 });
        (alpha, beta) = (alpha.max(known.low), beta.min(known.high));
        if alpha >= beta {
            return Some(if known.low >= beta { known.low } else { known.high });
        }
        let mut frame = Frame {
            board,
            alpha,
            beta,
            known,
            first_alpha: alpha,
            best: known.low,
            moves: [0; COLUMNS as usize],
            count: 0,
            tried: 0,
            before: self.nodes,
        };
        let side = board.plies() as usize & 1;
        for square in squares(moves) {
            let place = square.trailing_zeros() as usize;
            access(out, history(side, place), Access::Read);
            let score = |square: u64| self.history[side][square.trailing_zeros() as usize];
            let at = frame.moves[..frame.count].iter().position(|other| score(*other) < score(square));
            let at = at.unwrap_or(frame.count);
            frame.moves[at..=frame.count].rotate_right(1);
            frame.moves[at] = square;
            frame.count += 1;
        }
        self.frames.push(frame);
        None
    }

    /// Returns from a node: its value is entered into the table and given to its parent.
    fn leave(&mut self, out: &mut Out) -> Option<i8> {
        let frame = self.frames.pop().expect("the node to leave");
        let side = frame.board.plies() as usize & 1;
        let tried = &frame.moves[..frame.tried];
        // A move that was good enough moves up by the number that were tried in vain, which move
        // down.
        if let Some((good, others)) =
            tried.split_last().filter(|(_, others)| frame.best >= frame.beta && !others.is_empty())
        {
            for (square, change) in others.iter().map(|other| (other, -1)).chain([(good, others.len() as i32)]) {
                let place = square.trailing_zeros() as usize;
                access(out, history(side, place), Access::Write);
                self.history[side][place] += change;
            }
        }
        let value = frame.best;
        let low = if value > frame.first_alpha { value } else { frame.known.low };
        let high = if value < frame.beta { value } else { frame.known.high };
        self.table.enter(out, frame.board.key(), Bounds { low, high }, self.nodes - frame.before + 1);
        let stack = Process::stack() + PAGE - FRAME * (self.frames.len() as u64 + 2);
        out.words(stack, Access::Read, FRAME / 8, 3);
        if self.frames.is_empty() {
            return Some(value);
        }
        self.take(value);
        None
    }
}

/// Where the history of a square is: 4 bytes for each player and square, in the program's data.
fn history(side: usize, square: usize) -> u64 {
    DATA + 4 * (64 * side + square) as u64
}

/// The squares of a set of moves, one at a time.
fn squares(moves: u64) -> impl Iterator<Item = u64> {
    (0..COLUMNS).map(move |column| moves & column_set(column)).filter(|square| *square != 0)
}
