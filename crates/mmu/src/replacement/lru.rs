//! LRU: the least recently used way is replaced; an invalid way counts as the least recent. Small sets of whole mappings are
//! rows and need none of this ([`crate::cache`]). For others there are three forms: up to 16 ways (of entries that cover parts of a
//! mapping), one set of any number of ways, and any shape.

use super::{Replace, is_permutation, possible};
use crate::cache::EMPTY;

/// LRU of at most 16 ways in one word per set: nibble n holds the way used n-th last. A fill is a rotation, a hit finds
/// its nibble by arithmetic on the whole word.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    words: Vec<u64>,
    /// The nibbles in use.
    mask: u64,
    /// The shift of the nibble used longest ago.
    last: u32,
}

const ONES: u64 = 0x1111_1111_1111_1111;

impl Packed {
    /// The most ways.
    const WAYS: usize = 16;
    /// The word of a set of 16 ways in which nothing was used yet.
    const INITIAL: u64 = 0xfedc_ba98_7654_3210;

    /// The nibbles up to the one that holds `way`.
    #[inline(always)]
    fn through(word: u64, way: usize) -> u64 {
        let differs = word ^ (way as u64).wrapping_mul(ONES);
        // The lowest zero nibble is always found correctly; those above it may be wrong, and are not used.
        let zero = differs.wrapping_sub(ONES) & !differs & (ONES << 3);
        zero ^ zero.wrapping_sub(1)
    }

    /// The word after a use of `way`.
    #[inline(always)]
    fn touched(word: u64, way: usize) -> u64 {
        let through = Packed::through(word, way);
        word & !through | word << 4 & through | way as u64
    }
}

impl Replace for Packed {
    fn new(sets: usize, ways: usize) -> Option<Packed> {
        if ways > Packed::WAYS {
            return None;
        }
        let mask = u64::MAX >> (64 - 4 * ways);
        Some(Packed { words: vec![Packed::INITIAL & mask; sets], mask, last: 4 * (ways as u32 - 1) })
    }

    #[inline(always)]
    fn touch(&mut self, set: usize, way: usize) {
        let word = self.words[set];
        // Nothing to write if it is the most recent already: with one set, the next use would wait for that.
        if word & 15 != way as u64 {
            self.words[set] = Packed::touched(word, way);
        }
    }

    #[inline(always)]
    fn victim(&mut self, set: usize) -> usize {
        let word = self.words[set];
        let oldest = word >> (self.last & 63);
        self.words[set] = word << 4 & self.mask | oldest;
        oldest as usize
    }

    /// The way is the oldest now.
    fn invalidate(&mut self, set: usize, way: usize) {
        let word = self.words[set];
        let through = Packed::through(word, way);
        self.words[set] = word & through >> 4 | (word & !through) >> 4 | (way as u64) << self.last;
    }

    fn flush(&mut self) {
        self.words.fill(Packed::INITIAL & self.mask);
    }

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        let ways = self.last as usize / 4 + 1;
        let sound = |word: &u64| {
            word & !self.mask == 0 && is_permutation((0..ways).map(|at| (word >> (4 * at) & 15) as usize), ways)
        };
        possible(self.words.iter().position(|word| !sound(word)))
    }
}

/// LRU of one set of any number of ways: a journal of uses, in which only the newest entry of a way counts. A use is
/// two stores; the victim is the oldest entry that counts. A full journal is compacted, so everything is O(1)
/// amortized.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    /// Where the newest entry of each way is in the journal; [`Journal::NEVER`] for an invalid way.
    newest: Vec<u32>,
    entries: Vec<u16>,
    /// The first entry that may still count, and the end of the journal.
    first: usize,
    end: usize,
    /// Invalid ways, taken from the end.
    vacant: Vec<u16>,
}

impl Journal {
    const NEVER: u32 = u32::MAX;

    #[cold]
    fn compact(&mut self) {
        let mut kept = 0;
        for at in self.first..self.end {
            let way = self.entries[at];
            if self.newest[way as usize] == at as u32 {
                self.newest[way as usize] = kept as u32;
                self.entries[kept] = way;
                kept += 1;
            }
        }
        (self.first, self.end) = (0, kept);
    }
}

impl Replace for Journal {
    fn new(sets: usize, ways: usize) -> Option<Journal> {
        (sets == 1).then(|| Journal {
            newest: vec![Journal::NEVER; ways],
            entries: vec![0; (8 * ways).max(1024)],
            first: 0,
            end: 0,
            vacant: (0..ways as u16).rev().collect(),
        })
    }

