//! Mappings of the static pool ([`StaticPool`](crate::StaticPool)): which part of a mapping is of
//! the pool, what it has reserved, and its faults. Pages of the pool are mapped, copied and freed
//! whole; what would cut one is refused, as in Linux.

use crate::fault::leaves::Leaf;
use crate::fault::site::{FaultContext, Site};
use crate::frame::static_pool::HugePool;
use crate::object::population::Walk;
use crate::space::{Entry, Pooled};
use crate::vm::Vm;
use crate::{Backing, Error, Fault, FaultError, FaultKind, Growth, Map, Memory, NoContents, Page, Pmap, SpaceId};
use core::ops::Range;
use superpage_pages::{Access, Extent, Level, Mapped, PageRange, Pfn, Protection, Vpn};

impl Vm {
    /// Sets the static pool of the policy aside, if that is to be done late
    /// ([`StaticPool::late`](crate::StaticPool::late)) and was not: now, of what is free and
    /// contiguous. O(pages of the pool).
    ///
    /// # Errors
    /// [`Error::PoolRoom`], with nothing changed, if not all of it is free.
    pub fn make_pool(&mut self) -> Result<(), Error> {
        self.frames.make_pool()
    }

    /// The extents of the static pool, ascending, in use or not. For embedders: to
    /// report the pool, and to keep what else they do with memory out of it.
    pub fn pool(&self) -> impl Iterator<Item = Extent> + '_ {
        self.frames.huge.iter().flat_map(HugePool::extents)
    }

    /// The pages of the static pool's page around a page that is mapped from the pool; `None` if it
    /// is not. O(log entries).
    pub fn pool_page(&self, space: SpaceId, at: Vpn) -> Option<PageRange> {
        let pages = self.frames.pool_pages()?;
        let entry = self.spaces.get(space).ok()?.find(at.0).filter(Entry::is_pooled)?;
        debug_assert!(entry.start.is_multiple_of(pages));
        Some(at.align_down(pages).pages(pages))
    }

    /// The part of a mapping that is to be of the pool: the pages of the pool that lie whole in it.
    /// `None` if there is none.
    pub(crate) fn part_of_pool(&self, pmap: &impl Pmap, map: &Map) -> Option<Range<u64>> {
        let (pool, pages) = (self.policy.answers.place.pool?, self.frames.pool_pages()?);
        let level = self.frames.huge.as_ref()?.level();
        let wanted = map.backing == Backing::Anonymous
            && map.growth == Growth::Fixed
            && map.protection.contains(Protection::WRITE)
            && (if map.shared { pool.shared } else { pool.private })
            && self.policy.answers.place.hints.allow(map.hint)
            && pmap.contiguity(self.frames.ladder.size(level)).is_whole();
        let (start, end) = (map.start.0.next_multiple_of(pages), (map.start.0 + map.pages) & !(pages - 1));
        (wanted && start < end).then_some(start..end)
    }

    /// Reserves the pages of a part of a mapping: how it is then mapped, and `None` if it falls
    /// back to base pages.
    pub(crate) fn reserve_part(&mut self, part: &Range<u64>) -> Result<Option<Pooled>, Error> {
        let (Some(pool), Some(pages)) = (self.policy.answers.place.pool, self.frames.pool_pages()) else {
            return Ok(None);
        };
        let wanted = (part.end - part.start) / pages;
        if !pool.reserves {
            return Ok(Some(Pooled::Unreserved));
        }
        if self.frames.reserve_in_pool(wanted) {
            return Ok(Some(Pooled::Reserved));
        }
        if pool.kills {
            let (stats, size) = (&self.frames.stats, self.frames.ladder.size(Level::BASE));
            let left = (stats.pool_free_frames - stats.pool_reserved_frames) * size.bytes();
            return Err(Error::PoolShort { wanted: wanted * pages * size.bytes(), left });
        }
        self.frames.stats.pool_fallbacks += 1;
        Ok(None)
    }

    /// An error if a change of the pages from `low` up to `high` would cut a page of the pool.
    /// O(log entries).
    pub(crate) fn refuse_cut_of_pool(&self, space: SpaceId, low: u64, high: u64) -> Result<(), Error> {
        let space = self.spaces.get(space)?;
        let Some(pages) = self.frames.pool_pages() else { return Ok(()) };
        let cut = [low, high].into_iter().find(|at| {
            !at.is_multiple_of(pages) && space.find(*at).is_some_and(|entry| entry.is_pooled() && entry.start < *at)
        });
        cut.map_or(Ok(()), |at| Err(Error::PoolPage(Vpn(at))))
    }

    /// An error if a move would cut a page of the pool or move one to where it is not aligned, or
    /// if what grows is mapped from the pool, as in Linux.
    pub(crate) fn refuse_move_of_pool(&self, space: SpaceId, from: PageRange, to: PageRange) -> Result<(), Error> {
        let Some(pages) = self.frames.pool_pages() else { return Ok(()) };
        let ends = |range: PageRange| (range.start.0, range.start.0 + range.pages);
        let moving = from.pages.min(to.pages);
        for (low, high) in [ends(from), ends(to), ends(from.start.pages(moving))] {
            self.refuse_cut_of_pool(space, low, high)?;
        }
        let (low, high) = ends(from.start.pages(moving));
        let entries = self.spaces.get(space)?.overlapping(low, high);
        let aligned = (from.start.0 ^ to.start.0).is_multiple_of(pages);
        let grows = to.pages > from.pages && entries.last().is_some_and(Entry::is_pooled);
        let moves = entries.iter().any(Entry::is_pooled) && !aligned;
        if grows || moves { Err(Error::PoolPage(from.start)) } else { Ok(()) }
    }

    /// An error if a range has pages of the pool, of which a program cannot ask anything.
    pub(crate) fn refuse_pool_pages(&self, space: SpaceId, low: u64, high: u64) -> Result<(), Error> {
        let entries = self.spaces.get(space)?.overlapping(low, high);
        let pooled = entries.into_iter().find(Entry::is_pooled);
        pooled.map_or(Ok(()), |entry| Err(Error::PoolPage(Vpn(entry.start.max(low)))))
    }

    /// How many pages of the pool an entry, or a part of one, keeps reserved: those that it has not
    /// touched. O(its pages of the pool).
    pub(crate) fn reserved_by(&self, part: &Entry) -> u64 {
        let Some(pages) = self.frames.pool_pages().filter(|_| part.pooled == Pooled::Reserved) else { return 0 };
        let untouched = |at: &u64| self.frames.holder(&self.objects, part.object, part.index(*at)).is_none();
        (part.start..part.end).step_by(pages as usize).filter(untouched).count() as u64
    }

    /// Gives up what a part of an entry has reserved.
    pub(crate) fn unreserve(&mut self, part: &Entry) {
        if part.pooled == Pooled::Reserved {
            let reserved = self.reserved_by(part);
            self.frames.unreserve_in_pool(reserved);
        }
    }

    /// Reserves again what entries in a range have lost the contents of, after [`Vm::unreserve`];
    /// an entry for which too few pages are left has none reserved from then on.
    pub(crate) fn reserve_again(&mut self, space: SpaceId, low: u64, high: u64) {
        for entry in self.spaces.get_mut(space).overlapping(low, high) {
            let part = entry.within(low, high);
            if part.pooled == Pooled::Reserved {
                let wanted = self.reserved_by(&part);
                if !self.frames.reserve_in_pool(wanted) {
                    self.spaces.put_part(&mut self.objects, space, Entry { pooled: Pooled::Unreserved, ..part });
                }
            }
        }
    }

    /// Whether a page of the pool is reserved for the page of this index, by this entry or by
    /// another that shares it.
    fn is_reserved(&self, entry: &Entry, index: u64) -> bool {
        let reserved = |entry: &Entry| entry.pooled == Pooled::Reserved;
        let file = self.objects.get(entry.object).file.is_some();
        let others = || self.spaces.iter().flat_map(|(_, space)| space.holding(entry.object, index, file));
        reserved(entry) || entry.shared && others().any(|other| reserved(&other))
    }

    /// Resolves a fault in a mapping of the pool: maps all of the page of the pool that has it, or
    /// takes one.
    pub(crate) fn fault_in_pool(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
    ) -> Result<Fault, FaultError> {
        let (index, writing) = (context.site.index(), context.site.access == Access::Write);
        let before = context.site.entry;
        let found = self.frames.holder(&self.objects, before.object, index);
        if writing || found.is_none() {
            self.own_entry(&mut context.site);
        }
        let own = context.site.entry;
        if let Some(walk) = found.filter(|walk| !writing || walk.page.object == own.object) {
            let rights = own.rights(walk.page.object);
            return Ok(self.map_pool_page(context.pmap, &context.site, &walk, rights));
        }
        let reserved = found.is_none() && self.is_reserved(&own, index);
        let Some(extent) = self.frames.take_from_pool(reserved) else {
            self.frames.stats.faults_no_pool += 1;
            return Err(FaultError::NoPoolPage(context.site.at));
        };
        if self.fill_pool_page(context, extent, found.as_ref()).is_err() {
            self.frames.free_extent(extent);
            let kept = self.frames.reserve_in_pool(u64::from(reserved));
            debug_assert!(kept, "it was just freed");
            return Err(FaultError::Contents(context.site.at));
        }
        Ok(self.install_pool_page(context, &before, extent, found.as_ref()))
    }

    /// Fills a page of the pool with zeroes, or with a copy of what lies behind a copy-on-write
    /// object.
    fn fill_pool_page(
        &self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        extent: Extent,
        source: Option<&Walk>,
    ) -> Result<(), NoContents> {
        let Site { space, at, .. } = context.site;
        let pages = self.frames.ladder.pages(extent.level);
        let Some(walk) = source else {
            context.memory.reserved(extent, context.site.page(), &self.frames.buddy);
            return context.memory.zero(extent.start, pages, context.site.page());
        };
        let (from, start) = (Pfn(u64::from(walk.frame)).align_down(pages), at.align_down(pages));
        for page in 0..pages {
            context.memory.copy(from + page, extent.start + page, Page::Mapped { space, at: start + page });
        }
        Ok(())
    }

    /// Populates the region of a fault in a page of the pool that was filled, and maps it in place
    /// of what it copies.
    fn install_pool_page(
        &mut self,
        context: &mut FaultContext<'_, impl Pmap, impl Memory>,
        before: &Entry,
        extent: Extent,
        source: Option<&Walk>,
    ) -> Fault {
        let Site { space, at, access, entry: own, .. } = context.site;
        let (level, ladder) = (extent.level, self.frames.ladder);
        let (pages, size) = (ladder.pages(level), ladder.size(level));
        let start = at.align_down(pages);
        if let Some(walk) = source
            && let Some(mapped) = context.pmap.lookup(space, start)
        {
            let used = context.pmap.remove(space, start, size);
            let frame = walk.frame & !(pages as u32 - 1);
            self.note_removed(before, Leaf { at: start, frame, level, rights: mapped.protection }, used);
        }
        let mut walk = self.frames.population.walk(own.object, own.index(at.0));
        let _ = self.frames.install_whole(&mut walk, extent);
        let mapped = Mapped { frame: extent.start, size, protection: own.rights(own.object) };
        context.pmap.enter(space, start, mapped, access);
        self.frames.note_superpage(&self.objects, &walk, level, true);
        let stats = &mut self.frames.stats;
        stats.faults_pool += 1;
        let kind = if source.is_some() {
            stats.bytes_copied += size.bytes();
            FaultKind::Copy
        } else {
            stats.bytes_zeroed += size.bytes();
            FaultKind::Zero
        };
        stats.count_fault(kind);
        Fault {
            source: source.map(|walk| Pfn(u64::from(walk.frame))),
            wanted: level,
            allocated: Some(level),
            ..Fault::new(kind, Pfn(u64::from(walk.frame)), level)
        }
    }

    /// Maps the page of the pool that has the page of a walk, or gives its mapping more rights.
    fn map_pool_page(&mut self, pmap: &mut impl Pmap, site: &Site, walk: &Walk, rights: Protection) -> Fault {
        let Site { space, at, access, .. } = *site;
        let (ladder, level) = (self.frames.ladder, Level(walk.covered));
        let (pages, size) = (ladder.pages(level), ladder.size(level));
        let start = at.align_down(pages);
        let kind = match pmap.lookup(space, start) {
            Some(mapped) if mapped.protection.allows(access) => FaultKind::Spurious,
            Some(_) => {
                pmap.protect(space, start, size, rights);
                FaultKind::Rights
            }
            None => {
                let frame = Pfn(u64::from(walk.frame)).align_down(pages);
                pmap.enter(space, start, Mapped { frame, size, protection: rights }, access);
                self.frames.note_superpage(&self.objects, walk, level, true);
                FaultKind::Resident
            }
        };
        self.frames.stats.count_fault(kind);
        Fault::new(kind, Pfn(u64::from(walk.frame)), level)
    }
}
