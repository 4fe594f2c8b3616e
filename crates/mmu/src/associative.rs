//! A set-associative structure of tags, whose owner remembers where each tag was put.
//!
//! TLBs, page-walk caches and line caches are all this. Each caches *records* (a page-table entry, a line of a table)
//! that exist in the simulator anyway, and a record remembers the way that it was last given. So a lookup compares one
//! tag, whatever the number of ways, and never searches: what the record remembers is only a hint, the tag decides.

use crate::replacement::{Order, Replacement};

/// No record has this number.
const EMPTY: u32 = u32::MAX;

/// Tags in sets of ways, with a replacement policy.
#[derive(Clone, Debug)]
pub(crate) struct Associative {
    tags: Vec<u32>,
    order: Order,
    policy: Replacement,
    sets: usize,
    ways: usize,
    /// `sets - 1` if that is a mask, else 0: then the index is a remainder.
    mask: u64,
    /// The number of empty places, kept only for policies that must be told of them.
    vacant: usize,
}

impl Associative {
    /// An empty structure of `sets` x `ways` entries, both at least 1.
    pub(crate) fn new(sets: usize, ways: usize, policy: Replacement) -> Associative {
        let order = Order::new(policy, sets, ways);
        let vacant = if order.prefers_vacant() { sets * ways } else { 0 };
        let mask = if sets.is_power_of_two() { sets as u64 - 1 } else { 0 };
        Associative { tags: vec![EMPTY; sets * ways], order, policy, sets, ways, mask, vacant }
    }

    /// The bits that a way number needs.
    pub(crate) fn way_bits(&self) -> u32 {
        usize::BITS - (self.ways - 1).leading_zeros()
    }

    /// The set of the page (or line) with this number.
    #[inline(always)]
    pub(crate) fn set_of(&self, number: u64) -> usize {
        if self.mask != 0 || self.sets == 1 {
            (number & self.mask) as usize
        } else {
            (number % self.sets as u64) as usize
        }
    }

    /// Whether the way of the set holds `tag`.
    #[inline(always)]
    pub(crate) fn holds(&self, set: usize, way: usize, tag: u32) -> bool {
        self.tags[set * self.ways + way] == tag
    }

    /// A hit on the way.
    #[inline(always)]
    pub(crate) fn touch(&mut self, set: usize, way: usize) {
        self.order.touch(set, way);
    }

    /// Puts `tag` into the set; says into which way, and what was there.
    #[inline(always)]
    pub(crate) fn fill(&mut self, set: usize, tag: u32) -> (usize, Option<u32>) {
        let way = if self.vacant == 0 { self.order.victim(set) } else { self.vacant_or_victim(set) };
        let evicted = std::mem::replace(&mut self.tags[set * self.ways + way], tag);
        (way, if evicted == EMPTY { None } else { Some(evicted) })
    }

    #[cold]
    fn vacant_or_victim(&mut self, set: usize) -> usize {
        match self.tags[set * self.ways..][..self.ways].iter().position(|tag| *tag == EMPTY) {
            Some(way) => {
                self.vacant -= 1;
                self.order.touch(set, way);
                way
            }
            None => self.order.victim(set),
        }
    }

    /// Drops what the way holds.
    pub(crate) fn invalidate(&mut self, set: usize, way: usize) {
        self.tags[set * self.ways + way] = EMPTY;
        self.order.invalidate(set, way);
        if self.order.prefers_vacant() {
            self.vacant += 1;
        }
    }

    /// Drops everything. A round-robin pointer and a random generator stay where they are.
    pub(crate) fn flush(&mut self) {
        self.tags.fill(EMPTY);
        if self.order.prefers_vacant() {
            self.vacant = self.tags.len();
        }
        if !matches!(self.order, Order::RoundRobin { .. } | Order::Random { .. }) {
            self.order = Order::new(self.policy, self.sets, self.ways);
        }
    }

    /// All places that hold something: set, way, tag.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        let places = self.tags.iter().enumerate().filter(|(_, tag)| **tag != EMPTY);
        places.map(|(at, tag)| (at / self.ways, at % self.ways, *tag))
    }

    /// Checks the replacement state and the count of empty places.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let empty = self.tags.iter().filter(|tag| **tag == EMPTY).count();
        if self.order.prefers_vacant() && self.vacant != empty {
            return Err(format!("{} places are counted empty and {empty} are", self.vacant));
        }
        self.order.validate(self.sets, self.ways, |set, way| self.tags[set * self.ways + way] != EMPTY)
    }
}
