//! The TLBs of a machine.
//!
//! A request for a page of one size by one kind of access looks into at most one TLB of each level, nearest first. What
//! an entry covers is defined in [`crate::reach`]; it is in the set that the number of its translation selects. Since
//! every change of a mapping is preceded by a shootdown, an entry always agrees with the page table. So the size, the
//! rights and the dirty bit, which hardware would read from the TLB entry, are read from the page-table entry of the
//! page.

use crate::batch::{Batch, KINDS, Touch, each};
use crate::cache::{Cache, EMPTY, Sets, on_sets};
use crate::counters::MAX_TLB_LEVELS;
use crate::machine::Machine;
use crate::mappings::Mappings;
use crate::reach::{Entries, Reach, on_entries};
use crate::recent::FirstLevel;
use crate::record::{PLACES, Record, WAYS_NOTED};
use crate::replacement::{Replace, Replacement};

use std::ops::Range;
use superpage_pages::{MAX_LEVELS, PageSize, Vpn};

/// One TLB.
#[derive(Clone, Debug)]
struct Tlb {
    entries: Entries,
    /// The kinds of request that it serves, as a bit set.
    kinds: u32,
    /// The levels of the ladder whose pages it holds, as a bit set.
    rungs: u32,
    /// Which of a page-table entry's places notes the way; none if this is [`PLACES`] or more.
    place: usize,
    /// The shift and the mask of that place in the page-table entry's word; the mask is 0 if there is none.
    shift: u32,
    mask: u32,
    level: usize,
    /// Its position in the machine file.
    index: usize,
    /// Whether it is one set with LRU, and page-table entries note the way of all that it holds.
    ordered: bool,
    /// For an inclusive TLB: the nearer ones that may hold only what it holds, as a bit set of positions in the file.
    encloses: u32,
}

impl Tlb {
    /// The way that a mapping's page-table entry remembers.
    #[inline(always)]
    fn noted(&self, record: Record) -> usize {
        (record.places() >> (self.shift & 31) & self.mask) as usize
    }
}

/// How many pages of one size a TLB holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The TLB, by its position in the machine file.
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
    /// By level of the ladder: the shift from a base page's number to that of the translation.
    orders: [u8; MAX_LEVELS],
    /// By level of the ladder: the base-two logarithm of the number of translations of a page.
    parts: [u8; MAX_LEVELS],
    /// Whether any of them is inclusive of others.
    inclusive: bool,
}

/// Where the requests of a batch were served, as bit sets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Served {
    /// By TLB level.
    pub(crate) hits: [u64; MAX_TLB_LEVELS],
    /// By no TLB: they must be walked.
    pub(crate) walks: u64,
}

impl Tlbs {
    /// Empty TLBs, as the machine file describes them; it has been checked.
    pub(crate) fn new(machine: &Machine) -> Tlbs {
        let ladder = machine.ladder();
        // A translation is no larger than what the host maps in one piece.
        let largest = machine.host.as_ref().map(|host| host.backs_by.unwrap_or(ladder.base()));
        let translated = |size: PageSize| largest.map_or(size, |largest| size.min(largest));
        let mut all: Vec<Tlb> = Vec::new();
        for (index, (tlb, place)) in machine.tlb.iter().zip(machine.places()).enumerate() {
            let held = ladder.sizes().iter().enumerate().filter(|(_, size)| tlb.sizes.contains(&translated(**size)));
            let rungs: u32 = held.map(|(rung, _)| 1 << rung).sum();
            let asks = |kind: &usize| rungs >> (kind >> 2) & 1 != 0 && kind & 3 != 3 && tlb.serves.covers(kind & 3);
            let kinds = (0..KINDS).filter(asks).map(|kind| 1 << kind).sum();
            let entries = Entries::new(machine, tlb, if place < PLACES { WAYS_NOTED } else { 1 });
            let (shift, mask) = if place < PLACES { (8 * place as u32, 0xff) } else { (0, 0) };
            let (level, encloses) = (tlb.level - 1, machine.enclosed_by(tlb));
            let noted = place < PLACES && tlb.ways() <= WAYS_NOTED && machine.host.is_none();
            let ordered = noted && tlb.sets() == 1 && tlb.replacement == Replacement::Lru;
            all.push(Tlb { entries, kinds, rungs, place, shift, mask, level, index, ordered, encloses });
        }
        all.sort_by_key(|tlb| tlb.level);
        let (mut orders, mut parts) = ([0; MAX_LEVELS], [0; MAX_LEVELS]);
        for (rung, size) in ladder.sizes().iter().enumerate() {
            orders[rung] = (translated(*size).shift() - ladder.base().shift()) as u8;
            parts[rung] = (size.shift() - translated(*size).shift()) as u8;
        }
        Tlbs { inclusive: all.iter().any(|tlb| tlb.encloses != 0), all, orders, parts }
    }

