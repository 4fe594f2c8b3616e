//! A static pool of large pages (Linux: hugetlb): extents of one size that are set aside and that
//! nothing but mappings of the pool may use. They are on no page list, so the page daemon never
//! sees them; compaction leaves them alone.
//!
//! An extent of the pool is free, or it holds the page of one region of an object, all of which is
//! populated. Mappings reserve pages of the pool before they touch them: as many free extents are
//! kept for them. Beside the *persistent* extents there may be *surplus* ones, which come from the
//! buddy allocator when they are wanted and go back when they are free.

use crate::Buddy;
use crate::Error;
use crate::frame::Frames;
use crate::frame::bitmap::Bitmap;
use crate::policy::StaticPool;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use superpage_pages::{Extent, Ladder, Level, Pfn};

/// The largest share of memory that surplus extents may take where nothing is said of a pool: nine
/// tenths, as the live policy allows.
const SHARE: (u64, u64) = (9, 10);

/// The pool, all of one size.
pub(crate) struct HugePool {
    level: Level,
    /// Frames in one of its pages.
    pages: u64,
    /// The extents that are in the pool, by their first frame divided by the frames of one.
    all: Bitmap,
    /// The first frames of those that are free.
    free: BTreeSet<u32>,
    /// Extents that are to be persistent, and of those that are not how many there are and may be.
    persistent: u64,
    surplus: u64,
    most_surplus: u64,
    /// Free extents that are kept for mappings.
    reserved: u64,
    /// Persistent extents that have not been taken yet ([`StaticPool::late`]).
    missing: u64,
}

impl HugePool {
    /// What a policy asks for, with nothing taken yet; `None` if it has no pool, or memory has no
    /// superpages and none is asked for by size.
    pub(crate) fn new(asked: &StaticPool, ladder: &Ladder, frames: u64) -> Result<Option<HugePool>, Error> {
        let Some(level) = asked.level(ladder) else {
            return match (asked.size, asked.bytes) {
                (None, None) => Ok(None),
                (size, _) => Err(Error::PoolSize(size.unwrap_or(ladder.base()))),
            };
        };
        let (pages, bytes) = (ladder.pages(level), ladder.size(level).bytes());
        let all = Bitmap::new((frames / pages) as usize).map_err(|_| Error::Frames(frames))?;
        let persistent = asked.bytes.map_or(0, |size| size.div_ceil(bytes));
        let otherwise = if asked.bytes.is_some() { 0 } else { frames / pages * SHARE.0 / SHARE.1 };
        let most_surplus = asked.surplus.map_or(otherwise, |size| size.div_ceil(bytes));
        let (free, missing) = (BTreeSet::new(), persistent);
        Ok(Some(HugePool { level, pages, all, free, persistent, surplus: 0, most_surplus, reserved: 0, missing }))
    }

    /// Checks that it can be made of so many frames, all of which are free.
    pub(crate) fn has_room(&self, ladder: &Ladder, frames: u64) -> Result<(), Error> {
        self.fits(ladder, frames / self.pages)
    }

    /// Checks that it can be made of so many free extents.
    fn fits(&self, ladder: &Ladder, fits: u64) -> Result<(), Error> {
        let (size, wanted) = (ladder.size(self.level), self.missing);
        if wanted > fits { Err(Error::PoolRoom { size, wanted, fits }) } else { Ok(()) }
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    fn extent(&self, first: u32) -> Extent {
        Extent { start: Pfn(u64::from(first)), level: self.level }
    }

    fn index(&self, frame: u32) -> usize {
        (u64::from(frame) / self.pages) as usize
    }

    /// Whether a frame is in the pool.
    pub(crate) fn has(&self, frame: u32) -> bool {
        let index = self.index(frame);
        index < self.all.len() && self.all.contains(index)
    }

    /// All its extents, and those of them that are free.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.all.iter().map(|index| Extent { start: Pfn(index as u64 * self.pages), level: self.level })
    }

    pub(crate) fn free(&self) -> impl Iterator<Item = Extent> + '_ {
        self.free.iter().map(|first| self.extent(*first))
    }

    /// The number of frames that hold pages.
    pub(crate) fn used_frames(&self) -> u64 {
        (self.all.count() - self.free.len()) as u64 * self.pages
    }

    fn vacant(&self) -> u64 {
        self.free.len() as u64 - self.reserved
    }

    /// Checks the counts against each other; `used` extents hold pages, and mappings have reserved
    /// `reserved` pages.
    pub(crate) fn validate(&self, used: u64, reserved: u64) -> Result<(), String> {
        let (all, free) = (self.all.count() as u64, self.free.len() as u64);
        if all != free + used || all != self.persistent - self.missing + self.surplus {
            return Err(format!("the pool has {all} pages: {free} free, {used} in use, {} surplus", self.surplus));
        }
        if self.surplus > self.most_surplus || self.reserved > free {
            let (reserved, most) = (self.reserved, self.most_surplus);
            return Err(format!(
                "the pool has {reserved} pages reserved of {free}, {} surplus of {most}",
                self.surplus
            ));
        }
        if self.reserved != reserved {
            return Err(format!("mappings have {reserved} pages of the pool reserved, not {}", self.reserved));
        }
        let inside = self.free.iter().all(|first| self.has(*first) && u64::from(*first).is_multiple_of(self.pages));
        if inside { Ok(()) } else { Err(String::from("a free page of the pool is not in the pool")) }
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.all.bytes() + self.free.len() * size_of::<u32>()
    }
}

