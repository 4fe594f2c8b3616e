//! How long faults take, in modelled time: for each machine counts by latency and kind of fault.
//!
//! What a fault costs is the difference of what the kernel has counted before and after it. Most
//! only map and zero, and are like the one before: these are counted, and recorded together; each
//! machine makes its own cycles of them.

use crate::cost::Effort;
use crate::disk::Disk;
use crate::simulation::Simulation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use superpage_keys::Keys;
use superpage_mmu::Machine;
use superpage_pages::{Counts, Level};
use superpage_vm::Fault;

/// What kinds of fault are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Base,
    Superpage,
    Compaction,
    Disk,
}

/// What a fault has done that only maps and zeroes: page-table entries written, and bytes zeroed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Plain {
    kind: Kind,
    writes: u64,
    zeroed: u64,
}

/// What was counted when the current fault began.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Page-table entries written, and bytes zeroed.
    begun: [u64; 2],
    /// All else that is counted, as a sum: none of it ever decreases, so it has not changed if the
    /// sum has not.
    rare: u64,
    /// The kernel's work when the sum was last another.
    work: Effort,
    waited: u64,
    compactions: u64,
    /// What the disk had transferred when its time was last looked at.
    transfers: u64,
    /// With a model of the kernel, or a host that faults too: the time.
    clock: u64,
    /// The last faults that were alike, and how many there were.
    last: Option<(Plain, u64)>,
}

/// The latencies of faults on one machine.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    kinds: [Latency; 4],
    /// The time of the disk when it was last looked at, in cycles.
    disk: u64,
}

/// Those of one kind, in cycles.
#[derive(Clone, Debug, Default)]
struct Latency {
    /// How many faults took how long, [`rounded`].
    counts: BTreeMap<u64, u64>,
    faults: u64,
    cycles: u64,
    longest: u64,
}

/// How long faults of one kind took. A latency is right to three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Keys)]
pub struct FaultTimes {
    /// Faults.
    #[key(count)]
    pub faults: u64,
    /// The exact sum of their latencies.
    #[key(count, "cycles")]
    pub cycles: u64,
    /// The median.
    #[key(state, "cycles")]
    pub p50: u64,
    /// The 99th percentile.
    #[key(state, "cycles")]
    pub p99: u64,
    /// The 99.9th percentile.
    #[key(state, "cycles")]
    pub p999: u64,
    /// The longest.
    #[key(state, "cycles")]
    pub max: u64,
}

/// How long faults took, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Keys)]
pub struct FaultLatency {
    /// Those after which a base page mapped the address.
    #[key(state)]
    pub base_page: FaultTimes,
    /// Those after which a superpage did, which most of them made.
    #[key(state)]
    pub superpage: FaultTimes,
    /// Those that compacted an extent first, whatever mapped the address then, and did not wait for
    /// the disk.
    #[key(state)]
    pub compaction: FaultTimes,
    /// Those that waited for the disk.
    #[key(state)]
    pub disk: FaultTimes,
}

/// Rounds up to the largest number with the same eleven leading bits: three digits.
fn rounded(cycles: u64) -> u64 {
    let further = (u64::BITS - cycles.leading_zeros()).saturating_sub(11);
    cycles | ((1 << further) - 1)
}

impl Latency {
    fn record(&mut self, cycles: u64, times: u64) {
        *self.counts.entry(rounded(cycles)).or_default() += times;
        self.faults += times;
        self.cycles += cycles * times;
        self.longest = self.longest.max(cycles);
    }

    fn add(&mut self, more: &Latency) {
        more.counts.iter().for_each(|(cycles, times)| *self.counts.entry(*cycles).or_default() += times);
        self.faults += more.faults;
        self.cycles += more.cycles;
        self.longest = self.longest.max(more.longest);
    }

    /// How long this share of the faults took at most.
    fn at(&self, share: f64) -> u64 {
        let (faults, mut passed) = (((share * self.faults as f64).ceil() as u64).max(1), 0);
        let reaches = |(_, times): &(&u64, &u64)| {
            passed += **times;
            passed >= faults
        };
        self.counts.iter().find(reaches).map_or(0, |(cycles, _)| self.longest.min(*cycles))
    }

    fn times(&self) -> FaultTimes {
        let Latency { faults, cycles, longest: max, .. } = *self;
        FaultTimes { faults, cycles, p50: self.at(0.5), p99: self.at(0.99), p999: self.at(0.999), max }
    }
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies { kinds: std::array::from_fn(|_| Latency::default()), disk: 0 }
    }

    /// The time of the disk since it was last looked at.
    fn disk_since(&mut self, disk: &Disk, machine: &Machine) -> u64 {
        let now = disk.cycles(machine);
        now - std::mem::replace(&mut self.disk, now)
    }

    /// Begins anew.
    pub(crate) fn restart(&mut self) {
        *self = Latencies { disk: self.disk, ..Latencies::new() };
    }

    /// Puts those of an earlier part of the stream to these.
    pub(crate) fn add(&mut self, before: &Latencies) {
        self.kinds.iter_mut().zip(&before.kinds).for_each(|(kind, more)| kind.add(more));
    }

    /// Of all kinds together.
    pub(crate) fn all(&self) -> FaultTimes {
        let mut all = self.kinds[0].clone();
        self.kinds[1..].iter().for_each(|kind| all.add(kind));
        all.times()
    }

    pub(crate) fn by_kind(&self) -> FaultLatency {
        let [base_page, superpage, compaction, disk] = [0, 1, 2, 3].map(|kind| self.kinds[kind].times());
        FaultLatency { base_page, superpage, compaction, disk }
    }
}

