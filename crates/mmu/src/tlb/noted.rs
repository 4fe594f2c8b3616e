//! The misses of a level, noted for [`crate::recall`].

use super::batch::Batch;
use crate::tlb::uses::each;

/// The mappings that missed in a level, in two notes: the current one, and the one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    /// A bit for each page-table entry, up to the last that was noted.
    missed: [Vec<u64>; 2],
}

impl Noted {
    /// Starts a note, keeps the one before, and forgets older ones.
    pub(crate) fn begin(&mut self) {
        self.missed.swap(0, 1);
        self.missed[0].fill(0);
    }

    /// Whether a mapping was noted.
    pub(crate) fn has(&self, head: u32) -> bool {
        let (word, bit) = place(head);
        self.missed.iter().any(|missed| missed.get(word).is_some_and(|bits| bits & bit != 0))
    }

    /// Notes the mappings of these requests of a batch.
    pub(crate) fn note(&mut self, batch: &Batch, missed: u64) {
        // Requests that trapped, and their retries, are in a batch only where requests wait.
        let asked = missed & !batch.absent & !batch.uncounted;
        let noted = &mut self.missed[0];
        for index in each(asked) {
            let (word, bit) = place(batch.heads[index]);
            if word >= noted.len() {
                noted.resize(word + 1, 0);
            }
            noted[word] |= bit;
        }
    }
}

/// The word of a page-table entry, and its bit.
fn place(head: u32) -> (usize, u64) {
    ((head / u64::BITS) as usize, 1 << (head % u64::BITS))
}
