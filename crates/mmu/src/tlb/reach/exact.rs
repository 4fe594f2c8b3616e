//! Exact: an entry covers a whole mapping, as in nearly all TLBs.

use super::Reach;

/// One entry per mapping.
#[derive(Clone, Debug)]
pub(crate) struct Exact;

impl Reach for Exact {
    type Payload = ();

    const WHOLE: bool = true;
    const COMMON: bool = true;
}
