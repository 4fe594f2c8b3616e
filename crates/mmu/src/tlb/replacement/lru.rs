//! LRU: the least recently used way is replaced; an invalid way counts as the least recent. Small
//! sets of whole mappings are rows and need none of this ([`crate::tlb::storage`]). For others
//! there are three forms: up to 16 ways (of entries that cover parts of a mapping), the times of
//! the last uses, of sets of few ways or one set of any number, and any shape.

use super::{Replace, is_permutation, possible};
use crate::tlb::uses::{EMPTY, Use};

/// LRU of at most 16 ways in one word per set: nibble n holds the way used n-th last. A fill is a
/// rotation, a hit finds its nibble by arithmetic on the whole word.
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
        // The lowest zero nibble is always found correctly; those above it may be wrong, and are
        // not used.
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
    fn touch(&mut self, set: usize, way: usize, _: Use) {
        let word = self.words[set];
        // Nothing to write if it is the most recent already: with one set, the next use would wait
        // for that.
        if word & 15 != way as u64 {
            self.words[set] = Packed::touched(word, way);
        }
    }

    #[inline(always)]
    fn victim(&mut self, set: usize, _: Use) -> usize {
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

/// LRU by the time of the last use of each way, of one set of any number of ways, or of sets of
/// few. A use is one store. The victim of a small set is found by a look at all its times. The ways
/// of a large one are put in order, the oldest first, whenever none is left that was not used
/// since; so everything is O(1) amortized, up to the logarithm that sorting may cost.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    ways: usize,
    /// For each way of each set; 0 for an invalid one.
    last: Vec<u64>,
    now: u64,
    /// For one large set: its invalid ways, taken from the end.
    vacant: Vec<u16>,
    /// Its ways when they were put in order, each with its time above it; and how many of these
    /// cannot be victims any more. The others are the next ones, but for those whose time has
    /// changed.
    order: Vec<u64>,
    passed: usize,
}

impl Times {
    /// The most ways of a small set.
    pub(crate) const FEW: usize = 32;
    /// The bits of a way in the order: 2^48 uses take days.
    const WAY_BITS: u32 = 16;

    /// Notes a use of the entry at this index: set x ways + way.
    #[inline(always)]
    pub(crate) fn touch_at(&mut self, at: usize) {
        self.now += 1;
        self.last[at] = self.now;
    }

    /// The way of a large set that was used longest ago: all are valid.
    #[inline(always)]
    fn oldest(&mut self) -> usize {
        loop {
            while let Some(key) = self.order.get(self.passed) {
                self.passed += 1;
                let way = *key as u16 as usize;
                if self.last[way] == key >> Times::WAY_BITS {
                    return way;
                }
            }
            self.put_in_order();
        }
    }

    #[cold]
    fn put_in_order(&mut self) {
        if self.order.is_empty() {
            self.order.extend(0..self.ways as u64);
        }
        for key in &mut self.order {
            let way = *key as u16;
            *key = self.last[way as usize] << Times::WAY_BITS | u64::from(way);
        }
        // Where all miss, ways are filled in the order in which they were victims.
        if !self.order.is_sorted() {
            self.order.sort_unstable();
        }
        self.passed = 0;
    }

    /// The ways of a set that are valid, the last one used first.
    pub(crate) fn recent(&self, set: usize) -> Vec<usize> {
        let last = &self.last[set * self.ways..][..self.ways];
        let mut ways: Vec<usize> = (0..self.ways).filter(|way| last[*way] > 0).collect();
        ways.sort_unstable_by_key(|way| std::cmp::Reverse(last[*way]));
        ways
    }

    /// For one large set: whether each valid way that was not used since the ways were put in order
    /// is a victim to come, in that order, and whether the others are known.
    fn has_all_victims(&self) -> bool {
        let vacant = (0..self.ways).filter(|way| self.last[*way] == 0);
        let left = &self.order[self.passed..];
        let since = self.order.last().map_or(0, |key| key >> Times::WAY_BITS);
        let waiting = self.last.iter().enumerate().filter(|(_, last)| (1..=since).contains(*last));
        left.is_sorted()
            && waiting.map(|(way, last)| last << Times::WAY_BITS | way as u64).all(|key| left.contains(&key))
            && vacant.clone().count() == self.vacant.len()
            && vacant.clone().all(|way| self.vacant.contains(&(way as u16)))
    }
}

