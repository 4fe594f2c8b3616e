//! Memory that a policy's background gives back: reserved frames that nobody populates, and
//! zero-filled pages, which are populated and hold zeroes.

use crate::fault::site::{FaultContext, Site};
use crate::policy::{Pieces, ZeroPage};
use crate::space::Entry;
use crate::vm::Vm;
use crate::{Memory, Pmap, Region, Why};
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Access, Level, Pfn, Vpn};

/// The zero-filled pages of a region.
struct ZeroFilled {
    /// The map entry of the region.
    entry: Entry,
    /// Runs of them, by index in the object, ascending.
    runs: Vec<Range<u64>>,
}

impl Vm {
    /// Frees the frames that are reserved around a region and not populated: breaks its
    /// reservations, those that are larger whole. Returns how many. O(pages of the region or, if
    /// larger, of the reservation).
    pub(crate) fn release_reserved(&mut self, region: Region) -> u64 {
        let Region { space, start, level } = region;
        let before = self.frames.buddy.free_frames();
        let end = start + self.frames.ladder.pages(level);
        let mut at = start;
        while at < end {
            let entry = self.spaces.get(space).ok().and_then(|map| map.find(at.0));
            let walk = entry.as_ref().map(|entry| self.frames.population.walk(entry.object, entry.index(at.0)));
            let Some((walk, entry)) = walk.filter(|walk| walk.covered > 0).zip(entry) else {
                at = at + 1;
                continue;
            };
            let slot = walk.slots[walk.covered as usize];
            let pages = self.frames.population.pages(walk.covered);
            if !self.frames.population.is_full(walk.covered, slot) {
                self.frames.break_extent(Pieces::Free, walk.covered, slot);
            }
            // Behind the end of the map entry there may be another one, of another object.
            at = Vpn((at.0 + pages - (walk.page.index & (pages - 1))).min(entry.end));
        }
        let freed = self.frames.buddy.free_frames() - before;
        self.frames.stats.reserved_released += freed;
        freed
    }

    /// Frees the zero-filled pages of a region, and maps the zero page there if the policy has it;
    /// superpages that hold some are demoted as far as needed. Returns how many.
    ///
    /// # Errors
    /// [`Why`]: the region is not private anonymous memory that no other space shares, or a page of
    /// it is busy.
    pub(crate) fn free_zero_filled(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        region: Region,
    ) -> Result<u64, Why> {
        let ZeroFilled { entry, runs } = self.zero_filled(memory, region)?;
        if runs.is_empty() {
            return Ok(0);
        }
        let (object, space) = (entry.object, region.space);
        self.frames.stats.note_peak();
        let before = self.frames.stats.resident_pages;
        pmap.gather(space, region.start..region.start + self.frames.ladder.pages(region.level), |pmap| {
            for Range { start: from, end: to } in runs {
                let part = entry.within(entry.page(from).0, entry.page(to).0);
                self.remove_mapped(pmap, space, &entry, &part);
                // A huge page that loses zero-filled pages is split at once.
                let ends = [from, to - 1].map(|index| self.frames.population.walk(object, index).frame);
                self.frames.release(object, from, to);
                ends.into_iter().for_each(|frame| self.frames.split_at(frame));
                if self.policy.answers.place.zero_page != ZeroPage::Off {
                    for at in (part.start..part.end).map(Vpn) {
                        let site = Site { space, entry, at, access: Access::Read, most: Level::BASE };
                        self.enter_zero_leaf(&mut FaultContext { pmap, memory, site }, Level::BASE);
                    }
                }
            }
        });
        self.frames.take_tables(pmap);
        let freed = before - self.frames.stats.resident_pages;
        self.frames.stats.zeroes_given_back += freed;
        Ok(freed)
    }

    /// How many pages [`Vm::free_zero_filled`] would free.
    pub(crate) fn count_zero_filled(&mut self, memory: &mut impl Memory, region: Region) -> u64 {
        self.frames.stats.background_scanned += self.frames.ladder.pages(region.level);
        self.zero_filled(memory, region).map_or(0, |found| found.runs.iter().map(|run| run.end - run.start).sum())
    }

    /// The zero-filled pages of a region.
    fn zero_filled(&self, memory: &mut impl Memory, region: Region) -> Result<ZeroFilled, Why> {
        let Region { space, start, level } = region;
        let entry = self.spaces.get(space).ok().and_then(|map| map.find(start.0)).ok_or(Why::TooSmall)?;
        if entry.is_pooled() {
            return Err(Why::Otherwise);
        }
        let (object, end) = (entry.object, start + self.frames.ladder.pages(level));
        if level > self.frames.ladder.largest() || end.0 > entry.end {
            return Err(Why::TooSmall);
        }
        let known = self.objects.get(object);
        if known.file.is_some() {
            return Err(Why::FileFolios);
        }
        if entry.shared
            || entry.copy
            || known.backing.is_some()
            || !(known.sole || self.spaces.only_user(&self.objects, space, object))
        {
            return Err(Why::SharedByFork);
        }
        let (low, high) = (entry.index(start.0), entry.index(start.0) + self.frames.ladder.pages(level));
        if self.frames.busy.of(object, &(low..high)).is_some() {
            return Err(Why::Busy);
        }
        let mut populated = Vec::new();
        self.frames.population.runs(object, low, high, &mut populated);
        let mut runs: Vec<Range<u64>> = Vec::new();
        for index in populated.into_iter().flatten() {
            let frame = self.frames.population.walk(object, index).frame;
            // A cache page that holds its frame may be taken at any time, and counts as free
            // already.
            if self.frames.is_held(frame) || !memory.is_zero(Pfn(u64::from(frame))) {
                continue;
            }
            match runs.last_mut() {
                Some(last) if last.end == index => last.end += 1,
                _ => runs.push(index..index + 1),
            }
        }
        Ok(ZeroFilled { entry, runs })
    }
}
