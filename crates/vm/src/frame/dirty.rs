//! Where dirty pages are written to, and which are hashed so that they need not be.

use crate::frame::Frames;
use crate::object::{ObjectId, Objects, PageOf};
use crate::policy::{Answers, Hash};
use crate::{Backed, Memory};
use core::ops::Range;
use superpage_pages::Pfn;

impl Frames {
    /// Queues a page that was read from its backing store for hashing, if the policy hashes.
    #[inline]
    pub(crate) fn hash_when_read(&mut self, answers: &Answers, frame: u32) {
        if matches!(answers.reclaim.hash, Hash::Read | Hash::Idle) {
            self.digests.wait(frame..frame + 1);
        }
    }

    /// Whether there is a place to write a page to.
    pub(crate) fn can_be_written(&self, objects: &Objects, page: PageOf) -> bool {
        !self.needs_slot(objects, page) || self.swap_and_cache.vacant_slots() > 0
    }

    /// Whether a page has no place to be written to yet.
    pub(crate) fn needs_slot(&self, objects: &Objects, page: PageOf) -> bool {
        objects.get(page.object).file.is_none() && self.swap_and_cache.slot(page).is_none()
    }

    /// Where there is no swap space, pages that were just populated in frames side by side go where
    /// the daemon does not look, if they are not of a file and the access, or what filled them,
    /// made them dirty. O(pages), in a few steps for runs.
    #[inline(always)]
    pub(crate) fn strand(&mut self, objects: &Objects, object: ObjectId, frames: Range<u32>, written: bool) {
        if self.swap_and_cache.has_slots() {
            return;
        }
        if let Some(pages) = &mut self.pages
            && objects.get(object).file.is_none()
        {
            if written {
                return pages.strand(frames);
            }
            for frame in frames {
                if pages.dirty(frame) {
                    pages.strand(frame..frame + 1);
                }
            }
        }
    }

    /// Where a page is written to; `None` if swap space is full.
    fn backing(&mut self, objects: &Objects, page: PageOf) -> Option<Backed> {
        match objects.get(page.object).file {
            Some(file) => Some(Backed::File { file, page: page.index }),
            None => self.swap_and_cache.assign_slot(page).map(|slot| Backed::Swap { slot }),
        }
    }

    /// Writes a page out that is treated as dirty, unless its digest shows that it has not changed.
    /// Returns `false` if swap space is full. Clearing the dirty bits of mappings is left to the
    /// caller.
    pub(crate) fn launder(&mut self, objects: &Objects, memory: &mut impl Memory, page: PageOf, frame: u32) -> bool {
        let contents = Pfn(u64::from(frame));
        if let Some(known) = self.digests.get(frame) {
            let now = memory.digest(contents);
            self.stats.pages_hashed += 1;
            self.digests.put(frame, now);
            if now == known {
                self.stats.pages_spared += 1;
                self.set_clean(frame);
                return true;
            }
        }
        let Some(backed) = self.backing(objects, page) else {
            self.digests.forget(frame);
            return false;
        };
        memory.write(backed, contents);
        let stats = &mut self.stats;
        stats.page_outs += 1;
        stats.bytes_written += self.ladder.base().bytes();
        self.set_clean(frame);
        true
    }

    fn set_clean(&mut self, frame: u32) {
        if let Some(pages) = &mut self.pages {
            pages.set_dirty(frame, false);
        }
    }
}
