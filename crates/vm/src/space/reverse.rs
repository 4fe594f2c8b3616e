//! The reverse map: from a page of a memory object to its mappings.

use crate::object::{ObjectId, PageOf};
use crate::space::Entry;
use crate::space::Window;
use crate::vm::Vm;
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

/// The mappings of a page. Most pages have one: it takes no memory of its own.
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

impl Vm {
    /// Whether what is mapped there is a page of a file: not one of anonymous memory, nor a private
    /// copy. O(copy-on-write objects behind the map entry's).
    pub fn maps_file_page(&self, space: SpaceId, at: Vpn) -> bool {
        let space = self.spaces.get(space.0 as usize).and_then(Option::as_ref);
        let Some(entry) = space.and_then(|space| space.find(at.0)) else { return false };
        let (mut object, index) = (entry.object, entry.index(at.0));
        while let Some(backing) = self.objects.get(object).backing
            && !self.frames.population.walk(object, index).populated
        {
            object = backing;
        }
        self.objects.get(object).file.is_some()
    }

    /// All mappings of a page, which is in `frame`. O(address spaces + copy-on-write objects in
    /// front of the page's).
    pub(crate) fn mappings(&self, pmap: &impl Pmap, page: PageOf, frame: u32) -> Found {
        let mut found = Found::default();
        self.mappings_of(pmap, page, frame, &mut found);
        found
    }

    fn mappings_of(&self, pmap: &impl Pmap, PageOf { object, index }: PageOf, frame: u32, found: &mut Found) {
        let known = self.objects.get(object);
        if known.entries > 0 {
            for (number, space) in self.spaces.iter().enumerate() {
                let Some(space) = space else { continue };
                for entry in space.holding(object, index, known.file.is_some()) {
                    let (space, at) = (SpaceId(number as u32), entry.page(index));
                    if let Some(mapped) = pmap.lookup(space, at)
                        && mapped.frame == Pfn(u64::from(frame))
                    {
                        let level = self.level(mapped.size);
                        found.push(Mapping { space, entry, at, level, rights: mapped.protection });
                    }
                }
            }
        }
        if known.copies > 0 {
            self.objects.copies_of(object).for_each(|copy| self.mappings_of(pmap, copy.page(index), frame, found));
        }
    }
}
