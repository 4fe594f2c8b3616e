//! Runs: pages in a row whose frames are contiguous, wherever they begin, are one entry. Pham et
//! al., CoLT: coalesced large-reach TLBs, MICRO 2012: a block is what one line of the page table
//! holds.

use super::joint::{Block, JoinRule, Page};

/// The longest run within the block that the page is in, of at least two pages.
#[derive(Clone, Debug)]
pub(crate) struct Runs;

impl JoinRule for Runs {
    const HAS_VALID_BITS: bool = false;

    fn together(block: &Block, asked: usize) -> u64 {
        let continues = |low: Option<Page>, high: Option<Page>| {
            let both = low.zip(high);
            both.is_some_and(|(low, high)| low.frame + 1 == high.frame && low.attributes == high.attributes)
        };
        let (mut start, mut end) = (asked, asked + 1);
        while start > 0 && continues(block.page(start - 1), block.page(start)) {
            start -= 1;
        }
        while continues(block.page(end - 1), block.page(end)) {
            end += 1;
        }
        if end - start > 1 { (1 << end) - (1 << start) } else { 0 }
    }
}
