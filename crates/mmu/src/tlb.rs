//! The TLBs of a machine and the routes through them.
//!
//! A *route* is what a request for a page of one size by one kind of access asks, nearest first: at most one TLB in each
//! level. An entry maps one page of one size, in the set that its number in pages of that size selects. Since every
//! change of a mapping is shot down before it happens, an entry always agrees with the page table; so the size, the
//! rights and the dirty bit that the hardware would read from the entry are read from the record of the page.

use crate::bank::{Bank, Outcome, Parts, Shape};
use crate::counters::MAX_TLB_LEVELS;
use crate::machine::Machine;
use crate::record::{PLACES, Record};
use crate::table::{Nodes, Tables};
use superpage_pages::{MAX_LEVELS, PageSize, Vpn};

/// One TLB on a route.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stop {
    shape: Shape,
    /// Which of the record's places notes the way.
    place: u32,
    /// From a base page's number to that of the page of this size.
    order: u32,
    level: u32,
    tlb: u32,
    /// For an inclusive TLB: the nearer ones that may hold only what it holds, as a bit set.
    encloses: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Route {
    stops: [Stop; MAX_TLB_LEVELS],
    len: u32,
    /// Whether one of the TLBs encloses another.
    inclusive: bool,
}

/// What a TLB holds of one page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The TLB, as its place in the machine file.
    pub tlb: usize,
    /// The size.
    pub size: PageSize,
    /// Entries for pages of it.
    pub entries: u64,
}

/// The number of routes: by size (level of the ladder) and access, `rung << 2 | access`.
const ROUTES: usize = MAX_LEVELS * 4;

/// All TLBs.
#[derive(Clone, Debug)]
pub(crate) struct Tlbs {
    bank: Bank,
    shapes: Vec<Shape>,
    routes: [Route; ROUTES],
    /// By size: every TLB that may hold a page of it.
    holders: [Vec<Stop>; MAX_LEVELS],
}

/// The TLBs lent for a stretch of work.
pub(crate) struct Lent<'a> {
    parts: Parts<'a>,
    routes: &'a [Route; ROUTES],
    holders: &'a [Vec<Stop>; MAX_LEVELS],
}

impl Tlbs {
    /// Empty TLBs, as the machine file describes them; it has been checked.
    pub(crate) fn new(machine: &Machine) -> Tlbs {
        let ladder = machine.ladder();
        let mut bank = Bank::default();
        let shapes: Vec<Shape> =
            machine.tlb.iter().map(|tlb| bank.add(tlb.sets(), tlb.ways(), tlb.replacement)).collect();
        let mut routes = [Route::default(); ROUTES];
        let mut holders = [const { Vec::new() }; MAX_LEVELS];
        for (rung, size) in ladder.sizes().iter().enumerate() {
            for (index, tlb) in machine.tlb.iter().enumerate().filter(|(_, tlb)| tlb.sizes.contains(size)) {
                holders[rung].push(Stop {
                    shape: shapes[index],
                    place: holders[rung].len() as u32,
                    order: size.shift() - ladder.base().shift(),
                    level: tlb.level as u32 - 1,
                    tlb: index as u32,
                    encloses: machine.enclosed_by(tlb),
                });
            }
            assert!(holders[rung].len() <= PLACES, "the machine was checked");
            for access in 0..3 {
                let route = &mut routes[rung << 2 | access];
                let mut stops: Vec<Stop> = holders[rung].clone();
                stops.retain(|stop| machine.tlb[stop.tlb as usize].serves.covers(access));
                stops.sort_by_key(|stop| stop.level);
                route.len = stops.len() as u32;
                route.inclusive = stops.iter().any(|stop| stop.encloses != 0);
                route.stops[..stops.len()].copy_from_slice(&stops);
            }
        }
        Tlbs { bank, shapes, routes, holders }
    }

