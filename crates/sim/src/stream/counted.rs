//! How much of the stream has been simulated.

use super::core_use::CoreUse;
use superpage_trace::Threads;

/// Counts of the stream: neither the manager nor the hardware has them.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) references: u64,
    pub(crate) instructions: u64,
    /// All accesses that were made.
    pub(crate) accesses: u64,
    /// Data references and instructions that were left out of the stream.
    pub(crate) skipped: [u64; 2],
    pub(crate) idle_microseconds: u64,
    pub(crate) threads: Threads,
    pub(crate) cores: CoreUse,
}