    /// The TLBs of the first level; none where a level includes nearer ones, and may drop what they hold.
    pub(crate) fn first_level(&self) -> impl Iterator<Item = FirstLevel> {
        let first = self.all.iter().enumerate().filter(|(_, tlb)| tlb.level == 0 && !self.inclusive);
        first.map(|(index, tlb)| FirstLevel {
            index,
            kinds: tlb.kinds,
            shape: on_entries!(&tlb.entries, cache => cache.shape),
            ordered: tlb.ordered.then_some(tlb.place),
        })
    }

    /// The number of the translation of this base page, in the page with this page-table entry.
    #[inline(always)]
    pub(crate) fn number(&self, page: Vpn, record: Record) -> u64 {
        page.0 >> (self.orders[record.rung() % MAX_LEVELS] & 63)
    }

    /// The numbers of all translations of a mapping.
    fn numbers(&self, first: Vpn, record: Record) -> Range<u64> {
        let number = self.number(first, record);
        number..number + (1 << self.parts[record.rung() % MAX_LEVELS])
    }

    /// Drops the page from all TLBs; returns the number of entries dropped.
    pub(crate) fn forget(&mut self, head: u32, first: Vpn, record: Record) -> u64 {
        let numbers = self.numbers(first, record);
        drop_from(&mut self.all, u32::MAX, head, numbers, record)
    }

    /// Empties all TLBs.
    pub(crate) fn flush(&mut self) {
        self.all.iter_mut().for_each(|tlb| on_entries!(&mut tlb.entries, cache => cache.flush()));
    }

    /// Takes a batch through all levels, and fills those in which requests miss.
    #[inline(always)]
    pub(crate) fn translate(&mut self, mappings: &mut Mappings, batch: &Batch) -> Served {
        if self.inclusive {
            return self.translate_inclusive(mappings, batch);
        }
        let records = &mut mappings.records[..];
        let mut served = Served { walks: batch.all(), ..Served::default() };
        for (at, tlb) in self.all.iter_mut().enumerate() {
            let asking = batch.groups().iter().filter(|(kind, _)| tlb.kinds >> (kind & 31) & 1 != 0);
            let asking = asking.fold(0, |asking, (_, requests)| asking | requests) & served.walks;
            if tlb.ordered && tlb.level == 0 && !batch.touches.is_empty() {
                let touches = batch.touches.iter().filter(|touch| touch.tlb as usize == at);
                let place = tlb.place;
                let missed = on_entries!(&mut tlb.entries, cache => {
                    on_sets!(cache, sets => pass_touched(&mut sets, records, batch, (touches, place), asking))
                });
                served.hits[0] |= asking & !missed;
                served.walks &= !asking | missed;
            } else if asking != 0 {
                let place = tlb.place;
                let missed = on_entries!(&mut tlb.entries, cache => {
                    on_sets!(cache, sets => pass(&mut sets, records, batch, place, asking))
                });
                served.hits[tlb.level % MAX_TLB_LEVELS] |= asking & !missed;
                served.walks &= !asking | missed;
            }
        }
        served
    }

