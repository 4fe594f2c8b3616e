//! Copy-on-write: fork, and the shadow objects that follow from it (see [`crate::object`]).

use crate::object::{Object, ObjectId};
use crate::space::Entry;
use crate::vm::Vm;
use crate::{Error, PAGES_LIMIT, Pmap, SpaceId};
use alloc::vec::Vec;
use superpage_pages::Protection;

impl Vm {
    /// The process makes a copy of itself. Shared mappings are shared with the copy; of private ones the pages are shared
    /// until one of the two writes, so the parent's mappings lose the right to write. The copy starts with an empty page
    /// table: it faults on pages that are resident. O(pages mapped).
    ///
    /// # Errors
    /// The address space does not exist.
    pub fn fork(&mut self, pmap: &mut impl Pmap, parent: SpaceId) -> Result<SpaceId, Error> {
        let entries: Vec<Entry> = self.space(parent)?.iter().copied().collect();
        self.frames.stats.note_peak();
        let child = self.create_space();
        for entry in entries {
            let object = self.objects.get_mut(entry.object);
            object.entries += 1;
            object.sole = false;
            let copy = !entry.shared;
            if copy && !entry.copy {
                self.each_mapped(pmap, parent, &entry, |vm, pmap, at, level, mapped| {
                    if mapped.protection.contains(Protection::WRITE) {
                        pmap.protect(parent, at, vm.frames.ladder.size(level), entry.rights_without_write());
                    }
                });
                self.space_mut(parent).put(Entry { copy, ..entry });
            }
            self.space_mut(child).put(Entry { copy, ..entry });
        }
        Ok(child)
    }

    /// Gives an entry that must not change its object one that it may: the same, if no other space can reach it any
    /// more, or a new shadow of it.
    pub(crate) fn own(&mut self, space: SpaceId, entry: Entry) -> Entry {
        if self.only_user(space, entry.object) {
            let own = Entry { copy: false, ..entry };
            self.space_mut(space).put(own);
            return own;
        }
        let original = *self.objects.get(entry.object);
        let mut shadow = Object::new(original.growth, entry.offset, entry.offset_end());
        shadow.low = shadow.low.min(original.low.max(entry.offset));
        shadow.entries = 1;
        shadow.backing = Some(entry.object);
        let shadow = self.objects.add(shadow);
        self.objects.get_mut(entry.object).entries -= 1;
        let own = Entry { object: shadow, copy: false, ..entry };
        self.space_mut(space).put(own);
        own
    }

    /// Takes a shadow that holds nothing yet back, so that `entry` is as it was.
    pub(crate) fn disown(&mut self, space: SpaceId, entry: Entry, shadow: ObjectId) {
        self.objects.remove(shadow);
        self.objects.get_mut(entry.object).entries += 1;
        self.space_mut(space).put(entry);
    }

    /// Whether only the entries of this one space can reach an anonymous object. As no page of it is mapped twice in one
    /// space, none is then within reach of two mappings.
    pub(crate) fn only_user(&self, space: SpaceId, object: ObjectId) -> bool {
        let known = self.objects.get(object);
        if known.file.is_some() || known.shadows > 0 {
            return false;
        }
        let here = self.spaces[space.0 as usize].iter().flat_map(|space| space.iter());
        known.entries == 1 || here.filter(|entry| entry.object == object).count() == known.entries as usize
    }

    /// An entry no longer stands on the object: frees it if nothing does, or lets its only shadow take it over.
    pub(crate) fn drop_entry(&mut self, object: ObjectId) {
        self.objects.get_mut(object).entries -= 1;
        let mut next = Some(object);
        while let Some(object) = next.take() {
            let known = self.objects.get(object);
            if known.file.is_some() {
                self.closed(object);
            } else if known.entries == 0 && known.shadows == 0 {
                self.frames.release(object, 0, PAGES_LIMIT);
                next = self.objects.remove(object);
            } else if let Some(shadow) = self.objects.only_shadow(object) {
                // The pages that come over may be mapped with fewer rights, or not at all.
                self.objects.get_mut(shadow).sole = false;
                self.frames.absorb(self.policy.pieces, object, shadow);
                self.objects.bypass(object, shadow);
                self.frames.stats.collapses += 1;
            }
        }
    }
}
