//! Prepopulation: populating more than a program touches. All of an extent (Linux), the rest of a
//! region once a share of it is populated (Navarro et al., sections 2.3 and 4.5; Talluri and Hill,
//! ASPLOS 1994), or pages of a reservation around one that is touched (fault-around), so that a
//! sequential fill has fewer faults.

use crate::fault::site::{FaultContext, Site};
use crate::frame::taken::{Content, Provided};
use crate::object::population::Walk;
use crate::object::{ObjectId, PageOf};
use crate::policy::{Accessed, Promote, Resident};
use crate::vm::Vm;
use crate::{Filled, Memory, Page, Pmap};
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};
use superpage_pages::{Access, Level, Mapped, Pfn, Protection};

impl Vm {
    /// Populates, fills and maps the rest of each region around a page of which enough is
    /// populated, from the smallest up, until a frame cannot be filled, or not at once. Returns the
    /// level of the largest region that is now fully populated. O(pages of the region).
    pub(crate) fn prepopulate(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        object: ObjectId,
        rights: Protection,
    ) -> u8 {
        let Site { entry, at, .. } = context.site;
        let index = entry.index(at.0);
        let walk = self.frames.population.walk(object, index);
        let mut full = 0;
        for level in 1..=walk.covered {
            let pages = self.frames.population.pages(level);
            let low = index & !(pages - 1);
            let populated = self.frames.population.count(level, walk.slots[level as usize]);
            let enough = 8 * populated >= u64::from(self.policy.answers.populate.threshold) * pages;
            let allowed = enough && self.may_prepopulate(&context.site, object, low..low + pages);
            if !allowed || entry.page(low) != at.align_down(pages) {
                break;
            }
            for page in low..low + pages {
                if !self.frames.population.walk(object, page).populated
                    && !self.prepopulate_one(context, object.page(page), rights)
                {
                    return full;
                }
            }
            full = level;
        }
        full
    }

    /// Fault-around: populates, fills and maps the window of base pages around a page that was just
    /// populated, and promotes there. Windows are aligned, lie in the page's reservation, and have
    /// 2, 4, ... pages up to what the policy says; one is populated if the page is its first and as
    /// many pages before it are populated, at least four, or its last and as many after it. So
    /// windows double where pages are touched in order, up or down, and never take more than lies
    /// populated right next to the page; touches at random, even in memory that is half full,
    /// seldom populate more than a page. Stops where a frame cannot be filled, or not at once;
    /// where memory would be short; and before pages with contents elsewhere, or frames that hold
    /// cache pages. Returns the level of the largest region around the page that is now fully
    /// populated. O(pages of the largest window).
    pub(crate) fn populate_around(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        object: ObjectId,
        rights: Protection,
    ) -> u8 {
        let index = context.site.index();
        let walk = self.frames.population.walk(object, index);
        if walk.covered == 0 {
            return 0;
        }
        let most = u64::from(self.policy.answers.populate.around).min(self.frames.population.pages(walk.covered));
        let mut pages = 2;
        while pages <= most {
            let low = index & !(pages - 1);
            // As many pages as the window has, and at least four.
            let windows = 1..=(4 / pages).max(1);
            let all = |mut of: RangeInclusive<u64>, from: &dyn Fn(u64) -> Option<u64>| {
                of.all(|window| from(window).is_some_and(|low| self.frames.population.is_populated(object, low, pages)))
            };
            let before = index == low && all(windows.clone(), &|window| low.checked_sub(window * pages));
            let next_to = before || index == low + pages - 1 && all(windows, &|window| Some(low + window * pages));
            if next_to && !self.populate_window(context, object, low..low + pages, rights) {
                break;
            }
            pages *= 2;
        }
        let walk = self.frames.population.walk(object, index);
        self.frames.population.full_level(&walk)
    }

