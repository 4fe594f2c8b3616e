//! Incremental promotion (Navarro et al., sections 4.5, 4.9).

use crate::Pmap;
use crate::fault::leaves::Leaf;
use crate::object::ObjectId;
use crate::policy::{Accessed, Promote};
use crate::space::Window;
use crate::vm::Vm;
use superpage_pages::{Level, Pfn};

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
            let Some(leaf) = self.frames.leaf(pmap, window.space, at) else { return false };
            if !pmap.used(window.space, leaf.at, ladder.size(leaf.level)).referenced {
                return false;
            }
            at = leaf.at + ladder.pages(leaf.level);
        }
        true
    }

    /// Promotes a mapping as [`promote`](Vm::promote) does, whatever the policy says.
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
        if !entry.holds_extent(at, pages) {
            return false;
        }
        let (start, index) = (at.align_down(pages), entry.index(at.0));
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
}
