//! Consistency checks of the whole state, for property tests and fuzzers: every count is recomputed
//! from scratch.

use crate::frame::bitmap::Bitmap;
use crate::frame::static_pool::HugePool;
use crate::object::population::{NONE, NodeId};
use crate::object::{ObjectId, PageOf};
use crate::reclaim::pages::List;
use crate::space::{Entry, Pooled};
use crate::vm::Vm;
use crate::{PAGES_LIMIT, Pmap, SpaceId};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use superpage_pages::{Level, MAX_LEVELS, Pfn};

/// The owner of each frame.
struct Owners {
    taken: Vec<bool>,
}

impl Owners {
    fn take(&mut self, first: u64, frames: u64, who: &str) -> Result<(), String> {
        for frame in first..first + frames {
            let taken =
                self.taken.get_mut(frame as usize).ok_or_else(|| format!("{who} has frame {frame} beyond memory"))?;
            if core::mem::replace(taken, true) {
                return Err(format!("{who} has frame {frame}, which has another owner too"));
            }
        }
        Ok(())
    }
}

/// What the walk over the population maps counted.
struct Census {
    owners: Owners,
    populated: u64,
    reservations: usize,
    /// Extents of the static pool that hold a page.
    pool: u64,
    nodes: [usize; MAX_LEVELS],
    /// Superpages mapped just below a node, in objects of one mapping: by level and slot.
    superpages: BTreeMap<(u8, u32), u32>,
}

/// What is known of a node from those above it.
#[derive(Clone, Copy)]
struct Above {
    /// The slot of its parent.
    parent: u32,
    /// Whether an extent above it holds its region.
    covered: bool,
    /// Whether its object was only ever mapped once.
    sole: bool,
}

/// The pages that page tables map.
#[derive(Default)]
struct MappedPages {
    by_level: [u64; MAX_LEVELS],
    /// Of objects that are mapped only once: by level and slot of the node just above them.
    superpages: BTreeMap<(u8, u32), u32>,
}

