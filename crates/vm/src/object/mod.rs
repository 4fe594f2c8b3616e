//! Memory objects: what mappings map, and what owns pages.
//!
//! Every populated page belongs to one object. Copy-on-write uses what Mach and the BSDs call
//! shadow objects: after a fork the parent's and the child's mapping both map the original, which
//! is no longer written; at its first write, a mapping gets a copy-on-write object, which holds the
//! mapping's own pages and has the original as its *backing*. A fault searches the chain. An
//! anonymous backing with only one object left in front of it, and no mapping, is taken over by it.
//!
//! The index of a page in an anonymous object is the number of the virtual page where it was first
//! mapped, so what is aligned in the object (and so in physical memory) is aligned in virtual
//! memory too. Copy-on-write objects keep the indices.

pub(crate) mod population;
pub(crate) mod reservation;

use crate::policy::{Answers, PastEnd, Reserve};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use superpage_pages::{Ladder, Level};

/// The number of a memory object. Numbers are reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ObjectId(pub(crate) u32);

impl ObjectId {
    /// The page of this object with this index.
    pub(crate) fn page(self, index: u64) -> PageOf {
        PageOf { object: self, index }
    }
}

/// A page of a memory object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PageOf {
    pub(crate) object: ObjectId,
    pub(crate) index: u64,
}

/// How a memory object may change its size (Navarro et al., section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Growth {
    /// Fixed when it is mapped: code, files, anonymous memory.
    Fixed,
    /// A heap: its end moves ([`crate::Vm::grow`]).
    Up,
    /// A stack: the mapping is its maximum; the object begins at the lowest page touched so far.
    Down,
}

/// A memory object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) file: Option<u32>,
    pub(crate) growth: Growth,
    /// The index of the first page.
    pub(crate) low: u64,
    /// The index after the last page.
    pub(crate) high: u64,
    /// The number of map entries that map it.
    pub(crate) entries: u32,
    /// The number of copy-on-write objects in front of it: those whose backing it is.
    pub(crate) copies: u32,
    /// The number of opens of the file.
    pub(crate) opens: u32,
    /// Whether the file was deleted: its pages are freed when nothing needs them any more.
    pub(crate) removed: bool,
    pub(crate) backing: Option<ObjectId>,
    /// No page of it was ever within reach of two mappings. Then each populated page is mapped, in
    /// one place, with the rights of the map entry, and population alone tells what a mapping
    /// covers. Never becomes true again.
    pub(crate) sole: bool,
}

impl Object {
    pub(crate) fn new(growth: Growth, low: u64, high: u64) -> Object {
        let low = if growth == Growth::Down { high } else { low };
        Object {
            file: None,
            growth,
            low,
            high,
            entries: 0,
            copies: 0,
            opens: 0,
            removed: false,
            backing: None,
            sole: true,
        }
    }

    /// The preferred size for a reservation around a page, by the rules of section 4.2: at most
    /// `largest`, which overlaps nothing. An object that grows up may not reach below its start,
    /// nor one that grows down above its end.
    pub(crate) fn preferred(&self, answers: &Answers, ladder: &Ladder, largest: Level, index: u64) -> Level {
        // An object that grows down will reach the page.
        let low = if self.growth == Growth::Down { self.low.min(index) } else { self.low };
        let size = self.high - low;
        let past_end = match answers.place.past_end {
            PastEnd::Never => false,
            PastEnd::Growing => self.growth != Growth::Fixed,
            PastEnd::Anonymous => self.file.is_none(),
        };
        let mut level = largest;
        while level > Level::BASE {
            let pages = ladder.pages(level);
            let start = index & !(pages - 1);
            let (below, above) = (start < low, start + pages > self.high);
            let (at_start, at_end) = if self.growth == Growth::Down { (above, below) } else { (below, above) };
            let too_large = self.growth != Growth::Fixed && answers.place.growing_limit && pages > size;
            let outside = at_start || too_large || at_end && !past_end;
            if !outside && answers.place.size.allows(ladder, level) {
                break;
            }
            level = level.down();
        }
        // Linux: only anonymous memory.
        if answers.place.size == Reserve::Huge && self.file.is_some() { Level::BASE } else { level }
    }
}

