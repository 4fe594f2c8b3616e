//! Dirty pages: which base pages of a superpage were written (Navarro et al., section 4.7). A clean
//! superpage is demoted at its first write, or dirty base pages are inferred from digests of their
//! contents.

use crate::fault::site::Site;
use crate::object::population::Walk;
use crate::object::{ObjectId, PageOf};
use crate::policy::{Dirty, Hash};
use crate::vm::Vm;
use crate::{Memory, Pmap};
use superpage_pages::{Level, Pfn, Protection};

impl Vm {
    /// Whether it makes a difference to page-outs which pages of an object are dirty.
    pub(crate) fn dirt_matters(&self, object: ObjectId) -> bool {
        match self.policy.answers.promote.dirty {
            Dirty::All => true,
            Dirty::Files => self.objects.get(object).file.is_some(),
            Dirty::Nowhere => false,
        }
    }

    /// Whether the first write to each clean page of an object traps: such pages are mapped without
    /// the right to write.
    pub(crate) fn tracks_dirt(&self, object: ObjectId) -> bool {
        (self.policy.answers.demote.on_write || self.policy.answers.reclaim.hash == Hash::Late)
            && self.dirt_matters(object)
    }

    /// The rights with which clean pages of an object are mapped, where the map entry allows
    /// `rights`.
    pub(crate) fn rights_if_clean(&self, object: ObjectId, rights: Protection) -> Protection {
        if rights.contains(Protection::WRITE) && self.tracks_dirt(object) {
            rights & !Protection::WRITE
        } else {
            rights
        }
    }

    /// Handles a write to the page of a walk in a superpage that may not be written yet. If it is
    /// clean, it is demoted around the page, or its pages are hashed first. Returns the level of
    /// the mapping that may now be written.
    pub(crate) fn first_write(&mut self, pmap: &mut impl Pmap, site: &Site, walk: &Walk, level: Level) -> Level {
        let (pages, size) = (self.frames.ladder.pages(level), self.frames.ladder.size(level));
        let start = site.at.align_down(pages);
        if pmap.used(site.space, start, size).modified {
            return level;
        }
        if self.policy.answers.demote.on_write {
            self.demote_around(pmap, site.window(walk.page.object), site.at, false);
            self.frames.stats.demotions_on_write += 1;
            return Level::BASE;
        }
        let first = walk.frame - (site.at - start) as u32;
        self.frames.digests.wait(first..first + pages as u32);
        level
    }

    /// Hashes the queued pages, if the policy hashes when a page is read or before a clean
    /// superpage is written: after frames are filled, and before the program goes on.
    #[inline]
    pub(crate) fn hash_if_wanted(&mut self, pmap: &impl Pmap, memory: &mut impl Memory) {
        if self.policy.answers.reclaim.hash != Hash::Idle && !self.frames.digests.none_waits() {
            self.idle(pmap, memory, u64::MAX);
        }
    }

    /// The idle loop: hashes up to `most` pages that were read in and are still clean. Returns how
    /// many it hashed. Costs a call of [`Memory::digest`] for each, and for each page in the queue
    /// that it passes a look at its mappings; O(1) if none waits.
    pub fn idle(&mut self, pmap: &impl Pmap, memory: &mut impl Memory, most: u64) -> u64 {
        let mut hashed = 0;
        while hashed < most
            && let Some(frame) = self.frames.digests.next_waiting()
        {
            // The page may have been evicted or written since: then its digest would say nothing.
            if self.frames.busy.contains(frame) {
                continue;
            }
            let Some(page) = self.frames.page_of(frame) else { continue };
            if !self.is_dirty(pmap, page, frame) {
                let digest = memory.digest(Pfn(u64::from(frame)));
                hashed += 1;
                // Another processor may have written it meanwhile.
                if !self.is_dirty(pmap, page, frame) {
                    self.frames.digests.put(frame, digest);
                }
            }
        }
        self.frames.stats.pages_hashed += hashed;
        hashed
    }

    /// Whether a populated page must be treated as dirty.
    pub(crate) fn is_dirty(&self, pmap: &impl Pmap, page: PageOf, frame: u32) -> bool {
        self.frames.is_dirty(frame)
            || self.spaces.mappings(&self.objects, pmap, page, frame).into_iter().any(|mapping| {
                let start = mapping.at.align_down(self.frames.ladder.pages(mapping.level));
                pmap.used(mapping.space, start, self.frames.ladder.size(mapping.level)).modified
            })
    }
}
