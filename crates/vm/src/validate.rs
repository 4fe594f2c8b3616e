//! Consistency checks of the whole state, for property tests and fuzzers: every count is recomputed
//! from scratch.

use crate::frame::static_pool::HugePool;
use crate::frame::validate::check;
use crate::object::population::NodeId;
use crate::object::{ObjectId, PageOf};
use crate::queue::pages::List;
use crate::space::Entry;
use crate::vm::Vm;
use crate::{PAGES_LIMIT, Pmap, SpaceId};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Level, MAX_LEVELS, Pfn};

/// The pages that page tables map.
#[derive(Default)]
struct MappedPages {
    by_level: [u64; MAX_LEVELS],
    /// Of objects that are mapped only once: by level and slot of the node just above them.
    superpages: BTreeMap<NodeId, u32>,
}

impl Vm {
    /// Checks the whole state: every frame has one owner, all counts of the population maps, lists,
    /// objects and map entries are right, and the page tables agree with them. Linear in memory and
    /// mappings.
    ///
    /// # Errors
    /// A sentence that says what is inconsistent.
    pub fn validate(&self, pmap: &impl Pmap) -> Result<(), String> {
        if let Some(background) = self.policy.background() {
            background.validate()?;
        }
        self.spaces.validate()?;
        let superpages = self.validate_spaces(pmap)?;
        self.validate_objects()?;
        let (populated, pooled) = self.frames.validate(&self.objects, superpages)?;
        if let Some(pool) = &self.frames.huge {
            pool.validate(pooled, self.spaces.entries().map(|entry| self.reserved_by(entry)).sum())?;
        }
        self.validate_pages(pmap, populated)?;
        self.validate_busy(|page, frame| !self.spaces.mappings(&self.objects, pmap, page, frame).is_empty())
    }

    /// The number of frames without an owner: not free, not wired, not in a reservation or a memory
    /// object. O(nodes).
    pub fn leaked_frames(&self) -> u64 {
        self.frames.leaked()
    }

    /// Checks the page lists, the cache pages and swap space, and the links from frames back to
    /// pages.
    fn validate_pages(&self, pmap: &impl Pmap, populated: u64) -> Result<(), String> {
        let (frames, swap_and_cache) = (&self.frames, &self.frames.swap_and_cache);
        swap_and_cache.validate()?;
        let known = |page: PageOf| self.objects.iter().any(|(id, _)| id == page.object);
        for page in swap_and_cache.all_swapped() {
            check(known(page), || format!("page {page:?} in swap space has no object"))?;
        }
        let Some(pages) = &frames.pages else { return Ok(()) };
        pages.validate()?;
        let mut cached = 0;
        for (page, frame) in swap_and_cache.all_cached() {
            cached += 1;
            check(known(page), || format!("cache page {page:?} has no object"))?;
            let walk = frames.population.walk(page.object, page.index);
            check(!walk.populated, || format!("cache page {page:?} is also populated"))?;
            check(pages.list(frame) == Some(List::Cache), || {
                format!("the cache page in {frame} is not on the cache list")
            })?;
            check(frames.buddy.is_cached(Pfn(u64::from(frame))), || format!("frame {frame} is not marked as cached"))?;
            check(frames.page_of(frame).is_none(), || format!("frame {frame} is cached and populated"))?;
        }
        let marked = frames.buddy.cached_frames();
        check(marked == cached, || format!("{marked} frames are marked as cached, but {cached} are"))?;
        let lists = [List::Active, List::Inactive, List::Cache, List::Unswappable, List::Busy];
        let listed = lists.into_iter().map(|list| pages.count(list)).sum::<u64>();
        let pooled = frames.huge.as_ref().map_or(0, HugePool::used_frames);
        check(listed + pooled == populated + cached, || {
            format!("{listed} frames are on page lists: {populated} are populated and {cached} hold cache pages")
        })?;
        for (object, known) in self.objects.iter() {
            for index in self.frames.populated(object) {
                let frame = frames.population.walk(object, index).frame;
                if frames.in_pool(frame) {
                    check(pages.list(frame).is_none(), || format!("frame {frame} of the pool is on a page list"))?;
                    continue;
                }
                let place = known.file.is_some() || swap_and_cache.slot(object.page(index)).is_some();
                let unswappable = pages.list(frame) == Some(List::Unswappable);
                check(!unswappable || !place && self.is_dirty(pmap, object.page(index), frame), || {
                    format!("page {index:#x} of {object:?} is marked unswappable but clean, or has a place to go")
                })?;
                let unmapped = || self.spaces.mappings(&self.objects, pmap, object.page(index), frame).is_empty();
                check(pages.list(frame) != Some(List::Cache) || unmapped(), || {
                    format!("page {index:#x} of {object:?} is a cache page and mapped")
                })?;
                check(frames.page_of(frame) == Some(object.page(index)), || {
                    format!(
                        "page {index:#x} of {object:?} is in frame {frame}, which leads to {:?}",
                        frames.page_of(frame)
                    )
                })?;
            }
        }
        Ok(())
    }

    fn validate_objects(&self) -> Result<(), String> {
        let entries: Vec<ObjectId> = self.spaces.entries().map(|entry| entry.object).collect();
        for (id, object) in self.objects.iter() {
            let stand = entries.iter().filter(|entry| **entry == id).count();
            let copies: Vec<ObjectId> =
                self.objects.iter().filter(|(_, other)| other.backing == Some(id)).map(|(other, _)| other).collect();
            check((object.entries, object.copies) == (stand as u32, copies.len() as u32), || {
                format!("object {id:?} counts {} entries, {} copy-on-write objects", object.entries, object.copies)
            })?;
            let busy = self.frames.busy.of_all(id).is_some();
            let cache = object.file.is_some() && (self.frames.pages.is_some() || object.opens > 0 || busy);
            check(stand + copies.len() > 0 || cache, || format!("object {id:?} is not needed"))?;
            check(self.objects.only_copy(id).is_none(), || format!("object {id:?} should have been taken over"))?;
            check(object.low <= object.high, || format!("object {id:?} ends before it starts"))?;
            check(copies.is_empty() || !object.sole, || {
                format!("object {id:?} has copy-on-write objects in front and is marked sole")
            })?;
        }
        self.validate_reach()
    }

