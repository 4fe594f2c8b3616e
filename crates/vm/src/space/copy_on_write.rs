//! Which object a space may write: copy-on-write objects come in front of what is shared, and go
//! where nobody shares it any more (see [`crate::object`]).

use crate::SpaceId;
use crate::object::{Object, ObjectId, Objects};
use crate::space::{Entry, Space, Spaces};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

impl Spaces {
    /// For an entry that must not change its object, returns one that may: the same if no other
    /// space can reach the object any more, or one with a new copy-on-write object in front of it.
    pub(crate) fn own(&mut self, objects: &mut Objects, space: SpaceId, entry: Entry) -> Entry {
        if self.only_user(objects, space, entry.object) {
            let own = Entry { copy: false, ..entry };
            self.get_mut(space).put(own);
            return own;
        }
        let original = *objects.get(entry.object);
        let mut copy = Object::new(original.growth, entry.offset, entry.offset_end());
        copy.low = copy.low.min(original.low.max(entry.offset));
        copy.entries = 1;
        copy.backing = Some(entry.object);
        let copy = objects.add(copy);
        objects.get_mut(entry.object).entries -= 1;
        let own = Entry { object: copy, copy: false, ..entry };
        self.get_mut(space).put(own);
        own
    }

    /// Makes what a space shared since a fork its own, where the others have ended or run another
    /// program, as its next write would. O(1) where there is none, or no space has lost an entry
    /// since the last call; else O(entries x log).
    pub(crate) fn own_again(&mut self, objects: &Objects, space: SpaceId) {
        let dropped = self.dropped;
        let Some(known) = self.get(space).ok().filter(|known| known.forked.is_some_and(|then| then != dropped)) else {
            return;
        };
        let mut here: BTreeMap<ObjectId, usize> = BTreeMap::new();
        known.iter().for_each(|entry| *here.entry(entry.object).or_default() += 1);
        let (mut alone, mut shared) = (Vec::new(), false);
        for entry in known.iter().filter(|entry| entry.copy) {
            let object = objects.get(entry.object);
            // A private mapping of a file shares with that for ever.
            if object.file.is_some() {
                continue;
            }
            if object.copies == 0 && object.entries as usize == here[&entry.object] {
                alone.push(Entry { copy: false, ..*entry })
            } else {
                shared = true
            }
        }
        let known = self.get_mut(space);
        alone.into_iter().for_each(|entry| known.put(entry));
        known.forked = shared.then_some(dropped);
    }

    /// Undoes [`Spaces::own`]: removes the object that `entry` got, if it did, which holds nothing
    /// yet, so that `entry` is as it was.
    pub(crate) fn disown(&mut self, objects: &mut Objects, space: SpaceId, entry: Entry, copy: ObjectId) {
        if copy == entry.object {
            return;
        }
        objects.remove(copy);
        objects.get_mut(entry.object).entries += 1;
        self.get_mut(space).put(entry);
    }

    /// Whether only the entries of this one space can reach an anonymous object. Since no page of
    /// it is mapped twice in one space, none is then within reach of two mappings.
    pub(crate) fn only_user(&self, objects: &Objects, space: SpaceId, object: ObjectId) -> bool {
        let known = objects.get(object);
        if known.file.is_some() || known.copies > 0 {
            return false;
        }
        let here = self.get(space).into_iter().flat_map(Space::iter);
        known.entries == 1 || here.filter(|entry| entry.object == object).count() == known.entries as usize
    }
}
