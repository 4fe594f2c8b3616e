//! The misses of a level, noted for [`crate::recall`].

use super::batch::Batch;
use crate::tlb::uses::each;
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;

/// The mappings that missed in a level, in two notes: the current one, and the one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    missed: [HashSet<u32, FxBuildHasher>; 2],
}

impl Noted {
    /// Starts a note, keeps the one before, and forgets older ones.
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
        // Requests that trapped, and their retries, are in a batch only where requests wait.
        let asked = missed & !batch.absent & !batch.uncounted;
        self.missed[0].extend(each(asked).map(|index| batch.heads[index]));
    }
}