impl StaticPool {
    /// Checks that it fits into so many frames of memory that is fresh.
    ///
    /// # Errors
    /// [`Error::PoolSize`], [`Error::PoolRoom`].
    pub fn check(&self, ladder: &Ladder, frames: u64) -> Result<(), Error> {
        HugePool::new(self, ladder, frames)?.map_or(Ok(()), |pool| pool.has_room(ladder, frames))
    }
}

impl Frames {
    /// Whether a frame is in the pool.
    #[inline]
    pub(crate) fn in_pool(&self, frame: u32) -> bool {
        self.huge.as_ref().is_some_and(|pool| pool.has(frame))
    }

    /// Takes the persistent extents of the pool, all or none. O(extents).
    pub(crate) fn make_pool(&mut self) -> Result<(), Error> {
        let Some(pool) = &mut self.huge else { return Ok(()) };
        pool.fits(&self.ladder, self.buddy.free_extents(pool.level))?;
        let wanted = core::mem::take(&mut pool.missing);
        self.take_for_pool(wanted);
        Ok(())
    }

    /// Moves free extents, of which there are enough, into the pool.
    fn take_for_pool(&mut self, wanted: u64) {
        for _ in 0..wanted {
            let Some(pool) = &mut self.huge else { return };
            let extent = self.buddy.allocate(pool.level).expect("so many extents are free");
            let index = pool.index(extent.start.0 as u32);
            pool.all.insert(index);
            pool.free.insert(extent.start.0 as u32);
            self.taken(extent);
        }
        self.note_pool();
    }

    /// Reserves `wanted` pages for a mapping, all or none: free ones, and surplus ones if these are
    /// too few.
    pub(crate) fn reserve_in_pool(&mut self, wanted: u64) -> bool {
        let Some(pool) = &mut self.huge else { return wanted == 0 };
        let more = wanted.saturating_sub(pool.vacant());
        if more > 0 && !has_surplus(pool, &self.buddy, more) {
            return false;
        }
        pool.surplus += more;
        pool.reserved += wanted;
        self.take_for_pool(more);
        true
    }

    /// Gives reserved pages up.
    pub(crate) fn unreserve_in_pool(&mut self, pages: u64) {
        let Some(pool) = &mut self.huge else { return };
        pool.reserved -= pages;
        while pool.surplus > 0
            && pool.vacant() > 0
            && let Some(first) = pool.free.pop_last()
        {
            pool.surplus -= 1;
            let index = pool.index(first);
            pool.all.remove(index);
            self.buddy.free(pool.extent(first));
        }
        self.note_pool();
    }

    /// Takes a page of the pool for a fault: one that is reserved for it, or one that nobody has
    /// reserved; `None` if there is none.
    pub(crate) fn take_from_pool(&mut self, reserved: bool) -> Option<Extent> {
        let pool = self.huge.as_mut()?;
        if !reserved && pool.vacant() == 0 {
            if !has_surplus(pool, &self.buddy, 1) {
                return None;
            }
            pool.surplus += 1;
            self.take_for_pool(1);
        }
        let pool = self.huge.as_mut()?;
        pool.reserved -= u64::from(reserved);
        let first = pool.free.pop_first().expect("one of them is free");
        let extent = pool.extent(first);
        self.note_pool();
        Some(extent)
    }

    /// Frees an extent whose pages are gone: to the pool if it is of that, and has no surplus.
    pub(crate) fn free_extent(&mut self, extent: Extent) {
        let first = extent.start.0 as u32;
        match &mut self.huge {
            Some(pool) if pool.has(first) => {
                debug_assert_eq!(extent.level, pool.level, "pages of the pool are freed whole");
                if pool.surplus > 0 {
                    pool.surplus -= 1;
                    let index = pool.index(first);
                    pool.all.remove(index);
                    self.buddy.free(extent);
                } else {
                    pool.free.insert(first);
                }
                self.note_pool();
            }
            _ => self.free(extent),
        }
    }

    fn note_pool(&mut self) {
        let Some(pool) = &self.huge else { return };
        let stats = &mut self.stats;
        stats.pool_frames = pool.all.count() as u64 * pool.pages;
        stats.pool_free_frames = pool.free.len() as u64 * pool.pages;
        stats.pool_reserved_frames = pool.reserved * pool.pages;
        stats.pool_surplus_frames = pool.surplus * pool.pages;
    }
}

/// Whether so many surplus extents more may be taken, and are free.
fn has_surplus(pool: &HugePool, buddy: &Buddy, more: u64) -> bool {
    pool.surplus + more <= pool.most_surplus && buddy.free_extents(pool.level) >= more
}
