//! Skewed: an entry covers a whole mapping, as an exact one; in which ways it may be depends on its
//! size ([`crate::tlb::storage::Shares`]).

use super::{Entry, Joining, Lookup, PartialHits, Reach};
use crate::mappings::Mappings;
use crate::tlb::storage::{Cache, packed};
use crate::tlb::uses::EntryId;

/// One entry per mapping.
#[derive(Clone, Debug)]
pub(crate) struct Skewed;

impl Reach for Skewed {
    type Payload = ();

    const WHOLE: bool = true;

    fn access(cache: &mut Cache<Self>, asking: u64, lookup: &Lookup<'_>, _: &mut PartialHits) -> u64 {
        lookup.access_packed(cache, asking)
    }

    fn validate(
        cache: &Cache<Self>,
        entry: Entry<Self>,
        number: u64,
        mappings: &Mappings,
        _: Joining,
    ) -> Result<(), String> {
        let order = mappings.order(mappings.ptes[entry.key as usize].size_level());
        entry.is_at(cache, EntryId { number: packed(number, order), key: entry.key })
    }
}
