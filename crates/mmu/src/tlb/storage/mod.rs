//! Set-associative structures: TLBs, page-walk caches and line caches.
//!
//! The tag of an entry is its *key*: the number of a page-table entry, a table or a line, all of
//! which are small. There are three forms. Small sets with LRU, the most common, are *rows* of tags
//! in the order of their last use ([`rows`]). Others have ways, among which a replacement chooses
//! ([`placed`]); while it pays that entries stay where they are, small sets with LRU have ways too
//! ([`Cache::set_placed`]). In skewed structures the set depends on the way or the page size
//! ([`skewed`]).

mod placed;
mod rows;
mod skewed;
mod vector;

use crate::machine::Index;
use crate::machine::{Replacement, SEARCHED_WAYS};
use crate::mappings::Mappings;
use crate::tlb::reach::{Entry, Exact, Holds, Reach};
use crate::tlb::uses::{BATCH, EMPTY, EntryId, Use, Uses, each};
use placed::Placed;
use rows::Rows;
use skewed::Skewed;
use std::ops::Range;

pub(crate) use skewed::{ORDER_BITS, Shares, packed};
pub(crate) use vector::prefetch;

/// Bytes that are surely in the nearest cache of the host, beside what else is: it has 32 KB or
/// more.
const NEAR: usize = 16 << 10;
/// The most bytes of an entry in a way: tag, payload, and the state of its replacement, of which
/// the times of use take most.
const PLACED_BYTES: u64 = 32;

/// One set-associative structure.
#[derive(Clone, Debug)]
pub(crate) struct Cache<C: Reach = Exact> {
    pub(crate) geometry: Geometry,
    pub(crate) replacement: Replacement,
    owner: Owner,
    form: Form<C>,
}

/// Whose entries are looked up and filled, where hardware threads share a structure: each finds the
/// entries that it has loaded itself, and all compete for the ways. The tag of an entry is its key,
/// and below it the number of the hardware thread in its core.
#[derive(Clone, Copy, Default, Debug)]
struct Owner {
    /// The bits of such a number; 0 if there is one.
    bits: u32,
    /// That of the current one.
    sibling: u32,
}

impl Owner {
    #[inline(always)]
    fn tag(self, key: u32) -> u32 {
        key << (self.bits & 31) | self.sibling
    }

    /// The key and the hardware thread of a tag, which is not empty.
    fn split(self, tag: u32) -> (u32, u32) {
        (tag >> self.bits, tag & ((1 << self.bits) - 1))
    }
}

#[derive(Clone, Debug)]
enum Form<C: Reach> {
    Rows(Rows),
    Placed(Placed<C>),
    Skewed(Skewed),
}

/// The numbers of sets and ways, and how a set is selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    sets: usize,
    ways: usize,
    index: SetIndex,
}

/// How a number selects a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SetIndex {
    Folded(Folded),
    Other(Index),
}

/// The set is the low bits of a number, XOR those from another bit on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Folded {
    mask: u64,
    /// That bit; of numbers that have no bit 63, 63 folds nothing in.
    fold: u32,
}

impl Folded {
    /// The number is the set.
    const ALL: Folded = Folded { mask: u64::MAX, fold: 63 };

    #[inline(always)]
    fn set_of(self, number: u64) -> usize {
        ((number ^ number >> (self.fold & 63)) & self.mask) as usize
    }
}

impl Geometry {
    fn new(sets: usize, ways: usize, index: Index) -> Geometry {
        let fold = if sets.is_power_of_two() { index.fold(sets) } else { None };
        let folded = |fold| SetIndex::Folded(Folded { mask: sets as u64 - 1, fold });
        Geometry { sets, ways, index: fold.map_or(SetIndex::Other(index), folded) }
    }

    /// The number of ways of each set.
    pub(crate) fn ways(&self) -> usize {
        self.ways
    }

    /// The set of the page (or line) with this number.
    #[inline(always)]
    pub(crate) fn set_of(&self, number: u64) -> usize {
        match self.index {
            SetIndex::Folded(index) => index.set_of(number),
            SetIndex::Other(index) => selected(index, number, self.sets),
        }
    }

