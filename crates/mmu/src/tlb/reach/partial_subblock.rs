//! Partial subblocks: one tag, one frame and one set of attributes for a block of pages, and a
//! valid bit for each. It holds the pages that are *properly placed*: at the same place in an
//! aligned block of frames. Talluri and Hill, Surpassing the TLB performance of superpages with
//! less operating system support, ASPLOS 1994.

use super::joint::{Block, Joins, set};

/// Properly placed pages of one block of frames.
#[derive(Clone, Debug)]
pub(crate) struct PartialSubblock;

impl Joins for PartialSubblock {
    const HAS_VALID_BITS: bool = true;

    fn together(block: &Block, asked: usize) -> u64 {
        let Some(page) = block.page(asked) else { return 0 };
        match page.frame.checked_sub(asked as u64) {
            Some(first) if first.is_multiple_of(block.len() as u64) => set(block
                .pages()
                .filter(|(place, other)| other.frame == first + *place as u64 && other.attributes == page.attributes)
                .map(|(place, _)| place)),
            _ => 0,
        }
    }
}
