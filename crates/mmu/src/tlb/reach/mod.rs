//! What one entry of a TLB covers. Each kind is a file.
//!
//! The hardware looks up *translations*: of a whole page, or, if a host backs a guest's page by
//! smaller ones, of a piece of their size. A translation is named by its mapping, which is the key
//! of an entry, and its number, which selects the set: the page's number in units of the
//! translation's size. An entry holds a key, and a payload that says which translations of that
//! mapping it covers. If an entry covers a whole mapping the payload is `()`, and costs nothing.
//!
//! An entry may also hold several mappings: base pages of a block ([`joint`]). Where the host maps
//! the guest's memory by pages of several sizes, the size of a translation follows from its place
//! ([`pieces`]).
//!
//! To add a kind, write its file (a type with [`Reach`], or with [`joint::Joins`]) and a line in
//! the list of [`entries`], and its naive twin in the tests (`brute_force`).

use crate::mappings::pte::Pte;
use crate::mappings::{Mappings, Stale};
use crate::tlb::batch::Batch;
use crate::tlb::storage::{Cache, packed};
use crate::tlb::uses::{EntryId, each};
use std::fmt::Debug;
use std::ops::Range;
use superpage_pages::Vpn;

mod coalesced;
mod complete_subblock;
pub(crate) mod entries;
mod exact;
mod fractured;
pub(crate) mod joint;
mod partial_subblock;
mod perforated;
mod pieces;
mod pointers;
mod runs;
mod skewed;

pub(crate) use exact::Exact;
pub(crate) use pointers::use_pointer;

/// What one entry covers, beyond its key. TLB code is compiled for each implementation, as it is
/// for each replacement.
pub(crate) trait Reach: Clone + Debug {
    /// The contents of an entry besides its key.
    type Payload: Copy + PartialEq + Debug + Default;

    /// Whether an entry is a whole mapping, so that there is at most one.
    const WHOLE: bool = false;
    /// Whether many machines have such entries: then code is compiled for each replacement.
    const COMMON: bool = false;

    /// The number that selects the set of this translation.
    #[inline(always)]
    fn selector(number: u64) -> u64 {
        number
    }

    /// The payload of a new entry, filled for this translation. By default an entry covers its
    /// whole mapping, here and in the next three.
    #[inline(always)]
    fn fill(_number: u64) -> Self::Payload {
        Self::Payload::default()
    }

    /// Whether an entry covers this translation of its mapping.
    #[inline(always)]
    fn covers(_payload: Self::Payload, _number: u64) -> bool {
        true
    }

    /// The translations that an entry covers, of all that its mapping has.
    fn covered(_payload: Self::Payload, mapping: Range<u64>) -> Range<u64> {
        mapping
    }

    /// The rest of an entry's payload when these translations of its mapping change; `None` if
    /// nothing is left, and the entry is dropped.
    #[inline(always)]
    fn without(_payload: Self::Payload, _changed: &Range<u64>) -> Option<Self::Payload> {
        None
    }

    /// Looks requests of a batch up, and fills on each miss; returns which missed. As
    /// [`Cache::access`].
    #[inline(always)]
    fn access(cache: &mut Cache<Self>, asking: u64, lookup: &Lookup<'_>, _: &mut PartialHits) -> u64 {
        cache.access(asking, lookup.batch.uses())
    }

    /// Uses the entry that covers one request of a batch; returns whether there is one.
    fn touch(cache: &mut Cache<Self>, index: usize, lookup: &Lookup<'_>) -> bool {
        cache.hit(lookup.batch.uses().at(index))
    }

    /// Drops entries that cover these translations of a mapping; returns how many. As
    /// [`Cache::forget`].
    #[inline(always)]
    fn forget(cache: &mut Cache<Self>, numbers: &Range<u64>, head: u32, _: Pte, _: Joining) -> u64 {
        cache.forget(numbers, head)
    }

    /// Takes the base page of this number out of the entries that it shares with others.
    fn separate(_: &mut Cache<Self>, _: u64, _: u32, _: Joining) {}

    /// Drops the stale parts of a perforated page, given by its first page-table entry and first
    /// page; returns the number of entries dropped.
    fn drop_region(_: &mut Cache<Self>, _first_id: u32, _first: Vpn, _: Stale, _: Joining) -> u64 {
        0
    }

    /// Looks up the perforated page of a hole, given by the page and its page-table entry, and the
    /// fragment of the bitmap; a hit is a use. The first bits of the sets say what was hit.
    fn partial_hits(_: &mut Cache<Self>, _kind: u8, _: Vpn, _id: u32, _: Joining) -> PartialHits {
        PartialHits::default()
    }

    /// What an entry holds.
    fn holds(key: u32, _: Self::Payload, _: &Mappings) -> Holds {
        Holds::Mapping(key)
    }

    /// Checks that an entry is where it is looked for and agrees with page tables. If it holds a
    /// mapping, which was checked, `number` is that of the first translation that it covers.
    fn validate(cache: &Cache<Self>, entry: Entry<Self>, number: u64, _: &Mappings, _: Joining) -> Result<(), String> {
        entry.is_at(cache, EntryId { number, key: entry.key })
    }
}

/// How the blocks of one TLB are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Joining {
    /// The base-two logarithm of the number of pages of a block, or of a perforated page.
    pub(crate) order: u32,
    /// The bits of page-table entries that must be alike.
    pub(crate) alike: u32,
    /// Whether a miss loads all pages that can be held with the one asked for, not that alone.
    pub(crate) prefetches: bool,
}

/// A look-up of requests of a batch in one TLB.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) mappings: &'a Mappings,
    pub(crate) joining: Joining,
    /// Requests that no TLB serves, and that are walked: they look up pointers alone.
    pub(crate) walked: u64,
}

impl Lookup<'_> {
    /// As [`Reach::access`], by numbers with the order of the translation ([`packed`]).
    #[inline(always)]
    fn access_packed<C: Reach>(&self, cache: &mut Cache<C>, asking: u64) -> u64 {
        let mut numbers = self.batch.numbers;
        for index in each(asking) {
            numbers[index] = packed(numbers[index], self.mappings.order(self.batch.located(index).kind >> 2));
        }
        cache.access(asking, self.batch.uses().by_numbers(&numbers))
    }
}

/// Requests of a batch that missed, but whose walks are shorter: bit sets, by what a TLB holds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct PartialHits {
    /// The perforated page's entry.
    pub(crate) regions: u64,
    /// The fragment of its bitmap.
    pub(crate) fragments: u64,
    /// The pointer to the table of the lowest level.
    pub(crate) pointers: u64,
}

/// What an entry holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    /// The mapping with this head, or a part of it.
    Mapping(u32),
    /// Several base pages, as bits from this page-table entry on.
    Pages(u32, u64),
    /// A perforated page.
    Perforated,
    /// A fragment of the bitmap of one.
    Bitmap,
    /// A pointer to a table of the lowest level.
    Pointer,
}

/// An entry, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct Entry<C: Reach> {
    pub(crate) set: usize,
    pub(crate) way: usize,
    pub(crate) key: u32,
    pub(crate) payload: C::Payload,
    /// The hardware thread of its core whose entry it is.
    pub(crate) sibling: u32,
}

impl<C: Reach> Entry<C> {
    /// Checks that it is where this is looked for.
    fn is_at(&self, cache: &Cache<C>, EntryId { number, key }: EntryId) -> Result<(), String> {
        if cache.selects(number, self.set) && cache.find_of(self.sibling, number, key) == Some(self.way) {
            return Ok(());
        }
        Err("the entry is not where it is looked for".into())
    }
}
