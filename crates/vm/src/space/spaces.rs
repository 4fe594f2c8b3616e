//! All address spaces, by number.

use crate::space::{Entry, Space};
use crate::{Error, SpaceId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::Ladder;

/// The address spaces.
pub(crate) struct Spaces {
    pub(super) ladder: Ladder,
    slots: Vec<Option<Space>>,
    /// All numbers below are used.
    unused: usize,
    /// How many map entries have gone: what a fork shares may have no other user since.
    pub(super) dropped: u64,
}

impl Spaces {
    pub(crate) fn new(ladder: Ladder) -> Spaces {
        Spaces { ladder, slots: Vec::new(), unused: 0, dropped: 0 }
    }

    /// Adds one with nothing mapped, with the smallest unused number.
    pub(crate) fn create(&mut self) -> SpaceId {
        let used = self.slots[self.unused..].iter().take_while(|space| space.is_some()).count();
        let slot = self.unused + used;
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(Space::default());
        self.unused = slot + 1;
        SpaceId(slot as u32)
    }

    /// Removes one, in which nothing is mapped.
    pub(crate) fn remove(&mut self, space: SpaceId) {
        self.slots[space.0 as usize] = None;
        self.unused = self.unused.min(space.0 as usize);
    }

    /// The second gets what the first prefers; both have entries that share from now on.
    pub(crate) fn share(&mut self, parent: SpaceId, child: SpaceId) {
        self.get_mut(child).prefer = self.get_mut(parent).prefer;
        let dropped = self.dropped;
        [parent, child].into_iter().for_each(|space| self.get_mut(space).forked = Some(dropped));
    }

    #[inline]
    pub(crate) fn get(&self, space: SpaceId) -> Result<&Space, Error> {
        self.slots.get(space.0 as usize).and_then(Option::as_ref).ok_or(Error::NoSpace(space))
    }

    /// One that exists.
    pub(crate) fn get_mut(&mut self, space: SpaceId) -> &mut Space {
        self.slots[space.0 as usize].as_mut().expect("the caller has checked that the space exists")
    }

    /// All, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SpaceId, &Space)> + '_ {
        self.slots.iter().enumerate().filter_map(|(number, space)| Some((SpaceId(number as u32), space.as_ref()?)))
    }

    /// The map entries of all.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> + '_ {
        self.iter().flat_map(|(_, space)| space.iter())
    }

    /// Checks what is known of used numbers.
    pub(crate) fn validate(&self) -> Result<(), String> {
        match self.slots[..self.unused].iter().position(Option::is_none) {
            Some(number) => Err(format!("space {number} is unused, below {}", self.unused)),
            None => Ok(()),
        }
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Space>>()
            + self.iter().map(|(_, space)| space.metadata_bytes()).sum::<usize>()
    }
}
