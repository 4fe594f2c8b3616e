//! The vocabulary that every other crate shares: page sizes, a machine's ladder of sizes, virtual
//! and physical page numbers, extents of frames, mappings, protections, and hints.
//!
//! This crate holds no policy and no state. A page number counts *base pages* of the machine being
//! modelled, never bytes; a [`PageSize`] is a power of two of bytes; a [`Level`] is an index into a
//! [`Ladder`], with the base page at level 0.
#![no_std]
#![forbid(unsafe_code)]

mod counts;
mod frame_use;
mod hint;
mod ladder;
mod mapped;
mod number;
mod protection;
mod random;
mod size;

pub use counts::Counts;
pub use frame_use::FrameUse;
pub use hint::Hint;
pub use ladder::{Ladder, LadderError, Level, MAX_LEVELS};
pub use mapped::{Mapped, Used};
pub use number::{Extent, PageRange, Pfn, Vpn};
pub use protection::{Access, Protection};
pub use random::Random;
pub use size::{Bytes, Count, ExactBytes, PageSize, SizeError, parse_bytes, parse_count};
