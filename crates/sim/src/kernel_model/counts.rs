//! What a kernel with a model has done.

use serde::{Deserialize, Serialize};
use superpage_keys::{Counts, Keys};
use superpage_mmu::GroupCounts;

/// What a kernel with a model has done, itself and to the hash table. Entries are of 8 bytes; what
/// is zero of machines without such a table is said in docs/kernels.md. Sums and `sampled_` counts
/// are of *looks*: each time that the kernel has run a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Counts, Keys)]
#[key(from = GroupCounts)]
pub struct KernelCounts {
    /// Instructions that the kernel ran, with those of handlers.
    #[key(count)]
    pub instructions: u64,
    /// Times that it was entered by a call.
    #[key(count)]
    pub calls: u64,
    /// Accesses of its own that no TLB was asked for.
    #[key(count, from = it.blocks)]
    pub block_accesses: u64,
    /// Times that software was entered for a TLB miss.
    #[key(count, wide = "handled", from = it.entered)]
    pub handled: u64,
    /// Searches of the hash table for a TLB miss.
    #[key(count, from = it.searches)]
    pub searches: u64,
    /// Those that found it.
    #[key(count, from = it.found)]
    pub found: u64,
    /// Entries placed in the table.
    #[key(count, from = it.reloads)]
    pub reloads: u64,
    /// Those that replaced another.
    #[key(count, from = it.evicts)]
    pub evicts: u64,
    /// Of these, those that replaced an entry that was in use and no zombie.
    #[key(count, from = it.live_evicts)]
    pub live_evicts: u64,
    /// Pages that software looked for to flush them.
    #[key(count, from = it.flushed)]
    pub flushed_pages: u64,
    /// Entries of the table that it looked at for that.
    #[key(count, from = it.looked_to_flush)]
    pub flush_references: u64,
    /// Times that a space got other VSIDs, or another number.
    #[key(count, from = it.renewed)]
    pub renewed: u64,
    /// Zombies that were reclaimed.
    #[key(count, from = it.reclaimed)]
    pub reclaimed: u64,
    /// Pages that the idle task cleared.
    #[key(count)]
    pub cleared_pages: u64,
    /// Those that faults took.
    #[key(count)]
    pub taken_pages: u64,
    /// Times that the kernel has run a path, when the TLBs and the table were looked at for the
    /// sums below.
    #[key(count)]
    pub looks: u64,
    /// The sum over these of the entries of TLBs of the first level that are the kernel's.
    #[key(count)]
    pub kernel_entries: u64,
    /// The same of all that are in use.
    #[key(count)]
    pub tlb_entries: u64,
    /// The most that were the kernel's at one of these times.
    #[key(state)]
    pub sampled_most_kernel_entries: u64,
    /// The sum over these times of entries of the table that are valid, zombies too.
    #[key(count)]
    pub valid_entries: u64,
    /// The same of those of pages that a space has.
    #[key(count)]
    pub live_entries: u64,
    /// The most entries of the table that ever were valid, zombies too: exact, and of the whole
    /// run, in its parts too.
    #[key(state)]
    pub most_valid_entries: u64,
    /// Entries of the table that are valid now.
    #[key(state)]
    pub valid_now: u64,
    /// Those of them that are of pages that a space has.
    #[key(state)]
    pub live_now: u64,
}
