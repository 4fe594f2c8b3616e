//! Frames for the kernel's own use (Navarro et al., section 5.2): in contiguous pools, so that they
//! fragment memory no more than necessary, or singly wherever a base page is free.

use crate::frame::Frames;
use crate::policy::{Answers, Wired};
use crate::vm::Vm;
use crate::{Error, Pmap, SpaceId, object::population::NONE};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::{Extent, Level, Pfn, Vpn};

/// A pool is at most this share of memory.
const SHARE: u64 = 64;

/// An extent of kernel frames, and which of them are unused.
struct Pool {
    level: Level,
    /// Descending, so that the lowest is taken next.
    vacant: Vec<u32>,
}

/// The pools, by their first frame.
#[derive(Default)]
pub(crate) struct Pools {
    pools: BTreeMap<u32, Pool>,
    /// Those with vacant frames.
    open: BTreeSet<u32>,
    used: u64,
}

impl Pools {
    /// The extents of all pools.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.pools.iter().map(|(first, pool)| Extent { start: Pfn(u64::from(*first)), level: pool.level })
    }

    /// Frames in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Checks that the vacant frames of each pool are its own and counted right; `pages` returns
    /// the frames of a level.
    pub(crate) fn validate(&self, pages: impl Fn(Level) -> u64) -> Result<(), String> {
        let mut used = 0;
        for (first, pool) in &self.pools {
            let all = pages(pool.level);
            let inside = |frame: &u32| (u64::from(*first)..u64::from(*first) + all).contains(&u64::from(*frame));
            let descending = pool.vacant.windows(2).all(|pair| pair[0] > pair[1]);
            if !pool.vacant.iter().all(inside) || !descending || pool.vacant.len() as u64 == all {
                return Err(format!(
                    "the pool of kernel frames at {first} has the wrong vacant frames, or no other ones"
                ));
            }
            used += all - pool.vacant.len() as u64;
            if self.open.contains(first) == pool.vacant.is_empty() {
                return Err(format!("the pool of kernel frames at {first} is wrongly listed as open, or wrongly not"));
            }
        }
        if !self.open.iter().all(|first| self.pools.contains_key(first)) {
            return Err(String::from("a pool of kernel frames that is listed as open does not exist"));
        }
        if used == self.used { Ok(()) } else { Err(format!("{used} kernel frames are in use, not {}", self.used)) }
    }

    /// Bytes held; an estimate.
    pub(crate) fn metadata_bytes(&self) -> usize {
        let vacant: usize = self.pools.values().map(|pool| pool.vacant.capacity() * 4).sum();
        self.pools.len() * size_of::<(u32, Pool)>() + self.open.len() * size_of::<u32>() + vacant
    }
}

impl Frames {
    fn wire_page(&mut self, answers: &Answers) -> Option<u32> {
        let open = self.pools.open.first().and_then(|first| Some((*first, self.pools.pools.get_mut(first)?)));
        let frame = match open {
            Some((first, pool)) => {
                let frame = pool.vacant.pop()?;
                if pool.vacant.is_empty() {
                    self.pools.open.remove(&first);
                }
                frame
            }
            None => self.new_pool(answers)?,
        };
        self.pools.used += 1;
        Some(frame)
    }

    /// Makes a pool and returns its first frame.
    fn new_pool(&mut self, answers: &Answers) -> Option<u32> {
        let most = match answers.reclaim.wired {
            Wired::Scatter => Level::BASE,
            Wired::Cluster => {
                let fits = |level: &Level| self.ladder.pages(*level) <= self.buddy.frames() / SHARE;
                self.ladder.levels().rev().find(fits).unwrap_or(Level::BASE)
            }
        };
        let steered = self.allocate_steered(answers);
        let free = steered.or_else(|| (1..=most.0).rev().find_map(|level| self.buddy.allocate(Level(level))));
        let extent = match free {
            Some(extent) => {
                self.taken(extent);
                extent
            }
            None => self.allocate_base(answers)?,
        };
        let (first, pages) = (extent.start.0 as u32, self.ladder.pages(extent.level));
        self.stats.wired_frames += pages;
        let vacant = (first + 1..first + pages as u32).rev().collect();
        if pages > 1 {
            self.pools.open.insert(first);
        }
        self.tainted.taint(&self.ladder, extent);
        self.pools.pools.insert(first, Pool { level: extent.level, vacant });
        Some(first)
    }

