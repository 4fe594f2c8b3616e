//! Sets whose entries have fixed ways, of any size and replacement.
//!
//! The tags of a small set are compared at once. For the keys of a larger set, or of one that holds
//! parts of mappings, a structure keeps *hints*: the way where each was put last. So a lookup
//! compares one tag, whatever the number of ways; the tag decides, and the set is searched where a
//! key may have several entries (see [`crate::tlb::reach`]).
//!
//! Lookups of one structure come in batches (see [`crate::tlb::batch`]), so [`on_sets`] selects the
//! replacement once for all of them, and the code on [`Sets`] is compiled for each; for kinds of
//! entries that few machines have, once for all.

use super::rows::Rows;
use super::vector::{SPARE, equal, prefetch};
use super::{Geometry, NEAR};
use crate::machine::Replacement;
use crate::tlb::reach::{Entry, Reach};
use crate::tlb::replacement::lru::Times;
use crate::tlb::replacement::{Replace, State, on_state};
use crate::tlb::uses::{EMPTY, EntryId, Use, Uses, each};
use std::marker::PhantomData;
use std::ops::Range;

/// More hints than these may not be in the nearest cache of the host.
const LARGE: usize = NEAR / size_of::<u16>();

/// The most ways whose tags are sooner compared than a hint is read.
const COMPARED: usize = 16;

/// The keys for which hints are allocated at a time.
const HINTS: usize = 512;

/// Tags, payloads and the state of the replacement.
#[derive(Clone, Debug)]
pub(super) struct Placed<C: Reach> {
    /// Of all ways of all sets, and [`SPARE`] more.
    tags: Vec<u32>,
    payloads: Vec<C::Payload>,
    /// By key, the way where its entry was put last; keys behind the end never had one.
    hints: Vec<u16>,
    geometry: Geometry,
    replacement: State,
    /// Entries not in use, counted only for replacements that fill them first.
    vacant: usize,
    /// Whether the tags of a set are compared at once, without hints.
    pub(super) searches: bool,
    reach: PhantomData<C>,
}

/// The sets of a cache, with the type of their replacement known.
struct Sets<'a, C: Reach, R> {
    tags: &'a mut [u32],
    payloads: &'a mut [C::Payload],
    hints: &'a mut Vec<u16>,
    geometry: Geometry,
    vacant: &'a mut usize,
    searches: bool,
    replacement: &'a mut R,
    reach: PhantomData<C>,
}

/// Evaluates an expression with the [`Sets`] of a [`Placed`], compiled for each replacement.
macro_rules! on_sets {
    ($cache:expr, $sets:ident => $body:expr) => {{
        let Placed { tags, payloads, hints, geometry, replacement, vacant, searches, reach } = $cache;
        let (tags, payloads, geometry, searches) = (&mut tags[..], &mut payloads[..], *geometry, *searches);
        if C::COMMON {
            on_state!(replacement, replacement => {
                let mut $sets = Sets { tags, payloads, hints, geometry, vacant, searches, replacement, reach: *reach };
                $body
            })
        } else {
            let mut $sets = Sets { tags, payloads, hints, geometry, vacant, searches, replacement, reach: *reach };
            $body
        }
    }};
}
impl<C: Reach> Placed<C> {
    pub(super) fn new(geometry: Geometry, replacement: Replacement) -> Placed<C> {
        let count = geometry.sets * geometry.ways;
        Placed {
            searches: C::WHOLE && geometry.ways <= COMPARED,
            vacant: count,
            tags: vec![EMPTY; count + SPARE],
            payloads: vec![C::Payload::default(); count],
            hints: Vec::new(),
            geometry,
            replacement: State::of(replacement, geometry.sets, geometry.ways),
            reach: PhantomData,
        }
    }

    /// With LRU, holding what these rows hold, in ways in the order of use.
    pub(super) fn of(rows: &Rows) -> Placed<C> {
        let geometry = rows.geometry();
        let mut times = Times::new(geometry.sets, geometry.ways).expect("rows are small sets");
        let mut tags = vec![EMPTY; geometry.sets * geometry.ways + SPARE];
        let held: Vec<(usize, usize, u32)> = rows.entries().collect();
        for (set, way, key) in held.into_iter().rev() {
            tags[set * geometry.ways + way] = key;
            times.touch_at(set * geometry.ways + way);
        }
        let payloads = vec![C::Payload::default(); geometry.sets * geometry.ways];
        let (hints, replacement) = (Vec::new(), State::Times(times));
        Placed { searches: true, vacant: 0, tags, payloads, hints, geometry, replacement, reach: PhantomData }
    }

