//! What a page table says about a page.

use crate::{PageSize, Pfn, Protection};

/// What a page is mapped to, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The frame of that base page, wherever it lies in its superpage.
    pub frame: Pfn,
    /// The size of the mapping.
    pub size: PageSize,
    /// The rights.
    pub protection: Protection,
}

/// The use bits of a mapping, known as reference and dirty, or accessed and dirty bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Accessed since the bit was cleared.
    pub referenced: bool,
    /// Written since the bit was cleared.
    pub modified: bool,
}