    fn unwire_page(&mut self, frame: u32) -> bool {
        let Some((&first, pool)) = self.pools.pools.range_mut(..=frame).next_back() else { return false };
        let pages = self.ladder.pages(pool.level);
        if u64::from(frame - first) >= pages {
            return false;
        }
        let Err(at) = pool.vacant.binary_search_by(|vacant| frame.cmp(vacant)) else { return false };
        pool.vacant.insert(at, frame);
        self.pools.open.insert(first);
        self.pools.used -= 1;
        if pool.vacant.len() as u64 == pages {
            let extent = Extent { start: Pfn(u64::from(first)), level: pool.level };
            self.pools.pools.remove(&first);
            self.pools.open.remove(&first);
            self.stats.wired_frames -= pages;
            self.tainted.clean(&self.ladder, extent);
            self.buddy.free(extent);
        }
        true
    }
}

impl Vm {
    /// Allocates a frame for the kernel's own use: from a pool of contiguous frames, or wherever
    /// one is free, as the policy says. A pool takes the largest free extent of at most 1/64 of
    /// memory. O(log pools).
    ///
    /// # Errors
    /// [`Error::NoFrame`] if none is left: run the page daemon, and try again.
    pub fn wire_page(&mut self) -> Result<Pfn, Error> {
        let frame = self.frames.wire_page(&self.answers).ok_or(Error::NoFrame)?;
        debug_assert_ne!(frame, NONE);
        Ok(Pfn(u64::from(frame)))
    }

    /// Frees a frame that [`Vm::wire_page`] returned.
    ///
    /// # Errors
    /// [`Error::NotWired`], with nothing changed, if it did not return this frame.
    pub fn unwire_page(&mut self, frame: Pfn) -> Result<(), Error> {
        let number = u32::try_from(frame.0).map_err(|_| Error::NotWired(frame))?;
        if self.frames.unwire_page(number) { Ok(()) } else { Err(Error::NotWired(frame)) }
    }

    /// Gives `pmap` the frames that its tables lack for a mapping of this level. Returns `false` if
    /// memory does not have that many; those given stay there for the next try.
    #[inline]
    pub(crate) fn give_tables(&mut self, pmap: &mut impl Pmap, space: SpaceId, at: Vpn, level: Level) -> bool {
        for _ in 0..pmap.tables_lacking(space, at, self.frames.ladder.size(level)) {
            let Some(frame) = self.frames.wire_page(&self.answers) else { return false };
            self.frames.stats.table_frames += 1;
            pmap.give_table(Pfn(u64::from(frame)));
        }
        true
    }

    /// The same, without preempting any reservation.
    pub(crate) fn give_spare_tables(&mut self, pmap: &mut impl Pmap, space: SpaceId, at: Vpn, level: Level) -> bool {
        let lacking = pmap.tables_lacking(space, at, self.frames.ladder.size(level));
        lacking <= self.frames.buddy.free_frames() && self.give_tables(pmap, space, at, level)
    }

    /// Takes back the frames that the page tables no longer need.
    #[inline]
    pub(crate) fn take_tables(&mut self, pmap: &mut impl Pmap) {
        while let Some(frame) = pmap.take_table() {
            let ours = u32::try_from(frame.0).is_ok_and(|frame| self.frames.unwire_page(frame));
            assert!(ours, "frame {} was not given for page tables", frame.0);
            self.frames.stats.table_frames -= 1;
        }
    }

    /// The number of blocks of memory with frames that cannot move, where the policy steers these
    /// ([`Unmovable`](crate::Unmovable)); otherwise 0.
    pub fn tainted_blocks(&self) -> u64 {
        self.frames.tainted.count()
    }

    /// The number of frames of kernel pools that are in use; [`crate::Stats::wired_frames`] counts
    /// whole pools.
    pub fn kernel_frames(&self) -> u64 {
        self.frames.pools.used()
    }
}
