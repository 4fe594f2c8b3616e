//! Incremental promotion (Navarro et al., sections 4.5, 4.9), demotion (4.6), and all other changes
//! of page tables that must take superpages into account.

use crate::object::ObjectId;
use crate::policy::{Accessed, Demote, Promote};
use crate::space::{Entry, Pooled, Window};
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

impl Vm {
    /// Promotes a mapping, size by size, to at most the region of level `full`, which is fully
    /// populated and lies in an extent of the window's object. Returns the level reached. O(number
    /// of sizes) if the object was only ever mapped once; otherwise the mappings of each region are
    /// checked, from the page outward, up to the first that does not fit.
    pub(crate) fn promote(&mut self, pmap: &mut impl Pmap, window: Window<'_>, leaf: Leaf, full: Level) -> Level {
        let wanted = self.policy.answers.promote.when == Promote::FullPopulation
            && self.policy.answers.place.hints.allow(window.entry.hint);
        if !wanted || self.policy.answers.promote.accessed == Accessed::Any {
            return if wanted { self.climb_to(pmap, window, leaf, full) } else { leaf.level };
        }
        let mut reached = leaf;
        while reached.level < full && self.all_accessed(pmap, window, reached) && self.assemble(pmap, window, reached) {
            reached.level = reached.level.up();
        }
        reached.level
    }

    /// Whether all mappings in the region of the next larger size around a mapping have their
    /// reference bits. O(mappings there).
    fn all_accessed(&self, pmap: &impl Pmap, window: Window<'_>, leaf: Leaf) -> bool {
        let ladder = self.frames.ladder;
        let pages = ladder.pages(leaf.level.up());
        let start = leaf.at.align_down(pages);
        let mut at = start;
        while at - start < pages {
            let Some(mapped) = pmap.lookup(window.space, at) else { return false };
            let first = at.align_down(ladder.pages(self.frames.level(mapped.size)));
            if !pmap.used(window.space, first, mapped.size).referenced {
                return false;
            }
            at = first + ladder.pages(self.frames.level(mapped.size));
        }
        true
    }

    /// The same, whatever the policy says.
    pub(crate) fn climb_to(&mut self, pmap: &mut impl Pmap, window: Window<'_>, leaf: Leaf, full: Level) -> Level {
        let mut reached = leaf;
        while reached.level < full && self.assemble(pmap, window, reached) {
            reached.level = reached.level.up();
        }
        reached.level
    }

    /// Makes one mapping of the region of the next larger size around a mapping, if all of it is
    /// mapped with the same rights and by pages of the mapping's size: there is no step above a
    /// size that the hardware cannot map.
    fn assemble(&mut self, pmap: &mut impl Pmap, window: Window<'_>, leaf: Leaf) -> bool {
        let (ladder, level, at) = (self.frames.ladder, leaf.level.up(), leaf.at);
        if [level, level.down()].iter().any(|level| !pmap.contiguity(ladder.size(*level)).is_whole()) {
            return false;
        }
        let Window { space, entry, object } = window;
        let pages = ladder.pages(level);
        let start = at.align_down(pages);
        let index = entry.index(at.0);
        // An object may be mapped where virtual and physical alignment differ (section 5.3).
        if (at.0 ^ index) & (pages - 1) != 0 || start.0 < entry.start || start.0 + pages > entry.end {
            return false;
        }
        if !self.known_uniform(object, index, level) && !self.scan(pmap, window, leaf) {
            return false;
        }
        let (from, to) = (ladder.size(level.down()), ladder.size(level));
        // Where the first write traps, what may be written is dirty and what may not is clean:
        // equal rights say it all.
        if self.dirt_matters(object) && !self.tracks_dirt(object) {
            let step = ladder.pages(level.down());
            let modified = |child: u64| pmap.used(space, start + child * step, from).modified;
            let first_modified = modified(0);
            if (1..ladder.ratio(level)).any(|child| modified(child) != first_modified) {
                return false;
            }
        }
        pmap.promote(space, start, from, to);
        let stats = &mut self.frames.stats;
        stats.promotions[level.index()] += 1;
        stats.mapped[level.index()] += 1;
        stats.mapped[level.index() - 1] -= ladder.ratio(level);
        if self.objects.get(object).sole {
            let walk = self.frames.population.walk(object, index);
            self.frames.count_superpage(&walk, level, 1);
            self.frames.count_children(&walk, level, 0);
        }
        true
    }

    /// Whether it is known without reading page tables that every part of a region is mapped, by
    /// the next smaller size and alike: an object that is mapped only once has its populated pages
    /// mapped, so population and counts tell.
    fn known_uniform(&self, object: ObjectId, index: u64, level: Level) -> bool {
        if !self.objects.get(object).sole || self.tracks_dirt(object) {
            return false;
        }
        let population = &self.frames.population;
        level.0 == 1 || {
            let walk = population.walk(object, index);
            population.node(level.0, walk.slots[level.index()]).extra == population.ratio(level.0)
        }
    }

    /// Checks whether the parts of the region of the next larger size around a mapping are mapped
    /// like it, nearest first, since that is where holes are when pages are touched in either
    /// order; parts that could be larger themselves are promoted on the way.
    fn scan(&mut self, pmap: &mut impl Pmap, window: Window<'_>, leaf: Leaf) -> bool {
        let (ladder, child) = (self.frames.ladder, leaf.level);
        let (step, parts) = (ladder.pages(child), ladder.ratio(child.up()));
        let start = leaf.at.align_down(ladder.pages(child.up()));
        let first = leaf.frame - (leaf.at - start) as u32;
        let near = (leaf.at - start) / step;
        let outward = (1..parts).flat_map(|distance| [near.checked_add(distance), near.checked_sub(distance)]);
        let order = core::iter::once(near).chain(outward.flatten().filter(|part| *part < parts));
        for part in order {
            let (at, frame) = (start + part * step, first + (part * step) as u32);
            let Some(mapped) = pmap.lookup(window.space, at) else { return false };
            if mapped.frame != Pfn(u64::from(frame)) || mapped.protection != leaf.rights {
                return false;
            }
            let part = Leaf { at, frame, level: self.frames.level(mapped.size), ..leaf };
            if part.level != child && self.climb_to(pmap, window, part, child) != child {
                return false;
            }
        }
        true
    }

