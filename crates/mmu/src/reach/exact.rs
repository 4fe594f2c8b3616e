//! Exact: an entry covers a whole mapping, as in nearly all TLBs.

use super::Reach;
use std::ops::Range;

/// One entry per mapping.
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
