//! Pieces: an entry covers one piece of a mapping, as large as guest and host both map it, for a
//! host that maps the guest's memory by pages of several sizes.
//!
//! Pieces of one mapping differ in size, so their numbers alone may collide. Numbers of
//! translations are *packed* here: the number that selects the set, and below it the order of the
//! piece ([`packed`]). A change of a mapping of the host flushes all TLBs of the guest
//! ([`crate::Mmu::host_promote`]), so all pieces at one page of a mapping have one size.

use super::{Entry, Joining, Lookup, PartialHits, Reach};
use crate::mappings::Mappings;
use crate::mappings::pte::Pte;
use crate::tlb::storage::{Cache, ORDER_BITS, packed};
use crate::tlb::uses::EntryId;
use std::ops::Range;
use superpage_pages::Vpn;

/// One entry per translation, of any size.
#[derive(Clone, Debug)]
pub(crate) struct Pieces;

impl Reach for Pieces {
    /// The packed number.
    type Payload = u64;

    #[inline(always)]
    fn selector(packed: u64) -> u64 {
        packed >> ORDER_BITS
    }

    #[inline(always)]
    fn fill(packed: u64) -> u64 {
        packed
    }

    #[inline(always)]
    fn covers(held: u64, packed: u64) -> bool {
        held == packed
    }

    /// As base pages.
    fn covered(held: u64, _: Range<u64>) -> Range<u64> {
        let order = held & ((1 << ORDER_BITS) - 1);
        let number = held >> ORDER_BITS;
        number << order..(number + 1) << order
    }

    fn without(held: u64, changed: &Range<u64>) -> Option<u64> {
        (!changed.contains(&held)).then_some(held)
    }

    #[inline(always)]
    fn access(cache: &mut Cache<Self>, asking: u64, lookup: &Lookup<'_>, _: &mut PartialHits) -> u64 {
        lookup.access_packed(cache, asking)
    }

    fn forget(cache: &mut Cache<Self>, numbers: &Range<u64>, head: u32, pte: Pte, _: Joining) -> u64 {
        // A base page is one piece; those of a superpage are in any sets.
        let base = packed(numbers.start, 0);
        cache.forget(&if pte.size_level() == 0 { base..base + 1 } else { 0..u64::MAX }, head)
    }

    fn validate(
        cache: &Cache<Self>,
        entry: Entry<Self>,
        _: u64,
        mappings: &Mappings,
        _: Joining,
    ) -> Result<(), String> {
        let Entry { key, payload, .. } = entry;
        let (pages, pte) = (Pieces::covered(payload, 0..0), mappings.ptes[key as usize]);
        let first = mappings.nodes.first_page(key).0;
        if pages.start < first || pages.end > first + (1 << mappings.order(pte.size_level())) {
            return Err(format!("the pages {pages:#x?} are not all of its mapping"));
        }
        let order = mappings.order(mappings.translated(Vpn(pages.start), key).size_level());
        if payload != packed(pages.start >> order, order) {
            return Err(format!("pieces are of order {order} there, and this one is at {payload:#x}"));
        }
        entry.is_at(cache, EntryId { number: payload, key })
    }
}
