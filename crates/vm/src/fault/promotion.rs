//! Incremental promotion (Navarro et al., sections 4.5, 4.9), demotion (4.6), and all other changes of page tables that
//! must take superpages into account.

use crate::object::ObjectId;
use crate::object::population::Walk;
use crate::policy::{Demote, Promote};
use crate::space::Entry;
use crate::vm::Vm;
use crate::{Mapped, Pmap, SpaceId};
use alloc::vec::Vec;
use superpage_pages::{Access, Level, PageSize, Pfn, Protection, Vpn};

/// What all mappings of a region must have in common for it to become one mapping.
#[derive(Clone, Copy)]
pub(crate) struct Uniform<'a> {
    pub(crate) space: SpaceId,
    pub(crate) entry: &'a Entry,
    /// The object that has the pages.
    pub(crate) object: ObjectId,
    pub(crate) rights: Protection,
}

impl Vm {
    /// Promotes the mapping of `from` that holds `at`, size by size, to at most the region of level `full`, which is
    /// fully populated and lies in an extent of `object`. Returns the level reached. O(number of sizes) if the object
    /// was only ever mapped once; otherwise the mappings of each region are checked, from the page outward, up to the
    /// first that does not fit.
    pub(crate) fn promote(
        &mut self,
        pmap: &mut impl Pmap,
        of: Uniform<'_>,
        at: Vpn,
        frame: u32,
        from: Level,
        full: Level,
    ) -> Level {
        let wanted =
            self.answers.promote.when == Promote::FullPopulation && self.answers.place.hints.allow(of.entry.hint);
        if wanted { self.climb_to(pmap, of, at, frame, from, full) } else { from }
    }

    /// The same, whatever the policy says.
    pub(crate) fn climb_to(
        &mut self,
        pmap: &mut impl Pmap,
        of: Uniform<'_>,
        at: Vpn,
        frame: u32,
        from: Level,
        full: Level,
    ) -> Level {
        let mut reached = from;
        while reached < full && self.assemble(pmap, of, at, frame, reached.up()) {
            reached = reached.up();
        }
        reached
    }

    /// Makes one mapping of the region at `level` around `at`, whose frame is `frame`, if all of it is mapped uniformly
    /// and by pages of the next smaller size: there is no step above a size that the hardware cannot map.
    fn assemble(&mut self, pmap: &mut impl Pmap, of: Uniform<'_>, at: Vpn, frame: u32, level: Level) -> bool {
        let ladder = self.frames.ladder;
        if [level, level.down()].iter().any(|level| !pmap.contiguity(ladder.size(*level)).is_whole()) {
            return false;
        }
        let pages = ladder.pages(level);
        let start = at.align_down(pages);
        let index = of.entry.index(at.0);
        // An object may be mapped where virtual and physical alignment differ (section 5.3).
        if (at.0 ^ index) & (pages - 1) != 0 || start.0 < of.entry.start || start.0 + pages > of.entry.end {
            return false;
        }
        let first = frame - (at - start) as u32;
        if !self.known_uniform(of.object, index, level) && !self.scan(pmap, of, at, start, first, level) {
            return false;
        }
        let (from, to) = (ladder.size(level.down()), ladder.size(level));
        // Where the first write traps, what may be written is dirty and what may not is clean: equal rights say it all.
        if self.dirt_matters(of.object) && !self.tracks_dirt(of.object) {
            let step = ladder.pages(level.down());
            let modified = |child: u64| pmap.used(of.space, start + child * step, from).modified;
            let first_modified = modified(0);
            if (1..ladder.ratio(level)).any(|child| modified(child) != first_modified) {
                return false;
            }
        }
        pmap.promote(of.space, start, from, to);
        let stats = &mut self.frames.stats;
        stats.promotions[level.index()] += 1;
        stats.mapped[level.index()] += 1;
        stats.mapped[level.index() - 1] -= ladder.ratio(level);
        if self.objects.get(of.object).sole {
            let walk = self.frames.population.walk(of.object, index);
            self.count_superpage(&walk, level, 1);
            self.count_children(&walk, level, 0);
        }
        true
    }

    /// Whether it is known without reading page tables that every part of a region is mapped, by the next smaller size
    /// and alike: an object that is mapped only once has its populated pages mapped, so population and counts tell.
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

    /// Checks whether the parts of a region are mapped alike, nearest to `at` first, since that is where holes are when
    /// pages are touched in either order; parts that could be larger themselves are promoted on the way.
    fn scan(&mut self, pmap: &mut impl Pmap, of: Uniform<'_>, at: Vpn, start: Vpn, first: u32, level: Level) -> bool {
        let ladder = self.frames.ladder;
        let (child, step) = (level.down(), ladder.pages(level.down()));
        let near = (at - start) / step;
        let parts = ladder.ratio(level);
        let outward = (1..parts).flat_map(|away| [near.checked_add(away), near.checked_sub(away)]);
        let order = core::iter::once(near).chain(outward.flatten().filter(|part| *part < parts));
        for part in order {
            let (page, frame) = (start + part * step, first + (part * step) as u32);
            let Some(mapped) = pmap.lookup(of.space, page) else { return false };
            if mapped.frame != Pfn(u64::from(frame)) || mapped.protection != of.rights {
                return false;
            }
            if mapped.size != ladder.size(child) && !self.climb(pmap, of, page, frame, mapped.size, child) {
                return false;
            }
        }
        true
    }

