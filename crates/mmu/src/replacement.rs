//! Which way of a set gives place: the replacement policies of TLBs, walk caches and line caches.
//!
//! Each policy keeps one piece of state for all sets of a structure and answers three questions: a way was used, which
//! way is next to go, a way became invalid. Every policy is exact; the two forms of LRU and the plain one agree.

use serde::{Deserialize, Serialize};

/// A replacement policy, by the name that machine files use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// The least recently used way goes. An invalid way counts as used longest ago.
    Lru,
    /// A pointer goes round the ways and moves at each fill, whether the way it names is valid or not.
    RoundRobin,
    /// An invalid way if there is one (the lowest), else any, by a generator with a fixed seed.
    Random,
    /// An invalid way if there is one (the lowest), else the leaf that the bits of a binary tree point away from the
    /// uses to. Needs a power of two of ways, at most 64.
    TreePlru,
    /// An invalid way if there is one (the lowest), else the lowest whose bit is clear; the use that would set the last
    /// bit clears all others. At most 64 ways.
    Nru,
}

impl Replacement {
    /// The name in machine files.
    pub const fn name(self) -> &'static str {
        match self {
            Replacement::Lru => "lru",
            Replacement::RoundRobin => "round-robin",
            Replacement::Random => "random",
            Replacement::TreePlru => "tree-plru",
            Replacement::Nru => "nru",
        }
    }

    /// Why this policy cannot serve sets of `ways` ways, if it cannot.
    pub(crate) fn refuses(self, ways: usize) -> Option<&'static str> {
        match self {
            Replacement::TreePlru if !ways.is_power_of_two() || ways > 64 => {
                Some("tree-plru needs a power of two of ways, at most 64; take lru or another number of ways")
            }
            Replacement::Nru if ways > 64 => Some("nru takes at most 64 ways; take lru or fewer ways"),
            _ => None,
        }
    }
}

/// The state of a policy for all sets of one structure, except those that the bank knows itself: round-robin, LRU of few
/// ways ([`PackedLru`]) and of one set ([`Journal`]).
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// LRU of several sets of many ways: a permutation per set, the most recent first.
    Listed { ways: usize, order: Vec<u16> },
    /// The state of the generator.
    Random { ways: u32, state: u64 },
    /// The tree of each set: bit n is inner node n (root 1), set if the next victim is to the right.
    Tree { ways: usize, bits: Vec<u64> },
    /// The used bits of each set.
    Nru { all: u64, used: Vec<u64> },
}

/// The seed of [`Replacement::Random`]: any odd constant would do, but it must never change.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

impl Order {
    /// The state in which nothing was used yet.
    pub(crate) fn new(policy: Replacement, sets: usize, ways: usize) -> Order {
        match policy {
            Replacement::Lru | Replacement::RoundRobin => {
                Order::Listed { ways, order: (0..sets).flat_map(|_| 0..ways as u16).collect() }
            }
            Replacement::Random => Order::Random { ways: ways as u32, state: SEED },
            Replacement::TreePlru => Order::Tree { ways, bits: vec![0; sets] },
            Replacement::Nru => Order::Nru { all: u64::MAX >> (64 - ways), used: vec![0; sets] },
        }
    }

    /// Forgets all uses. A generator goes on.
    pub(crate) fn flush(&mut self, sets: usize, ways: usize) {
        match self {
            Order::Listed { order, .. } => {
                (0..sets).for_each(|set| (0..ways).for_each(|way| order[set * ways + way] = way as u16));
            }
            Order::Random { .. } => {}
            Order::Tree { bits: words, .. } | Order::Nru { used: words, .. } => words.fill(0),
        }
    }

    /// Whether `victim` must be told of invalid ways, because the policy does not find them by itself.
    pub(crate) fn prefers_vacant(&self) -> bool {
        matches!(self, Order::Random { .. } | Order::Tree { .. } | Order::Nru { .. })
    }

    /// The way was used: a hit.
    #[inline]
    pub(crate) fn touch(&mut self, set: usize, way: usize) {
        match self {
            Order::Listed { ways, order } => {
                let order = &mut order[set * *ways..][..*ways];
                let at = order.iter().position(|w| *w as usize == way).expect("a permutation holds every way");
                order.copy_within(..at, 1);
                order[0] = way as u16;
            }
            Order::Random { .. } => {}
            Order::Tree { ways, bits } => {
                let (mut node, levels) = (1, ways.trailing_zeros());
                for level in (0..levels).rev() {
                    let right = way >> level & 1;
                    bits[set] = bits[set] & !(1 << node) | ((1 - right) as u64) << node;
                    node = node * 2 + right;
                }
            }
            Order::Nru { all, used } => {
                used[set] |= 1 << way;
                if used[set] == *all {
                    used[set] = 1 << way;
                }
            }
        }
    }

