//! The live side on Linux: [`Region`], a piece of a program's memory whose pager is [`superpage_vm`].
//!
//! The blocks of 2 MB of a memory file are the manager's physical memory, `userfaultfd` brings it the page faults, and
//! `MADV_COLLAPSE` is its promotion in place. All decisions (what to reserve, when to promote, which reservation to preempt,
//! which pages to evict) are the manager's; this crate only carries them out. See [`Region`] for what that gives a program.
//!
//! The crate is empty on other systems.
#![cfg(target_os = "linux")]
#![deny(unsafe_op_in_unsafe_fn)]

mod drain;
mod error;
mod memory;
mod pager;
mod region;
mod stats;
mod swap;
mod tables;
mod uffd;

pub use error::Error;
pub use region::{Builder, Region};
pub use stats::RegionStats;

/// The guide for builders of kernels: its programs are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kernel.md")]
struct Guide;
