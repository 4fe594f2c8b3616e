//! The TLBs of a machine and the routes through them.
//!
//! A *route* is what a request for a page of one size by one kind of access asks, nearest first: at most one TLB in each
//! level. An entry maps one page of one size, in the set that its number in pages of that size selects. Since every
//! change of a mapping is shot down before it happens, an entry always agrees with the page table; so the size, the
//! rights and the dirty bit that the hardware would read from the entry are read from the record of the page.

use crate::associative::Associative;
use crate::counters::{Counters, MAX_TLB_LEVELS};
use crate::machine::Machine;
use crate::record::{LEAF_PLACE_BITS, PLACES, Record};
use crate::table::Tables;
use superpage_pages::{MAX_LEVELS, PageSize, Vpn};

/// One TLB on a route.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stop {
    tlb: u16,
    /// The level, from 0.
    level: u16,
    /// From a base page's number to that of the page of this size.
    order: u32,
    /// Where in the record the way is noted.
    shift: u32,
    mask: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Route {
    /// From a base page's number to that of the page of this size.
    order: u32,
    len: u32,
    stops: [Stop; MAX_TLB_LEVELS],
}

/// What the TLBs hold of one page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The TLB, as its place in the machine file.
    pub tlb: usize,
    /// The size.
    pub size: PageSize,
    /// Entries for pages of it.
    pub entries: u64,
}

#[derive(Clone, Debug)]
struct Tlb {
    entries: Associative,
    /// For an inclusive TLB: the nearer ones that may hold only what it holds, as a bit set.
    encloses: u32,
}

/// All TLBs.
#[derive(Clone, Debug)]
pub(crate) struct Tlbs {
    tlbs: Vec<Tlb>,
    /// By size (level of the ladder) and access: `rung << 2 | access`.
    routes: [Route; MAX_LEVELS * 4],
    /// By size: every TLB that may hold a page of it.
    holders: [Vec<Stop>; MAX_LEVELS],
}

impl Tlbs {
    /// Empty TLBs, as the machine file describes them; it has been checked.
    pub(crate) fn new(machine: &Machine) -> Tlbs {
        let ladder = machine.ladder();
        let mut routes = [Route::default(); MAX_LEVELS * 4];
        let mut holders = [const { Vec::new() }; MAX_LEVELS];
        let tlbs = machine.tlb.iter().map(|tlb| Tlb {
            entries: Associative::new(tlb.sets(), tlb.ways(), tlb.replacement),
            encloses: machine.enclosed_by(tlb),
        });
        let tlbs: Vec<Tlb> = tlbs.collect();
        for (rung, size) in ladder.sizes().iter().enumerate() {
            let (mut shift, order) = (PLACES, size.shift() - ladder.base().shift());
            for (index, tlb) in machine.tlb.iter().enumerate().filter(|(_, tlb)| tlb.sizes.contains(size)) {
                let bits = tlbs[index].entries.way_bits();
                let stop = Stop { tlb: index as u16, level: tlb.level as u16 - 1, order, shift, mask: (1 << bits) - 1 };
                shift += bits;
                debug_assert!(shift <= PLACES + LEAF_PLACE_BITS);
                holders[rung].push(stop);
            }
            for access in 0..3 {
                let route = &mut routes[rung << 2 | access];
                route.order = order;
                let mut stops: Vec<Stop> = holders[rung].clone();
                stops.retain(|stop| machine.tlb[stop.tlb as usize].serves.covers(access));
                stops.sort_by_key(|stop| stop.level);
                route.len = stops.len() as u32;
                route.stops[..stops.len()].copy_from_slice(&stops);
            }
        }
        Tlbs { tlbs, routes, holders }
    }

    /// The bits that the ways of all TLBs for one size take in a record.
    pub(crate) fn place_bits(machine: &Machine, size: PageSize) -> u32 {
        let holders = machine.tlb.iter().filter(|tlb| tlb.sizes.contains(&size));
        holders.map(|tlb| usize::BITS - (tlb.ways() - 1).leading_zeros()).sum()
    }