    /// Chooses the way to fill and counts the fill as a use of it.
    #[inline]
    pub(crate) fn victim(&mut self, set: usize) -> usize {
        match self {
            Order::Listed { ways, order } => {
                let order = &mut order[set * *ways..][..*ways];
                let way = order[*ways - 1];
                order.copy_within(..*ways - 1, 1);
                order[0] = way;
                way as usize
            }
            Order::Random { ways, state } => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                (((*state >> 32) * *ways as u64) >> 32) as usize
            }
            Order::Tree { ways, bits } => {
                let mut node = 1;
                while node < *ways {
                    node = node * 2 + (bits[set] >> node & 1) as usize;
                }
                let way = node - *ways;
                self.touch(set, way);
                way
            }
            Order::Nru { all, used } => {
                // Of one way, the bit stays set.
                let way = (used[set] & *all >> 1).trailing_ones() as usize;
                self.touch(set, way);
                way
            }
        }
    }

    /// The way became invalid: the next to go, where the policy orders ways at all.
    pub(crate) fn invalidate(&mut self, set: usize, way: usize) {
        match self {
            Order::Listed { ways, order } => {
                let order = &mut order[set * *ways..][..*ways];
                let at = order.iter().position(|w| *w as usize == way).expect("a permutation holds every way");
                order[at..].rotate_left(1);
            }
            Order::Nru { used, .. } => used[set] &= !(1 << way),
            Order::Random { .. } | Order::Tree { .. } => {}
        }
    }

    /// Checks that the state is one that uses can lead to; `valid(set, way)` says what is occupied.
    pub(crate) fn validate(&self, sets: usize, ways: usize) -> Result<(), String> {
        for set in 0..sets {
            let sound = match self {
                Order::Listed { order, .. } => {
                    is_permutation(order[set * ways..][..ways].iter().map(|way| *way as usize), ways)
                }
                Order::Random { state, .. } => *state != 0,
                Order::Tree { bits, .. } => ways == 64 || bits[set] >> ways == 0,
                Order::Nru { all, used } => used[set] & !all == 0 && (ways == 1 || used[set] != *all),
            };
            if !sound {
                return Err(format!("the replacement state of set {set} is impossible"));
            }
        }
        Ok(())
    }
}

/// Whether these are the numbers below `count`, each once.
fn is_permutation(numbers: impl Iterator<Item = usize>, count: usize) -> bool {
    let mut seen = vec![false; count];
    let fresh = |number: usize| number < count && !std::mem::replace(&mut seen[number], true);
    numbers.map(fresh).filter(|fresh| *fresh).count() == count
}

/// LRU of at most 16 ways in one word per set: nibble n holds the way used n-th last. A fill is a rotation, a hit finds
/// its nibble by arithmetic on the whole word. This is the geometry; the words are the caller's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PackedLru {
    /// The nibbles in use.
    mask: u64,
    /// The shift of the nibble used longest ago.
    last: u32,
}

const ONES: u64 = 0x1111_1111_1111_1111;

impl PackedLru {
    /// The most ways.
    pub(crate) const WAYS: usize = 16;

    pub(crate) fn new(ways: usize) -> PackedLru {
        PackedLru { mask: u64::MAX >> (64 - 4 * ways), last: 4 * (ways as u32 - 1) }
    }

    /// The word of a set in which nothing was used yet.
    pub(crate) fn initial(&self) -> u64 {
        0xfedc_ba98_7654_3210 & self.mask
    }

    /// The nibbles up to the one that holds `way`.
    #[inline(always)]
    fn through(word: u64, way: usize) -> u64 {
        let differs = word ^ (way as u64).wrapping_mul(ONES);
        // The lowest zero nibble is always found right; those above it may be false, and are not asked for.
        let zero = differs.wrapping_sub(ONES) & !differs & (ONES << 3);
        zero ^ zero.wrapping_sub(1)
    }

    /// The word after a use of `way`.
    #[inline(always)]
    pub(crate) fn touched(word: u64, way: usize) -> u64 {
        let through = PackedLru::through(word, way);
        word & !through | word << 4 & through | way as u64
    }

