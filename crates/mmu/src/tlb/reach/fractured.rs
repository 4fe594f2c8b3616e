//! Fractured: an entry covers one piece of a guest's superpage that its host backs by smaller
//! pages. An entry cannot hold more, since the host's pages are scattered.

use super::Reach;
use std::ops::Range;

/// One entry per translation.
#[derive(Clone, Debug)]
pub(crate) struct Fractured;

impl Reach for Fractured {
    /// The low bits of the translation's number. Those above are the mapping's.
    type Payload = u32;

    const COMMON: bool = true;

    #[inline(always)]
    fn fill(number: u64) -> u32 {
        number as u32
    }

    #[inline(always)]
    fn covers(piece: u32, number: u64) -> bool {
        piece == number as u32
    }

    fn covered(piece: u32, mapping: Range<u64>) -> Range<u64> {
        let number = mapping.start + u64::from(piece.wrapping_sub(mapping.start as u32));
        number..number + 1
    }

    #[inline(always)]
    fn without(piece: u32, changed: &Range<u64>) -> Option<u32> {
        let within = u64::from(piece.wrapping_sub(changed.start as u32)) < changed.end - changed.start;
        (!within).then_some(piece)
    }
}