    /// Promotes the mapping of `from` at `page` step by step until it is one of `to`.
    fn climb(
        &mut self,
        pmap: &mut impl Pmap,
        of: Uniform<'_>,
        page: Vpn,
        frame: u32,
        from: PageSize,
        to: Level,
    ) -> bool {
        let mut level = self.level(from);
        while level < to {
            level = level.up();
            if !self.assemble(pmap, of, page, frame, level) {
                return false;
            }
        }
        level == to
    }

    /// The level of a size that a page table returned. Page tables only hold sizes that this manager entered.
    pub(crate) fn level(&self, size: PageSize) -> Level {
        self.frames.ladder.level(size).expect("a page table holds only sizes of the ladder")
    }

    /// The first object of a chain that has the page: populated, cached or in swap space.
    pub(crate) fn holder(&self, front: ObjectId, index: u64) -> Option<(ObjectId, Walk)> {
        let mut walks = self.objects.chain(front).map(|object| (object, self.frames.population.walk(object, index)));
        let away = &self.frames.away;
        let elsewhere = |page| away.cached(page).is_some() || away.slot(page).is_some();
        walks.find(|(object, walk)| walk.populated || !away.is_empty() && elsewhere(object.page(index)))
    }

    /// For an object of one mapping: changes the count of superpages at `level` on the path.
    pub(crate) fn count_superpage(&mut self, walk: &Walk, level: Level, change: i32) {
        if level.0 < self.frames.population.top {
            let parent = self.frames.population.node_mut(level.0 + 1, walk.slots[level.index() + 1]);
            parent.extra = parent.extra.wrapping_add_signed(change);
        }
    }

    /// For an object of one mapping: sets how many children of the node at `level` on the path are mapped by
    /// superpages.
    pub(crate) fn count_children(&mut self, walk: &Walk, level: Level, count: u32) {
        if level.0 > 1 {
            self.frames.population.node_mut(level.0, walk.slots[level.index()]).extra = count;
        }
    }

    /// One call of [`Pmap::demote`]: the mapping of level `from` at `start`, of pages of `object`, becomes mappings of
    /// level `to`.
    fn demote_once(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        entry: &Entry,
        object: ObjectId,
        start: Vpn,
        (from, to): (Level, Level),
    ) {
        let ladder = self.frames.ladder;
        pmap.demote(space, start, ladder.size(from), ladder.size(to));
        let stats = &mut self.frames.stats;
        stats.demotions[from.index()] += 1;
        stats.mapped[from.index()] -= 1;
        stats.mapped[to.index()] += ladder.pages(from) / ladder.pages(to);
        if self.objects.get(object).sole {
            let index = entry.index(start.0);
            let walk = self.frames.population.walk(object, index);
            self.count_superpage(&walk, from, -1);
            // Where page tables lack a size between the two, all nodes of the size above `to` have such children.
            if to > Level::BASE {
                let parents = to.up();
                for page in (0..ladder.pages(from)).step_by(ladder.pages(parents) as usize) {
                    let walk = self.frames.population.walk(object, index + page);
                    self.count_children(&walk, parents, ladder.ratio(parents) as u32);
                }
            }
        }
    }

    /// The level to which one call of demotion goes from `from`.
    fn demoted(&self, pmap: &impl Pmap, from: Level) -> Level {
        let mut to = if self.answers.demote.steps == Demote::Stepwise { from.down() } else { Level::BASE };
        while !pmap.contiguity(self.frames.ladder.size(to)).is_whole() {
            to = to.down();
        }
        to
    }

    /// Demotes the superpage of pages of `object` around `at`, and recursively the smaller one that holds `at`, until `at`
    /// is mapped by a base page or is the start of what maps it and `keep_start` is set.
    pub(crate) fn demote_around(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        entry: &Entry,
        object: ObjectId,
        at: Vpn,
        keep_start: bool,
    ) {
        while let Some(mapped) = pmap.lookup(space, at) {
            let from = self.level(mapped.size);
            let start = at.align_down(self.frames.ladder.pages(from));
            if from == Level::BASE || keep_start && start == at {
                return;
            }
            let to = self.demoted(pmap, from);
            self.demote_once(pmap, space, entry, object, start, (from, to));
        }
    }

    /// Demotes what lies across the edge between `at` and the page before it, both of the entry.
    pub(crate) fn demote_edge(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, at: u64) {
        if at > entry.start
            && at < entry.end
            && let Some((object, _)) = self.holder(entry.object, entry.index(at))
        {
            self.demote_around(pmap, space, entry, object, Vpn(at), true);
        }
    }