    /// The way used longest ago.
    #[inline(always)]
    pub(crate) fn oldest(&self, word: u64) -> usize {
        (word >> self.last) as usize
    }

    /// The word after a use of the way used longest ago.
    #[inline(always)]
    pub(crate) fn rotated(&self, word: u64) -> u64 {
        word << 4 & self.mask | word >> self.last
    }

    /// The word after `way` became invalid: it is the oldest now.
    pub(crate) fn demoted(&self, word: u64, way: usize) -> u64 {
        let through = PackedLru::through(word, way);
        word & through >> 4 | (word & !through) >> 4 | (way as u64) << self.last
    }

    pub(crate) fn is_sound(&self, word: u64) -> bool {
        let ways = self.last as usize / 4 + 1;
        word & !self.mask == 0 && is_permutation((0..ways).map(|at| (word >> (4 * at) & 15) as usize), ways)
    }
}

/// LRU of one set of any number of ways: a journal of uses, in which only the newest entry of a way counts. A use is
/// two stores; the oldest counting entry is the victim. A full journal is compacted, so all is O(1) amortised.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    /// Where in the journal the newest entry of each way is; [`Journal::NEVER`] for an invalid way.
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

    pub(crate) fn new(ways: usize) -> Journal {
        Journal {
            newest: vec![Journal::NEVER; ways],
            entries: vec![0; (8 * ways).max(1024)],
            first: 0,
            end: 0,
            vacant: (0..ways as u16).rev().collect(),
        }
    }

    #[inline(always)]
    pub(crate) fn touch(&mut self, way: usize) {
        if self.end == self.entries.len() {
            self.compact();
        }
        self.newest[way] = self.end as u32;
        self.entries[self.end] = way as u16;
        self.end += 1;
    }

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

    #[inline(always)]
    pub(crate) fn victim(&mut self) -> usize {
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
        self.touch(way);
        way
    }

    pub(crate) fn invalidate(&mut self, way: usize) {
        self.newest[way] = Journal::NEVER;
        self.vacant.push(way as u16);
    }

    pub(crate) fn flush(&mut self) {
        *self = Journal::new(self.newest.len());
    }

    pub(crate) fn is_sound(&self, valid: impl Fn(usize) -> bool) -> bool {
        let counts = |way: usize| {
            let at = self.newest[way] as usize;
            (self.first..self.end).contains(&at) && self.entries[at] as usize == way
        };
        (0..self.newest.len()).all(|way| valid(way) == counts(way) && valid(way) != self.vacant.contains(&(way as u16)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three forms of LRU choose alike.
    #[test]
    fn the_forms_of_lru_agree() {
        for ways in [1usize, 2, 3, 5, 12, 16] {
            let packed = PackedLru::new(ways);
            let mut word = packed.initial();
            let mut journal = Journal::new(ways);
            let mut listed = Order::Listed { ways, order: (0..ways as u16).collect() };
            let mut state = 88172645463325252u64;
            let mut valid = vec![false; ways];
            for _ in 0..20_000 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let way = (state >> 40) as usize % ways;
                let vacant = valid.iter().position(|valid| !valid);
                match (state % 16, vacant) {
                    (0, _) if valid[way] => {
                        word = packed.demoted(word, way);
                        journal.invalidate(way);
                        listed.invalidate(0, way);
                        valid[way] = false;
                    }
                    (1..8, None) => {
                        let chosen = packed.oldest(word);
                        word = packed.rotated(word);
                        assert_eq!((journal.victim(), listed.victim(0)), (chosen, chosen));
                    }
                    (1..8, Some(way)) => {
                        // Which of several invalid ways is filled makes no difference; let all have the same one.
                        journal.vacant.retain(|vacant| *vacant as usize != way);
                        (valid[way], word) = (true, PackedLru::touched(word, way));
                        journal.touch(way);
                        listed.touch(0, way);
                    }
                    _ if valid[way] => {
                        word = PackedLru::touched(word, way);
                        journal.touch(way);
                        listed.touch(0, way);
                    }
                    _ => {}
                }
                assert!(packed.is_sound(word) && journal.is_sound(|way| valid[way]));
                listed.validate(1, ways).unwrap();
            }
        }
    }

    #[test]
    fn a_tree_needs_a_power_of_two() {
        assert!(Replacement::TreePlru.refuses(12).is_some());
        assert!(Replacement::TreePlru.refuses(16).is_none());
        assert!(Replacement::Nru.refuses(65).is_some());
        assert!(Replacement::Lru.refuses(12).is_none());
    }
}
