//! The manager as a [`System`] for the policy's background, and the clock that calls it.

use crate::object::Growth;
use crate::outcome::Promotion;
use crate::policy::background::{Costs, Event, Look, MemoryState, Part, Prefer, Scanned, ScannedPart, System, Time};
use crate::space::{Entry, Window};
use crate::vm::Vm;
use crate::{Address, Candidate, Compacted, How, Memory, Pmap, Refusal, Region, Sample, SpaceId, Why};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Extent, Ladder, Level, Mapped, PageRange, Vpn};

impl Vm {
    /// Sets the time to `now` and calls the policy's background if it has one that is due. `spent`
    /// is the processor time that it has used in all calls before, for policies with a budget.
    /// Returns when to call this next; `None`: not before another operation of the manager. O(1) if
    /// nothing is due, and free for a policy without a background.
    ///
    /// Time is the caller's, in nanoseconds, and never decreases.
    pub fn advance(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, now: Time, spent: Time) -> Option<Time> {
        let mut background = self.policy.suspend(now)?;
        if background.next().is_some_and(|due| due <= now) {
            background.tick(now, &mut Managed { vm: self, pmap, memory, now, spent });
        }
        let next = background.next();
        self.policy.resume(background);
        next
    }

    /// What a policy's background sees, at the time of the last call of [`Vm::advance`]: for a
    /// kernel that runs one itself, and for tests.
    pub fn as_system<T>(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        with: impl FnOnce(&mut dyn System) -> T,
    ) -> T {
        let now = self.policy.now();
        with(&mut Managed { vm: self, pmap, memory, now, spent: 0 })
    }

    /// Whether the policy has a background, so that [`Vm::advance`] must be called.
    #[inline]
    pub fn has_background(&self) -> bool {
        self.policy.background().is_some()
    }

    /// When [`Vm::advance`] is to be called next: an event may have changed what that returned.
    /// `None`: not before another event.
    pub fn due(&self) -> Option<Time> {
        self.policy.background().and_then(|background| background.next())
    }

    /// Why the policy's background cannot go on, if it cannot
    /// ([`Background::failed`](crate::Background::failed)).
    pub fn background_failed(&self) -> Option<String> {
        self.policy.background().and_then(|background| background.failed())
    }

    /// What the policy's background has found out, as a JSON object
    /// ([`Background::result`](crate::Background::result)).
    ///
    /// # Errors
    /// Why it cannot say it.
    pub fn background_result(&self) -> Result<Option<String>, String> {
        self.policy.background().map_or(Ok(None), |background| background.result())
    }

    /// Whether the policy wants to know of misses in the TLBs, by [`Vm::missed`].
    #[inline]
    pub fn wants_misses(&self) -> bool {
        self.policy.events().missed || self.policy.wants().miss
    }

    /// Whether it wants to know then what the TLBs hold around the page ([`Event::Miss`]).
    pub fn wants_neighbours(&self) -> bool {
        self.policy.wants().miss && self.policy.wants().neighbour
    }

    /// What the background's work at a miss costs the program, in cycles.
    pub fn miss_cycles(&self) -> u64 {
        self.policy.background().map_or(0, |background| background.miss_cycles())
    }

    /// Tells the policy's background, if it wants to know, that it begins, and what work costs
    /// where it runs. A kernel calls this once.
    pub fn started(&mut self, costs: Option<Costs>) {
        if self.policy.wants().start {
            self.policy.tell(Event::Start { ladder: self.frames.ladder, costs });
        }
    }

