//! Shadow superpages once more, as a layer above the naive model: what the controller's superpages
//! are is worked out page by page. To the kernel everything is as on the plain machine.

use crate::ACCESSES;
use crate::cache::Cache;
use crate::naive::{Mapping, Naive, Stop};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use superpage_mmu::{Index, LineCacheSpec, Machine, Mmu, Remaps, Replacement, Request, Trap, Ways};
use superpage_pages::{Access, Counts, Mapped, PageSize, Pfn, Protection, Random, Vpn};

/// The first line of the shadow range.
const SHADOW: u64 = 1 << 30;

/// A shadow superpage, and the base pages that the kernel has mapped there.
struct Block {
    size: PageSize,
    frame: u64,
    pages: BTreeMap<u64, Mapping>,
}

struct Shadowed {
    naive: Naive,
    machine: Machine,
    blocks: BTreeMap<(u32, u64), Block>,
    mtlb: Cache<u64>,
    /// How often the kernel has mapped each frame.
    frames: BTreeMap<u64, u32>,
    remaps: Remaps,
    /// What has changed since the last access.
    changes: Vec<(u32, Range<u64>)>,
}

impl Shadowed {
    fn new(machine: &Machine) -> Shadowed {
        let shadow = machine.shadow.as_ref().unwrap();
        let mtlb = Cache::new(shadow.entries / shadow.ways, shadow.ways, Index::Low, Replacement::Lru);
        let (naive, blocks) = (Naive::new(machine), BTreeMap::new());
        let (frames, remaps, changes) = (BTreeMap::new(), Remaps::default(), Vec::new());
        Shadowed { naive, machine: machine.clone(), blocks, mtlb, frames, remaps, changes }
    }

    fn base(&self) -> PageSize {
        self.machine.pages.sizes[0]
    }

    fn lines_of_page(&self) -> u64 {
        self.base().bytes() / self.machine.memory.line_bytes
    }

    /// The superpage that has this page.
    fn block(&self, space: u32, page: u64) -> Option<(u64, &Block)> {
        let (key, block) = self.blocks.range(..=(space, page)).next_back()?;
        (key.0 == space && block.pages.contains_key(&page)).then_some((key.1, block))
    }

    /// What the kernel has mapped at this page: first page, and the mapping.
    fn kernel(&self, space: u32, page: u64) -> Option<(u64, Mapping)> {
        match self.block(space, page) {
            Some((_, block)) => Some((page, block.pages[&page])),
            None => self.naive.mapping(space, page),
        }
    }

    /// All that the kernel has mapped.
    fn all(&self) -> BTreeMap<(u32, u64), Mapping> {
        let mut all = self.naive.mappings.clone();
        for ((space, first), block) in &self.blocks {
            all.remove(&(*space, *first));
            all.extend(block.pages.iter().map(|(page, mapping)| ((*space, *page), *mapping)));
        }
        all
    }

    /// The lowest place for a superpage of this size: its first frame.
    fn place(&self, rung: usize) -> Option<u64> {
        let (size, sizes) = (self.machine.pages.sizes[rung], self.machine.pages.sizes.len() as u64 - 1);
        let pages = self.naive.pages(size);
        let frames = self.machine.shadow.as_ref().unwrap().size / self.base().bytes();
        let start = SHADOW / self.lines_of_page();
        let (from, to) = (start + frames * (rung as u64 - 1) / sizes, start + frames * rung as u64 / sizes);
        let taken: BTreeSet<u64> =
            self.blocks.values().filter(|block| block.size == size).map(|block| block.frame).collect();
        let mut frame = from.div_ceil(pages) * pages;
        while frame + pages <= to {
            if !taken.contains(&frame) {
                return Some(frame);
            }
            frame += pages;
        }
        None
    }

    /// The lines of these frames leave the caches, and the controller's TLB forgets them.
    fn flush(&mut self, first: u64, pages: u64) {
        let lines = self.lines_of_page();
        self.remaps.flushed_pages += pages;
        self.remaps.flushed_lines += self.naive.flush_lines(first * lines..(first + pages) * lines);
        self.mtlb.drop(|frame| (first..first + pages).contains(&frame));
    }

