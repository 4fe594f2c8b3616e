//! The hardware of one core as the rest of the simulator sees it: it takes requests, returns traps and counts, and
//! provides the page-table operations that an operating system needs.

use crate::batch::{BATCH, Batch, Located, TOUCHES, Touch, kind};
use crate::counters::Counters;
use crate::lines::{Lines, Reads};
use crate::machine::Machine;
use crate::mappings::{MappingId, Mappings, Watch, Work};
use crate::recent::{Recent, Seen};
use crate::record::Record;
use crate::request::{Request, Trap};
use crate::table::{Format, TableFormat, on_format};
use crate::tlb::{Held, Tlbs};
use std::ops::Range;
use superpage_pages::{Access, Mapped, PageSize, Protection, Vpn};

/// The TLBs, page tables and walker of one core, and their counters.
#[derive(Clone, Debug)]
pub struct Mmu {
    mappings: Mappings,
    caches: Caches,
    counters: Counters,
    /// The part of it that was counted by walks to absent pages.
    faulting: Counters,
    space: u32,
    /// The number of TLB levels.
    levels: usize,
    numbers: Numbers,
    batch: Batch,
    recent: Recent,
    /// The last shootdown, its space and pages, if nothing was translated since: no TLB holds any of them.
    shot: Option<(u32, Range<u64>)>,
}

/// The structures that cache translations, apart from the mappings, so that these can notify them of changes.
#[derive(Clone, Debug)]
struct Caches {
    tlbs: Tlbs,
    format: Format,
    lines: Lines,
    dropped: u64,
}

impl Watch for Caches {
    fn leaf(&mut self, head: u32, first: Vpn, record: Record) {
        self.dropped += self.tlbs.forget(head, first, record);
    }

    fn pointer(&mut self, id: u32, level: usize, record: Record) {
        on_format!(&mut self.format, format => format.forget(id, level, record));
    }
}

/// Address space numbers, assigned in turn; when they run out, all are revoked and everything is flushed.
#[derive(Clone, Debug)]
struct Numbers {
    /// How many there are; 0 if the machine has none.
    available: u64,
    given: u64,
    /// Incremented when all numbers are revoked.
    generation: u64,
    /// For each space, the generation in which it last got a number.
    holders: Vec<u64>,
}

impl Numbers {
    fn new(bits: u32) -> Numbers {
        let available = if bits == 0 { 0 } else { 1 << bits };
        Numbers { available, given: 0, generation: 1, holders: Vec::new() }
    }

    /// Assigns a number if the space needs one. Returns whether running it from now on requires a flush.
    fn switch(&mut self, space: u32) -> bool {
        if self.available == 0 {
            return true;
        }
        if self.holders.len() <= space as usize {
            self.holders.resize(space as usize + 1, 0);
        }
        if self.holders[space as usize] == self.generation {
            return false;
        }
        let exhausted = self.given == self.available;
        if exhausted {
            self.generation += 1;
            self.given = 0;
        }
        self.given += 1;
        self.holders[space as usize] = self.generation;
        exhausted
    }
}

impl Mmu {
    /// A core of this machine with empty TLBs, running space 0, which has no page tables yet.
    pub fn new(machine: &Machine) -> Mmu {
        let shape = machine.page_table.kind.shape(machine);
        let (format, lines) = (Format::new(machine, &shape), Lines::new(machine));
        let mut numbers = Numbers::new(machine.spaces.number_bits);
        numbers.switch(0);
        let tlbs = Tlbs::new(machine);
        Mmu {
            mappings: Mappings::new(machine.ladder(), &shape),
            recent: Recent::new(tlbs.first_level()),
            caches: Caches { tlbs, format, lines, dropped: 0 },
            counters: Counters::default(),
            faulting: Counters::default(),
            space: 0,
            levels: machine.tlb_levels(),
            numbers,
            batch: Batch::new(),
            shot: None,
        }
    }

    /// The counts since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The part of the counts that is due to walks that found no page, and so ended in a fault.
    pub fn faulting(&self) -> &Counters {
        &self.faulting
    }

    /// What each TLB holds now, by page size.
    pub fn held(&self) -> Vec<Held> {
        self.caches.tlbs.held(&self.mappings)
    }

    /// The address space that requests are for.
    pub fn space(&self) -> u32 {
        self.space
    }

