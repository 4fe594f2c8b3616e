//! A replacement policy from outside this crate, for trials, such as one written in Python. Each
//! event is a call, so it is slow.

use super::Replace;
use crate::tlb::uses::Use;
use std::fmt::Debug;
use superpage_pages::Access;

/// A replacement policy of the caller ([`crate::Machine::with_replacement`]). Two are equal if they
/// are one object.
#[derive(Debug)]
pub struct CustomReplacement {
    /// What rows and errors call it.
    pub name: String,
    /// Makes the state of one structure of `sets` x `ways` entries, none of them in use.
    pub make: fn(&'static CustomReplacement, sets: usize, ways: usize) -> Box<dyn CustomState>,
}

impl PartialEq for CustomReplacement {
    fn eq(&self, other: &CustomReplacement) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for CustomReplacement {}

impl std::hash::Hash for CustomReplacement {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

/// What a replacement policy sees of a use of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryUse {
    /// The number of the page in units of its size.
    pub page: u64,
    /// What the program did; `None` of an entry that the hardware itself uses.
    pub access: Option<Access>,
}

/// The state of a [`CustomReplacement`] for all sets of one structure. Vacant ways are filled
/// first, the lowest one before others. A second use of an entry in a row may be left out: streams
/// are made of runs.
pub trait CustomState: Debug + Send + Sync {
    /// An entry was used.
    fn touch(&mut self, set: usize, way: usize, used: EntryUse);

    /// A vacant way was filled.
    fn fill(&mut self, set: usize, way: usize, used: EntryUse);

    /// Chooses the way to fill, of a set without a vacant one, and counts it as filled. What is not
    /// below the number of ways is an error of the caller, and panics.
    fn victim(&mut self, set: usize, used: EntryUse) -> usize;

    /// A way became vacant.
    fn invalidate(&mut self, set: usize, way: usize);

    /// All ways became vacant.
    fn flush(&mut self);

    /// A copy, for a copy of the machine.
    fn copy(&self) -> Box<dyn CustomState>;
}

/// The state of one structure.
#[derive(Debug)]
pub(crate) struct Custom {
    state: Box<dyn CustomState>,
    ways: usize,
}

impl Custom {
    /// The initial state.
    pub(crate) fn of(custom: &'static CustomReplacement, sets: usize, ways: usize) -> Custom {
        Custom { state: (custom.make)(custom, sets, ways), ways }
    }
}

impl Clone for Custom {
    fn clone(&self) -> Custom {
        Custom { state: self.state.copy(), ..*self }
    }
}

impl From<Use> for EntryUse {
    fn from(by: Use) -> EntryUse {
        EntryUse { page: by.number, access: by.access() }
    }
}

impl Replace for Custom {
    fn vacant_first(&self) -> bool {
        true
    }

    /// It has none that does not come from the caller ([`Custom::of`]).
    fn new(_: usize, _: usize) -> Option<Custom> {
        None
    }

    #[inline(never)]
    fn touch(&mut self, set: usize, way: usize, by: Use) {
        self.state.touch(set, way, by.into());
    }

    #[inline(never)]
    fn fill(&mut self, set: usize, way: usize, by: Use) {
        self.state.fill(set, way, by.into());
    }

    #[inline(never)]
    fn victim(&mut self, set: usize, by: Use) -> usize {
        let way = self.state.victim(set, by.into());
        assert!(way < self.ways, "a custom replacement policy chose way {way} of {}", self.ways);
        way
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        self.state.invalidate(set, way);
    }

    fn flush(&mut self) {
        self.state.flush();
    }

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        Ok(())
    }
}