    /// Populates what is not populated of a window of reserved pages. Returns `false` if not all
    /// could be.
    fn populate_window(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        object: ObjectId,
        window: Range<u64>,
        rights: Protection,
    ) -> bool {
        let pages = window.clone().map(|page| self.frames.population.walk(object, page));
        let absent: Vec<Walk> = pages.filter(|walk| !walk.populated).collect();
        if absent.is_empty() {
            return true;
        }
        let cached = absent.iter().any(|walk| self.frames.buddy.is_cached(Pfn(u64::from(walk.frame))));
        let ample = self.frames.has_ample(&self.policy.answers, absent.len() as u64);
        if cached || !ample || !self.may_prepopulate(&context.site, object, window.clone()) {
            return false;
        }
        let all = absent.iter().all(|walk| self.prepopulate_one(context, walk.page, rights));
        self.promote_beside(context, object, window);
        all
    }

    /// Promotes the regions among these pages of an object that are fully populated, except around
    /// the page that was touched, which is promoted last.
    fn promote_beside(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        object: ObjectId,
        Range { start: mut page, end }: Range<u64>,
    ) {
        let site = context.site;
        while page < end {
            let walk = self.frames.population.walk(object, page);
            let full = self.frames.population.full_level(&walk);
            let apart = |level: &u8| (page ^ site.index()) >= self.frames.population.pages(*level);
            let to = (1..=full).rev().find(apart).map_or(Level::BASE, Level);
            let mut reached = Level::BASE;
            if to > Level::BASE
                && let Some(leaf) = self.frames.leaf(context.pmap, site.space, site.entry.page(page))
            {
                reached = self.promote(context.pmap, site.window(object), leaf, to.max(leaf.level));
            }
            page = (page | (self.frames.population.pages(reached.0.max(1)) - 1)) + 1;
        }
    }

    /// Whether untouched pages of an object may be populated for a fault: it is the only object
    /// there, they lie in the map entry, no hint is against it, and none has contents in swap space
    /// or the cache.
    fn may_prepopulate(&self, site: &Site, object: ObjectId, pages: Range<u64>) -> bool {
        let entry = &site.entry;
        let simple = object == entry.object && !entry.copy && self.objects.get(object).backing.is_none();
        let inside = pages.start >= entry.offset && pages.end <= entry.offset_end();
        simple
            && inside
            && self.policy.answers.place.hints.allow(entry.hint)
            && !self.frames.swap_and_cache.has_pages_in(object, pages.start, pages.end)
    }

    /// Whether all of the region of a level around a page may be populated at its first touch:
    /// anonymous, private, wholly in its map entry, with nothing behind it and no swap or cache
    /// page in it.
    pub(crate) fn fills_whole(&self, site: &Site, object: ObjectId, level: Level) -> bool {
        let (entry, pages) = (&site.entry, self.frames.ladder.pages(level));
        let low = site.index() & !(pages - 1);
        let known = self.objects.get(object);
        let plain = known.backing.is_none() && known.file.is_none() && object == entry.object;
        plain
            && !entry.copy
            && !entry.shared
            && entry.holds_extent(site.at, pages)
            && !self.frames.swap_and_cache.has_pages_in(object, low, low + pages)
            && self.may_replace_zero_leaves(site, level)
    }

    /// Maps all of the extent that holds the page of a walk, which is populated and filled. If the
    /// hardware has pages of that size, the policy promotes, and the dirty bits would agree, it is
    /// mapped as one superpage without a promotion, as Linux does at a fault; otherwise as base
    /// pages. Returns the level at which the page is mapped.
    pub(crate) fn enter_extent(&mut self, pmap: &mut impl Pmap, site: &Site, walk: &Walk, rights: Protection) -> Level {
        let (PageOf { object, index }, level, ladder) = (walk.page, Level(walk.covered), self.frames.ladder);
        let pages = ladder.pages(level);
        let low = index & !(pages - 1);
        let first = Pfn(u64::from(walk.frame) - (index - low));
        let start = site.at.align_down(pages);
        let differ = site.access == Access::Write && self.dirt_matters(object);
        if differ
            || self.policy.answers.promote.when == Promote::Never
            || !pmap.contiguity(ladder.size(level)).is_whole()
        {
            let rights_beside = self.rights_if_clean(object, rights);
            pmap.enter(
                site.space,
                site.at,
                Mapped { frame: Pfn(u64::from(walk.frame)), size: ladder.base(), protection: rights },
                site.access,
            );
            let beside = index - low;
            for part in [0..beside, beside + 1..pages].into_iter().filter(|part| !part.is_empty()) {
                pmap.enter_pages(
                    site.space,
                    (start + part.start).pages(part.end - part.start),
                    Mapped { frame: first + part.start, size: ladder.base(), protection: rights_beside },
                    Access::Read,
                );
            }
            self.frames.stats.mapped[Level::BASE.index()] += pages;
            return Level::BASE;
        }
        pmap.enter(
            site.space,
            start,
            Mapped { frame: first, size: ladder.size(level), protection: rights },
            site.access,
        );
        // A superpage has one dirty bit for all its pages.
        let frames = first.0 as u32..(first + pages).0 as u32;
        self.frames.strand(&self.objects, object, frames, site.access == Access::Write);
        self.frames.note_superpage(&self.objects, walk, level, true);
        level
    }

