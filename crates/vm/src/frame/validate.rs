//! Checks of physical memory: every frame has one owner, and all counts of population maps,
//! reservations, pools and splits are right.

use crate::frame::Frames;
use crate::frame::bitmap::Bitmap;
use crate::frame::static_pool::HugePool;
use crate::object::Objects;
use crate::object::population::{NONE, NodeId};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::{format, vec, vec::Vec};
use superpage_pages::{Level, MAX_LEVELS};

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
    superpages: BTreeMap<NodeId, u32>,
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

/// An error with this message unless it is right.
pub(crate) fn check(right: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(message()) }
}

impl Frames {
    /// Checks the whole state; `superpages`: those that are mapped just below a node, in objects of
    /// one mapping. Returns how many pages are populated, and how many extents of the static pool.
    /// Linear in memory.
    pub(crate) fn validate(&self, objects: &Objects, superpages: BTreeMap<NodeId, u32>) -> Result<(u64, u64), String> {
        let buddy = &self.buddy;
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
            census.owners.take(extent.start.0, self.ladder.pages(extent.level), "the buddy allocator")?;
        }
        for extent in &self.wired {
            census.owners.take(extent.start.0, self.ladder.pages(extent.level), "the kernel")?;
        }
        for frame in self.foreign.iter().flat_map(Bitmap::iter) {
            census.owners.take(frame as u64, 1, "somebody else")?;
        }
        for extent in self.pools.extents() {
            census.owners.take(extent.start.0, self.ladder.pages(extent.level), "a kernel pool")?;
        }
        for extent in self.huge.iter().flat_map(HugePool::free) {
            census.owners.take(extent.start.0, self.ladder.pages(extent.level), "the static pool")?;
        }
        for extent in self.deferred.held() {
            census.owners.take(extent.start.0, self.ladder.pages(extent.level), "a huge page to be split")?;
        }
        let deferred = self.deferred.held().map(|extent| self.ladder.pages(extent.level)).sum::<u64>();
        check(deferred == self.stats.deferred_pages, || {
            format!("huge pages to be split hold {deferred} frames, which is not the count")
        })?;
        self.deferred.validate(&self.ladder)?;
        self.zeroed.validate(&self.buddy)?;
        let immovable = self.wired.iter().copied().chain(self.pools.extents());
        self.tainted.validate(&self.ladder, immovable)?;
        self.pools.validate(|level| self.ladder.pages(level))?;
        let population = &self.population;
        let mut roots = 0;
        for (object, index, slot) in population.all_roots() {
            let owner = population.owner(slot);
            check((owner.object, owner.index) == (object, index), || format!("root {slot} has the wrong owner"))?;
            check(objects.iter().any(|(id, _)| id == object), || format!("root {slot} has no object"))?;
            let above = Above { parent: NONE, covered: false, sole: objects.get(object).sole };
            self.validate_node(&mut census, NodeId { level: population.top, slot }, above)?;
            roots += 1;
        }
        let listed: usize = objects.iter().map(|(object, _)| population.roots_of(object).count()).sum();
        check(listed == roots, || format!("objects list {listed} roots of {roots}"))?;
        for level in 1..=population.top {
            let (seen, used) = (census.nodes[level as usize], population.nodes_in_use(level));
            check(seen == used, || format!("{used} nodes of level {level} are in use, but {seen} are in maps"))?;
        }
        let reservations = self.reservations.validate()?;
        check(reservations == census.reservations, || {
            format!("{reservations} reservations are on lists, but {} belong to nodes", census.reservations)
        })?;
        let stats = &self.stats;
        let untouched = self.untouched.as_ref().map_or(0, |untouched| untouched.count() as u64);
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
        check(self.zero_page.iter().all(|extent| self.wired.contains(extent)), || "the zero page is not wired".into())?;
        match census.owners.taken.iter().position(|taken| !taken) {
            Some(frame) => Err(format!("frame {frame} has no owner")),
            None => Ok((census.populated, census.pool)),
        }
    }

    /// The number of frames without an owner. O(nodes).
    pub(crate) fn leaked(&self) -> u64 {
        let population = &self.population;
        let owned: u64 = population.all_roots().map(|(_, _, slot)| self.owned(population.top, slot)).sum();
        let stats = &self.stats;
        let others = stats.unknown_frames();
        self.buddy.frames() - self.buddy.free_frames() - others - owned
    }

    fn owned(&self, level: u8, slot: u32) -> u64 {
        let population = &self.population;
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
        let population = &self.population;
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
            if self.in_pool(node.frame) {
                let whole = self.huge.as_ref().is_some_and(|pool| pool.level() == Level(level));
                check(whole && full, || format!("{} has a part of a page of the pool", name()))?;
                census.pool += 1;
            }
        }
        check((has_extent && !full) == (node.reservation != NONE), || format!("{} has the wrong reservation", name()))?;
        if node.reservation != NONE {
            census.reservations += 1;
            let reservations = &self.reservations;
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
            let superpages = census.superpages.get(&NodeId { level, slot }).copied().unwrap_or(0);
            check(node.extra == superpages, || {
                format!("{} counts {} children mapped by superpages, not {superpages}", name(), node.extra)
            })?;
        }
        Ok(())
    }
}
