//! The TLBs of a machine.
//!
//! A request for a page of one size by one kind of access asks at most one TLB in each level, nearest first. An entry
//! maps one page of one size, in the set that its number in pages of that size selects (where a host backs superpages by base
//! pages, one piece of it, in the set that the piece's number selects). Since every change of a mapping
//! is shot down before it happens, an entry always agrees with the page table; so the size, the rights and the dirty bit
//! that the hardware would read from the entry are read from the record of the page.

use crate::batch::{Batch, KINDS, each};
use crate::cache::{Cache, EMPTY, Sets, on_sets};
use crate::counters::MAX_TLB_LEVELS;
use crate::machine::Machine;
use crate::record::Record;
use crate::replacement::Replace;
use crate::table::{Nodes, Tables};
use superpage_pages::{MAX_LEVELS, PageSize, Vpn};

/// One TLB.
#[derive(Clone, Debug)]
struct Tlb {
    cache: Cache,
    /// The kinds of request that ask it, as a bit set.
    kinds: u32,
    /// The levels of the ladder that it holds pages of, as a bit set.
    rungs: u32,
    /// Which of a record's places notes the way.
    place: usize,
    level: usize,
    /// Its place in the machine file.
    index: usize,
    /// For an inclusive TLB: the nearer ones that may hold only what it holds, as a bit set of places in the file.
    encloses: u32,
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

/// All TLBs.
#[derive(Clone, Debug)]
pub(crate) struct Tlbs {
    /// From the nearest level on.
    all: Vec<Tlb>,
    /// From a base page's number to that of the page of each size.
    orders: [u8; MAX_LEVELS],
    /// Whether one of them encloses another.
    inclusive: bool,
}

/// Where the requests of a batch were served, as bit sets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Served {
    /// By TLB level.
    pub(crate) hits: [u64; MAX_TLB_LEVELS],
    /// By no TLB: a walk is due.
    pub(crate) walks: u64,
}

impl Tlbs {
    /// Empty TLBs, as the machine file describes them; it has been checked.
    pub(crate) fn new(machine: &Machine) -> Tlbs {
        let ladder = machine.ladder();
        let mut all: Vec<Tlb> = Vec::new();
        for (index, (tlb, place)) in machine.tlb.iter().zip(machine.places()).enumerate() {
            let held = ladder.sizes().iter().enumerate().filter(|(_, size)| tlb.sizes.contains(size));
            let rungs: u32 = held.map(|(rung, _)| 1 << rung).sum();
            let asks = |kind: &usize| rungs >> (kind >> 2) & 1 != 0 && kind & 3 != 3 && tlb.serves.covers(kind & 3);
            let kinds = (0..KINDS).filter(asks).map(|kind| 1 << kind).sum();
            let cache = Cache::new(tlb.sets(), tlb.ways(), tlb.replacement);
            let encloses = machine.enclosed_by(tlb);
            all.push(Tlb { cache, kinds, rungs, place, level: tlb.level - 1, index, encloses });
        }
        all.sort_by_key(|tlb| tlb.level);
        let mut orders = [0; MAX_LEVELS];
        for (order, size) in orders.iter_mut().zip(ladder.sizes()) {
            *order = (size.shift() - ladder.base().shift()) as u8;
            // An entry holds no more than what the host has in one piece.
            if machine.host.is_some() {
                *order = 0;
            }
        }
        Tlbs { inclusive: all.iter().any(|tlb| tlb.encloses != 0), all, orders }
    }

    /// The number of the page with this record, in pages of its size, from that of a base page in it.
    #[inline(always)]
    pub(crate) fn number(&self, page: Vpn, record: Record) -> u64 {
        page.0 >> (self.orders[record.rung() % MAX_LEVELS] & 63)
    }

    /// Drops the page from all TLBs; returns the number of entries dropped.
    pub(crate) fn forget(&mut self, head: u32, first: Vpn, record: Record) -> u64 {
        let number = self.number(first, record);
        drop_from(&mut self.all, u32::MAX, head, number, record)
    }

    /// Empties all TLBs.
    pub(crate) fn flush(&mut self) {
        self.all.iter_mut().for_each(|tlb| tlb.cache.flush());
    }

    /// Takes a batch through all levels, and fills those that miss.
    #[inline(always)]
    pub(crate) fn translate(&mut self, records: &mut [Record], nodes: &Nodes, batch: &Batch) -> Served {
        if self.inclusive {
            return self.translate_inclusive(records, nodes, batch);
        }
        let mut served = Served { walks: batch.all(), ..Served::default() };
        for tlb in &mut self.all {
            let asking = batch.groups().iter().filter(|(kind, _)| tlb.kinds >> (kind & 31) & 1 != 0);
            let asking = asking.fold(0, |asking, (_, requests)| asking | requests) & served.walks;
            if asking != 0 {
                let missed = on_sets!(&mut tlb.cache, sets => pass(&mut sets, records, batch, tlb.place, asking));
                served.hits[tlb.level % MAX_TLB_LEVELS] |= asking & !missed;
                served.walks &= !asking | missed;
            }
        }
        served
    }

