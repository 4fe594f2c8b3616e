//! Whoever looks on while a simulation runs. It costs no modelled time and changes nothing.

use crate::Sample;
use std::fmt;
use std::sync::Arc;
use superpage_pages::PageSize;
use superpage_trace::Event;
use superpage_vm::{FaultKind, SpaceId};

/// Sees what happens in a simulation, in the order in which it happens.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Something happened in an address space, at this modelled time in seconds. Called on the
    /// thread that simulates, which waits for it.
    fn see(&self, seconds: f64, space: SpaceId, seen: &Seen);
}

/// What an observer sees. Addresses and sizes are bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Seen {
    /// An event of the stream; what it leads to follows.
    Stream(Event),
    /// A fault was resolved.
    Fault {
        /// The base page.
        address: u64,
        /// How.
        kind: FaultKind,
        /// The page that maps it now.
        mapped: PageSize,
    },
    /// A superpage was made: what the row counts as `promotions`.
    Promoted {
        /// Its address.
        address: u64,
        /// Its size.
        size: PageSize,
        /// Whether mappings became one where they were; otherwise it was entered whole, by a fault
        /// that populated all of it, or after copying.
        in_place: bool,
    },
    /// A superpage became smaller pages: what the row counts as `demotions`.
    Demoted {
        /// Its address.
        address: u64,
        /// Its size.
        size: PageSize,
        /// That of the pages that replace it.
        to: PageSize,
    },
    /// The state of the run, if [`Watch::every`](crate::Watch::every) asks for it.
    Sample(Box<Sample>),
}

/// The observer of a setup.
#[derive(Clone, Debug)]
pub(crate) struct Observed(pub(crate) Arc<dyn Observer>);

impl PartialEq for Observed {
    fn eq(&self, other: &Observed) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}

/// What an observer has not seen yet; empty where nobody looks.
pub(crate) struct Unseen {
    /// Whether somebody looks.
    pub(crate) wanted: bool,
    seen: Vec<(SpaceId, Seen)>,
}

impl Unseen {
    /// Nothing yet, and nothing at all unless it is `wanted`.
    pub(crate) fn new(wanted: bool) -> Unseen {
        Unseen { wanted, seen: Vec::new() }
    }

    /// Something has happened, if somebody looks.
    #[inline]
    pub(crate) fn push(&mut self, space: SpaceId, seen: impl FnOnce() -> Seen) {
        if self.wanted {
            self.seen.push((space, seen()));
        }
    }

    /// Superpages that were entered since `before` were there already, as those that move, or are
    /// no memory, as zero pages.
    pub(crate) fn forget_entered(&mut self, before: usize) {
        let mut place = 0;
        self.seen.retain(|(_, seen)| {
            place += 1;
            place <= before || !matches!(seen, Seen::Promoted { in_place: false, .. })
        });
    }

    /// How much there is.
    pub(crate) fn len(&self) -> usize {
        self.seen.len()
    }

    /// All of it, which is then seen.
    pub(crate) fn take(&mut self) -> Vec<(SpaceId, Seen)> {
        std::mem::take(&mut self.seen)
    }
}