    /// Calls `change` with the first page, level and page-table entry of each mapping of the entry's pages from `low`
    /// up to `high`.
    /// Nothing may be mapped across either end. O(pages populated there).
    pub(crate) fn each_mapped<P: Pmap>(
        &mut self,
        pmap: &mut P,
        space: SpaceId,
        entry: &Entry,
        mut change: impl FnMut(&mut Vm, &mut P, Vpn, Level, Mapped),
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
                let level = self.level(mapped.size);
                let pages = self.frames.ladder.pages(level);
                let start = at.align_down(pages);
                let mapped = Mapped { frame: Pfn(mapped.frame.0 - (at - start)), ..mapped };
                change(self, pmap, start, level, mapped);
                at = start + pages;
            }
        }
    }

    /// Removes all mappings of a part of an entry; `entry` is the whole.
    pub(crate) fn remove_mapped(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, part: &Entry) {
        self.demote_edge(pmap, space, entry, part.start);
        self.demote_edge(pmap, space, entry, part.end);
        let whole = self.answers.demote.on_unmap;
        self.each_mapped(pmap, space, part, |vm, pmap, at, level, mapped| {
            let holder = if level > Level::BASE { vm.holder(entry.object, entry.index(at.0)) } else { None };
            if let Some((object, _)) = holder.filter(|_| whole) {
                vm.dissolve(pmap, space, entry, object, at, level);
                let base = vm.frames.ladder.base();
                for page in 0..vm.frames.ladder.pages(level) {
                    let used = pmap.remove(space, at + page, base);
                    vm.note_modified(used, mapped.frame.0 as u32 + page as u32, 1);
                }
                vm.frames.stats.mapped[0] -= vm.frames.ladder.pages(level);
                return;
            }
            vm.remove_one(pmap, space, entry, at, (level, mapped.frame));
        });
    }

    /// Removes a mapping of pages of the entry.
    fn remove_one(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        entry: &Entry,
        at: Vpn,
        (level, frame): (Level, Pfn),
    ) {
        let holder = if level > Level::BASE { self.holder(entry.object, entry.index(at.0)) } else { None };
        if let Some((object, walk)) = holder
            && self.objects.get(object).sole
        {
            self.count_superpage(&walk, level, -1);
        }
        let used = pmap.remove(space, at, self.frames.ladder.size(level));
        self.note_modified(used, frame.0 as u32, self.frames.ladder.pages(level));
        self.frames.stats.mapped[level.index()] -= 1;
    }

    /// Demotes all of a superpage, step by step if that is the policy, to base pages.
    fn dissolve(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        entry: &Entry,
        object: ObjectId,
        at: Vpn,
        level: Level,
    ) {
        let to = self.demoted(pmap, level);
        self.demote_once(pmap, space, entry, object, at, (level, to));
        if to > Level::BASE {
            let step = self.frames.ladder.pages(to);
            for part in 0..self.frames.ladder.pages(level) / step {
                self.dissolve(pmap, space, entry, object, at + part * step, to);
            }
        }
    }

    /// Moves all mappings of an entry to its new place, `moved`. Superpages that would not be aligned there are
    /// demoted until they are.
    pub(crate) fn move_mapped(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, moved: &Entry) {
        self.each_mapped(pmap, space, entry, |vm, pmap, at, level, mapped| {
            vm.move_mapping(pmap, space, entry, moved, at, level, mapped.frame, mapped.protection);
        });
    }

    #[allow(clippy::too_many_arguments, reason = "a recursion over the parts of one mapping")]
    fn move_mapping(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        entry: &Entry,
        moved: &Entry,
        at: Vpn,
        level: Level,
        frame: Pfn,
        rights: Protection,
    ) {
        let to = Vpn(at.0 - entry.start + moved.start);
        let (size, pages) = (self.frames.ladder.size(level), self.frames.ladder.pages(level));
        let aligned = to.is_aligned(pages);
        if aligned && !self.give_spare_tables(pmap, space, to, level) {
            // The program's next access there maps it again; until then the object has populated pages that are not mapped.
            let holder = self.holder(entry.object, entry.index(at.0));
            self.remove_one(pmap, space, entry, at, (level, frame));
            if let Some((object, _)) = holder {
                self.objects.get_mut(object).sole = false;
            }
        } else if aligned {
            let used = pmap.remove(space, at, size);
            let access = if used.modified { Access::Write } else { Access::Read };
            pmap.enter(space, to, frame, size, rights, access);
        } else if let Some((object, _)) = self.holder(entry.object, entry.index(at.0)) {
            let smaller = self.demoted(pmap, level);
            self.demote_once(pmap, space, entry, object, at, (level, smaller));
            let step = self.frames.ladder.pages(smaller);
            for part in (0..pages).step_by(step as usize) {
                self.move_mapping(pmap, space, entry, moved, at + part, smaller, frame + part, rights);
            }
        }
    }
}
