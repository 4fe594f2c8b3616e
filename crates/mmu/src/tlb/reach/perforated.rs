//! Perforated: besides entries of one mapping, a TLB holds perforated pages
//! ([`crate::mappings::Region`]) and fragments of their hole bitmaps. Park et al., Perforated page,
//! ISCA 2020.
//!
//! A page that has an entry of its own hits there: a hole, or a page that was loaded before its
//! region was perforated. Else the perforated page's entry hits if its filter has no hole near the
//! page, or if a fragment of the bitmap is held and the page is none. What a walk reads is loaded:
//! the fragment, and the entry of the perforated page, or of the hole. Nearer levels hold base
//! pages. A host may back all by pages that are no smaller; where its pages are smaller, no TLB
//! holds perforated pages.
//!
//! A page of several such pages of the host has several entries, so the payload is all of the
//! place.

use super::joint::{ALONE, PART_BITS, alone, drop_place};
use super::{Asked, Entry, Holds, Joining, Known, Reach};
use crate::mappings::pte::Pte;
use crate::mappings::{FRAGMENTS, Forgotten, Mappings, fragment_order};
use crate::tlb::batch::each;
use crate::tlb::replacement::Use;
use crate::tlb::storage::Cache;
use std::ops::Range;

/// In place of a page's place in its block: the entry is a perforated page.
const REGION: u64 = ALONE - 1;

/// One mapping, a perforated page, or a fragment of a bitmap.
#[derive(Clone, Debug)]
pub(crate) struct Perforated;

/// Where the entry of a perforated page is, and that of a fragment: by a page's number, the first
/// page-table entry of the region, and the base-two logarithm of its pages.
fn of_region(number: u64, first_id: u32, order: u32) -> (u64, u32) {
    (number >> order << PART_BITS | REGION, first_id)
}

fn of_fragment(number: u64, first_id: u32, order: u32) -> (u64, u32) {
    let fragment = number >> fragment_order(order);
    ((fragment << PART_BITS) | (fragment % u64::from(FRAGMENTS)), first_id)
}

impl Reach for Perforated {
    /// The place.
    type Payload = u64;

    #[inline(always)]
    fn selector(place: u64) -> u64 {
        place >> PART_BITS
    }

    #[inline(always)]
    fn fill(place: u64) -> u64 {
        place
    }

    #[inline(always)]
    fn covers(held: u64, place: u64) -> bool {
        held == place
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

    fn access(cache: &mut Cache<Self>, asking: u64, asked: &Asked<'_>, known: &mut Known) -> u64 {
        let (mappings, order, mut missed) = (asked.mappings, asked.joining.order, 0);
        for index in each(asking) {
            let located = asked.batch.located(index);
            let own = located.using(alone(located.number, located.head));
            if cache.hit(own) {
                continue;
            }
            let region = (located.kind >> 2 == 0).then(|| mappings.region(located.entry)).flatten();
            let Some((region, place)) = region else {
                missed |= 1 << index;
                cache.fill(own);
                continue;
            };
            let first_id = located.entry - place;
            let whole = located.using(of_region(located.number, first_id, order));
            let fragment = located.using(of_fragment(located.number, first_id, order));
            let (is_hole, may_be_hole) = (region.is_hole(place), region.may_be_hole(place));
            let has_whole = cache.hit(whole);
            let has_fragment = may_be_hole && cache.hit(fragment);
            if has_whole && !is_hole && (has_fragment || !may_be_hole) {
                continue;
            }
            missed |= 1 << index;
            known.regions |= u64::from(has_whole) << index;
            known.fragments |= u64::from(has_fragment) << index;
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
        let own: u64 = numbers.clone().map(|number| drop_place(cache, alone(number, head))).sum();
        if pte.size_level() > 0 {
            return own;
        }
        // As the instruction that drops a page does: all that translates its address.
        let first_id = head & !((1 << joining.order) - 1);
        let whole = drop_place(cache, of_region(numbers.start, first_id, joining.order));
        own + whole + drop_place(cache, of_fragment(numbers.start, first_id, joining.order))
    }

    fn forget_region(cache: &mut Cache<Self>, (first_id, first): (u32, u64), gone: Forgotten, joining: Joining) -> u64 {
        let whole = if gone.whole { drop_place(cache, of_region(first, first_id, joining.order)) } else { 0 };
        let fragments = (0..FRAGMENTS).filter(|fragment| gone.fragments >> fragment & 1 != 0);
        fragments.fold(whole, |dropped, fragment| {
            let at = first + (u64::from(fragment) << fragment_order(joining.order));
            dropped + drop_place(cache, of_fragment(at, first_id, joining.order))
        })
    }

    fn known(cache: &mut Cache<Self>, kind: u8, (number, id): (u64, u32), joining: Joining) -> (bool, bool) {
        let first_id = id & !((1 << joining.order) - 1);
        let [whole, fragment] =
            [of_region, of_fragment].map(|place| Use::by(kind, place(number, first_id, joining.order)));
        (cache.hit(whole), cache.hit(fragment))
    }

    fn holds(key: u32, held: u64, _: &Mappings) -> Holds {
        match held & ALONE {
            ALONE => Holds::Mapping(key),
            REGION => Holds::Perforated,
            _ => Holds::Bitmap,
        }
    }

    fn validate(cache: &Cache<Self>, entry: Entry<Self>, mappings: &Mappings, joining: Joining) -> Result<(), String> {
        let key = entry.key;
        let part = entry.payload & ALONE;
        if part == ALONE {
            return entry.is_at(cache, alone(entry.number, key));
        }
        if mappings.region(key).is_none_or(|(_, place)| place != 0) {
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
