//! The first-level TLBs: they take requests, and pass on their misses.
//!
//! Only their misses reach the further levels, which never change the first. So one first level can
//! have the further levels of several machines behind it, and equal further levels are simulated
//! once, with a walker for each machine. Where further levels do change the first (an inclusive
//! level, or a first-level TLB that holds pointers to tables), the first level is empty and all
//! TLBs are further ones.

use crate::counters::Counters;
use crate::machine::Machine;
use crate::machine::STREAM_LINE_SHIFT;
use crate::mappings::{Invalidate, Mapping, Mappings, Pointer, SpacePage, Stale};
use crate::request::{Request, Trap};
use crate::tlb::Tlbs;
use crate::tlb::batch::{Batch, Located, kind};
use crate::tlb::further::FurtherLevels;
use crate::tlb::noted::Noted;
use crate::tlb::recent::{Recent, TlbEntry};
use crate::tlb::storage::prefetch;
use crate::tlb::uses::{BATCH, EntryId, each};
use crate::walk::{ProgramLines, Walker};
use std::ops::Range;
use superpage_pages::{Access, Vpn};

/// The TLBs of the first level, and all machines that have them.
#[derive(Clone, Debug)]
pub(crate) struct FirstLevel {
    pub(crate) tlbs: Tlbs,
    /// Of each hardware thread of the core.
    asids: Vec<Asids>,
    /// The current one.
    sibling: u32,
    recent: Recent,
    /// Whether small sets have ways ([`Tlbs::set_placed`]): while requests are taken one by one.
    placed: bool,
    pub(crate) batch: Box<Batch>,
    /// How many requests are located together. Few after a trap, since those behind the next trap
    /// are located in vain.
    ahead: usize,
    /// Requests that missed and wait until they fill a batch or the requests end; and their number.
    pub(crate) misses: Box<Batch>,
    pub(crate) waiting: usize,
    /// Whether they wait across traps too ([`crate::waiting`]).
    pub(crate) defers: bool,
    /// Use bits on which entries depend, here or behind: before an access sets one, all earlier
    /// requests are served.
    pub(crate) compared: u32,
    /// Whether walks depend on the base page of each request: then each request is in a batch.
    by_page: bool,
    /// The counts that all machines behind it have in common.
    pub(crate) counters: Counters,
    /// The different further levels of these machines.
    pub(crate) further: Vec<FurtherLevels>,
    /// Mappings that missed in the first level, if they are noted.
    pub(crate) noted: Option<Noted>,
    line_shifts: LineShifts,
}

/// Requests, and for each the line within its base page, in lines of 64 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Lined<'a> {
    pub(crate) requests: &'a [Request],
    pub(crate) lines: &'a [u32],
}

/// How many requests of a slice were taken, and why the next one traps, if it does.
struct Progress {
    taken: usize,
    trap: Option<Trap>,
}

/// The shifts by which a line of the stream in its page becomes a line of the caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineShifts {
    /// The base-two logarithm of the lines of 64 bytes in a base page.
    page: u32,
    /// The base-two logarithm of the lines of 64 bytes in a line of the machine.
    line: u32,
}

impl LineShifts {
    pub(crate) fn new(machine: &Machine) -> LineShifts {
        let page = machine.ladder().base().shift() - STREAM_LINE_SHIFT;
        LineShifts { page, line: machine.memory.line_bytes.ilog2().saturating_sub(STREAM_LINE_SHIFT) }
    }

    fn line(self, frame: u64, line: u32) -> u32 {
        ((frame << self.page | u64::from(line)) >> self.line) as u32
    }

    /// The lines of these frames.
    fn lines(self, frames: &Range<u64>) -> Range<u32> {
        self.line(frames.start, 0)..self.line(frames.end, 0)
    }
}

/// Address space numbers (ASIDs), assigned in turn; when they run out, all are revoked and
/// everything is flushed.
#[derive(Clone, Debug)]
struct Asids {
    /// How many there are; 0 if the machine has none.
    available: u64,
    given: u64,
    /// Incremented when all numbers are revoked.
    generation: u64,
    /// For each space, the generation in which it last got a number.
    holders: Vec<u64>,
}

