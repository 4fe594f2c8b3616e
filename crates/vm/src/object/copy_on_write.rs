//! Copy-on-write: fork, and the copy-on-write objects that follow from it (see [`crate::object`]).

use crate::object::{Object, ObjectId};
use crate::space::{Entry, Pooled};
use crate::vm::Vm;
use crate::{Error, Pmap, SpaceId};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Protection, Vpn};

impl Vm {
    /// Forks a process. Shared mappings are shared with the child; the pages of private ones are
    /// shared until one of the two writes, so the parent's mappings lose the right to write. The
    /// child starts with an empty page table: it faults on resident pages. O(pages mapped).
    ///
    /// # Errors
    /// The address space does not exist.
    pub fn fork(&mut self, pmap: &mut impl Pmap, parent: SpaceId) -> Result<SpaceId, Error> {
        let entries: Vec<Entry> = self.space(parent)?.iter().copied().collect();
        self.frames.stats.note_peak();
        let child = self.create_space();
        self.space_mut(child).prefer = self.space(parent)?.prefer;
        [parent, child].iter().for_each(|space| self.space_mut(*space).forked = Some(self.dropped));
        let first = entries.first().map_or(Vpn(0), |entry| Vpn(entry.start));
        pmap.gather(parent, first..Vpn(entries.last().map_or(0, |entry| entry.end)), |pmap| {
            for entry in entries {
                let object = self.objects.get_mut(entry.object);
                object.entries += 1;
                object.sole = false;
                let copy = !entry.shared;
                if copy && !entry.copy {
                    self.each_mapped(pmap, parent, &entry, |vm, pmap, leaf| {
                        if leaf.rights.contains(Protection::WRITE) {
                            let size = vm.frames.ladder.size(leaf.level);
                            pmap.protect(parent, leaf.at, size, entry.rights_without_write());
                        }
                    });
                    self.space_mut(parent).put(Entry { copy, ..entry });
                }
                // What the parent has reserved in the static pool stays the parent's alone, as in
                // Linux.
                let pooled = if entry.pooled == Pooled::Reserved { Pooled::Unreserved } else { entry.pooled };
                self.space_mut(child).put(Entry { copy, pooled, ..entry });
            }
        });
        Ok(child)
    }

    /// For an entry that must not change its object, returns one that may: the same if no other
    /// space can reach the object any more, or one with a new copy-on-write object in front of it.
    pub(crate) fn own(&mut self, space: SpaceId, entry: Entry) -> Entry {
        if self.only_user(space, entry.object) {
            let own = Entry { copy: false, ..entry };
            self.space_mut(space).put(own);
            return own;
        }
        let original = *self.objects.get(entry.object);
        let mut copy = Object::new(original.growth, entry.offset, entry.offset_end());
        copy.low = copy.low.min(original.low.max(entry.offset));
        copy.entries = 1;
        copy.backing = Some(entry.object);
        let copy = self.objects.add(copy);
        self.objects.get_mut(entry.object).entries -= 1;
        let own = Entry { object: copy, copy: false, ..entry };
        self.space_mut(space).put(own);
        own
    }

    /// Makes what a space shared since a fork its own, where the others have ended or run another
    /// program, as its next write would. O(1) where there is none, or no space has lost an entry
    /// since the last call; else O(entries x log).
    pub(crate) fn own_again(&mut self, space: SpaceId) {
        let dropped = self.dropped;
        let Some(known) = self.space(space).ok().filter(|known| known.forked.is_some_and(|then| then != dropped))
        else {
            return;
        };
        let mut here: BTreeMap<ObjectId, usize> = BTreeMap::new();
        known.iter().for_each(|entry| *here.entry(entry.object).or_default() += 1);
        let (mut alone, mut shared) = (Vec::new(), false);
        for entry in known.iter().filter(|entry| entry.copy) {
            let object = self.objects.get(entry.object);
            // A private mapping of a file shares with that for ever.
            if object.file.is_some() {
                continue;
            }
            match object.copies == 0 && object.entries as usize == here[&entry.object] {
                true => alone.push(Entry { copy: false, ..*entry }),
                false => shared = true,
            }
        }
        let known = self.space_mut(space);
        alone.into_iter().for_each(|entry| known.put(entry));
        known.forked = shared.then_some(dropped);
    }

