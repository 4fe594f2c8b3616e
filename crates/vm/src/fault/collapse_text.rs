//! Huge pages of programs' text: the pages of a region of a file are copied into one extent, and
//! those that are missing are read. All their mappings are removed, in every address space; the
//! next access to each maps the superpage. Linux since 5.4 with `CONFIG_READ_ONLY_THP_FOR_FS`:
//! mm/khugepaged.c, `collapse_file` and `retract_page_tables`.

use crate::fault::leaves::Leaf;
use crate::fault::promote_by_copying::Located;
use crate::frame::CopiedPage;
use crate::object::ObjectId;
use crate::outcome::Promotion;
use crate::space::Entry;
use crate::space::reverse::Mapping;
use crate::vm::Vm;
use crate::{FaultError, How, Memory, Pmap, Promoted, Why};
use alloc::vec::Vec;
use superpage_pages::{Access, Extent, Pfn};

impl Vm {
    /// Whether an entry maps text that the policy collapses: pages of a file that the program may
    /// execute and not write. An entry in which it wrote some through a debugger maps the object in
    /// front of the file, and so is not text.
    pub(crate) fn is_text(&self, entry: &Entry) -> bool {
        self.policy.answers.promote.text
            && self.objects.get(entry.object).file.is_some()
            && entry.protection.allows(Access::Execute)
            && !entry.protection.allows(Access::Write)
    }

    /// Collapses a region of text. O(pages of the region, times the number of address spaces).
    pub(super) fn collapse_text(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        located: &Located,
        wanted: Promotion,
    ) -> Result<Promoted, Why> {
        let Located { region, object, low, .. } = *located;
        let (pages, size) = (self.frames.ladder.pages(region.level), self.frames.ladder.size(region.level));
        if pmap.lookup(region.space, region.start).is_some_and(|mapped| mapped.size >= size) {
            return Err(Why::Superpage);
        }
        if self.frames.busy.of(object, &(low..low + pages)).is_some() {
            return Err(Why::Busy);
        }
        let populated = (low..low + pages).filter(|index| self.frames.population.walk(object, *index).populated);
        if populated.count() < (wanted.least as usize).max(1) {
            return Err(Why::NotPopulated);
        }
        let first = self.frames.population.walk(object, low);
        if first.populated && self.frames.population.full_level(&first) >= region.level.0 {
            return match wanted.how {
                How::ByCopying => Err(Why::Otherwise),
                How::InPlace | How::Either => {
                    let mut mappings = self.mappings_of_region(pmap, located);
                    mappings.retain(|mapping| mapping.space == region.space);
                    self.remove_mappings(pmap, object, &mappings);
                    Ok(Promoted::default())
                }
            };
        }
        if wanted.how == How::InPlace {
            return Err(Why::Otherwise);
        }
        let extent = self.frames.buddy.allocate(region.level).ok_or(Why::NoExtent)?;
        self.frames.taken(extent);
        let done = self.copy_text(pmap, memory, located, extent);
        done.inspect_err(|_| self.frames.free(extent))
    }

    /// Copies a region of text into an extent, which then is the file's.
    fn copy_text(
        &mut self,
        pmap: &mut impl Pmap,
        memory: &mut impl Memory,
        located: &Located,
        extent: Extent,
    ) -> Result<Promoted, Why> {
        let Located { region, object, low, .. } = *located;
        let pages = self.frames.ladder.pages(region.level);
        for index in low..low + pages {
            let walk = self.frames.population.walk(object, index);
            if walk.populated {
                self.frames.used_again(walk.frame);
                continue;
            }
            match self.bring_in(memory, object.page(index), true) {
                Ok(_) => {}
                Err(FaultError::Busy(_)) => return Err(Why::Busy),
                Err(FaultError::OutOfMemory(_)) => return Err(Why::NoExtent),
                Err(_) => return Err(Why::Contents),
            }
        }
        // Where memory is short, one that was read in may have taken the place of another.
        let frames: Vec<u32> = (low..low + pages)
            .map(|index| self.frames.population.walk(object, index))
            .filter(|walk| walk.populated)
            .map(|walk| walk.frame)
            .collect();
        if frames.len() as u64 != pages {
            return Err(Why::NoExtent);
        }
        let pages_and_frames = || (low..).map(|index| object.page(index)).zip(frames.iter().copied());
        if pages_and_frames().any(|(page, frame)| self.is_dirty(pmap, page, frame)) {
            return Err(Why::Busy);
        }
        let mappings = self.mappings_of_region(pmap, located);
        let names: Option<Vec<_>> = pages_and_frames().map(|(page, _)| self.name(page, None)).collect();
        let names = names.ok_or(Why::Contents)?;
        self.remove_mappings(pmap, object, &mappings);
        let mut copied = Vec::new();
        for ((position, frame), name) in (0..).zip(&frames).zip(names) {
            memory.copy(Pfn(u64::from(*frame)), extent.start + position, name);
            copied.push(CopiedPage { position, dirty: false, untouched: self.frames.is_untouched(*frame) });
        }
        self.frames.unpopulate(object, low, low + pages);
        self.frames.install_copied(object, low, extent, &copied);
        let stats = &mut self.frames.stats;
        stats.bytes_copied += pages * self.frames.ladder.base().bytes();
        stats.promotions_by_copying += 1;
        Ok(Promoted { copied: pages, zeroed: 0 })
    }

    /// All mappings of the pages of a region, each once, by address space and address.
    fn mappings_of_region(&self, pmap: &impl Pmap, located: &Located) -> Vec<Mapping> {
        let Located { region, object, low, .. } = *located;
        let mut found = Vec::new();
        for index in low..low + self.frames.ladder.pages(region.level) {
            let walk = self.frames.population.walk(object, index);
            if walk.populated {
                found.extend(self.spaces.mappings(&self.objects, pmap, object.page(index), walk.frame));
            }
        }
        found.retain(|mapping| mapping.at.is_aligned(self.frames.ladder.pages(mapping.level)));
        found.sort_by_key(|mapping| (mapping.space, mapping.at));
        found
    }

    /// Removes mappings of pages of an object, with one shootdown for each address space.
    fn remove_mappings(&mut self, pmap: &mut impl Pmap, object: ObjectId, mappings: &[Mapping]) {
        // What is in memory is no longer all mapped.
        self.objects.get_mut(object).sole = false;
        for of_space in mappings.chunk_by(|one, other| one.space == other.space) {
            let (space, last) = (of_space[0].space, of_space[of_space.len() - 1]);
            pmap.gather(space, of_space[0].at..last.at + self.frames.ladder.pages(last.level), |pmap| {
                pmap.gathers_to_promote();
                for Mapping { entry, at, level, rights, .. } in of_space.iter().copied() {
                    let frame = pmap.lookup(space, at).map_or(0, |mapped| mapped.frame.0 as u32);
                    self.remove_one(pmap, space, &entry, Leaf { at, frame, level, rights });
                }
            });
        }
        self.frames.take_tables(pmap);
    }
}