impl Asids {
    fn new(bits: u32) -> Asids {
        let available = if bits == 0 { 0 } else { 1 << bits };
        Asids { available, given: 0, generation: 1, holders: Vec::new() }
    }

    /// Assigns a number if the space needs one. Returns whether running it from now on requires a
    /// flush.
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

impl FirstLevel {
    /// The empty first level of a machine, with nothing behind it.
    pub(crate) fn new(tlbs: Tlbs, machine: &Machine) -> FirstLevel {
        // Whether walks depend on the base page of each request.
        let by_page = machine.clustered.is_some() || machine.groups.is_some();
        let mut asids = Asids::new(machine.spaces.number_bits);
        asids.switch(0);
        FirstLevel {
            // Walks need every request, so none may be served from `recent`.
            recent: Recent::new(tlbs.first_tlbs().filter(|_| !by_page)),
            tlbs,
            asids: vec![asids],
            sibling: 0,
            placed: false,
            ahead: BATCH,
            batch: Box::new(Batch::new()),
            misses: Box::new(Batch::new()),
            waiting: 0,
            defers: false,
            compared: 0,
            by_page,
            counters: Counters::default(),
            further: Vec::new(),
            noted: None,
            line_shifts: LineShifts::new(machine),
        }
    }

    /// Whether this can be the first level of a machine, whose first-level TLBs are `first`.
    pub(crate) fn is_like(&self, first: &Tlbs, machine: &Machine) -> bool {
        let asids = Asids::new(machine.spaces.number_bits);
        self.asids[0].available == asids.available
            && self.line_shifts == LineShifts::new(machine)
            && self.tlbs.is_like(first)
    }

    /// Adds a machine's further TLBs, unless equal ones are there; returns their index.
    pub(crate) fn add(&mut self, tlbs: Tlbs, machine: &Machine) -> usize {
        self.compared |= machine.compared_use_bits();
        let at = self.further.iter().position(|further| further.tlbs.is_like(&tlbs)).unwrap_or(self.further.len());
        if at == self.further.len() {
            self.further.push(FurtherLevels::new(tlbs));
        }
        at
    }

    /// The walkers of all machines.
    pub(crate) fn walkers(&mut self) -> impl Iterator<Item = &mut Walker> {
        self.further.iter_mut().flat_map(|further| &mut further.walkers)
    }

    /// Makes room for so many hardware threads, when all is empty.
    pub(crate) fn share(&mut self, siblings: u32) {
        self.asids.resize(siblings as usize, self.asids[0].clone());
        self.tlbs.share(siblings);
        self.further.iter_mut().for_each(|further| further.tlbs.share(siblings));
        self.walkers().for_each(|walker| walker.share(siblings));
    }

    /// Serves this hardware thread of its core from now on.
    pub(crate) fn go_to(&mut self, mappings: &Mappings, sibling: u32) {
        if self.sibling != sibling {
            self.pass_on(mappings);
            self.sibling = sibling;
            self.recent.forget();
            self.tlbs.set_sibling(sibling);
            self.further.iter_mut().for_each(|further| further.tlbs.set_sibling(sibling));
            self.walkers().for_each(|walker| walker.set_sibling(sibling));
        }
    }

    /// Switches to another space.
    pub(crate) fn switch(&mut self, mappings: &Mappings, space: u32) {
        self.recent.forget();
        self.tlbs.switch(mappings, space);
        self.further.iter_mut().for_each(|further| further.switch(mappings, space));
        if self.asids[self.sibling as usize].switch(space) {
            self.counters.flushes += 1;
            self.tlbs.flush();
            self.further.iter_mut().for_each(FurtherLevels::flush);
        }
    }

