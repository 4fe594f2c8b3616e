//! Frames and their owners: the buddy allocator, the reservations and the population maps together.
//!
//! Every frame is in exactly one of five states: free in the buddy allocator; in a reservation and
//! unpopulated; populated, by a page of a memory object; wired; free in the static pool, if there
//! is one; or nobody's, in a huge page that is split later. In the first two it may still hold a
//! cache page, until it is overwritten. The operations here move frames between these states and
//! keep the structures consistent; they know nothing of page tables.

mod allocate;
mod bitmap;
pub(crate) mod buddy;
pub(crate) mod busy;
mod deferred;
mod dirty;
mod kept;
mod kernel;
pub(crate) mod lists;
mod page_cache;
mod preempt;
mod release;
mod split;
pub(crate) mod static_pool;
mod steer;
pub(crate) mod taken;
pub(crate) mod validate;
mod wired;
mod zeroed;

use crate::frame::bitmap::Bitmap;
use crate::frame::busy::Busy;
use crate::frame::deferred::Deferred;
use crate::frame::static_pool::HugePool;
use crate::frame::steer::Tainted;
use crate::frame::wired::Pools;
use crate::frame::zeroed::Zeroed;
use crate::object::population::{NONE, NodeId, Population, Walk};
use crate::object::reservation::Reservations;
use crate::object::{ObjectId, PageOf};
use crate::policy::backoff::Backoff;
use crate::policy::{Answers, Fit, Place, Reclaim};
use crate::queue::digests::Digests;
use crate::queue::pages::{List, Pages};
use crate::queue::swap_and_cache::SwapAndCache;
use crate::{Buddy, Error, Stats};
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Extent, Ladder, Level, MAX_LEVELS, Pfn};

/// All physical memory and the owner of each frame; every frame is in exactly one of the five
/// states above.
pub(crate) struct Frames {
    pub(crate) ladder: Ladder,
    pub(crate) buddy: Buddy,
    pub(crate) population: Population,
    reservations: Reservations,
    /// For the page daemon; `None` where the policy reclaims nothing.
    pub(crate) pages: Option<Pages>,
    pub(crate) swap_and_cache: SwapAndCache,
    pub(crate) busy: Busy,
    /// Frames populated although nobody touched their page; allocated when the first one is.
    untouched: Option<Bitmap>,
    pub(crate) digests: Digests,
    /// By level: failed requests for an extent of that size since the page daemon last handled them
    /// (section 5.1).
    pub(crate) wanted: [u64; MAX_LEVELS],
    /// Whether there are any.
    pub(crate) wants: bool,
    /// Whether a request for a base page has failed since then.
    pub(crate) starved: bool,
    wired: Vec<Extent>,
    /// The zero page: one extent for each level at which it was mapped; these are wired.
    zero_page: Vec<Extent>,
    /// Frames of somebody whom the manager does not know, which can move; allocated when there is
    /// one.
    foreign: Option<Bitmap>,
    pools: Pools,
    tainted: Tainted,
    /// The static pool, if the policy has one.
    pub(crate) huge: Option<HugePool>,
    zeroed: Zeroed,
    deferred: Deferred,
    /// Whether huge pages of which a part is unmapped are split later.
    defers: bool,
    /// Whether all huge pages wait there to be looked at.
    looks_at_huge: bool,
    /// Whether frames of an extent can be reserved. If not, those that cease to be populated are
    /// free at once.
    reserves: bool,
    /// When direct compaction is tried again.
    pub(crate) backoff: Backoff,
    pub(crate) stats: Stats,
}

/// An extent that was allocated.
struct Allocated {
    extent: Extent,
    /// Reservations preempted for it.
    preempted: u32,
    /// Whether it holds zeroes.
    zeroed: bool,
}

/// A page that was copied into an extent.
#[derive(Clone, Copy)]
pub(crate) struct CopiedPage {
    /// Its place in the extent.
    pub(crate) position: u64,
    pub(crate) dirty: bool,
    pub(crate) untouched: bool,
}

/// How a page got its frame.
#[derive(Clone, Copy)]
pub(crate) struct Populated {
    /// The level of the largest region that became fully populated and lies in an extent.
    pub(crate) full: u8,
    /// Whether the frame was reserved.
    pub(crate) reserved: bool,
    /// The level of the extent that was allocated, if it was not.
    pub(crate) allocated: Level,
    /// Reservations preempted for it.
    pub(crate) preempted: u32,
    /// Whether the extent that was allocated holds zeroes.
    pub(crate) zeroed: bool,
}

