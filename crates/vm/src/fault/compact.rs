//! Compaction: the pages in an extent are relocated out of it, so that it becomes free. Linux does
//! this at a fault (direct compaction) and in a thread for it; Quicksilver and Trident from a
//! background, with an extent that they choose.
//!
//! What is free in the extent is taken first, so that nothing is moved to where it comes from. Then
//! each page is copied to a free frame elsewhere: one that was placed singly to a base page, a full
//! extent of a smaller size, which a superpage may map, whole. Reservations there are broken, huge
//! pages that were to be split later are split, cache pages dropped. Wired and busy frames cannot
//! move: an extent with one is left as it is.

use crate::fault::leaves::{Leaf, Move};
use crate::object::PageOf;
use crate::object::population::NodeId;
use crate::policy::Pieces;
use crate::space::reverse::Mapping;
use crate::vm::Vm;
use crate::{Compacted, Memory, Page, Pmap, Used};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use superpage_pages::{Extent, Level, Pfn, Vpn};

/// Pages that move together: an extent that a node of the population map owns, or one page that was
/// placed singly (level 0).
struct Unit {
    node: NodeId,
    /// Of a single page: its position in the lowest node.
    position: u32,
    first: PageOf,
    level: Level,
    from: u32,
}

impl Vm {
    /// Relocates the pages in an extent out of it. Needs the page lists of a policy that reclaims
    /// pages, which know what is in a frame; without them nothing moves. Costs one shootdown for
    /// each mapping; O(frames of the extent), and for pages that several address spaces map, times
    /// those.
    pub(crate) fn compact(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, target: Extent) -> Compacted {
        let ladder = self.frames.ladder;
        let Extent { start, level } = target;
        let pages = ladder.pages(level);
        let inside = level <= ladder.largest() && start.0 + pages <= self.frames.buddy.frames();
        let frames = start.0 as u32..(start.0 + pages) as u32;
        if !inside || start.0 & (pages - 1) != 0 || self.frames.buddy.is_free(target) {
            return Compacted { free: inside && self.frames.buddy.is_free(target), ..Compacted::default() };
        }
        let mut done = Compacted::default();
        let busy = frames.clone().any(|frame| self.frames.busy.contains(frame));
        // What is populated whole moves whole, and would take what lies around the target with it.
        let population = &self.frames.population;
        let full = |page: PageOf| population.full_level(&population.walk(page.object, page.index));
        let whole = self.frames.page_of(frames.start).is_some_and(|page| Level(full(page)) >= level);
        if busy || whole || self.frames.pages.is_none() || self.wired_in(target) {
            done.failed = frames.filter(|frame| !self.is_free_frame(*frame)).count() as u64;
            self.count_compaction(done);
            return done;
        }
        self.frames.split_in(target);
        let mut held = BTreeMap::new();
        self.isolate(target, &mut held);
        let mut frame = frames.start;
        while frame < frames.end {
            let before = held.range(..=Pfn(u64::from(frame))).next_back();
            let end = before.map_or(0, |(start, level)| start.0 + ladder.pages(*level));
            if end > u64::from(frame) {
                frame = end as u32;
                continue;
            }
            if let Some(node) = self.frames.covering(frame).filter(|node| self.is_reservation(*node)) {
                self.frames.stats.reservations_preempted += 1;
                let pages = self.frames.population.pages(node.level).min(pages);
                let extent =
                    Extent { start: Pfn(u64::from(frame)).align_down(pages), level: Level(node.level).min(level) };
                self.frames.break_extent(Pieces::Free, node.level, node.slot);
                self.isolate(extent, &mut held);
                continue;
            }
            if self.frames.is_foreign(frame) {
                match self.frames.buddy.allocate(Level::BASE) {
                    Some(to) => {
                        self.frames.taken(to);
                        self.frames.foreign_moved(Some(frame), to.start.0 as u32);
                        self.frames.stats.bytes_copied += ladder.base().bytes();
                        held.insert(Pfn(u64::from(frame)), Level::BASE);
                        done.moved += 1;
                    }
                    None => done.failed += 1,
                }
                frame += 1;
                continue;
            }
            let Some(page) = self.frames.page_of(frame) else {
                debug_assert!(false, "a frame that is neither free nor wired holds a page");
                break;
            };
            if self.frames.is_held(frame) {
                self.frames.unpopulate(page.object, page.index, page.index + 1);
                self.isolate(Extent { start: Pfn(u64::from(frame)), level: Level::BASE }, &mut held);
                continue;
            }
            let unit = self.unit(frame, page);
            let size = ladder.pages(unit.level);
            if self.relocate(pmap, memory, &unit) {
                done.moved += size;
                held.insert(Pfn(u64::from(unit.from)), unit.level);
            } else {
                done.failed += size;
            }
            frame += size as u32;
        }
        held.into_iter().for_each(|(start, level)| self.frames.buddy.free(Extent { start, level }));
        self.frames.take_tables(pmap);
        done.free = self.frames.buddy.is_free(target);
        self.count_compaction(done);
        done
    }