    /// The TLBs had no translation of a page. A kernel whose refill is software calls this there,
    /// if [`Vm::wants_misses`]; the policy acts on it when it is next called ([`Vm::advance`]).
    /// Nothing happens where the page is not mapped. `neighbour` is the order, in base pages, of
    /// the smallest aligned block around the page in which the TLBs hold another; `None` if there
    /// is none, or nobody knows. It is needed only if [`Vm::wants_neighbours`]. O(levels) and what
    /// the policy does.
    pub fn missed(&mut self, pmap: &impl Pmap, space: SpaceId, at: Vpn, neighbour: Option<u32>) {
        if self.wants_misses()
            && let Some(mapped) = pmap.lookup(space, at)
        {
            let level = self.frames.level(mapped.size);
            if self.policy.wants().miss {
                let ladder = self.frames.ladder;
                let neighbour = neighbour.and_then(|order| {
                    let mut larger = ladder.levels().skip(level.index() + 1);
                    larger.find(|region| ladder.pages(*region) >> order != 0)
                });
                self.policy.tell(Event::Miss { at: Address { space, at }, mapped: level, neighbour });
            }
            self.policy.missed(space, at, level);
        }
    }
}

/// Page numbers are below this.
const PAGES: u64 = 1 << 62;

/// [`System`] on a [`Vm`]: the manager with its hardware and memory, at one time `now`, with
/// `spent` processor time used.
struct Managed<'a, P, M> {
    vm: &'a mut Vm,
    pmap: &'a mut P,
    memory: &'a mut M,
    now: Time,
    spent: Time,
}

impl<P: Pmap, M: Memory> Managed<'_, P, M> {
    /// The first page of a region, if a region has this number.
    fn start(&self, level: Level, region: u64) -> Option<Vpn> {
        region.checked_mul(self.vm.frames.ladder.pages(level)).filter(|page| *page < PAGES).map(Vpn)
    }

    /// What maps a page, if that holds one.
    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped> {
        self.pmap.lookup(space, at).filter(|mapped| !self.vm.frames.is_zero_page(mapped.frame))
    }

    /// The pages of a range that are in a mapping, ascending, each with its entry of the map.
    fn mapped(&self, space: SpaceId, start: Vpn, pages: u64) -> impl Iterator<Item = (Entry, Vpn)> + use<P, M> {
        let end = start.0 + pages;
        let entries = self.vm.spaces.get(space).map(|map| map.overlapping(start.0, end)).unwrap_or_default();
        let within =
            move |entry: Entry| (entry.start.max(start.0)..entry.end.min(end)).map(move |page| (entry, Vpn(page)));
        entries.into_iter().flat_map(within)
    }
}

/// The regions that runs of populated pages lie in, ascending, each with how many pages of it those
/// are.
struct Regions<'a> {
    runs: &'a [Range<u64>],
    /// What lies below was returned.
    at: u64,
    pages: u64,
}

impl Iterator for Regions<'_> {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        let from = self.runs.first()?.start.max(self.at);
        let region = from / self.pages;
        self.at = (region + 1) * self.pages;
        let mut populated = 0;
        while let Some(run) = self.runs.first().filter(|run| run.start < self.at) {
            populated += run.end.min(self.at) - run.start.max(from);
            if run.end > self.at {
                break;
            }
            self.runs = &self.runs[1..];
        }
        Some((region, populated as u32))
    }
}

