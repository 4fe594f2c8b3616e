//! Busy pages: populated, but their contents are still on the way from a slow store. Nobody maps them, nothing takes them
//! away, and who needs them waits. The word is FreeBSD's.

use crate::away::PageOf;
use crate::object::ObjectId;
use crate::pages::List;
use crate::space::Entry;
use crate::vm::Vm;
use crate::{Error, NoContents, PAGES_LIMIT, SpaceId};
use alloc::string::String;
use core::ops::Range;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use superpage_pages::Pfn;

/// The busy pages, by frame: as many as there are reads under way.
#[derive(Default)]
pub(crate) struct Busy {
    pages: HashMap<u32, Reading, FxBuildHasher>,
}

/// A read that is under way.
#[derive(Clone, Copy)]
struct Reading {
    /// The page that is filled.
    page: PageOf,
    /// The object whose backing store is read: it may be one behind.
    from: ObjectId,
}

impl Busy {
    /// Whether no read is under way: what every fault on a populated page asks first.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub(crate) fn contains(&self, frame: u32) -> bool {
        !self.is_empty() && self.pages.contains_key(&frame)
    }

    /// The frames and pages that are busy.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, PageOf)> + '_ {
        self.pages.iter().map(|(frame, reading)| (*frame, reading.page))
    }

    /// The frame of a busy page of an object, or one that is read from what the object has stored, among the pages with
    /// these indices; the lowest. O(reads under way).
    pub(crate) fn of(&self, object: ObjectId, pages: &Range<u64>) -> Option<u32> {
        let concerns =
            |reading: &Reading| (reading.page.0 == object || reading.from == object) && pages.contains(&reading.page.1);
        self.pages.iter().filter(|(_, reading)| concerns(reading)).map(|(frame, _)| *frame).min()
    }

    /// The same of all pages of an object.
    pub(crate) fn of_all(&self, object: ObjectId) -> Option<u32> {
        self.of(object, &(0..PAGES_LIMIT))
    }

    /// The frame into which what `object` has stored of a page is being read.
    pub(crate) fn reading(&self, object: ObjectId, index: u64) -> Option<u32> {
        let reads = |reading: &Reading| reading.from == object && reading.page.1 == index;
        self.pages.iter().find(|(_, reading)| reads(reading)).map(|(frame, _)| *frame)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pages.allocation_size()
    }
}

impl Vm {
    /// A page was populated whose contents come later, from what `from` has stored.
    pub(crate) fn begin_reading(&mut self, page: PageOf, from: ObjectId, frame: u32) {
        // It is populated and not mapped.
        self.objects.get_mut(page.0).sole = false;
        // It is hashed when it has its contents.
        self.to_hash.retain(|waiting| *waiting != frame);
        self.frames.busy.pages.insert(frame, Reading { page, from });
        if let Some(pages) = &mut self.frames.pages {
            pages.put(frame, List::Busy);
        }
    }

    /// A read that [`crate::Memory::read`] began is done, or has failed: who waits for the frame
    /// ([`crate::FaultError::Busy`], [`Error::Busy`]) tries again. Then the page is there; or, after a failure, it is asked of
    /// [`crate::Memory::read`] once more, which says what there is to say. O(1), but for a file that was closed meanwhile:
    /// O(its pages).
    ///
    /// # Errors
    /// [`Error::NotBusy`]: the frame holds no busy page.
    pub fn read_done(&mut self, frame: Pfn, read: Result<(), NoContents>) -> Result<(), Error> {
        let number = u32::try_from(frame.0).map_err(|_| Error::NotBusy(frame))?;
        let reading = self.frames.busy.pages.remove(&number).ok_or(Error::NotBusy(frame))?;
        let (object, index) = reading.page;
        // What could not go may go now.
        self.futile = None;
        match read {
            Ok(()) => {
                if let Some(pages) = &mut self.frames.pages {
                    let dirty = pages.dirty(number);
                    pages.put(number, List::Active);
                    if !dirty {
                        self.hash_when_read(number);
                    }
                }
                // So that whoever waits for it finds it.
                self.frames.served(number);
            }
            Err(NoContents) => self.frames.unpopulate(object, index, index + 1),
        }
        if self.objects.get(object).file.is_some() {
            self.closed(object);
        }
        Ok(())
    }

    /// The frames whose contents are on the way, in no order.
    pub fn busy_frames(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.frames.busy.iter().map(|(frame, _)| Pfn(u64::from(frame)))
    }

    /// Refuses an operation that may take away what the mappings of a range can reach while a read of it is under way: of the
    /// pages of the range, and where the last mapping of an object goes, of all its pages. The pages of files stay
    /// whatever happens to their mappings. O(mappings x (mappings + reads under way)).
    pub(crate) fn none_busy(&self, space: SpaceId, low: u64, high: u64) -> Result<(), Error> {
        let map = self.space(space)?;
        if self.frames.busy.is_empty() {
            return Ok(());
        }
        let entries = map.overlapping(low, high);
        let inside = |entry: &&Entry| entry.start >= low && entry.end <= high;
        for entry in &entries {
            let going = entries.iter().filter(inside).filter(|other| other.object == entry.object).count();
            let part = entry.within(low, high);
            let pages = match going == self.objects.get(entry.object).entries as usize {
                true => 0..PAGES_LIMIT,
                false => part.offset..part.offset_end(),
            };
            let mut chain = self.objects.chain(entry.object).filter(|object| self.objects.get(*object).file.is_none());
            if let Some(frame) = chain.find_map(|object| self.frames.busy.of(object, &pages)) {
                return Err(Error::Busy(Pfn(u64::from(frame))));
            }
        }
        Ok(())
    }

    /// Checks that busy pages are populated in their frames, on their list if there are lists, and mapped nowhere.
    pub(crate) fn validate_busy(&self, mapped: impl Fn(PageOf, u32) -> bool) -> Result<(), String> {
        for (frame, (object, index)) in self.frames.busy.iter() {
            let walk = self.frames.population.walk(object, index);
            if !walk.populated || walk.frame != frame {
                return Err(alloc::format!("frame {frame} is busy and does not hold page {index} of {object:?}"));
            }
            if self.frames.pages.as_ref().is_some_and(|pages| pages.list(frame) != Some(List::Busy)) {
                return Err(alloc::format!("frame {frame} is busy and on another list"));
            }
            if mapped((object, index), frame) {
                return Err(alloc::format!("frame {frame} is busy and mapped"));
            }
        }
        let listed = self.frames.pages.as_ref().map_or(0, |pages| pages.count(List::Busy));
        match self.frames.pages.is_some() && listed != self.frames.busy.pages.len() as u64 {
            true => Err(alloc::format!("{listed} frames are on the list of busy ones")),
            false => Ok(()),
        }
    }
}
