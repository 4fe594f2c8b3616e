//! How much of the stream has been simulated.

use superpage_trace::Threads;

/// Counts of the stream, beside those of the manager and of the hardware.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) references: u64,
    pub(crate) instructions: u64,
    /// All accesses that were made.
    pub(crate) accesses: u64,
    /// Data references and instructions that were left out of the stream.
    pub(crate) skipped: [u64; 2],
    pub(crate) unmapped_accesses: u64,
    pub(crate) widened_rights: u64,
    /// Calls that would have cut a page of the static pool.
    pub(crate) pool_refusals: u64,
    pub(crate) idle_microseconds: u64,
    pub(crate) threads: Threads,
    /// Bytes that the kernel copied beside those that the memory manager counts.
    pub(crate) copied_bytes: u64,
    /// Pages hashed by the idle loop.
    pub(crate) idle_hashed: u64,
}