    fn insert(&mut self, space: u32, first: u64, (rung, frame): (usize, u64), pages: BTreeMap<u64, Mapping>) {
        let (size, protection) = (self.machine.pages.sizes[rung], pages[&first].protection);
        // The controller has the use bits.
        let whole = Mapping { frame, size, protection, referenced: true, dirty: true };
        self.naive.mappings.insert((space, first), whole);
        self.remaps.table_writes += pages.len() as u64;
        self.blocks.insert((space, first), Block { size, frame, pages });
    }

    /// Takes a superpage out; returns its pages.
    fn take(&mut self, space: u32, first: u64) -> BTreeMap<u64, Mapping> {
        let block = self.blocks.remove(&(space, first)).unwrap();
        self.naive.mappings.remove(&(space, first)).unwrap();
        self.naive.shoot(space, first, block.size);
        self.flush(block.frame, block.pages.len() as u64);
        self.remaps.table_writes += block.pages.len() as u64;
        block.pages
    }

    /// Splits all superpages that have any of these pages.
    fn split(&mut self, space: u32, around: Range<u64>) {
        let has = |pages: &BTreeMap<u64, Mapping>| pages.range(around.clone()).next().is_some();
        let its = self.blocks.iter().filter(|((of, _), block)| *of == space && has(&block.pages));
        let those: BTreeSet<u64> = its.map(|((_, first), _)| *first).collect();
        let mut gone = Vec::new();
        for first in those {
            let size = self.blocks[&(space, first)].size;
            let rung = self.machine.pages.sizes.iter().position(|other| *other == size).unwrap();
            let pages = self.take(space, first);
            gone.push((first, pages.len() as u64));
            self.remaps.demotions += 1;
            self.lay(space, rung - 1, pages, &around);
            self.naive.rebuild();
        }
        gone.iter().for_each(|(first, pages)| self.naive.announce(space, *first, *pages));
    }

    /// Maps pages by superpages of this level, those that change and those that have no place by
    /// smaller ones.
    fn lay(&mut self, space: u32, rung: usize, mut pages: BTreeMap<u64, Mapping>, around: &Range<u64>) {
        if rung == 0 {
            self.naive.mappings.extend(pages.into_iter().map(|(page, mapping)| ((space, page), mapping)));
            return;
        }
        let count = self.naive.pages(self.machine.pages.sizes[rung]);
        while let Some((&first, _)) = pages.first_key_value() {
            let rest = pages.split_off(&(first + count));
            match self.place(rung) {
                Some(frame) if !pages.keys().any(|page| around.contains(page)) => {
                    self.insert(space, first, (rung, frame), pages);
                }
                _ => self.lay(space, rung - 1, pages, around),
            }
            pages = rest;
        }
    }

    /// Makes superpages of what these pages are part of.
    fn form(&mut self, space: u32, at: u64, count: u64) {
        let mut made = Vec::new();
        for rung in 1..self.machine.pages.sizes.len() {
            let (small, large) = (self.machine.pages.sizes[rung - 1], self.machine.pages.sizes[rung]);
            let (step, pages, before) = (self.naive.pages(small), self.naive.pages(large), made.len());
            for first in (at / pages * pages..at + count).step_by(pages as usize) {
                let parts = || (first..first + pages).step_by(step as usize);
                let Some(&Mapping { protection, .. }) = self.naive.mappings.get(&(space, first)) else { continue };
                let fits = |part: u64| {
                    self.naive.mappings.get(&(space, part)).is_some_and(|mapping| {
                        let kind = match rung {
                            1 => self.frames[&mapping.frame] == 1,
                            _ => self.blocks.contains_key(&(space, part)),
                        };
                        mapping.size == small && mapping.protection == protection && kind
                    })
                };
                // Only few of what is not full need to be looked at.
                if !fits(first + pages - step) || !parts().all(fits) {
                    continue;
                }
                let Some(frame) = self.place(rung) else { continue };
                let mut all = BTreeMap::new();
                for part in parts() {
                    if rung > 1 {
                        all.append(&mut self.take(space, part));
                    } else {
                        let mapping = self.naive.mappings.remove(&(space, part)).unwrap();
                        self.naive.shoot(space, part, small);
                        self.flush(mapping.frame, 1);
                        all.insert(part, mapping);
                    }
                }
                self.remaps.promotions += 1;
                self.insert(space, first, (rung, frame), all);
                self.naive.rebuild();
                made.push((first, pages));
            }
            if made.len() == before {
                break;
            }
        }
        made.iter().for_each(|(first, pages)| self.naive.announce(space, *first, *pages));
    }