impl Frames {
    /// So many frames, all free. Panics if the policy's colours are no power of two.
    pub(crate) fn new(ladder: Ladder, frames: u64, swap_pages: u64, answers: &Answers) -> Result<Frames, Error> {
        if frames >= u64::from(u32::MAX) {
            return Err(Error::Frames(frames));
        }
        let placing = answers.place;
        let coloured = |buddy: Buddy| buddy.with_colours(u64::from(placing.colours));
        let fitted = |buddy: Buddy| if placing.fit == Fit::Next { buddy.with_next_fit() } else { Ok(buddy) };
        let buddy =
            Buddy::new(ladder, frames).and_then(coloured).and_then(fitted).map_err(|_| Error::Frames(frames))?;
        let orders: Vec<u32> = ladder.levels().skip(1).map(|level| ladder.order(level)).collect();
        let reclaims = answers.reclaim.pages != Reclaim::Nothing;
        let huge = placing.pool.map(|asked| HugePool::new(&asked, &ladder, frames)).transpose()?.flatten();
        let mut all = Frames {
            ladder,
            population: Population::new(&ladder),
            reservations: Reservations::new(),
            pages: reclaims.then(|| Pages::new(frames, &orders)),
            swap_and_cache: SwapAndCache::new(if reclaims { swap_pages } else { 0 }),
            busy: Busy::default(),
            untouched: None,
            digests: Digests::default(),
            wanted: [0; MAX_LEVELS],
            wants: false,
            starved: false,
            wired: Vec::new(),
            zero_page: Vec::new(),
            foreign: None,
            pools: Pools::default(),
            tainted: Tainted::new(answers.reclaim.unmovable, &ladder),
            huge,
            zeroed: Zeroed::default(),
            deferred: Deferred::default(),
            defers: answers.demote.deferred && placing.frames != Place::Reservation,
            looks_at_huge: answers.demote.underused.is_some(),
            reserves: placing.frames == Place::Reservation,
            backoff: Backoff::default(),
            stats: Stats::default(),
            buddy,
        };
        if placing.pool.is_some_and(|pool| !pool.late) {
            all.make_pool()?;
        }
        Ok(all)
    }

    /// Populates a page of an object that is not populated, in its reserved frame, or else in a new
    /// reservation of at most the `preferred` size. `page`: its number where it is used, in an
    /// address space or a file. `None`, and nothing populated, if no frame is left.
    pub(crate) fn populate(
        &mut self,
        answers: &Answers,
        walk: &mut Walk,
        preferred: Level,
        page: u64,
    ) -> Option<Populated> {
        if walk.covered > 0 {
            let filled = self.population.populate(walk);
            let (level, slot) = (walk.covered, walk.slots[walk.covered as usize]);
            let reservation = self.population.node(level, slot).reservation;
            if self.population.is_full(level, slot) {
                self.reservations.remove(reservation);
                self.population.node_mut(level, slot).reservation = NONE;
            } else {
                // The largest free extent can only have gone when a node one level up from it has
                // no empty child left.
                let mut list = self.reservations.list(reservation);
                if filled.saturated >> (list + 1) & 1 != 0 {
                    list = self.population.largest_free(level, slot, list).unwrap_or(0);
                }
                self.reservations.touch(reservation, list);
            }
            self.stats.reserved_found += 1;
            self.frame_used(walk.frame);
            let full = filled.full.min(level);
            return Some(Populated { full, reserved: true, allocated: Level::BASE, preempted: 0, zeroed: false });
        }
        let resident = self.stats.resident_pages;
        let Allocated { extent, preempted, zeroed } = self.allocate(answers, preferred, Some(page))?;
        if self.stats.resident_pages != resident {
            // A cache page that held its frame was freed, and perhaps nodes of the path with it.
            *walk = self.population.walk(walk.page.object, walk.page.index);
        }
        let installed = if answers.takes_extents() && extent.level > Level::BASE {
            self.install_whole(walk, extent)
        } else {
            self.install(walk, extent)
        };
        Some(Populated { preempted, zeroed, ..installed })
    }

