//! Skewed structures: each way selects a set by a different function ([`crate::tlb::index`]), or
//! serves pages of some sizes only. Seznec, Concurrent support of multiple page sizes on a skewed
//! associative TLB, IEEE Transactions on Computers, 2004; AMD, Configurable skewed associativity in
//! a translation lookaside buffer, US patent 11106596.
//!
//! A lookup goes to all ways before it knows the page size. So the ways of a size follow from the
//! address bits above the largest page: a hash of them selects a first way, from which each size in
//! turn takes its number of ways, round the set. The candidate used longest ago is replaced; an
//! empty one counts as never used.
//!
//! Numbers of translations are *packed* here: the page's number in units of its size, and below it
//! the base-two logarithm of the base pages in that size.
//!
//! All of this is out of line, so that it costs nothing where structures have sets.

use super::Geometry;
use crate::machine::Index;
use crate::tlb::uses::{EMPTY, EntryId};

/// The bits of the order in a packed number.
pub(crate) const ORDER_BITS: u32 = 6;

/// The packed number of a page of this order, given its number in units of its size.
#[inline(always)]
pub(crate) fn packed(number: u64, order: u32) -> u64 {
    number << ORDER_BITS | u64::from(order)
}

/// Which ways serve which sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    /// The order of the largest size.
    largest: u32,
    /// By size: its order, and the first and the number of its ways, counted from the one that an
    /// address selects.
    sizes: Vec<(u32, usize, usize)>,
}

impl Shares {
    /// Shares of sizes of these orders, with these `numbers` of ways; all have all `ways` if no
    /// numbers are given.
    pub(crate) fn new(orders: &[u32], numbers: &[usize], ways: usize) -> Shares {
        let mut first = 0;
        let sizes = orders.iter().enumerate().map(|(at, order)| match numbers.get(at) {
            None => (*order, 0, ways),
            Some(number) => {
                first += number;
                (*order, first - number, *number)
            }
        });
        Shares { sizes: sizes.collect(), largest: orders.iter().copied().max().unwrap_or(0) }
    }
}

/// The entries, by way and set.
#[derive(Clone, Debug)]
pub(super) struct Skewed {
    geometry: Geometry,
    index: Index,
    pub(super) shares: Shares,
    tags: Vec<u32>,
    /// When each was used last; 0 if it is empty.
    used: Vec<u64>,
    now: u64,
    /// By key, where it was put last.
    entries: Vec<u32>,
}

impl Skewed {
    pub(super) fn new(geometry: Geometry, index: Index, shares: Shares) -> Skewed {
        let count = geometry.sets * geometry.ways;
        Skewed { geometry, index, shares, tags: vec![EMPTY; count], used: vec![0; count], now: 0, entries: Vec::new() }
    }

    /// Where a page may be.
    fn candidates(&self, packed: u64) -> impl Iterator<Item = usize> {
        let Geometry { sets, ways, .. } = self.geometry;
        let (number, order) = (packed >> ORDER_BITS, (packed & ((1 << ORDER_BITS) - 1)) as u32);
        let share = self.shares.sizes.iter().find(|(of, ..)| *of == order);
        let (_, first, count) = *share.expect("a TLB is asked for pages of its sizes");
        let spread = (number >> (self.shares.largest - order)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let turn = ((spread * ways as u64) >> 32) as usize;
        let index = self.index;
        let serving = (0..ways).filter(move |way| (first..first + count).contains(&((way + turn) % ways)));
        serving.map(move |way| way * sets + index.set(number, way, sets))
    }

    /// Where this key is, if it is there.
    fn at(&self, key: u32) -> Option<usize> {
        let at = *self.entries.get(key as usize)? as usize;
        (self.tags[at] == key).then_some(at)
    }

    fn touch(&mut self, at: usize) {
        self.now += 1;
        self.used[at] = self.now;
    }

    /// As [`super::Cache::access_one`]: whether it hits.
    #[cold]
    #[inline(never)]
    pub(super) fn access_one(&mut self, EntryId { number, key }: EntryId) -> bool {
        let hit = self.hit(key);
        if !hit {
            self.fill(number, key);
        }
        hit
    }

    #[cold]
    #[inline(never)]
    pub(super) fn hit(&mut self, key: u32) -> bool {
        let found = self.at(key);
        found.into_iter().for_each(|at| self.touch(at));
        found.is_some()
    }

    /// As [`super::Cache::fill`].
    #[cold]
    #[inline(never)]
    pub(super) fn fill(&mut self, packed: u64, key: u32) -> u32 {
        let at = self.candidates(packed).min_by_key(|at| self.used[*at]).expect("each size has a way");
        self.touch(at);
        if key as usize >= self.entries.len() {
            self.entries.resize(key as usize + 1, 0);
        }
        self.entries[key as usize] = at as u32;
        std::mem::replace(&mut self.tags[at], key)
    }

    /// Drops a key, if it is there; returns how many were dropped.
    #[cold]
    #[inline(never)]
    pub(super) fn forget(&mut self, key: u32) -> u64 {
        let Some(at) = self.at(key) else { return 0 };
        (self.tags[at], self.used[at]) = (EMPTY, 0);
        1
    }

    /// As [`super::Cache::drop_where`].
    pub(super) fn drop_where(&mut self, gone: &dyn Fn(u32) -> bool) {
        for (tag, used) in self.tags.iter_mut().zip(&mut self.used) {
            if *tag != EMPTY && gone(*tag) {
                (*tag, *used) = (EMPTY, 0);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        self.tags.fill(EMPTY);
        self.used.fill(0);
    }

    /// Set, way, key.
    pub(super) fn entries(&self) -> impl Iterator<Item = (usize, usize, u32)> {
        let sets = self.geometry.sets;
        let held = self.tags.iter().enumerate().filter(|(_, tag)| **tag != EMPTY);
        held.map(move |(at, tag)| (at % sets, at / sets, *tag))
    }

    /// The way that holds this key, among the candidates of its packed number.
    #[cold]
    #[inline(never)]
    pub(super) fn find(&self, packed: u64, key: u32) -> Option<usize> {
        self.candidates(packed).find(|at| self.tags[*at] == key).map(|at| at / self.geometry.sets)
    }

    /// Whether one of the ways selects this set.
    pub(super) fn selects(&self, packed: u64, set: usize) -> bool {
        self.candidates(packed).any(|at| at % self.geometry.sets == set)
    }

    /// Checks that each entry is where its key was put last, and so no other has that key, and that
    /// no two were used at one time.
    pub(super) fn validate(&self) -> Result<(), String> {
        let mut times: Vec<u64> = self.used.iter().copied().filter(|used| *used != 0).collect();
        times.sort_unstable();
        let once = times.windows(2).all(|pair| pair[0] < pair[1]) && times.last().is_none_or(|last| *last <= self.now);
        let sound = |(at, tag): (usize, &u32)| {
            (*tag == EMPTY) == (self.used[at] == 0) && (*tag == EMPTY || self.at(*tag) == Some(at))
        };
        match self.tags.iter().enumerate().position(|entry| !sound(entry)) {
            Some(at) => Err(format!("entry {at} holds key {} used at {}", self.tags[at], self.used[at])),
            None if once => Ok(()),
            None => Err("two entries were used at one time".into()),
        }
    }
}
