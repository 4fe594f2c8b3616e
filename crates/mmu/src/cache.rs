//! Set-associative structures of tags, whose owner remembers where each tag was put.
//!
//! TLBs, page-walk caches and line caches are all this. Each caches *records* (a page-table entry, a line of a table)
//! that exist in the simulator anyway, and a record remembers the way that it was last given. So a lookup compares one
//! tag, whatever the number of ways: what the record remembers is only a hint, the tag decides. A set is searched only where
//! a record cannot remember enough: it tells few ways apart, or has several entries there (see [`crate::reach`]).
//!
//! Many lookups of one cache are made one after the other (see [`crate::batch`]), so its replacement is asked for once, by
//! [`on_sets`], and what works on the [`Sets`] is compiled for each.

use crate::reach::{Exact, Reach};
use crate::replacement::{Kept, Replace, Replacement, on_kept};
use std::marker::PhantomData;
use std::ops::Range;

/// The tag of an empty place: no page-table entry and no line has this number.
pub(crate) const EMPTY: u32 = u32::MAX;

/// One set-associative structure: tags, payloads and the state of its replacement.
#[derive(Clone, Debug)]
pub(crate) struct Cache<C: Reach = Exact> {
    pub(crate) tags: Vec<u32>,
    pub(crate) payloads: Vec<C::Payload>,
    pub(crate) shape: Shape,
    pub(crate) kept: Kept,
    /// Empty places, counted only for replacements that fill them first.
    pub(crate) vacant: usize,
    pub(crate) reach: PhantomData<C>,
}

/// The numbers of sets and ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    sets: usize,
    ways: usize,
    /// `sets - 1` if that is a mask, else `usize::MAX`: then the index is a remainder.
    mask: usize,
    /// How many ways of a set a record tells apart by what it remembers: of more, it is the remainder.
    noted: usize,
}

impl Shape {
    /// The number of sets.
    pub(crate) fn sets(&self) -> usize {
        self.sets
    }

    /// The number of ways of each.
    pub(crate) fn ways(&self) -> usize {
        self.ways
    }

    /// The set of the page (or line) with this number.
    #[inline(always)]
    pub(crate) fn set_of(&self, number: u64) -> usize {
        if self.mask != usize::MAX { number as usize & self.mask } else { self.remainder(number) }
    }

    #[cold]
    fn remainder(&self, number: u64) -> usize {
        (number % self.sets as u64) as usize
    }
}

/// The sets of a cache, for a stretch of work with its replacement known.
pub(crate) struct Sets<'a, C: Reach, R> {
    pub(crate) tags: &'a mut [u32],
    pub(crate) payloads: &'a mut [C::Payload],
    pub(crate) shape: Shape,
    pub(crate) vacant: &'a mut usize,
    pub(crate) kept: &'a mut R,
    pub(crate) reach: PhantomData<C>,
}

/// Evaluates an expression with the [`Sets`] of a [`Cache`], compiled for each replacement.
macro_rules! on_sets {
    ($cache:expr, $sets:ident => $body:expr) => {{
        let crate::cache::Cache { tags, payloads, shape, kept, vacant, reach } = $cache;
        let (tags, payloads, shape) = (&mut tags[..], &mut payloads[..], *shape);
        crate::replacement::on_kept!(kept, kept => {
            let mut $sets = crate::cache::Sets { tags, payloads, shape, vacant, kept, reach: *reach };
            $body
        })
    }};
}
pub(crate) use on_sets;

impl<C: Reach> Cache<C> {
    /// An empty structure of `sets` x `ways` entries, both at least 1, of whose ways a record tells `noted` apart.
    pub(crate) fn new(sets: usize, ways: usize, replacement: Replacement, noted: usize) -> Cache<C> {
        let mask = if sets.is_power_of_two() { sets - 1 } else { usize::MAX };
        let shape = Shape { sets, ways, mask, noted };
        let (tags, payloads) = (vec![EMPTY; sets * ways], vec![C::Payload::default(); sets * ways]);
        Cache {
            vacant: tags.len(),
            tags,
            payloads,
            shape,
            kept: Kept::new(replacement, sets, ways),
            reach: PhantomData,
        }
    }

    /// Drops what covers these translations of the mapping `tag`; `noted` is what its record remembers. Returns the number of
    /// entries dropped.
    #[inline(always)]
    pub(crate) fn forget(&mut self, numbers: &Range<u64>, noted: usize, tag: u32) -> u64 {
        let here = self.shape.set_of(numbers.start) * self.shape.ways + noted;
        if C::WHOLE && self.shape.noted >= self.shape.ways && self.tags[here] != tag {
            return 0;
        }
        self.drop_all(numbers, noted, tag)
    }

    fn drop_all(&mut self, numbers: &Range<u64>, noted: usize, tag: u32) -> u64 {
        on_sets!(self, sets => sets.forget(numbers, noted, tag))
    }

    /// Drops everything. A round-robin pointer and a random generator stay where they are.
    pub(crate) fn flush(&mut self) {
        on_sets!(self, sets => sets.flush());
    }