    /// Its contents as rows, if it has times of use.
    pub(super) fn rows(&self) -> Option<Rows> {
        let State::Times(times) = &self.replacement else { return None };
        let held = |set| times.recent(set).into_iter().map(|way| self.tags[set * self.geometry.ways + way]).collect();
        Some(Rows::of(self.geometry, held))
    }

    /// As [`super::Cache::access`].
    #[inline(always)]
    pub(super) fn access(&mut self, asking: u64, uses: Uses<'_>) -> u64 {
        if self.hints.len() > LARGE {
            each(asking).for_each(|index| prefetch(&self.hints, uses.keys[index] as usize));
        }
        on_sets!(self, sets => {
            let mut missed = 0;
            for index in each(asking) {
                missed |= u64::from(!sets.access(uses.at(index))) << index;
            }
            missed
        })
    }

    /// As [`super::Cache::use_at`].
    #[inline(always)]
    pub(super) fn use_at(&mut self, at: usize, used: Use) -> bool {
        let EntryId { number, key } = used.id();
        let covers = |payload: Option<&C::Payload>| C::covers(payload.copied().unwrap_or_default(), number);
        if self.tags.get(at) != Some(&key) || !C::WHOLE && !covers(self.payloads.get(at)) {
            return false;
        }
        match &mut self.replacement {
            State::Times(times) => times.touch_at(at),
            other => {
                let (set, way) = (at / self.geometry.ways, at % self.geometry.ways);
                on_state!(other, replacement => replacement.touch(set, way, seen::<C>(used)));
            }
        }
        true
    }

    /// As [`super::Cache::access_one`].
    pub(super) fn access_one(&mut self, used: Use) -> (bool, usize) {
        on_sets!(self, sets => {
            let hit = sets.hit_way(used);
            let set = sets.geometry.set_of(C::selector(used.number));
            let way = hit.unwrap_or_else(|| sets.fill_way(used, C::fill(used.number)).0);
            (hit.is_some(), set * sets.geometry.ways + way)
        })
    }

    #[inline(always)]
    pub(super) fn hit(&mut self, used: Use) -> bool {
        on_sets!(self, sets => sets.hit(used))
    }

    pub(super) fn fill(&mut self, filled: Use, payload: C::Payload) -> (u32, C::Payload) {
        on_sets!(self, sets => sets.fill(filled, payload))
    }

    /// As [`super::Cache::extend`].
    pub(super) fn extend(&mut self, used: Use, change: impl Fn(C::Payload) -> Option<C::Payload>) -> bool {
        on_sets!(self, sets => sets.extend(used, change))
    }

    /// Drops what covers these translations of the mapping `key`. Returns the number of entries
    /// dropped.
    #[inline(always)]
    pub(super) fn forget(&mut self, numbers: &Range<u64>, key: u32) -> u64 {
        if C::WHOLE && self.find(numbers.start, key).is_none() {
            return 0;
        }
        self.drop_all(numbers, key)
    }

    fn drop_all(&mut self, numbers: &Range<u64>, key: u32) -> u64 {
        on_sets!(self, sets => sets.forget(numbers, key))
    }

    /// As [`super::Cache::drop_where`].
    pub(super) fn drop_where(&mut self, gone: &dyn Fn(u32) -> bool) {
        on_sets!(self, sets => sets.drop_where(gone));
    }

    /// Drops everything. A round-robin pointer and a random generator stay where they are.
    pub(super) fn flush(&mut self) {
        on_sets!(self, sets => sets.flush());
    }

    /// The entries in use.
    pub(super) fn entries(&self) -> Vec<Entry<C>> {
        let ways = self.geometry.ways;
        let held = self.tags.iter().zip(&self.payloads).enumerate().filter(|(_, (tag, _))| **tag != EMPTY);
        let entry = |(at, (tag, payload)): (usize, (&u32, &C::Payload))| Entry {
            set: at / ways,
            way: at % ways,
            key: *tag,
            payload: *payload,
            sibling: 0,
        };
        held.map(entry).collect()
    }