    /// Drops all of a space, and empties the walk caches.
    pub(crate) fn drop_space(&mut self, mappings: &Mappings, space: u32) {
        self.recent.forget();
        self.tlbs.drop_space(mappings, space);
        for further in &mut self.further {
            further.tlbs.drop_space(mappings, space);
            further.walkers.iter_mut().for_each(Walker::flush);
        }
    }

    /// Mappings have changed.
    pub(crate) fn forget(&mut self) {
        self.recent.forget();
    }

    /// Mappings of the host have changed: drops everything that depends on any of them.
    pub(crate) fn flush_host(&mut self) {
        self.recent.forget();
        self.tlbs.flush();
        self.further.iter_mut().for_each(FurtherLevels::flush_host);
    }

    /// As [`crate::Mmu::run`]; `GUEST` if a memory manager of the host maps the guest's memory.
    #[inline(always)]
    pub(crate) fn run<const GUEST: bool>(
        &mut self,
        mappings: &mut Mappings,
        space: u32,
        requests: &[Request],
    ) -> Option<(usize, Trap)> {
        let mut done = 0;
        while done < requests.len() {
            if self.placed != self.recent.notes() {
                self.placed = self.recent.notes();
                self.tlbs.set_placed(self.placed);
            }
            let Progress { taken, trap } = if self.placed {
                self.take::<GUEST>(mappings, space, &requests[done..])
            } else {
                let located = self.locate::<GUEST>(mappings, space, self.near(&requests[done..]));
                self.recent.skip(located.taken);
                if self.by_page {
                    self.batch.ask(&requests[done..][..self.batch.len]);
                }
                if self.batch.len > 0 {
                    self.translate(mappings);
                }
                located
            };
            done += taken;
            self.look_ahead(taken, trap);
            if let Some(trap) = trap {
                if !self.defers {
                    self.pass_on(mappings);
                }
                self.count_trap(mappings, space, requests[done], trap);
                return Some((done, trap));
            }
        }
        self.pass_on(mappings);
        None
    }

    /// As [`crate::Mmu::run_lines`].
    #[inline(never)]
    pub(crate) fn run_lines(&mut self, mappings: &mut Mappings, space: u32, asked: Lined<'_>) -> Option<(usize, Trap)> {
        let Lined { requests, lines } = asked;
        let mut done = 0;
        while done < requests.len() {
            let Progress { taken, trap } = self.locate::<false>(mappings, space, self.near(&requests[done..]));
            if taken > 0 {
                let now = Lined { requests: &requests[done..done + taken], lines: &lines[done..done + taken] };
                self.translate_lines(mappings, now);
            }
            done += taken;
            self.look_ahead(taken, trap);
            if let Some(trap) = trap {
                self.count_trap(mappings, space, requests[done], trap);
                self.pass_on(mappings);
                return Some((done, trap));
            }
        }
        None
    }

    /// Takes the batch through the TLBs, and the lines through the caches of each machine.
    fn translate_lines(&mut self, mappings: &Mappings, Lined { requests, lines }: Lined<'_>) {
        let missed = self.translate_first(mappings);
        for (number, index) in each(missed).enumerate() {
            self.misses.set(number, self.batch.located(index));
            self.misses.pages[number] = requests[index].page().0;
        }
        self.misses.close(missed.count_ones() as usize);
        let mut data = ProgramLines { lines: [0; BATCH], len: requests.len(), fetches: 0, missed };
        for (at, (request, line)) in requests.iter().zip(lines).enumerate() {
            let frame = mappings.frame_of(self.batch.heads[at], request.page());
            data.lines[at] = self.line_shifts.line(frame, *line);
            data.fetches |= (request.access_bits() >> 1) << at;
        }
        self.further.iter_mut().for_each(|further| further.translate_lines(mappings, &self.misses, &data));
    }

    /// Whether a request finds its translation in the first level.
    pub(crate) fn has(&self, mappings: &Mappings, space: u32, request: Request) -> bool {
        let (page, access) = (request.page(), request.access_bits());
        mappings.mapping(space, page).is_some_and(|Mapping { head, pte, .. }| {
            self.tlbs.has(EntryId { number: self.tlbs.number(page, pte), key: head }, kind(pte, access))
        })
    }