impl Simulation {
    /// Whether more than the kernel's counts says how long a fault takes; then there is one
    /// machine.
    fn times_faults(&self) -> bool {
        self.footprint.is_some() || self.host.is_some()
    }

    /// What faults change always, and the sum of what they seldom change.
    #[inline]
    fn fault_counts(&self) -> ([u64; 2], u64) {
        let (stats, [writes, traversals, shootdowns]) = (self.vm.counts(), self.mmu.changes());
        let rare = traversals
            + shootdowns
            + stats.bytes_copied
            + stats.reservations_preempted
            + stats.daemon_scanned
            + stats.pages_hashed
            + stats.compactions
            + self.counted.copied_bytes
            + self.work.waited
            + self.disk.transfers();
        ([writes, stats.bytes_zeroed], rare)
    }

    /// A trap begins.
    #[inline]
    pub(crate) fn begin_fault(&mut self) {
        let (begun, rare) = self.fault_counts();
        self.faults.begun = begun;
        if rare != self.faults.rare || self.times_faults() {
            self.see(rare);
        }
    }

    /// A fault that this trap was has been resolved.
    #[inline]
    pub(crate) fn end_fault(&mut self, fault: &Fault) {
        let ([writes, zeroed], rare) = self.fault_counts();
        let kind = if fault.mapped == Level::BASE { Kind::Base } else { Kind::Superpage };
        let done = Plain { kind, writes: writes - self.faults.begun[0], zeroed: zeroed - self.faults.begun[1] };
        let plain = rare == self.faults.rare && !self.times_faults();
        match &mut self.faults.last {
            Some((last, times)) if plain && *last == done => *times += 1,
            _ => self.record_other(done, (!plain).then_some(rare)),
        }
        self.faults.begun = [writes, zeroed];
    }

    /// Records a fault unlike those before. A plain one starts a new count; otherwise `rare` is the
    /// new sum of rare counts, and the fault is recorded at once.
    #[inline(never)]
    fn record_other(&mut self, done: Plain, rare: Option<u64>) {
        let Some(rare) = rare else {
            self.record_faults();
            self.faults.last = Some((done, 1));
            return;
        };
        let before = (self.faults.work, self.faults.waited, self.faults.clock);
        let compactions = self.faults.compactions;
        let moved = self.disk_moved();
        self.see(rare);
        let work = self.faults.work.since(&before.0).of_fault(done.writes, done.zeroed);
        let (waited, clocked) = (self.faults.waited - before.1, self.times_faults());
        for member in &mut self.members {
            let disk = match moved {
                true => member.latencies.disk_since(&self.disk, &member.setup.machine),
                false => 0,
            };
            let cycles = match clocked {
                true => self.faults.clock - before.2,
                false => member.kernel(&work).total() + waited + disk,
            };
            let kind = match disk {
                0 if self.faults.compactions > compactions => Kind::Compaction,
                0 => done.kind,
                _ => Kind::Disk,
            };
            member.latencies.kinds[kind as usize].record(cycles, 1);
        }
    }

    /// Records what waits to be recorded.
    pub(crate) fn record_faults(&mut self) {
        if let Some((Plain { kind, writes, zeroed }, times)) = self.faults.last.take() {
            let work = Effort::default().of_fault(writes, zeroed);
            for member in &mut self.members {
                let cycles = member.kernel(&work).total();
                member.latencies.kinds[kind as usize].record(cycles, times);
            }
        }
    }

    /// Whether the disk took time since its time was last looked at, which the caller does now.
    fn disk_moved(&mut self) -> bool {
        let now = self.disk.transfers();
        now != std::mem::replace(&mut self.faults.transfers, now)
    }

    /// Notes what has been counted until now.
    #[cold]
    fn see(&mut self, rare: u64) {
        (self.faults.rare, self.faults.work, self.faults.waited) = (rare, self.effort(), self.work.waited);
        self.faults.compactions = self.vm.counts().compactions;
        if self.disk_moved() {
            for member in &mut self.members {
                member.latencies.disk_since(&self.disk, &member.setup.machine);
            }
        }
        if self.times_faults() {
            self.faults.clock = self.clock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_right_to_three_digits() {
        for cycles in [0, 1, 2047, 2048, 123_456_789, u64::MAX] {
            let more = rounded(cycles) - cycles;
            assert!(more <= cycles / 1000, "{cycles} and {more}");
            assert_eq!(rounded(rounded(cycles)), rounded(cycles));
        }
        assert_eq!([2047, 2048, 4096, 4099].map(rounded), [2047, 2049, 4099, 4099]);
    }

    #[test]
    fn shares_of_faults_are_counted_in_the_order_of_latencies() {
        let mut latency = Latency::default();
        assert_eq!(latency.times(), FaultTimes::default());
        latency.record(70, 980);
        latency.record(5000, 1);
        let mut more = Latency::default();
        more.record(9, 10);
        more.record(300, 9);
        latency.add(&more);
        let (faults, cycles) = (1000, 70 * 980 + 5000 + 9 * 10 + 300 * 9);
        assert_eq!(latency.times(), FaultTimes { faults, cycles, p50: 70, p99: 70, p999: 300, max: 5000 });
    }
}
