//! The page daemon (Navarro et al., section 5.1): approximate LRU over the active and inactive
//! lists, as in FreeBSD; and, if the policy says so, contiguity-aware replacement and speculative
//! demotion (section 4.6).

use crate::fault::promotion::Leaf;
use crate::object::PageOf;
use crate::policy::{Cache, Wake};
use crate::reclaim::pages::List;
use crate::vm::Vm;
use crate::{Memory, MemoryState, Pmap};
use alloc::vec;
use alloc::vec::Vec;
use superpage_pages::{Extent, Level, MAX_LEVELS, Pfn};

/// What the reference bits of a page's mappings said.
struct Sample {
    referenced: bool,
    /// The level of the superpage that mapped the page with others, if any: they are aged together.
    level: Level,
    /// The superpage was demoted, so it is not known which of its parts were referenced.
    split: bool,
}

impl Vm {
    /// Frames that can be allocated without evicting a page: free, reserved and unpopulated, or
    /// holding a cache page.
    pub(crate) fn available(&self) -> u64 {
        let Some(pages) = &self.frames.pages else { return 0 };
        let stats = &self.frames.stats;
        let held = if self.policy.answers.reclaim.cache == Cache::Held { pages.count(List::Cache) } else { 0 };
        self.frames.buddy.frames() - stats.unknown_frames() - stats.resident_pages + held
    }

    /// The daemon is woken with fewer available frames than this: about 0.5 % of memory, unless the
    /// policy says more.
    fn least(&self) -> u64 {
        let frames = self.frames.buddy.frames();
        (4 + frames * u64::from(self.policy.answers.reclaim.aim) / 400).min(frames / 8).max(1)
    }

