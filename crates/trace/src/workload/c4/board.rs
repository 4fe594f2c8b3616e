//! Positions of connect-4 as two sets of squares: 7 columns of 6, four in a row of any direction
//! win.
//!
//! Square `row` of column `c` is bit `7 c + row`; the seventh bit of a column is always empty, so
//! that no row of four reaches from one column's top into the next.

/// Columns and rows.
pub(super) const COLUMNS: u32 = 7;
pub(super) const ROWS: u32 = 6;
/// Bits for each column.
const STEP: u32 = ROWS + 1;

/// The lowest square of each column.
const BOTTOM: u64 = {
    let (mut set, mut column) = (0, 0);
    while column < COLUMNS {
        set |= 1 << (STEP * column);
        column += 1;
    }
    set
};
/// All squares.
const ALL: u64 = BOTTOM * ((1 << ROWS) - 1);

/// A position, seen by the player to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Board {
    /// The squares of the player to move.
    own: u64,
    /// The squares of both.
    taken: u64,
}

impl Board {
    /// The position after moves as digits, the columns from 1; `None` if one of them is no move, or
    /// ends the game.
    pub(super) fn parse(moves: &str) -> Option<Board> {
        moves.chars().try_fold(Board::default(), |board, digit| {
            let column = digit.to_digit(10)?.checked_sub(1).filter(|column| *column < COLUMNS)?;
            let square = board.moves() & column_set(column);
            (square != 0 && !board.wins(square)).then(|| board.play(square))
        })
    }

    /// The squares that can be played, one in each column that is not full.
    pub(super) fn moves(self) -> u64 {
        (self.taken + BOTTOM) & ALL
    }

    /// The position after playing a square.
    pub(super) fn play(self, square: u64) -> Board {
        Board { own: self.own ^ self.taken, taken: self.taken | square }
    }

    /// Whether playing a square wins for the player to move.
    pub(super) fn wins(self, square: u64) -> bool {
        four(self.own | square)
    }

    /// Whether playing a square would win for the other player, if he could.
    pub(super) fn threatened(self, square: u64) -> bool {
        four(self.own ^ self.taken | square)
    }

    /// A number that no other position has, from 2^42 and below 2^49: in each column the own
    /// squares, and a bit above the topmost that is taken.
    pub(super) fn key(self) -> u64 {
        self.own + self.taken + BOTTOM
    }

    /// Moves so far.
    pub(super) fn plies(self) -> u32 {
        self.taken.count_ones()
    }
}

/// The squares of a column.
pub(super) fn column_set(column: u32) -> u64 {
    ((1 << ROWS) - 1) << (STEP * column)
}

/// Whether four squares of a set lie in a row: first pairs of neighbours, then pairs of pairs.
fn four(set: u64) -> bool {
    [1, STEP - 1, STEP, STEP + 1].into_iter().any(|direction| {
        let pairs = set & set >> direction;
        pairs & pairs >> (2 * direction) != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_pages::Random;

    /// Four in a row, square by square.
    fn four_by_hand(set: u64) -> bool {
        let has = |c: i32, r: i32| (0..7).contains(&c) && (0..6).contains(&r) && set >> (7 * c + r) & 1 == 1;
        let starts = (0..7).flat_map(|c| (0..6).map(move |r| (c, r)));
        starts.into_iter().any(|(c, r)| {
            [(0, 1), (1, 0), (1, 1), (1, -1)].iter().any(|(dc, dr)| (0..4).all(|i| has(c + i * dc, r + i * dr)))
        })
    }

    #[test]
    fn four_in_a_row_is_seen_in_every_direction() {
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let set = random.next() & random.next() & ALL;
            assert_eq!(four(set), four_by_hand(set), "{set:#x}");
        }
        for direction in [1, 6, 7, 8] {
            let first = if direction == 6 { 3 } else { 0 };
            assert!(four((0..4).map(|i| 1 << (first + i * direction)).sum()));
        }
    }

    #[test]
    fn moves_are_read_and_refused() {
        let board = Board::parse("4444443").unwrap();
        assert_eq!((board.plies(), board.moves().count_ones()), (7, 6));
        for wrong in ["8", "0", "x", "4444444", "1212121"] {
            assert_eq!(Board::parse(wrong), None, "{wrong}");
        }
        assert!(Board::parse("121212").is_some_and(|board| board.wins(1 << 3)));
    }
}
