//! Pools of contiguous frames for the kernel's own use (Navarro et al., section 5.2), so that they
//! fragment memory no more than necessary.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::{Extent, Ladder, Level, Pfn};

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

    /// A frame of a pool that has a vacant one.
    pub(super) fn take(&mut self) -> Option<u32> {
        let first = *self.open.first()?;
        let pool = self.pools.get_mut(&first)?;
        let frame = pool.vacant.pop()?;
        if pool.vacant.is_empty() {
            self.open.remove(&first);
        }
        self.used += 1;
        Some(frame)
    }

    /// Makes a pool of an extent of `pages` frames, the first of which is in use, and returns that.
    pub(super) fn add(&mut self, extent: Extent, pages: u64) -> u32 {
        let first = extent.start.0 as u32;
        let vacant = (first + 1..first + pages as u32).rev().collect();
        if pages > 1 {
            self.open.insert(first);
        }
        self.pools.insert(first, Pool { level: extent.level, vacant });
        self.used += 1;
        first
    }

    /// Gives a frame back. Returns whether it was in use, and the extent of a pool that is gone
    /// with it.
    pub(super) fn give_back(&mut self, ladder: &Ladder, frame: u32) -> (bool, Option<Extent>) {
        let Some((&first, pool)) = self.pools.range_mut(..=frame).next_back() else { return (false, None) };
        let pages = ladder.pages(pool.level);
        if u64::from(frame - first) >= pages {
            return (false, None);
        }
        let Err(at) = pool.vacant.binary_search_by(|vacant| frame.cmp(vacant)) else { return (false, None) };
        pool.vacant.insert(at, frame);
        self.open.insert(first);
        self.used -= 1;
        if (pool.vacant.len() as u64) < pages {
            return (true, None);
        }
        let extent = Extent { start: Pfn(u64::from(first)), level: pool.level };
        self.pools.remove(&first);
        self.open.remove(&first);
        (true, Some(extent))
    }
}
