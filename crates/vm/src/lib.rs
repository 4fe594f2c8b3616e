//! The operating system's half.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod bitmap;
mod buddy;
mod pmap;

pub use buddy::{Buddy, BuddyError};
pub use pmap::{Mapped, Pmap, SpaceId, Used};
