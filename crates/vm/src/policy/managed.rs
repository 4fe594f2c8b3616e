//! The manager as a [`System`] for the policy's background, and the clock that calls it.

use crate::fault::promotion::Window;
use crate::object::Growth;
use crate::policy::background::{Check, Outcome, Scanned, System, Time};
use crate::space::Entry;
use crate::vm::Vm;
use crate::{Candidate, How, Memory, Pmap, Refused, Region, Sample, SpaceId};
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::{Hint, Ladder, Level, Vpn};

impl Vm {
    /// Sets the time to `now` and calls the policy's background if it has one that is due. `spent` is the processor
    /// time that it has used in all calls before, for policies with a budget. Returns when to call this next; `None`:
    /// not before another operation of the manager. O(1) if nothing is due, and free for a policy without a background.
    ///
    /// Time is the caller's, in nanoseconds, and never decreases.
    pub fn advance(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, now: Time, spent: Time) -> Option<Time> {
        let mut background = self.background.take()?;
        debug_assert!(now >= self.now, "time never decreases");
        self.now = now;
        if background.next().is_some_and(|due| due <= now) {
            background.tick(now, &mut Managed { vm: self, pmap, memory, now, spent });
        }
        let next = background.next();
        self.background = Some(background);
        next
    }

    /// Whether the policy has a background, so that [`Vm::advance`] must be called.
    #[inline]
    pub fn has_background(&self) -> bool {
        self.background.is_some()
    }

    /// When [`Vm::advance`] is to be called next: an event may have changed what that returned. `None`: not before another event.
    pub fn due(&self) -> Option<Time> {
        self.background.as_ref().and_then(|background| background.next())
    }

    /// Why the policy's background cannot go on, if it cannot ([`Background::failed`](crate::Background::failed)).
    pub fn background_failed(&self) -> Option<String> {
        self.background.as_ref().and_then(|background| background.failed())
    }

    /// Whether the policy wants to be told of misses in the TLBs, by [`Vm::missed`].
    #[inline]
    pub fn wants_misses(&self) -> bool {
        self.events.missed
    }

    /// The TLBs had no translation of a page. A kernel whose refill is software calls this there, if [`Vm::wants_misses`]; the policy
    /// acts on it when it is next called ([`Vm::advance`]). Nothing happens where the page is not mapped. O(1) beside what the policy does.
    pub fn missed(&mut self, pmap: &impl Pmap, space: SpaceId, at: Vpn) {
        if self.events.missed
            && let Some(mapped) = pmap.lookup(space, at)
        {
            let level = self.level(mapped.size);
            if let Some(background) = &mut self.background {
                background.missed(space, at, level);
            }
        }
    }

    /// Tells the background, if it asked for it, that an address space has ended.
    pub(crate) fn tell_gone(&mut self, space: SpaceId) {
        if self.events.gone
            && let Some(background) = &mut self.background
        {
            background.gone(space);
        }
    }
}

/// Page numbers are below this.
const PAGES: u64 = 1 << 62;