    /// As [`Geometry::set_of`] for the numbers whose bits are set, with an index that is not
    /// folded.
    fn sets_of(&self, index: Index, asking: u64, numbers: &[u64; BATCH]) -> [u64; BATCH] {
        let mut sets = [0; BATCH];
        each(asking).for_each(|at| sets[at] = index.set(numbers[at], 0, self.sets) as u64);
        sets
    }
}

/// Out of line, and without the shape in memory: few structures have such an index.
#[cold]
#[inline(never)]
fn selected(index: Index, number: u64, sets: usize) -> usize {
    index.set(number, 0, sets)
}

impl<C: Reach> Cache<C> {
    /// An empty structure of `sets` x `ways` entries, both at least 1, and at most [`MAX_WAYS`]
    /// ways.
    pub(crate) fn new(sets: usize, ways: usize, replacement: Replacement) -> Cache<C> {
        Cache::indexed(sets, ways, Index::Low, replacement)
    }

    /// As [`Cache::new`], with an index function that does not refuse this number of sets.
    pub(crate) fn indexed(sets: usize, ways: usize, index: Index, replacement: Replacement) -> Cache<C> {
        let geometry = Geometry::new(sets, ways, index);
        let form = if Cache::<C>::has_rows(ways, replacement) {
            Form::Rows(Rows::new(geometry))
        } else {
            Form::Placed(Placed::new(geometry, replacement))
        };
        Cache { geometry, replacement, owner: Owner::default(), form }
    }

    /// One whose entries have candidates in several sets, with LRU; of entries of whole mappings,
    /// whose numbers are [`packed`].
    pub(crate) fn skewed(sets: usize, ways: usize, index: Index, shares: Shares) -> Cache<C> {
        let geometry = Geometry::new(sets, ways, index);
        let form = Form::Skewed(Skewed::new(geometry, index, shares));
        Cache { geometry, replacement: Replacement::Lru, owner: Owner::default(), form }
    }

    /// Makes room for the entries of so many hardware threads. It is empty, and keys are small.
    pub(crate) fn share(&mut self, siblings: u32) {
        self.owner.bits = siblings.next_power_of_two().ilog2();
    }

    /// Looks up and fills entries of this hardware thread from now on.
    pub(crate) fn set_sibling(&mut self, sibling: u32) {
        self.owner.sibling = sibling;
    }

    /// Which of its ways serve which sizes, in a skewed one.
    pub(crate) fn shares(&self) -> Option<&Shares> {
        match &self.form {
            Form::Skewed(skewed) => Some(&skewed.shares),
            _ => None,
        }
    }

    /// One for keys that are far apart: its size does not depend on the keys.
    pub(crate) fn of_sparse_keys(sets: usize, ways: usize, replacement: Replacement) -> Cache<C> {
        let mut cache = Cache::new(sets, ways, replacement);
        if let Form::Placed(placed) = &mut cache.form {
            placed.searches = ways <= SEARCHED_WAYS;
        }
        cache
    }

    /// The bytes that an empty structure takes: those that are written when it is made, and all.
    pub(crate) fn bytes(sets: usize, ways: usize, replacement: Replacement) -> (u64, u64) {
        let has_rows = Cache::<C>::has_rows(ways, replacement);
        let (sets, ways) = (sets as u64, ways as u64);
        if has_rows { (0, rows::bytes(sets, ways)) } else { [Cache::<C>::placed_bytes(sets, ways); 2].into() }
    }

    /// The bytes that one with ways takes.
    pub(crate) fn placed_bytes(sets: u64, ways: u64) -> u64 {
        sets.saturating_mul(ways).saturating_mul(PLACED_BYTES)
    }