    /// Undoes [`Vm::own`]: removes the object that `entry` got, if it did, which holds nothing yet,
    /// so that `entry` is as it was.
    pub(crate) fn disown(&mut self, space: SpaceId, entry: Entry, copy: ObjectId) {
        if copy == entry.object {
            return;
        }
        self.objects.remove(copy);
        self.objects.get_mut(entry.object).entries += 1;
        self.space_mut(space).put(entry);
    }

    /// Whether only the entries of this one space can reach an anonymous object. Since no page of
    /// it is mapped twice in one space, none is then within reach of two mappings.
    pub(crate) fn only_user(&self, space: SpaceId, object: ObjectId) -> bool {
        let known = self.objects.get(object);
        if known.file.is_some() || known.copies > 0 {
            return false;
        }
        let here = self.spaces[space.0 as usize].iter().flat_map(|space| space.iter());
        known.entries == 1 || here.filter(|entry| entry.object == object).count() == known.entries as usize
    }

    /// Cleans up after an entry that was removed from its space: frees the pages that nobody else
    /// can reach, frees the object if nothing maps it, or lets the only copy-on-write object in
    /// front take it over.
    pub(crate) fn drop_entry(&mut self, entry: &Entry) {
        let object = entry.object;
        self.objects.get_mut(object).entries -= 1;
        self.dropped += 1;
        if self.objects.get(object).file.is_some() {
            self.give_up_of_file(entry);
        } else {
            self.forsake(object, entry.offset..entry.offset_end());
        }
        let mut next = Some(object);
        while let Some(object) = next.take() {
            let known = self.objects.get(object);
            if known.file.is_some() {
                self.closed(object);
            } else if known.entries == 0 && known.copies == 0 {
                next = self.objects.remove(object);
            } else if let Some(copy) = self.objects.only_copy(object) {
                // The pages that are taken over may be mapped with fewer rights, or not at all.
                self.objects.get_mut(copy).sole = false;
                self.frames.absorb(self.policy.answers.scarce.pieces, object, copy);
                self.objects.bypass(object, copy);
                self.frames.stats.collapses += 1;
            }
        }
    }

    /// Closes a window on these pages of an anonymous object. Frees those pages, of the object and
    /// of each behind it, that lie in no other window through which they can be reached: otherwise
    /// they would be lost, and whoever maps their indices next would see them. The pages of files
    /// stay. O(address spaces) for each object of the chain, and for each copy-on-write object in
    /// front of it, up to the first all of whose pages are reached.
    fn forsake(&mut self, front: ObjectId, pages: Range<u64>) {
        let mut unreached = vec![pages];
        let mut next = Some(front);
        while let Some(object) = next
            && !unreached.is_empty()
        {
            let known = self.objects.get(object);
            if known.file.is_some() {
                return;
            }
            next = known.backing;
            if !known.sole {
                self.subtract_reached(object, &mut unreached);
            }
            // Pages of an object that are reached are reached in those behind it too.
            unreached.iter().for_each(|pages| self.frames.release(object, pages.start, pages.end));
        }
    }

    /// Removes from `pages`, which are ascending, those that lie in a window on the object, or on
    /// one in front of it that has no page of its own there: who looks through that window finds
    /// its page, and none behind it.
    fn subtract_reached(&self, object: ObjectId, pages: &mut Vec<Range<u64>>) {
        if self.objects.get(object).entries > 0 {
            for space in self.spaces.iter().flatten() {
                let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return };
                let windows: Vec<Range<u64>> = space.windows(object, first.start, last.end).collect();
                windows.into_iter().for_each(|window| subtract(pages, &window));
            }
        }
        for copy in self.objects.copies_of(object) {
            let mut held = Vec::new();
            pages.iter().for_each(|part| self.frames.population.runs(copy, part.start, part.end, &mut held));
            let held: Vec<Range<u64>> = held.into_iter().map(|(start, end)| start..end).collect();
            held.iter().for_each(|held| subtract(pages, held));
            self.subtract_reached(copy, pages);
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
