//! Coalesced: an aligned group of base pages whose frames are as aligned and contiguous is one
//! entry, if all of it is mapped and alike. AMD calls that PTE coalescing: groups of 16 KB since
//! Zen 4, of 32 KB before.

use super::joint::{Block, JoinRule};

/// All pages of the block, or one.
#[derive(Clone, Debug)]
pub(crate) struct Coalesced;

impl JoinRule for Coalesced {
    const HAS_VALID_BITS: bool = false;

    fn together(block: &Block, asked: usize) -> u64 {
        let Some(first) = block.page(0).filter(|first| first.frame.is_multiple_of(block.len() as u64)) else {
            return 0;
        };
        let all = block
            .pages_where(|index, page| page.frame == first.frame + index as u64 && page.attributes == first.attributes);
        if all.count_ones() as usize == block.len() && all >> asked & 1 != 0 { all } else { 0 }
    }
}