/// All memory objects.
pub(crate) struct Objects {
    slots: Vec<Option<Object>>,
    vacant: Vec<u32>,
    files: HashMap<u32, ObjectId, FxBuildHasher>,
    /// All pairs (backing, copy-on-write object in front of it).
    copies: BTreeSet<(ObjectId, ObjectId)>,
}

impl Objects {
    pub(crate) fn new() -> Objects {
        Objects { slots: Vec::new(), vacant: Vec::new(), files: HashMap::default(), copies: BTreeSet::new() }
    }

    pub(crate) fn add(&mut self, object: Object) -> ObjectId {
        let id = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(object);
                ObjectId(slot)
            }
            None => {
                self.slots.push(Some(object));
                ObjectId((self.slots.len() - 1) as u32)
            }
        };
        if let Some(file) = object.file {
            self.files.insert(file, id);
        }
        if let Some(backing) = object.backing {
            self.copy_added(backing, id);
        }
        id
    }

    /// The object of a file, created or extended if necessary.
    pub(crate) fn file(&mut self, file: u32, pages: u64) -> ObjectId {
        if let Some(&id) = self.files.get(&file) {
            let object = self.get_mut(id);
            object.high = object.high.max(pages);
            (object.sole, object.removed) = (false, false);
            return id;
        }
        self.add(Object { file: Some(file), ..Object::new(Growth::Fixed, 0, pages) })
    }

    pub(crate) fn get(&self, id: ObjectId) -> &Object {
        self.slots[id.0 as usize].as_ref().expect("a referenced object exists")
    }

    pub(crate) fn get_mut(&mut self, id: ObjectId) -> &mut Object {
        self.slots[id.0 as usize].as_mut().expect("a referenced object exists")
    }

    /// Removes an object, which has no pages, and returns the one behind it.
    pub(crate) fn remove(&mut self, id: ObjectId) -> Option<ObjectId> {
        let object = self.slots[id.0 as usize].take().expect("a referenced object exists");
        self.vacant.push(id.0);
        if let Some(file) = object.file {
            self.files.remove(&file);
        }
        if let Some(backing) = object.backing {
            self.copy_removed(backing, id);
        }
        object.backing
    }

    /// The only copy-on-write object in front of one that nothing else needs; `None` unless it
    /// could take that over.
    pub(crate) fn only_copy(&self, id: ObjectId) -> Option<ObjectId> {
        let object = self.get(id);
        let alone = object.entries == 0 && object.copies == 1 && object.file.is_none();
        if alone { self.copies_of(id).next() } else { None }
    }

    /// The copy-on-write objects whose backing it is.
    pub(crate) fn copies_of(&self, id: ObjectId) -> impl Iterator<Item = ObjectId> + '_ {
        self.copies.range((id, ObjectId(0))..=(id, ObjectId(u32::MAX))).map(|(_, copy)| *copy)
    }

    /// Takes a backing without pages out of the chain, between the only object in front of it and
    /// the one behind it.
    pub(crate) fn bypass(&mut self, backing: ObjectId, copy: ObjectId) {
        let behind = self.get(backing).backing;
        self.copy_removed(backing, copy);
        self.get_mut(copy).backing = behind;
        if let Some(behind) = behind {
            self.copy_added(behind, copy);
        }
        self.remove(backing);
    }

    fn copy_added(&mut self, backing: ObjectId, copy: ObjectId) {
        self.copies.insert((backing, copy));
        let backing = self.get_mut(backing);
        backing.copies += 1;
        backing.sole = false;
    }

    fn copy_removed(&mut self, backing: ObjectId, copy: ObjectId) {
        self.copies.remove(&(backing, copy));
        self.get_mut(backing).copies -= 1;
    }

    /// The object of a file, if the file has one.
    pub(crate) fn find_file(&self, file: u32) -> Option<ObjectId> {
        self.files.get(&file).copied()
    }

    /// An object and those behind it, from the front.
    pub(crate) fn chain(&self, front: ObjectId) -> impl Iterator<Item = ObjectId> + '_ {
        core::iter::successors(Some(front), |id| self.get(*id).backing)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object)> + '_ {
        self.slots.iter().enumerate().filter_map(|(i, object)| Some((ObjectId(i as u32), object.as_ref()?)))
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Object>>()
            + self.vacant.capacity() * 4
            + self.files.allocation_size()
            + self.copies.len() * size_of::<(ObjectId, ObjectId)>()
    }
}