    /// The way that holds this translation of the mapping `key`, if one does.
    #[inline(always)]
    pub(super) fn find(&self, number: u64, key: u32) -> Option<usize> {
        let first = self.geometry.set_of(C::selector(number)) * self.geometry.ways;
        if C::WHOLE && self.searches {
            return way_in(equal(&self.tags, first, self.geometry.ways, key));
        }
        let hint = self.hints.get(key as usize).map_or(0, |way| *way as usize);
        if self.tags[first + hint] == key && C::covers(self.payloads[first + hint], number) {
            return Some(hint);
        }
        if C::WHOLE { None } else { search::<C>(&self.tags, &self.payloads, self.geometry, number, key) }
    }

    /// Checks that no entry is in a set twice, and the replacement state.
    pub(super) fn validate(&self) -> Result<(), String> {
        let mut held: Vec<(u32, C::Payload)> = Vec::with_capacity(self.geometry.ways);
        for set in 0..self.geometry.sets {
            let (first, end) = (set * self.geometry.ways, (set + 1) * self.geometry.ways);
            let entries = self.tags[first..end].iter().zip(&self.payloads[first..end]);
            held.clear();
            held.extend(entries.map(|(tag, payload)| (*tag, *payload)).filter(|(tag, _)| *tag != EMPTY));
            if (1..held.len()).any(|at| held[..at].contains(&held[at])) {
                return Err(format!("set {set} holds an entry twice: {held:x?}"));
            }
        }
        let empty = self.tags.iter().filter(|tag| **tag == EMPTY).count() - SPARE;
        if self.replacement.vacant_first() && self.vacant != empty {
            return Err(format!("{} places are counted as empty, but {empty} are", self.vacant));
        }
        self.replacement.validate(&self.tags[..self.tags.len() - SPARE])
    }
}

/// What the replacement sees of a use: the part of the number that selects the set.
#[inline(always)]
fn seen<C: Reach>(used: Use) -> Use {
    used.at(C::selector(used.number))
}

/// The first way of a bit set.
#[inline(always)]
fn way_in(ways: u64) -> Option<usize> {
    (ways != 0).then(|| ways.trailing_zeros() as usize)
}

/// The way that holds this translation of the mapping `key`, of which a set may hold several.
#[cold]
fn search<C: Reach>(tags: &[u32], payloads: &[C::Payload], geometry: Geometry, number: u64, key: u32) -> Option<usize> {
    let first = geometry.set_of(C::selector(number)) * geometry.ways;
    (0..geometry.ways).find(|way| tags[first + way] == key && C::covers(payloads[first + way], number))
}