    /// Populates all pages of a region around the page of a walk, none of which is populated, in an
    /// extent that was allocated for it; that page is the one that is touched.
    pub(crate) fn install_whole(&mut self, walk: &mut Walk, extent: Extent) -> Populated {
        let (level, pages) = (extent.level.0, self.ladder.pages(extent.level));
        let (first, position) = (extent.start.0 as u32, walk.page.index & (pages - 1));
        self.population.populate_region(walk, level);
        self.set_extent(level, walk.slots[level as usize], first);
        walk.covered = level;
        walk.frame = first + position as u32;
        self.stats.allocations[level as usize] += 1;
        self.frame_used(walk.frame);
        self.frames_used_untouched(first..walk.frame);
        self.frames_used_untouched(walk.frame + 1..first + pages as u32);
        self.await_look(extent);
        Populated { full: level, reserved: false, allocated: extent.level, preempted: 0, zeroed: false }
    }

    /// Populates the page of a walk, whose region has no extent, in an extent that was allocated
    /// for it.
    fn install(&mut self, walk: &mut Walk, extent: Extent) -> Populated {
        let (filled, index) = (self.population.populate(walk), walk.page.index);
        let level = extent.level.0;
        let first = extent.start.0 as u32;
        walk.frame = first + (index & (self.population.pages(level) - 1)) as u32;
        if level == 0 {
            let position = (index & (self.population.pages(1) - 1)) as u32;
            self.set_single(walk.slots[1], position, walk.frame);
        } else {
            walk.covered = level;
            let slot = walk.slots[level as usize];
            let reservation = self.reservations.add_tail(NodeId { level, slot }, level - 1);
            self.population.node_mut(level, slot).reservation = reservation;
            self.set_extent(level, slot, first);
            self.stats.reservations_made += 1;
        }
        self.stats.allocations[level as usize] += 1;
        self.frame_used(walk.frame);
        Populated {
            full: filled.full.min(level),
            reserved: false,
            allocated: extent.level,
            preempted: 0,
            zeroed: false,
        }
    }

    /// Populates all pages of a region of an object, none of which is populated, in an extent that
    /// was allocated for it. `copied` lists the pages whose contents were copied there, ascending.
    pub(crate) fn install_copied(&mut self, object: ObjectId, low: u64, extent: Extent, copied: &[CopiedPage]) {
        let (level, first) = (extent.level.0, extent.start.0 as u32);
        let mut copied = copied.iter().copied().peekable();
        for position in 0..self.ladder.pages(extent.level) {
            let mut walk = self.population.walk(object, low + position);
            self.population.populate(&mut walk);
            if position == 0 {
                self.set_extent(level, walk.slots[level as usize], first);
            }
            let frame = first + position as u32;
            match copied.next_if(|page| page.position == position) {
                Some(CopiedPage { dirty, untouched, .. }) => {
                    if untouched {
                        self.frame_used_untouched(frame)
                    } else {
                        self.frame_used(frame)
                    }
                    if let Some(pages) = &mut self.pages {
                        pages.set_dirty(frame, dirty);
                    }
                }
                None => self.frame_used_untouched(frame),
            }
        }
        self.await_look(extent);
    }

    /// Populates a page whose contents are in the cache, in `frame`: in place if possible, with as
    /// much of a reservation of the preferred size as is free around it; otherwise in the page's
    /// reserved frame, and then the contents must be copied. `None` if there is no frame to copy
    /// to, which cannot be while one is reserved.
    pub(crate) fn reactivate(
        &mut self,
        answers: &Answers,
        walk: &mut Walk,
        preferred: Level,
        frame: u32,
    ) -> Option<Populated> {
        self.stats.cache_reactivated += 1;
        if walk.covered > 0 {
            self.drop_cached(frame);
            return self.populate(answers, walk, Level::BASE, walk.page.index);
        }
        self.drop_cached(frame);
        let mut preempted = 0;
        while let Some(node) = self.covering(frame) {
            self.preempt(answers, node);
            preempted += 1;
        }
        for level in (0..=preferred.0).rev().map(Level) {
            let pages = self.ladder.pages(level);
            let extent = Extent { start: Pfn(u64::from(frame)).align_down(pages), level };
            let aligned = (u64::from(frame) ^ walk.page.index) & (pages - 1) == 0;
            if aligned && self.buddy.allocate_at(extent) {
                self.zeroed.claim(&self.ladder, extent);
                return Some(Populated { preempted, ..self.install(walk, extent) });
            }
        }
        // A frame that is in no reservation and in no object is free.
        None
    }

