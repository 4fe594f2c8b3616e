//! What a policy does beside faults, in time of its own: a [`Background`], and the [`System`] that it sees and changes.
//!
//! The same background works in a simulation, in a kernel ([`Vm::advance`](crate::Vm::advance)) and on live Linux: each implements [`System`].

use crate::{How, Ripe, Sample, SpaceId};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use superpage_pages::{Ladder, Level, Vpn};

/// A time in nanoseconds, since whenever. It never decreases.
pub type Time = u64;

/// What a policy does in time of its own: state, and what to do when it is called.
pub trait Background: fmt::Debug + Send {
    /// When it is to be called next; `None`: never, unless an event changes that. O(1), or O(address spaces).
    fn next(&self) -> Option<Time>;

    /// It is `now` at least as late as [`Background::next`] said, or nearly.
    fn tick(&mut self, now: Time, system: &mut dyn System);

    /// What it wants to be told; asked once, at the start.
    fn events(&self) -> Events {
        Events::default()
    }

    /// A fault was resolved; only if it asked for that.
    fn faulted(&mut self, _space: SpaceId, _at: Vpn, _mapped: Level) {}

    /// An address space ended, or its program was replaced by another; only if it asked for that.
    fn gone(&mut self, _space: SpaceId) {}

    /// Checks its state.
    ///
    /// # Errors
    /// Says what does not agree.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The events that a background asks for. What nobody asks for costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// [`Background::faulted`].
    pub faulted: bool,
    /// [`Background::gone`].
    pub gone: bool,
}

/// What a look at an address space found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// It has ended.
    Gone,
    /// Nothing has changed since the last look, and nothing was told.
    Unchanged,
    /// All of its regions were told.
    Seen,
    /// The same, of another program than at the last look.
    Anew,
    /// Nothing of it may be promoted for now.
    Closed,
}

/// What a region is right before it is to be promoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// So many of its base pages are populated.
    Populated(u32),
    /// Others have its pages too.
    Shared,
}

/// What became of a region that was to be promoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is a superpage.
    Promoted,
    /// Not now; perhaps later.
    Later,
    /// It is not what it was.
    Changed,
    /// The same; what else is known of its address space may be out of date too.
    Stale,
    /// No extent is free.
    NoExtent,
}

/// For how long nothing is to be promoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Not in this address space until then.
    Space(Time),
    /// Nowhere.
    All(Time),
}

/// What a background may see and do. A region is an aligned part of an address space of the size of a level; its number is its
/// address in regions.
pub trait System {
    /// The sizes of pages.
    fn ladder(&self) -> &Ladder;

    /// Now: at least what [`Background::tick`] was told.
    fn now(&self) -> Time;

    /// The processor time that the background has used so far, with all that was done for it.
    fn spent(&self) -> Time;

    /// The address spaces that it may work in, ascending.
    fn spaces(&mut self) -> Vec<SpaceId>;

    /// Tells of the regions of `level` that hold a page and lie in memory that could be promoted, ascending. O(what is populated).
    fn look(&mut self, space: SpaceId, level: Level, see: &mut dyn FnMut(Sample)) -> Look;

    /// How busy an address space is: processor seconds a second, of late; 0 where nobody knows.
    fn rate(&self, _space: SpaceId) -> f64 {
        0.0
    }

    /// How many base pages of a region were accessed since this was last asked; `None` where nobody knows.
    fn accessed(&mut self, _space: SpaceId, _level: Level, _region: u64) -> Option<u32> {
        None
    }

    /// Of how many physically contiguous pieces a region is made; `None` where nobody knows.
    fn pieces(&mut self, _space: SpaceId, _level: Level, _region: u64) -> Option<u32> {
        None
    }

    /// Extents of a level that are free; `None` where nobody knows.
    fn free_extents(&mut self, level: Level) -> Option<u64>;

    /// Looks at one region as it is now.
    fn check(&mut self, space: SpaceId, level: Level, region: u64) -> Check;

    /// Whether promotions in the space are to wait, before some are tried.
    ///
    /// # Errors
    /// For how long, and where.
    fn ready(&mut self, _space: SpaceId) -> Result<(), Hold> {
        Ok(())
    }

    /// Promotes regions that were checked just now; an outcome for each.
    fn promote(&mut self, space: SpaceId, level: Level, regions: &[Ripe], how: How) -> Vec<Outcome>;

    /// Until when the space is to be left alone, after a promotion: it would slow it too much. 0: it need not be.
    fn held(&self, _space: SpaceId) -> Time {
        0
    }

    /// Demotes a superpage. Whether it was one.
    fn demote(&mut self, space: SpaceId, level: Level, region: u64) -> bool;
}
