//! How long faults take, in modelled time: for each machine counts by latency and kind of fault.

use crate::disk::Disk;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use superpage_keys::Keys;
use superpage_mmu::Machine;

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Base,
    Superpage,
    Compaction,
    Disk,
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

    /// Records a fault.
    pub(crate) fn record(&mut self, kind: Kind, cycles: u64, times: u64) {
        self.kinds[kind as usize].record(cycles, times);
    }

    /// The time of the disk since it was last looked at.
    pub(crate) fn disk_since(&mut self, disk: &Disk, machine: &Machine) -> u64 {
        let now = disk.cycles(machine);
        now - std::mem::replace(&mut self.disk, now)
    }

    /// Resets the counts.
    pub(crate) fn restart(&mut self) {
        *self = Latencies { disk: self.disk, ..Latencies::new() };
    }

    /// Adds the latencies of an earlier part of the stream.
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