    /// The level of what a fault on a populated page that is not mapped maps at once, as the policy
    /// says ([`Resident`]). O(pages of that extent).
    pub(crate) fn resident_extent(&self, pmap: &impl Pmap, site: &Site, walk: &Walk) -> Level {
        let (Site { space, entry, at, access, .. }, PageOf { object, index }) = (site, walk.page);
        let known = self.objects.get(object);
        let wanted = (self.policy.answers.populate.resident == Resident::Extent || self.is_text(entry))
            && self.policy.answers.promote.when != Promote::Never
            && self.policy.answers.place.hints.allow(entry.hint);
        if !wanted || *access == Access::Write || known.file.is_none() || known.sole {
            return Level::BASE;
        }
        let (population, ladder) = (&self.frames.population, self.frames.ladder);
        let fits = |level: &Level| {
            let pages = ladder.pages(*level);
            let low = index & !(pages - 1);
            entry.holds_extent(*at, pages)
                && pmap.contiguity(ladder.size(*level)).is_whole()
                && (low..low + pages).all(|page| {
                    // A private copy may hide a page of the file.
                    let reached = entry.object == object
                        || self
                            .frames
                            .holder(&self.objects, entry.object, page)
                            .is_some_and(|holder| holder.page.object == object);
                    let frame = population.walk(object, page).frame;
                    reached
                        && !self.frames.busy.contains(frame)
                        // A cache page is freed without a search for its mappings; the page that is
                        // touched ceases to be one.
                        && (page == index || !self.frames.is_held(frame))
                        && pmap.lookup(*space, entry.page(page)).is_none()
                })
        };
        (1..=population.full_level(walk)).rev().map(Level).find(fits).unwrap_or(Level::BASE)
    }

    /// Populates, fills and maps a page whose frame is reserved, though nobody touches it. Returns
    /// `false` if it could not be filled, or will be filled later.
    pub(crate) fn prepopulate_one(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        PageOf { object, index }: PageOf,
        rights: Protection,
    ) -> bool {
        let FaultContext { pmap, memory, site } = context;
        if self.frames.busy.reading(object, index).is_some() {
            return false;
        }
        let (at, base) = (site.entry.page(index), self.frames.ladder.base());
        if !self.frames.give_spare_tables(&self.policy.answers, *pmap, site.space.page(at), Level::BASE) {
            return false;
        }
        let content = Content::new(object, self.objects.get(object).file, index);
        let taken = self.frames.take_untouched(&self.policy.answers, object.page(index), content);
        let page = Page::Mapped { space: site.space, at };
        let Ok(Provided { taken, filled: Filled::Now, .. }) = self.provide(*memory, page, taken) else { return false };
        let (frame, protection) = (Pfn(u64::from(taken.walk.frame)), self.rights_if_clean(object, rights));
        let to = Mapped { frame, size: base, protection };
        self.unmap_zero_leaves(*pmap, site.space, at..at + 1);
        match self.policy.answers.promote.accessed {
            Accessed::Any => pmap.enter(site.space, at, to, Access::Read),
            Accessed::All => pmap.enter_untouched(site.space, at, to),
        }
        self.frames.stats.mapped[Level::BASE.index()] += 1;
        true
    }
}
