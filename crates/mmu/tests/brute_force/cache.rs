//! Sets of anything, with an index and a replacement: TLBs, walk caches and line caches.

use crate::index;
use crate::replacement::{self, Twin};
use crate::skewed::Skewed;
use superpage_mmu::{Index, Replacement, TlbSpec};
use superpage_pages::{Access, PageSize};

/// Sets of anything.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    sets: Vec<Vec<Option<T>>>,
    /// In place of sets.
    skewed: Option<Skewed<T>>,
    index: Index,
    replacement: Box<dyn Twin>,
    /// The access that asks now, if one of the program does.
    pub(crate) by: Option<Access>,
}

impl<T: Copy + PartialEq> Cache<T> {
    pub(crate) fn new(sets: usize, ways: usize, index: Index, replacement: Replacement) -> Cache<T> {
        let replacement = replacement::twin(replacement, sets, ways);
        Cache { sets: vec![vec![None; ways]; sets], skewed: None, index, replacement, by: None }
    }

    /// That of a TLB.
    pub(crate) fn of(spec: &TlbSpec, base: PageSize) -> Cache<T> {
        let mut cache = Cache::new(spec.sets(), spec.ways(), spec.index, spec.replacement);
        cache.skewed = spec.is_skewed().then(|| Skewed::new(spec, base));
        cache
    }

    /// As [`Cache::hit`], where this page would be if it were of this order.
    pub(crate) fn hit_page(&mut self, page: u64, order: u32, wanted: impl Fn(T) -> bool) -> Option<T> {
        match &mut self.skewed {
            Some(skewed) => skewed.hit(page, order, wanted),
            None => self.hit(page >> order, wanted),
        }
    }

    /// As [`Cache::fill`] of a page of this order.
    pub(crate) fn fill_page(&mut self, page: u64, order: u32, what: T) -> Option<T> {
        match &mut self.skewed {
            Some(skewed) => skewed.fill(page, order, what),
            None => self.fill(page >> order, what),
        }
    }

    fn set(&self, number: u64) -> usize {
        index::set(self.index, number, 0, self.sets.len())
    }

    /// Uses the entry of which this is true, in the set of this number; returns it.
    pub(crate) fn hit(&mut self, number: u64, wanted: impl Fn(T) -> bool) -> Option<T> {
        let set = self.set(number);
        let way = self.sets[set].iter().position(|way| way.is_some_and(&wanted))?;
        self.replacement.touch(set, way, self.by);
        self.sets[set][way]
    }

    pub(crate) fn fill(&mut self, number: u64, what: T) -> Option<T> {
        let set = self.set(number);
        let vacant = self.sets[set].iter().position(|way| way.is_none());
        let way = self.replacement.victim(set, vacant);
        self.replacement.fill(set, way, self.by);
        self.sets[set][way].replace(what)
    }

    /// Drops all entries of which this is true; returns their number.
    pub(crate) fn drop(&mut self, gone: impl Fn(T) -> bool) -> u64 {
        let mut dropped = 0;
        if let Some(skewed) = &mut self.skewed {
            let before = skewed.entries.len();
            skewed.entries.retain(|_, (held, _)| !gone(*held));
            dropped += (before - skewed.entries.len()) as u64;
        }
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

    /// Replaces the first entry of the set of this number of which this is another one, as a use,
    /// and drops further ones; returns whether there is one.
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
        self.replacement.touch(set, way, self.by);
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
        let skewed = self.skewed.iter().flat_map(|skewed| skewed.entries.values().map(|(held, _)| held));
        self.sets.iter().flatten().flatten().chain(skewed)
    }
}