    /// Updates what is kept by frame after a page was populated in it: what it held before is gone.
    #[inline]
    pub(crate) fn frame_used(&mut self, frame: u32) {
        let listed = !self.in_pool(frame);
        if let Some(pages) = &mut self.pages
            && listed
        {
            if self.buddy.is_cached(Pfn(u64::from(frame))) {
                self.list_used(frame..frame + 1);
            } else {
                pages.add(frame);
            }
        }
        self.stats.populated();
    }

    /// Puts frames on the page lists in which pages were populated.
    pub(crate) fn list_used(&mut self, frames: Range<u32>) {
        let listed = !self.in_pool(frames.start);
        if let Some(pages) = &mut self.pages
            && listed
        {
            let cached = if self.swap_and_cache.is_empty() { 0..0 } else { frames.clone() };
            for frame in cached {
                // The mark says so: what the lists keep of the frame would be a miss of the cache.
                if self.buddy.is_cached(Pfn(u64::from(frame))) {
                    self.swap_and_cache.uncache(frame);
                    self.buddy.forget_cached(Pfn(u64::from(frame)));
                    pages.remove(frame);
                }
            }
            pages.add_run(frames);
        }
    }

    /// Updates what is kept by frame after its page ceased to be populated.
    fn frame_freed(&mut self, frame: u32) {
        if let Some(pages) = &mut self.pages {
            pages.remove(frame);
        }
        self.digests.forget(frame);
        if let Some(untouched) = &mut self.untouched
            && untouched.contains(frame as usize)
        {
            untouched.remove(frame as usize);
            self.stats.touched_pages += 1;
            self.stats.untouched_pages -= 1;
        }
    }

    /// Marks a populated page as used again.
    pub(crate) fn used_again(&mut self, frame: u32) {
        if let Some(pages) = &mut self.pages
            && pages.list(frame) != Some(List::Active)
        {
            self.stats.cache_reactivated += u64::from(pages.list(frame) == Some(List::Cache));
            pages.activate(frame);
        }
    }

    /// Records that a fault was resolved by mapping this frame.
    #[inline]
    pub(crate) fn served(&mut self, frame: u32) {
        if let Some(pages) = &mut self.pages {
            pages.serve(frame);
        }
    }

    /// Whether the frame holds a cache page that is still populated.
    pub(crate) fn is_held(&self, frame: u32) -> bool {
        self.pages.as_ref().is_some_and(|pages| pages.list(frame) == Some(List::Cache))
            && self.swap_and_cache.cached_in(frame).is_none()
    }

    /// Whether anything is kept by frame that [`Frames::frame_freed`] must undo.
    fn keeps_by_frame(&self) -> bool {
        self.pages.is_some() || self.untouched.is_some()
    }

    /// Drops the cache page in a frame, if there is one.
    pub(crate) fn drop_cached(&mut self, frame: u32) {
        if self.swap_and_cache.cached_in(frame).is_some() {
            self.swap_and_cache.uncache(frame);
            self.buddy.forget_cached(Pfn(u64::from(frame)));
            if let Some(pages) = &mut self.pages {
                pages.remove(frame);
            }
        }
    }

    /// An extent was taken from the free ones: drops all cache pages in it, and returns whether all
    /// of it holds zeroes.
    pub(crate) fn taken(&mut self, extent: Extent) -> bool {
        let zeroed = self.zeroed.claim(&self.ladder, extent);
        self.drop_cached_in(extent);
        zeroed
    }

    /// Drops all cache pages in an extent that was taken.
    fn drop_cached_in(&mut self, extent: Extent) {
        let cached: Vec<Pfn> = self.buddy.cached_in(extent).collect();
        cached.into_iter().for_each(|frame| self.drop_cached(frame.0 as u32));
    }

    pub(crate) fn set_extent(&mut self, level: u8, slot: u32, first: u32) {
        self.population.node_mut(level, slot).frame = first;
        if let Some(pages) = &mut self.pages {
            pages.set_extent(level, first, self.ladder.order(Level(level)), slot);
        }
    }

    /// Takes the extent from a node and returns its first frame.
    pub(crate) fn take_extent(&mut self, level: u8, slot: u32) -> u32 {
        let first = core::mem::replace(&mut self.population.node_mut(level, slot).frame, NONE);
        if let Some(pages) = &mut self.pages {
            pages.set_extent(level, first, self.ladder.order(Level(level)), NONE);
        }
        first
    }

