//! Pieces: an entry covers one piece of a mapping, as large as guest and host both map it, for a
//! host that maps the guest's memory by pages of several sizes.
//!
//! Pieces of one mapping differ in size, so a number does not tell them apart. Numbers of
//! translations are *places* here: the number that selects the set, and below that the piece's
//! order. When the host changes a mapping, all TLBs of the guest are flushed
//! ([`crate::Mmu::host_promote`]): so at each page of a mapping there are pieces of one size.

use super::{Asked, Entry, Joining, Known, Reach};
use crate::mappings::Mappings;
use crate::mappings::pte::Pte;
use crate::tlb::storage::Cache;
use std::ops::Range;
use superpage_pages::Vpn;

/// Room for an order: the base-two logarithm of a number of base pages.
const ORDER_BITS: u32 = 6;

/// One entry per translation, each of a size of its own.
#[derive(Clone, Debug)]
pub(crate) struct Pieces;

/// The place of the piece with this number, in units of its size.
#[inline(always)]
fn place(number: u64, order: u32) -> u64 {
    number << ORDER_BITS | u64::from(order)
}

impl Reach for Pieces {
    /// The place.
    type Payload = u64;

    #[inline(always)]
    fn selector(place: u64) -> u64 {
        place >> ORDER_BITS
    }

    #[inline(always)]
    fn fill(place: u64) -> u64 {
        place
    }

    #[inline(always)]
    fn covers(held: u64, place: u64) -> bool {
        held == place
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
    fn access(cache: &mut Cache<Self>, asking: u64, asked: &Asked<'_>, _: &mut Known) -> u64 {
        let Asked { batch, mappings, .. } = *asked;
        cache.access(asking, |index| {
            let located = batch.located(index);
            located.using((place(located.number, mappings.order(located.kind >> 2)), located.head))
        })
    }

    fn forget(cache: &mut Cache<Self>, numbers: &Range<u64>, head: u32, pte: Pte, _: Joining) -> u64 {
        // A base page is one piece; those of a superpage are in any sets.
        let places = match pte.size_level() {
            0 => place(numbers.start, 0)..place(numbers.start, 0) + 1,
            _ => 0..u64::MAX,
        };
        cache.forget(&places, head)
    }

    fn validate(cache: &Cache<Self>, entry: Entry<Self>, mappings: &Mappings, _: Joining) -> Result<(), String> {
        let Entry { key, payload, .. } = entry;
        let (pages, pte) = (Pieces::covered(payload, 0..0), mappings.ptes[key as usize]);
        let first = mappings.nodes.first_page(key).0;
        if pages.start < first || pages.end > first + (1 << mappings.order(pte.size_level())) {
            return Err(format!("the pages {pages:#x?} are not all of its mapping"));
        }
        let order = mappings.order(mappings.translated(Vpn(pages.start), key).size_level());
        if payload != place(pages.start >> order, order) {
            return Err(format!("pieces are of order {order} there, and this one is at {payload:#x}"));
        }
        entry.is_at(cache, (payload, key))
    }
}