    /// Looks the translations of `uses` up whose bits are set in `asking`, in order, counts each
    /// hit as a use and fills on each miss. Returns which missed. Cost: about 10 instructions each
    /// where there are rows and the processor has vectors of 512 bits.
    pub(crate) fn access(&mut self, asking: u64, uses: Uses<'_>) -> u64 {
        let keys;
        let uses = if self.owner.bits == 0 {
            uses
        } else {
            keys = self.own_keys(uses.keys);
            Uses { keys: &keys, ..uses }
        };
        match &mut self.form {
            Form::Rows(rows) => rows.access(asking, uses.numbers, uses.keys),
            Form::Placed(placed) => placed.access(asking, uses),
            Form::Skewed(skewed) => each(asking)
                .fold(0, |missed, index| missed | u64::from(!skewed.access_one(uses.at(index).id())) << index),
        }
    }

    #[cold]
    #[inline(never)]
    fn own_keys(&self, keys: &[u32; BATCH]) -> [u32; BATCH] {
        keys.map(|key| self.owner.tag(key))
    }

    /// Gives small sets with LRU ways, or makes them rows again. Keeps the order of use. Cost:
    /// O(entries).
    pub(crate) fn set_placed(&mut self, placed: bool) {
        let form = match &self.form {
            Form::Rows(rows) if placed => Some(Form::Placed(Placed::of(rows))),
            Form::Placed(ways) if !placed && Cache::<C>::has_rows(self.geometry.ways, self.replacement) => {
                ways.rows().map(Form::Rows)
            }
            _ => None,
        };
        if let Some(form) = form {
            self.form = form;
        }
    }

    /// Whether small sets are rows, if they have no ways now.
    fn has_rows(ways: usize, replacement: Replacement) -> bool {
        C::WHOLE && replacement == Replacement::Lru && ways <= rows::WAYS
    }

    /// Uses the entry at this index (set x ways + way) if it holds this translation; returns
    /// whether it does. Only in structures with ways.
    #[inline(always)]
    pub(crate) fn use_at(&mut self, at: usize, used: Use) -> bool {
        let used = self.own(used);
        match &mut self.form {
            Form::Placed(placed) => placed.use_at(at, used),
            Form::Rows(_) | Form::Skewed(_) => false,
        }
    }

    /// Looks one translation up, counts a hit as a use and fills on a miss. Returns whether it hit
    /// and, in a structure with ways, the index of its entry.
    #[inline(always)]
    pub(crate) fn access_one(&mut self, used: impl Into<Use>) -> (bool, Option<usize>) {
        let used = self.own(used.into());
        match &mut self.form {
            Form::Placed(placed) => {
                let (hit, at) = placed.access_one(used);
                (hit, Some(at))
            }
            Form::Rows(rows) => (rows.access_one(used.id()), None),
            Form::Skewed(skewed) => (skewed.access_one(used.id()), None),
        }
    }

    /// Looks a translation up and counts a hit as a use; on a miss nothing changes. Inlined, so
    /// that a caller computes no more of the use than the replacement looks at.
    #[inline(always)]
    pub(crate) fn hit(&mut self, used: impl Into<Use>) -> bool {
        let used = self.own(used.into());
        let id = used.id();
        match &mut self.form {
            Form::Rows(rows) => rows.find(id.number, id.key).is_some() && rows.access_one(id),
            Form::Placed(placed) => placed.hit(used),
            Form::Skewed(skewed) => skewed.hit(id.key),
        }
    }

    /// Puts a translation that is not there into its set; returns the key ([`EMPTY`] if none) and
    /// payload of the entry that it replaces.
    pub(crate) fn fill(&mut self, filled: impl Into<Use>) -> (u32, C::Payload) {
        let filled = self.own(filled.into());
        let EntryId { number, key } = filled.id();
        let (evicted, payload) = match &mut self.form {
            Form::Rows(rows) => (rows.fill(number, key), C::Payload::default()),
            Form::Placed(placed) => placed.fill(filled, C::fill(number)),
            Form::Skewed(skewed) => (skewed.fill(number, key), C::Payload::default()),
        };
        (if evicted == EMPTY { EMPTY } else { self.owner.split(evicted).0 }, payload)
    }