    /// Makes `space` the current address space for requests. Does nothing if it is already.
    pub fn switch(&mut self, space: u32) {
        if space == self.space {
            return;
        }
        self.space = space;
        self.counters.switches += 1;
        self.mappings.forget_stretches();
        self.recent.forget();
        if self.numbers.switch(space) {
            self.counters.flushes += 1;
            self.caches.tlbs.flush();
            on_format!(&mut self.caches.format, format => format.flush());
        }
    }

    /// Translates requests of the current space in order until one traps; returns its index and the reason.
    ///
    /// The request that traps has been counted, with its misses. The caller lets the operating system handle the trap,
    /// calls [`Mmu::retry`] and continues after that request. A first write to a clean page is not a trap here: the
    /// dirty bit is set in place and counted, whether the machine does that in hardware or by a trap.
    pub fn run(&mut self, requests: &[Request]) -> Option<(usize, Trap)> {
        self.shot = None;
        let mut done = 0;
        while done < requests.len() {
            let (taken, trap) = if self.recent.notes() {
                self.locate::<true>(&requests[done..])
            } else {
                let located = self.locate::<false>(&requests[done..]);
                self.recent.skip(located.0);
                located
            };
            if self.batch.len > 0 || !self.batch.touches.is_empty() {
                self.translate();
            }
            done += taken;
            if let Some(trap) = trap {
                self.count_trap(requests[done], trap);
                return Some((done, trap));
            }
        }
        None
    }

    /// Fills the TLBs for a request that trapped, without counting it.
    ///
    /// # Errors
    /// It would trap again; then nothing changes.
    pub fn retry(&mut self, request: Request) -> Result<(), Trap> {
        if let (_, Some(trap)) = self.locate::<false>(&[request]) {
            return Err(trap);
        }
        self.shot = None;
        self.caches.tlbs.load(&mut self.mappings, &self.batch);
        if self.recent.notes() {
            self.recent.note(request, &self.batch.located(0));
            self.recent.settle();
        }
        Ok(())
    }

    /// Finds the mappings of as many requests as do not trap and fill a batch, sets their use bits and makes a batch of
    /// those that must be translated: all, or without those that `SPARE` leaves out, which are counted. Returns how many it
    /// took, and why the next one traps.
    /// Nothing that happens in the TLBs can change these results, so all requests of a batch
    /// are located before the first is translated: their loads overlap.
    #[inline(always)]
    fn locate<const SPARE: bool>(&mut self, requests: &[Request]) -> (usize, Option<Trap>) {
        self.mappings.refresh();
        let (mut index, mut taken, mut trap, mut repeated) = (0, 0, None, [0; 4]);
        self.batch.touches.clear();
        while taken < requests.len() && index < BATCH {
            let request = requests[taken];
            let (page, access) = (request.page(), request.access_bits());
            match if SPARE { self.recent.see(request) } else { Seen::No } {
                Seen::No => {}
                seen => {
                    repeated[access as usize] += 1;
                    taken += 1;
                    if let Seen::Touches { head, set } = seen {
                        let (tlb, place) = self.recent.ordered(set);
                        let way = self.mappings.records[head as usize].place(place);
                        self.batch.touches.push(Touch { before: index as u8, tlb: tlb as u8, way: way as u16 });
                        if self.batch.touches.len() == TOUCHES {
                            break;
                        }
                    }
                    continue;
                }
            }
            let Some(entry) = self.mappings.entry(self.space, page) else {
                trap = Some(Trap::Absent);
                break;
            };
            let (mut head, mut record) = (entry, self.mappings.records[entry as usize]);
            if !record.is_ready(access) {
                match self.make_ready(entry, access) {
                    Ok(found) => (head, record) = (found, self.mappings.records[found as usize]),
                    Err(reason) => {
                        trap = Some(reason);
                        break;
                    }
                }
            }
            let number = self.caches.tlbs.number(page, record);
            let located = Located { head, entry, number, kind: kind(record, access) };
            if SPARE {
                self.recent.note(request, &located);
            }
            self.batch.set(index, located);
            index += 1;
            taken += 1;
        }
        if SPARE {
            self.recent.judge((taken - index) as u32, index as u32);
            self.counters.references.iter_mut().zip(repeated).for_each(|(count, more)| *count += more);
        }
        self.batch.close(index);
        (taken, trap)
    }