    /// One call of [`Pmap::demote`] for the mapping of level `from` at `start`, of pages of the
    /// window's object. Returns the level of the mappings that replace it.
    fn demote_once(&mut self, pmap: &mut impl Pmap, window: Window<'_>, start: Vpn, from: Level) -> Level {
        let Window { space, entry, object } = window;
        let (ladder, to) = (self.frames.ladder, self.demoted(pmap, from));
        pmap.demote(space, start, ladder.size(from), ladder.size(to));
        let stats = &mut self.frames.stats;
        stats.demotions[from.index()] += 1;
        stats.mapped[from.index()] -= 1;
        stats.mapped[to.index()] += ladder.pages(from) / ladder.pages(to);
        if self.objects.get(object).sole {
            let index = entry.index(start.0);
            let walk = self.frames.population.walk(object, index);
            self.frames.count_superpage(&walk, from, -1);
            // Where page tables lack a size between the two, all nodes of the size above `to` have
            // such children.
            if to > Level::BASE {
                let parents = to.up();
                for page in (0..ladder.pages(from)).step_by(ladder.pages(parents) as usize) {
                    let walk = self.frames.population.walk(object, index + page);
                    self.frames.count_children(&walk, parents, ladder.ratio(parents) as u32);
                }
            }
        }
        to
    }

    /// The level to which one call of demotion goes from `from`.
    fn demoted(&self, pmap: &impl Pmap, from: Level) -> Level {
        let mut to = if self.policy.answers.demote.steps == Demote::Stepwise { from.down() } else { Level::BASE };
        while !pmap.contiguity(self.frames.ladder.size(to)).is_whole() {
            to = to.down();
        }
        to
    }

    /// Demotes the superpage of pages of the window's object around `at`, and recursively the
    /// smaller one that holds `at`, until `at` is mapped by a base page or is the start of what
    /// maps it and `keep_start` is set.
    pub(crate) fn demote_around(&mut self, pmap: &mut impl Pmap, window: Window<'_>, at: Vpn, keep_start: bool) {
        while let Some(mapped) = pmap.lookup(window.space, at) {
            let from = self.frames.level(mapped.size);
            let start = at.align_down(self.frames.ladder.pages(from));
            if from == Level::BASE || keep_start && start == at {
                return;
            }
            self.demote_once(pmap, window, start, from);
        }
    }

    /// Demotes what lies across the edge between `at` and the page before it, both of the entry.
    pub(crate) fn demote_edge(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, at: u64) {
        if at > entry.start && at < entry.end {
            self.split_zeroes(pmap, space, Vpn(at));
            if let Some(walk) = self.frames.holder(&self.objects, entry.object, entry.index(at)) {
                let window = Window { space, entry, object: walk.page.object };
                self.demote_around(pmap, window, Vpn(at), true);
            }
        }
    }

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
        for (from, to) in runs {
            let (mut at, end) = (entry.page(from), entry.page(to));
            while at < end {
                let Some(mapped) = pmap.lookup(space, at) else {
                    at = at + 1;
                    continue;
                };
                let level = self.frames.level(mapped.size);
                let pages = self.frames.ladder.pages(level);
                let start = at.align_down(pages);
                let frame = (mapped.frame.0 - (at - start)) as u32;
                change(self, pmap, Leaf { at: start, frame, level, rights: mapped.protection });
                at = start + pages;
            }
        }
    }

    /// Removes all mappings of a part of an entry; `entry` is the whole.
    pub(crate) fn remove_mapped(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, part: &Entry) {
        self.demote_edge(pmap, space, entry, part.start);
        self.demote_edge(pmap, space, entry, part.end);
        self.uncover(pmap, space, Vpn(part.start)..Vpn(part.end));
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

    /// Demotes all of a superpage, step by step if that is the policy, to base pages.
    fn dissolve(&mut self, pmap: &mut impl Pmap, window: Window<'_>, at: Vpn, level: Level) {
        let to = self.demote_once(pmap, window, at, level);
        if to > Level::BASE {
            let step = self.frames.ladder.pages(to);
            for part in 0..self.frames.ladder.pages(level) / step {
                self.dissolve(pmap, window, at + part * step, to);
            }
        }
    }

    /// Moves all mappings of an entry to its new place. Superpages that would not be aligned there
    /// are demoted until they are.
    pub(crate) fn move_mapped(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, moved: &Entry) {
        let by = Move { space, entry, to: Vpn(moved.start) };
        self.move_zeroes(pmap, by);
        self.each_mapped(pmap, space, entry, |vm, pmap, leaf| vm.move_mapping(pmap, by, leaf));
    }

    fn move_mapping(&mut self, pmap: &mut impl Pmap, by: Move<'_>, leaf: Leaf) {
        let (Move { space, entry, .. }, Leaf { at, frame, level, rights }) = (by, leaf);
        let to = by.to + (at.0 - entry.start);
        let (size, pages) = (self.frames.ladder.size(level), self.frames.ladder.pages(level));
        let stays = level == Level::BASE || entry.pooled != Pooled::Not || !self.policy.answers.demote.on_move;
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
