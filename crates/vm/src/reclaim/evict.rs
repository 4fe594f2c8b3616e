//! How pages leave memory: one, or all that a superpage maps (Linux 4.13: mm/vmscan.c,
//! `CONFIG_THP_SWAP`).

use crate::fault::leaves::Leaf;
use crate::object::PageOf;
use crate::policy::Cache;
use crate::queue::pages::List;
use crate::{Memory, Pmap, Vm};
use superpage_pages::Level;

impl Vm {
    /// Evicts all that a superpage of this level maps, of which none was referenced, if the policy
    /// does not demote it for that. Returns `false`, with nothing changed, if it does, a part of it
    /// is in use otherwise, or swap space has no room for all of it. O(pages).
    pub(super) fn take_out_whole(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        frame: u32,
        level: Level,
    ) -> bool {
        if level == Level::BASE || self.policy.answers.demote.on_evict {
            return false;
        }
        let Some(page) = self.frames.page_of(frame) else { return false };
        let count = self.frames.ladder.pages(level);
        let first = frame & !(count as u32 - 1);
        let frames = first..first + count as u32;
        let mut slots = 0;
        for frame in frames.clone() {
            let inactive = matches!(self.frames.list_of(frame), Some(List::Inactive | List::Unswappable));
            let Some(page) = self.frames.page_of(frame).filter(|_| inactive && !self.frames.is_latest(frame)) else {
                return false;
            };
            slots += u64::from(self.frames.needs_slot(&self.objects, page) && self.is_dirty(pmap, page, frame));
        }
        if slots > self.frames.swap_and_cache.vacant_slots() {
            return false;
        }
        for mapping in self.spaces.mappings(&self.objects, pmap, page, frame) {
            if mapping.level == level {
                let leaf = Leaf { at: mapping.at.align_down(count), frame: first, level, rights: mapping.rights };
                self.remove_one(pmap, mapping.space, &mapping.entry, leaf);
            }
        }
        self.frames.stats.superpages_evicted += 1;
        for frame in frames {
            if let Some(page) = self.frames.page_of(frame) {
                self.take_out(pmap, memory, page, frame);
            }
        }
        true
    }

    /// Evicts a page that was not referenced: unmaps it, writes it out if it is dirty, and makes it
    /// a cache page or frees it. If swap space is full it goes where the daemon does not look, and
    /// stays as it is, unless another processor wrote it meanwhile: then it is no longer mapped.
    pub(super) fn take_out(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, page: PageOf, frame: u32) {
        let dirty = self.is_dirty(pmap, page, frame);
        if dirty && !self.frames.can_be_written(&self.objects, page) {
            return self.frames.put(frame, List::Unswappable);
        }
        if self.unmap_everywhere(pmap, page, frame) || dirty {
            if !dirty && !self.frames.can_be_written(&self.objects, page) {
                self.objects.get_mut(page.object).sole = false;
                return self.frames.put(frame, List::Unswappable);
            }
            self.frames.launder(&self.objects, memory, page, frame);
        }
        self.evicted(page, frame);
    }

    /// Removes all mappings of a page. Returns whether it is dirty now: what is no longer mapped
    /// cannot be written meanwhile.
    pub(super) fn unmap_everywhere(&mut self, pmap: &mut impl Pmap, page: PageOf, frame: u32) -> bool {
        let base = self.frames.ladder.base();
        for mapping in self.spaces.mappings(&self.objects, pmap, page, frame) {
            self.demote_around(pmap, mapping.window(page.object), mapping.at, false);
            let used = pmap.remove(mapping.space, mapping.at, base);
            self.frames.stats.mapped[0] -= 1;
            self.frames.note_modified(used, frame, 1);
        }
        self.is_dirty(pmap, page, frame)
    }

    /// A page that is clean and not mapped becomes a cache page, or is freed.
    pub(super) fn evicted(&mut self, page: PageOf, frame: u32) {
        self.frames.stats.evictions += 1;
        match self.policy.answers.reclaim.cache {
            Cache::Free => self.frames.evict(page, frame, false),
            Cache::Available => self.frames.evict(page, frame, true),
            Cache::Held => {
                // Populated, but no longer mapped.
                self.objects.get_mut(page.object).sole = false;
                self.frames.put(frame, List::Cache);
            }
        }
    }
}
