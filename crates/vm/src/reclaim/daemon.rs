//! The page daemon (Navarro et al., section 5.1): approximate LRU over the active and inactive
//! lists, as in FreeBSD; and, if the policy says so, contiguity-aware replacement and speculative
//! demotion (section 4.6).

use crate::fault::leaves::Leaf;
use crate::frame::lists::Sample;
use crate::object::PageOf;
use crate::policy::{Cache, Wake};
use crate::queue::pages::List;
use crate::vm::Vm;
use crate::{Memory, MemoryState, Pmap};
use alloc::vec;
use alloc::vec::Vec;
use superpage_pages::{Extent, Level, MAX_LEVELS, Pfn};

impl Vm {
    /// What memory is like now. O(levels).
    pub fn memory_state(&self) -> MemoryState {
        let (buddy, stats) = (&self.frames.buddy, &self.frames.stats);
        let daemon = self.frames.pages.is_some();
        let mut extents = [0; MAX_LEVELS];
        self.frames.ladder.levels().for_each(|level| extents[level.index()] = buddy.maximal(level));
        MemoryState {
            total: buddy.frames(),
            free: buddy.free_frames(),
            available: if daemon {
                self.frames.available(&self.policy.answers)
            } else {
                buddy.frames() - stats.unknown_frames() - stats.resident_pages
            },
            low: if daemon { self.frames.least(&self.policy.answers) } else { 0 },
            aim: if daemon { self.frames.target(&self.policy.answers) } else { 0 },
            extents,
        }
    }

    /// Whether the page daemon has work: memory is short, or a request for contiguity failed and
    /// the policy wakes the daemon for that. If no page could be evicted (swap space is full), it
    /// waits until some are freed, a slot is, or a fault ends with
    /// [`crate::FaultError::OutOfMemory`]. The kernel calls this between one operation and the
    /// next. O(1).
    pub fn daemon_wanted(&self) -> bool {
        let Some(pages) = &self.frames.pages else { return false };
        // If the whole inactive list did not help, it will not until something changes.
        let mut goals = self.frames.wanted.iter().zip(&self.daemon.exhausted);
        let contiguity =
            self.frames.wants && goals.any(|(goal, exhausted)| *goal > 0 && *exhausted != Some(pages.changes()));
        let swappable = pages.count(List::Unswappable) > 0 && self.frames.swap_and_cache.vacant_slots() > 0;
        let hope = |at| self.frames.stats.resident_pages < at || swappable;
        let short = self.frames.available(&self.policy.answers) < self.frames.least(&self.policy.answers)
            && self.daemon.futile.is_none_or(hope);
        short || self.policy.answers.scarce.wake == Wake::Contiguity && contiguity
    }

    /// Runs the page daemon once: if memory is short, until enough is available or no page is left
    /// that can be evicted; and until it has restored the contiguity that requests have failed to
    /// get since the last run, or has reached the end of the inactive list. What the last eight
    /// faults mapped stays, unless a request has failed for want of a frame and nothing else can be
    /// evicted: then as much of it goes as that request needs, the oldest first.
    ///
    /// Where memory is short it first splits the huge pages that were to be split later, the oldest
    /// first, and evicts only if that was not enough (Linux does both at once, each for a share).
    ///
    /// Returns whether it evicted any page, or split any of those. After
    /// [`crate::FaultError::OutOfMemory`], `true` means that the same call now finds a frame,
    /// unless page tables need some too and take it: then run the daemon once more. `false` means
    /// that only the end of a process frees memory, or, if a page is busy ([`Vm::busy_frames`]),
    /// the end of a read. O(pages on the lists): each page is examined in at most six passes. A
    /// page for which swap space had no room is skipped until it has. Without swap space, anonymous
    /// pages whose first access wrote them are never examined: where there are no others, a run is
    /// O(1).
    pub fn run_daemon(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory) -> bool {
        let Some(pages) = &mut self.frames.pages else { return false };
        pages.settle();
        self.frames.stats.daemon_runs += 1;
        self.frames.stats.note_peak();
        let (before, mut split) = (self.frames.stats.evictions, false);
        let goals = core::mem::take(&mut self.frames.wanted);
        self.frames.wants = false;
        let starved = core::mem::take(&mut self.frames.starved);
        if self.frames.available(&self.policy.answers) < self.frames.least(&self.policy.answers) {
            split = self.split_deferred(pmap, memory, self.frames.target(&self.policy.answers));
            self.restore_memory(pmap, memory);
            if starved && self.frames.available(&self.policy.answers) == 0 {
                self.take_latest(pmap, memory);
            }
            let futile = self.frames.stats.evictions == before && !split;
            self.daemon.futile = futile.then_some(self.frames.stats.resident_pages);
        }
        if self.policy.answers.scarce.wake == Wake::Contiguity {
            for level in self.frames.ladder.levels().skip(1).rev() {
                let met = self.restore_contiguity(pmap, level, goals[level.index()]);
                let changes = self.frames.pages.as_ref().map(|pages| pages.changes());
                self.daemon.exhausted[level.index()] = if met { None } else { changes };
            }
        }
        self.frames.take_tables(pmap);
        self.frames.stats.evictions > before || split
    }