    /// Checks that each page of anonymous memory lies in a window through which it can be reached:
    /// one on its object, or on an object in front of that. Any other page is lost, and would
    /// reappear if a window opened there.
    fn validate_reach(&self) -> Result<(), String> {
        let mut windows: BTreeMap<ObjectId, Vec<Range<u64>>> = BTreeMap::new();
        for entry in self.spaces.entries() {
            for object in self.objects.chain(entry.object) {
                windows.entry(object).or_default().push(entry.offset..entry.offset_end());
            }
        }
        for (object, _) in self.objects.iter().filter(|(_, known)| known.file.is_none()) {
            let unpopulated = self.frames.swap_and_cache.pages_in(object, 0, PAGES_LIMIT);
            let open = windows.get(&object).map_or(&[][..], Vec::as_slice);
            for index in self.frames.populated(object).into_iter().chain(unpopulated.indices()) {
                check(open.iter().any(|window| window.contains(&index)), || {
                    format!("page {index:#x} of {object:?} lies outside every window through which it can be reached")
                })?;
            }
        }
        Ok(())
    }

    /// Also counts the superpages below each node of objects that are mapped only once.
    fn validate_spaces(&self, pmap: &impl Pmap) -> Result<BTreeMap<NodeId, u32>, String> {
        let mut counted = MappedPages { by_level: self.validate_zero_leaves(pmap)?, ..MappedPages::default() };
        for (space, map) in self.spaces.iter() {
            let (mut end, SpaceId(number)) = (0, space);
            check(map.index_is_right(), || {
                format!("the map entries of space {number} by object are not those by address")
            })?;
            for entry in map.iter() {
                check(end <= entry.start && entry.start < entry.end && entry.end <= PAGES_LIMIT, || {
                    format!("the map entry at {:#x} of space {number} overlaps or is empty", entry.start)
                })?;
                end = entry.end;
                check(map.find(entry.start) == Some(*entry), || {
                    format!("the map entry at {:#x} is not found", entry.start)
                })?;
                self.validate_entry(pmap, space, entry, &mut counted)?;
            }
        }
        let MappedPages { by_level, superpages } = counted;
        check(by_level == self.frames.stats.mapped, || {
            format!("{by_level:?} pages are mapped by level, not {:?}", self.frames.stats.mapped)
        })?;
        Ok(superpages)
    }

    fn validate_entry(
        &self,
        pmap: &impl Pmap,
        space: SpaceId,
        entry: &Entry,
        counted: &mut MappedPages,
    ) -> Result<(), String> {
        let (ladder, population) = (&self.frames.ladder, &self.frames.population);
        if entry.is_pooled() {
            let pool = self.frames.huge.as_ref().ok_or("a map entry is of the static pool, and there is none")?;
            let pages = ladder.pages(pool.level());
            let whole = [entry.start, entry.end, entry.offset].iter().all(|at| at.is_multiple_of(pages));
            check(whole, || format!("the map entry at {:#x} has a part of a page of the pool", entry.start))?;
        }
        let mut runs = Vec::new();
        for object in self.objects.chain(entry.object) {
            population.runs(object, entry.offset, entry.offset_end(), &mut runs);
        }
        let mut pages: Vec<u64> = runs.into_iter().flatten().collect();
        pages.sort_unstable();
        pages.dedup();
        for index in pages {
            let at = entry.page(index);
            let name = || format!("page {:#x} of space {}", at.0, space.0);
            let walk = self
                .frames
                .holder(&self.objects, entry.object, index)
                .ok_or_else(|| format!("{} has no object that holds it", name()))?;
            let (holder, sole) = (walk.page.object, self.objects.get(walk.page.object).sole);
            let rights = entry.rights(holder);
            let Some(found) = pmap.lookup(space, at) else {
                // A swap or cache page hides the page behind it, and is not mapped.
                check(!sole || !walk.populated, || {
                    format!("{} is populated for one mapping only, but not mapped", name())
                })?;
                continue;
            };
            check(found.frame.0 == u64::from(walk.frame), || format!("{} is mapped to the wrong frame", name()))?;
            check(rights.contains(found.protection), || format!("{} has rights beyond the entry's", name()))?;
            let uniform = sole && !self.tracks_dirt(holder);
            check(!uniform || rights == found.protection, || format!("{} does not have the entry's rights", name()))?;
            let level = ladder.level(found.size).ok_or_else(|| format!("{} is mapped by an unknown size", name()))?;
            let start = at.align_down(ladder.pages(level));
            if start == at {
                counted.by_level[level.index()] += 1;
            }
            if level == Level::BASE {
                continue;
            }
            check(entry.holds_region(at, ladder.pages(level)), || {
                format!("the superpage at {} reaches beyond its entry", name())
            })?;
            let whole = walk.covered >= level.0 && population.is_full(level.0, walk.slots[level.index()]);
            check(whole, || format!("the superpage at {} is not over a full extent", name()))?;
            if start == at && sole && level.0 < population.top {
                *counted
                    .superpages
                    .entry(NodeId { level: level.0 + 1, slot: walk.slots[level.index() + 1] })
                    .or_insert(0) += 1;
            }
        }
        Ok(())
    }
}
