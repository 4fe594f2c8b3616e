//! How long the pages of a file stay in memory that nothing maps: the page cache.

use crate::PAGES_LIMIT;
use crate::frame::Frames;
use crate::object::{ObjectId, Objects};
use crate::policy::Close;
use crate::queue::pages::List;
use core::ops::Range;

impl Frames {
    /// A file has one open or mapping less: if it was the last, its pages are deactivated or freed.
    pub(crate) fn closed(&mut self, objects: &mut Objects, close: Close, object: ObjectId) {
        let known = *objects.get(object);
        if known.file.is_none() || known.opens > 0 || known.entries > 0 || known.copies > 0 {
            return;
        }
        if self.busy.of_all(object).is_some() {
            // This is called again when the last read is done.
            return;
        }
        if self.pages.is_none() || known.removed {
            self.release(object, 0, PAGES_LIMIT);
            objects.remove(object);
            return;
        }
        objects.get_mut(object).sole = false;
        if close == Close::Inactive {
            for index in self.populated(object) {
                let frame = self.population.walk(object, index).frame;
                if let Some(pages) = &mut self.pages
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
    pub(crate) fn give_up_of_file(&mut self, objects: &mut Objects, file: ObjectId, pages: Range<u64>) -> bool {
        let object = objects.get(file);
        let kept = self.pages.is_some() || object.opens > 0;
        let alone = !kept && object.sole;
        if kept {
            objects.get_mut(file).sole = false;
        }
        if alone {
            self.release(file, pages.start, pages.end);
        }
        alone
    }
}