    /// A use by the current hardware thread.
    #[inline(always)]
    fn own(&self, used: Use) -> Use {
        used.of(self.owner.tag(used.key()))
    }

    /// As [`Cache::fill`], with this payload. Only in structures whose entries have payloads.
    pub(crate) fn fill_with(&mut self, filled: Use, payload: C::Payload) {
        let filled = self.own(filled);
        match &mut self.form {
            Form::Placed(placed) => _ = placed.fill(filled, payload),
            Form::Rows(_) | Form::Skewed(_) => unreachable!("their entries have no payloads"),
        }
    }

    /// Among the entries of this key in the translation's set, sets the payload of the first for
    /// which `change` returns one, which counts as a use, and drops others for which it does.
    /// Returns whether there is one.
    pub(crate) fn extend(&mut self, used: Use, change: impl Fn(C::Payload) -> Option<C::Payload>) -> bool {
        let used = self.own(used);
        match &mut self.form {
            Form::Rows(_) | Form::Skewed(_) => false,
            Form::Placed(placed) => placed.extend(used, change),
        }
    }

    /// Drops entries of all hardware threads that cover these translations of the mapping `key`;
    /// returns how many.
    #[inline(always)]
    pub(crate) fn forget(&mut self, numbers: &Range<u64>, key: u32) -> u64 {
        let first = key << self.owner.bits;
        (first..=first + ((1 << self.owner.bits) - 1)).fold(0, |dropped, tag| dropped + self.forget_tag(numbers, tag))
    }

    #[inline(always)]
    fn forget_tag(&mut self, numbers: &Range<u64>, tag: u32) -> u64 {
        match &mut self.form {
            Form::Rows(rows) => rows.forget(numbers.start, tag),
            Form::Placed(placed) => placed.forget(numbers, tag),
            Form::Skewed(skewed) => skewed.forget(tag),
        }
    }

    /// Drops all entries of the current hardware thread with these keys. Costs a look at each.
    pub(crate) fn drop_where(&mut self, gone: &dyn Fn(u32) -> bool) {
        let owner = self.owner;
        let gone = &|tag| {
            let (key, sibling) = owner.split(tag);
            sibling == owner.sibling && gone(key)
        };
        match &mut self.form {
            Form::Rows(rows) => rows.drop_where(gone),
            Form::Placed(placed) => placed.drop_where(gone),
            Form::Skewed(skewed) => skewed.drop_where(gone),
        }
    }

    /// Drops all of the current hardware thread. A round-robin pointer and a random generator stay
    /// where they are.
    pub(crate) fn flush(&mut self) {
        if self.owner.bits != 0 {
            return self.drop_where(&|_| true);
        }
        match &mut self.form {
            Form::Rows(rows) => rows.flush(),
            Form::Placed(placed) => placed.flush(),
            Form::Skewed(skewed) => skewed.flush(),
        }
    }

    /// The entries in use, of all hardware threads. In rows their way is the position in the order
    /// of use.
    pub(crate) fn entries(&self) -> Vec<Entry<C>> {
        let whole = |(set, way, key)| Entry { set, way, key, payload: C::Payload::default(), sibling: 0 };
        let tagged: Vec<Entry<C>> = match &self.form {
            Form::Rows(rows) => rows.entries().map(whole).collect(),
            Form::Placed(placed) => placed.entries(),
            Form::Skewed(skewed) => skewed.entries().map(whole).collect(),
        };
        let split = |entry: Entry<C>| {
            let (key, sibling) = self.owner.split(entry.key);
            Entry { key, sibling, ..entry }
        };
        tagged.into_iter().map(split).collect()
    }

    /// What its entries hold, and their keys.
    pub(crate) fn held(&self, mappings: &Mappings) -> Vec<(u32, Holds)> {
        let held = |entry: Entry<C>| (entry.key, C::holds(entry.key, entry.payload, mappings));
        self.entries().into_iter().map(held).collect()
    }

    /// The way (in rows, the position in the order of use) that holds this translation of the
    /// mapping `key` for the current hardware thread, if one does.
    pub(crate) fn find(&self, number: u64, key: u32) -> Option<usize> {
        self.find_of(self.owner.sibling, number, key)
    }

