//! When huge pages are split: at once, or later if a part of them is unmapped ([`Deferred`]).
//!
//! [`Deferred`]: crate::frame::deferred::Deferred

use crate::frame::Frames;
use crate::object::ObjectId;
use superpage_pages::{Extent, Level, Pfn};

impl Frames {
    /// Frees an extent, unless it is a part of a huge page that is split later. O(log huge pages).
    pub(crate) fn free(&mut self, extent: Extent) {
        let first =
            if self.deferred.is_empty() { None } else { self.deferred.find(&self.ladder, extent.start.0 as u32) };
        let Some(first) = first else { return self.buddy.free(extent) };
        if !self.defers {
            self.split(first);
            return self.buddy.free(extent);
        }
        let pages = self.ladder.pages(extent.level);
        if let Some(level) = self.deferred.hold(first, extent, &self.ladder) {
            // Its last page is gone.
            self.deferred.remove(first);
            self.stats.deferred_pages -= self.ladder.pages(level) - pages;
            self.buddy.free(Extent { start: Pfn(u64::from(first)), level });
        } else {
            self.stats.deferred_pages += pages;
            self.stats.peak_deferred_pages = self.stats.peak_deferred_pages.max(self.stats.deferred_pages);
        }
    }

    /// Before these pages of an object are released: the huge pages of which a part stays are split
    /// later.
    pub(super) fn defer(&mut self, object: ObjectId, low: u64, high: u64) {
        if !self.defers || low >= high {
            return;
        }
        for index in [low, high - 1] {
            let walk = self.population.walk(object, index);
            if walk.covered == 0 || !self.population.is_full(walk.covered, walk.slots[walk.covered as usize]) {
                continue;
            }
            let pages = self.population.pages(walk.covered);
            let start = index & !(pages - 1);
            let first = walk.frame & !(pages as u32 - 1);
            let parted = start < low || start + pages > high;
            if parted && self.deferred.find(&self.ladder, first).is_none() {
                self.deferred.add(first, Level(walk.covered));
            }
        }
    }

    /// A huge page was made: it is looked at when its turn comes.
    pub(super) fn await_look(&mut self, extent: Extent) {
        if self.looks_at_huge && extent.level > Level::BASE {
            self.deferred.add(extent.start.0 as u32, extent.level);
        }
    }

    /// Splits the huge page that has this frame, if it is one that was to be split later.
    pub(crate) fn split_at(&mut self, frame: u32) {
        if !self.deferred.is_empty()
            && let Some(first) = self.deferred.find(&self.ladder, frame)
        {
            self.split(first);
        }
    }

    /// Splits those that have a frame of this extent.
    pub(crate) fn split_in(&mut self, extent: Extent) {
        self.split_at(extent.start.0 as u32);
        let (first, end) = (extent.start.0 as u32, (extent.start.0 + self.ladder.pages(extent.level)) as u32);
        self.deferred.starts_in(first..end).into_iter().for_each(|first| _ = self.split(first));
    }

    /// Of those that lost pages, splits the one that has waited longest. Returns whether there was
    /// one.
    pub(super) fn split_oldest(&mut self) -> bool {
        let oldest = self.deferred.oldest_parted();
        oldest.into_iter().for_each(|first| _ = self.split(first));
        oldest.is_some()
    }

    /// Takes the one that has waited longest off the list, and splits it if it lost pages.
    /// Otherwise returns it, to be looked at.
    pub(crate) fn take_oldest(&mut self) -> Option<Result<(), Extent>> {
        let extent = self.deferred.oldest()?;
        let parted = self.split(extent.start.0 as u32);
        Some(if parted { Ok(()) } else { Err(extent) })
    }

    /// Takes one off the list, and frees what nobody has of it. Returns whether that was any.
    fn split(&mut self, first: u32) -> bool {
        let Some(folio) = self.deferred.remove(first) else { return false };
        self.stats.deferred_splits += u64::from(folio.frames > 0);
        self.stats.deferred_pages -= folio.frames;
        folio.held.into_iter().for_each(|extent| self.buddy.free(extent));
        folio.frames > 0
    }
}