impl<P: Pmap, M: Memory> System for Managed<'_, P, M> {
    fn ladder(&self) -> &Ladder {
        &self.vm.frames.ladder
    }

    fn now(&self) -> Time {
        self.now
    }

    fn spent(&self) -> Time {
        self.spent
    }

    fn spaces(&mut self) -> Vec<SpaceId> {
        self.vm.spaces.iter().map(|(space, _)| space).collect()
    }

    fn scan_part(&mut self, space: SpaceId, level: Level, part: Part, see: &mut dyn FnMut(Sample)) -> ScannedPart {
        self.vm.spaces.own_again(&self.vm.objects, space);
        let Ok(map) = self.vm.spaces.get(space) else { return Scanned::Gone.into() };
        let ladder = &self.vm.frames.ladder;
        let (pages, hints) = (ladder.pages(level), self.vm.policy.answers.place.hints);
        let (first, mut reported, mut looked, mut next) = (part.from.saturating_mul(pages), 0, 0, None);
        let mut runs = Vec::new();
        for entry in map.iter().skip_while(|entry| entry.end <= first) {
            let known = self.vm.objects.get(entry.object);
            let aligned = (entry.start ^ entry.offset) & (pages - 1) == 0;
            let ours = known.file.is_none() && !entry.shared && !entry.copy || self.vm.is_text(entry);
            if !ours || !hints.allow_background(entry.hint) || !aligned {
                continue;
            }
            // Nothing exists yet below the lowest touched page of a stack.
            let low = if known.growth == Growth::Down { entry.offset.max(known.low) } else { entry.offset };
            let low = low.max(entry.index(entry.start.max(first)));
            let (low, high) = (low.next_multiple_of(pages), entry.offset_end().min(known.high) & !(pages - 1));
            runs.clear();
            self.vm.frames.population.runs(entry.object, low, high, &mut runs);
            let mut regions = Regions { runs: &runs, at: low, pages };
            for (index, populated) in &mut regions {
                let start = entry.page(index * pages);
                if reported == part.most {
                    next = Some(start.0 / pages);
                    break;
                }
                let mapped = self.pmap.lookup(space, start);
                let superpage = mapped.is_some_and(|mapped| mapped.size >= ladder.size(level));
                reported += 1;
                looked += if superpage { 1 } else { u64::from(populated) };
                see(Sample { region: start.0 / pages, populated, superpage });
            }
            if next.is_some() {
                break;
            }
        }
        self.vm.frames.stats.background_scanned += looked;
        ScannedPart { scanned: Scanned::Seen, next }
    }

    fn population(&mut self, space: SpaceId, level: Level, region: u64) -> Option<Sample> {
        let looked = self.vm.frames.stats.background_scanned;
        let mut found = None;
        self.scan_part(space, level, Part { from: region, most: 1 }, &mut |sample| found = Some(sample));
        self.vm.frames.stats.background_scanned = looked + 1;
        found.filter(|sample| sample.region == region)
    }

    fn look(&mut self, space: SpaceId, level: Level, region: u64) -> Look {
        let Some(start) = self.start(level, region) else { return Look::default() };
        let vm = &*self.vm;
        let pages = vm.frames.ladder.pages(level);
        let mut look = Look { hint: vm.hint(space, start), ..Look::default() };
        let whole = vm.frames.ladder.size(level);
        let (mut untouched, mut accessed) = (0, 0);
        for (entry, at) in self.mapped(space, start, pages) {
            let walk = vm.frames.holder(&self.vm.objects, entry.object, entry.index(at.0));
            match walk {
                Some(_) if vm.is_text(&entry) => (look.populated, look.text) = (look.populated + 1, true),
                Some(walk) if walk.populated => {
                    let own = walk.page.object == entry.object && !entry.copy;
                    let alone = own && vm.objects.get(entry.object).sole;
                    let others = || vm.spaces.mappings(&self.vm.objects, self.pmap, walk.page, walk.frame);
                    let others = || others().into_iter().any(|mapping| mapping.space != space || mapping.at != at);
                    if own && (alone || !others()) {
                        look.populated += 1;
                        untouched += u32::from(vm.frames.is_untouched(walk.frame));
                    } else {
                        look.shared += 1;
                    }
                }
                Some(walk) => look.swapped += u32::from(vm.frames.swap_and_cache.slot(walk.page).is_some()),
                None => {
                    let walk = vm.frames.population.walk(entry.object, entry.index(at.0));
                    look.reserved += u32::from(walk.covered > 0);
                }
            }
            if let Some(mapped) = self.lookup(space, at) {
                let first = at.align_down(vm.frames.ladder.pages(vm.frames.level(mapped.size)));
                accessed += u32::from(self.pmap.used(space, first, mapped.size).referenced);
                look.superpage |= mapped.size >= whole && level > Level::BASE;
            }
        }
        Look { untouched: Some(untouched), accessed: Some(accessed), ..look }
    }

    fn accessed(&mut self, space: SpaceId, level: Level, region: u64) -> Option<u32> {
        let Some(start) = self.start(level, region) else { return Some(0) };
        let pages = self.vm.frames.ladder.pages(level);
        let (mut next, mut accessed) = (start, 0);
        for (_, at) in self.mapped(space, start, pages) {
            if at < next {
                continue;
            }
            let Some(mapped) = self.lookup(space, at) else { continue };
            let step = self.vm.frames.ladder.pages(self.vm.frames.level(mapped.size));
            self.vm.frames.stats.background_scanned += 1;
            if self.pmap.clear_referenced(space, at.align_down(step), mapped.size) {
                // The reference is not lost for the page daemon.
                (0..step.min(pages)).for_each(|page| self.vm.frames.used_again(mapped.frame.0 as u32 + page as u32));
                accessed += step.min(pages) as u32;
            }
            next = at.align_down(step) + step;
        }
        Some(accessed)
    }

    fn memory(&mut self) -> Option<MemoryState> {
        Some(self.vm.memory_state())
    }

    fn promote(&mut self, space: SpaceId, level: Level, regions: &[Candidate], how: How) -> Vec<Result<(), Refusal>> {
        let each = |&Candidate { region, least, .. }: &Candidate| {
            let start = self.start(level, region).ok_or(Why::TooSmall)?;
            let region = Region { space, start, level };
            let done = self.vm.promote_populated(self.pmap, self.memory, Promotion { region, least, how });
            done.map(|_| ()).map_err(Refusal::from)
        };
        regions.iter().map(each).collect()
    }

    fn zero_ahead(&mut self, level: Level, most: u64) -> Option<u64> {
        Some(self.vm.zero_ahead(self.memory, level, most))
    }

    fn prefer(&mut self, space: SpaceId, range: Option<PageRange>, prefer: Prefer) -> bool {
        self.vm.prefer(self.pmap, space, range, prefer).is_ok()
    }

    fn release(&mut self, space: SpaceId, level: Level, region: u64) -> u64 {
        let Some(start) = self.start(level, region) else { return 0 };
        self.vm.release_reserved(Region { space, start, level })
    }

    fn zeroes(&mut self, space: SpaceId, level: Level, region: u64) -> Option<u64> {
        let Some(start) = self.start(level, region) else { return Some(0) };
        Some(self.vm.count_zero_filled(self.memory, Region { space, start, level }))
    }

    fn shrink(&mut self, space: SpaceId, level: Level, region: u64) -> u64 {
        let Some(start) = self.start(level, region) else { return 0 };
        self.vm.free_zero_filled(self.pmap, self.memory, Region { space, start, level }).unwrap_or(0)
    }

    fn compact(&mut self, level: Level, target: Option<Extent>) -> Option<Compacted> {
        Some(match target {
            Some(target) => self.vm.compact(self.pmap, self.memory, target),
            None if level <= self.vm.frames.ladder.largest() => self.vm.compact_best(self.pmap, self.memory, level),
            None => Compacted::default(),
        })
    }

    fn demote(&mut self, space: SpaceId, level: Level, region: u64) -> bool {
        let Some(start) = self.start(level, region) else { return false };
        let Some(entry) = self.vm.spaces.get(space).ok().and_then(|map| map.find(start.0)) else { return false };
        if entry.is_pooled() {
            return false;
        }
        let mapped = self.pmap.lookup(space, start).map(|mapped| self.vm.frames.level(mapped.size));
        let holder = self.vm.frames.holder(&self.vm.objects, entry.object, entry.index(start.0));
        match (mapped, holder) {
            (Some(mapped), Some(walk)) if mapped == level => {
                let window = Window { space, entry: &entry, object: walk.page.object };
                self.vm.demote_around(self.pmap, window, start, false);
                true
            }
            _ => false,
        }
    }
}
