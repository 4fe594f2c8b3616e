//! Which way of a set gives place: the replacement policies of TLBs, walk caches and line caches.
//!
//! Each policy keeps one piece of state for all sets of a structure and answers three questions: a way was used, which
//! way is next to go, a way became invalid. Every policy is exact; the two forms of LRU and the plain one agree.

use crate::cache::EMPTY;
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
pub(crate) trait Policy {
    /// The way was used: a hit.
    fn touch(&mut self, set: usize, way: usize);

    /// Chooses the way to fill and counts the fill as a use of it; `vacant` finds the lowest invalid way.
    fn victim(&mut self, set: usize, vacant: impl Fn() -> Option<usize>) -> usize;

    /// A hit in `way`, or a fill; returns the way.
    #[inline(always)]
    fn touch_or_victim(&mut self, set: usize, hit: bool, way: usize, vacant: impl Fn() -> Option<usize>) -> usize {
        if hit {
            self.touch(set, way);
            way
        } else {
            self.victim(set, vacant)
        }
    }

    /// The way became invalid.
    fn invalidate(&mut self, set: usize, way: usize);

    /// Forgets all uses; all ways are invalid. A round-robin pointer and a random generator stay where they are.
    fn flush(&mut self);

    /// Checks that the state is one that uses can lead to, with these tags.
    fn validate(&self, tags: &[u32]) -> Result<(), String>;
}

/// The error for a set whose state is none that uses can lead to.
pub(crate) fn possible(wrong: Option<usize>) -> Result<(), String> {
    wrong.map_or(Ok(()), |set| Err(format!("the replacement state of set {set} is impossible")))
}

/// The state of a policy for all sets of one structure, except round-robin and those of [`crate::lru`].
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
            possible(if sound { None } else { Some(set) })?;
        }
        Ok(())
    }
}

/// Whether these are the numbers below `count`, each once.
pub(crate) fn is_permutation(numbers: impl Iterator<Item = usize>, count: usize) -> bool {
    let mut seen = vec![false; count];
    let fresh = |number: usize| number < count && !std::mem::replace(&mut seen[number], true);
    numbers.map(fresh).filter(|fresh| *fresh).count() == count
}

/// A pointer a set.
#[derive(Clone, Debug)]
pub(crate) struct RoundRobin {
    next: Vec<u32>,
    ways: u32,
}

impl RoundRobin {
    pub(crate) fn new(sets: usize, ways: usize) -> RoundRobin {
        RoundRobin { next: vec![0; sets], ways: ways as u32 }
    }
}

impl Policy for RoundRobin {
    #[inline(always)]
    fn touch(&mut self, _: usize, _: usize) {}

    #[inline(always)]
    fn victim(&mut self, set: usize, _: impl Fn() -> Option<usize>) -> usize {
        let way = self.next[set];
        self.next[set] = if way + 1 == self.ways { 0 } else { way + 1 };
        way as usize
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {}

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        possible(self.next.iter().position(|way| *way >= self.ways))
    }
}

/// Any other policy, and what it needs to know of vacant ways.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    order: Order,
    sets: usize,
    ways: usize,
    /// The number of empty places, kept only for policies that must be told of them.
    vacant: usize,
}

impl Other {
    pub(crate) fn new(order: Order, sets: usize, ways: usize) -> Other {
        let vacant = if order.prefers_vacant() { sets * ways } else { 0 };
        Other { order, sets, ways, vacant }
    }
}

impl Policy for Other {
    #[inline]
    fn touch(&mut self, set: usize, way: usize) {
        self.order.touch(set, way);
    }

    #[inline]
    fn victim(&mut self, set: usize, vacant: impl Fn() -> Option<usize>) -> usize {
        match if self.vacant == 0 { None } else { vacant() } {
            Some(way) => {
                self.vacant -= 1;
                self.order.touch(set, way);
                way
            }
            None => self.order.victim(set),
        }
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        self.order.invalidate(set, way);
        self.vacant += self.order.prefers_vacant() as usize;
    }

    fn flush(&mut self) {
        self.order.flush(self.sets, self.ways);
        self.vacant = if self.order.prefers_vacant() { self.sets * self.ways } else { 0 };
    }

    fn validate(&self, tags: &[u32]) -> Result<(), String> {
        let empty = tags.iter().filter(|tag| **tag == EMPTY).count();
        if self.order.prefers_vacant() && self.vacant != empty {
            return Err(format!("{} places are counted empty and {empty} are", self.vacant));
        }
        self.order.validate(self.sets, self.ways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_needs_a_power_of_two() {
        assert!(Replacement::TreePlru.refuses(12).is_some());
        assert!(Replacement::TreePlru.refuses(16).is_none());
        assert!(Replacement::Nru.refuses(65).is_some());
        assert!(Replacement::Lru.refuses(12).is_none());
    }
}
