//! What a kernel with a model has done.

use serde::{Deserialize, Serialize};
use superpage_mmu::GroupCounts;

/// What a kernel with a model has done, itself and to the hash table. Entries are of 8 bytes; what is zero of machines without such a table
/// is said in docs/kernels.md. Sums and `sampled_` counts are of *looks*: each time that the kernel has run a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelCounts {
    /// Instructions that the kernel ran, with those of handlers.
    pub instructions: u64,
    /// Times that it was entered by a call.
    pub calls: u64,
    /// Accesses of its own that no TLB was asked for.
    pub block_accesses: u64,
    /// Times that software was entered for a TLB miss.
    pub handled: u64,
    /// Searches of the hash table for a TLB miss.
    pub searches: u64,
    /// Those that found it.
    pub found: u64,
    /// Entries placed in the table.
    pub reloads: u64,
    /// Those that replaced another.
    pub evicts: u64,
    /// Of these, those that replaced an entry that was in use and no zombie.
    pub live_evicts: u64,
    /// Pages that software looked for to flush them.
    pub flushed_pages: u64,
    /// Entries of the table that it looked at for that.
    pub flush_references: u64,
    /// Times that a space got other VSIDs, or another number.
    pub renewed: u64,
    /// Zombies that were reclaimed.
    pub reclaimed: u64,
    /// Pages that the idle task cleared.
    pub cleared_pages: u64,
    /// Those that faults took.
    pub taken_pages: u64,
    /// Times that the kernel has run a path, when the TLBs and the table were looked at for the sums below.
    pub looks: u64,
    /// The sum over these of the entries of TLBs of the first level that are the kernel's.
    pub kernel_entries: u64,
    /// The same of all that are in use.
    pub tlb_entries: u64,
    /// The most that were the kernel's at one of these times.
    pub sampled_most_kernel_entries: u64,
    /// The sum over these times of entries of the table that are valid, zombies too.
    pub valid_entries: u64,
    /// The same of those of pages that a space has.
    pub live_entries: u64,
    /// The most entries of the table that ever were valid, zombies too: exact, and of the whole run, in its parts too.
    pub most_valid_entries: u64,
    /// Entries of the table that are valid now.
    pub valid_now: u64,
    /// Those of them that are of pages that a space has.
    pub live_now: u64,
}

impl KernelCounts {
    pub(super) fn with_groups(self, groups: &GroupCounts) -> KernelCounts {
        KernelCounts {
            block_accesses: groups.blocks,
            handled: groups.entered,
            searches: groups.searches,
            found: groups.found,
            reloads: groups.reloads,
            evicts: groups.evicts,
            live_evicts: groups.live_evicts,
            flushed_pages: groups.flushed,
            flush_references: groups.looked_to_flush,
            renewed: groups.renewed,
            reclaimed: groups.reclaimed,
            ..self
        }
    }

    /// Since then. What is the most, and what is now, stays.
    pub(crate) fn since(self, then: &KernelCounts) -> KernelCounts {
        KernelCounts {
            instructions: self.instructions - then.instructions,
            calls: self.calls - then.calls,
            block_accesses: self.block_accesses - then.block_accesses,
            handled: self.handled - then.handled,
            searches: self.searches - then.searches,
            found: self.found - then.found,
            reloads: self.reloads - then.reloads,
            evicts: self.evicts - then.evicts,
            live_evicts: self.live_evicts - then.live_evicts,
            flushed_pages: self.flushed_pages - then.flushed_pages,
            flush_references: self.flush_references - then.flush_references,
            renewed: self.renewed - then.renewed,
            reclaimed: self.reclaimed - then.reclaimed,
            cleared_pages: self.cleared_pages - then.cleared_pages,
            taken_pages: self.taken_pages - then.taken_pages,
            looks: self.looks - then.looks,
            kernel_entries: self.kernel_entries - then.kernel_entries,
            tlb_entries: self.tlb_entries - then.tlb_entries,
            sampled_most_kernel_entries: self.sampled_most_kernel_entries,
            valid_entries: self.valid_entries - then.valid_entries,
            live_entries: self.live_entries - then.live_entries,
            most_valid_entries: self.most_valid_entries,
            valid_now: self.valid_now,
            live_now: self.live_now,
        }
    }
}
