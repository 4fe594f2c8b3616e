//! Modelled time: counts times the costs that the machine file states.

use crate::estimate::Whole;
use superpage_mmu::{Counters, Machine};
use superpage_vm::Stats;

/// The cycles of the program itself: instructions at the machine's rate without TLB misses, and translation as the machine
/// counts it.
pub(crate) fn program(machine: &Machine, whole: &Whole, counters: &Counters) -> u64 {
    // The only product with a fraction; below 2^53 it is exact to the cycle on every machine.
    let own = (whole.instructions as f64 * machine.costs.cycles_per_instruction) as u64;
    own + whole.translation_cycles + machine.translation_cycles(counters).use_traps
}

/// The cycles of the kernel's work but for digests; `copied` are bytes that it copied for reads and writes of files.
pub(crate) fn kernel(machine: &Machine, counters: &Counters, stats: &Stats, copied: u64) -> u64 {
    let costs = &machine.costs;
    let kilobytes = |bytes: u64| bytes.div_ceil(1024);
    stats.faults * costs.fault
        + kilobytes(stats.bytes_zeroed) * costs.zero_per_kb
        + kilobytes(stats.bytes_copied + copied) * costs.copy_per_kb
        + counters.pte_writes * costs.pte_write
        + superpages(machine, counters, stats)
        + counters.shootdowns * costs.shootdown
        + counters.switches * costs.switch
        + stats.daemon_scanned * costs.daemon_page
}

/// The part of the kernel's work that is there for superpages only: promotions, demotions, preemptions, and traversals of
/// replicated entries. What it would cost a program that has no benefit from them (Navarro et al., section 6.6, "Overhead
/// in practice").
pub(crate) fn superpages(machine: &Machine, counters: &Counters, stats: &Stats) -> u64 {
    let costs = &machine.costs;
    counters.pte_traversals * costs.pte_traversal
        + stats.promotions.iter().sum::<u64>() * costs.promotion
        + stats.demotions.iter().sum::<u64>() * costs.demotion
        + stats.reservations_preempted * costs.preemption
}

/// The values of the machine file that nobody has published, as `key = value`.
pub(crate) fn assumed(machine: &Machine) -> Vec<String> {
    machine.assumed().iter().map(|(key, value)| format!("{key} = {value}")).collect()
}