    /// These pages change. Changes side by side are one, until there is an access.
    fn change(&mut self, space: u32, at: u64, count: u64) {
        let now = at..at + count;
        let beside =
            self.changes.last().filter(|(of, last)| *of == space && last.start <= now.end && now.start <= last.end);
        let whole = beside.map_or(now.clone(), |(_, last)| last.start.min(now.start)..last.end.max(now.end));
        if beside.is_some() {
            self.changes.pop();
        }
        self.changes.push((space, whole));
    }

    /// Superpages are made of what has changed, before the next access.
    fn settle(&mut self) {
        for (space, pages) in std::mem::take(&mut self.changes) {
            self.form(space, pages.start, pages.end - pages.start);
        }
    }

    fn count(&mut self, frame: u64, size: PageSize, more: bool) {
        for frame in frame..frame + self.naive.pages(size) {
            let count = self.frames.entry(frame).or_default();
            *count = if more { *count + 1 } else { *count - 1 };
        }
    }

    fn enter(&mut self, space: u32, at: u64, to: Mapped, used: (bool, bool)) {
        let pages = self.naive.pages(to.size);
        for frame in to.frame.0..to.frame.0 + pages {
            let has = |block: &Block| block.pages.iter().find(|(_, page)| page.frame == frame).map(|(page, _)| *page);
            if self.frames.get(&frame).is_none_or(|count| *count == 0) {
                continue;
            }
            let found = self.blocks.iter().find_map(|((space, _), block)| Some((*space, has(block)?)));
            if let Some((space, page)) = found {
                self.split(space, page..page + 1);
            }
        }
        self.count(to.frame.0, to.size, true);
        self.naive.enter_used(space, at, to, used);
        self.change(space, at, pages);
    }

    fn remove(&mut self, space: u32, at: u64, size: PageSize) -> Mapping {
        let pages = self.naive.pages(size);
        self.split(space, at..at + pages);
        let removed = self.naive.remove(space, at);
        self.count(removed.frame, size, false);
        self.change(space, at, pages);
        removed
    }

    fn protect(&mut self, space: u32, at: u64, size: PageSize, protection: Protection) {
        let pages = self.naive.pages(size);
        self.split(space, at..at + pages);
        self.naive.protect(space, at, protection);
        self.change(space, at, pages);
    }

    fn promote(&mut self, space: u32, at: u64, to: PageSize) {
        let pages = self.naive.pages(to);
        self.split(space, at..at + pages);
        self.naive.promote(space, at, self.base(), to);
        self.change(space, at, pages);
    }

    fn demote(&mut self, space: u32, at: u64, from: PageSize, to: PageSize) {
        self.naive.demote(space, at, from, to);
        self.change(space, at, self.naive.pages(from));
    }

    fn clear(&mut self, space: u32, at: u64, dirty: bool) -> bool {
        let Some((first, _)) = self.block(space, at) else { return self.naive.clear(space, at, dirty) };
        let page = self.blocks.get_mut(&(space, first)).unwrap().pages.get_mut(&at).unwrap();
        let was = std::mem::replace(if dirty { &mut page.dirty } else { &mut page.referenced }, false);
        self.remaps.table_writes += u64::from(was);
        was
    }

    fn note(&mut self, page: u64, access: Access) {
        let space = self.naive.space;
        if let Some((first, _)) = self.block(space, page) {
            let page = self.blocks.get_mut(&(space, first)).unwrap().pages.get_mut(&page).unwrap();
            (page.referenced, page.dirty) = (true, page.dirty || access == Access::Write);
        }
    }

    fn access(&mut self, page: u64, access: Access) -> Option<Stop> {
        let stop = self.naive.access(page, access);
        if stop.is_none() {
            self.note(page, access);
        }
        stop
    }

    fn retry(&mut self, page: u64, access: Access) {
        self.naive.retry(page, access);
        self.note(page, access);
    }

    fn line(&mut self, page: u64, line: u64, access: Access) {
        let Some((number, kind)) = self.naive.line(page, line, access) else { return };
        if number >= SHADOW {
            let frame = number / self.lines_of_page();
            let waits = usize::from(kind == 2);
            if self.mtlb.hit(frame, |held| held == frame).is_some() {
                self.remaps.hits[waits] += 1;
            } else {
                self.mtlb.fill(frame, frame);
                self.remaps.misses[waits] += 1;
            }
        }
    }
}

