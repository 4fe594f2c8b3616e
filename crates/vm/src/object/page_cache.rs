//! How long the pages of a file stay in memory that nothing maps: the page cache.

use crate::PAGES_LIMIT;
use crate::frame::Frames;
use crate::object::{ObjectId, Objects};
use crate::policy::Close;
use crate::reclaim::pages::List;
use core::ops::Range;

impl Objects {
    /// A file has one open or mapping less: if it was the last, its pages are deactivated or freed.
    pub(crate) fn closed(&mut self, frames: &mut Frames, close: Close, object: ObjectId) {
        let known = *self.get(object);
        if known.file.is_none() || known.opens > 0 || known.entries > 0 || known.copies > 0 {
            return;
        }
        if frames.busy.of_all(object).is_some() {
            // This is called again when the last read is done.
            return;
        }
        if frames.pages.is_none() || known.removed {
            frames.release(object, 0, PAGES_LIMIT);
            self.remove(object);
            return;
        }
        self.get_mut(object).sole = false;
        if close == Close::Inactive {
            for index in frames.populated(object) {
                let frame = frames.population.walk(object, index).frame;
                if let Some(pages) = &mut frames.pages
                    && pages.list(frame) == Some(List::Active)
                    && !pages.dirty(frame)
                {
                    pages.put(frame, List::Inactive);
                }
            }
        }
    }

    /// Frees pages of a file that are no longer mapped, unless they outlive their mappings, as they
    /// do where they can. Returns whether it did.
    pub(crate) fn give_up_of_file(&mut self, frames: &mut Frames, file: ObjectId, pages: Range<u64>) -> bool {
        let object = self.get(file);
        let kept = frames.pages.is_some() || object.opens > 0;
        let alone = !kept && object.sole;
        if kept {
            self.get_mut(file).sole = false;
        }
        if alone {
            frames.release(file, pages.start, pages.end);
        }
        alone
    }
}
