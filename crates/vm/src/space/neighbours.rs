//! Map entries side by side: where they are cut and joined, and which are of one object, so that a
//! superpage may lie in both.

use crate::SpaceId;
use crate::frame::Frames;
use crate::object::{Growth, Object, ObjectId, Objects};
use crate::space::{Entry, Spaces};
use alloc::vec::Vec;

impl Entry {
    /// Whether it is of a kind that may be of one object with its neighbours.
    fn may_continue(&self) -> bool {
        !self.shared && self.growth == Growth::Fixed && !self.is_pooled()
    }
}

impl Spaces {
    /// Whether this part of an entry is of private memory of fixed size that was never moved, and
    /// holds nothing.
    pub(crate) fn is_unused(&self, part: &Entry, objects: &Objects, frames: &Frames) -> bool {
        let known = objects.get(part.object);
        let alone = known.file.is_none() && known.backing.is_none() && known.copies == 0;
        let mut held = Vec::new();
        if part.may_continue() && !part.copy && alone && part.offset == part.start && frames.swap_and_cache.is_empty() {
            frames.population.runs(part.object, part.offset, part.offset_end(), &mut held);
            return held.is_empty();
        }
        false
    }

    /// Puts an entry of anonymous memory that holds nothing: of the object of a neighbour that it
    /// continues, or of a new one.
    pub(crate) fn put_anonymous(&mut self, objects: &mut Objects, space: SpaceId, new: Entry) {
        let of = |object| Entry { object, ..new };
        let object = self.continued(objects, space, of);
        let entry = of(object.unwrap_or_else(|| objects.add(Object::new(new.growth, new.start, new.end))));
        objects.get_mut(entry.object).entries += 1;
        self.get_mut(space).put(entry);
    }

    /// The object of its neighbours that a new mapping of private memory, as an entry of any
    /// object, continues: one that differs in nothing, is mapped nowhere else, and so is of one
    /// entry again, as in FreeBSD (`vm_object_coalesce`) and Linux (`vma_merge`). The object is
    /// extended. O(log entries).
    fn continued(&self, objects: &mut Objects, space: SpaceId, new: impl Fn(ObjectId) -> Entry) -> Option<ObjectId> {
        let map = self.get(space).ok()?;
        let any = new(ObjectId(0));
        let Entry { start, end, .. } = any;
        if !any.may_continue() {
            return None;
        }
        let before = start.checked_sub(1).and_then(|last| map.find(last)).filter(|it| it.continues_in(&new(it.object)));
        let after = map.find(end).filter(|it| new(it.object).continues_in(it));
        let sides = [before, after].map(|side| side.map(|it| it.object));
        let alone = |object: &ObjectId| {
            let known = objects.get(*object);
            let entries = sides.iter().filter(|side| **side == Some(*object)).count();
            known.entries as usize == entries && known.copies == 0 && known.backing.is_none() && known.file.is_none()
        };
        let id = sides.into_iter().flatten().find(alone)?;
        let object = objects.get_mut(id);
        (object.low, object.high) = (object.low.min(start), object.high.max(end));
        Some(id)
    }

    /// Lets an object of fixed size that one space alone maps end where its entries do, before one
    /// is dropped that was taken from the space.
    pub(crate) fn shrink(&self, objects: &mut Objects, space: SpaceId, id: ObjectId) {
        let ends = self.get(space).ok().and_then(|space| space.ends(id));
        let object = objects.get_mut(id);
        if let Some(ends) = ends.filter(|_| object.sole && object.file.is_none() && object.growth == Growth::Fixed) {
            (object.low, object.high) = (ends.start, ends.end);
        }
    }

    /// Cuts the entry that holds `at` in two there, if one does and begins before it.
    pub(crate) fn cut(&mut self, objects: &mut Objects, space: SpaceId, at: u64) {
        if let Some(object) = self.get_mut(space).cut(at) {
            objects.get_mut(object).entries += 1;
        }
    }

    /// Joins two entries that meet at `at` if they are alike, so that a superpage may cross `at`.
    pub(crate) fn join(&mut self, objects: &mut Objects, space: SpaceId, at: u64) {
        if let Some(object) = self.get_mut(space).join(at) {
            objects.get_mut(object).entries -= 1;
        }
    }

    /// Puts a part of an entry, changed, in the place of what it was, and joins it with its
    /// neighbours where they are alike.
    pub(crate) fn put_part(&mut self, objects: &mut Objects, space: SpaceId, part: Entry) {
        self.cut(objects, space, part.start);
        self.cut(objects, space, part.end);
        self.get_mut(space).put(part);
        self.join(objects, space, part.start);
        self.join(objects, space, part.end);
    }
}