/// The machines under test, and the same without shadow superpages.
struct All {
    mmu: Mmu,
    plain: Mmu,
    naive: Vec<Shadowed>,
    random: Random,
    /// Frames that were given out so far.
    frames: u64,
}

/// Frames of memory here.
const FRAMES: u64 = 1 << 17;

impl All {
    fn new(machines: &[Machine], seed: u64) -> All {
        let mut plain = machines[0].clone();
        plain.shadow = None;
        // Shadow superpages are made as pages are mapped, so no request waits.
        let mut mmu = Mmu::of(&machines.iter().collect::<Vec<_>>());
        mmu.defer();
        All {
            mmu,
            plain: Mmu::new(&plain),
            naive: machines.iter().map(Shadowed::new).collect(),
            random: Random::new(seed),
            frames: 0,
        }
    }

    /// A frame like no other mostly, or one that may be mapped elsewhere.
    fn frame(&mut self, alone: bool) -> Pfn {
        self.frames += 1;
        let of = if alone { self.frames } else { self.random.below(self.frames) };
        Pfn(of * 40503 % FRAMES)
    }

    fn page(&mut self) -> u64 {
        [0, 1 << 18, 1 << 27][self.random.below(3) as usize] + self.random.below(2) * 512 + self.random.below(512)
    }

    fn free(&self, space: u32, at: u64, pages: u64) -> bool {
        (at..at + pages).all(|page| self.naive[0].kernel(space, page).is_none())
    }

    fn enter(&mut self, space: u32, at: u64, to: Mapped, access: Access) {
        self.naive.iter_mut().for_each(|naive| naive.enter(space, at, to, (true, access == Access::Write)));
        self.mmu.enter(space, Vpn(at), to, access);
        self.plain.enter(space, Vpn(at), to, access);
    }

    fn enter_untouched(&mut self, space: u32, at: u64, to: Mapped) {
        self.naive.iter_mut().for_each(|naive| naive.enter(space, at, to, (false, false)));
        self.mmu.enter_untouched(space, Vpn(at), to);
        self.plain.enter_untouched(space, Vpn(at), to);
    }

    fn remove(&mut self, space: u32, at: u64, size: PageSize) {
        let used = self.mmu.remove(space, Vpn(at), size);
        assert_eq!(self.plain.remove(space, Vpn(at), size), used);
        for naive in &mut self.naive {
            let removed = naive.remove(space, at, size);
            assert_eq!((used.referenced, used.modified), (removed.referenced, removed.dirty));
        }
    }

    fn protect(&mut self, space: u32, at: u64, size: PageSize, protection: Protection) {
        self.naive.iter_mut().for_each(|naive| naive.protect(space, at, size, protection));
        self.mmu.protect(space, Vpn(at), size, protection);
        self.plain.protect(space, Vpn(at), size, protection);
    }

    /// Any mapping of the kernel, of which there is one.
    fn any(&mut self) -> Option<(u32, u64, Mapping)> {
        let all = self.naive[0].all();
        let nth = self.random.below(all.len().max(1) as u64) as usize;
        all.iter().nth(nth).map(|((space, at), mapping)| (*space, *at, *mapping))
    }

    /// Fills an aligned block with base pages, from either end or from anywhere; promotes it if its
    /// frames are in a row.
    fn fill(&mut self, sizes: &[PageSize]) {
        let (space, pages) = (self.random.below(2) as u32, self.naive[0].naive.pages(sizes[1]));
        let larger: Vec<u64> = sizes[1..].iter().map(|size| self.naive[0].naive.pages(*size)).collect();
        let few = larger.iter().filter(|pages| **pages <= 512).count().max(1) as u64;
        let count = larger[self.random.below(few) as usize].max(pages);
        let at = self.page() / count * count;
        let (kind, from, row) = (self.random.below(6), self.random.below(count), self.random.below(4) == 0);
        let start = FRAMES + self.random.below(64) * 512 / count * count;
        let rights = [Protection::ALL, Protection::READ_WRITE][self.random.below(2) as usize];
        let odd = self.random.below(3) == 0;
        for step in 0..count {
            let place = match kind {
                0 => count - 1 - step,
                1 => (step * 7 + from) % count,
                _ => step,
            };
            if self.free(space, at + place, 1) && !(odd && self.random.below(100) == 0) {
                let alone = !odd || self.random.below(50) > 0;
                let frame = if row { Pfn(start + place) } else { self.frame(alone) };
                let to = Mapped { frame, size: sizes[0], protection: rights };
                match kind {
                    3 => self.enter_untouched(space, at + place, to),
                    _ => self.enter(space, at + place, to, Access::Read),
                }
            }
        }
        let placed = |place: u64| {
            let mapping = self.naive[0].kernel(space, at + place)?.1;
            let fits = mapping.size == sizes[0] && mapping.frame == start + place;
            fits.then_some(mapping.protection)
        };
        let one = placed(0);
        if one.is_some() && (0..count).all(|place| placed(place) == one) {
            let to = *sizes.iter().find(|size| self.naive[0].naive.pages(**size) == count).unwrap();
            self.naive.iter_mut().for_each(|naive| naive.promote(space, at, to));
            self.mmu.promote(space, Vpn(at), sizes[0], to);
            self.plain.promote(space, Vpn(at), sizes[0], to);
        }
    }

