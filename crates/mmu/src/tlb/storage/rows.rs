//! Small sets with LRU: each is a row of tags, the most recently used first. A hit moves its tag to
//! the front, a miss puts one there and drops the last; neither needs ways, or anything but the
//! tags.
//!
//! A row has 8, 16 or 32 lanes and crosses no line of the host's cache that it could do without, so
//! a processor with vectors compares all lanes at once and moves them in one step
//! ([`super::vector`]). The code here works on all processors, and tests compare the vector code
//! with it.

use super::vector::{self, Row, Unit, Used};
use super::{Folded, Geometry, NEAR, SetIndex};
use crate::tlb::uses::{BATCH, EntryId, each};

/// The most ways of a row.
pub(super) const WAYS: usize = 32;
/// The alignment of rows in lanes: a line of the host's cache.
const ALIGNED: usize = 16;

/// Rows of more tags than these may not be in the nearest cache of the host.
const LARGE: usize = NEAR / size_of::<u32>();

fn lanes(ways: usize) -> usize {
    ways.next_power_of_two().max(8)
}

/// The bytes of the rows of these sets.
pub(super) fn bytes(sets: u64, ways: u64) -> u64 {
    sets.saturating_mul(lanes(ways as usize) as u64)
        .saturating_add(ALIGNED as u64)
        .saturating_mul(size_of::<u32>() as u64)
}

/// Rows of tags: keys plus one, or 0 in empty lanes, which are last.
#[derive(Debug)]
pub(super) struct Rows {
    geometry: Geometry,
    /// Of each row.
    lanes: usize,
    /// Zeroes to begin with: memory of rows that are never used is never touched.
    tags: Vec<u32>,
    /// Where the first row begins.
    start: usize,
    unit: Unit,
}

impl Clone for Rows {
    fn clone(&self) -> Rows {
        let mut clone = Rows::on(self.geometry, self.unit);
        clone.rows_mut().copy_from_slice(self.rows());
        clone
    }
}

impl Rows {
    pub(super) fn new(geometry: Geometry) -> Rows {
        Rows::on(geometry, Unit::best())
    }

    fn on(geometry: Geometry, unit: Unit) -> Rows {
        let lanes = lanes(geometry.ways);
        let tags = vec![0; geometry.sets * lanes + ALIGNED];
        let start = tags.as_ptr().align_offset(ALIGNED * size_of::<u32>()).min(ALIGNED);
        Rows { geometry, lanes, tags, start, unit }
    }

    fn rows(&self) -> &[u32] {
        &self.tags[self.start..][..self.geometry.sets * self.lanes]
    }

    fn rows_mut(&mut self) -> &mut [u32] {
        &mut self.tags[self.start..][..self.geometry.sets * self.lanes]
    }

