//! The hardware's half: TLBs, page tables, page-table walkers with their caches, and what they cost, as a model that
//! counts exactly.
//!
//! A [`Machine`] is read from a file. An [`Mmu`] is one core of it, or of several machines that run the same: it translates [`Request`]s until one traps, and
//! implements the operations that an operating system needs on page tables, with their TLB shootdowns. [`Counters`] say
//! what happened; cycles are computed from them afterwards. This crate never decides what is mapped where, never
//! allocates a frame, and knows nothing of the memory manager: its caller connects the two.
#![deny(unsafe_code)]

mod batch;
mod behind;
mod cache;
mod cost;
mod counters;
mod front;
mod handler;
mod host;
mod index;
mod kept_spaces;
mod lines;
mod machine;
mod mappings;
mod mmu;
mod range_tlb;
mod reach;
mod recall;
mod recent;
mod record;
mod replacement;
mod request;
mod segments;
mod table;
mod tlb;
mod waiting;
mod walker;

pub use cost::TranslationCycles;
pub use counters::{
    Counters, GroupCounts, LineCounts, MAX_LINE_LEVELS, MAX_TLB_LEVELS, MAX_WALK_LEVELS, Remaps, UseBits,
};
pub use handler::{Block, Flush, Handler, SavedCounts, Touch, Upkeep};
pub use index::Index;
pub use machine::{
    Clock, Clustered, Costs, Disk, Groups, Host, JoinKind, Joins, LineCacheSpec, Machine, MachineError, Memory,
    PageTable, Pages, Perforated, RangeTlbSpec, Search, Serves, SetBy, Shadow, Spaces, TlbSpec, UseBit, Walk,
    WalkCacheSpec, Ways,
};
pub use mmu::{Mmu, Used};
pub use recall::Stayed;
pub use replacement::Replacement;
pub use request::{Request, Trap};
pub use table::TableKind;
pub use tlb::{Contents, Held};