    fn step(&mut self) {
        let sizes = self.naive[0].machine.pages.sizes.clone();
        match self.random.below(16) {
            0..3 => self.fill(&sizes),
            3 => {
                let small: Vec<PageSize> =
                    sizes.iter().copied().filter(|size| self.naive[0].naive.pages(*size) <= 512).collect();
                let size = small[self.random.below(small.len() as u64) as usize];
                let (space, pages) = (self.random.below(2) as u32, self.naive[0].naive.pages(size));
                let at = self.page() / pages * pages;
                if self.free(space, at, pages) {
                    let frame = Pfn(self.random.below(FRAMES / pages) * pages);
                    self.enter(space, at, Mapped { frame, size, protection: Protection::ALL }, Access::Write);
                }
            }
            4 | 5 => {
                for _ in 0..self.random.below(6) {
                    if let Some((space, at, mapping)) = self.any() {
                        self.remove(space, at, mapping.size);
                    }
                }
            }
            6 => {
                if let Some((space, at, mapping)) = self.any() {
                    let rights = [Protection::ALL, Protection::READ_WRITE][self.random.below(2) as usize];
                    self.protect(space, at, mapping.size, rights);
                }
            }
            7 => {
                if let Some((space, at, mapping)) = self.any()
                    && mapping.size > sizes[0]
                {
                    let to =
                        sizes[self.random.below(sizes.iter().filter(|to| **to < mapping.size).count() as u64) as usize];
                    self.naive.iter_mut().for_each(|naive| naive.demote(space, at, mapping.size, to));
                    self.mmu.demote(space, Vpn(at), mapping.size, to);
                    self.plain.demote(space, Vpn(at), mapping.size, to);
                }
            }
            8 | 9 => {
                for _ in 0..8 {
                    let Some((space, at, mapping)) = self.any() else { return };
                    let used = self.mmu.used(space, Vpn(at), mapping.size);
                    assert_eq!(self.plain.used(space, Vpn(at), mapping.size), used);
                    let at_page = (space, Vpn(at), mapping.size);
                    let (referenced, dirty) = (
                        self.mmu.clear_referenced(at_page.0, at_page.1, at_page.2),
                        self.mmu.clear_modified(at_page.0, at_page.1, at_page.2),
                    );
                    assert_eq!(self.plain.clear_referenced(at_page.0, at_page.1, at_page.2), referenced);
                    assert_eq!(self.plain.clear_modified(at_page.0, at_page.1, at_page.2), dirty);
                    for naive in &mut self.naive {
                        assert_eq!((naive.clear(space, at, false), naive.clear(space, at, true)), (referenced, dirty));
                    }
                }
            }
            10 => {
                let space = self.random.below(3) as u32;
                self.naive.iter_mut().for_each(|naive| naive.naive.switch(space));
                self.mmu.switch(space);
                self.plain.switch(space);
                if self.random.below(8) == 0 {
                    self.end(space);
                }
            }
            _ => self.burst(),
        }
    }

    fn end(&mut self, space: u32) {
        for naive in &mut self.naive {
            naive.naive.flush(space);
            naive.split(space, 0..u64::MAX);
        }
        self.mmu.flush(space);
        self.mmu.uncover_all(space);
        self.plain.flush(space);
        self.plain.uncover_all(space);
        let all: Vec<(u64, Mapping)> =
            self.naive[0].all().into_iter().filter(|(key, _)| key.0 == space).map(|(key, one)| (key.1, one)).collect();
        all.iter().for_each(|(at, mapping)| self.remove(space, *at, mapping.size));
        self.naive.iter_mut().for_each(|naive| naive.naive.destroy(space));
        self.mmu.destroy(space);
        self.plain.destroy(space);
    }

