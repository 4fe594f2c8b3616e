//! Extents that are free and known to hold zeroes: what was zeroed ahead of any fault, in idle time
//! or by a policy's background.

use crate::{Buddy, Memory, Page};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::{Extent, Ladder, Level, Pfn};

/// Disjoint free extents of zeroes, by their first frame. They stay free in the buddy allocator;
/// whoever takes a frame of one claims it.
#[derive(Default)]
pub(crate) struct Zeroed {
    extents: BTreeMap<u32, Level>,
}

impl Zeroed {
    /// An extent of just this level.
    pub(crate) fn find(&self, level: Level) -> Option<Extent> {
        let (first, level) = self.extents.iter().find(|(_, other)| **other == level)?;
        Some(Extent { start: Pfn(u64::from(*first)), level: *level })
    }

    /// An extent was taken from the free ones: returns whether all of it holds zeroes. Of an extent
    /// of zeroes that was only taken in part, the rest is no longer known to hold them.
    #[inline]
    pub(crate) fn claim(&mut self, ladder: &Ladder, extent: Extent) -> bool {
        !self.extents.is_empty() && self.take(ladder, extent)
    }

    fn take(&mut self, ladder: &Ladder, extent: Extent) -> bool {
        let (first, end) = (extent.start.0, extent.start.0 + ladder.pages(extent.level));
        let before = self.extents.range(..=first as u32).next_back();
        let around = before.filter(|(start, level)| u64::from(**start) + ladder.pages(**level) > first);
        if let Some((start, level)) = around.map(|(start, level)| (*start, *level)) {
            self.extents.remove(&start);
            if level >= extent.level {
                return true;
            }
        }
        let inside: Vec<u32> = self.extents.range(first as u32..end as u32).map(|(start, _)| *start).collect();
        for start in inside {
            self.extents.remove(&start);
        }
        false
    }

    fn overlaps(&self, ladder: &Ladder, extent: Extent) -> bool {
        let end = extent.start.0 + ladder.pages(extent.level);
        let before = self.extents.range(..end as u32).next_back();
        before.is_some_and(|(start, level)| u64::from(*start) + ladder.pages(*level) > extent.start.0)
    }

    /// Checks that all of them are disjoint, free, and without cache pages.
    pub(crate) fn validate(&self, buddy: &Buddy) -> Result<(), String> {
        let mut end = 0;
        for (first, level) in &self.extents {
            let extent = Extent { start: Pfn(u64::from(*first)), level: *level };
            if u64::from(*first) < end || !buddy.is_free(extent) || buddy.cached_in(extent).next().is_some() {
                return Err(format!("the extent of zeroes at frame {first} is not free, or overlaps another one"));
            }
            end = u64::from(*first) + buddy.ladder().pages(*level);
        }
        Ok(())
    }

    /// Bytes held, about.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.extents.len() * size_of::<(u32, Level)>()
    }

    /// Zeroes up to `most` free extents of `level`, and returns how many. O(free extents + pages
    /// zeroed).
    pub(crate) fn zero_ahead(&mut self, buddy: &Buddy, memory: &mut impl Memory, level: Level, most: u64) -> u64 {
        let ladder = buddy.ladder();
        let pages = ladder.pages(level);
        let parts = |free: Extent| (0..ladder.pages(free.level)).step_by(pages as usize).map(move |at| free.start + at);
        let large = buddy.iter().filter(|free| free.level >= level);
        let all = large.flat_map(parts).map(|start| Extent { start, level });
        let plain = |extent: &Extent| !self.overlaps(ladder, *extent) && buddy.cached_in(*extent).next().is_none();
        let chosen: Vec<Extent> = all.filter(plain).take(most as usize).collect();
        let mut done = 0;
        for extent in chosen {
            if memory.zero(extent.start, pages, Page::Free).is_err() {
                break;
            }
            self.extents.insert(extent.start.0 as u32, level);
            done += 1;
        }
        done
    }
}