    /// All that it holds: set, way, tag, payload.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, usize, u32, C::Payload)> {
        let ways = self.shape.ways;
        let places = self.tags.iter().zip(&self.payloads).enumerate().filter(|(_, (tag, _))| **tag != EMPTY);
        places.map(move |(at, (tag, payload))| (at / ways, at % ways, *tag, *payload))
    }

    /// The way that holds this translation of the mapping `tag`, if one does.
    pub(crate) fn find(&self, number: u64, noted: usize, tag: u32) -> Option<usize> {
        let at = self.shape.set_of(number) * self.shape.ways + noted;
        let here = self.tags[at] == tag && C::covers(self.payloads[at], number);
        if here {
            Some(noted)
        } else {
            search::<C>(&self.tags, &self.payloads, self.shape, Sought { number, noted, tag })
        }
    }

    /// Whether the number selects this set.
    pub(crate) fn selects(&self, number: u64, set: usize) -> bool {
        self.shape.set_of(number) == set
    }

    /// Checks that no entry is in a set twice, and the replacement state.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let mut held: Vec<(u32, C::Payload)> = Vec::with_capacity(self.shape.ways);
        for set in 0..self.shape.sets {
            let (first, end) = (set * self.shape.ways, (set + 1) * self.shape.ways);
            let entries = self.tags[first..end].iter().zip(&self.payloads[first..end]);
            held.clear();
            held.extend(entries.map(|(tag, payload)| (*tag, *payload)).filter(|(tag, _)| *tag != EMPTY));
            if (1..held.len()).any(|at| held[..at].contains(&held[at])) {
                return Err(format!("set {set} holds an entry twice: {held:x?}"));
            }
        }
        on_kept!(&self.kept, kept => self.validate_kept(kept))
    }

    fn validate_kept<R: Replace>(&self, kept: &R) -> Result<(), String> {
        let empty = self.tags.iter().filter(|tag| **tag == EMPTY).count();
        if R::VACANT_FIRST && self.vacant != empty {
            return Err(format!("{} places are counted as empty, but {empty} are", self.vacant));
        }
        kept.validate(&self.tags)
    }
}

/// A translation that is searched for: its number, the way that its mapping's record remembers, and the mapping.
#[derive(Clone, Copy)]
struct Sought {
    number: u64,
    noted: usize,
    tag: u32,
}

/// The way that holds a translation, of those that a record does not tell from the one that it remembers.
#[cold]
fn search<C: Reach>(tags: &[u32], payloads: &[C::Payload], shape: Shape, sought: Sought) -> Option<usize> {
    let Sought { number, noted, tag } = sought;
    let first = shape.set_of(number) * shape.ways;
    let mut ways = (noted % shape.noted..shape.ways).step_by(shape.noted);
    ways.find(|way| tags[first + way] == tag && C::covers(payloads[first + way], number))
}

impl<C: Reach, R: Replace> Sets<'_, C, R> {
    /// Looks a translation of the mapping `tag` up and counts a hit as a use; on a miss nothing changes. `noted` is the way
    /// that the mapping's record remembers.
    #[inline(always)]
    pub(crate) fn hit(&mut self, number: u64, noted: usize, tag: u32) -> bool {
        let set = self.shape.set_of(number);
        let at = set * self.shape.ways + noted;
        if self.tags[at] == tag && C::covers(self.payload(at), number) {
            self.kept.touch(set, noted);
            return true;
        }
        if self.shape.noted >= self.shape.ways {
            return false;
        }
        let found = search::<C>(self.tags, self.payloads, self.shape, Sought { number, noted, tag });
        if let Some(way) = found {
            self.kept.touch(set, way);
        }
        found.is_some()
    }

    /// The payload of an entry: no load, and no bounds check, where payloads are `()`.
    #[inline(always)]
    fn payload(&self, at: usize) -> C::Payload {
        self.payloads.get(at).copied().unwrap_or_default()
    }

    /// Puts a translation that is not there into its set; returns the way, for its record to remember, and the tag and payload
    /// of what was in the place ([`EMPTY`] if nothing was).
    #[inline(always)]
    pub(crate) fn fill(&mut self, number: u64, tag: u32) -> (usize, u32, C::Payload) {
        let set = self.shape.set_of(number);
        let first = set * self.shape.ways;
        let way = match self.vacant(set) {
            Some(way) => way,
            None => self.kept.victim(set),
        };
        let payload = self.payload(first + way);
        if let Some(held) = self.payloads.get_mut(first + way) {
            *held = C::fill(number);
        }
        (way, std::mem::replace(&mut self.tags[first + way], tag), payload)
    }

    /// Looks up a line, whose tag is unique, and inserts it on a miss. Returns whether it hit, and the way. For hits
    /// and misses in an unpredictable mix: if the replacement can, this does the same work for both.
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

    /// The translations that an entry with this payload covers, of those that its mapping has.
    pub(crate) fn covered(&self, payload: C::Payload, mapping: Range<u64>) -> Range<u64> {
        C::covered(payload, mapping)
    }

    /// The vacant way to be filled first, which counts as used; `None` if there is none, or if the replacement does not
    /// ask for it.
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

    fn forget(&mut self, numbers: &Range<u64>, noted: usize, tag: u32) -> u64 {
        let (set, ways) = (self.shape.set_of(numbers.start), self.shape.ways);
        if C::WHOLE && self.shape.noted >= ways {
            return self.drop_part(set, noted, tag, numbers);
        }
        let mut dropped = 0;
        // Numbers in a row select sets in a row.
        for number in numbers.start..numbers.end.min(numbers.start + self.shape.sets as u64) {
            let set = self.shape.set_of(number);
            for way in 0..ways {
                dropped += self.drop_part(set, way, tag, numbers);
            }
        }
        dropped
    }

    /// Drops the part of one way's entry that covers these translations. Returns 1 if nothing was left of the entry.
    #[inline(always)]
    fn drop_part(&mut self, set: usize, way: usize, tag: u32, numbers: &Range<u64>) -> u64 {
        let at = set * self.shape.ways + way;
        if self.tags[at] != tag {
            return 0;
        }
        if let Some(left) = C::without(self.payload(at), numbers) {
            self.payloads[at] = left;
            return 0;
        }
        self.tags[at] = EMPTY;
        self.kept.invalidate(set, way);
        *self.vacant += R::VACANT_FIRST as usize;
        1
    }
}
