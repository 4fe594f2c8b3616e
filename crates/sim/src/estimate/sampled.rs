//! How a row was estimated, with its errors.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use superpage_keys::Keys;

/// How the counts of a row were estimated from a sampled stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Keys)]
pub struct Sampled {
    /// Recorded accesses of each period.
    #[key(condition, "accesses")]
    pub on: u64,
    /// The period.
    #[key(condition, "accesses")]
    pub period: u64,
    /// Recorded accesses as a share of all.
    #[key(ratio)]
    pub share: f64,
    /// Windows that were measured: the second halves of those that were recorded.
    #[key(count)]
    pub windows: u64,
    /// Data references that were recorded.
    #[key(count)]
    pub recorded_references: u64,
    /// Misses that were counted, in windows, warming and gaps.
    #[key(count)]
    pub recorded_tlb_misses: u64,
    /// Whether what the kernel did is exact. The stream has all mappings, first touches and first
    /// writes, and no policy depends on more until memory is short. What the page daemon then
    /// evicts, and what comes back, depends on references that were left out; then every other
    /// count is that of another run, and no error is given.
    #[key(state)]
    pub kernel_exact: bool,
    /// Why no interval below is known although what the kernel did is exact: fewer than 30
    /// windows, several threads, TLBs with replacement that is neither LRU nor random, or a trace
    /// that does not mark its windows or what was used last before them (before version 4 of the
    /// file format) or not all of it (before version 8) where TLBs may hold more.
    #[key(state)]
    pub why_no_interval: Option<Cow<'static, str>>,
    /// Half the width of the 95 % confidence interval of `tlb_misses`.
    #[key(ratio)]
    pub tlb_misses_error: Option<f64>,
    /// The same of `walk_memory_references`.
    #[key(ratio)]
    pub walk_memory_references_error: Option<f64>,
    /// The same of `cycles`.
    #[key(ratio, "cycles")]
    pub cycles_error: Option<f64>,
    /// The same of `tlb_miss_reduction_percent`. Both rows have the same windows, and variation
    /// that they share is no error of their ratio.
    #[key(ratio, "%")]
    pub tlb_miss_reduction_percent_error: Option<f64>,
    /// The same of `speedup`.
    #[key(ratio)]
    pub speedup_error: Option<f64>,
}
