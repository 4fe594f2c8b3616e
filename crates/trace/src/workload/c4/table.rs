//! The transposition table of the search: what is known of positions seen before, in simulated
//! memory.
//!
//! It has 1050011 places of 5 bytes, in an array of words and an array of bytes: 5.25 MB, whose
//! aligned extents are the 9 of 512 KB that the paper shows for C4 (table 1); the number itself is
//! assumed. A position has two places, the second at a distance that depends on it. Its word holds
//! what tells the position from the others of its place, and how much work stands behind the entry:
//! a new entry takes the second place if the first holds one of more work, else the first.

use super::access;
use crate::workload::process::Process;
use crate::workload::program::{Out, Pass};
use superpage_pages::Access;

/// Places in the table: a prime.
const PLACES: u64 = 1_050_011;

/// What is known of the value of a position: between which bounds it lies, -1 lost to 1 won.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    pub(super) low: i8,
    pub(super) high: i8,
}

/// The table.
pub(super) struct Table {
    words: Vec<u32>,
    scores: Vec<Bounds>,
    /// Where the two arrays are.
    words_at: u64,
    scores_at: u64,
}

impl Table {
    /// The empty table in the heap of a process, and the passes that clear it.
    pub(super) fn new(out: &mut Out, process: &mut Process) -> (Table, [Pass; 2]) {
        let (words_at, scores_at) = (process.grow_heap(out, 4 * PLACES), process.grow_heap(out, PLACES));
        let unknown = Bounds { low: -1, high: 1 };
        let (words, scores) = (vec![0; PLACES as usize], vec![unknown; PLACES as usize]);
        let clear = [Pass::populate(words_at, 4 * PLACES), Pass::populate(scores_at, PLACES)];
        (Table { words, scores, words_at, scores_at }, clear)
    }

    /// What the table knows of the position with this key.
    pub(super) fn find(&self, out: &mut Out, key: u64) -> Option<Bounds> {
        places(key).into_iter().find_map(|(place, tag)| {
            access(out, self.words_at + 4 * place, Access::Read);
            (self.words[place as usize] >> WORK_BITS == tag).then(|| {
                access(out, self.scores_at + place, Access::Read);
                self.scores[place as usize]
            })
        })
    }

    /// Enters what was found of a position by searching `nodes` nodes.
    pub(super) fn enter(&mut self, out: &mut Out, key: u64, bounds: Bounds, nodes: u64) {
        let work = (nodes.max(1).ilog2() / 4).min(MOST_WORK);
        let [first, second] = places(key);
        access(out, self.words_at + 4 * first.0, Access::Read);
        let there = self.words[first.0 as usize];
        let keep = there >> WORK_BITS != first.1 && there & MOST_WORK > work;
        let (place, tag) = if keep { second } else { first };
        self.words[place as usize] = tag << WORK_BITS | work;
        self.scores[place as usize] = bounds;
        access(out, self.words_at + 4 * place, Access::Write);
        access(out, self.scores_at + place, Access::Write);
    }
}

const WORK_BITS: u32 = 2;
const MOST_WORK: u32 = (1 << WORK_BITS) - 1;

/// The two places of a key, and what stands in the word there: the key's quotient, and a bit that
/// tells the places apart. Keys are below 2^49 and so quotients below 2^29; they are from 2^42 on,
/// and so no quotient is that of an empty word.
fn places(key: u64) -> [(u64, u32); 2] {
    let (place, quotient) = (key % PLACES, key / PLACES);
    let other = (place + 1 + quotient % (PLACES - 1)) % PLACES;
    [(place, (quotient << 1) as u32), (other, (quotient << 1 | 1) as u32)]
}
