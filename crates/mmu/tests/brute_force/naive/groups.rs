//! Misses on a machine with a hash table of groups, and how that is kept up to date.

use super::{Naive, Stop};
use superpage_mmu::{Touch, Upkeep};
use superpage_pages::Access;

impl Naive {
    /// What the operating system does from now on.
    pub(crate) fn set_upkeep(&mut self, upkeep: Upkeep) {
        self.groups.as_mut().unwrap().upkeep = upkeep;
    }

    fn read_all(&mut self, entries: Vec<u64>) {
        let cached = self.groups.as_ref().unwrap().upkeep.cached_tables;
        for entry in entries {
            if cached {
                self.read(entry);
            } else {
                self.counts.line_misses += 1;
                self.counts.walk_references += 1;
            }
        }
    }

    /// A miss, whose walk of the tree ends at this level.
    pub(super) fn refill(&mut self, page: u64, last: usize, mapped: bool) {
        let space = self.space;
        let groups = self.groups.as_mut().unwrap();
        let table = groups.upkeep.table;
        groups.counts.entered += u64::from(groups.software);
        if table {
            let (looked, found) = groups.search(space, page);
            self.read_all(looked);
            if found {
                return;
            }
        }
        let groups = self.groups.as_mut().unwrap();
        groups.counts.entered += u64::from(!groups.software);
        groups.counts.tree_walks += 1;
        let tree = (last..=last.max(2)).rev().map(|level| self.entry(page, level)).collect();
        self.read_all(tree);
        if table && mapped {
            let looked = self.groups.as_mut().unwrap().insert(space, page);
            self.read_all(looked);
        }
    }

    /// A change of these pages is announced.
    pub(super) fn keep_up(&mut self, space: u32, first: u64, end: u64) {
        let Some(groups) = &mut self.groups else { return };
        if groups.renews(space, first, end) {
            groups.renew(space);
            self.drop_space(space);
            self.forgotten = Some((space, 0, u64::MAX));
        } else {
            let whole = (first, end) == (0, u64::MAX);
            let mapped: Vec<u64> = self.mappings.keys().filter(|key| key.0 == space).map(|key| key.1).collect();
            let pages: Vec<u64> = if whole { mapped } else { (first..end).collect() };
            if !self.groups.as_ref().unwrap().upkeep.table {
                self.counts.shootdowns += pages.iter().skip(1).count() as u64;
            }
            // What leaves the table leaves the TLBs, whatever becomes of its mapping.
            for page in &pages {
                if let Some(mapping) = self.mappings.get(&(space, *page)) {
                    let size = mapping.size;
                    self.shoot(space, *page, size);
                }
            }
            for page in pages {
                let looked = self.groups.as_mut().unwrap().flush_page(space, page);
                self.read_all(looked);
            }
        }
    }

    /// The idle task frees zombies.
    pub(crate) fn reclaim(&mut self, entries: usize, cached: bool) {
        let groups = self.groups.as_mut().unwrap();
        let (looked, before) = (groups.reclaim(entries), groups.upkeep.cached_tables);
        groups.upkeep.cached_tables = cached;
        self.read_all(looked);
        self.groups.as_mut().unwrap().upkeep.cached_tables = before;
    }

    /// An access to a line, with all that the kernel does for it; only of pages that are mapped is
    /// the line accessed.
    pub(crate) fn access_line(&mut self, page: u64, line: u64, access: Access) -> Option<Stop> {
        let Some(groups) = &mut self.groups else {
            let stop = self.access(page, access);
            if stop.is_none() {
                self.line(page, line, access);
            }
            return stop;
        };
        let block = |block: &superpage_mmu::Block| block.space == self.space && block.pages.contains(&page);
        let in_block = groups.upkeep.blocks.iter().any(block);
        let handler = groups.upkeep.handler.clone();
        if in_block && self.mapping(self.space, page).is_some() {
            self.groups.as_mut().unwrap().counts.blocks += 1;
            self.forgotten = None;
            self.line(page, line, access);
            return None;
        }
        let groups = self.groups.as_ref().unwrap();
        let enters = groups.software || !groups.upkeep.table || !groups.finds(self.space, page);
        if let Some(handler) = handler.filter(|_| enters && !self.holds(page, access)) {
            let space = std::mem::replace(&mut self.space, self.groups.as_ref().unwrap().upkeep.kernel.unwrap());
            for Touch { page, line, access } in handler.touches {
                if handler.translated {
                    let upkeep = &mut self.groups.as_mut().unwrap().upkeep;
                    let kept = upkeep.handler.take();
                    assert_eq!(self.access_line(page.0, line.into(), access), None);
                    self.groups.as_mut().unwrap().upkeep.handler = kept;
                } else {
                    self.line(page.0, line.into(), access);
                }
            }
            self.space = space;
        }
        let stop = self.access(page, access);
        if stop.is_none() {
            self.line(page, line, access);
        }
        stop
    }

    /// The entries of TLBs of the first level that are of a space.
    pub(crate) fn held_by(&self, space: u32) -> u64 {
        let first = self.tlbs.iter().filter(|(spec, _)| spec.level == 1);
        first.map(|(_, cache)| cache.entries().filter(|held| held.space == space).count() as u64).sum()
    }

    /// Drops all of a space from the TLBs.
    fn drop_space(&mut self, space: u32) {
        for (_, cache) in &mut self.tlbs {
            self.counts.shootdown_entries += cache.drop(|held| held.space == space);
        }
    }

    /// Whether a TLB of the first level holds a page for this access.
    pub(crate) fn holds(&self, page: u64, access: Access) -> bool {
        let mut serving = self.tlbs.iter().filter(|(spec, _)| Naive::serves(spec, access));
        serving.any(|(_, cache)| cache.entries().any(|held| held.covers(self.space, page)))
    }
}