    fn burst(&mut self) {
        let space = self.naive[0].naive.space;
        let near: Vec<u64> = self.naive[0].all().into_keys().filter(|key| key.0 == space).map(|key| key.1).collect();
        let lines = self.naive[0].base().bytes() / 64;
        let (mut requests, mut places, mut page, mut line) = (Vec::new(), Vec::new(), 0, 0);
        for _ in 0..self.random.below(300) {
            line += 1;
            if line == lines || self.random.below(3) == 0 {
                line = self.random.below(lines);
                let nth = self.random.below(near.len().max(1) as u64) as usize;
                page = if near.is_empty() || self.random.below(60) == 0 { self.page() } else { near[nth] };
            }
            let access = [Access::Read, Access::Read, Access::Write, Access::Execute][self.random.below(4) as usize];
            requests.push(Request::new(Vpn(page), access));
            places.push(line as u32);
        }
        let mut done = 0;
        while done < requests.len() {
            self.naive.iter_mut().for_each(Shadowed::settle);
            let stopped = self.mmu.run_lines(&requests[done..], &places[done..]);
            assert_eq!(self.plain.run_lines(&requests[done..], &places[done..]), stopped);
            let upto = stopped.map_or(requests.len(), |(index, _)| done + index);
            for naive in &mut self.naive {
                for (request, line) in requests[done..upto].iter().zip(&places[done..upto]) {
                    let (page, access) = (request.page().0, request.access());
                    assert_eq!(naive.access(page, access), None, "{request:?}");
                    naive.line(page, u64::from(*line), access);
                }
            }
            done = upto;
            let Some((_, trap)) = stopped else { return };
            self.trap(requests[done], places[done], trap);
            done += 1;
        }
    }

    fn trap(&mut self, request: Request, line: u32, trap: Trap) {
        let (page, access, space) = (request.page().0, request.access(), self.naive[0].naive.space);
        let expected = if trap == Trap::Absent { Stop::Absent } else { Stop::Rights };
        self.naive.iter_mut().for_each(|naive| assert_eq!(naive.access(page, access), Some(expected), "{request:?}"));
        assert_eq!(self.mmu.retry_line(request, line), Err(trap));
        assert_eq!(self.plain.retry_line(request, line), Err(trap));
        if trap == Trap::Absent {
            let to = Mapped { frame: self.frame(true), size: self.naive[0].base(), protection: Protection::ALL };
            self.enter(space, page, to, access);
        } else {
            let (first, mapping) = self.naive[0].kernel(space, page).unwrap();
            assert_eq!(trap, Trap::Rights { held: mapping.protection });
            self.protect(space, first, mapping.size, Protection::ALL);
        }
        for naive in &mut self.naive {
            naive.settle();
            naive.retry(page, access);
            naive.line(page, u64::from(line), access);
        }
        assert_eq!(self.mmu.retry_line(request, line), Ok(()));
        assert_eq!(self.plain.retry_line(request, line), Ok(()));
    }

