//! Walks: which page-table lines they read, and through which caches.

use super::{Mapping, Naive};
use crate::perforated;
use std::collections::BTreeSet;
use superpage_pages::Access;

impl Naive {
    /// Walks to the leaf of the page, or to the entry that is absent.
    pub(super) fn walk(&mut self, page: u64, mapping: Option<(u64, Mapping)>, known: (bool, bool)) {
        let last = match mapping {
            Some((_, mapping)) => self.leaf_level(mapping.size),
            None => {
                self.make(self.node(self.space, page, self.levels()));
                (1..=self.levels()).find(|l| self.nodes.contains_key(&self.node(self.space, page, *l))).unwrap()
            }
        };
        if let Some(clustered) = &self.clustered {
            let lines = clustered.lines(self.space, page, self.machine.memory.line_bytes);
            lines.into_iter().for_each(|line| self.reference(line));
            return;
        }
        if self.groups.is_some() {
            return self.refill(page, last, mapping.is_some());
        }
        if mapping.is_some() && self.use_block(page, last) {
            return;
        }
        let region = perforated::region(&self.machine, &self.mappings, self.space, page).filter(|_| last == 1);
        let Some(region) = region else {
            self.walk_down(page, last);
            // The page itself has an address of the guest: what is translated begins there.
            if let Some((first, mapping)) = mapping {
                let unit = self.pages(self.translated(page, (first, mapping)));
                self.translate_by_host(mapping.frame + (page / unit * unit - first), true);
                self.make_block(page, last);
            }
            return;
        };
        if !known.0 {
            self.walk_down(page, 2);
        }
        // In a guest the bitmap and both tables are in its memory, 32 MB of whose pages of 4 KB
        // have their bits in one.
        let (guests, mut translated) = (1 << 35, known.0);
        if region.may_be_hole(&self.machine, page) && !known.1 {
            let frame = region.frame + page - region.first;
            self.translate_by_host(guests + (1 << 33) + frame / (8 * self.machine.pages.sizes[0].bytes()), false);
            self.read((3 << 30) + frame / 64 % (1 << 30));
        }
        if region.holes.contains(&page) {
            translated = false;
            let table = |of: &Naive, level| of.nodes[&of.node(of.space, page, level)];
            if !self.cached(page, 2) {
                self.translate_by_host(guests + (1 << 34) + table(self, 2), false);
                let shadow = (2 << 30) + self.entry(page, 2);
                self.read(shadow);
                self.cache(page, 2);
                self.translate_by_host(guests + table(self, 1), false);
            }
            let entry = self.entry(page, 1);
            self.read(entry);
        }
        if let Some((first, mapping)) = mapping.filter(|_| !translated) {
            self.translate_by_host(mapping.frame + page - first, true);
        }
    }

    /// Walks from the root, or from what a walk cache holds, to the entry of this level.
    fn walk_down(&mut self, page: u64, last: usize) {
        let mut from = self.levels();
        for level in last + 1..=self.levels() {
            if self.cached(page, level) {
                from = level - 1;
                break;
            }
        }
        for level in (last..=from).rev() {
            let entry = self.entry(page, level);
            let node = self.nodes[&self.node(self.space, page, level)];
            // What a walk cache holds is translated already.
            if level < from || from == self.levels() {
                self.translate_by_host((1 << 35) + node, false);
            }
            self.read(entry);
            if level > last {
                self.cache(page, level);
            }
        }
    }

    /// Whether a walk cache holds the page's pointer of this level.
    fn cached(&mut self, page: u64, level: usize) -> bool {
        if self.machine.walk_cache.iter().any(|cache| cache.level == level && self.machine.within(cache).is_some()) {
            self.counts.walk_cache_hits[level - 1] += u64::from(self.pointer);
            return self.pointer;
        }
        let pointer = (self.own(), level, page >> self.below(level));
        let cache = self.walk_caches.iter_mut().find(|(spec, _)| spec.level == level);
        let hit = cache.is_some_and(|(_, cache)| cache.hit(0, |held| held == pointer).is_some());
        self.counts.walk_cache_hits[level - 1] += u64::from(hit);
        hit
    }

    fn cache(&mut self, page: u64, level: usize) {
        let pointer = (self.own(), level, page >> self.below(level));
        for (_, cache) in self.walk_caches.iter_mut().filter(|(spec, _)| spec.level == level) {
            cache.fill(0, pointer);
        }
    }

    /// The number of the page's entry of this level: its address in entries.
    pub(crate) fn entry(&self, page: u64, level: usize) -> u64 {
        let node = self.nodes[&self.node(self.space, page, level)];
        let index = (page >> self.below(level)) & ((1 << self.machine.page_table.bits[level - 1]) - 1);
        let widest = *self.machine.page_table.bits.iter().max().unwrap();
        (node << widest) + index
    }

