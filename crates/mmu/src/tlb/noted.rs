//! What a level did not hold when it was asked, noted for [`crate::recall`].

use super::batch::{Batch, each};
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;

/// The mappings that a level did not hold when they were asked for, since notes were begun for the
/// last time but one: those after the last time come first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    missed: [HashSet<u32, FxBuildHasher>; 2],
}

impl Noted {
    /// Begins notes, and keeps what was noted since the last time.
    pub(crate) fn begin(&mut self) {
        self.missed.swap(0, 1);
        self.missed[0].clear();
    }

    /// Whether a mapping was noted.
    pub(crate) fn has(&self, head: u32) -> bool {
        self.missed.iter().any(|missed| missed.contains(&head))
    }

    /// Notes the mappings of these requests of a batch.
    pub(crate) fn note(&mut self, batch: &Batch, missed: u64) {
        // What trapped, and what was asked again after that, is in a batch only where requests
        // wait.
        let asked = missed & !batch.absent & !batch.uncounted;
        self.missed[0].extend(each(asked).map(|index| batch.heads[index]));
    }
}
