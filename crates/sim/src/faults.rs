//! What faults cost: the difference of what the kernel has counted before and after each. Most only
//! map and zero, and are like the one before: these are counted, and recorded together; each
//! machine makes its own cycles of them.

use crate::clock::Clock;
use crate::cost::Effort;
use crate::hardware::Hardware;
use crate::kernel::Kernel;
use crate::latency::{Kind, Latencies};
use superpage_pages::{Counts, Level};
use superpage_vm::Fault;

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
    /// How long faults took on each machine since the current part began, or the stream.
    latencies: Vec<Latencies>,
    /// The same before that; empty if there is no part.
    earlier: Vec<Latencies>,
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

/// Whether more than the kernel's counts says how long a fault takes; then there is one machine.
fn is_clocked(kernel: &Kernel) -> bool {
    kernel.modelled.is_some() || kernel.host.is_some()
}

/// What faults change always, and the sum of what they seldom change.
#[inline]
fn counts(hardware: &Hardware, kernel: &Kernel) -> ([u64; 2], u64) {
    let (stats, [writes, traversals, shootdowns]) = (kernel.vm.counts(), hardware.mmu.changes());
    let rare = traversals
        + shootdowns
        + stats.bytes_copied
        + stats.reservations_preempted
        + stats.daemon_scanned
        + stats.pages_hashed
        + stats.compactions
        + kernel.work.copied_bytes
        + kernel.work.waited
        + kernel.disk.transfers();
    ([writes, stats.bytes_zeroed], rare)
}

impl Faults {
    /// The faults on `machines` machines.
    pub(crate) fn new(machines: usize) -> Faults {
        Faults { latencies: vec![Latencies::new(); machines], ..Faults::default() }
    }

    /// A trap begins.
    #[inline]
    pub(crate) fn begin(&mut self, hardware: &Hardware, kernel: &Kernel, clock: &Clock) {
        let (begun, rare) = counts(hardware, kernel);
        self.begun = begun;
        if rare != self.rare || is_clocked(kernel) {
            self.see((hardware, kernel, clock), rare);
        }
    }

    /// A fault that this trap was has been resolved.
    #[inline]
    pub(crate) fn end(&mut self, fault: &Fault, hardware: &Hardware, kernel: &Kernel, clock: &Clock) {
        let ([writes, zeroed], rare) = counts(hardware, kernel);
        let kind = if fault.mapped == Level::BASE { Kind::Base } else { Kind::Superpage };
        let done = Plain { kind, writes: writes - self.begun[0], zeroed: zeroed - self.begun[1] };
        let plain = rare == self.rare && !is_clocked(kernel);
        match &mut self.last {
            Some((last, times)) if plain && *last == done => *times += 1,
            _ if plain => {
                self.record(hardware);
                self.last = Some((done, 1));
            }
            _ => self.record_other(done, (hardware, kernel, clock), rare),
        }
        self.begun = [writes, zeroed];
    }

    /// Records a fault that did more than map and zero; `rare` is the new sum of what it did.
    #[inline(never)]
    fn record_other(&mut self, done: Plain, now: (&Hardware, &Kernel, &Clock), rare: u64) {
        let (hardware, kernel, _) = now;
        let (before, waited, clock, compactions) = (self.work, self.waited, self.clock, self.compactions);
        let moved = self.disk_moved(kernel);
        self.see(now, rare);
        let work = self.work.since(&before).of_fault(done.writes, done.zeroed);
        for (member, latencies) in hardware.members.iter().zip(&mut self.latencies) {
            let disk = if moved { latencies.disk_since(&kernel.disk, &member.setup.machine) } else { 0 };
            let cycles = if is_clocked(kernel) {
                self.clock - clock
            } else {
                member.kernel_cycles(&work).total() + self.waited - waited + disk
            };
            let kind = match disk {
                0 if self.compactions > compactions => Kind::Compaction,
                0 => done.kind,
                _ => Kind::Disk,
            };
            latencies.record(kind, cycles, 1);
        }
    }

    /// Records what waits to be recorded.
    #[inline(never)]
    pub(crate) fn record(&mut self, hardware: &Hardware) {
        if let Some((Plain { kind, writes, zeroed }, times)) = self.last.take() {
            let work = Effort::default().of_fault(writes, zeroed);
            for (member, latencies) in hardware.members.iter().zip(&mut self.latencies) {
                latencies.record(kind, member.kernel_cycles(&work).total(), times);
            }
        }
    }

    /// A part of the stream begins.
    pub(crate) fn begin_part(&mut self) {
        self.earlier = (0..self.latencies.len()).map(|number| self.all(number)).collect();
        self.latencies.iter_mut().for_each(Latencies::restart);
    }

    /// How long faults took on machine `number` in the current part of the stream.
    pub(crate) fn of_part(&self, number: usize) -> &Latencies {
        &self.latencies[number]
    }

    /// How long all faults took on machine `number` so far.
    pub(crate) fn all(&self, number: usize) -> Latencies {
        let mut all = self.latencies[number].clone();
        self.earlier.get(number).iter().for_each(|earlier| all.add(earlier));
        all
    }

    /// Whether the disk took time since its time was last looked at, which the caller does now.
    fn disk_moved(&mut self, kernel: &Kernel) -> bool {
        let now = kernel.disk.transfers();
        now != std::mem::replace(&mut self.transfers, now)
    }

    /// Notes what has been counted until now.
    #[cold]
    fn see(&mut self, (hardware, kernel, clock): (&Hardware, &Kernel, &Clock), rare: u64) {
        (self.rare, self.work, self.waited) = (rare, kernel.effort(hardware), kernel.work.waited);
        self.compactions = kernel.vm.counts().compactions;
        if self.disk_moved(kernel) {
            for (member, latencies) in hardware.members.iter().zip(&mut self.latencies) {
                latencies.disk_since(&kernel.disk, &member.setup.machine);
            }
        }
        if is_clocked(kernel) {
            self.clock = clock.now(hardware, kernel);
        }
    }
}
