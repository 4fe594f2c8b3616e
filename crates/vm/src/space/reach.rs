//! What nobody can reach any more, after a map entry is gone, is freed.

use crate::frame::Frames;
use crate::object::{ObjectId, Objects};
use crate::policy::Answers;
use crate::space::{Entry, Spaces};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

impl Spaces {
    /// Cleans up after an entry that was removed from its space: frees the pages that nobody else
    /// can reach, frees the object if nothing maps it, or lets the only copy-on-write object in
    /// front take it over.
    pub(crate) fn drop_entry(&mut self, objects: &mut Objects, frames: &mut Frames, answers: &Answers, entry: &Entry) {
        let object = entry.object;
        objects.get_mut(object).entries -= 1;
        self.dropped += 1;
        if objects.get(object).file.is_some() {
            frames.give_up_of_file(objects, object, entry.offset..entry.offset_end());
        } else {
            self.forsake(objects, frames, object, entry.offset..entry.offset_end());
        }
        let mut next = Some(object);
        while let Some(object) = next.take() {
            let known = objects.get(object);
            if known.file.is_some() {
                frames.closed(objects, answers.reclaim.close, object);
            } else if known.entries == 0 && known.copies == 0 {
                next = objects.remove(object);
            } else if let Some(copy) = objects.only_copy(object) {
                // The pages that are taken over may be mapped with fewer rights, or not at all.
                objects.get_mut(copy).sole = false;
                frames.absorb(answers.scarce.pieces, object, copy);
                objects.bypass(object, copy);
                frames.stats.collapses += 1;
            }
        }
    }

    /// Closes a window on these pages of an anonymous object. Frees those pages, of the object and
    /// of each behind it, that lie in no other window through which they can be reached: otherwise
    /// they would be lost, and whoever maps their indices next would see them. The pages of files
    /// stay. O(address spaces) for each object of the chain, and for each copy-on-write object in
    /// front of it, up to the first all of whose pages are reached.
    fn forsake(&self, objects: &Objects, frames: &mut Frames, front: ObjectId, pages: Range<u64>) {
        let mut unreached = vec![pages];
        let mut next = Some(front);
        while let Some(object) = next
            && !unreached.is_empty()
        {
            let known = objects.get(object);
            if known.file.is_some() {
                return;
            }
            next = known.backing;
            if !known.sole {
                self.subtract_reached(objects, frames, object, &mut unreached);
            }
            // Pages of an object that are reached are reached in those behind it too.
            unreached.iter().for_each(|pages| frames.release(object, pages.start, pages.end));
        }
    }

    /// Removes from `pages`, which are ascending, those that lie in a window on the object, or on
    /// one in front of it that has no page there: who looks through that window finds
    /// its page, and none behind it.
    fn subtract_reached(&self, objects: &Objects, frames: &Frames, object: ObjectId, pages: &mut Vec<Range<u64>>) {
        if objects.get(object).entries > 0 {
            for (_, space) in self.iter() {
                let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return };
                let windows: Vec<Range<u64>> = space.windows(object, first.start, last.end).collect();
                windows.into_iter().for_each(|window| subtract(pages, &window));
            }
        }
        for copy in objects.copies_of(object) {
            let mut held = Vec::new();
            pages.iter().for_each(|part| frames.population.runs(copy, part.start, part.end, &mut held));
            held.iter().for_each(|held| subtract(pages, held));
            self.subtract_reached(objects, frames, copy, pages);
            pages.extend(held);
            pages.sort_unstable_by_key(|part| part.start);
        }
    }
}

/// Removes a window from ranges of pages.
fn subtract(pages: &mut Vec<Range<u64>>, window: &Range<u64>) {
    if pages.iter().any(|part| part.start < window.end && window.start < part.end) {
        let parts = pages
            .drain(..)
            .flat_map(|part| [part.start..part.end.min(window.start), part.start.max(window.end)..part.end]);
        *pages = parts.filter(|part| !part.is_empty()).collect();
    }
}
