//! Skewed: an entry covers a whole mapping, as an exact one; in which ways it may be depends on its
//! size ([`crate::tlb::storage::Shares`]).

use super::{Asked, Entry, Joining, Known, Reach};
use crate::mappings::Mappings;
use crate::tlb::storage::{Cache, place};

/// One entry per mapping.
#[derive(Clone, Debug)]
pub(crate) struct Skewed;

impl Reach for Skewed {
    type Payload = ();

    const WHOLE: bool = true;

    fn access(cache: &mut Cache<Self>, asking: u64, asked: &Asked<'_>, _: &mut Known) -> u64 {
        let Asked { batch, mappings, .. } = *asked;
        cache.access(asking, |index| {
            let located = batch.located(index);
            located.using((place(located.number, mappings.order(located.kind >> 2)), located.head))
        })
    }

    fn validate(cache: &Cache<Self>, entry: Entry<Self>, mappings: &Mappings, _: Joining) -> Result<(), String> {
        let order = mappings.order(mappings.ptes[entry.key as usize].size_level());
        entry.is_at(cache, (place(entry.number, order), entry.key))
    }
}