    /// Compacts the extent of a level with the most free frames that is not free, if its pages have
    /// room elsewhere. O(free extents + wired frames + extents of that level), without the
    /// compaction.
    pub(crate) fn compact_best(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, level: Level) -> Compacted {
        match self.best_target(level) {
            Some(target) => self.compact(pmap, memory, target),
            None => Compacted::default(),
        }
    }

    /// Direct compaction for a fault that wants an extent of this level, if none is free and it is
    /// not put off.
    pub(crate) fn compact_for(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, level: Level) -> bool {
        if self.frames.buddy.free_extents(level) > 0 || self.frames.backoff.skips() {
            return false;
        }
        let free = self.compact_best(pmap, memory, level).free;
        self.frames.backoff.ended(free);
        true
    }

    fn best_target(&self, level: Level) -> Option<Extent> {
        let (ladder, buddy) = (&self.frames.ladder, &self.frames.buddy);
        let order = ladder.order(level);
        let pages = ladder.pages(level);
        // Pages must find room outside extents that are free already.
        if buddy.free_frames() < pages * (buddy.free_extents(level) + 1) {
            return None;
        }
        let mut free = vec![0_u32; (buddy.frames() >> order) as usize];
        for extent in buddy.iter() {
            if let Some(free) = free.get_mut((extent.start.0 >> order) as usize) {
                *free += ladder.pages(extent.level) as u32;
            }
        }
        for extent in self.frames.immovable() {
            let last = (extent.start.0 + ladder.pages(extent.level) - 1) >> order;
            for index in extent.start.0 >> order..=last {
                if let Some(free) = free.get_mut(index as usize) {
                    *free = 0;
                }
            }
        }
        // The lowest of those with the most.
        let best = (0..)
            .zip(&free)
            .filter(|(_, free)| (1..pages).contains(&u64::from(**free)))
            .max_by_key(|(index, free)| (**free, u64::MAX - index));
        best.map(|(index, _)| Extent { start: Pfn(index << order), level })
    }

    fn count_compaction(&mut self, done: Compacted) {
        let stats = &mut self.frames.stats;
        stats.compactions += 1;
        stats.compactions_failed += u64::from(!done.free);
        stats.pages_moved += done.moved;
        stats.pages_not_moved += done.failed;
    }

    /// Whether the kernel has a frame of the extent. O(extents wired + pools).
    fn wired_in(&self, target: Extent) -> bool {
        let ladder = &self.frames.ladder;
        let end = |extent: Extent| extent.start.0 + ladder.pages(extent.level);
        let mut wired = self.frames.immovable();
        wired.any(|extent| extent.start.0 < end(target) && target.start.0 < end(extent))
    }

    fn is_free_frame(&self, frame: u32) -> bool {
        self.frames.buddy.is_free(Extent { start: Pfn(u64::from(frame)), level: Level::BASE })
    }

