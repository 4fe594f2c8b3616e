//! The hardware's half: TLBs, page tables, page-table walkers with their caches, and what they
//! cost, as a model that counts exactly.
//!
//! A [`Machine`] is read from a file. An [`Mmu`] is one core of it or several, or those of several
//! machines that run the same programs: it translates [`Request`]s until one traps, and implements
//! the operations on page tables that an operating system needs, with their TLB shootdowns.
//! [`Counters`] count events; cycles are computed from them afterwards. This crate never decides
//! what is mapped where, never allocates a frame, and knows nothing of the memory manager: its
//! caller connects the two.
#![deny(unsafe_code)]

mod check;
mod cores;
mod cost;
mod counters;
mod handler;
mod host;
mod machine;
mod mappings;
mod mmu;
mod recall;
mod request;
mod tlb;
mod waiting;
mod walk;

pub use cost::TranslationCycles;
pub use counters::{Counters, GroupCounts, LineCounts, Remaps, UseBits};
pub use handler::{Block, Flush, Handler, SavedCounts, Touch, Upkeep};
pub use machine::{
    Clock, Clustered, Costs, Disk, Groups, Host, Index, JoinKind, Joins, LineCacheSpec, MAX_LINE_LEVELS,
    MAX_TLB_LEVELS, MAX_WALK_LEVELS, Machine, MachineError, Memory, PageTable, Pages, Perforated, RangeTlbSpec,
    Replacement, Search, Serves, SetBy, Shadow, Spaces, TableKind, TlbSpec, UseBit, Walk, WalkCacheSpec, Ways,
};
pub use mmu::Mmu;
pub use recall::UsedBefore;
pub use request::{Request, Trap};
pub use tlb::{Contents, CustomReplacement, CustomState, EntryUse, Held};
