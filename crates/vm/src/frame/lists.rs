//! What the page lists say of frames: how many are available, and which page is on which list.

use crate::frame::Frames;
use crate::object::PageOf;
use crate::policy::{Answers, Cache};
use crate::queue::pages::List;
use superpage_pages::{Extent, Level};

/// What the reference bits of a page's mappings said.
pub(crate) struct Sample {
    pub(crate) referenced: bool,
    /// The level of the superpage that mapped the page with others, if any: they are aged together.
    pub(crate) level: Level,
    /// The superpage was demoted, so it is not known which of its parts were referenced.
    pub(crate) split: bool,
}

impl Frames {
    /// Frames that can be allocated without evicting a page: free, reserved and unpopulated, or
    /// holding a cache page.
    pub(crate) fn available(&self, answers: &Answers) -> u64 {
        let Some(pages) = &self.pages else { return 0 };
        let stats = &self.stats;
        let held = if answers.reclaim.cache == Cache::Held { pages.count(List::Cache) } else { 0 };
        self.buddy.frames() - stats.unknown_frames() - stats.resident_pages + held
    }

    /// The daemon is woken with fewer available frames than this: about 0.5 % of memory, unless the
    /// policy says more.
    pub(crate) fn least(&self, answers: &Answers) -> u64 {
        let frames = self.buddy.frames();
        (4 + frames * u64::from(answers.reclaim.aim) / 400).min(frames / 8).max(1)
    }

    /// The number of available frames that the daemon, once woken, aims at.
    pub(crate) fn target(&self, answers: &Answers) -> u64 {
        (4 * self.least(answers)).min(self.buddy.frames() / 4).max(1)
    }

    /// Whether memory is not short with `more` further frames populated: as many are left as the
    /// daemon aims at, where there is one.
    pub(crate) fn has_ample(&self, answers: &Answers, more: u64) -> bool {
        let stats = &self.stats;
        let aim = if self.pages.is_some() { self.target(answers) } else { 0 };
        self.buddy.frames() >= stats.unknown_frames() + stats.resident_pages + more + aim
    }

    pub(crate) fn count(&self, list: List) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.count(list))
    }

    pub(crate) fn is_latest(&self, frame: u32) -> bool {
        self.pages.as_ref().is_some_and(|pages| pages.is_latest(frame))
    }

    pub(crate) fn head_of(&self, list: List) -> Option<u32> {
        self.pages.as_ref().and_then(|pages| pages.head(list))
    }

    pub(crate) fn list_of(&self, frame: u32) -> Option<List> {
        self.pages.as_ref().and_then(|pages| pages.list(frame))
    }

    /// How many rounds it takes until enough active pages for what is still missing have no
    /// activity left; if other pages lose theirs in an earlier round, the last such round, so that
    /// the least active are evicted first. With `all`, until no page has any, since few of them can
    /// be evicted. `None` if nothing is missing, or no page is active.
    pub(crate) fn rounds_ahead(&mut self, answers: &Answers, target: u64, all: bool) -> Option<u8> {
        let missing = target.checked_sub(self.available(answers)).filter(|missing| *missing > 0)?;
        let activities = self.pages.as_mut()?.activities();
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
    pub(crate) fn readmit(&mut self) {
        for _ in 0..self.swap_and_cache.vacant_slots() {
            let Some(frame) = self.head_of(List::Unswappable) else { return };
            self.put(frame, List::Inactive);
        }
    }

    /// The page in a frame, if that is on the list.
    pub(crate) fn page_on(&self, frame: u32, list: List) -> Option<PageOf> {
        if self.list_of(frame) == Some(list) { self.page_of(frame) } else { None }
    }

    pub(crate) fn put(&mut self, frame: u32, list: List) {
        if let Some(pages) = &mut self.pages {
            pages.put(frame, list);
        }
    }

    /// Records whether a page, with those that one superpage maps with it, was referenced in so
    /// many rounds, and moves them to their next list: active, or inactive once no activity is left
    /// or nothing needs the object. What the last faults mapped stays active. Returns how many were
    /// active.
    pub(crate) fn age(&mut self, frame: u32, sample: &Sample, unneeded: bool, rounds: u8) -> u64 {
        let referenced = sample.referenced;
        let count = self.ladder.pages(sample.level) as u32;
        let first = frame & !(count - 1);
        let Some(pages) = &mut self.pages else { return 0 };
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

    /// Frees the cache pages in an extent that still hold their frames.
    pub(crate) fn free_held_in(&mut self, extent: Extent) {
        let first = extent.start.0 as u32;
        for frame in first..first + self.ladder.pages(extent.level) as u32 {
            if let Some(PageOf { object, index }) = self.page_on(frame, List::Cache) {
                self.split_at(frame);
                self.unpopulate(object, index, index + 1);
            }
        }
    }
}