    /// An access of the program or the kernel to a line of a frame, past the TLBs.
    pub(crate) fn access_line(&mut self, frame: u64, line: u32, fetch: bool) {
        let line = self.line_shifts.line(frame, line);
        self.walkers().for_each(|walker| walker.access_line(line, fetch));
    }

    /// As [`crate::Mmu::retry_line`].
    pub(crate) fn retry_line(
        &mut self,
        mappings: &mut Mappings,
        space: u32,
        request: Request,
        line: u32,
    ) -> Result<(), Trap> {
        self.retry(mappings, space, request)?;
        self.pass_on(mappings);
        let frame = mappings.frame_of(self.batch.heads[0], request.page());
        self.access_line(frame, line, request.access_bits() >> 1 != 0);
        Ok(())
    }

    /// As [`crate::Mmu::retry`].
    pub(crate) fn retry(&mut self, mappings: &mut Mappings, space: u32, request: Request) -> Result<(), Trap> {
        let located = if mappings.backing.is_some() {
            self.locate::<true>(mappings, space, &[request])
        } else {
            self.locate::<false>(mappings, space, &[request])
        };
        if let Some(trap) = located.trap {
            return Err(trap);
        }
        if self.tlbs.translate_first(mappings, &self.batch) != 0 {
            if self.defers {
                self.wait_uncounted(mappings, self.batch.located(0));
            } else {
                self.further.iter_mut().for_each(|further| further.load(mappings, &self.batch));
            }
        }
        Ok(())
    }

    /// Takes requests one by one, as long as they are noted: known requests need no translation.
    #[inline(always)]
    fn take<const GUEST: bool>(&mut self, mappings: &mut Mappings, space: u32, requests: &[Request]) -> Progress {
        mappings.refresh();
        let (mut taken, mut trap) = (0, None);
        while self.recent.notes() {
            let known = self.recent.serve(&requests[taken..], &mut self.tlbs);
            taken += known;
            let next = requests.get(taken).map(|request| self.take_one::<GUEST>(mappings, space, *request));
            let Some(Ok(())) = next else {
                self.recent.spare(known);
                trap = next.and_then(Result::err);
                break;
            };
            self.recent.judge(known);
            taken += 1;
        }
        self.count(&requests[..taken]);
        Progress { taken, trap }
    }

    /// Counts requests by access.
    #[inline(always)]
    fn count(&mut self, requests: &[Request]) {
        let of = |access| requests.iter().map(|request| u64::from(request.access_bits() == access)).sum::<u64>();
        let (writes, fetches) = (of(Access::Write as u64), of(Access::Execute as u64));
        let counts = [requests.len() as u64 - writes - fetches, writes, fetches];
        self.counters.references.iter_mut().zip(counts).for_each(|(count, more)| *count += more);
    }

    /// Translates a request that is not known, and notes it. If it misses, it waits.
    #[inline(never)]
    fn take_one<const GUEST: bool>(
        &mut self,
        mappings: &mut Mappings,
        space: u32,
        request: Request,
    ) -> Result<(), Trap> {
        let (page, access) = (request.page(), request.access_bits());
        let entry = mappings.entry(space, page).ok_or(Trap::Absent)?;
        if self.compared != 0 && mappings.changes(entry, access, self.compared) {
            self.separate(mappings, entry, access);
        }
        let head = mappings.make_ready(entry, page, access)?;
        let pte = if GUEST { mappings.translated(page, head) } else { mappings.ptes[head as usize] };
        let (number, kind) = (self.tlbs.number(page, pte), kind(pte, access));
        let located = Located { head, entry, number, kind };
        let missed = match self.recent.serving(kind) {
            Some(tlb) => {
                let (hit, at) = self.tlbs.access_one(tlb as usize, located.using(EntryId { number, key: head }));
                if let Some(at) = at {
                    let entry = TlbEntry { head, at: at as u32, tlb, order: self.tlbs.order(pte) };
                    self.recent.note(request, entry);
                }
                !hit
            }
            None => {
                self.batch.set(0, located);
                self.batch.close(1);
                self.tlbs.translate_first(mappings, &self.batch) != 0
            }
        };
        if missed {
            if self.waiting == BATCH {
                self.pass_on(mappings);
            }
            self.misses.add(&mut self.waiting, located);
        }
        Ok(())
    }

