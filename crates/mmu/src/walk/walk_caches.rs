//! The walk caches of a radix tree, also known as page-structure caches: for each level above the
//! lowest, a cache of pointers to the tables below it.
//!
//! A walk starts below the lowest table whose pointer is cached. The caches are searched from the
//! lowest level up; only the one that hits counts as used, and those below it are filled.

use crate::machine::{MAX_WALK_LEVELS, Machine, Replacement};
use crate::mappings::Mappings;
use crate::mappings::pte::Pte;
use crate::tlb::reach::Entry;
use crate::tlb::storage::Cache;
use crate::tlb::uses::{BATCH, EntryId, Uses};

/// The walk caches of a walker.
#[derive(Clone, Debug)]
pub(crate) struct WalkCaches {
    /// For pointers at level n, at index n - 1; the lowest level has none. A pointer's key is the
    /// number of its table.
    caches: [Option<Cache>; MAX_WALK_LEVELS],
    /// Whether a TLB holds the pointers at level 2.
    in_tlb: bool,
}

impl WalkCaches {
    /// Empty ones, as the machine file describes them.
    pub(super) fn new(machine: &Machine) -> WalkCaches {
        let mut caches = [const { None }; MAX_WALK_LEVELS];
        for cache in machine.walk_cache.iter().filter(|cache| machine.within(cache).is_none()) {
            caches[cache.level - 1] = Some(Cache::new(1, cache.entries, Replacement::Lru));
        }
        WalkCaches { caches, in_tlb: machine.walk_cache.iter().any(|cache| machine.within(cache).is_some()) }
    }

    /// Looks the pointers to tables up at the level of this index, for a bit set of walks, each of
    /// which has one of `tables`; returns the walks that find none, for which it is filled. A TLB
    /// had the pointers of `pointer_hits`.
    #[inline(always)]
    pub(super) fn missed(&mut self, index: usize, walks: u64, pointer_hits: u64, tables: &[u32; BATCH]) -> u64 {
        match &mut self.caches[index] {
            Some(cache) if walks != 0 => cache.access(walks, Uses::unasked(&[0; BATCH], tables)),
            None if index == 1 && self.in_tlb => walks & !pointer_hits,
            _ => walks,
        }
    }

    /// As [`missed`](WalkCaches::missed), for one walk, of which no TLB has pointers: whether it
    /// hits.
    pub(super) fn hits(&mut self, index: usize, table: u32) -> bool {
        self.caches[index].as_mut().is_some_and(|cache| cache.access_one(EntryId { number: 0, key: table }).0)
    }

    /// Drops the pointer to a table from the cache of this index.
    pub(super) fn forget(&mut self, index: usize, table: u32) {
        if let Some(cache) = &mut self.caches[index] {
            cache.forget(&(0..1), table);
        }
    }

    /// Makes room for so many hardware threads, when they are empty.
    pub(super) fn share(&mut self, siblings: u32) {
        self.caches.iter_mut().flatten().for_each(|cache| cache.share(siblings));
    }

    /// Serves this hardware thread from now on.
    pub(super) fn set_sibling(&mut self, sibling: u32) {
        self.caches.iter_mut().flatten().for_each(|cache| cache.set_sibling(sibling));
    }

    pub(super) fn flush(&mut self) {
        self.caches.iter_mut().flatten().for_each(Cache::flush);
    }

    /// Checks that they hold only tables that pointers of their level point to, where their places
    /// say. A table's number is that of its entries without their lowest `node_bits`.
    pub(super) fn validate(&self, mappings: &Mappings, node_bits: u32) -> Result<(), String> {
        for (index, cache) in self.caches.iter().enumerate() {
            let Some(cache) = cache else { continue };
            cache.validate()?;
            for Entry { way, key: table, sibling, .. } in cache.entries() {
                let id = mappings.parents[table as usize];
                let pte = mappings.ptes.get(id as usize).copied().unwrap_or(Pte::ABSENT);
                let points = pte.is_table() && pte.child() >> node_bits == table;
                if !points || mappings.nodes.level_of(id) != index + 1 || cache.find_of(sibling, 0, table) != Some(way)
                {
                    return Err(format!("walk cache {} holds table {table} in way {way}: {pte:?}", index + 1));
                }
            }
        }
        Ok(())
    }
}
