//! Modelled time: counts times the costs that the machine file states.

use crate::estimate::Whole;
use superpage_mmu::{Counters, Machine};
use superpage_vm::Stats;

/// The cycles that a run took, by the machine's costs.
///
/// Instructions at the machine's rate without TLB misses; translation, as the machine counts it; and the kernel's work.
/// Files are taken to be in memory already, as after the warm-up run of Navarro et al., section 6.3: what is read of them
/// is counted in the row, but its I/O costs no time.
pub(crate) fn cycles(machine: &Machine, whole: &Whole, counters: &Counters, stats: &Stats) -> u64 {
    let costs = &machine.costs;
    let kilobytes = |bytes: u64| bytes.div_ceil(1024);
    let kernel = stats.faults * costs.fault
        + kilobytes(stats.bytes_zeroed) * costs.zero_per_kb
        + kilobytes(stats.bytes_copied) * costs.copy_per_kb
        + counters.pte_writes * costs.pte_write
        + counters.pte_traversals * costs.pte_traversal
        + stats.promotions.iter().sum::<u64>() * costs.promotion
        + stats.demotions.iter().sum::<u64>() * costs.demotion
        + stats.reservations_preempted * costs.preemption
        + counters.shootdowns * costs.shootdown
        + counters.switches * costs.switch;
    // The only product with a fraction; below 2^53 it is exact to the cycle on every machine.
    let own = (whole.instructions as f64 * costs.cycles_per_instruction) as u64;
    own + whole.translation_cycles + machine.translation_cycles(counters).use_traps + kernel
}

/// The values of the machine file that nobody has published, as `key = value`.
pub(crate) fn assumed(machine: &Machine) -> Vec<String> {
    machine.assumed().iter().map(|(key, value)| format!("{key} = {value}")).collect()
}