    /// The requests to locate together.
    #[inline(always)]
    fn near<'a>(&self, requests: &'a [Request]) -> &'a [Request] {
        &requests[..requests.len().min(self.ahead)]
    }

    /// Adapts to a trap after `taken` requests: the next trap may come as soon.
    #[inline(always)]
    fn look_ahead(&mut self, taken: usize, trap: Option<Trap>) {
        self.ahead = trap.map_or(BATCH, |_| (2 * taken).clamp(1, BATCH));
    }

    /// Finds the mappings of as many requests as do not trap and fill a batch, sets their use bits
    /// and makes a batch of them. Nothing that happens in the TLBs can change these results, so
    /// all requests of a batch are located before the first is translated: their loads overlap.
    #[inline(always)]
    fn locate<const GUEST: bool>(&mut self, mappings: &mut Mappings, space: u32, requests: &[Request]) -> Progress {
        mappings.refresh();
        let (mut entries, mut found) = ([0; BATCH], 0);
        for request in requests.iter().take(BATCH) {
            let Some(entry) = mappings.entry(space, request.page()) else { break };
            prefetch(&mappings.ptes, entry as usize);
            entries[found] = entry;
            found += 1;
        }
        let mut trap = (found < requests.len().min(BATCH)).then_some(Trap::Absent);
        let mut index = 0;
        for (request, entry) in requests.iter().zip(entries).take(found) {
            let (page, access) = (request.page(), request.access_bits());
            let (mut head, mut pte) = (entry, mappings.ptes[entry as usize]);
            if !pte.is_ready(access) {
                if self.compared != 0 && mappings.changes(entry, access, self.compared) {
                    if index > 0 {
                        trap = None;
                        break;
                    }
                    self.separate(mappings, entry, access);
                }
                match mappings.make_ready(entry, page, access) {
                    Ok(found) => (head, pte) = (found, mappings.ptes[found as usize]),
                    Err(reason) => {
                        trap = Some(reason);
                        break;
                    }
                }
            }
            if GUEST {
                pte = mappings.translated(page, head);
            }
            let number = self.tlbs.number(page, pte);
            self.batch.set(index, Located { head, entry, number, kind: kind(pte, access) });
            index += 1;
        }
        self.batch.close(index);
        Progress { taken: index, trap }
    }

    /// Prepares for an access that sets a use bit on which entries depend: serves all earlier
    /// requests, and takes the page out of the entries that it shares.
    #[cold]
    fn separate(&mut self, mappings: &Mappings, entry: u32, access: u64) {
        self.pass_on(mappings);
        let mapping = mappings.mapping_of(Mappings::head(entry, mappings.ptes[entry as usize]));
        let pte = mapping.pte;
        let changed = pte.used_by(access).attributes(self.compared) ^ pte.attributes(self.compared);
        self.tlbs.separate(mapping, changed);
        self.further.iter_mut().for_each(|further| further.tlbs.separate(mapping, changed));
    }

    /// Takes the batch through the TLBs of the first level, and counts it; returns which missed.
    #[inline(always)]
    pub(crate) fn translate_first(&mut self, mappings: &Mappings) -> u64 {
        for group in self.batch.groups() {
            self.counters.references[group.access()] += group.requests.count_ones() as u64;
        }
        self.tlbs.translate_first(mappings, &self.batch)
    }

    /// Takes the batch through the TLBs of the first level. Its misses wait.
    #[inline(always)]
    fn translate(&mut self, mappings: &Mappings) {
        let missed = self.translate_first(mappings);
        if self.waiting == 0 && missed == self.batch.all() {
            // Nothing is copied, or put into groups once more.
            std::mem::swap(&mut self.batch, &mut self.misses);
            self.waiting = self.misses.len;
            return;
        }
        if self.waiting + missed.count_ones() as usize > BATCH {
            self.pass_on(mappings);
        }
        if self.by_page {
            for (index, place) in each(missed).zip(self.waiting..) {
                self.misses.pages[place] = self.batch.pages[index];
            }
        }
        for index in each(missed) {
            self.misses.add(&mut self.waiting, self.batch.located(index));
        }
    }

    /// Passes waiting misses to the further levels, one after the other.
    #[inline(always)]
    pub(crate) fn pass_on(&mut self, mappings: &Mappings) {
        if self.waiting > 0 {
            if self.misses.len != self.waiting {
                self.misses.close(self.waiting);
            }
            self.waiting = 0;
            self.noted.iter_mut().for_each(|noted| noted.note(&self.misses, self.misses.all()));
            self.further.iter_mut().for_each(|further| further.translate(mappings, &self.misses));
            self.misses.uncounted = 0;
        }
    }

    /// Counts a request that traps: like any other if its page is mapped, else as a walk to the
    /// absent entry.
    #[cold]
    fn count_trap(&mut self, mappings: &mut Mappings, space: u32, request: Request, trap: Trap) {
        let (page, access) = (request.page(), request.access_bits());
        match trap {
            Trap::Rights { .. } => {
                let entry = mappings.entry(space, page).expect("something is mapped there");
                let head = Mappings::head(entry, mappings.ptes[entry as usize]);
                let pte = mappings.translated(page, head);
                let located = Located { head, entry, number: self.tlbs.number(page, pte), kind: kind(pte, access) };
                self.batch.set(0, located);
                self.batch.ask(&[request]);
                self.batch.close(1);
                self.translate(mappings);
                if !self.defers {
                    self.pass_on(mappings);
                }
            }
            Trap::Absent => {
                mappings.make_root(space, page);
                if self.defers {
                    return self.wait_absent(mappings, space, request);
                }
                self.further
                    .iter_mut()
                    .for_each(|further| further.walk_absent(mappings, SpacePage { space, page }, access as usize));
            }
        }
    }

    pub(crate) fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.tlbs.validate(mappings)?;
        for (request, TlbEntry { tlb, at, .. }, id) in self.recent.known() {
            let (pte, access) = (mappings.ptes[id.key as usize], request.access_bits());
            let ready = pte.allows(access) && pte.used_by(access) == pte;
            let right = ready && self.tlbs.number(request.page(), pte) == id.number;
            if self.tlbs.is_at(tlb as usize, at as usize, id) && !right {
                return Err(format!("{request:?} would be taken to hit TLB {tlb} unchanged: {pte:?}"));
            }
        }
        self.further.iter().try_for_each(|further| further.validate(mappings))
    }
}

impl Invalidate for Vec<FirstLevel> {
    fn drop_leaf(&mut self, mapping: Mapping) {
        for first_level in self {
            first_level.counters.shootdown_entries += first_level.tlbs.drop_leaf(mapping);
            first_level.further.iter_mut().for_each(|further| further.drop_leaf(mapping));
        }
    }

    fn drop_pointer(&mut self, pointer: Pointer) {
        self.iter_mut()
            .flat_map(|first_level| &mut first_level.further)
            .for_each(|further| further.drop_pointer(pointer));
    }

    fn drop_region(&mut self, first_id: u32, first: Vpn, stale: Stale) {
        // No TLB of the first level holds perforated pages.
        self.iter_mut().flat_map(|first_level| &mut first_level.further).for_each(|further| {
            further.drop_region(first_id, first, stale);
        });
    }

    fn drop_lines(&mut self, frames: Range<u64>) {
        for first_level in self {
            let lines = first_level.line_shifts.lines(&frames);
            first_level.walkers().for_each(|walker| walker.flush_lines(lines.clone()));
        }
    }
}
