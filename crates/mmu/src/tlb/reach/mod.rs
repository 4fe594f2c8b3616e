//! What one entry of a TLB covers. Each kind is a file.
//!
//! The hardware looks up *translations*: a page of the guest, or, if a host backs that by smaller
//! pages, a piece of it of their size. A translation is named by its mapping (the key of an entry)
//! and its number: the page's number in units of the translation's size, which also selects the
//! set. An entry holds a key, and a payload that says which translations of that mapping it covers.
//! If an entry covers a whole mapping the payload is `()`, and costs nothing.
//!
//! An entry may also hold several mappings: base pages of a block ([`joint`]). Where the host maps
//! the guest's memory by pages of several sizes, the size of a translation follows from its place
//! ([`pieces`]).
//!
//! To add a kind, write its file (a type with [`Reach`], or with [`joint::Joins`]) and a line in
//! the list of [`entries`], and its naive twin in the tests (`brute_force`).

use crate::mappings::pte::Pte;
use crate::mappings::{Forgotten, Mappings};
use crate::tlb::batch::Batch;
use crate::tlb::storage::Cache;
use std::fmt::Debug;
use std::ops::Range;

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
    /// What an entry holds beside its key.
    type Payload: Copy + PartialEq + Debug + Default;

    /// Whether an entry is a whole mapping, so that there is at most one.
    const WHOLE: bool = false;

    /// The number that selects the set of this translation.
    #[inline(always)]
    fn selector(number: u64) -> u64 {
        number
    }

    /// The payload of a new entry, filled for this translation. This and the next three are those
    /// of a whole mapping, if not given.
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

    /// What is left of an entry when these translations of its mapping change; `None` if nothing
    /// is, and the entry is dropped.
    #[inline(always)]
    fn without(_payload: Self::Payload, _changed: &Range<u64>) -> Option<Self::Payload> {
        None
    }

    /// Looks requests of a batch up, and fills on each miss; returns which missed. As
    /// [`Cache::access`].
    #[inline(always)]
    fn access(cache: &mut Cache<Self>, asking: u64, asked: &Asked<'_>, _: &mut Known) -> u64 {
        cache.access(asking, |index| asked.batch.entry(index))
    }

    /// Uses what covers one request of a batch; returns whether something does.
    fn touch(cache: &mut Cache<Self>, index: usize, asked: &Asked<'_>) -> bool {
        cache.hit(asked.batch.entry(index))
    }

    /// Drops what covers these translations of a mapping; returns the number of entries dropped. As
    /// [`Cache::forget`].
    #[inline(always)]
    fn forget(cache: &mut Cache<Self>, numbers: &Range<u64>, head: u32, _: Pte, _: Joining) -> u64 {
        cache.forget(numbers, head)
    }

    /// Takes the base page of this number out of the entries that it shares with others.
    fn separate(_: &mut Cache<Self>, _: u64, _: u32, _: Joining) {}

    /// Drops what was known of a perforated page, given by its first page-table entry and the
    /// number of its first page; returns the number of entries dropped.
    fn forget_region(_: &mut Cache<Self>, _: (u32, u64), _: Forgotten, _: Joining) -> u64 {
        0
    }

    /// Whether it holds the perforated page of a hole, given by its number and its page-table
    /// entry, and the fragment of the bitmap; each is used by that.
    fn known(_: &mut Cache<Self>, _kind: u8, _: (u64, u32), _: Joining) -> (bool, bool) {
        (false, false)
    }

    /// What an entry holds.
    fn holds(key: u32, _: Self::Payload, _: &Mappings) -> Holds {
        Holds::Mapping(key)
    }

    /// Checks that an entry is where it is looked for and agrees with page tables. Those that hold
    /// a mapping were checked to hold one.
    fn validate(cache: &Cache<Self>, entry: Entry<Self>, _: &Mappings, _: Joining) -> Result<(), String> {
        entry.is_at(cache, (entry.number, entry.key))
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

/// A batch whose requests are looked up.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) mappings: &'a Mappings,
    pub(crate) joining: Joining,
    /// Requests that the TLB does not serve, and that none does: they are walked.
    pub(crate) walked: u64,
}

/// What TLBs hold of tables and of perforated pages in which requests of a batch missed, as bit
/// sets: the walk is shorter.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Known {
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
pub(crate) struct Entry<C: Reach> {
    pub(crate) set: usize,
    pub(crate) way: usize,
    pub(crate) key: u32,
    pub(crate) payload: C::Payload,
    /// The number of the first translation that it covers, if it holds a mapping.
    pub(crate) number: u64,
}

impl<C: Reach> Entry<C> {
    /// Checks that it is where this number and key are looked for.
    fn is_at(&self, cache: &Cache<C>, (number, key): (u64, u32)) -> Result<(), String> {
        match cache.selects(number, self.set) && cache.find(number, key) == Some(self.way) {
            true => Ok(()),
            false => Err("the entry is not where it is looked for".into()),
        }
    }
}