    /// The number of available frames that the daemon, once woken, aims at.
    fn target(&self) -> u64 {
        (4 * self.least()).min(self.frames.buddy.frames() / 4).max(1)
    }

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
                self.available()
            } else {
                buddy.frames() - stats.unknown_frames() - stats.resident_pages
            },
            low: if daemon { self.least() } else { 0 },
            aim: if daemon { self.target() } else { 0 },
            extents,
        }
    }

    /// Whether memory is not short with so many more frames populated: as many are left as the
    /// daemon aims at, where there is one.
    pub(crate) fn has_ample(&self, more: u64) -> bool {
        let stats = &self.frames.stats;
        let aim = if self.frames.pages.is_some() { self.target() } else { 0 };
        self.frames.buddy.frames() >= stats.unknown_frames() + stats.resident_pages + more + aim
    }

    /// Whether the page daemon has work: memory is short, or a request for contiguity failed and
    /// the policy wakes the daemon for that. If no page could be evicted (swap space is full), it
    /// waits until some are freed, a slot is, or a fault ends with
    /// [`crate::FaultError::OutOfMemory`]. The kernel calls this between one operation and the
    /// next. O(1).
    pub fn daemon_wanted(&self) -> bool {
        let Some(pages) = &self.frames.pages else { return false };
        // If the whole inactive list did not help, it will not until something changes.
        let mut goals = self.frames.wanted.iter().zip(&self.exhausted);
        let contiguity =
            self.frames.wants && goals.any(|(goal, exhausted)| *goal > 0 && *exhausted != Some(pages.changes()));
        let swappable = pages.count(List::Unswappable) > 0 && self.frames.swap_and_cache.vacant_slots() > 0;
        let hope = |at| self.frames.stats.resident_pages < at || swappable;
        let short = self.available() < self.least() && self.futile.is_none_or(hope);
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
        if self.available() < self.least() {
            split = self.split_deferred(pmap, memory, self.target());
            self.restore_memory(pmap, memory);
            if starved && self.available() == 0 {
                self.take_latest(pmap, memory);
            }
            let futile = self.frames.stats.evictions == before && !split;
            self.futile = futile.then_some(self.frames.stats.resident_pages);
        }
        if self.policy.answers.scarce.wake == Wake::Contiguity {
            for level in self.frames.ladder.levels().skip(1).rev() {
                let met = self.restore_contiguity(pmap, level, goals[level.index()]);
                let changes = self.frames.pages.as_ref().map(|pages| pages.changes());
                self.exhausted[level.index()] = if met { None } else { changes };
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
        let target = self.target();
        if self.available() >= target {
            return;
        }
        self.readmit();
        let unswappable = self.count(List::Unswappable);
        self.scan_inactive(pmap, memory, target);
        // Enough inactive pages for this run and the next.
        let enough = 2 * target + target / 2;
        self.scan_active(pmap, enough, 1);
        self.scan_inactive(pmap, memory, target);
        // At most three passes: pages less active than the most active of those that must go;
        // these; and all if swap space is full.
        for _ in 0..3 {
            let full = self.count(List::Unswappable) > unswappable;
            let Some(rounds) = self.rounds_ahead(target, full) else { return };
            self.scan_active(pmap, if full { u64::MAX } else { enough }, rounds);
            self.scan_inactive(pmap, memory, target);
        }
    }

    /// How many rounds it takes until enough active pages for what is still missing have no
    /// activity left; if other pages lose theirs in an earlier round, the last such round, so that
    /// the least active are evicted first. With `all`, until no page has any, since few of them can
    /// be evicted. `None` if nothing is missing, or no page is active.
    fn rounds_ahead(&mut self, target: u64, all: bool) -> Option<u8> {
        let missing = target.checked_sub(self.available()).filter(|missing| *missing > 0)?;
        let activities = self.frames.pages.as_mut()?.activities();
        let (mut pages, mut rounds) = (0, None);
        for (activity, count) in (0..).zip(activities).filter(|(_, count)| *count > 0) {
            pages += u64::from(count);
            if pages >= missing && !all {
                return rounds.or(Some(activity.max(1)));
            }
            rounds = Some(activity.max(1));
        }
        rounds
    }

    /// Makes pages inactive again that swap space had no room for, as many as it has room for now.
    fn readmit(&mut self) {
        for _ in 0..self.frames.swap_and_cache.vacant_slots() {
            let Some(frame) = self.head_of(List::Unswappable) else { return };
            self.put(frame, List::Inactive);
        }
    }

    /// Evicts pages that the last faults mapped, the oldest first, until a frame is available.
    fn take_latest(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory) {
        let latest: Vec<u32> = self.frames.pages.iter().flat_map(|pages| pages.latest()).collect();
        for frame in latest {
            if self.available() == 0
                && let Some(List::Active | List::Inactive) = self.list_of(frame)
                && let Some(page) = self.frames.page_of(frame)
            {
                self.take_out(pmap, memory, page, frame);
            }
        }
    }

    fn count(&self, list: List) -> u64 {
        self.frames.pages.as_ref().map_or(0, |pages| pages.count(list))
    }

    pub(super) fn is_latest(&self, frame: u32) -> bool {
        self.frames.pages.as_ref().is_some_and(|pages| pages.is_latest(frame))
    }

    fn head_of(&self, list: List) -> Option<u32> {
        self.frames.pages.as_ref().and_then(|pages| pages.head(list))
    }

    pub(super) fn list_of(&self, frame: u32) -> Option<List> {
        self.frames.pages.as_ref().and_then(|pages| pages.list(frame))
    }

    /// Evicts inactive pages, the least recent first; those that were referenced become active
    /// again.
    fn scan_inactive(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, target: u64) {
        // Whatever happens to the first page of the list, it leaves the list.
        while self.available() < target
            && let Some(frame) = self.head_of(List::Inactive)
            && let Some(page) = self.frames.page_of(frame)
        {
            let sample = self.sample(pmap, page, frame, true);
            if sample.referenced || self.is_latest(frame) {
                self.age(frame, &sample, false, 1);
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
        let mut left = self.count(List::Active);
        while left > 0
            && let Some(frame) = self.head_of(List::Active)
            && let Some(page) = self.frames.page_of(frame)
        {
            if self.count(List::Inactive) + self.available() >= enough {
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
            left -= self.age(frame, &sample, !needed, rounds).min(left);
            if sample.referenced && sample.level == Level::BASE {
                self.repromote(pmap, page, frame);
            }
        }
    }

    /// The page in a frame, if that is on the list.
    fn page_on(&self, frame: u32, list: List) -> Option<PageOf> {
        if self.list_of(frame) == Some(list) { self.frames.page_of(frame) } else { None }
    }

    pub(super) fn put(&mut self, frame: u32, list: List) {
        if let Some(pages) = &mut self.frames.pages {
            pages.put(frame, list);
        }
    }

    /// Records whether a page, with those that one superpage maps with it, was referenced in so
    /// many rounds, and moves them to their next list: active, or inactive once no activity is left
    /// or nothing needs the object. What the last faults mapped stays active. Returns how many were
    /// active.
    fn age(&mut self, frame: u32, sample: &Sample, unneeded: bool, rounds: u8) -> u64 {
        let referenced = sample.referenced;
        let count = self.frames.ladder.pages(sample.level) as u32;
        let first = frame & !(count - 1);
        let Some(pages) = &mut self.frames.pages else { return 0 };
        let mut active = 0;
        for frame in first..first + count {
            match pages.list(frame) {
                Some(List::Active) => active += 1,
                Some(List::Inactive) => {}
                _ => continue,
            }
            let activity = pages.sampled(frame, referenced, !sample.split, rounds);
            let keep = referenced || activity > 0 && !unneeded || pages.is_latest(frame);
            pages.put(frame, if keep { List::Active } else { List::Inactive });
        }
        active
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
            if referenced && pressure && self.speculates() {
                // The bit was cleared first, so that the parts start without it and only those in
                // use will have it again.
                self.demote_around(pmap, mapping.window(page.object), mapping.at, false);
                self.frames.stats.speculative_demotions += 1;
                sample.split = true;
            }
        }
        sample
    }

    /// Decides pseudo-randomly whether to demote speculatively: the same history yields the same
    /// decisions.
    fn speculates(&mut self) -> bool {
        match self.policy.answers.demote.speculate {
            0 => false,
            4.. => true,
            quarters => {
                self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (self.random >> 62) < u64::from(quarters)
            }
        }
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
                    self.free_held_in(extent);
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
        let listed = |frame| matches!(self.list_of(frame), Some(List::Active | List::Unswappable | List::Busy));
        let stays = |frame| listed(frame) || self.frames.in_pool(frame);
        if frames.clone().any(stays) {
            return None;
        }
        let mut taken = Vec::new();
        for frame in frames.clone() {
            match self.list_of(frame) {
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
            if self.list_of(frame) != Some(List::Inactive) {
                return None;
            }
            let sample = self.sample(pmap, page, frame, false);
            if sample.referenced {
                self.age(frame, &sample, false, 1);
                return None;
            }
        }
        Some(taken)
    }

    /// Frees the cache pages in an extent that still hold their frames.
    fn free_held_in(&mut self, extent: Extent) {
        let first = extent.start.0 as u32;
        for frame in first..first + self.frames.ladder.pages(extent.level) as u32 {
            if let Some(PageOf { object, index }) = self.page_on(frame, List::Cache) {
                self.frames.split_at(frame);
                self.frames.unpopulate(object, index, index + 1);
            }
        }
    }
}
