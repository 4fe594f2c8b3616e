//! Sets of anything, with an index and a replacement: TLBs, walk caches and line caches.

use crate::index;
use crate::replacement::{self, Twin};
use superpage_mmu::{Index, Replacement};

/// Sets of anything.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    sets: Vec<Vec<Option<T>>>,
    index: Index,
    replacement: Box<dyn Twin>,
}

impl<T: Copy + PartialEq> Cache<T> {
    pub(crate) fn new(sets: usize, ways: usize, index: Index, replacement: Replacement) -> Cache<T> {
        Cache { sets: vec![vec![None; ways]; sets], index, replacement: replacement::twin(replacement, sets, ways) }
    }

    fn set(&self, number: u64) -> usize {
        index::set(self.index, number, self.sets.len())
    }

    /// Uses the entry of which this is true, in the set of this number; returns it.
    pub(crate) fn hit(&mut self, number: u64, wanted: impl Fn(T) -> bool) -> Option<T> {
        let set = self.set(number);
        let way = self.sets[set].iter().position(|way| way.is_some_and(&wanted))?;
        self.replacement.touch(set, way);
        self.sets[set][way]
    }

    pub(crate) fn fill(&mut self, number: u64, what: T) -> Option<T> {
        let set = self.set(number);
        let vacant = self.sets[set].iter().position(|way| way.is_none());
        let way = self.replacement.victim(set, vacant);
        self.replacement.touch(set, way);
        self.sets[set][way].replace(what)
    }

    /// Drops all entries of which this is true; returns their number.
    pub(crate) fn drop(&mut self, gone: impl Fn(T) -> bool) -> u64 {
        let mut dropped = 0;
        for (set, ways) in self.sets.iter_mut().enumerate() {
            for (way, held) in ways.iter_mut().enumerate() {
                if held.is_some_and(&gone) {
                    *held = None;
                    self.replacement.invalidate(set, way);
                    dropped += 1;
                }
            }
        }
        dropped
    }

    /// Replaces the first entry of the set of this number of which this is another one, as a use, and drops further ones;
    /// returns whether there is one.
    pub(crate) fn change(&mut self, number: u64, change: impl Fn(T) -> Option<T>) -> bool {
        let set = self.set(number);
        let changed = |way: &Option<T>| way.and_then(&change);
        let Some(way) = self.sets[set].iter().position(|way| changed(way).is_some()) else { return false };
        let new = changed(&self.sets[set][way]);
        self.sets[set][way] = None;
        for other in 0..self.sets[set].len() {
            if changed(&self.sets[set][other]).is_some() {
                self.sets[set][other] = None;
                self.replacement.invalidate(set, other);
            }
        }
        self.sets[set][way] = new;
        self.replacement.touch(set, way);
        true
    }

    /// Replaces entries where this is another one; no use.
    pub(crate) fn rewrite(&mut self, change: impl Fn(T) -> T) {
        self.sets.iter_mut().flatten().flatten().for_each(|held| *held = change(*held));
    }

    pub(crate) fn flush(&mut self) {
        self.drop(|_| true);
        self.replacement.flush();
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &T> {
        self.sets.iter().flatten().flatten()
    }
}