    /// The same for a batch of one request, uncounted.
    #[inline(always)]
    pub(crate) fn load(&mut self, mappings: &mut Mappings, batch: &Batch) {
        if self.inclusive {
            self.translate_inclusive(mappings, batch);
            return;
        }
        let records = &mut mappings.records[..];
        let kind = batch.groups()[0].0;
        for tlb in self.all.iter_mut().filter(|tlb| tlb.kinds >> (kind & 31) & 1 != 0) {
            let place = tlb.place;
            let missed = on_entries!(&mut tlb.entries, cache => {
                on_sets!(cache, sets => pass(&mut sets, records, batch, place, 1))
            });
            if missed == 0 {
                return;
            }
        }
    }

    /// The same where a level includes nearer ones, request by request: the farthest is filled first, and what it
    /// evicts is dropped from those.
    #[inline(never)]
    fn translate_inclusive(&mut self, mappings: &mut Mappings, batch: &Batch) -> Served {
        let mut served = Served::default();
        for index in each(batch.all()) {
            let (head, number) = (batch.heads[index], batch.numbers[index]);
            let asked =
                |tlb: &Tlb| batch.groups().iter().any(|(k, which)| which >> index & tlb.kinds as u64 >> k & 1 != 0);
            let hit = self.all.iter_mut().position(|tlb| {
                let noted = tlb.noted(mappings.records[head as usize]);
                asked(tlb)
                    && on_entries!(&mut tlb.entries, cache => on_sets!(cache, sets => sets.hit(number, noted, head)))
            });
            match hit {
                Some(at) => served.hits[self.all[at].level] |= 1 << index,
                None => served.walks |= 1 << index,
            }
            for at in (0..hit.unwrap_or(self.all.len())).rev() {
                if asked(&self.all[at]) {
                    self.fill_inclusive(at, number, head, mappings);
                }
            }
        }
        served
    }

    /// Fills one TLB, and drops what it evicts from the nearer ones that it includes.
    fn fill_inclusive(&mut self, at: usize, number: u64, head: u32, mappings: &mut Mappings) {
        let Mappings { records, nodes, .. } = mappings;
        let (orders, parts) = (self.orders, self.parts);
        let tlb = &mut self.all[at];
        let encloses = tlb.encloses;
        let (way, evicted) = on_entries!(&mut tlb.entries, cache => on_sets!(cache, sets => {
            let (way, evicted, payload) = sets.fill(number, head);
            let covered = (encloses != 0 && evicted != EMPTY).then(|| {
                let rung = records[evicted as usize].rung();
                let first = nodes.first_page(evicted).0 >> orders[rung];
                (evicted, sets.covered(payload, first..first + (1 << parts[rung])))
            });
            (way, covered)
        }));
        if tlb.place < PLACES {
            records[head as usize].set_place(tlb.place, way);
        }
        if let Some((evicted, numbers)) = evicted {
            drop_from(&mut self.all, encloses, evicted, numbers, records[evicted as usize]);
        }
    }