    /// The same where a level encloses nearer ones, request by request: the farthest is filled first, and makes room in
    /// those.
    #[inline(never)]
    fn translate_inclusive(&mut self, records: &mut [Record], nodes: &Nodes, batch: &Batch) -> Served {
        let mut served = Served::default();
        for index in each(batch.all()) {
            let (head, number) = (batch.heads[index], batch.numbers[index]);
            let asked =
                |tlb: &Tlb| batch.groups().iter().any(|(k, which)| which >> index & tlb.kinds as u64 >> k & 1 != 0);
            let hit = self.all.iter_mut().position(|tlb| {
                let way = records[head as usize].place(tlb.place);
                asked(tlb) && on_sets!(&mut tlb.cache, sets => sets.hit(number, way, head))
            });
            match hit {
                Some(at) => served.hits[self.all[at].level] |= 1 << index,
                None => served.walks |= 1 << index,
            }
            for at in (0..hit.unwrap_or(self.all.len())).rev() {
                let tlb = &mut self.all[at];
                if !asked(tlb) {
                    continue;
                }
                let (way, evicted) = on_sets!(&mut tlb.cache, sets => sets.fill(number, head));
                records[head as usize].set_place(tlb.place, way);
                let encloses = tlb.encloses;
                if encloses != 0 && evicted != EMPTY {
                    let record = records[evicted as usize];
                    let number = self.number(nodes.first_page(evicted), record);
                    drop_from(&mut self.all, encloses, evicted, number, record);
                }
            }
        }
        served
    }

    /// What each TLB holds, by size; what holds none is left out.
    pub(crate) fn held(&self, tables: &Tables) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        for tlb in &self.all {
            for (rung, size) in tables.ladder().sizes().iter().enumerate() {
                let of_size = |id: u32| tables.records[id as usize].rung() == rung;
                let entries = tlb.cache.entries().filter(|(_, _, id)| of_size(*id)).count() as u64;
                if entries > 0 {
                    held.push(Held { tlb: tlb.index, size: *size, entries });
                }
            }
        }
        held.sort_by_key(|held| held.tlb);
        held
    }

    /// Checks that every entry is a mapping of a size that its TLB holds, in its set, where its record says, so that no
    /// page is in a TLB twice; and that inclusive levels enclose what they must.
    pub(crate) fn validate(&self, tables: &Tables) -> Result<(), String> {
        for tlb in &self.all {
            let index = tlb.index;
            tlb.cache.validate().map_err(|error| format!("TLB {index}: {error}"))?;
            for (set, way, id) in tlb.cache.entries() {
                let record = tables.records[id as usize];
                let wrong = |what: &str| Err(format!("TLB {index} set {set} way {way}: {what}, {record:?}"));
                if !record.is_leaf() || Tables::head(id, record) != id {
                    return wrong("the entry is no mapping");
                }
                if tlb.rungs >> record.rung() & 1 == 0 {
                    return wrong("the TLB does not hold this size");
                }
                let number = self.number(tables.nodes.first_page(id), record);
                if !tlb.cache.selects(number, set) || record.place(tlb.place) != way {
                    return wrong("the entry is not where its page belongs");
                }
                let holds = |outer: &Tlb| outer.cache.holds(number, record.place(outer.place), id);
                let must = |outer: &&Tlb| outer.rungs >> record.rung() & 1 != 0 && outer.encloses >> index & 1 != 0;
                if !self.all.iter().filter(must).all(holds) {
                    return wrong("an inclusive level lacks the page");
                }
            }
        }
        Ok(())
    }
}

/// Takes some requests of a batch through one TLB, which is filled by those that miss; returns which.
#[inline(always)]
fn pass<R: Replace>(sets: &mut Sets<'_, R>, records: &mut [Record], batch: &Batch, place: usize, asking: u64) -> u64 {
    let mut missed = 0;
    for index in each(asking) {
        let (head, number) = (batch.heads[index], batch.numbers[index]);
        let record = &mut records[head as usize];
        if !sets.hit(number, record.place(place), head) {
            record.set_place(place, sets.fill(number, head).0);
            missed |= 1 << index;
        }
    }
    missed
}

/// Drops a page from those TLBs whose bit is set in `which`; `number` is its number in pages of its size.
fn drop_from(tlbs: &mut [Tlb], which: u32, head: u32, number: u64, record: Record) -> u64 {
    let holders = tlbs.iter_mut().filter(|tlb| which >> tlb.index & tlb.rungs >> record.rung() & 1 != 0);
    holders.map(|tlb| tlb.cache.forget(number, record.place(tlb.place), head) as u64).sum()
}