    /// Of the tables of a host: the level where a walk to this page ends, if it has tables.
    pub(crate) fn last_level(&self, page: u64) -> Option<usize> {
        match self.mapping(0, page) {
            Some((_, mapping)) => Some(self.leaf_level(mapping.size)),
            None => (1..=self.levels()).find(|level| self.nodes.contains_key(&self.node(0, page, *level))),
        }
    }

    /// Translates a frame of the guest, if there is a host.
    fn translate_by_host(&mut self, frame: u64, is_page: bool) {
        let Some(mut host) = self.host.take() else { return };
        host.note(frame, is_page);
        for (entry, level) in host.translate(frame) {
            match level {
                Some(level) => self.counts.host_walk_cache_hits[level - 1] += 1,
                None => self.read((1 << 30) + entry),
            }
        }
        self.host = Some(host);
    }

    pub(super) fn read(&mut self, entry: u64) {
        self.reference(entry * 8 / self.machine.memory.line_bytes);
    }

    /// Drops these lines of the program from all caches; returns how many lines one held.
    pub(crate) fn flush_lines(&mut self, lines: std::ops::Range<u64>) -> u64 {
        let caches = self.line_caches.iter_mut().map(|(_, cache)| cache).chain(&mut self.instruction_cache);
        let mut flushed = BTreeSet::new();
        for cache in caches {
            let of_page = |held: (bool, u64)| !held.0 && lines.contains(&held.1);
            flushed.extend(cache.entries().copied().filter(|held| of_page(*held)));
            cache.drop(of_page);
        }
        flushed.len() as u64
    }

    /// The program's access to the line of 64 bytes of a page, which is mapped. Returns the number
    /// of the line, and which kind of count it is in, if no cache served it.
    pub(crate) fn line(&mut self, page: u64, line: u64, access: Access) -> Option<(u64, usize)> {
        let (first, mapping) = self.mapping(self.space, page).unwrap();
        let address = (mapping.frame + page - first) * self.machine.pages.sizes[0].bytes() + line * 64;
        // Lines of less than 64 bytes are all accessed.
        let smaller = 64 / self.machine.memory.line_bytes.min(64);
        let first = address / self.machine.memory.line_bytes;
        (first..first + smaller).map(|number| self.line_of_memory(number, access)).last().unwrap()
    }

    fn line_of_memory(&mut self, number: u64, access: Access) -> Option<(u64, usize)> {
        let key = (false, number);
        let fetch = access == Access::Execute;
        let mut served = None;
        let own = fetch && self.instruction_cache.is_some();
        if let Some(cache) = self.instruction_cache.as_mut().filter(|_| fetch)
            && cache.hit(number, |held| held == key).is_some()
        {
            served = Some(0);
        }
        for (level, (_, cache)) in self.line_caches.iter_mut().enumerate().skip(usize::from(own)) {
            if served.is_none() && cache.hit(number, |held| held == key).is_some() {
                served = Some(level);
            }
        }
        let mut kind = usize::from(fetch);
        if self.preloading && !fetch && served != Some(0) {
            kind = 2;
        } else if !fetch && served != Some(0) && self.machine.memory.streams > 0 {
            let beside = self.streams.iter().position(|last| last.abs_diff(number) == 1);
            match beside {
                Some(at) => {
                    self.streams.remove(at);
                    kind = 2;
                }
                None => self.streams.truncate(self.machine.memory.streams - 1),
            }
            self.streams.insert(0, number);
        }
        match served {
            Some(level) => self.counts.program_lines[kind].hits[level] += 1,
            None => self.counts.program_lines[kind].misses += 1,
        }
        let missed = served.unwrap_or(self.line_caches.len());
        if own && missed > 0 {
            self.instruction_cache.as_mut().unwrap().fill(number, key);
        }
        for (_, cache) in self.line_caches[..missed].iter_mut().skip(usize::from(own)) {
            cache.fill(number, key);
        }
        served.is_none().then_some((number, kind))
    }

    fn reference(&mut self, line: u64) {
        self.counts.walk_references += 1;
        let mut served = None;
        for (level, (_, cache)) in self.line_caches.iter_mut().enumerate() {
            if cache.hit(line, |held| held == (true, line)).is_some() {
                served = Some(level);
                break;
            }
        }
        match served {
            Some(level) => self.counts.line_hits[level] += 1,
            None => self.counts.line_misses += 1,
        }
        for (_, cache) in &mut self.line_caches[..served.unwrap_or(self.machine.line_cache.len())] {
            cache.fill(line, (true, line));
        }
    }
}
