//! The access that faulted, and what resolves it.

use crate::object::ObjectId;
use crate::space::{Entry, Window};
use crate::{Page, SpaceId};
use superpage_pages::{Access, Level, Vpn};

/// The faulting access, with the page tables and the memory to resolve it.
pub(crate) struct FaultContext<'a, P, M> {
    pub(crate) pmap: &'a mut P,
    pub(crate) memory: &'a mut M,
    pub(crate) site: Site,
}

/// The access that faulted: who, where and how.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub(crate) space: SpaceId,
    pub(crate) entry: Entry,
    pub(crate) at: Vpn,
    pub(crate) access: Access,
    /// The largest extent that may be taken: less than the ladder's where page tables for more
    /// cannot be had.
    pub(crate) most: Level,
}

impl Site {
    pub(super) fn index(&self) -> u64 {
        self.entry.index(self.at.0)
    }

    pub(super) fn page(&self) -> Page {
        Page::Mapped { space: self.space, at: self.at }
    }

    pub(crate) fn window(&self, object: ObjectId) -> Window<'_> {
        Window { space: self.space, entry: &self.entry, object }
    }
}
