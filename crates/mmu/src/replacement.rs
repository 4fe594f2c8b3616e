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

/// The state of a policy for all sets of one structure.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// LRU of at most 16 ways: a permutation of the ways in one word per set, the most recent in the lowest nibble.
    Packed(PackedLru),
    /// LRU of one set of many ways.
    Journal(Journal),
    /// LRU of any geometry: a permutation per set, the most recent first.
    Listed { ways: usize, order: Vec<u16> },
    /// The next way of each set.
    RoundRobin { ways: u16, next: Vec<u16> },
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
            Replacement::Lru if ways <= 16 => Order::Packed(PackedLru::new(sets, ways)),
            Replacement::Lru if sets == 1 => Order::Journal(Journal::new(ways)),
            Replacement::Lru => {
                Order::Listed { ways, order: (0..sets).flat_map(|_| (0..ways as u16).collect::<Vec<_>>()).collect() }
            }
            Replacement::RoundRobin => Order::RoundRobin { ways: ways as u16, next: vec![0; sets] },
            Replacement::Random => Order::Random { ways: ways as u32, state: SEED },
            Replacement::TreePlru => Order::Tree { ways, bits: vec![0; sets] },
            Replacement::Nru => Order::Nru { all: u64::MAX >> (64 - ways), used: vec![0; sets] },
        }
    }

    /// Whether `victim` must be told of invalid ways, because the policy does not find them by itself.
    pub(crate) fn prefers_vacant(&self) -> bool {
        matches!(self, Order::Random { .. } | Order::Tree { .. } | Order::Nru { .. })
    }

    /// The way was used: a hit.
    #[inline(always)]
    pub(crate) fn touch(&mut self, set: usize, way: usize) {
        match self {
            Order::Packed(lru) => lru.touch(set, way),
            Order::Journal(journal) => journal.touch(way),
            Order::RoundRobin { .. } | Order::Random { .. } => {}
            Order::Listed { ways, order } => {
                let order = &mut order[set * *ways..][..*ways];
                let at = order.iter().position(|w| *w as usize == way).expect("a permutation holds every way");
                order[..=at].rotate_right(1);
            }
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
    #[inline(always)]
    pub(crate) fn victim(&mut self, set: usize) -> usize {
        match self {
            Order::Packed(lru) => lru.victim(set),
            Order::Journal(journal) => journal.victim(),
            Order::RoundRobin { ways, next } => {
                let way = next[set];
                next[set] = if way + 1 == *ways { 0 } else { way + 1 };
                way as usize
            }
            Order::Listed { ways, order } => {
                let order = &mut order[set * *ways..][..*ways];
                order.rotate_right(1);
                order[0] as usize
            }
            Order::Random { ways, state } => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                ((*state >> 32) * *ways as u64 >> 32) as usize
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
            Order::Packed(lru) => lru.invalidate(set, way),
            Order::Journal(journal) => journal.invalidate(way),
            Order::Listed { ways, order } => {
                let order = &mut order[set * *ways..][..*ways];
                let at = order.iter().position(|w| *w as usize == way).expect("a permutation holds every way");
                order[at..].rotate_left(1);
            }
            Order::Nru { used, .. } => used[set] &= !(1 << way),
            Order::RoundRobin { .. } | Order::Random { .. } | Order::Tree { .. } => {}
        }
    }

    /// Checks that the state is one that uses can lead to; `valid(set, way)` says what is occupied.
    pub(crate) fn validate(
        &self,
        sets: usize,
        ways: usize,
        valid: impl Fn(usize, usize) -> bool,
    ) -> Result<(), String> {
        let permutation = |order: &mut dyn Iterator<Item = usize>| {
            let mut seen = vec![false; ways];
            let mut count = 0;
            for way in order {
                if way >= ways || std::mem::replace(&mut seen[way], true) {
                    return false;
                }
                count += 1;
            }
            count == ways
        };
        for set in 0..sets {
            let sound = match self {
                Order::Packed(lru) => permutation(&mut (0..ways).map(|at| (lru.order[set] >> (4 * at) & 15) as usize)),
                Order::Listed { order, .. } => {
                    permutation(&mut order[set * ways..][..ways].iter().map(|way| *way as usize))
                }
                Order::Journal(journal) => journal.is_sound(|way| valid(set, way)),
                Order::RoundRobin { next, .. } => (next[set] as usize) < ways,
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

/// LRU of at most 16 ways, one word per set: nibble n holds the way used n-th last. A fill is a rotation, a hit finds
/// its nibble by arithmetic on the whole word.
#[derive(Clone, Debug)]
pub(crate) struct PackedLru {
    order: Vec<u64>,
    /// The shift of the nibble used longest ago.
    last: u32,
    /// The nibbles in use.
    mask: u64,
}

const ONES: u64 = 0x1111_1111_1111_1111;

impl PackedLru {
    fn new(sets: usize, ways: usize) -> PackedLru {
        let mask = u64::MAX >> (64 - 4 * ways);
        PackedLru { order: vec![0xfedc_ba98_7654_3210 & mask; sets], last: 4 * (ways as u32 - 1), mask }
    }

    /// The nibbles below the one that holds `way`, and those up to it.
    #[inline(always)]
    fn masks(order: u64, way: usize) -> (u64, u64) {
        let differs = order ^ (way as u64).wrapping_mul(ONES);
        // The lowest zero nibble is always found right; those above it may be false, and are not asked for.
        let zero = differs.wrapping_sub(ONES) & !differs & (ONES << 3);
        let lowest = zero & zero.wrapping_neg();
        let through = lowest ^ lowest.wrapping_sub(1);
        (through >> 4, through)
    }

    #[inline(always)]
    fn touch(&mut self, set: usize, way: usize) {
        let order = self.order[set];
        let (below, through) = PackedLru::masks(order, way);
        self.order[set] = order & !through | (order & below) << 4 | way as u64;
    }

    #[inline(always)]
    fn victim(&mut self, set: usize) -> usize {
        let order = self.order[set];
        let way = order >> self.last;
        self.order[set] = (order << 4 | way) & self.mask;
        way as usize
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        let order = self.order[set];
        let (below, through) = PackedLru::masks(order, way);
        self.order[set] = (order & below) | (order & !through) >> 4 | (way as u64) << self.last;
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

    fn new(ways: usize) -> Journal {
        Journal {
            newest: vec![Journal::NEVER; ways],
            entries: vec![0; (8 * ways).max(1024)],
            first: 0,
            end: 0,
            vacant: (0..ways as u16).rev().collect(),
        }
    }

    #[inline(always)]
    fn touch(&mut self, way: usize) {
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
    fn victim(&mut self) -> usize {
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

    fn invalidate(&mut self, way: usize) {
        self.newest[way] = Journal::NEVER;
        self.vacant.push(way as u16);
    }

    fn is_sound(&self, valid: impl Fn(usize) -> bool) -> bool {
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

    /// The three forms of LRU, and a list written out, choose alike.
    #[test]
    fn the_forms_of_lru_agree() {
        for ways in [1usize, 2, 3, 5, 12, 16] {
            let mut forms = [
                Order::Packed(PackedLru::new(1, ways)),
                Order::Journal(Journal::new(ways)),
                Order::Listed { ways, order: (0..ways as u16).collect() },
            ];
            let mut state = 88172645463325252u64;
            let mut valid = vec![false; ways];
            for _ in 0..20_000 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let way = (state >> 40) as usize % ways;
                match state % 16 {
                    0 if valid[way] => {
                        forms.iter_mut().for_each(|form| form.invalidate(0, way));
                        valid[way] = false;
                    }
                    1..8 if valid.iter().all(|valid| *valid) => {
                        let chosen = forms.each_mut().map(|form| form.victim(0));
                        assert!(chosen.iter().all(|way| *way == chosen[0]));
                    }
                    1..8 => {
                        // Which of several invalid ways is filled makes no difference; let all have the same one.
                        let way = valid.iter().position(|valid| !valid).unwrap();
                        for form in &mut forms {
                            if let Order::Journal(journal) = form {
                                journal.vacant.retain(|vacant| *vacant as usize != way);
                            }
                            form.touch(0, way);
                        }
                        valid[way] = true;
                    }
                    _ if valid[way] => forms.iter_mut().for_each(|form| form.touch(0, way)),
                    _ => {}
                }
                for form in &forms {
                    form.validate(1, ways, |_, way| valid[way]).unwrap();
                }
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
