//! Pointers: besides entries of one mapping, a TLB holds the page-table entries that point to
//! tables of the lowest level, as a walk cache would: those of AMD's page directories (WikiChip,
//! Zen 2: "as well as page directory entries (PDEs) to speed up DTLB and ITLB table walks").
//!
//! A walk to such a table, for a request that no TLB serves, begins at the pointer if it is held;
//! if not it is loaded, before the translation is. A pointer is in the set that a page of the size
//! of what it spans would be in. Requests that the TLB does not serve look up pointers alone.

use super::{Entry, Holds, Joining, Lookup, PartialHits, Reach};
use crate::mappings::Mappings;
use crate::tlb::storage::Cache;
use crate::tlb::uses::{EntryId, Use, each};

/// One mapping, or a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Pointers;

/// The pointer to the table of this page-table entry, if that is one of the lowest level.
fn pointer(mappings: &Mappings, entry: u32) -> Option<EntryId> {
    if mappings.nodes.level_of(entry) != 1 {
        return None;
    }
    let above = mappings.parents[(entry >> mappings.nodes.bits()) as usize];
    Some(EntryId { number: mappings.nodes.number(above), key: above })
}

/// Uses the pointer to the table of this entry, or loads it; returns whether it was there.
pub(crate) fn use_pointer<C: Reach>(cache: &mut Cache<C>, mappings: &Mappings, entry: u32, kind: u8) -> bool {
    let Some(pointer) = pointer(mappings, entry) else { return false };
    let used = Use::by(kind, pointer);
    let hit = cache.hit(used);
    if !hit {
        cache.fill(used);
    }
    hit
}

impl Reach for Pointers {
    type Payload = ();

    const WHOLE: bool = true;

    fn access(cache: &mut Cache<Self>, asking: u64, lookup: &Lookup<'_>, partial: &mut PartialHits) -> u64 {
        let Lookup { batch, mappings, walked, .. } = *lookup;
        let mut missed = 0;
        for index in each(asking | walked) {
            let (own, used) = (asking >> index & 1 != 0, batch.uses().at(index));
            if own && cache.hit(used) {
                continue;
            }
            let located = batch.located(index);
            let hit = use_pointer(cache, mappings, located.entry, located.kind as u8);
            partial.pointers |= u64::from(hit) << index;
            if own {
                cache.fill(used);
                missed |= 1 << index;
            }
        }
        missed
    }

    fn holds(key: u32, (): (), mappings: &Mappings) -> Holds {
        if mappings.ptes[key as usize].is_table() { Holds::Pointer } else { Holds::Mapping(key) }
    }

    fn validate(
        cache: &Cache<Self>,
        entry: Entry<Self>,
        number: u64,
        mappings: &Mappings,
        _: Joining,
    ) -> Result<(), String> {
        let key = entry.key;
        if !mappings.ptes[key as usize].is_table() {
            return entry.is_at(cache, EntryId { number, key });
        }
        match mappings.nodes.level_of(key) {
            2 => entry.is_at(cache, EntryId { number: mappings.nodes.number(key), key }),
            level => Err(format!("the pointer is at level {level}")),
        }
    }
}