    fn compare(&self) {
        for (number, naive) in self.naive.iter().enumerate() {
            let (ours, theirs, name) = (self.mmu.counters(number), naive.naive.counts, &naive.machine.name);
            assert_eq!(ours.remaps, naive.remaps, "{name}: shadow superpages");
            assert_eq!(ours.references, theirs.references, "{name}: references");
            for level in 0..naive.machine.tlb_levels() {
                let misses = ACCESSES.map(|access| ours.misses(level, access));
                assert_eq!(misses, theirs.misses[level], "{name}: misses in level {}", level + 1);
            }
            assert_eq!(ours.walk_memory_references(), theirs.walk_references, "{name}: walk references");
            assert_eq!(ours.walk_cache_hits, theirs.walk_cache_hits, "{name}: walk cache hits");
            assert_eq!(ours.program_lines, theirs.program_lines, "{name}: lines of the program");
            assert_eq!(ours.line_hits, theirs.line_hits, "{name}: lines of page tables");
            assert_eq!(ours.line_misses, theirs.line_misses, "{name}: lines of page tables");
            assert_eq!(ours.use_bits, theirs.use_bits, "{name}: use bits");
            assert_eq!(ours.shootdowns, theirs.shootdowns, "{name}: shootdowns");
            assert_eq!(ours.shootdown_entries, theirs.shootdown_entries, "{name}: entries shot down");
            assert_eq!(self.mmu.peak_page_table_bytes(), naive.naive.peak, "{name}: bytes of page tables");
            let held: Vec<_> =
                self.mmu.held(number).iter().map(|held| (held.tlb, held.contents, held.size, held.entries)).collect();
            assert_eq!(held, naive.naive.held(), "{name}");
        }
        let kernel = |mmu: &Mmu| mmu.mappings().map(|(space, at, to)| ((space, at.0), to)).collect::<BTreeMap<_, _>>();
        let plain = kernel(&self.plain);
        assert_eq!(kernel(&self.mmu), plain);
        for ((space, at), to) in plain {
            assert_eq!(self.mmu.lookup(space, Vpn(at)), Some(to));
            assert_eq!(self.mmu.used(space, Vpn(at), to.size), self.plain.used(space, Vpn(at), to.size));
        }
        self.mmu.validate().unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Machines with shadow superpages, with small caches and small TLBs, some with hardly any room for
/// superpages; and each with another controller.
fn machines() -> Vec<[Machine; 2]> {
    let small = |cache: &mut LineCacheSpec, size: u64| (cache.size, cache.ways) = (size, 2);
    let of = |(name, size, entries, ways): (&str, u64, usize, usize)| {
        let mut machine = Machine::builtin(&format!("{name}+shadow")).unwrap();
        let shadow = machine.shadow.as_mut().unwrap();
        (shadow.size, shadow.entries, shadow.ways) = (size, entries, ways);
        machine.line_cache.iter_mut().zip([2 << 10, 8 << 10, 32 << 10]).for_each(|(cache, size)| small(cache, size));
        machine.instruction_cache.iter_mut().for_each(|cache| small(cache, 2 << 10));
        machine.memory.streams = entries % 3;
        for tlb in machine.tlb.iter_mut().filter(|tlb| tlb.level > 1 || tlb.ways == Ways::Full) {
            tlb.entries = if tlb.ways == Ways::Full { 12 } else { 4 * tlb.ways() };
        }
        let mut other = machine.clone();
        other.name.push_str(" with another controller");
        other.shadow.iter_mut().for_each(|shadow| (shadow.entries, shadow.ways) = (16, 8));
        other.line_cache.truncate(1);
        other.tlb.iter_mut().filter(|tlb| tlb.level > 1).for_each(|tlb| tlb.entries = 2 * tlb.ways());
        [machine, other]
    };
    [
        ("alpha-21264", 1 << 30, 8, 2),
        ("alpha-21264", 3 << 20, 4, 4),
        ("zen5", 1 << 30, 16, 2),
        ("zen5+coalescing", 11 << 20, 5, 1),
        ("zen5+tailored", 4 << 30, 64, 2),
        ("zen5+tailored", 30 << 20, 9, 3),
        ("neoverse-v2+contiguous", 1 << 30, 6, 1),
        ("golden-cove", 1 << 30, 32, 32),
    ]
    .map(of)
    .into()
}

fn check(machines: &[Machine], seed: u64, steps: usize) -> Remaps {
    let mut all = All::new(machines, seed);
    for _ in 0..steps {
        all.step();
        all.compare();
    }
    all.mmu.counters(0).remaps
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shadow_superpages_count_as_the_naive_model_says(which in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let machines = machines();
        check(&machines[which.index(machines.len())], seed, 30);
    }
}

/// Every machine once, and the streams go where it matters.
#[test]
fn each_machine_with_shadow_superpages_agrees() {
    let mut all = Remaps::default();
    for (seed, machines) in machines().iter().enumerate() {
        let remaps = check(machines, seed as u64 + 1, 60);
        println!("{}: {remaps:?}", machines[0].name);
        assert!(remaps.promotions > 0 && remaps.flushed_pages > 0, "{remaps:?}");
        all.add(&remaps);
    }
    assert!(all.demotions > 50 && all.flushed_lines > 500, "{all:?}");
    assert!(all.hits.iter().all(|hits| *hits > 100) && all.misses[0] > 100, "{all:?}");
}