    /// The head of the mapping that the page-table entry belongs to, with the use bits that the access sets; or the
    /// reason why it traps.
    #[inline(always)]
    fn make_ready(&mut self, entry: u32, access: u64) -> Result<u32, Trap> {
        let head = Mappings::head(entry, self.mappings.records[entry as usize]);
        let record = &mut self.mappings.records[head as usize];
        if !record.allows(access) {
            return Err(match record.is_leaf() {
                true => Trap::Rights { held: record.protection() },
                false => Trap::Absent,
            });
        }
        let used = record.used_by(access);
        if used != *record {
            self.counters.dirty_updates += (used.dirty() && !record.dirty()) as u64;
            self.counters.reference_updates += !record.referenced() as u64;
            *record = used;
        }
        Ok(head)
    }

    /// Takes the batch through the TLBs, and walks for requests that miss in all.
    #[inline(always)]
    fn translate(&mut self) {
        let served = self.caches.tlbs.translate(&mut self.mappings, &self.batch);
        if self.recent.notes() {
            self.recent.settle();
        }
        for (kind, requests) in self.batch.groups() {
            let access = *kind as usize & 3;
            self.counters.references[access % 3] += requests.count_ones() as u64;
            self.counters.walks[access % 3] += (requests & served.walks).count_ones() as u64;
            for (counts, hits) in self.counters.lower_hits.iter_mut().zip(served.hits).take(self.levels).skip(1) {
                counts[access % 3] += (requests & hits).count_ones() as u64;
            }
        }
        if served.walks != 0 {
            let Caches { format, lines, .. } = &mut self.caches;
            let (mappings, reads) = (&mut self.mappings, Reads { lines, counters: &mut self.counters });
            on_format!(format, format => format.walk(mappings, &self.batch, served.walks, reads));
        }
    }

    /// Counts a request that traps: like any other if its page is mapped, else as a walk to the absent entry.
    #[cold]
    fn count_trap(&mut self, request: Request, trap: Trap) {
        let (page, access) = (request.page(), request.access_bits());
        match trap {
            Trap::Rights { .. } => {
                let entry = self.mappings.entry(self.space, page).expect("something is mapped there");
                let head = Mappings::head(entry, self.mappings.records[entry as usize]);
                let record = self.mappings.records[head as usize];
                let number = self.caches.tlbs.number(page, record);
                let located = Located { head, entry, number, kind: kind(record, access) };
                self.recent.note_use(&located);
                self.batch.touches.clear();
                self.batch.set(0, located);
                self.batch.close(1);
                self.translate();
            }
            Trap::Absent => {
                let mut walk = Counters::default();
                walk.references[access as usize] += 1;
                walk.walks[access as usize] += 1;
                let Caches { format, lines, .. } = &mut self.caches;
                let page = (self.space, page);
                let reads = Reads { lines, counters: &mut walk };
                on_format!(format, format => format.walk_absent(&mut self.mappings, page, reads));
                self.counters.add_walks(&walk);
                self.faulting.add_walks(&walk);
            }
        }
    }

    fn count_work(&mut self, work: Work) {
        self.counters.pte_writes += work.writes;
        self.counters.pte_traversals += work.traversals;
    }

    fn count_shootdown(&mut self, work: Work, space: u32, at: Vpn, size: PageSize) {
        self.recent.forget();
        self.count_work(work);
        self.counters.shootdown_entries += std::mem::take(&mut self.caches.dropped);
        self.shoot(space, at.0..at.0 + (size.bytes() >> self.mappings.ladder().base().shift()));
    }

    /// Drops these pages from the TLBs; does nothing if none of them was loaded since the last shootdown of the same
    /// pages.
    fn shoot(&mut self, space: u32, pages: Range<u64>) {
        let shot = self.shot.as_ref().filter(|(of, _)| *of == space).map(|(_, shot)| shot);
        if !shot.is_some_and(|shot| shot.start <= pages.start && pages.end <= shot.end) {
            self.counters.shootdowns += 1;
            self.shot = Some((space, pages));
        }
    }

    /// Adds a mapping where nothing is mapped, from the page `at` and its frame on: referenced, and dirty if it is made for a write. Panics if
    /// something is mapped there or `at` is not aligned, which would be a bug in the memory manager.
    pub fn enter(&mut self, space: u32, at: Vpn, to: Mapped, access: Access) {
        let work = self.mappings.enter(space, at, to, access);
        self.count_work(work);
    }

