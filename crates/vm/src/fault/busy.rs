//! Reads from a slow store: how they begin and end, and what is refused meanwhile.

use crate::object::{ObjectId, PageOf};
use crate::queue::pages::List;
use crate::space::Entry;
use crate::vm::Vm;
use crate::{Error, NoContents, PAGES_LIMIT, SpaceId};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::Pfn;

impl Vm {
    /// Records that a page was populated whose contents will be read from the backing store of
    /// `from`.
    pub(crate) fn begin_reading(&mut self, page: PageOf, from: ObjectId, frame: u32) {
        // It is populated and not mapped.
        self.objects.get_mut(page.object).sole = false;
        // It is hashed once it has its contents.
        self.frames.digests.cancel(frame);
        self.frames.busy.begin(page, from, frame);
        if let Some(pages) = &mut self.frames.pages {
            pages.put(frame, List::Busy);
        }
    }

    /// Ends a read that [`crate::Memory::read`] began, whether it succeeded or failed. Whoever
    /// waits for the frame ([`crate::FaultError::Busy`], [`Error::Busy`]) tries again. After a
    /// success the page is resident; after a failure [`crate::Memory::read`] is called for it once
    /// more and returns the error. O(1), except for a file that was closed meanwhile: O(its pages).
    /// For embedders: a kernel calls it when its disk has finished. The simulator and
    /// `superpage-region` read at once.
    ///
    /// # Errors
    /// [`Error::NotBusy`]: the frame does not hold a busy page.
    pub fn read_done(&mut self, frame: Pfn, read: Result<(), NoContents>) -> Result<(), Error> {
        let number = u32::try_from(frame.0).map_err(|_| Error::NotBusy(frame))?;
        let PageOf { object, index } = self.frames.busy.end(number).ok_or(Error::NotBusy(frame))?;
        // A page that could not be evicted may be evictable now.
        self.daemon.may_find();
        match read {
            Ok(()) => {
                if let Some(pages) = &mut self.frames.pages {
                    let dirty = pages.dirty(number);
                    pages.put(number, List::Active);
                    if !dirty {
                        self.frames.hash_when_read(&self.policy.answers, number);
                    }
                }
                // Keeps the page from the daemon until whoever waits for it has tried again.
                self.frames.served(number);
            }
            Err(NoContents) => self.frames.unpopulate(object, index, index + 1),
        }
        if self.objects.get(object).file.is_some() {
            self.frames.closed(&mut self.objects, self.policy.answers.reclaim.close, object);
        }
        Ok(())
    }

    /// The frames that are being read into, in no order. For embedders: a kernel that stops its
    /// disk ends these reads by [`Vm::read_done`].
    pub fn busy_frames(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.frames.busy.iter().map(|(frame, _)| Pfn(u64::from(frame)))
    }

    /// Refuses an operation that may release a page whose read is under way: a page of `range` or
    /// of `another`, which does not overlap it; or any page of an object whose last mapping lies in
    /// these. The pages of files stay whatever happens to their mappings.
    /// O(mappings x (mappings + reads under way)).
    pub(crate) fn none_busy(
        &self,
        space: SpaceId,
        range: Range<u64>,
        another: Option<Range<u64>>,
    ) -> Result<(), Error> {
        let map = self.spaces.get(space)?;
        if self.frames.busy.is_empty() {
            return Ok(());
        }
        let parts = core::iter::once(range).chain(another).flat_map(|range| {
            let entries = map.overlapping(range.start, range.end).into_iter();
            entries.map(move |entry| (entry, entry.within(range.start, range.end)))
        });
        let parts: Vec<(Entry, Entry)> = parts.collect();
        let length = |part: &Entry| part.end - part.start;
        // How much of an entry goes, by its start.
        let mut going: BTreeMap<u64, u64> = BTreeMap::new();
        parts.iter().for_each(|(entry, part)| *going.entry(entry.start).or_default() += length(part));
        let last_of = |object: ObjectId| {
            let whole = |entry: &&Entry| going.get(&entry.start) == Some(&length(entry));
            map.iter().filter(|entry| entry.object == object).filter(whole).count()
                == self.objects.get(object).entries as usize
        };
        for (entry, part) in &parts {
            let pages = if last_of(entry.object) { 0..PAGES_LIMIT } else { part.offset..part.offset_end() };
            let mut chain = self.objects.chain(entry.object).filter(|object| self.objects.get(*object).file.is_none());
            if let Some(frame) = chain.find_map(|object| self.frames.busy.of(object, &pages)) {
                return Err(Error::Busy(Pfn(u64::from(frame))));
            }
        }
        Ok(())
    }

    /// Checks that busy pages are populated in their frames, on their list if there are lists, and
    /// mapped nowhere.
    pub(crate) fn validate_busy(&self, mapped: impl Fn(PageOf, u32) -> bool) -> Result<(), String> {
        for (frame, page) in self.frames.busy.iter() {
            let walk = self.frames.population.walk(page.object, page.index);
            if !walk.populated || walk.frame != frame {
                return Err(alloc::format!("frame {frame} is busy but does not hold {page:?}"));
            }
            if self.frames.pages.as_ref().is_some_and(|pages| pages.list(frame) != Some(List::Busy)) {
                return Err(alloc::format!("frame {frame} is busy but on another list"));
            }
            if mapped(page, frame) {
                return Err(alloc::format!("frame {frame} is busy and mapped"));
            }
        }
        let listed = self.frames.pages.as_ref().map_or(0, |pages| pages.count(List::Busy));
        if self.frames.pages.is_some() && listed != self.frames.busy.len() as u64 {
            Err(alloc::format!("the busy list has {listed} frames, not the number of reads under way"))
        } else {
            Ok(())
        }
    }
}
