//! Files and their pages: open, close, read and write without a mapping, sync, remove. A file is a
//! memory object like any other; if the policy reclaims pages, its pages outlive its mappings and
//! opens: the page cache.

use crate::frame::taken::{Content, Provided};
use crate::object::PageOf;
use crate::vm::Vm;
use crate::{Error, Fault, FaultError, FaultKind, Filled, Memory, NoContents, PAGES_LIMIT, Page, Pmap};
use alloc::vec::Vec;
use superpage_pages::{Level, Pfn, Vpn};

impl Vm {
    /// Opens a file of so many base pages for a process. Opens are counted, to find the last close.
    /// O(1).
    ///
    /// # Errors
    /// The file is too long.
    pub fn open(&mut self, file: u32, pages: u64) -> Result<(), Error> {
        self.may_be_long(pages)?;
        let object = self.objects.file(file, pages);
        self.objects.get_mut(object).opens += 1;
        Ok(())
    }

    /// Closes one open of a file. After the last one, and without a mapping, clean pages become
    /// inactive if the policy says so; without a page cache all its pages are freed. Then it costs
    /// O(pages of the file).
    ///
    /// # Errors
    /// The file is not open.
    pub fn close(&mut self, file: u32) -> Result<(), Error> {
        let object = self.objects.find_file(file).ok_or(Error::NotOpen(file))?;
        let known = self.objects.get_mut(object);
        known.opens = known.opens.checked_sub(1).ok_or(Error::NotOpen(file))?;
        self.frames.closed(&mut self.objects, self.policy.answers.reclaim.close, object);
        Ok(())
    }

    /// Reads a page of an open file without a mapping. The page is populated and filled if it was
    /// not; otherwise the kind is [`FaultKind::Resident`]. O(number of sizes), and one call of
    /// `memory`.
    ///
    /// # Errors
    /// The file is not open ([`FaultError::NotOpen`]), no frame is left, the page is busy, or the
    /// file cannot be read.
    pub fn read(
        &mut self,
        pmap: &impl Pmap,
        memory: &mut impl Memory,
        file: u32,
        page: u64,
    ) -> Result<Fault, FaultError> {
        let fault = self.access_file(memory, file, page, true)?;
        self.hash_if_wanted(pmap, memory);
        Ok(fault)
    }

    /// Writes a whole page of an open file without a mapping. The page is populated if it was not,
    /// without a read, and becomes dirty; the caller must write all of its frame before it calls
    /// the manager again. The file is extended if necessary. O(number of sizes).
    ///
    /// # Errors
    /// As [`Vm::read`].
    pub fn write(&mut self, memory: &mut impl Memory, file: u32, page: u64) -> Result<Fault, FaultError> {
        let fault = self.access_file(memory, file, page, false)?;
        if let Some(pages) = &mut self.frames.pages {
            pages.set_dirty(fault.frame.0 as u32, true);
        }
        Ok(fault)
    }

    fn access_file(
        &mut self,
        memory: &mut impl Memory,
        file: u32,
        page: u64,
        reading: bool,
    ) -> Result<Fault, FaultError> {
        let before = self.frames.stats.filled();
        let object = self.objects.find_file(file).ok_or(FaultError::NotOpen(file))?;
        if page >= PAGES_LIMIT || self.objects.get(object).opens == 0 {
            return Err(FaultError::NotOpen(file));
        }
        let known = self.objects.get_mut(object);
        known.high = known.high.max(page + 1);
        Ok(self.bring_in(memory, object.page(page), reading)?.since(before, &self.frames.stats))
    }

