//! Set-associative structures of tags, whose owner remembers where each tag was put.
//!
//! TLBs, page-walk caches and line caches are all this. Each caches *records* (a page-table entry, a line of a table)
//! that exist in the simulator anyway, and a record remembers the way that it was last given. So a lookup compares one
//! tag, whatever the number of ways, and never searches: what the record remembers is only a hint, the tag decides.
//!
//! Many lookups of one cache are made one after the other (see [`crate::batch`]), so its replacement is asked for once, by
//! [`on_sets`], and what works on the [`Sets`] is compiled for each.

use crate::replacement::{Kept, Replace, Replacement, on_kept};

/// No record has this number.
pub(crate) const EMPTY: u32 = u32::MAX;

/// One structure.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    pub(crate) tags: Vec<u32>,
    pub(crate) shape: Shape,
    pub(crate) kept: Kept,
    /// Empty places, counted only for replacements that fill them first.
    pub(crate) vacant: usize,
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

/// The sets of a cache, for a stretch of work with its replacement known.
pub(crate) struct Sets<'a, R> {
    pub(crate) tags: &'a mut [u32],
    pub(crate) shape: Shape,
    pub(crate) vacant: &'a mut usize,
    pub(crate) kept: &'a mut R,
}

/// Evaluates an expression with the [`Sets`] of a [`Cache`], compiled for each replacement.
macro_rules! on_sets {
    ($cache:expr, $sets:ident => $body:expr) => {{
        let crate::cache::Cache { tags, shape, kept, vacant } = $cache;
        let (tags, shape) = (&mut tags[..], *shape);
        crate::replacement::on_kept!(kept, kept => {
            let mut $sets = crate::cache::Sets { tags, shape, vacant, kept };
            $body
        })
    }};
}
pub(crate) use on_sets;

impl Cache {
    /// An empty structure of `sets` x `ways` entries, both at least 1.
    pub(crate) fn new(sets: usize, ways: usize, replacement: Replacement) -> Cache {
        let mask = if sets.is_power_of_two() { sets - 1 } else { usize::MAX };
        let shape = Shape { sets, ways, mask };
        let tags = vec![EMPTY; sets * ways];
        Cache { vacant: tags.len(), tags, shape, kept: Kept::new(replacement, sets, ways) }
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
        on_kept!(&self.kept, kept => self.validate_kept(kept))
    }

    fn validate_kept<R: Replace>(&self, kept: &R) -> Result<(), String> {
        let empty = self.tags.iter().filter(|tag| **tag == EMPTY).count();
        if R::VACANT_FIRST && self.vacant != empty {
            return Err(format!("{} places are counted empty and {empty} are", self.vacant));
        }
        kept.validate(&self.tags)
    }
}

impl<R: Replace> Sets<'_, R> {
    /// Looks `tag` up in the set of `number` and counts a hit as a use; on a miss nothing changes. `way` is what its
    /// record remembers.
    #[inline(always)]
    pub(crate) fn hit(&mut self, number: u64, way: usize, tag: u32) -> bool {
        let set = self.shape.set_of(number);
        let hit = self.tags[set * self.shape.ways + way] == tag;
        if hit {
            self.kept.touch(set, way);
        }
        hit
    }

    /// Puts a tag that is not there into the set of `number`; returns the way, for its record to remember, and what was
    /// in the place, or [`EMPTY`].
    #[inline(always)]
    pub(crate) fn fill(&mut self, number: u64, tag: u32) -> (usize, u32) {
        let set = self.shape.set_of(number);
        let first = set * self.shape.ways;
        let way = match self.vacant(set) {
            Some(way) => way,
            None => self.kept.victim(set),
        };
        (way, std::mem::replace(&mut self.tags[first + way], tag))
    }

    /// Looks `tag` up and puts it there if it is not. Returns whether it hit, and the way. For where hits and misses
    /// are mixed so that they cannot be foretold: where the replacement can, this does the same work for both.
    #[inline(always)]
    pub(crate) fn access(&mut self, number: u64, way: usize, tag: u32) -> (bool, usize) {
        let set = self.shape.set_of(number);
        let first = set * self.shape.ways;
        let hit = self.tags[first + way] == tag;
        let way = match if hit { None } else { self.vacant(set) } {
            Some(way) => way,
            None => self.kept.touch_or_victim(set, hit, way),
        };
        self.tags[first + way] = tag;
        (hit, way)
    }

    /// The vacant way that is to be filled first, used by that; if there is one, and the replacement asks for it.
    #[inline(always)]
    fn vacant(&mut self, set: usize) -> Option<usize> {
        if !R::VACANT_FIRST || *self.vacant == 0 {
            return None;
        }
        let way = self.tags[set * self.shape.ways..][..self.shape.ways].iter().position(|tag| *tag == EMPTY)?;
        *self.vacant -= 1;
        self.kept.touch(set, way);
        Some(way)
    }

    fn flush(&mut self) {
        self.tags.fill(EMPTY);
        self.kept.flush();
        *self.vacant = self.tags.len();
    }

    fn forget(&mut self, number: u64, way: usize, tag: u32) -> bool {
        let set = self.shape.set_of(number);
        let held = &mut self.tags[set * self.shape.ways + way];
        let dropped = *held == tag;
        if dropped {
            *held = EMPTY;
            self.kept.invalidate(set, way);
            *self.vacant += R::VACANT_FIRST as usize;
        }
        dropped
    }
}