    pub(crate) fn set_single(&mut self, slot: u32, position: u32, frame: u32) {
        self.population.set_single(slot, position, frame);
        if let Some(pages) = &mut self.pages {
            pages.set_single(frame, slot);
        }
    }

    /// The node whose extent holds a frame, if one does. O(number of sizes).
    pub(crate) fn covering(&self, frame: u32) -> Option<NodeId> {
        let pages = self.pages.as_ref()?;
        self.ladder.levels().skip(1).rev().find_map(|level| {
            let slot = pages.extent(level.0, frame, self.ladder.order(level));
            (slot != NONE).then_some(NodeId { level: level.0, slot })
        })
    }

    /// The page that is populated in a frame. O(number of sizes), and O(R) for each level up to the
    /// root.
    pub(crate) fn page_of(&self, frame: u32) -> Option<PageOf> {
        self.pages.as_ref()?.list(frame)?;
        if let Some(node) = self.covering(frame) {
            let start = self.population.start_of(node);
            let within = u64::from(frame) & (self.population.pages(node.level) - 1);
            return Some(PageOf { index: start.index + within, ..start })
                .filter(|_| self.swap_and_cache.cached_in(frame).is_none());
        }
        let slot = self.pages.as_ref()?.single(frame);
        if slot == NONE || self.swap_and_cache.cached_in(frame).is_some() {
            return None;
        }
        let start = self.population.start_of(NodeId { level: 1, slot });
        let position = self.population.position_of_single(slot, frame)?;
        Some(PageOf { index: start.index + u64::from(position), ..start })
    }

    /// Evicts a page, which is clean and not mapped. `keep`: its frame counts as free but keeps the
    /// contents.
    pub(crate) fn evict(&mut self, page: PageOf, frame: u32, keep: bool) {
        self.split_at(frame);
        if keep {
            self.buddy.mark_cached(Pfn(u64::from(frame)));
        }
        self.unpopulate(page.object, page.index, page.index + 1);
        if keep {
            self.swap_and_cache.cache(page, frame);
            if let Some(pages) = &mut self.pages {
                pages.put(frame, List::Cache);
            }
        }
    }

    /// The largest size for a new reservation around a page that overlaps no reservation and no
    /// page: that of the first node on the path from the root that has no population (section 4.9,
    /// "Overlap avoidance"), limited by the policy.
    pub(crate) fn largest_without_overlap(&self, answers: &Answers, walk: &Walk) -> Level {
        match answers.place.frames {
            Place::BasePage => Level::BASE,
            Place::Reservation | Place::Extent => Level(walk.lowest - 1).min(self.ladder.largest()),
        }
    }

    /// The reservations that would yield an extent of this size, in the order of preemption.
    pub(crate) fn reservations(&self, level: Level) -> impl Iterator<Item = Extent> + '_ {
        let lists = &self.reservations;
        lists.iter(level.0).map(|id| {
            let node = lists.node(id);
            let first = self.population.node(node.level, node.slot).frame;
            Extent { start: Pfn(u64::from(first)), level: Level(node.level) }
        })
    }

    /// Base pages in one of the static pool, if there is one.
    pub(crate) fn pool_pages(&self) -> Option<u64> {
        self.huge.as_ref().map(|pool| self.ladder.pages(pool.level()))
    }

    /// Extents that cannot move: the kernel's, and those of the static pool.
    pub(crate) fn immovable(&self) -> impl Iterator<Item = Extent> + '_ {
        let pool = self.huge.iter().flat_map(HugePool::extents);
        self.wired.iter().copied().chain(self.pools.extents()).chain(pool)
    }

    /// Bytes held by all of these structures.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.buddy.metadata_bytes()
            + self.population.metadata_bytes()
            + self.reservations.metadata_bytes()
            + self.pages.as_ref().map_or(0, Pages::metadata_bytes)
            + self.swap_and_cache.metadata_bytes()
            + self.zeroed.metadata_bytes()
            + self.deferred.metadata_bytes()
            + self.busy.bytes()
            + self.untouched.as_ref().map_or(0, Bitmap::bytes)
            + self.digests.bytes()
            + self.foreign.as_ref().map_or(0, Bitmap::bytes)
            + (self.wired.capacity() + self.zero_page.capacity()) * size_of::<Extent>()
            + self.pools.metadata_bytes()
            + self.tainted.metadata_bytes()
            + self.huge.as_ref().map_or(0, HugePool::metadata_bytes)
    }
}
