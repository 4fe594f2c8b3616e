//! The reverse map: from a page of a memory object to its mappings.

use crate::object::{ObjectId, Objects, PageOf};
use crate::space::{Entry, Spaces, Window};
use crate::{Pmap, SpaceId};
use alloc::vec;
use alloc::vec::Vec;
use core::{iter, option};
use superpage_pages::{Level, Pfn, Protection, Vpn};

/// One mapping of a page.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) space: SpaceId,
    pub(crate) entry: Entry,
    /// The base page.
    pub(crate) at: Vpn,
    /// The level of the page that maps it.
    pub(crate) level: Level,
    pub(crate) rights: Protection,
}

impl Mapping {
    /// What it shows of an object: the one that has the page.
    pub(crate) fn window(&self, object: ObjectId) -> Window<'_> {
        Window { space: self.space, entry: &self.entry, object }
    }
}

/// The mappings of a page. Most pages have one: it takes no further memory.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) first: Option<Mapping>,
    others: Vec<Mapping>,
}

impl Found {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn push(&mut self, mapping: Mapping) {
        match self.first {
            None => self.first = Some(mapping),
            Some(_) => self.others.push(mapping),
        }
    }
}

impl IntoIterator for Found {
    type Item = Mapping;
    type IntoIter = iter::Chain<option::IntoIter<Mapping>, vec::IntoIter<Mapping>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

impl Spaces {
    /// All mappings of a page, which is in `frame`. O(address spaces + copy-on-write objects in
    /// front of the page's).
    pub(crate) fn mappings(&self, objects: &Objects, pmap: &impl Pmap, page: PageOf, frame: u32) -> Found {
        let mut found = Found::default();
        self.mappings_of((objects, pmap), page, frame, &mut found);
        found
    }

    fn mappings_of<P: Pmap>(
        &self,
        (objects, pmap): (&Objects, &P),
        PageOf { object, index }: PageOf,
        frame: u32,
        found: &mut Found,
    ) {
        let known = objects.get(object);
        if known.entries > 0 {
            for (space, map) in self.iter() {
                for entry in map.holding(object, index, known.file.is_some()) {
                    let at = entry.page(index);
                    if let Some(mapped) = pmap.lookup(space, at)
                        && mapped.frame == Pfn(u64::from(frame))
                    {
                        let level =
                            self.ladder.level(mapped.size).expect("a page table holds only sizes of the ladder");
                        found.push(Mapping { space, entry, at, level, rights: mapped.protection });
                    }
                }
            }
        }
        if known.copies > 0 {
            objects
                .copies_of(object)
                .for_each(|copy| self.mappings_of((objects, pmap), copy.page(index), frame, found));
        }
    }
}