    /// How many pages of each size each TLB holds, without zeroes.
    pub(crate) fn held(&self, mappings: &Mappings) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        for tlb in &self.all {
            for (rung, size) in mappings.ladder().sizes().iter().enumerate() {
                let of_size = |id: u32| mappings.records[id as usize].rung() == rung;
                let entries = on_entries!(&tlb.entries, cache => {
                    cache.entries().filter(|(_, _, id, _)| of_size(*id)).count() as u64
                });
                if entries > 0 {
                    held.push(Held { tlb: tlb.index, size: *size, entries });
                }
            }
        }
        held.sort_by_key(|held| held.tlb);
        held
    }

    /// Checks that every entry is a mapping of a size that its TLB holds, in its set, where its page-table entry says,
    /// so that no page is in a TLB twice; and that inclusive levels hold what they must.
    pub(crate) fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.all.iter().try_for_each(|tlb| on_entries!(&tlb.entries, cache => self.validate_one(tlb, cache, mappings)))
    }

    /// Whether a TLB holds the translation of this page.
    pub(crate) fn holds(&self, tlb: usize, page: Vpn, (head, record): (u32, Record)) -> bool {
        let (number, noted) = (self.number(page, record), self.all[tlb].noted(record));
        on_entries!(&self.all[tlb].entries, cache => cache.find(number, noted, head).is_some())
    }

    fn validate_one<C: Reach>(&self, tlb: &Tlb, cache: &Cache<C>, mappings: &Mappings) -> Result<(), String> {
        let index = tlb.index;
        cache.validate().map_err(|error| format!("TLB {index}: {error}"))?;
        for (set, way, id, payload) in cache.entries() {
            let record = mappings.records[id as usize];
            let wrong = |what: &str| Err(format!("TLB {index} set {set} way {way}: {what}, {record:?}"));
            if !record.is_leaf() || Mappings::head(id, record) != id {
                return wrong("the entry is not a mapping");
            }
            if tlb.rungs >> record.rung() & 1 == 0 {
                return wrong("the TLB does not hold this size");
            }
            let covered = C::covered(payload, self.numbers(mappings.nodes.first_page(id), record));
            let number = covered.start;
            if !cache.selects(number, set) || cache.find(number, tlb.noted(record), id) != Some(way) {
                return wrong("the entry is not where its page belongs");
            }
            let holds = |outer: &Tlb| {
                let noted = outer.noted(record);
                on_entries!(&outer.entries, cache => covered.clone().all(|number| cache.find(number, noted, id).is_some()))
            };
            let must = |outer: &&Tlb| outer.rungs >> record.rung() & 1 != 0 && outer.encloses >> index & 1 != 0;
            if !self.all.iter().filter(must).all(holds) {
                return wrong("an inclusive level lacks the page");
            }
        }
        Ok(())
    }
}

/// Takes some requests of a batch through one TLB, which is filled for those that miss; returns which missed.
#[inline(always)]
fn pass<C: Reach, R: Replace>(
    sets: &mut Sets<'_, C, R>,
    records: &mut [Record],
    batch: &Batch,
    place: usize,
    asking: u64,
) -> u64 {
    if place >= PLACES {
        return pass_unnoted(sets, batch, asking);
    }
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

/// The same of a TLB of one set, with touches in between.
#[inline(always)]
fn pass_touched<'a, C: Reach, R: Replace>(
    sets: &mut Sets<'_, C, R>,
    records: &mut [Record],
    batch: &Batch,
    (touches, place): (impl Iterator<Item = &'a Touch>, usize),
    asking: u64,
) -> u64 {
    let (mut missed, mut touches) = (0, touches.peekable());
    for index in each(asking) {
        while let Some(touch) = touches.next_if(|touch| touch.before as usize <= index) {
            sets.kept.touch(0, touch.way as usize);
        }
        missed |= pass(sets, records, batch, place, 1 << index);
    }
    touches.for_each(|touch| sets.kept.touch(0, touch.way as usize));
    missed
}

/// The same where page-table entries have no place for the TLB.
#[inline(never)]
fn pass_unnoted<C: Reach, R: Replace>(sets: &mut Sets<'_, C, R>, batch: &Batch, asking: u64) -> u64 {
    let mut missed = 0;
    for index in each(asking) {
        let (head, number) = (batch.heads[index], batch.numbers[index]);
        if !sets.hit(number, 0, head) {
            sets.fill(number, head);
            missed |= 1 << index;
        }
    }
    missed
}

/// Drops these translations of a page from those TLBs whose bit is set in `which`.
fn drop_from(tlbs: &mut [Tlb], which: u32, head: u32, numbers: Range<u64>, record: Record) -> u64 {
    let (rung, mut dropped) = (1 << record.rung(), 0);
    for tlb in tlbs.iter_mut().filter(|tlb| tlb.rungs & rung != 0 && which >> tlb.index & 1 != 0) {
        let noted = tlb.noted(record);
        dropped += on_entries!(&mut tlb.entries, cache => cache.forget(&numbers, noted, head));
    }
    dropped
}
