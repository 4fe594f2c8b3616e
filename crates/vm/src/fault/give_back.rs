//! Memory that a policy's background gives back: reserved frames that nobody populates, and pages
//! of zeroes.

use crate::fault::site::{FaultContext, Site};
use crate::policy::{Pieces, ZeroPage};
use crate::space::{Entry, Pooled};
use crate::vm::Vm;
use crate::{Memory, Pmap, Region, Why};
use alloc::vec::Vec;
use superpage_pages::{Access, Level, Pfn, Vpn};

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

    /// Frees the pages of a region that hold zeroes, and maps the zero page there if the policy has
    /// it; superpages that hold some are demoted as far as needed. Returns how many.
    ///
    /// # Errors
    /// [`Why`]: the region is not private anonymous memory that no other space shares, or a page of
    /// it is busy.
    pub(crate) fn free_zeroes(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        region: Region,
    ) -> Result<u64, Why> {
        let (entry, zeroes) = self.zeroes(memory, region)?;
        if zeroes.is_empty() {
            return Ok(0);
        }
        let (object, space) = (entry.object, region.space);
        self.frames.stats.note_peak();
        let before = self.frames.stats.resident_pages;
        pmap.gather(space, region.start..region.start + self.frames.ladder.pages(region.level), |pmap| {
            for (from, to) in zeroes {
                let part = entry.within(entry.page(from).0, entry.page(to).0);
                self.remove_mapped(pmap, space, &entry, &part);
                // What loses its zeroes is split at once.
                let ends = [from, to - 1].map(|index| self.frames.population.walk(object, index).frame);
                self.frames.release(object, from, to);
                ends.into_iter().for_each(|frame| self.frames.split_at(frame));
                if self.policy.answers.place.zero_page != ZeroPage::Off {
                    for at in (part.start..part.end).map(Vpn) {
                        let site = Site { space, entry, at, access: Access::Read, most: Level::BASE };
                        self.enter_zeroes(&mut FaultContext { pmap, memory, site }, Level::BASE);
                    }
                }
            }
        });
        self.frames.take_tables(pmap);
        let freed = before - self.frames.stats.resident_pages;
        self.frames.stats.zeroes_given_back += freed;
        Ok(freed)
    }

    /// How many pages [`Vm::free_zeroes`] would free.
    pub(crate) fn count_zeroes(&mut self, memory: &mut impl Memory, region: Region) -> u64 {
        self.frames.stats.background_scanned += self.frames.ladder.pages(region.level);
        self.zeroes(memory, region).map_or(0, |(_, zeroes)| zeroes.iter().map(|(from, to)| to - from).sum())
    }

    /// The map entry of a region, and runs of its pages that hold zeroes, by their index in the
    /// object.
    fn zeroes(&self, memory: &mut impl Memory, region: Region) -> Result<(Entry, Vec<(u64, u64)>), Why> {
        let Region { space, start, level } = region;
        let entry = self.spaces.get(space).ok().and_then(|map| map.find(start.0)).ok_or(Why::TooSmall)?;
        if entry.pooled != Pooled::Not {
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
        let mut runs = Vec::new();
        self.frames.population.runs(object, low, high, &mut runs);
        let mut zeroes: Vec<(u64, u64)> = Vec::new();
        for index in runs.into_iter().flat_map(|(from, to)| from..to) {
            let frame = self.frames.population.walk(object, index).frame;
            // A cache page that holds its frame may be taken at any time, and counts as free
            // already.
            if self.frames.is_held(frame) || !memory.is_zero(Pfn(u64::from(frame))) {
                continue;
            }
            match zeroes.last_mut() {
                Some(last) if last.1 == index => last.1 += 1,
                _ => zeroes.push((index, index + 1)),
            }
        }
        Ok((entry, zeroes))
    }
}
