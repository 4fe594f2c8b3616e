//! Partial subblocks: one tag, one frame and one set of attributes for a block of pages, and a
//! valid bit for each. It holds the pages that are *properly placed*: at the same place in an
//! aligned block of frames. Talluri and Hill, Surpassing the TLB performance of superpages with
//! less operating system support, ASPLOS 1994.

use super::joint::{Block, JoinRule};

/// Properly placed pages of one block of frames.
#[derive(Clone, Debug)]
pub(crate) struct PartialSubblock;

impl JoinRule for PartialSubblock {
    const HAS_VALID_BITS: bool = true;

    fn together(block: &Block, asked: usize) -> u64 {
        let Some(page) = block.page(asked) else { return 0 };
        match page.frame.checked_sub(asked as u64) {
            Some(first) if first.is_multiple_of(block.len() as u64) => block
                .pages_where(|index, other| other.frame == first + index as u64 && other.attributes == page.attributes),
            _ => 0,
        }
    }
}
