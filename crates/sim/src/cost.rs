//! Modelled time: counts times the costs in the machine file.

use superpage_keys::Counts;
use superpage_mmu::{Counters, Machine, Remaps, UseBits};
use superpage_vm::Stats;

/// The kernel's work as counts, which are the same on all machines; each makes its own cycles of
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Counts)]
pub(crate) struct Effort {
    faults: u64,
    use_bits: UseBits,
    use_bit_entries: UseBits,
    pte_writes: u64,
    pte_traversals: u64,
    shootdowns: u64,
    /// Shootdowns that interrupt the program.
    shootdowns_running: u64,
    /// Shootdowns that interrupted other cores, and the cores that they did.
    shootdowns_sent: u64,
    shootdowns_received: u64,
    switches: u64,
    zeroed_bytes: u64,
    copied_bytes: u64,
    promotions: u64,
    demotions: u64,
    preemptions: u64,
    /// Pages that the daemon sampled, and that the background of a policy looked at.
    scanned: u64,
    digests: u64,
    /// Of shadow superpages, which no policy knows of.
    remaps: Remaps,
}

impl Effort {
    /// The effort of one fault that wrote `pte_writes` entries and zeroed `zeroed_bytes`; the other
    /// counts are those of `self`.
    pub(crate) fn of_fault(self, pte_writes: u64, zeroed_bytes: u64) -> Effort {
        let (use_bits, use_bit_entries, switches, remaps) = Default::default();
        Effort { faults: 1, pte_writes, zeroed_bytes, use_bits, use_bit_entries, switches, remaps, ..self }
    }

    /// All of the kernel's work so far; `copied` are bytes that it copied for reads and writes of
    /// files, `idle` digests of the idle loop, which take no time from others.
    pub(crate) fn new(counters: &Counters, stats: &Stats, copied: u64, idle: u64) -> Effort {
        Effort {
            faults: stats.faults,
            use_bits: counters.use_bits,
            use_bit_entries: counters.use_bit_entries,
            pte_writes: counters.pte_writes,
            pte_traversals: counters.pte_traversals,
            shootdowns: counters.shootdowns,
            shootdowns_running: counters.shootdowns_running,
            shootdowns_sent: counters.shootdowns_sent,
            shootdowns_received: counters.shootdowns_received,
            switches: counters.switches,
            zeroed_bytes: stats.bytes_zeroed,
            copied_bytes: stats.bytes_copied + copied,
            // A superpage that a fault makes at once costs the same as any other mapping.
            promotions: stats.promotions.iter().sum::<u64>() - stats.promotions_at_fault,
            demotions: stats.demotions.iter().sum(),
            preemptions: stats.reservations_preempted,
            scanned: stats.daemon_scanned + stats.background_scanned,
            digests: stats.pages_hashed - idle,
            remaps: counters.remaps,
        }
    }

    /// This effort without bytes that a kernel model zeroed and copied by accesses.
    pub(crate) fn without(self, (zeroed, copied): (u64, u64)) -> Effort {
        Effort {
            zeroed_bytes: self.zeroed_bytes.saturating_sub(zeroed),
            copied_bytes: self.copied_bytes.saturating_sub(copied),
            ..self
        }
    }

    /// The cycles of this work, where another core does it, that the program pays: it is
    /// interrupted by shootdowns, on each core that runs it.
    pub(crate) fn interrupts(&self, machine: &Machine) -> u64 {
        let costs = &machine.costs;
        self.shootdowns_running * costs.shootdown + self.shootdowns_received * costs.shootdown_receive
    }

    /// The times that it held what faults wait for: promotions and demotions, one after the other.
    pub(crate) fn holds(&self) -> u64 {
        self.promotions + self.demotions
    }

    /// The work by purpose, in cycles of this machine; `digest` is the cost of one digest. With
    /// `modelled`, faults and switches are left out: the kernel model charges them.
    pub(crate) fn on(&self, machine: &Machine, digest: u64, modelled: bool) -> KernelCycles {
        let costs = &machine.costs;
        if modelled {
            let others = Effort { faults: 0, switches: 0, ..*self };
            return others.on(machine, digest, false);
        }
        let kilobytes = |bytes: u64| bytes.div_ceil(1024);
        KernelCycles {
            fault: self.faults * costs.fault
                + machine.use_traps(self.use_bits, self.use_bit_entries)
                + self.pte_writes * costs.pte_write
                + self.shootdowns * costs.shootdown
                + self.shootdowns_sent * costs.shootdown_send
                + self.shootdowns_received * costs.shootdown_receive
                + self.switches * costs.switch,
            zero: kilobytes(self.zeroed_bytes) * costs.zero_per_kb,
            copy: kilobytes(self.copied_bytes) * costs.copy_per_kb,
            promotion: self.pte_traversals * costs.pte_traversal
                + self.promotions * costs.promotion
                + self.demotions * costs.demotion
                + self.preemptions * costs.preemption
                + machine.remap_cycles(&self.remaps),
            background: self.scanned * costs.daemon_page + self.digests * digest,
        }
    }
}

/// The kernel's work by purpose, in cycles of a machine, without the disk's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct KernelCycles {
    /// Faults, traps that set use bits, page-table entries written, shootdowns, switches.
    pub(crate) fault: u64,
    pub(crate) zero: u64,
    pub(crate) copy: u64,
    /// What only superpages cause: promotions, demotions, preemptions, traversals of replicated
    /// entries, and what shadow superpages cost. What it would cost a program that has no benefit
    /// from them (Navarro et al., section 6.6, "Overhead in practice").
    pub(crate) promotion: u64,
    /// Pages that the daemon sampled or the background of a policy looked at, and digests.
    pub(crate) background: u64,
}

impl KernelCycles {
    pub(crate) fn total(&self) -> u64 {
        self.locked() + self.background
    }

    /// Without what only looks.
    pub(crate) fn locked(&self) -> u64 {
        self.fault + self.zero + self.copy + self.promotion
    }
}
