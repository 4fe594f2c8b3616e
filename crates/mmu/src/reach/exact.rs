//! An entry is a mapping, whole: what nearly all TLBs hold.

use super::Reach;
use std::ops::Range;

/// One entry a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Exact;

impl Reach for Exact {
    type Payload = ();

    const WHOLE: bool = true;

    #[inline(always)]
    fn fill(_: u64) {}

    #[inline(always)]
    fn covers((): (), _: u64) -> bool {
        true
    }

    fn covered((): (), mapping: Range<u64>) -> Range<u64> {
        mapping
    }

    #[inline(always)]
    fn without((): (), _: &Range<u64>) -> Option<()> {
        None
    }
}