    #[inline(always)]
    fn touch(&mut self, _: usize, way: usize) {
        if self.end == self.entries.len() {
            self.compact();
        }
        self.newest[way] = self.end as u32;
        self.entries[self.end] = way as u16;
        self.end += 1;
    }

    #[inline(always)]
    fn victim(&mut self, set: usize) -> usize {
        let way = match self.vacant.pop() {
            Some(way) => way as usize,
            None => loop {
                let way = self.entries[self.first] as usize;
                self.first += 1;
                if self.newest[way] == self.first as u32 - 1 {
                    break way;
                }
            },
        };
        self.touch(set, way);
        way
    }

    fn invalidate(&mut self, _: usize, way: usize) {
        self.newest[way] = Journal::NEVER;
        self.vacant.push(way as u16);
    }

    fn flush(&mut self) {
        *self = Journal::new(1, self.newest.len()).expect("one set");
    }

    fn validate(&self, tags: &[u32]) -> Result<(), String> {
        let counts = |way: usize| {
            let at = self.newest[way] as usize;
            (self.first..self.end).contains(&at) && self.entries[at] as usize == way
        };
        let sound = |way: usize| {
            let valid = tags[way] != EMPTY;
            valid == counts(way) && valid != self.vacant.contains(&(way as u16))
        };
        possible((0..self.newest.len()).any(|way| !sound(way)).then_some(0))
    }
}

/// LRU of any shape: a permutation of the ways for each set, the most recent first.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    ways: usize,
    order: Vec<u16>,
}

impl Listed {
    /// The order of a set, and where in it the way is.
    fn find(&mut self, set: usize, way: usize) -> (&mut [u16], usize) {
        let order = &mut self.order[set * self.ways..][..self.ways];
        let at = order.iter().position(|other| *other as usize == way).expect("a permutation holds every way");
        (order, at)
    }
}

impl Replace for Listed {
    fn new(sets: usize, ways: usize) -> Option<Listed> {
        Some(Listed { ways, order: (0..sets).flat_map(|_| 0..ways as u16).collect() })
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize) {
        let (order, at) = self.find(set, way);
        order.copy_within(..at, 1);
        order[0] = way as u16;
    }

    #[inline]
    fn victim(&mut self, set: usize) -> usize {
        let order = &mut self.order[set * self.ways..][..self.ways];
        let way = order[self.ways - 1];
        order.copy_within(..self.ways - 1, 1);
        order[0] = way;
        way as usize
    }

    /// The way is the oldest now.
    fn invalidate(&mut self, set: usize, way: usize) {
        let (order, at) = self.find(set, way);
        order[at..].rotate_left(1);
    }

    fn flush(&mut self) {
        let ways = self.ways;
        self.order.iter_mut().enumerate().for_each(|(at, way)| *way = (at % ways) as u16);
    }

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        let sound = |order: &[u16]| is_permutation(order.iter().map(|way| *way as usize), self.ways);
        possible(self.order.chunks(self.ways).position(|order| !sound(order)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three forms of LRU choose the same victims.
    #[test]
    fn the_forms_of_lru_agree() {
        for ways in [1usize, 2, 3, 5, 12, 16] {
            let mut packed = Packed::new(1, ways).unwrap();
            let mut journal = Journal::new(1, ways).unwrap();
            let mut listed = Listed::new(1, ways).unwrap();
            let mut state = 88172645463325252u64;
            let mut tags = vec![EMPTY; ways];
            for _ in 0..20_000 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let way = (state >> 40) as usize % ways;
                let vacant = tags.iter().position(|tag| *tag == EMPTY);
                match (state % 16, vacant) {
                    (0, _) if tags[way] != EMPTY => {
                        packed.invalidate(0, way);
                        journal.invalidate(0, way);
                        listed.invalidate(0, way);
                        tags[way] = EMPTY;
                    }
                    (1..8, None) => {
                        let chosen = packed.victim(0);
                        assert_eq!((journal.victim(0), listed.victim(0)), (chosen, chosen));
                    }
                    (1..8, Some(way)) => {
                        // Which of several invalid ways is filled makes no difference; let all have the same one.
                        journal.vacant.retain(|vacant| *vacant as usize != way);
                        tags[way] = 0;
                        packed.touch(0, way);
                        journal.touch(0, way);
                        listed.touch(0, way);
                    }
                    _ if tags[way] != EMPTY => {
                        packed.touch(0, way);
                        journal.touch(0, way);
                        listed.touch(0, way);
                    }
                    _ => {}
                }
                packed.validate(&tags).unwrap();
                journal.validate(&tags).unwrap();
                listed.validate(&tags).unwrap();
            }
        }
    }
}