    /// Rows that hold these keys: `held` returns those of a set, last used first.
    pub(super) fn of(geometry: Geometry, held: impl Fn(usize) -> Vec<u32>) -> Rows {
        let mut rows = Rows::new(geometry);
        let lanes = rows.lanes;
        for (set, row) in rows.rows_mut().chunks_mut(lanes).enumerate() {
            row.iter_mut().zip(held(set)).for_each(|(tag, key)| *tag = key + 1);
        }
        rows
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The ways of the set of this number.
    fn row(&mut self, number: u64) -> &mut [u32] {
        let (first, ways) = (self.geometry.set_of(number) * self.lanes, self.geometry.ways);
        &mut self.rows_mut()[first..][..ways]
    }

    /// As [`super::Cache::access`].
    pub(super) fn access(&mut self, asking: u64, numbers: &[u64; BATCH], keys: &[u32; BATCH]) -> u64 {
        match self.geometry.index {
            SetIndex::Folded(index) => self.access_in(asking, Used { numbers, keys, index }),
            SetIndex::Other(index) => {
                let sets = self.geometry.sets_of(index, asking, numbers);
                self.access_in(asking, Used { numbers: &sets, keys, index: Folded::ALL })
            }
        }
    }

    #[inline(always)]
    fn access_in(&mut self, asking: u64, used: Used<'_>) -> u64 {
        let (geometry, lanes, unit) = (self.geometry, self.lanes, self.unit);
        let rows = &mut self.tags[self.start..][..geometry.sets * lanes];
        if rows.len() > LARGE {
            // The loads of all rows overlap, whatever is done with each.
            each(asking).for_each(|index| vector::prefetch(rows, used.at(index).0 * lanes));
        }
        if unit != Unit::Portable {
            return vector::access(unit, rows, Row { lanes, ways: geometry.ways }, asking, used);
        }
        let mut missed = 0;
        for index in each(asking) {
            let (row, tag) = used.at(index);
            missed |= u64::from(!access(&mut rows[row * lanes..][..geometry.ways], tag)) << index;
        }
        missed
    }

    /// As [`super::Cache::access_one`]: whether it hits.
    pub(super) fn access_one(&mut self, EntryId { number, key }: EntryId) -> bool {
        let (at, row) = (self.find(number, key), self.row(number));
        let moving = at.unwrap_or(row.len() - 1);
        row.copy_within(..moving, 1);
        row[0] = key + 1;
        at.is_some()
    }

    /// Puts a key that is not there in front; returns the one that is dropped, or [`super::EMPTY`].
    pub(super) fn fill(&mut self, number: u64, key: u32) -> u32 {
        let row = self.row(number);
        let last = row[row.len() - 1];
        access(row, key + 1);
        last.wrapping_sub(1)
    }

    pub(super) fn find(&self, number: u64, key: u32) -> Option<usize> {
        let (rows, first) = (self.rows(), self.geometry.set_of(number) * self.lanes);
        // Compiled for each number of lanes; those behind the ways are empty.
        let equal = match self.lanes {
            8 => vector::equal(rows, first, 8, key + 1),
            16 => vector::equal(rows, first, 16, key + 1),
            _ => vector::equal(rows, first, WAYS, key + 1),
        };
        (equal != 0).then(|| equal.trailing_zeros() as usize)
    }

    /// Drops a key, if it is there; returns how many were dropped.
    #[inline]
    pub(super) fn forget(&mut self, number: u64, key: u32) -> u64 {
        let Some(at) = self.find(number, key) else { return 0 };
        let row = &mut self.row(number)[at..];
        row.copy_within(1.., 0);
        row[row.len() - 1] = 0;
        1
    }

    /// As [`super::Cache::drop_where`].
    pub(super) fn drop_where(&mut self, gone: &dyn Fn(u32) -> bool) {
        let lanes = self.lanes;
        for row in self.rows_mut().chunks_mut(lanes) {
            let mut kept = 0;
            for at in 0..lanes {
                let tag = std::mem::take(&mut row[at]);
                if tag != 0 && !gone(tag - 1) {
                    row[kept] = tag;
                    kept += 1;
                }
            }
        }
    }

    pub(super) fn flush(&mut self) {
        self.rows_mut().fill(0);
    }

    /// Set, position in the order of use, key.
    pub(super) fn entries(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        let held = self.rows().iter().enumerate().filter(|(_, tag)| **tag != 0);
        held.map(|(at, tag)| (at / self.lanes, at % self.lanes, *tag - 1))
    }

    /// Checks that no key is in a set twice, that what is empty is last, and that lanes behind the
    /// ways are.
    pub(super) fn validate(&self) -> Result<(), String> {
        for (set, row) in self.rows().chunks(self.lanes).enumerate() {
            let held = row.iter().take_while(|tag| **tag != 0).count();
            if held > self.geometry.ways || row[held..].iter().any(|tag| *tag != 0) {
                return Err(format!("set {set} holds something behind what is empty: {row:x?}"));
            }
            if (1..held).any(|at| row[..at].contains(&row[at])) {
                return Err(format!("set {set} holds an entry twice: {row:x?}"));
            }
        }
        Ok(())
    }
}

/// Uses a tag: it is in front of the row then. Returns whether it was there; if not, the last one
/// is dropped.
fn access(row: &mut [u32], tag: u32) -> bool {
    let mut carried = tag;
    for lane in row {
        carried = std::mem::replace(lane, carried);
        if carried == tag {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Index;
    use crate::tlb::uses::EMPTY;
    use proptest::prelude::*;

    /// The simplest model: for each set the keys in order of use.
    struct Naive {
        sets: Vec<Vec<u32>>,
        ways: usize,
    }

    impl Naive {
        fn access(&mut self, number: u64, key: u32) -> bool {
            let at = number as usize % self.sets.len();
            let set = &mut self.sets[at];
            let found = set.iter().position(|other| *other == key).map(|at| set.remove(at));
            set.insert(0, key);
            set.truncate(self.ways);
            found.is_some()
        }

        fn forget(&mut self, number: u64, key: u32) -> u64 {
            let at = number as usize % self.sets.len();
            let before = self.sets[at].len();
            self.sets[at].retain(|other| *other != key);
            (before - self.sets[at].len()) as u64
        }
    }

    #[test]
    fn rows_that_no_operation_leaves_are_refused() {
        let refused = |row: &[u32]| {
            let geometry = Geometry::new(2, 3, Index::Low);
            let mut rows = Rows::of(geometry, |set| if set == 0 { vec![5, 6, 7] } else { vec![5] });
            assert_eq!(rows.validate(), Ok(()), "two sets may hold the same key");
            rows.rows_mut()[8..][..row.len()].copy_from_slice(row);
            rows.validate().err()
        };
        assert_eq!(refused(&[6, 7, 8]), None);
        let behind = |row: &[u32]| refused(row).is_some_and(|problem| problem.contains("set 1 holds something behind"));
        assert!(behind(&[6, 0, 7]) && behind(&[0, 6]) && behind(&[6, 7, 8, 9]) && behind(&[6, 0, 0, 9]));
        assert!(refused(&[6, 7, 6]).is_some_and(|problem| problem.contains("set 1 holds an entry twice")));
    }

    #[test]
    fn rows_take_their_lanes_and_a_line() {
        assert_eq!([bytes(4, 3), bytes(4, 8), bytes(1, 9), bytes(2, 32)], [(32 + 16) * 4, 48 * 4, 32 * 4, 80 * 4]);
        assert_eq!(bytes(u64::MAX, 1), u64::MAX);
    }

    proptest! {
        /// Each unit that this processor has does the same as the naive model, after each
        /// operation.
        #[test]
        fn all_forms_of_rows_agree(
            (sets, ways) in (1usize..5, 1usize..=WAYS),
            steps in prop::collection::vec((0u8..12, any::<u64>(), prop::collection::vec(0u32..150, 1..64)), 1..60),
        ) {
            let geometry = Geometry::new(sets, ways, Index::Low);
            let mut forms: Vec<Rows> = Unit::all().map(|unit| Rows::on(geometry, unit)).collect();
            let mut naive = Naive { sets: vec![Vec::new(); sets], ways };
            for (what, some, keys) in steps {
                // The most are the key 0 and the largest.
                let key = |index: usize| if keys[index] == 149 { EMPTY - 1 } else { keys[index] };
                let entry = |index: usize| EntryId { number: key(index).into(), key: key(index) };
                let EntryId { number, key: first } = entry(0);
                match what {
                    0 => {
                        naive.sets.iter_mut().for_each(Vec::clear);
                        forms.iter_mut().for_each(Rows::flush);
                    }
                    1 => {
                        let dropped = naive.forget(number, first);
                        for rows in &mut forms {
                            prop_assert_eq!(rows.forget(number, first), dropped);
                        }
                    }
                    2 if naive.sets[number as usize % sets].iter().all(|key| *key != first) => {
                        let full = naive.sets[number as usize % sets].get(ways - 1).copied();
                        naive.access(number, first);
                        for rows in &mut forms {
                            prop_assert_eq!(rows.fill(number, first), full.unwrap_or(EMPTY));
                        }
                    }
                    3 => forms = forms.clone(),
                    _ => {
                        let asking = some & (u64::MAX >> (64 - keys.len()));
                        let missed = each(asking).fold(0, |missed, index| {
                            let EntryId { number, key } = entry(index);
                            missed | u64::from(!naive.access(number, key)) << index
                        });
                        let (mut numbers, mut asked) = ([0; BATCH], [0; BATCH]);
                        for (at, (number, key)) in numbers.iter_mut().zip(&mut asked).enumerate().take(keys.len()) {
                            EntryId { number: *number, key: *key } = entry(at);
                        }
                        for rows in &mut forms {
                            prop_assert_eq!(rows.access(asking, &numbers, &asked), missed, "{:?}", rows.unit);
                        }
                    }
                }
                let held: Vec<(usize, usize, u32)> = naive.sets.iter().enumerate()
                    .flat_map(|(set, keys)| keys.iter().enumerate().map(move |(at, key)| (set, at, *key)))
                    .collect();
                for rows in &forms {
                    prop_assert!(rows.entries().eq(held.iter().copied()), "{:?}", rows.unit);
                    prop_assert_eq!(rows.validate(), Ok(()));
                }
            }
        }
    }
}
