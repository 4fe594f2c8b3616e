//! Complete subblocks: one tag for a block of pages, and a valid bit, a frame and attributes for
//! each page. Talluri and Hill, Surpassing the TLB performance of superpages with less operating
//! system support, ASPLOS 1994.

use super::joint::{Block, JoinRule};

/// Any pages of the block.
#[derive(Clone, Debug)]
pub(crate) struct CompleteSubblock;

impl JoinRule for CompleteSubblock {
    const HAS_VALID_BITS: bool = true;

    fn together(block: &Block, _: usize) -> u64 {
        block.pages_where(|_, _| true)
    }
}
