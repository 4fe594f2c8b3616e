//! A simulation over time: its state at moments.

use crate::sources::active;
use crate::{Sources, by_size};
use serde::{Deserialize, Serialize};
use superpage_keys::Keys;
use superpage_pages::PageSize;

/// The state of a simulation at a moment of modelled time. Counts are those since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Keys)]
#[key(from = Sources<'_>)]
pub struct Sample {
    /// The modelled time, idle time included; on several cores, of the busiest one.
    #[key(state, "s", estimated, from = it.clock.elapsed_of(it.cycles, it.machine))]
    pub seconds: f64,
    /// Instructions so far.
    #[key(count, of_stream, from = it.clock.passed())]
    pub instructions: u64,
    /// What the stream said just before: the text of a mark, or which process has ended; `end` is
    /// the end of the run. `None` where it was only time for a sample, or a process is about to
    /// end.
    #[key(state)]
    pub event: Option<String>,
    /// Frames that hold pages of objects.
    #[key(state, "bytes", from = it.bytes(it.stats.resident_pages))]
    pub resident_bytes: u64,
    /// What programs have touched and still have.
    #[key(state, "bytes", of_stream, from = it.bytes(it.clock.averages.touched))]
    pub touched_bytes: u64,
    /// Frames that hold nothing.
    #[key(state, "bytes", from = it.bytes(it.kernel.vm.buddy().plain_frames()))]
    pub free_bytes: u64,
    /// Clean pages that are kept but count as available.
    #[key(state, "bytes", from = it.bytes(it.stats.cache_pages))]
    pub cache_bytes: u64,
    /// Pages that have not been referenced for a while.
    #[key(state, "bytes", from = it.bytes(it.stats.inactive_pages))]
    pub inactive_bytes: u64,
    /// All other pages of objects.
    #[key(state, "bytes", from = it.bytes(active(&it.stats)))]
    pub active_bytes: u64,
    /// The kernel's own frames.
    #[key(state, "bytes", from = it.bytes(it.stats.wired_frames))]
    pub wired_bytes: u64,
    /// The contiguity that is available: the metric of Navarro et al., section 6.5, from 0 to 1.
    #[key(ratio, from = it.contiguity())]
    pub contiguity: f64,
    /// Mapped pages of each size, ascending by size.
    #[key(state, "pages", from = it.by_size(it.stats.mapped))]
    #[serde(with = "by_size")]
    pub pages: Vec<(PageSize, u64)>,
    /// Free extents of each size, each counted at the largest size that it has, ascending by size.
    #[key(state, "extents", from = it.free_extents())]
    #[serde(with = "by_size")]
    pub free_extents: Vec<(PageSize, u64)>,
    /// Page faults.
    #[key(count, from = it.stats.faults)]
    pub faults: u64,
    /// Misses in the last TLB level; `None` of a sampled stream, whose estimates do not grow as
    /// counts do.
    #[key(count, from = it.whole.sampled.is_none().then_some(it.whole.data_misses + it.whole.instruction_misses))]
    pub tlb_misses: Option<u64>,
    /// Page-table walks, or refills by software.
    #[key(count, "cycles", from = it.whole.sampled.is_none().then_some(it.whole.walk_cycles))]
    pub walk_cycles: Option<u64>,
    /// Superpages made.
    #[key(count, from = it.stats.promotions.iter().sum())]
    pub promotions: u64,
    /// Superpages demoted.
    #[key(count, from = it.stats.demotions.iter().sum())]
    pub demotions: u64,
}