    /// The TLBs, for a stretch of work.
    #[inline(always)]
    pub(crate) fn lend(&mut self) -> Lent<'_> {
        Lent { parts: self.bank.parts(), routes: &self.routes, holders: &self.holders }
    }

    /// Drops the page from all TLBs; returns the number of entries dropped.
    pub(crate) fn forget(&mut self, head: u32, first: Vpn, record: Record) -> u64 {
        drop_from(&mut self.bank.parts(), &self.holders, u32::MAX, head, first, record)
    }

    /// Empties all TLBs.
    pub(crate) fn flush(&mut self) {
        self.shapes.iter().for_each(|shape| self.bank.flush(shape));
    }

    /// What each TLB holds, by size; what holds none is left out.
    pub(crate) fn held(&self, tables: &Tables) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        for (index, shape) in self.shapes.iter().enumerate() {
            for (rung, size) in tables.ladder().sizes().iter().enumerate() {
                let of_size = |id: u32| tables.records[id as usize].rung() == rung;
                let entries = self.bank.entries(shape).filter(|(_, _, id)| of_size(*id)).count() as u64;
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
        for (index, shape) in self.shapes.iter().enumerate() {
            self.bank.validate(shape).map_err(|error| format!("TLB {index}: {error}"))?;
            for (set, way, id) in self.bank.entries(shape) {
                let record = tables.records[id as usize];
                let wrong = |what: &str| Err(format!("TLB {index} set {set} way {way}: {what}, {record:?}"));
                if !record.is_leaf() || Tables::head(id, record) != id {
                    return wrong("the entry is no mapping");
                }
                let holders = &self.holders[record.rung()];
                let Some(stop) = holders.iter().find(|stop| stop.tlb as usize == index) else {
                    return wrong("the TLB does not hold this size");
                };
                let number = tables.nodes.first_page(id).0 >> stop.order;
                if shape.set_of(number) != set || record.place(stop.place as usize) != way {
                    return wrong("the entry is not where its page belongs");
                }
                for outer in holders.iter().filter(|outer| outer.encloses >> index & 1 != 0) {
                    let place = record.place(outer.place as usize);
                    if !self.bank.holds(&outer.shape, outer.shape.set_of(number), place, id) {
                        return wrong("an inclusive level lacks the page");
                    }
                }
            }
        }
        Ok(())
    }
}

impl Lent<'_> {
    /// Looks the page up in the TLB that is asked first, and counts a hit there as a use; on a miss nothing changes.
    #[inline(always)]
    pub(crate) fn hit_nearest(&mut self, record: &Record, head: u32, page: Vpn, access: u64) -> bool {
        let stop = &self.routes[(record.rung() << 2 | access as usize) % ROUTES].stops[0];
        let (number, place) = (page.0 >> (stop.order & 63), record.place(stop.place as usize));
        stop.level == 0 && self.parts.access(&stop.shape, number, place, head, false) == Outcome::Hit
    }

    /// Looks the page up level by level and fills the levels that miss. Returns the level that hit, or `None` if a walk
    /// is due. `head` is the number of its record, which notes where the page now is.
    #[inline(always)]
    pub(crate) fn access(
        &mut self,
        records: &mut [Record],
        nodes: &Nodes,
        head: u32,
        page: Vpn,
        access: u64,
    ) -> Option<usize> {
        let record = records[head as usize];
        let route = &self.routes[(record.rung() << 2 | access as usize) % ROUTES];
        if route.inclusive {
            return self.access_inclusive(records, nodes, head, page, access);
        }
        let number = page.0 >> route.stops[0].order;
        for stop in &route.stops[..(route.len as usize).min(MAX_TLB_LEVELS)] {
            let place = record.place(stop.place as usize);
            match self.parts.access(&stop.shape, number, place, head, true) {
                Outcome::Filled { way, .. } => records[head as usize].set_place(stop.place as usize, way),
                _ => return Some(stop.level as usize),
            }
        }
        None
    }

    /// The same where a level encloses nearer ones: the farthest is filled first, and makes room in those.
    #[inline(never)]
    fn access_inclusive(
        &mut self,
        records: &mut [Record],
        nodes: &Nodes,
        head: u32,
        page: Vpn,
        access: u64,
    ) -> Option<usize> {
        let record = records[head as usize];
        let route = &self.routes[record.rung() << 2 | access as usize];
        let number = page.0 >> route.stops[0].order;
        let stops = &route.stops[..route.len as usize];
        let hit = stops.iter().position(|stop| {
            let place = record.place(stop.place as usize);
            self.parts.access(&stop.shape, number, place, head, false) == Outcome::Hit
        });
        for stop in stops[..hit.unwrap_or(stops.len())].iter().rev() {
            let place = record.place(stop.place as usize);
            let Outcome::Filled { way, evicted } = self.parts.access(&stop.shape, number, place, head, true) else {
                continue;
            };
            records[head as usize].set_place(stop.place as usize, way);
            if stop.encloses != 0 && evicted != Parts::NOTHING {
                let record = records[evicted as usize];
                drop_from(&mut self.parts, self.holders, stop.encloses, evicted, nodes.first_page(evicted), record);
            }
        }
        hit.map(|index| stops[index].level as usize)
    }
}

/// Drops a page from those TLBs whose bit is set in `which`.
fn drop_from(
    parts: &mut Parts<'_>,
    holders: &[Vec<Stop>; MAX_LEVELS],
    which: u32,
    head: u32,
    first: Vpn,
    record: Record,
) -> u64 {
    let mut dropped = 0;
    for stop in holders[record.rung()].iter().filter(|stop| which >> stop.tlb & 1 != 0) {
        let (set, way) = (stop.shape.set_of(first.0 >> stop.order), record.place(stop.place as usize));
        dropped += parts.forget(&stop.shape, set, way, head) as u64;
    }
    dropped
}
