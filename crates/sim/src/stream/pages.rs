//! Pages of the stream as base pages of a machine, which may be larger.

use superpage_pages::{PageRange, Vpn};

/// Base pages of `1 << shift` pages of the stream: all that overlap these.
pub(crate) fn outward(shift: u32, start: u64, pages: u64) -> PageRange {
    let first = start >> shift;
    Vpn(first).pages((start + pages).div_ceil(1 << shift) - first)
}

/// Base pages of `1 << shift` pages of the stream: only those that lie completely in these.
pub(crate) fn inward(shift: u32, start: u64, pages: u64) -> PageRange {
    let first = start.div_ceil(1 << shift);
    Vpn(first).pages(((start + pages) >> shift).saturating_sub(first))
}