impl Replace for Times {
    fn new(sets: usize, ways: usize) -> Option<Times> {
        let large = ways > Times::FEW;
        let vacant = || if large { (0..ways as u16).rev().collect() } else { Vec::new() };
        (sets == 1 || !large).then(|| Times {
            ways,
            last: vec![0; sets * ways],
            now: 0,
            vacant: vacant(),
            order: Vec::new(),
            passed: 0,
        })
    }

    #[inline(always)]
    fn touch(&mut self, set: usize, way: usize, _: Use) {
        self.touch_at(set * self.ways + way);
    }

    #[inline(always)]
    fn victim(&mut self, set: usize, by: Use) -> usize {
        let way = if self.ways > Times::FEW {
            self.vacant.pop().map_or_else(|| self.oldest(), usize::from)
        } else {
            let (mut oldest, mut at) = (u64::MAX, 0);
            for (way, last) in self.last[set * self.ways..][..self.ways].iter().enumerate() {
                (oldest, at) = if *last < oldest { (*last, way) } else { (oldest, at) };
            }
            at
        };
        self.touch(set, way, by);
        way
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        self.last[set * self.ways + way] = 0;
        if self.ways > Times::FEW {
            self.vacant.push(way as u16);
        }
    }

    fn flush(&mut self) {
        let sets = self.last.len() / self.ways;
        *self = Times::new(sets, self.ways).expect("it was made so");
    }

    fn validate(&self, tags: &[u32]) -> Result<(), String> {
        let sound = |set: usize| {
            let (first, end) = (set * self.ways, (set + 1) * self.ways);
            let mut times: Vec<u64> = self.last[first..end].iter().copied().filter(|last| *last > 0).collect();
            let valid = (first..end).all(|at| (tags[at] != EMPTY) == (self.last[at] > 0));
            times.sort_unstable();
            valid && times.is_sorted_by(|sooner, later| sooner < later) && times.last() <= Some(&self.now)
        };
        let wrong = (0..self.last.len() / self.ways).find(|set| !sound(*set));
        let complete = self.ways <= Times::FEW || self.has_all_victims();
        possible(wrong.or((!complete).then_some(0)))
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
    fn touch(&mut self, set: usize, way: usize, _: Use) {
        let (order, at) = self.find(set, way);
        order.copy_within(..at, 1);
        order[0] = way as u16;
    }

    #[inline]
    fn victim(&mut self, set: usize, _: Use) -> usize {
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
    use crate::tlb::uses::EntryId;

    /// The forms of LRU choose the same victims.
    #[test]
    fn the_forms_of_lru_agree() {
        let by = Use::from(EntryId { number: 0, key: 0 });
        for ways in [1usize, 2, 3, 5, 12, 16, 31, 33, 96] {
            let mut packed = Packed::new(1, ways);
            let mut times = Times::new(1, ways).unwrap();
            let mut listed = Listed::new(1, ways).unwrap();
            let mut state = 88172645463325252u64;
            let mut tags = vec![EMPTY; ways];
            for _ in 0..20_000 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let way = (state >> 40) as usize % ways;
                match state % 16 {
                    0 if tags[way] != EMPTY => {
                        packed.iter_mut().for_each(|packed| packed.invalidate(0, way));
                        times.invalidate(0, way);
                        listed.invalidate(0, way);
                        tags[way] = EMPTY;
                    }
                    1..8 if tags.contains(&EMPTY) => {
                        // Which of several invalid ways is filled makes no difference.
                        let chosen = times.victim(0, by);
                        assert_eq!(std::mem::take(&mut tags[chosen]), EMPTY);
                        packed.iter_mut().for_each(|packed| packed.touch(0, chosen, by));
                        listed.touch(0, chosen, by);
                    }
                    1..8 => {
                        let chosen = times.victim(0, by);
                        assert_eq!(listed.victim(0, by), chosen);
                        assert!(packed.iter_mut().all(|packed| packed.victim(0, by) == chosen));
                    }
                    _ if tags[way] != EMPTY => {
                        packed.iter_mut().for_each(|packed| packed.touch(0, way, by));
                        times.touch(0, way, by);
                        listed.touch(0, way, by);
                    }
                    _ => {}
                }
                packed.iter().for_each(|packed| packed.validate(&tags).unwrap());
                times.validate(&tags).unwrap();
                listed.validate(&tags).unwrap();
                let order: Vec<usize> = listed.order.iter().map(|way| *way as usize).collect();
                let valid = order.iter().copied().filter(|way| tags[*way] != EMPTY);
                assert!(times.recent(0).into_iter().eq(valid));
            }
        }
    }
}