    /// Takes all that is free in an extent.
    fn isolate(&mut self, extent: Extent, held: &mut BTreeMap<Pfn, Level>) {
        if self.frames.buddy.allocate_at(extent) {
            self.frames.taken(extent);
            held.insert(extent.start, extent.level);
        } else if extent.level > Level::BASE {
            let level = extent.level.down();
            let step = self.frames.ladder.pages(level);
            for at in (0..self.frames.ladder.pages(extent.level)).step_by(step as usize) {
                self.isolate(Extent { start: extent.start + at, level }, held);
            }
        }
    }

    /// Whether the node's extent is not full: its free frames are reserved.
    fn is_reservation(&self, node: NodeId) -> bool {
        !self.frames.population.is_full(node.level, node.slot)
    }

    /// What the page in a frame moves with.
    fn unit(&self, frame: u32, page: PageOf) -> Unit {
        let population = &self.frames.population;
        match self.frames.covering(frame) {
            Some(node) => {
                let pages = population.pages(node.level);
                let from = population.node(node.level, node.slot).frame;
                let first = page.object.page(page.index & !(pages - 1));
                Unit { node, position: 0, first, level: Level(node.level), from }
            }
            None => {
                let slot = population.walk(page.object, page.index).slots[1];
                let position = (page.index & (population.pages(1) - 1)) as u32;
                Unit { node: NodeId { level: 1, slot }, position, first: page, level: Level::BASE, from: frame }
            }
        }
    }

    /// Moves a unit to a free extent of its size. Returns `false`, with nothing changed, if there
    /// is none, or if a page has neither a mapping nor a file by which [`Memory`] could be asked to
    /// copy it.
    fn relocate(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, unit: &Unit) -> bool {
        let ladder = self.frames.ladder;
        let pages = ladder.pages(unit.level);
        let PageOf { object, index } = unit.first;
        let mut moves: Vec<Mapping> = Vec::new();
        let mut names = Vec::new();
        for at in 0..pages {
            let page = object.page(index + at);
            let found = self.spaces.mappings(&self.objects, pmap, page, unit.from + at as u32);
            let Some(name) = self.name(page, found.first.as_ref()) else { return false };
            names.push(name);
            // A mapping is that of its first page.
            moves.extend(found.into_iter().filter(|mapping| mapping.at.is_aligned(ladder.pages(mapping.level))));
        }
        let Some(to) = self.frames.buddy.allocate(unit.level) else { return false };
        self.frames.taken(to);
        let used: Vec<Used> =
            moves.iter().map(|mapping| pmap.remove(mapping.space, mapping.at, ladder.size(mapping.level))).collect();
        for (at, name) in (0..pages).zip(names) {
            let (from, to) = (unit.from + at as u32, (to.start + at).0 as u32);
            memory.copy(Pfn(u64::from(from)), Pfn(u64::from(to)), name);
            self.frames.frame_moved(from, to);
        }
        self.frames.stats.bytes_copied += pages * ladder.base().bytes();
        self.frames.place_moved(unit.node, unit.position, unit.level, to.start.0 as u32);
        for (Mapping { space, entry, at, level, rights }, used) in moves.into_iter().zip(used) {
            let frame = to.start + u64::from((entry.index(at.0) - index) as u32);
            let leaf = Leaf { at, frame: frame.0 as u32, level, rights };
            let stays = Move { space, entry: &entry, to: Vpn(entry.start) };
            self.enter_again(pmap, stays, leaf, used);
        }
        true
    }

    /// The name of a page for [`Memory`]: where it is mapped, could be, or what file it is of.
    pub(super) fn name(&self, page: PageOf, mapping: Option<&Mapping>) -> Option<Page> {
        if let Some(mapping) = mapping {
            return Some(Page::Mapped { space: mapping.space, at: mapping.at });
        }
        if let Some(file) = self.objects.get(page.object).file {
            return Some(Page::File { file, page: page.index });
        }
        self.spaces.iter().find_map(|(space, map)| {
            let entry = map.holding(page.object, page.index, false).next()?;
            Some(Page::Mapped { space, at: entry.page(page.index) })
        })
    }
}