fn check(right: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(message()) }
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
        let superpages = self.validate_spaces(pmap)?;
        self.validate_objects()?;
        let buddy = &self.frames.buddy;
        buddy.validate()?;
        let mut census = Census {
            owners: Owners { taken: vec![false; buddy.frames() as usize] },
            populated: 0,
            reservations: 0,
            pool: 0,
            nodes: [0; MAX_LEVELS],
            superpages,
        };
        for extent in buddy.iter() {
            census.owners.take(extent.start.0, self.frames.ladder.pages(extent.level), "the buddy allocator")?;
        }
        for extent in &self.frames.wired {
            census.owners.take(extent.start.0, self.frames.ladder.pages(extent.level), "the kernel")?;
        }
        for frame in self.frames.foreign.iter().flat_map(Bitmap::iter) {
            census.owners.take(frame as u64, 1, "somebody else")?;
        }
        for extent in self.frames.pools.extents() {
            census.owners.take(extent.start.0, self.frames.ladder.pages(extent.level), "a kernel pool")?;
        }
        for extent in self.frames.huge.iter().flat_map(HugePool::free) {
            census.owners.take(extent.start.0, self.frames.ladder.pages(extent.level), "the static pool")?;
        }
        for extent in self.frames.deferred.held() {
            census.owners.take(extent.start.0, self.frames.ladder.pages(extent.level), "a huge page to be split")?;
        }
        let deferred = self.frames.deferred.held().map(|extent| self.frames.ladder.pages(extent.level)).sum::<u64>();
        check(deferred == self.frames.stats.deferred_pages, || {
            format!("huge pages to be split hold {deferred} frames, which is not the count")
        })?;
        self.frames.deferred.validate(&self.frames.ladder)?;
        self.frames.zeroed.validate(&self.frames.buddy)?;
        let immovable = self.frames.wired.iter().copied().chain(self.frames.pools.extents());
        self.frames.tainted.validate(&self.frames.ladder, immovable)?;
        self.frames.pools.validate(|level| self.frames.ladder.pages(level))?;
        let population = &self.frames.population;
        let mut roots = 0;
        for (object, index, slot) in population.all_roots() {
            let owner = population.owner(slot);
            check((owner.object, owner.index) == (object, index), || format!("root {slot} has the wrong owner"))?;
            check(self.objects.iter().any(|(id, _)| id == object), || format!("root {slot} has no object"))?;
            let above = Above { parent: NONE, covered: false, sole: self.objects.get(object).sole };
            self.validate_node(&mut census, NodeId { level: population.top, slot }, above)?;
            roots += 1;
        }
        let listed: usize = self.objects.iter().map(|(object, _)| population.roots_of(object).count()).sum();
        check(listed == roots, || format!("objects list {listed} roots of {roots}"))?;
        for level in 1..=population.top {
            let (seen, used) = (census.nodes[level as usize], population.nodes_in_use(level));
            check(seen == used, || format!("{used} nodes of level {level} are in use, but {seen} are in maps"))?;
        }
        let reservations = self.frames.reservations.validate()?;
        check(reservations == census.reservations, || {
            format!("{reservations} reservations are on lists, but {} belong to nodes", census.reservations)
        })?;
        if let Some(pool) = &self.frames.huge {
            let entries = self.spaces.entries();
            pool.validate(census.pool, entries.map(|entry| self.reserved_by(entry)).sum())?;
        }
        let stats = &self.frames.stats;
        let untouched = self.frames.untouched.as_ref().map_or(0, |untouched| untouched.count() as u64);
        let touched = census.populated - untouched;
        check(stats.resident_pages == census.populated && stats.touched_pages == touched, || {
            format!(
                "{} pages are resident and {} touched, not {}",
                stats.resident_pages, stats.touched_pages, census.populated
            )
        })?;
        check(stats.untouched_pages == untouched, || {
            format!("{untouched} pages are untouched, which is not the count")
        })?;
        self.validate_pages(pmap, census.populated)?;
        self.validate_busy(|page, frame| !self.spaces.mappings(&self.objects, pmap, page, frame).is_empty())?;
        match census.owners.taken.iter().position(|taken| !taken) {
            Some(frame) => Err(format!("frame {frame} has no owner")),
            None => Ok(()),
        }
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

    /// The number of frames without an owner: not free, not wired, not in a reservation or a memory
    /// object. O(nodes).
    pub fn leaked_frames(&self) -> u64 {
        let population = &self.frames.population;
        let owned: u64 = population.all_roots().map(|(_, _, slot)| self.owned(population.top, slot)).sum();
        let stats = &self.frames.stats;
        let others = stats.unknown_frames();
        self.frames.buddy.frames() - self.frames.buddy.free_frames() - others - owned
    }

    fn owned(&self, level: u8, slot: u32) -> u64 {
        let population = &self.frames.population;
        let node = population.node(level, slot);
        if node.frame != NONE {
            return population.pages(level);
        }
        if level == 1 {
            return u64::from(population.some(level, slot));
        }
        let children = (0..population.ratio(level)).map(|position| population.child(level, slot, position));
        children.filter(|child| *child != NONE).map(|child| self.owned(level - 1, child)).sum()
    }

    fn validate_node(&self, census: &mut Census, node: NodeId, above: Above) -> Result<(), String> {
        let (NodeId { level, slot }, Above { parent, covered, sole }) = (node, above);
        let population = &self.frames.population;
        let (node, ratio, pages) = (population.node(level, slot), population.ratio(level), population.pages(level));
        let name = || format!("node {slot} of level {level}");
        census.nodes[level as usize] += 1;
        check(node.parent == parent, || format!("{} has the wrong parent", name()))?;
        let has_extent = node.frame != NONE;
        let full = population.is_full(level, slot);
        if has_extent {
            check(!covered, || format!("{} has an extent inside another", name()))?;
            check(u64::from(node.frame) % pages == 0, || format!("{} has a misaligned extent", name()))?;
            census.owners.take(u64::from(node.frame), pages, &name())?;
            if self.frames.in_pool(node.frame) {
                let whole = self.frames.huge.as_ref().is_some_and(|pool| pool.level() == Level(level));
                check(whole && full, || format!("{} has a part of a page of the pool", name()))?;
                census.pool += 1;
            }
        }
        check((has_extent && !full) == (node.reservation != NONE), || format!("{} has the wrong reservation", name()))?;
        if node.reservation != NONE {
            census.reservations += 1;
            let reservations = &self.frames.reservations;
            let back = reservations.node(node.reservation);
            check(back == NodeId { level, slot }, || format!("the reservation of {} belongs to another node", name()))?;
            let (list, right) = (reservations.list(node.reservation), population.largest_free(level, slot, level - 1));
            check(Some(list) == right, || format!("the reservation of {} is on list {list}, not {right:?}", name()))?;
        }
        let covered = covered || has_extent;
        let (mut some, mut complete) = (0, 0);
        for position in 0..ratio {
            if level == 1 {
                if population.bit(slot, position) {
                    (some, complete) = (some + 1, complete + 1);
                    if !covered {
                        census.owners.take(u64::from(population.single(slot, position)), 1, &name())?;
                    }
                }
                continue;
            }
            let child = population.child(level, slot, position);
            if child != NONE {
                some += 1;
                complete += u32::from(population.is_full(level - 1, child));
                let above = Above { parent: slot, covered, sole };
                self.validate_node(census, NodeId { level: level - 1, slot: child }, above)?;
            }
        }
        let counts = (population.some(level, slot), population.full(level, slot));
        check(counts == (some, complete), || format!("{} counts {counts:?} children, not {some}, {complete}", name()))?;
        check(some > 0, || format!("{} is empty", name()))?;
        if level == 1 {
            census.populated += u64::from(some);
        } else if sole {
            let superpages = census.superpages.get(&(level, slot)).copied().unwrap_or(0);
            check(node.extra == superpages, || {
                format!("{} counts {} children mapped by superpages, not {superpages}", name(), node.extra)
            })?;
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
        let mut windows: BTreeMap<ObjectId, Vec<(u64, u64)>> = BTreeMap::new();
        for entry in self.spaces.entries() {
            for object in self.objects.chain(entry.object) {
                windows.entry(object).or_default().push((entry.offset, entry.offset_end()));
            }
        }
        for (object, _) in self.objects.iter().filter(|(_, known)| known.file.is_none()) {
            let (cached, swapped) = self.frames.swap_and_cache.pages_in(object, 0, PAGES_LIMIT);
            let unpopulated = cached.into_iter().map(|(index, _)| index).chain(swapped);
            let open = windows.get(&object).map_or(&[][..], Vec::as_slice);
            for index in self.frames.populated(object).into_iter().chain(unpopulated) {
                check(open.iter().any(|(low, high)| (*low..*high).contains(&index)), || {
                    format!("page {index:#x} of {object:?} lies outside every window through which it can be reached")
                })?;
            }
        }
        Ok(())
    }

    /// Also counts the superpages below each node of objects that are mapped only once.
    fn validate_spaces(&self, pmap: &impl Pmap) -> Result<BTreeMap<(u8, u32), u32>, String> {
        let mut counted = MappedPages { by_level: self.validate_zeroes(pmap)?, ..MappedPages::default() };
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
        if entry.pooled != Pooled::Not {
            let pool = self.frames.huge.as_ref().ok_or("a map entry is of the static pool, and there is none")?;
            let pages = ladder.pages(pool.level());
            let whole = [entry.start, entry.end, entry.offset].iter().all(|at| at.is_multiple_of(pages));
            check(whole, || format!("the map entry at {:#x} has a part of a page of the pool", entry.start))?;
        }
        let mut runs = Vec::new();
        for object in self.objects.chain(entry.object) {
            population.runs(object, entry.offset, entry.offset_end(), &mut runs);
        }
        let mut pages: Vec<u64> = runs.iter().flat_map(|(from, to)| *from..*to).collect();
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
            let inside = start.0 >= entry.start && start.0 + ladder.pages(level) <= entry.end;
            check(inside, || format!("the superpage at {} reaches beyond its entry", name()))?;
            let whole = walk.covered >= level.0 && population.is_full(level.0, walk.slots[level.index()]);
            check(whole, || format!("the superpage at {} is not over a full extent", name()))?;
            if start == at && sole && level.0 < population.top {
                *counted.superpages.entry((level.0 + 1, walk.slots[level.index() + 1])).or_insert(0) += 1;
            }
        }
        Ok(())
    }
}
