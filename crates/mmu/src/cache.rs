//! Set-associative structures of tags, whose owner remembers where each tag was put.
//!
//! TLBs, page-walk caches and line caches are all this. Each caches *records* (a page-table entry, a line of a table)
//! that exist in the simulator anyway, and a record remembers the way that it was last given. So a lookup compares one
//! tag, whatever the number of ways, and never searches: what the record remembers is only a hint, the tag decides.
//!
//! Many lookups of one cache are made one after the other (see [`crate::batch`]), so its policy is asked for once, by
//! [`on_sets`], and what works on the [`Sets`] is compiled for each.

use crate::lru::{Journal, PackedLru};
use crate::replacement::{Order, Other, Policy, Replacement, RoundRobin};

/// No record has this number.
pub(crate) const EMPTY: u32 = u32::MAX;

/// One structure.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    pub(crate) tags: Vec<u32>,
    pub(crate) shape: Shape,
    pub(crate) kept: Kept,
}

/// The replacement state of all sets.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Packed(PackedLru),
    RoundRobin(RoundRobin),
    Journal(Journal),
    Other(Other),
}

/// How many sets and ways there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    sets: usize,
    ways: usize,
    /// `sets - 1` if that is a mask, else `usize::MAX`: then the index is a remainder.
    mask: usize,
}

impl Shape {
    /// The set of the page (or line) with this number.
    #[inline(always)]
    fn set_of(&self, number: u64) -> usize {
        if self.mask != usize::MAX { number as usize & self.mask } else { self.remainder(number) }
    }

    #[cold]
    fn remainder(&self, number: u64) -> usize {
        (number % self.sets as u64) as usize
    }
}

/// The sets of a cache, for a stretch of work with its policy known.
pub(crate) struct Sets<'a, P> {
    pub(crate) tags: &'a mut [u32],
    pub(crate) shape: Shape,
    pub(crate) policy: &'a mut P,
}

/// Evaluates an expression with the [`Sets`] of a [`Cache`], compiled for each policy.
macro_rules! on_sets {
    ($cache:expr, $sets:ident => $body:expr) => {{
        let crate::cache::Cache { tags, shape, kept } = $cache;
        let (tags, shape) = (&mut tags[..], *shape);
        match kept {
            crate::cache::Kept::Packed(policy) => {
                let mut $sets = crate::cache::Sets { tags, shape, policy };
                $body
            }
            crate::cache::Kept::RoundRobin(policy) => {
                let mut $sets = crate::cache::Sets { tags, shape, policy };
                $body
            }
            crate::cache::Kept::Journal(policy) => {
                let mut $sets = crate::cache::Sets { tags, shape, policy };
                $body
            }
            crate::cache::Kept::Other(policy) => {
                let mut $sets = crate::cache::Sets { tags, shape, policy };
                $body
            }
        }
    }};
}
pub(crate) use on_sets;

impl Cache {
    /// An empty structure of `sets` x `ways` entries, both at least 1.
    pub(crate) fn new(sets: usize, ways: usize, policy: Replacement) -> Cache {
        let kept = match policy {
            Replacement::Lru if ways <= PackedLru::WAYS => Kept::Packed(PackedLru::new(sets, ways)),
            Replacement::RoundRobin => Kept::RoundRobin(RoundRobin::new(sets, ways)),
            Replacement::Lru if sets == 1 => Kept::Journal(Journal::new(ways)),
            _ => Kept::Other(Other::new(Order::new(policy, sets, ways), sets, ways)),
        };
        let mask = if sets.is_power_of_two() { sets - 1 } else { usize::MAX };
        Cache { tags: vec![EMPTY; sets * ways], shape: Shape { sets, ways, mask }, kept }
    }

    /// Drops `tag` of the page or line with this number, if it is there; `way` is what its record remembers.
    pub(crate) fn forget(&mut self, number: u64, way: usize, tag: u32) -> bool {
        on_sets!(self, sets => sets.forget(number, way, tag))
    }