    /// Passes over the inactive and the active list until the target is met, or no page on them can
    /// be evicted.
    ///
    /// An active page is deactivated after as many rounds without a reference as its activity, at
    /// most 64. The first pass finds which pages were referenced. Since no program runs while the
    /// daemon does, further rounds would find nothing new: they are made in one step, as many as it
    /// takes until enough pages have no activity left.
    fn restore_memory(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory) {
        let target = self.frames.target(&self.policy.answers);
        if self.frames.available(&self.policy.answers) >= target {
            return;
        }
        self.frames.readmit();
        let unswappable = self.frames.count(List::Unswappable);
        self.scan_inactive(pmap, memory, target);
        // Enough inactive pages for this run and the next.
        let enough = 2 * target + target / 2;
        self.scan_active(pmap, enough, 1);
        self.scan_inactive(pmap, memory, target);
        // At most three passes: pages less active than the most active of those that must go;
        // these; and all if swap space is full.
        for _ in 0..3 {
            let full = self.frames.count(List::Unswappable) > unswappable;
            let Some(rounds) = self.frames.rounds_ahead(&self.policy.answers, target, full) else { return };
            self.scan_active(pmap, if full { u64::MAX } else { enough }, rounds);
            self.scan_inactive(pmap, memory, target);
        }
    }

    /// Evicts pages that the last faults mapped, the oldest first, until a frame is available.
    fn take_latest(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory) {
        let latest: Vec<u32> = self.frames.pages.iter().flat_map(|pages| pages.latest()).collect();
        for frame in latest {
            if self.frames.available(&self.policy.answers) == 0
                && let Some(List::Active | List::Inactive) = self.frames.list_of(frame)
                && let Some(page) = self.frames.page_of(frame)
            {
                self.take_out(pmap, memory, page, frame);
            }
        }
    }

    /// Evicts inactive pages, the least recent first; those that were referenced become active
    /// again.
    fn scan_inactive(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, target: u64) {
        // Whatever happens to the first page of the list, it leaves the list.
        while self.frames.available(&self.policy.answers) < target
            && let Some(frame) = self.frames.head_of(List::Inactive)
            && let Some(page) = self.frames.page_of(frame)
        {
            let sample = self.sample(pmap, page, frame, true);
            if sample.referenced || self.frames.is_latest(frame) {
                self.frames.age(frame, &sample, false, 1);
            } else if !self.take_out_whole(pmap, memory, frame, sample.level) {
                self.take_out(pmap, memory, page, frame);
            }
        }
    }

    /// Deactivates active pages that were not referenced for long, until so many are inactive or
    /// available. Does the work of `rounds` passes over the list in one.
    fn scan_active(&mut self, pmap: &mut impl Pmap, enough: u64, rounds: u8) {
        // Each page once: an examined page goes to the tail, and all parts of a superpage go
        // together.
        let mut left = self.frames.count(List::Active);
        while left > 0
            && let Some(frame) = self.frames.head_of(List::Active)
            && let Some(page) = self.frames.page_of(frame)
        {
            if self.frames.count(List::Inactive) + self.frames.available(&self.policy.answers) >= enough {
                // The last round ended here, those before it did not.
                if let Some(pages) = &mut self.frames.pages
                    && rounds > 1
                {
                    pages.pass(left, rounds - 1);
                }
                return;
            }
            let sample = self.sample(pmap, page, frame, true);
            let known = self.objects.get(page.object);
            let needed = known.entries > 0 || known.copies > 0;
            left -= self.frames.age(frame, &sample, !needed, rounds).min(left);
            if sample.referenced && sample.level == Level::BASE {
                self.repromote(pmap, page, frame);
            }
        }
    }

    /// Tests whether a page was referenced, in any mapping, and clears the bits. When memory is
    /// short, a superpage that was referenced is demoted around the page, with the policy's
    /// probability, to find out which of its parts are in use.
    fn sample(&mut self, pmap: &mut impl Pmap, page: PageOf, frame: u32, pressure: bool) -> Sample {
        self.frames.stats.daemon_scanned += 1;
        let mut sample = Sample { referenced: false, level: Level::BASE, split: false };
        for mapping in self.spaces.mappings(&self.objects, pmap, page, frame) {
            let size = self.frames.ladder.size(mapping.level);
            let start = mapping.at.align_down(self.frames.ladder.pages(mapping.level));
            if mapping.level == Level::BASE {
                sample.referenced |= pmap.clear_referenced(mapping.space, start, size);
                continue;
            }
            let referenced = pmap.clear_referenced(mapping.space, start, size);
            sample.referenced |= referenced;
            sample.level = sample.level.max(mapping.level);
            if referenced && pressure && self.daemon.speculates(self.policy.answers.demote.speculate) {
                // The bit was cleared first, so that the parts start without it and only those in
                // use will have it again.
                self.demote_around(pmap, mapping.window(page.object), mapping.at, false);
                self.frames.stats.speculative_demotions += 1;
                sample.split = true;
            }
        }
        sample
    }