/// [`System`] on a [`Vm`]: the manager with its hardware and memory, at one time `now`, with `spent` processor time
/// used.
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
        let spaces = self.vm.spaces.iter().enumerate();
        spaces.filter(|(_, space)| space.is_some()).map(|(number, _)| SpaceId(number as u32)).collect()
    }

    fn scan(&mut self, space: SpaceId, level: Level, see: &mut dyn FnMut(Sample)) -> Scanned {
        let Ok(map) = self.vm.space(space) else { return Scanned::Gone };
        let (ladder, mut seen) = (&self.vm.frames.ladder, 0);
        let pages = ladder.pages(level);
        let mut runs = Vec::new();
        for entry in map.iter() {
            let known = self.vm.objects.get(entry.object);
            let aligned = (entry.start ^ entry.offset) & (pages - 1) == 0;
            if known.file.is_some() || entry.shared || entry.copy || entry.hint == Hint::Base || !aligned {
                continue;
            }
            // Nothing exists yet below the lowest touched page of a stack.
            let low = if known.growth == Growth::Down { entry.offset.max(known.low) } else { entry.offset };
            let (low, high) = (low.next_multiple_of(pages), entry.offset_end().min(known.high) & !(pages - 1));
            runs.clear();
            self.vm.frames.population.runs(entry.object, low, high, &mut runs);
            let mut current: Option<(u64, u32)> = None;
            let mut tell = |(index, populated): (u64, u32)| {
                let start = entry.page(index * pages);
                let mapped = self.pmap.lookup(space, start);
                let superpage = mapped.is_some_and(|mapped| mapped.size >= ladder.size(level));
                seen += if superpage { 1 } else { u64::from(populated) };
                see(Sample { region: start.0 / pages, populated, superpage });
            };
            for (mut from, to) in runs.iter().copied() {
                while from < to {
                    let (index, end) = (from / pages, to.min((from / pages + 1) * pages));
                    let more = (end - from) as u32;
                    current = match current {
                        Some((same, populated)) if same == index => Some((index, populated + more)),
                        other => {
                            other.into_iter().for_each(&mut tell);
                            Some((index, more))
                        }
                    };
                    from = end;
                }
            }
            current.into_iter().for_each(&mut tell);
        }
        self.vm.frames.stats.background_scanned += seen;
        Scanned::Seen
    }

    fn accessed(&mut self, space: SpaceId, level: Level, region: u64) -> Option<u32> {
        let Some(start) = self.start(level, region) else { return Some(0) };
        let pages = self.vm.frames.ladder.pages(level);
        let (mut at, mut accessed) = (start, 0);
        while at < start + pages {
            let Some(mapped) = self.pmap.lookup(space, at) else {
                at = at + 1;
                continue;
            };
            let step = self.vm.frames.ladder.pages(self.vm.level(mapped.size));
            self.vm.frames.stats.background_scanned += 1;
            if self.pmap.clear_referenced(space, at.align_down(step), mapped.size) {
                // The reference is not lost for the page daemon.
                (0..step.min(pages)).for_each(|page| self.vm.frames.used_again(mapped.frame.0 as u32 + page as u32));
                accessed += step.min(pages) as u32;
            }
            at = at.align_down(step) + step;
        }
        Some(accessed)
    }

    fn free_extents(&mut self, level: Level) -> Option<u64> {
        let free = self.vm.frames.buddy.iter().filter(|extent| extent.level >= level);
        let pages = |level| self.vm.frames.ladder.pages(level);
        Some(free.map(|extent| pages(extent.level) / pages(level)).sum())
    }

    fn check(&mut self, space: SpaceId, level: Level, region: u64) -> Check {
        let Some(start) = self.start(level, region) else { return Check::Populated(0) };
        let pages = self.vm.frames.ladder.pages(level);
        let entry = self.vm.space(space).ok().and_then(|map| map.find(start.0));
        let fits = |entry: &Entry| start.0 + pages <= entry.end && entry.hint != Hint::Base;
        let Some(entry) = entry.filter(fits) else { return Check::Populated(0) };
        let (mut runs, low) = (Vec::new(), entry.index(start.0));
        self.vm.frames.population.runs(entry.object, low, low + pages, &mut runs);
        Check::Populated(runs.iter().map(|(from, to)| (to - from) as u32).sum())
    }

    fn promote(&mut self, space: SpaceId, level: Level, regions: &[Candidate], how: How) -> Vec<Outcome> {
        let each = |candidate: &Candidate| {
            let Some(start) = self.start(level, candidate.region) else { return Outcome::Changed };
            match self.vm.promote_region(self.pmap, self.memory, Region { space, start, level }, how) {
                Ok(_) => Outcome::Promoted,
                Err(Refused::NoExtent) => Outcome::NoExtent,
                Err(Refused::Superpage | Refused::Empty | Refused::Unmapped | Refused::Hint) => Outcome::Changed,
                Err(_) => Outcome::Later,
            }
        };
        regions.iter().map(each).collect()
    }

    fn zero_ahead(&mut self, level: Level, most: u64) -> Option<u64> {
        Some(self.vm.zero_ahead(self.memory, level, most))
    }

    fn demote(&mut self, space: SpaceId, level: Level, region: u64) -> bool {
        let Some(start) = self.start(level, region) else { return false };
        let Some(entry) = self.vm.space(space).ok().and_then(|map| map.find(start.0)) else { return false };
        let mapped = self.pmap.lookup(space, start).map(|mapped| self.vm.level(mapped.size));
        let holder = self.vm.holder(entry.object, entry.index(start.0));
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
