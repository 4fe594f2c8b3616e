//! Pages that have contents but are not populated: cache pages, in frames that count as free, and
//! swap pages.

use crate::object::population::NONE;
use crate::object::{ObjectId, PageOf};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// Where the contents of unpopulated pages are: the cache pages, by page and by frame, and the slot
/// of each page in swap space. A page may have both a cached frame and a slot; a slot belongs to at
/// most one page.
pub(crate) struct SwapAndCache {
    /// The frame of each cache page that counts as free.
    cached: BTreeMap<PageOf, u32>,
    /// The cache pages by frame.
    cached_in: HashMap<u32, PageOf, FxBuildHasher>,
    /// The slot of each page that has one, whether or not the page is populated.
    swapped: BTreeMap<PageOf, u32>,
    /// Slots below `fresh` that hold nothing; from there on all are empty.
    vacant: BTreeSet<u32>,
    fresh: u32,
    slots: u64,
}

/// Pages of an object that are cached or have a slot in swap space, by their index.
#[derive(Default)]
pub(crate) struct PagesIn {
    pub(crate) cached: Vec<CachedPage>,
    /// Those with a slot, which may be populated too.
    pub(crate) swapped: Vec<u64>,
}

/// A cache page of an object, and the frame that holds it.
pub(crate) struct CachedPage {
    pub(crate) index: u64,
    pub(crate) frame: u32,
}

impl PagesIn {
    /// The indices of the cached ones, and then of the others.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        self.cached.iter().map(|page| page.index).chain(self.swapped.iter().copied())
    }
}

impl SwapAndCache {
    /// With `slots` pages of swap space, all free.
    pub(crate) fn new(slots: u64) -> SwapAndCache {
        SwapAndCache {
            cached: BTreeMap::new(),
            cached_in: HashMap::default(),
            swapped: BTreeMap::new(),
            vacant: BTreeSet::new(),
            fresh: 0,
            slots: slots.min(u64::from(NONE)),
        }
    }

    /// Whether there is no such page at all: the first test of every fault.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.cached.is_empty() && self.swapped.is_empty()
    }

    pub(crate) fn cached(&self, page: PageOf) -> Option<u32> {
        if self.cached.is_empty() { None } else { self.cached.get(&page).copied() }
    }

    pub(crate) fn cached_in(&self, frame: u32) -> Option<PageOf> {
        if self.cached_in.is_empty() { None } else { self.cached_in.get(&frame).copied() }
    }

    pub(crate) fn cache(&mut self, page: PageOf, frame: u32) {
        self.cached.insert(page, frame);
        self.cached_in.insert(frame, page);
    }

    pub(crate) fn uncache(&mut self, frame: u32) {
        if let Some(page) = self.cached_in.remove(&frame) {
            self.cached.remove(&page);
        }
    }

    pub(crate) fn slot(&self, page: PageOf) -> Option<u32> {
        if self.swapped.is_empty() { None } else { self.swapped.get(&page).copied() }
    }

    /// The slot of a page; a free one is assigned if it has none. `None` if swap space is full.
    pub(crate) fn assign_slot(&mut self, page: PageOf) -> Option<u32> {
        if let Some(slot) = self.slot(page) {
            return Some(slot);
        }
        let slot = match self.vacant.pop_first() {
            Some(slot) => slot,
            None if u64::from(self.fresh) == self.slots => return None,
            None => {
                self.fresh += 1;
                self.fresh - 1
            }
        };
        self.swapped.insert(page, slot);
        Some(slot)
    }

    /// Whether there is any swap space.
    #[inline]
    pub(crate) fn has_slots(&self) -> bool {
        self.slots > 0
    }

    /// The number of free slots.
    pub(crate) fn vacant_slots(&self) -> u64 {
        self.slots - self.slots_used()
    }

    /// Frees the slot of a page.
    pub(crate) fn free_slot(&mut self, page: PageOf) {
        if let Some(slot) = self.swapped.remove(&page) {
            self.vacant.insert(slot);
        }
    }

    /// The number of slots in use.
    pub(crate) fn slots_used(&self) -> u64 {
        u64::from(self.fresh) - self.vacant.len() as u64
    }

    /// The pages of an object from `low` up to `high` that are cached or have a slot.
    pub(crate) fn pages_in(&self, object: ObjectId, low: u64, high: u64) -> PagesIn {
        if low >= high || self.is_empty() {
            return PagesIn::default();
        }
        let range = object.page(low)..object.page(high);
        let cached =
            self.cached.range(range.clone()).map(|(page, frame)| CachedPage { index: page.index, frame: *frame });
        let swapped = self.swapped.range(range).map(|(page, _)| page.index);
        PagesIn { cached: cached.collect(), swapped: swapped.collect() }
    }

    /// Whether a page of an object from `low` up to `high` is cached or has a slot. O(log pages).
    pub(crate) fn has_pages_in(&self, object: ObjectId, low: u64, high: u64) -> bool {
        let range = object.page(low)..object.page(high);
        low < high
            && !self.is_empty()
            && (self.cached.range(range.clone()).next().is_some() || self.swapped.range(range).next().is_some())
    }

    /// Moves what is recorded of a page to the page of another object with the same index.
    pub(crate) fn move_page(&mut self, from: PageOf, to: PageOf) {
        if let Some(frame) = self.cached.remove(&from) {
            self.cache(to, frame);
        }
        if let Some(slot) = self.swapped.remove(&from) {
            self.swapped.insert(to, slot);
        }
    }

    /// All cache pages, with their frames.
    pub(crate) fn all_cached(&self) -> impl Iterator<Item = (PageOf, u32)> + '_ {
        self.cached.iter().map(|(page, frame)| (*page, *frame))
    }

    /// All pages with a slot.
    pub(crate) fn all_swapped(&self) -> impl Iterator<Item = PageOf> + '_ {
        self.swapped.keys().copied()
    }

    /// Checks that both indexes hold the same cache pages, and that each slot is free or belongs to
    /// one page.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.cached.len() != self.cached_in.len()
            || self.cached.iter().any(|(page, frame)| self.cached_in.get(frame) != Some(page))
        {
            return Err("cache pages and their frames disagree".into());
        }
        let mut slots: Vec<u32> = self.swapped.values().copied().collect();
        slots.sort_unstable();
        slots.dedup();
        let vacant = slots.iter().find(|slot| self.vacant.contains(*slot) || **slot >= self.fresh);
        if slots.len() != self.swapped.len() || vacant.is_some() || self.slots_used() != slots.len() as u64 {
            return Err(format!("{} pages in swap space have {} slots", self.swapped.len(), slots.len()));
        }
        if self.vacant.last().is_some_and(|last| *last >= self.fresh) || u64::from(self.fresh) > self.slots {
            return Err(format!("{} slots of swap space were used, of {}", self.fresh, self.slots));
        }
        Ok(())
    }

    /// Bytes held; an estimate, since the trees do not tell how full their nodes are.
    pub(crate) fn metadata_bytes(&self) -> usize {
        (self.cached.len() + self.swapped.len()) * (size_of::<PageOf>() + 4)
            + self.cached_in.allocation_size()
            + self.vacant.len() * size_of::<u32>()
    }
}