    /// Promotes the smallest region around a page, and larger ones, whose pages were all found
    /// referenced when they were last sampled.
    fn repromote(&mut self, pmap: &mut impl Pmap, page: PageOf, frame: u32) {
        let walk = self.frames.population.walk(page.object, page.index);
        let most = self.frames.population.full_level(&walk);
        let mut full = 0;
        for level in 1..=most {
            let pages = self.frames.population.pages(level) as u32;
            let first = frame & !(pages - 1);
            let Some(lists) = &self.frames.pages else { return };
            if !(first..first + pages).all(|frame| lists.recent(frame)) {
                break;
            }
            full = level;
        }
        if full == 0 {
            return;
        }
        for mapping in self.spaces.mappings(&self.objects, pmap, page, frame) {
            if mapping.level < Level(full) {
                let leaf = Leaf { at: mapping.at, frame, level: mapping.level, rights: mapping.rights };
                let reached = self.promote(pmap, mapping.window(page.object), leaf, Level(full));
                self.frames.stats.repromotions += u64::from(reached > mapping.level);
            }
        }
    }

    /// Makes up to `goal` extents of a level available by evicting inactive pages, the least recent
    /// first; only pages of an extent that then has nothing else in it. Pages that would have to be
    /// written out are left alone. Returns whether the goal is met.
    fn restore_contiguity(&mut self, pmap: &mut impl Pmap, level: Level, mut goal: u64) -> bool {
        if goal == 0 {
            return true;
        }
        let (order, pages) = (self.frames.ladder.order(level), self.frames.ladder.pages(level));
        let mut seen = vec![false; (self.frames.buddy.frames() >> order) as usize];
        let Some(mut reader) = self.frames.pages.as_mut().map(|pages| pages.start(List::Inactive)) else {
            return false;
        };
        // No page becomes inactive meanwhile, and what is met again was seen.
        while let Some(frame) = self.frames.pages.as_ref().and_then(|pages| pages.read(List::Inactive, &mut reader)) {
            let Some(seen) = seen.get_mut((frame >> order) as usize) else { continue };
            if core::mem::replace(seen, true) {
                continue;
            }
            let extent = Extent { start: Pfn(u64::from(frame)).align_down(pages), level };
            if let Some(taken) = self.contributors(pmap, extent) {
                let mut written = false;
                for (frame, page) in taken {
                    // It was clean: only another processor can have written it since, and then it
                    // stays.
                    if self.unmap_everywhere(pmap, page, frame) {
                        self.objects.get_mut(page.object).sole = false;
                        written = true;
                    } else {
                        self.evicted(page, frame);
                    }
                }
                if written {
                    continue;
                }
                if self.policy.answers.reclaim.cache == Cache::Held {
                    self.frames.free_held_in(extent);
                }
                self.frames.stats.contiguity_restored += 1;
                goal -= 1;
                if goal == 0 {
                    return true;
                }
            }
        }
        false
    }

    /// The pages that must be evicted for an extent to become available: all of them inactive,
    /// clean and not referenced. `None` if something else is in it, or if none need be evicted.
    fn contributors(&mut self, pmap: &mut impl Pmap, extent: Extent) -> Option<Vec<(u32, PageOf)>> {
        let first = extent.start.0 as u32;
        let frames = first..first + self.frames.ladder.pages(extent.level) as u32;
        let listed = |frame| matches!(self.frames.list_of(frame), Some(List::Active | List::Unswappable | List::Busy));
        let stays = |frame| listed(frame) || self.frames.in_pool(frame);
        if frames.clone().any(stays) {
            return None;
        }
        let mut taken = Vec::new();
        for frame in frames.clone() {
            match self.frames.list_of(frame) {
                Some(List::Inactive) => {
                    let page = self.frames.page_of(frame)?;
                    if self.is_dirty(pmap, page, frame) {
                        return None;
                    }
                    taken.push((frame, page));
                }
                Some(_) => {}
                None => {
                    let alone = Extent { start: Pfn(u64::from(frame)), level: Level::BASE };
                    if !self.frames.buddy.is_free(alone) && self.frames.covering(frame).is_none() {
                        return None;
                    }
                }
            }
        }
        for &(frame, page) in &taken {
            if self.frames.list_of(frame) != Some(List::Inactive) {
                return None;
            }
            let sample = self.sample(pmap, page, frame, false);
            if sample.referenced {
                self.frames.age(frame, &sample, false, 1);
                return None;
            }
        }
        Some(taken)
    }
}
