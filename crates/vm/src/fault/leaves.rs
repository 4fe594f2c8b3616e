//! Leaves of page tables: removing and moving them, superpages among them.

use crate::frame::Frames;
use crate::space::{Entry, Window};
use crate::vm::Vm;
use crate::{Pmap, SpaceId, Used};
use alloc::vec::Vec;
use superpage_pages::{Access, Level, Mapped, Pfn, Protection, Vpn};

/// A leaf of a page table: a page, the frame that it is mapped to, and the level and the rights of
/// the mapping.
#[derive(Clone, Copy)]
pub(crate) struct Leaf {
    /// A page that it maps.
    pub(crate) at: Vpn,
    /// The frame of that page.
    pub(crate) frame: u32,
    pub(crate) level: Level,
    pub(crate) rights: Protection,
}

impl Frames {
    /// The leaf that maps a page, as of the first page that it maps.
    pub(crate) fn leaf(&self, pmap: &impl Pmap, space: SpaceId, at: Vpn) -> Option<Leaf> {
        let mapped = pmap.lookup(space, at)?;
        let level = self.level(mapped.size);
        let start = at.align_down(self.ladder.pages(level));
        let frame = (mapped.frame.0 - (at - start)) as u32;
        Some(Leaf { at: start, frame, level, rights: mapped.protection })
    }
}

impl Vm {
    /// Calls `change` with each mapping of the entry's pages, as of the first page that it maps.
    /// Nothing may be mapped across either end. O(pages populated there).
    pub(crate) fn each_mapped<P: Pmap>(
        &mut self,
        pmap: &mut P,
        space: SpaceId,
        entry: &Entry,
        mut change: impl FnMut(&mut Vm, &mut P, Leaf),
    ) {
        let mut runs = Vec::new();
        for object in self.objects.chain(entry.object) {
            self.frames.population.runs(object, entry.offset, entry.offset_end(), &mut runs);
        }
        for run in runs {
            let (mut at, end) = (entry.page(run.start), entry.page(run.end));
            while at < end {
                let Some(leaf) = self.frames.leaf(pmap, space, at) else {
                    at = at + 1;
                    continue;
                };
                change(self, pmap, leaf);
                at = leaf.at + self.frames.ladder.pages(leaf.level);
            }
        }
    }

    /// Removes all mappings of a part of an entry; `entry` is the whole.
    pub(crate) fn remove_mapped(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, part: &Entry) {
        self.demote_edge(pmap, space, entry, part.start);
        self.demote_edge(pmap, space, entry, part.end);
        self.unmap_zero_leaves(pmap, space, Vpn(part.start)..Vpn(part.end));
        let whole = self.policy.answers.demote.on_unmap;
        self.each_mapped(pmap, space, part, |vm, pmap, leaf| {
            let Leaf { at, frame, level, .. } = leaf;
            let holder =
                if level > Level::BASE { vm.frames.holder(&vm.objects, entry.object, entry.index(at.0)) } else { None };
            if let Some(walk) = holder.filter(|_| whole) {
                vm.dissolve(pmap, Window { space, entry, object: walk.page.object }, at, level);
                let base = vm.frames.ladder.base();
                for page in 0..vm.frames.ladder.pages(level) {
                    let used = pmap.remove(space, at + page, base);
                    vm.frames.note_modified(used, frame + page as u32, 1);
                }
                vm.frames.stats.mapped[0] -= vm.frames.ladder.pages(level);
                return;
            }
            vm.remove_one(pmap, space, entry, leaf);
        });
    }

    /// Removes a mapping of pages of the entry.
    pub(crate) fn remove_one(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, leaf: Leaf) {
        let used = pmap.remove(space, leaf.at, self.frames.ladder.size(leaf.level));
        self.note_removed(entry, leaf, used);
    }

    /// A mapping of pages of the entry was removed.
    pub(crate) fn note_removed(&mut self, entry: &Entry, leaf: Leaf, used: Used) {
        let Leaf { at, frame, level, .. } = leaf;
        let holder =
            if level > Level::BASE { self.frames.holder(&self.objects, entry.object, entry.index(at.0)) } else { None };
        if let Some(walk) = holder
            && self.objects.get(walk.page.object).sole
        {
            self.frames.count_superpage(&walk, level, -1);
        }
        self.frames.note_modified(used, frame, self.frames.ladder.pages(level));
        self.frames.stats.mapped[level.index()] -= 1;
    }

    /// Moves all mappings of an entry to its new place. Superpages that would not be aligned there
    /// are demoted until they are.
    pub(crate) fn move_mapped(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, moved: &Entry) {
        let by = Move { space, entry, to: Vpn(moved.start) };
        self.move_zero_leaves(pmap, by);
        self.each_mapped(pmap, space, entry, |vm, pmap, leaf| vm.move_mapping(pmap, by, leaf));
    }

    fn move_mapping(&mut self, pmap: &mut impl Pmap, by: Move<'_>, leaf: Leaf) {
        let (Move { space, entry, .. }, Leaf { at, frame, level, rights }) = (by, leaf);
        let to = by.to + (at.0 - entry.start);
        let (size, pages) = (self.frames.ladder.size(level), self.frames.ladder.pages(level));
        let stays = level == Level::BASE || entry.is_pooled() || !self.policy.answers.demote.on_move;
        if to.is_aligned(pages) && stays {
            let used = pmap.remove(space, at, size);
            // Only now: that may have emptied the tables that both places share.
            self.enter_again(pmap, by, leaf, used);
        } else if let Some(walk) = self.frames.holder(&self.objects, entry.object, entry.index(at.0)) {
            let window = Window { space, entry, object: walk.page.object };
            let smaller = self.demote_once(pmap, window, at, level);
            let step = self.frames.ladder.pages(smaller);
            for part in (0..pages).step_by(step as usize) {
                let part = Leaf { at: at + part, frame: frame + part as u32, level: smaller, rights };
                self.move_mapping(pmap, by, part);
            }
        }
    }

    /// Maps at its new place, with the bits that it had, what was removed from page tables. If
    /// these have no room, the program's next access maps it; until then the object has populated
    /// pages that are not mapped.
    pub(crate) fn enter_again(&mut self, pmap: &mut impl Pmap, by: Move<'_>, leaf: Leaf, used: Used) {
        let (Move { space, entry, .. }, Leaf { at, frame, level, rights }) = (by, leaf);
        let to = by.to + (at.0 - entry.start);
        if !self.frames.give_spare_tables(&self.policy.answers, pmap, space.page(to), level) {
            self.note_removed(entry, leaf, used);
            if let Some(walk) = self.frames.holder(&self.objects, entry.object, entry.index(at.0)) {
                self.objects.get_mut(walk.page.object).sole = false;
            }
            return;
        }
        let mapped = Mapped { frame: Pfn(u64::from(frame)), size: self.frames.ladder.size(level), protection: rights };
        match used {
            Used { referenced: false, modified: false } => pmap.enter_untouched(space, to, mapped),
            Used { modified: false, .. } => pmap.enter(space, to, mapped, Access::Read),
            Used { modified: true, .. } => pmap.enter(space, to, mapped, Access::Write),
        }
    }
}

/// An entry of a space, and the page where it is to start.
#[derive(Clone, Copy)]
pub(crate) struct Move<'a> {
    pub(crate) space: SpaceId,
    pub(crate) entry: &'a Entry,
    pub(crate) to: Vpn,
}