    /// Looks the page up level by level and fills the levels that miss. Returns the level that hit, or `None` if a walk
    /// is due. `head` is the number of its record, which notes where the page now is.
    #[inline(always)]
    pub(crate) fn access(&mut self, tables: &mut Tables, head: u32, page: Vpn, access: u64) -> Option<usize> {
        let record = tables.records[head as usize];
        let route = &self.routes[record.rung() << 2 | access as usize];
        let number = page.0 >> route.order;
        let mut hit = None;
        let mut missed = 0;
        for stop in &route.stops[..route.len as usize] {
            let entries = &mut self.tlbs[stop.tlb as usize].entries;
            let (set, way) = (entries.set_of(number), record.place(stop.shift, stop.mask));
            if entries.holds(set, way, head) {
                entries.touch(set, way);
                hit = Some(stop.level as usize);
                break;
            }
            missed += 1;
        }
        if missed > 0 {
            let mut record = record;
            // The farthest first: an inclusive level makes room before the nearer ones take the page.
            for stop in route.stops[..missed].iter().rev() {
                let tlb = &mut self.tlbs[stop.tlb as usize];
                let (way, evicted) = tlb.entries.fill(tlb.entries.set_of(number), head);
                record = record.with_place(stop.shift, stop.mask, way);
                if tlb.encloses != 0
                    && let Some(evicted) = evicted
                {
                    let encloses = tlb.encloses;
                    let record = tables.records[evicted as usize];
                    drop_from(&mut self.tlbs, &self.holders, encloses, evicted, tables.first_page(evicted), record);
                }
            }
            tables.records[head as usize] = record;
        }
        hit
    }

    /// Drops the page from all TLBs; returns the number of entries dropped.
    pub(crate) fn forget(&mut self, head: u32, first: Vpn, record: Record) -> u64 {
        drop_from(&mut self.tlbs, &self.holders, u32::MAX, head, first, record)
    }

    /// Empties all TLBs.
    pub(crate) fn flush(&mut self) {
        self.tlbs.iter_mut().for_each(|tlb| tlb.entries.flush());
    }

    /// What each TLB holds, by size; what holds none is left out.
    pub(crate) fn held(&self, tables: &Tables) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        for (index, tlb) in self.tlbs.iter().enumerate() {
            for (rung, size) in tables.ladder().sizes().iter().enumerate() {
                let of_size = |id: u32| tables.records[id as usize].rung() == rung;
                let entries = tlb.entries.entries().filter(|(_, _, id)| of_size(*id)).count() as u64;
                if entries > 0 {
                    held.push(Held { tlb: index, size: *size, entries });
                }
            }
        }
        held
    }

    /// Checks that every entry is a mapping of a size that its TLB holds, in its set, where its record says, so that no
    /// page is in a TLB twice; and that inclusive levels enclose what they must.
    pub(crate) fn validate(&self, tables: &Tables) -> Result<(), String> {
        for (index, tlb) in self.tlbs.iter().enumerate() {
            tlb.entries.validate().map_err(|error| format!("TLB {index}: {error}"))?;
            for (set, way, id) in tlb.entries.entries() {
                let record = tables.records[id as usize];
                let wrong = |what: &str| Err(format!("TLB {index} set {set} way {way}: {what}, {record:?}"));
                if !record.is_leaf() || Tables::head(id, record) != id {
                    return wrong("the entry is no mapping");
                }
                let Some(stop) = self.holders[record.rung()].iter().find(|stop| stop.tlb as usize == index) else {
                    return wrong("the TLB does not hold this size");
                };
                let number = tables.first_page(id).0 >> tables.order(record.rung());
                if tlb.entries.set_of(number) != set || record.place(stop.shift, stop.mask) != way {
                    return wrong("the entry is not where its page belongs");
                }
                for outer in &self.holders[record.rung()] {
                    let enclosing = &self.tlbs[outer.tlb as usize];
                    let place = record.place(outer.shift, outer.mask);
                    if enclosing.encloses >> index & 1 != 0
                        && !enclosing.entries.holds(enclosing.entries.set_of(number), place, id)
                    {
                        return wrong("an inclusive level lacks the page");
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts a request that hit in this level, or was walked.
    #[inline(always)]
    pub(crate) fn count(counters: &mut Counters, hit: Option<usize>, access: u64) {
        match hit {
            Some(0) => {}
            Some(level) => counters.lower_hits[level % MAX_TLB_LEVELS][access as usize % 3] += 1,
            None => counters.walks[access as usize % 3] += 1,
        }
    }
}

/// Drops a page from those TLBs whose bit is set in `which`.
fn drop_from(
    tlbs: &mut [Tlb],
    holders: &[Vec<Stop>; MAX_LEVELS],
    which: u32,
    head: u32,
    first: Vpn,
    record: Record,
) -> u64 {
    let mut dropped = 0;
    for stop in holders[record.rung()].iter().filter(|stop| which >> stop.tlb & 1 != 0) {
        let entries = &mut tlbs[stop.tlb as usize].entries;
        let number = first.0 >> stop.order;
        let (set, way) = (entries.set_of(number), record.place(stop.shift, stop.mask));
        if entries.holds(set, way, head) {
            entries.invalidate(set, way);
            dropped += 1;
        }
    }
    dropped
}
