//! The operating system's half: a memory manager for pages of several sizes, after Navarro, Iyer, Druschel and Cox,
//! *Practical, transparent operating system support for superpages* (OSDI 2002).
//!
//! [`Vm`] has physical memory ([`Buddy`]), address spaces and the memory objects behind their mappings. At a fault it reserves
//! an extent of frames of the size that the object may use, populates one base page of it, and promotes what is fully
//! populated, size by size; under scarcity it preempts reservations; it demotes step by step where a part of a
//! superpage changes. What it does is a [`Policy`]; what it did, [`Stats`].
//!
//! The hardware is behind one trait, [`Pmap`]: this crate knows no page table and no TLB, keeps no contents of pages, and
//! measures no time. It needs no operating system, and allocates through `alloc`.
//!
//! ```
//! use superpage_pages::{Access, Ladder, PageSize, Protection, Vpn};
//! use superpage_vm::{Backing, Config, FaultKind, Growth, Map, Policy, SoftPmap, Vm};
//!
//! let ladder = Ladder::new(&["4K", "64K", "2M"].map(|size| size.parse::<PageSize>().unwrap())).unwrap();
//! let mut pmap = SoftPmap::new(ladder);
//! let mut vm = Vm::new(Config { ladder, frames: 4096, policy: Policy::named("reservation").unwrap(), swap_pages: 0 }).unwrap();
//! let space = vm.create_space();
//! let (start, pages) = (Vpn(0x1000), 512);
//! let (backing, growth) = (Backing::Anonymous, Growth::Fixed);
//! vm.map(&mut pmap, space, Map { start, pages, protection: Protection::READ_WRITE, shared: false, backing, growth }).unwrap();
//! let mut memory = vec![[0xff_u8; 4096]; 4096]; // what is in the frames, which is not the manager's concern
//! for page in 0..pages {
//!     let fault = vm.fault(&mut pmap, space, start + page, Access::Write).unwrap();
//!     assert_eq!(fault.kind, FaultKind::Zero); // no file, no swap space, no fork: docs/kernel.md has all kinds
//!     memory[fault.frame.0 as usize].fill(0); // else the program would see what the frame held before
//!     fault.filled.iter().for_each(|beside| memory[beside.frame.0 as usize].fill(0));
//! }
//! assert_eq!(vm.stats().mapped[..3], [0, 0, 1]); // one superpage of 2 MB
//! vm.exit(&mut pmap, space).unwrap();
//! assert_eq!(vm.buddy().free_frames(), 4096);
//! ```
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod away;
mod bitmap;
mod buddy;
mod daemon;
mod dirt;
mod error;
mod fault;
mod file;
mod fill;
mod frames;
mod mapping;
mod object;
mod pages;
mod pmap;
mod policy;
mod population;
mod promotion;
mod reservation;
mod reverse;
mod scanner;
mod shadow;
mod soft;
mod space;
mod stats;
mod store;
mod validate;
mod vm;
mod wired;

pub use buddy::{Buddy, BuddyError};
pub use error::{Error, FaultError, PAGES_LIMIT};
pub use fault::{Fault, FaultKind};
pub use fill::Filled;
pub use mapping::{Backing, Map};
pub use object::Growth;
pub use pmap::{Mapped, Pmap, SpaceId, Used};
pub use policy::{
    Cache, Close, Demote, Dirty, Hash, Key, Lists, PastEnd, Pieces, Place, Policy, PolicyError, Promote, Reclaim,
    Reserve, Scarce, Wake, Wired,
};
pub use scanner::{Census, Ripe, Sample, Scanner, ScannerError, Sweep};
pub use soft::SoftPmap;
pub use stats::Stats;
pub use store::{Backed, NoStore, Store};
pub use vm::{Config, Vm};
