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
