//! Perforated: besides entries of one mapping, a TLB holds perforated pages
//! ([`crate::mappings::Region`]) and fragments of their hole bitmaps. Park et al., Perforated page,
//! ISCA 2020.
//!
//! A page with a plain entry hits there: a hole, or a page that was loaded before its region was
//! perforated. Otherwise the perforated page's entry hits if its filter says that no hole is near,
//! or if the TLB holds the fragment of the bitmap and the page is no hole. A miss loads what the
//! walk reads: the fragment, and the entry of the perforated page or of the hole. Nearer levels
//! hold base pages. If a host backs the guest by smaller pages, no TLB holds perforated pages.
//!
//! A page that the host backs by several pages has several entries, so the payload is the whole
//! packed number ([`super::joint`]).

use super::joint::{ALONE, PART_BITS, alone, drop_entry};
use super::{Entry, Holds, Joining, Lookup, PartialHits, Reach};
use crate::mappings::pte::Pte;
use crate::mappings::{FRAGMENTS, Mappings, Stale, fragment_order};
use crate::tlb::storage::Cache;
use crate::tlb::uses::{EntryId, Use, each};
use std::ops::Range;
use superpage_pages::Vpn;

/// The part of an entry that is a perforated page.
const REGION: u64 = ALONE - 1;

/// One mapping, a perforated page, or a fragment of a bitmap.
#[derive(Clone, Debug)]
pub(crate) struct Perforated;

/// The entry of a perforated page of `1 << order` pages, given the number of any of them and its
/// first page-table entry.
fn of_region(number: u64, first_id: u32, order: u32) -> EntryId {
    EntryId { number: number >> order << PART_BITS | REGION, key: first_id }
}

/// The entry of the fragment of its bitmap that has the bit of this page.
fn of_fragment(number: u64, first_id: u32, order: u32) -> EntryId {
    let fragment = number >> fragment_order(order);
    EntryId { number: (fragment << PART_BITS) | (fragment % u64::from(FRAGMENTS)), key: first_id }
}

impl Reach for Perforated {
    /// The packed number.
    type Payload = u64;

    #[inline(always)]
    fn selector(packed: u64) -> u64 {
        packed >> PART_BITS
    }

    #[inline(always)]
    fn fill(packed: u64) -> u64 {
        packed
    }

    #[inline(always)]
    fn covers(held: u64, packed: u64) -> bool {
        held == packed
    }

    /// Of a mapping, or of the part of it that a host backs by one page.
    fn covered(held: u64, _: Range<u64>) -> Range<u64> {
        let number = Self::selector(held);
        number..number + 1
    }

    #[inline(always)]
    fn without(held: u64, changed: &Range<u64>) -> Option<u64> {
        (!changed.contains(&held)).then_some(held)
    }

    fn access(cache: &mut Cache<Self>, asking: u64, lookup: &Lookup<'_>, partial: &mut PartialHits) -> u64 {
        let (mappings, order, mut missed) = (lookup.mappings, lookup.joining.order, 0);
        for index in each(asking) {
            let located = lookup.batch.located(index);
            let own = located.using(alone(located.number, located.head));
            if cache.hit(own) {
                continue;
            }
            let region = (located.kind >> 2 == 0).then(|| mappings.region(located.entry)).flatten();
            let Some((region, part)) = region else {
                missed |= 1 << index;
                cache.fill(own);
                continue;
            };
            let first_id = located.entry - part;
            let whole = located.using(of_region(located.number, first_id, order));
            let fragment = located.using(of_fragment(located.number, first_id, order));
            let (is_hole, may_be_hole) = (region.is_hole(part), region.may_be_hole(part));
            let has_whole = cache.hit(whole);
            let has_fragment = may_be_hole && cache.hit(fragment);
            if has_whole && !is_hole && (has_fragment || !may_be_hole) {
                continue;
            }
            missed |= 1 << index;
            partial.regions |= u64::from(has_whole) << index;
            partial.fragments |= u64::from(has_fragment) << index;
            if may_be_hole && !has_fragment {
                cache.fill(fragment);
            }
            if is_hole {
                cache.fill(own);
            } else if !has_whole {
                cache.fill(whole);
            }
        }
        missed
    }

    fn forget(cache: &mut Cache<Self>, numbers: &Range<u64>, head: u32, pte: Pte, joining: Joining) -> u64 {
        let own: u64 = numbers.clone().map(|number| drop_entry(cache, alone(number, head))).sum();
        // As the instruction that drops a page does: all that translates its address, also that of
        // a larger page of the lowest table. No region has the key of a page above.
        let (first, pages) = (numbers.start << pte.replicas(), 1 << pte.replicas());
        let first_id = head & !((1 << joining.order) - 1);
        let whole = drop_entry(cache, of_region(first, first_id, joining.order));
        let fragments = (first..first + pages).step_by(1 << fragment_order(joining.order));
        let fragments = fragments.map(|page| drop_entry(cache, of_fragment(page, first_id, joining.order)));
        own + whole + fragments.sum::<u64>()
    }

    fn drop_region(cache: &mut Cache<Self>, first_id: u32, first: Vpn, stale: Stale, joining: Joining) -> u64 {
        let whole = if stale.whole { drop_entry(cache, of_region(first.0, first_id, joining.order)) } else { 0 };
        let fragments = (0..FRAGMENTS).filter(|fragment| stale.fragments >> fragment & 1 != 0);
        fragments.fold(whole, |dropped, fragment| {
            let at = first.0 + (u64::from(fragment) << fragment_order(joining.order));
            dropped + drop_entry(cache, of_fragment(at, first_id, joining.order))
        })
    }

    fn partial_hits(cache: &mut Cache<Self>, kind: u8, page: Vpn, id: u32, joining: Joining) -> PartialHits {
        let first_id = id & !((1 << joining.order) - 1);
        let [regions, fragments] = [of_region, of_fragment]
            .map(|entry| u64::from(cache.hit(Use::by(kind, entry(page.0, first_id, joining.order)))));
        PartialHits { regions, fragments, pointers: 0 }
    }

    fn holds(key: u32, held: u64, _: &Mappings) -> Holds {
        match held & ALONE {
            ALONE => Holds::Mapping(key),
            REGION => Holds::Perforated,
            _ => Holds::Bitmap,
        }
    }

    fn validate(
        cache: &Cache<Self>,
        entry: Entry<Self>,
        number: u64,
        mappings: &Mappings,
        joining: Joining,
    ) -> Result<(), String> {
        let key = entry.key;
        let part = entry.payload & ALONE;
        if part == ALONE {
            return entry.is_at(cache, alone(number, key));
        }
        if mappings.region(key).is_none_or(|(_, part)| part != 0) {
            return Err("there is no perforated page".into());
        }
        let first = mappings.nodes.first_page(key).0;
        entry.is_at(
            cache,
            match part {
                REGION => of_region(first, key, joining.order),
                fragment => of_fragment(first + (fragment << fragment_order(joining.order)), key, joining.order),
            },
        )
    }
}
