//! The processes of the stream.

use std::collections::{BTreeMap, BTreeSet};
use superpage_trace::ProcessId;
use superpage_vm::SpaceId;

/// The processes of the stream.
pub(crate) struct Processes {
    /// The address space of each process that is alive.
    pub(crate) spaces: BTreeMap<ProcessId, SpaceId>,
    /// Processes that were killed and that the stream still continues with.
    pub(crate) ended: BTreeSet<ProcessId>,
    /// The process that runs, and its address space.
    pub(crate) current: Option<ProcessId>,
    pub(crate) space: SpaceId,
    /// Whether the current process was killed: what it does is left out.
    pub(crate) dead: bool,
}

impl Processes {
    /// None yet.
    pub(crate) fn new() -> Processes {
        let (spaces, ended) = (BTreeMap::new(), BTreeSet::new());
        Processes { spaces, ended, current: None, space: SpaceId(0), dead: false }
    }
}
