//! Modelled time: counts times the costs in the machine file.

use crate::estimate::Whole;
use std::ops::{Add, Sub};
use superpage_mmu::{Counters, Machine};
use superpage_vm::Stats;

/// The program's own instructions, at the machine's rate without TLB misses.
pub(crate) fn program(machine: &Machine, whole: &Whole) -> u64 {
    // The only product with a fraction; below 2^53 it is exact to the cycle on every machine.
    (whole.instructions as f64 * machine.costs.cycles_per_instruction) as u64
}

/// The kernel's work by purpose, in cycles, without the disk's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Kernel {
    /// Faults, traps that set use bits, page-table entries written, shootdowns, switches.
    pub(crate) fault: u64,
    pub(crate) zero: u64,
    pub(crate) copy: u64,
    /// See [`superpages`].
    pub(crate) promotion: u64,
    /// Pages that the daemon sampled, regions that the background of a policy scanned, and digests.
    pub(crate) background: u64,
}

impl Kernel {
    /// All so far; `copied` are bytes that it copied for reads and writes of files, `digests` cycles spent on digests.
    pub(crate) fn new(machine: &Machine, counters: &Counters, stats: &Stats, copied: u64, digests: u64) -> Kernel {
        let costs = &machine.costs;
        let kilobytes = |bytes: u64| bytes.div_ceil(1024);
        Kernel {
            fault: stats.faults * costs.fault
                + machine.translation_cycles(counters).use_traps
                + counters.pte_writes * costs.pte_write
                + counters.shootdowns * costs.shootdown
                + counters.switches * costs.switch,
            zero: kilobytes(stats.bytes_zeroed) * costs.zero_per_kb,
            copy: kilobytes(stats.bytes_copied + copied) * costs.copy_per_kb,
            promotion: superpages(machine, counters, stats),
            background: (stats.daemon_scanned + stats.background_scanned) * costs.daemon_page + digests,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.fault + self.zero + self.copy + self.promotion + self.background
    }

    /// The same with all of the daemon's work counted as background.
    pub(crate) fn with_daemon_apart(self, daemon: Kernel) -> Kernel {
        let rest = self - daemon;
        Kernel { background: rest.background + daemon.total(), ..rest }
    }

    fn with(self, other: Kernel, both: impl Fn(u64, u64) -> u64) -> Kernel {
        Kernel {
            fault: both(self.fault, other.fault),
            zero: both(self.zero, other.zero),
            copy: both(self.copy, other.copy),
            promotion: both(self.promotion, other.promotion),
            background: both(self.background, other.background),
        }
    }
}

impl Add for Kernel {
    type Output = Kernel;

    fn add(self, other: Kernel) -> Kernel {
        self.with(other, |a, b| a + b)
    }
}

impl Sub for Kernel {
    type Output = Kernel;

    fn sub(self, other: Kernel) -> Kernel {
        self.with(other, |a, b| a - b)
    }
}

/// The part of the kernel's work that only superpages cause: promotions, demotions, preemptions, and traversals of
/// replicated entries. What it would cost a program that has no benefit from them (Navarro et al., section 6.6,
/// "Overhead in practice"). A superpage that a fault makes at once costs the same as any other mapping.
pub(crate) fn superpages(machine: &Machine, counters: &Counters, stats: &Stats) -> u64 {
    let costs = &machine.costs;
    counters.pte_traversals * costs.pte_traversal
        + (stats.promotions.iter().sum::<u64>() - stats.promotions_at_fault) * costs.promotion
        + stats.demotions.iter().sum::<u64>() * costs.demotion
        + stats.reservations_preempted * costs.preemption
}

/// The values of the machine file that nobody has published, as `key = value`.
pub(crate) fn assumed(machine: &Machine) -> Vec<String> {
    machine.assumed().iter().map(|(key, value)| format!("{key} = {value}")).collect()
}