    /// As [`Cache::find`], for any hardware thread.
    pub(crate) fn find_of(&self, sibling: u32, number: u64, key: u32) -> Option<usize> {
        let tag = Owner { sibling, ..self.owner }.tag(key);
        match &self.form {
            Form::Rows(rows) => rows.find(number, tag),
            Form::Placed(placed) => placed.find(number, tag),
            Form::Skewed(skewed) => skewed.find(number, tag),
        }
    }

    /// Whether the number selects this set.
    pub(crate) fn selects(&self, number: u64, set: usize) -> bool {
        match &self.form {
            Form::Skewed(skewed) => skewed.selects(number, set),
            _ => self.geometry.set_of(C::selector(number)) == set,
        }
    }

    /// Checks that no entry is in a set twice, and the replacement state.
    pub(crate) fn validate(&self) -> Result<(), String> {
        match &self.form {
            Form::Rows(rows) => rows.validate(),
            Form::Placed(placed) => placed.validate(),
            Form::Skewed(skewed) => skewed.validate(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// A small structure with LRU does the same as rows, with ways, and with ways now and then;
        /// where it has ways, what was put into one is used there as long as it is there.
        #[test]
        fn with_ways_for_a_time_or_without_is_the_same(
            (sets, ways) in (1usize..5, 1usize..=rows::WAYS),
            steps in prop::collection::vec((0u8..16, prop::collection::vec(0u32..150, 1..64)), 1..60),
        ) {
            let new = || Cache::<Exact>::new(sets, ways, Replacement::Lru);
            let (mut rows, mut others) = (new(), [new(), new()]);
            others[1].set_placed(true);
            let mut held_at = [HashMap::new(), HashMap::new()];
            for (what, keys) in steps {
                let number = |key: u32| u64::from(key) * 7;
                let id = |key: u32| EntryId { number: number(key), key };
                match what {
                    0 => others.iter_mut().chain([&mut rows]).for_each(Cache::flush),
                    1 => {
                        let (key, some) = (keys[0], number(keys[0])..number(keys[0]) + 1);
                        let dropped = rows.forget(&some, key);
                        for other in &mut others {
                            prop_assert_eq!(other.forget(&some, key), dropped);
                        }
                    }
                    2 => others.iter_mut().chain([&mut rows]).for_each(|cache| cache.drop_where(&|key| key % 3 == 0)),
                    3..6 => others[0].set_placed(what == 3),
                    6..9 => {
                        let (mut numbers, mut asked) = ([0; BATCH], [0; BATCH]);
                        asked[..keys.len()].copy_from_slice(&keys);
                        numbers.iter_mut().zip(asked).for_each(|(to, key)| *to = number(key));
                        let (asking, uses) = (u64::MAX >> (64 - keys.len()), Uses::unasked(&numbers, &asked));
                        let missed = rows.access(asking, uses);
                        for other in &mut others {
                            prop_assert_eq!(other.access(asking, uses), missed);
                        }
                    }
                    _ => for key in keys {
                        let hit = rows.access_one(id(key)).0;
                        for (other, held_at) in others.iter_mut().zip(&mut held_at) {
                            let known = held_at.get(&key).copied();
                            if known.is_some_and(|at| other.use_at(at, id(key).into())) {
                                prop_assert!(hit);
                                continue;
                            }
                            let (found, at) = other.access_one(id(key));
                            prop_assert_eq!(found, hit);
                            held_at.extend(at.map(|at| (key, at)));
                        }
                    },
                }
                for other in &others {
                    prop_assert_eq!(other.validate(), Ok(()));
                    let mut other = other.clone();
                    other.set_placed(false);
                    let key = |entry: Entry<Exact>| (entry.set, entry.way, entry.key);
                    let held = |cache: &Cache| cache.entries().into_iter().map(key).collect::<Vec<_>>();
                    prop_assert_eq!(held(&other), held(&rows));
                }
            }
        }
    }
}
