//! The operating system's half: a memory manager for pages of several sizes, after Navarro, Iyer,
//! Druschel and Cox, *Practical, transparent operating system support for superpages* (OSDI 2002).
//!
//! [`Vm`] owns physical memory ([`Buddy`]), address spaces, and the memory objects behind their
//! mappings. A fault reserves an extent of frames of the preferred size, populates one base page of
//! it, and promotes each region that has become fully populated, size by size. When memory is
//! scarce, reservations are preempted; when part of a superpage changes, it is demoted step by
//! step. What the manager does is a [`Policy`]; what it has done is in [`Stats`].
//!
//! The hardware is behind one trait, [`Pmap`], and the contents of frames behind another,
//! [`Memory`]: this crate knows no page-table format and no TLB, never touches the contents of a
//! page, and measures no time. It needs no operating system, and allocates through `alloc`.
//!
//! ```
//! use superpage_pages::{Access, Ladder, Vpn};
//! use superpage_vm::{Config, Map, NoMemory, Policy, SoftPmap, Vm};
//!
//! let ladder = Ladder::X86_64;
//! let (mut pmap, mut memory) = (SoftPmap::new(ladder), NoMemory); // a kernel brings its own: docs/kernel.md
//! let mut vm = Vm::new(Config { ladder, frames: 4096, policy: Policy::named("reservation").unwrap(), swap_pages: 0 }).unwrap();
//! let space = vm.create_space();
//! let start = Vpn(0x1000);
//! vm.map(&mut pmap, space, Map::anonymous(start, 512)).unwrap();
//! for page in 0..512 {
//!     let fault = vm.fault(&mut pmap, &mut memory, space.page(start + page), Access::Write).unwrap();
//!     assert!(fault.reserved || page == 0);
//! }
//! assert_eq!(vm.stats().mapped[..2], [0, 1]); // one superpage of 2 MB
//! vm.exit(&mut pmap, space).unwrap();
//! assert_eq!(vm.buddy().free_frames(), 4096);
//! ```
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod error;
mod fault;
mod frame;
mod managed;
mod memory;
mod object;
mod outcome;
mod pmap;
mod policy;
mod process;
mod queue;
mod reclaim;
mod soft;
mod space;
mod stats;
mod validate;
mod vm;
mod why;

pub use error::{Error, FaultError, PAGES_LIMIT};
pub use frame::buddy::{Buddy, BuddyError};
pub use memory::{Backed, Filled, Memory, NoContents, NoMemory, Page};
pub use object::Growth;
pub use outcome::{Compacted, Fault, FaultKind, How, Promoted, Region};
pub use pmap::{Address, Contiguity, Pmap, SpaceId};
pub use policy::background::{
    Background, Costs, Event, Events, Look, MemoryState, Part, Prefer, Refusal, Scanned, ScannedPart, System, Time,
    Wants,
};
pub use policy::runner::Runner;
pub use policy::scanner::{Candidate, Census, Sample, Scanner, ScannerError};
pub use policy::{
    Accessed, Answers, Cache, Close, Definition, Demote, Demoting, Dirty, Fit, Given, Hash, Hints, Key, LIMITS, Lists,
    Made, Need, Parameter, PastEnd, Pieces, Place, Placing, Policy, PolicyError, Populating, Promote, Promoting,
    Reclaim, Reclaiming, Reserve, Resident, Scarce, Shortage, Sizes, Stacks, StaticPool, Target, Unmovable, Values,
    Wake, Wired, ZeroPage, planned,
};
pub use process::mapping::{Backing, Map};
pub use soft::SoftPmap;
pub use stats::Stats;
pub use superpage_pages::{Mapped, Used};
pub use vm::{Config, Vm};
pub use why::Why;
