//! Skewed TLBs once more: for each page the list of places where it may be, and of each entry when
//! it was used.

use crate::index;
use std::collections::BTreeMap;
use superpage_mmu::{Index, TlbSpec};
use superpage_pages::PageSize;

/// Entries by way and set, each with the time of its last use.
#[derive(Debug)]
pub(crate) struct Skewed<T> {
    pub(crate) entries: BTreeMap<(usize, usize), (T, u64)>,
    now: u64,
    index: Index,
    sets: usize,
    ways: usize,
    /// By order of a size, the number of ways that those before it have, and its own.
    shares: BTreeMap<u32, (usize, usize)>,
    largest: u32,
}

impl<T: Copy> Skewed<T> {
    pub(crate) fn new(spec: &TlbSpec, base: PageSize) -> Skewed<T> {
        let order = |size: &PageSize| size.shift() - base.shift();
        let mut shares = BTreeMap::new();
        for (at, size) in spec.sizes.iter().enumerate() {
            let own = spec.size_ways.get(at).copied();
            let before = spec.size_ways.iter().take(at).sum();
            shares.insert(order(size), own.map_or((0, spec.ways()), |own| (before, own)));
        }
        let largest = spec.sizes.iter().map(order).max().unwrap();
        let (index, sets, ways) = (spec.index, spec.sets(), spec.ways());
        Skewed { entries: BTreeMap::new(), now: 0, index, sets, ways, shares, largest }
    }

    /// Where a page of this order may be, from the first way on.
    fn places(&self, page: u64, order: u32) -> Vec<(usize, usize)> {
        let (before, own) = self.shares[&order];
        // The golden ratio of 2^64 times the part of the address above the largest page: the
        // fraction says where to begin.
        let hashed = u128::from(page >> self.largest) * 0x9e37_79b9_7f4a_7c15 % (1 << 64) / (1 << 32);
        let turn = (hashed * self.ways as u128 / (1 << 32)) as usize;
        let serves = |way: &usize| (before..before + own).any(|place| place == (way + turn) % self.ways);
        (0..self.ways).filter(serves).map(|way| (way, index::set(self.index, page >> order, way, self.sets))).collect()
    }

    pub(crate) fn hit(&mut self, page: u64, order: u32, wanted: impl Fn(T) -> bool) -> Option<T> {
        self.now += 1;
        let held = |place: &(usize, usize)| self.entries.get(place).is_some_and(|(held, _)| wanted(*held));
        let place = self.places(page, order).into_iter().find(held)?;
        let entry = self.entries.get_mut(&place).unwrap();
        entry.1 = self.now;
        Some(entry.0)
    }

    pub(crate) fn fill(&mut self, page: u64, order: u32, what: T) -> Option<T> {
        self.now += 1;
        let places = self.places(page, order);
        let empty = places.iter().find(|place| !self.entries.contains_key(place));
        let place = empty.or_else(|| places.iter().min_by_key(|place| self.entries[place].1)).unwrap();
        self.entries.insert(*place, (what, self.now)).map(|(evicted, _)| evicted)
    }
}
