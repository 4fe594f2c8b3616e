//! How long faults take, in modelled time: for each machine a histogram by kind of fault.
//!
//! What a fault costs is the difference of what the kernel has counted before and after it. Most faults differ in nothing, so those that are
//! alike and follow each other are recorded together, and each machine makes its own cycles of them.

use crate::cost::{Effort, FaultCounts};
use crate::group::Member;
use crate::simulation::Simulation;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use superpage_keys::Keys;
use superpage_pages::Level;
use superpage_vm::Fault;

/// What kinds of fault are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Base,
    Superpage,
    Disk,
}

/// Faults that are alike.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Alike {
    kind: Kind,
    done: FaultCounts,
    /// Promotions that are paid for, and demotions.
    changes: (u64, u64),
}

/// What was counted when the last fault was over, or the current one began.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    seen: FaultCounts,
    changes: (u64, u64),
    /// What the disk had done then.
    transfers: u64,
    /// With a model of the kernel, or a host that faults too: the time then.
    clock: u64,
    /// The last faults, and how many there were.
    last: Option<(Alike, u64)>,
}

/// The latencies of faults on one machine.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    kinds: [Latency; 3],
    /// The time of the disk when it was last looked at, in cycles.
    disk: u64,
}

/// Those of one kind, in cycles.
#[derive(Clone, Debug)]
struct Latency {
    histogram: Histogram<u64>,
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
    /// Those that waited for the disk.
    #[key(state)]
    pub disk: FaultTimes,
}

impl Latency {
    fn new() -> Latency {
        Latency { histogram: Histogram::new(3).expect("three digits are allowed"), cycles: 0, longest: 0 }
    }

    fn record(&mut self, cycles: u64, times: u64) {
        self.histogram.record_n(cycles, times).expect("a histogram that grows");
        self.cycles += cycles * times;
        self.longest = self.longest.max(cycles);
    }

    fn add(&mut self, more: &Latency) {
        self.histogram.add(&more.histogram).expect("a histogram that grows");
        self.cycles += more.cycles;
        self.longest = self.longest.max(more.longest);
    }

    fn times(&self) -> FaultTimes {
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.longest);
        let faults = self.histogram.len();
        FaultTimes { faults, cycles: self.cycles, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: self.longest }
    }
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies { kinds: std::array::from_fn(|_| Latency::new()), disk: 0 }
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
        let [base_page, superpage, disk] = [0, 1, 2].map(|kind| self.kinds[kind].times());
        FaultLatency { base_page, superpage, disk }
    }
}

impl Simulation {
    /// Whether more than the kernel's counts says how long a fault takes; then there is one machine.
    fn times_faults(&self) -> bool {
        self.footprint.is_some() || self.host.is_some()
    }

    fn fault_counts(&self) -> FaultCounts {
        FaultCounts::new(self.mmu.changes(), self.vm.counts(), self.counted.copied_bytes, self.work.waited)
    }

    /// A trap begins.
    #[inline]
    pub(crate) fn begin_fault(&mut self) {
        let now = self.fault_counts();
        if !now.may_share_changes(&self.faults.seen) {
            self.faults.changes = Effort::changes(self.vm.counts());
        }
        self.faults.seen = now;
        if self.disk.transfers() != self.faults.transfers {
            self.see_disk();
        }
        if self.times_faults() {
            self.faults.clock = self.clock();
        }
    }

    /// A fault that this trap was has been resolved.
    #[inline]
    pub(crate) fn end_fault(&mut self, fault: &Fault) {
        let now = self.fault_counts();
        let done = now.since(&self.faults.seen);
        let before = self.faults.changes;
        if !now.may_share_changes(&self.faults.seen) {
            self.faults.changes = Effort::changes(self.vm.counts());
        }
        self.faults.seen = now;
        let changes = (self.faults.changes.0 - before.0, self.faults.changes.1 - before.1);
        let waited = self.disk.transfers() != self.faults.transfers;
        let kind = match fault.mapped {
            _ if waited => Kind::Disk,
            Level::BASE => Kind::Base,
            _ => Kind::Superpage,
        };
        let alike = Alike { kind, done, changes };
        match &mut self.faults.last {
            Some((last, times)) if *last == alike && kind != Kind::Disk => *times += 1,
            _ => self.record_other(alike),
        }
        if self.times_faults() {
            // Not what its counts say.
            self.faults.last = None;
            let now = self.clock();
            let cycles = now - std::mem::replace(&mut self.faults.clock, now);
            self.members[0].latencies.kinds[kind as usize].record(cycles, 1);
        }
    }

    /// Records those before, and begins with one that is not like them.
    #[inline(never)]
    fn record_other(&mut self, alike: Alike) {
        self.record_faults();
        if alike.kind != Kind::Disk || self.times_faults() {
            self.faults.last = Some((alike, 1));
            return;
        }
        let before: Vec<u64> = self.members.iter().map(|member| member.latencies.disk).collect();
        self.see_disk();
        for (member, before) in self.members.iter_mut().zip(before) {
            let cycles = cost(member, &alike) + member.latencies.disk - before;
            member.latencies.kinds[Kind::Disk as usize].record(cycles, 1);
        }
        self.faults.last = None;
    }

    /// Puts what waits to be recorded into the histograms.
    pub(crate) fn record_faults(&mut self) {
        if let Some((alike, times)) = self.faults.last.take() {
            for member in &mut self.members {
                let cycles = cost(member, &alike);
                member.latencies.kinds[alike.kind as usize].record(cycles, times);
            }
        }
    }

    fn see_disk(&mut self) {
        self.faults.transfers = self.disk.transfers();
        for member in &mut self.members {
            member.latencies.disk = self.disk.cycles(&member.setup.machine);
        }
    }
}

/// The cycles of a fault on this machine, without the disk's.
fn cost(member: &Member, Alike { done, changes, .. }: &Alike) -> u64 {
    member.kernel(&Effort::of_fault(done, *changes)).total() + done.waited()
}
