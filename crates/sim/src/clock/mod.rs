//! How far the stream has come, and what time it is then on each machine.

mod average;

pub(crate) use self::average::{Averages, Integrals};

use crate::estimate::{Translated, Whole};
use crate::hardware::{Hardware, Member};
use crate::kernel::Kernel;
use crate::stream::{CoreUse, Counted, Done};
use superpage_mmu::Machine;
use superpage_trace::Info;

/// How far the stream has come.
pub(crate) struct Clock {
    pub(crate) info: Info,
    pub(crate) counted: Counted,
    pub(crate) averages: Averages,
}

impl Clock {
    /// At the beginning of a stream.
    pub(crate) fn new(info: &Info) -> Clock {
        let counted = Counted { cores: CoreUse::new(info), ..Counted::default() };
        Clock { info: info.clone(), counted, averages: Averages::default() }
    }

    /// Instructions of the stream before the current stretch, with those that a sample left out.
    pub(crate) fn passed(&self) -> u64 {
        self.counted.instructions + self.counted.skipped[1]
    }

    /// These runs have been made.
    pub(crate) fn count(&mut self, done: &Done) {
        self.counted.references += done.references;
        self.counted.instructions += done.instructions;
        self.counted.accesses += done.accesses;
        if done.accesses > 0 {
            self.counted.cores.pass(done);
        }
    }

    /// The instructions of the stretch that are over: they are counted when it ends.
    pub(crate) fn within(&self) -> u64 {
        self.averages.at.saturating_sub(self.passed())
    }

    /// The counts for the whole stream so far.
    pub(crate) fn whole(&self, member: &Member, translated: &Translated<'_>) -> Whole {
        let whole = member.windows.whole(&self.info, translated, &self.counted);
        Whole { instructions: whole.instructions + self.within(), ..whole }
    }

    /// The modelled time so far on a machine, in cycles.
    pub(crate) fn cycles(&self, hardware: &Hardware, kernel: &Kernel, member: &Member) -> u64 {
        let whole = self.whole(member, &member.translated(&hardware.mmu));
        whole.cycles(&member.setup.machine) + kernel.cycles(hardware, member)
    }

    /// The modelled time so far on a machine, in seconds, idle time included.
    pub(crate) fn seconds(&self, hardware: &Hardware, kernel: &Kernel, member: &Member) -> f64 {
        self.with_idle(self.cycles(hardware, kernel, member), &member.setup.machine)
    }

    /// The seconds that these cycles of a machine take, and all idle time.
    pub(crate) fn with_idle(&self, cycles: u64, machine: &Machine) -> f64 {
        cycles as f64 / machine.clock.hertz as f64 + self.counted.idle_microseconds as f64 / 1e6
    }

    /// As [`Clock::seconds`], of the core that has come farthest, if all cycles are shared as the
    /// instructions are.
    pub(crate) fn elapsed_seconds(&self, hardware: &Hardware, kernel: &Kernel, member: &Member) -> f64 {
        self.elapsed_of(self.cycles(hardware, kernel, member), &member.setup.machine)
    }

    /// As [`Clock::with_idle`], in the share of the core that has come farthest.
    pub(crate) fn elapsed_of(&self, cycles: u64, machine: &Machine) -> f64 {
        self.with_idle((cycles as f64 * self.counted.cores.busiest()) as u64, machine)
    }

    /// As [`Clock::now`], of the core that has come farthest.
    pub(crate) fn elapsed(&self, hardware: &Hardware, kernel: &Kernel) -> u64 {
        (self.cycles(hardware, kernel, hardware.only()) as f64 * self.counted.cores.busiest()) as u64
            + self.idle(hardware)
    }

    /// The time on the only machine in cycles, idle time included.
    pub(crate) fn now(&self, hardware: &Hardware, kernel: &Kernel) -> u64 {
        self.cycles(hardware, kernel, hardware.only()) + self.idle(hardware)
    }

    /// Idle time in cycles.
    fn idle(&self, hardware: &Hardware) -> u64 {
        let hertz = u128::from(hardware.setup().machine.clock.hertz);
        (u128::from(self.counted.idle_microseconds) * hertz / 1_000_000) as u64
    }
}