impl<C: Reach, R: Replace> Sets<'_, C, R> {
    /// The hint of this key.
    #[inline(always)]
    fn hint(&self, key: u32) -> usize {
        self.hints.get(key as usize).map_or(0, |way| *way as usize)
    }

    #[inline(always)]
    fn set_hint(&mut self, key: u32, way: usize) {
        if self.searches {
            return;
        }
        if key as usize >= self.hints.len() {
            self.make_hints(key);
        }
        self.hints[key as usize] = way as u16;
    }

    #[cold]
    fn make_hints(&mut self, key: u32) {
        self.hints.resize((key as usize + 1).next_multiple_of(HINTS), 0);
    }

    /// Looks a translation up, counts a hit as a use and fills on a miss. Returns whether it hit.
    #[inline(always)]
    fn access(&mut self, used: Use) -> bool {
        if !C::WHOLE || !self.searches {
            let hit = self.hit(used);
            if !hit {
                self.fill(used, C::fill(used.number));
            }
            return hit;
        }
        let (by, ways) = (seen::<C>(used), self.geometry.ways);
        let set = self.geometry.set_of(by.number);
        let first = set * ways;
        if let Some(way) = way_in(equal(self.tags, first, ways, used.key())) {
            self.replacement.touch(set, way, by);
            return true;
        }
        let way = self.way_to_fill(set, by);
        self.tags[first + way] = used.key();
        false
    }

    /// Looks a translation up and counts a hit as a use; on a miss nothing changes.
    #[inline(always)]
    pub(super) fn hit(&mut self, used: Use) -> bool {
        self.hit_way(used).is_some()
    }

    /// As [`Sets::hit`]; returns the way.
    #[inline(always)]
    fn hit_way(&mut self, used: Use) -> Option<usize> {
        let EntryId { number, key } = used.id();
        let set = self.geometry.set_of(C::selector(number));
        if C::WHOLE && self.searches {
            let way = way_in(equal(self.tags, set * self.geometry.ways, self.geometry.ways, key))?;
            self.replacement.touch(set, way, seen::<C>(used));
            return Some(way);
        }
        let hint = self.hint(key);
        let at = set * self.geometry.ways + hint;
        if self.tags[at] == key && C::covers(self.payload(at), number) {
            self.replacement.touch(set, hint, seen::<C>(used));
            return Some(hint);
        }
        if C::WHOLE {
            return None;
        }
        let found = search::<C>(self.tags, self.payloads, self.geometry, number, key);
        if let Some(way) = found {
            self.replacement.touch(set, way, seen::<C>(used));
        }
        found
    }

    /// The payload of an entry: no load, and no bounds check, where payloads are `()`.
    #[inline(always)]
    fn payload(&self, at: usize) -> C::Payload {
        self.payloads.get(at).copied().unwrap_or_default()
    }

    /// Puts a translation that is not there into its set; returns the tag ([`EMPTY`] if none) and
    /// payload of the entry that it replaces.
    #[inline(always)]
    pub(super) fn fill(&mut self, filled: Use, new: C::Payload) -> (u32, C::Payload) {
        self.fill_way(filled, new).1
    }

    /// As [`Sets::fill`]; returns the way too.
    #[inline(always)]
    fn fill_way(&mut self, filled: Use, new: C::Payload) -> (usize, (u32, C::Payload)) {
        let (key, by) = (filled.key(), seen::<C>(filled));
        let set = self.geometry.set_of(by.number);
        let first = set * self.geometry.ways;
        let way = self.way_to_fill(set, by);
        self.set_hint(key, way);
        let payload = self.payload(first + way);
        if let Some(held) = self.payloads.get_mut(first + way) {
            *held = new;
        }
        (way, (std::mem::replace(&mut self.tags[first + way], key), payload))
    }

    fn extend(&mut self, used: Use, change: impl Fn(C::Payload) -> Option<C::Payload>) -> bool {
        let by = seen::<C>(used);
        let (set, ways) = (self.geometry.set_of(by.number), self.geometry.ways);
        let mut extended = false;
        for way in 0..ways {
            let at = set * ways + way;
            let Some(payload) = Some(self.payload(at)).filter(|_| self.tags[at] == by.key()).and_then(&change) else {
                continue;
            };
            if extended {
                self.drop_way(set, way);
            } else {
                self.payloads[at] = payload;
                self.replacement.touch(set, way, by);
                extended = true;
            }
        }
        extended
    }

    /// The way to fill, which counts as filled: a vacant one, if the replacement asks for that.
    #[inline(always)]
    fn way_to_fill(&mut self, set: usize, by: Use) -> usize {
        if self.replacement.vacant_first() && *self.vacant > 0 {
            let tags = &self.tags[set * self.geometry.ways..][..self.geometry.ways];
            if let Some(way) = tags.iter().position(|tag| *tag == EMPTY) {
                *self.vacant -= 1;
                self.replacement.fill(set, way, by);
                return way;
            }
        }
        self.replacement.victim(set, by)
    }

    fn flush(&mut self) {
        self.tags.fill(EMPTY);
        self.replacement.flush();
        *self.vacant = self.tags.len() - SPARE;
    }

    fn drop_where(&mut self, gone: &dyn Fn(u32) -> bool) {
        for at in 0..self.geometry.sets * self.geometry.ways {
            if self.tags[at] != EMPTY && gone(self.tags[at]) {
                self.drop_way(at / self.geometry.ways, at % self.geometry.ways);
            }
        }
    }

    fn forget(&mut self, numbers: &Range<u64>, key: u32) -> u64 {
        let geometry = self.geometry;
        if C::WHOLE {
            let set = geometry.set_of(C::selector(numbers.start));
            let way = if self.searches {
                way_in(equal(self.tags, set * geometry.ways, geometry.ways, key))
            } else {
                Some(self.hint(key))
            };
            return way.map_or(0, |way| self.drop_part(set, way, key, numbers));
        }
        let mut dropped = 0;
        let mut drop_from =
            |set: usize| (0..geometry.ways).for_each(|way| dropped += self.drop_part(set, way, key, numbers));
        // So many numbers may select any set.
        if numbers.end - numbers.start >= geometry.sets as u64 {
            (0..geometry.sets).for_each(drop_from);
        } else {
            numbers.clone().for_each(|number| drop_from(geometry.set_of(C::selector(number))));
        }
        dropped
    }

    /// Drops the part of one way's entry that covers these translations. Returns 1 if nothing was
    /// left of the entry.
    #[inline(always)]
    fn drop_part(&mut self, set: usize, way: usize, key: u32, numbers: &Range<u64>) -> u64 {
        let at = set * self.geometry.ways + way;
        if self.tags[at] != key {
            return 0;
        }
        if let Some(left) = C::without(self.payload(at), numbers) {
            self.payloads[at] = left;
            return 0;
        }
        self.drop_way(set, way);
        1
    }

    #[inline(always)]
    fn drop_way(&mut self, set: usize, way: usize) {
        self.tags[set * self.geometry.ways + way] = EMPTY;
        self.replacement.invalidate(set, way);
        *self.vacant += usize::from(self.replacement.vacant_first());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Index;
    use crate::tlb::reach::Exact;

    /// Two sets of three ways, of which both hold the key 9, and each another.
    fn two_sets(replacement: Replacement) -> Placed<Exact> {
        let mut placed = Placed::new(Geometry::new(2, 3, Index::Low), replacement);
        for (number, key) in [(0, 9), (1, 9), (2, 2), (3, 3)] {
            placed.fill(EntryId { number, key }.into(), ());
        }
        assert_eq!(placed.validate(), Ok(()), "{replacement:?}");
        placed
    }

    #[test]
    fn an_entry_that_a_set_holds_twice_is_refused() {
        for replacement in [Replacement::RoundRobin, Replacement::Nru] {
            for set in 0..2 {
                let mut placed = two_sets(replacement);
                let own = &mut placed.tags[3 * set..3 * set + 3];
                let held = own.iter().position(|tag| *tag == 9).unwrap();
                let other = own.iter().position(|tag| *tag < 9).unwrap();
                (own[held], own[other]) = (7, 7);
                let refused = placed.validate().unwrap_err();
                assert!(refused.starts_with(&format!("set {set} holds an entry twice")), "{refused}");
            }
        }
    }

    #[test]
    fn a_wrong_count_of_empty_places_is_refused_where_it_is_used() {
        let mut placed = two_sets(Replacement::Nru);
        placed.vacant += 1;
        assert_eq!(placed.validate().unwrap_err(), "3 places are counted as empty, but 2 are");
        let mut placed = two_sets(Replacement::RoundRobin);
        placed.vacant += 1;
        assert_eq!(placed.validate(), Ok(()));
    }

    #[test]
    fn a_key_of_a_large_set_is_found_where_it_was_put_last() {
        let fill = |placed: &mut Placed<Exact>, key: u32| placed.fill(EntryId { number: key.into(), key }.into(), ());
        let placed = two_sets(Replacement::Nru);
        assert!(placed.searches && placed.hints.is_empty(), "small sets have no hints");
        let mut placed = Placed::new(Geometry::new(2, COMPARED + 1, Index::Low), Replacement::RoundRobin);
        (2..9).for_each(|key| _ = fill(&mut placed, key));
        let way = placed.find(2, 2).unwrap();
        assert_eq!(placed.hints.len(), HINTS, "hints are allocated for many keys at a time");
        placed.hints[2] = way as u16 + 1;
        assert_eq!(placed.find(2, 2), None, "the tag elsewhere is not looked for");
        fill(&mut placed, HINTS as u32);
        assert_eq!((placed.hints.len(), placed.find(HINTS as u64, HINTS as u32).is_some()), (2 * HINTS, true));
    }
}
