//! The operating system's half.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod pmap;

pub use pmap::{Mapped, Pmap, SpaceId, Used};