    /// Removes the mapping of `size` at `at`; returns whether it was referenced, and whether modified. Panics if there
    /// is none, as all operations on a mapping do.
    pub fn remove(&mut self, space: u32, at: Vpn, size: PageSize) -> Used {
        let (record, work) = self.mappings.remove(MappingId { space, at, size }, &mut self.caches);
        self.count_shootdown(work, space, at, size);
        Used::of(record)
    }

    /// Changes the rights of a mapping.
    pub fn protect(&mut self, space: u32, at: Vpn, size: PageSize, protection: Protection) {
        let work = self.mappings.protect(MappingId { space, at, size }, protection, &mut self.caches);
        self.count_shootdown(work, space, at, size);
    }

    /// Replaces all mappings of `from` in a region, which have contiguous frames and equal rights, by one mapping of
    /// `to`. Reads all their page-table entries, as real kernels do to gather the use bits.
    pub fn promote(&mut self, space: u32, at: Vpn, from: PageSize, to: PageSize) {
        let work = self.mappings.promote(MappingId { space, at, size: from }, to, &mut self.caches);
        self.count_shootdown(work, space, at, to);
    }

    /// Replaces one mapping of `from` by mappings of `to`, each with its rights and use bits.
    pub fn demote(&mut self, space: u32, at: Vpn, from: PageSize, to: PageSize) {
        let work = self.mappings.demote(MappingId { space, at, size: from }, to, &mut self.caches);
        self.count_shootdown(work, space, at, from);
    }

    /// The frame of the base page `at`, the size of the mapping, and its rights.
    pub fn lookup(&self, space: u32, at: Vpn) -> Option<Mapped> {
        self.mappings.lookup(space, at)
    }

    /// The use bits of a mapping: its use since they were last cleared.
    pub fn used(&self, space: u32, at: Vpn, size: PageSize) -> Used {
        Used::of(self.mappings.used(MappingId { space, at, size }))
    }

    /// Clears the reference bit of a mapping and returns whether it was set. If it was, the page is dropped from the
    /// TLBs, so that the next access sets the bit again.
    pub fn clear_referenced(&mut self, space: u32, at: Vpn, size: PageSize) -> bool {
        self.clear(space, at, size, Record::without_referenced).referenced
    }

    /// Clears the dirty bit of a mapping and returns whether it was set. If it was, the page is dropped from the TLBs.
    pub fn clear_modified(&mut self, space: u32, at: Vpn, size: PageSize) -> bool {
        self.clear(space, at, size, Record::without_dirty).modified
    }

    fn clear(&mut self, space: u32, at: Vpn, size: PageSize, change: fn(Record) -> Record) -> Used {
        let (before, work) = self.mappings.clear(MappingId { space, at, size }, change, &mut self.caches);
        if work != Work::default() {
            self.count_shootdown(work, space, at, size);
        }
        Used::of(before)
    }

    /// Flushes a space all of whose mappings will be removed, with none used meanwhile: one flush for all of them.
    pub fn flush(&mut self, space: u32) {
        if self.mappings.has_root(space) {
            self.shoot(space, 0..u64::MAX);
        }
    }

    /// Frees the tables of a space, whose number may be reused.
    pub fn destroy(&mut self, space: u32) {
        self.recent.forget();
        self.mappings.destroy(space, &mut self.caches);
        self.counters.shootdown_entries += std::mem::take(&mut self.caches.dropped);
    }

    /// Checks tables, TLBs and walker, each by itself and against each other. Cost: O(everything).
    ///
    /// # Errors
    /// A sentence that says what does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.mappings.validate()?;
        self.caches.tlbs.validate(&self.mappings)?;
        self.caches.lines.validate()?;
        for (request, head, number, tlb) in self.recent.certain() {
            let record = self.mappings.records[head as usize];
            let low = self.caches.tlbs.number(request.page(), record) as u32;
            let ready = record.allows(request.access_bits()) && record.used_by(request.access_bits()) == record;
            if !ready || low != number || !self.caches.tlbs.holds(tlb, request.page(), (head, record)) {
                return Err(format!("{request:?} would not hit TLB {tlb} unchanged: {record:?}"));
            }
        }
        on_format!(&self.caches.format, format => format.validate(&self.mappings))
    }
}

/// The use bits of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Accessed since the bit was cleared.
    pub referenced: bool,
    /// Written since the bit was cleared.
    pub modified: bool,
}

impl Used {
    fn of(record: Record) -> Used {
        Used { referenced: record.referenced(), modified: record.dirty() }
    }
}