    /// Populates a page of a file that nothing needs to map, if it is not populated: with the
    /// file's contents if it is read.
    pub(crate) fn bring_in(
        &mut self,
        memory: &mut impl Memory,
        PageOf { object, index: page }: PageOf,
        reading: bool,
    ) -> Result<Fault, FaultError> {
        let known = self.objects.get_mut(object);
        // What is populated here is not mapped.
        known.sole = false;
        let file = known.file.expect("it is a file's");
        let content = if reading { Content::new(object, Some(file), page) } else { Content::Overwritten };
        let walk = self.frames.population.walk(object, page);
        if let Some(frame) = self.frames.busy.reading(object, page) {
            return Err(FaultError::Busy(Pfn(u64::from(frame))));
        }
        if walk.populated {
            self.frames.used_again(walk.frame);
            self.frames.stats.file_hits += 1;
            return Ok(Fault::new(FaultKind::Resident, Pfn(u64::from(walk.frame)), Level::BASE));
        }
        let preferred = self.preferred(None, &walk);
        let content = self.frames.swap_and_cache.cached(object.page(page)).map_or(content, Content::Cached);
        let taken = self.frames.take(&self.policy.answers, (walk, content), preferred, page);
        let taken = taken.ok_or(FaultError::OutOfMemory(Vpn(page)))?;
        let provided = self.provide(memory, Page::File { file, page }, taken);
        let Provided { taken, kind, filled } = provided.map_err(|NoContents| FaultError::Contents(Vpn(page)))?;
        match filled {
            Filled::Now => Ok(taken.fault(kind, Level::BASE)),
            Filled::Later => Err(FaultError::Busy(Pfn(u64::from(taken.walk.frame)))),
        }
    }

    /// Writes out the dirty pages of a file. All pages of a dirty superpage are treated as dirty,
    /// unless digests show otherwise. O(pages of the file).
    ///
    /// # Errors
    /// No file with this number is open, mapped or cached.
    pub fn sync(&mut self, pmap: &mut impl Pmap, memory: &mut impl Memory, file: u32) -> Result<(), Error> {
        let object = self.objects.find_file(file).ok_or(Error::NotOpen(file))?;
        let (base, mut cleaned) = (self.frames.ladder.base(), Vec::new());
        for index in self.frames.populated(object) {
            let frame = self.frames.population.walk(object, index).frame;
            if self.is_dirty(pmap, object.page(index), frame) {
                cleaned.push((index, frame));
            }
        }
        // The bits are cleared first: what another processor writes meanwhile is dirty again.
        for (index, frame) in cleaned.iter().copied() {
            for mapping in self.spaces.mappings(&self.objects, pmap, object.page(index), frame) {
                let pages = self.frames.ladder.pages(mapping.level);
                let (start, size) = (mapping.at.align_down(pages), self.frames.ladder.size(mapping.level));
                // A superpage has one dirty bit for all its pages: they are all among those to be
                // written.
                if pmap.clear_modified(mapping.space, start, size) || size == base {
                    let rights = self.rights_if_clean(object, mapping.rights);
                    if rights != mapping.rights {
                        pmap.protect(mapping.space, start, size, rights);
                    }
                }
            }
        }
        for (index, frame) in cleaned {
            self.frames.launder(&self.objects, memory, object.page(index), frame);
        }
        Ok(())
    }

    /// Deletes a file: its pages are freed, dirty or not. Those that are still mapped are freed
    /// with their last mapping, and opens are forgotten. Its number may be used for another file
    /// once nothing maps it. O(pages of the file).
    ///
    /// # Errors
    /// A page of it is busy ([`Error::Busy`]).
    pub fn remove_file(&mut self, file: u32) -> Result<(), Error> {
        let Some(object) = self.objects.find_file(file) else { return Ok(()) };
        if let Some(frame) = self.frames.busy.of_all(object) {
            return Err(Error::Busy(Pfn(u64::from(frame))));
        }
        let known = self.objects.get_mut(object);
        (known.opens, known.removed) = (0, true);
        self.frames.closed(&mut self.objects, self.policy.answers.reclaim.close, object);
        Ok(())
    }

    fn may_be_long(&self, pages: u64) -> Result<(), Error> {
        if pages <= PAGES_LIMIT { Ok(()) } else { Err(Error::Range { start: 0, pages }) }
    }
}