    /// Drops everything. A round-robin pointer and a random generator stay where they are.
    pub(crate) fn flush(&mut self) {
        on_sets!(self, sets => sets.flush());
    }

    /// All that it holds: set, way, tag.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        let ways = self.shape.ways;
        let places = self.tags.iter().enumerate().filter(|(_, tag)| **tag != EMPTY);
        places.map(move |(at, tag)| (at / ways, at % ways, *tag))
    }

    /// Whether `tag` is in this way of the set that the number selects.
    pub(crate) fn holds(&self, number: u64, way: usize, tag: u32) -> bool {
        self.tags[self.shape.set_of(number) * self.shape.ways + way] == tag
    }

    /// Whether the number selects this set.
    pub(crate) fn selects(&self, number: u64, set: usize) -> bool {
        self.shape.set_of(number) == set
    }

    /// Checks that no tag is in a set twice, and the replacement state.
    pub(crate) fn validate(&self) -> Result<(), String> {
        for set in 0..self.shape.sets {
            let tags = &self.tags[set * self.shape.ways..][..self.shape.ways];
            let held: Vec<u32> = tags.iter().copied().filter(|tag| *tag != EMPTY).collect();
            if (1..held.len()).any(|at| held[..at].contains(&held[at])) {
                return Err(format!("set {set} holds a tag twice: {held:x?}"));
            }
        }
        match &self.kept {
            Kept::Packed(policy) => policy.validate(&self.tags),
            Kept::RoundRobin(policy) => policy.validate(&self.tags),
            Kept::Journal(policy) => policy.validate(&self.tags),
            Kept::Other(policy) => policy.validate(&self.tags),
        }
    }
}

impl<P: Policy> Sets<'_, P> {
    /// Looks `tag` up in the set of `number` and counts a hit as a use; on a miss nothing changes. `way` is what its
    /// record remembers.
    #[inline(always)]
    pub(crate) fn hit(&mut self, number: u64, way: usize, tag: u32) -> bool {
        let set = self.shape.set_of(number);
        let hit = self.tags[set * self.shape.ways + way] == tag;
        if hit {
            self.policy.touch(set, way);
        }
        hit
    }

    /// Puts a tag that is not there into the set of `number`; returns the way, for its record to remember, and what was
    /// in the place, or [`EMPTY`].
    #[inline(always)]
    pub(crate) fn fill(&mut self, number: u64, tag: u32) -> (usize, u32) {
        let set = self.shape.set_of(number);
        let first = set * self.shape.ways;
        let way = self.policy.victim(set, || {
            let tags = &self.tags[first..][..self.shape.ways];
            tags.iter().position(|tag| *tag == EMPTY)
        });
        (way, std::mem::replace(&mut self.tags[first + way], tag))
    }

    /// Looks `tag` up and puts it there if it is not. Returns whether it hit, and the way. For where hits and misses
    /// are mixed so that they cannot be foretold: where the policy can, this does the same work for both.
    #[inline(always)]
    pub(crate) fn access(&mut self, number: u64, way: usize, tag: u32) -> (bool, usize) {
        let set = self.shape.set_of(number);
        let first = set * self.shape.ways;
        let hit = self.tags[first + way] == tag;
        let way = self.policy.touch_or_victim(set, hit, way, || {
            let tags = &self.tags[first..][..self.shape.ways];
            tags.iter().position(|tag| *tag == EMPTY)
        });
        self.tags[first + way] = tag;
        (hit, way)
    }

    fn flush(&mut self) {
        self.tags.fill(EMPTY);
        self.policy.flush();
    }

    fn forget(&mut self, number: u64, way: usize, tag: u32) -> bool {
        let set = self.shape.set_of(number);
        let held = &mut self.tags[set * self.shape.ways + way];
        let dropped = *held == tag;
        if dropped {
            *held = EMPTY;
            self.policy.invalidate(set, way);
        }
        dropped
    }
}
