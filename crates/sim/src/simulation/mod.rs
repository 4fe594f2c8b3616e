//! One simulation of a grid: a machine with a kernel on it, or several on which it does the same,
//! driven by the stream.

mod events;
mod looks;
mod observed;
mod record;

use self::looks::Looks;
use self::record::Record;
use crate::clock::Clock;
use crate::error::Problem;
use crate::hardware::{Hardware, Member};
use crate::host::Host;
use crate::kernel::{Hold, Kernel};
use crate::noted::Noted;
use crate::one_kernel::asks_the_machine;
use crate::room::Guard;
use crate::stream::{Asked, Mark, Piece, Stretch};
use crate::{BackgroundOn, Error, Every, Setup, Watch};
use std::sync::atomic::AtomicBool;
use superpage_mmu::Mmu;
use superpage_trace::{Event, Info};

/// Traps, or requests made one by one, after which memory is looked at: what they allocate is far
/// less than what the guard leaves free.
const TRAPS: usize = 64;

/// A kernel, and the machines on which it does the same, in the middle of a stream.
pub(crate) struct Simulation {
    hardware: Hardware,
    kernel: Kernel,
    clock: Clock,
    noted: Noted,
    looks: Looks,
    record: Record,
}

impl Simulation {
    /// The simulation of a group of setups, given with their places in the grid: one kernel for
    /// all.
    pub(crate) fn new(group: &[(usize, &Setup)], info: &Info, watch: &Watch) -> Result<Simulation, Error> {
        let setup = group[0].1;
        let cannot = |error: superpage_vm::Error| Error::Usage(format!("machine {}: {error}", setup.machine.name));
        let machines: Vec<_> = group.iter().map(|(_, setup)| setup.machine.as_ref()).collect();
        let mut mmu = if info.cores * info.siblings > 1 { Mmu::on_cores(&machines) } else { Mmu::of(&machines) };
        if !asks_the_machine(setup) && watch.every.is_none() {
            mmu.defer();
        }
        let members = group.iter().enumerate().map(|(number, (place, setup))| Member::new(*place, number, setup));
        let mut hardware = Hardware::new(mmu, members.collect());
        hardware.batches = info.cores > 0 && machines.iter().all(|machine| Mmu::refuses_cores(machine).is_none());
        let kernel = Kernel::new(&mut hardware, info).map_err(cannot)?;
        let at_time = kernel.goes_by_time() || matches!(watch.every, Some(Every::Seconds(_)));
        let mut simulation = Simulation {
            hardware,
            kernel,
            clock: Clock::new(info),
            noted: Noted::new(watch, group.len()),
            looks: Looks::new(at_time),
            record: Record::new(group.len()),
        };
        simulation.run_due();
        Ok(simulation)
    }

    /// Simulates one piece of the stream. `stop` ends idle time within it, and all that would come
    /// after that.
    pub(crate) fn step(&mut self, piece: &Piece, stop: &AtomicBool, guard: &Guard) {
        let base_shift = self.hardware.setup().ladder.base().shift();
        let requests = piece.requests(base_shift);
        let runs = |stretch: &Stretch| &piece.batch.runs[stretch.start..stretch.end];
        for (index, stretch) in piece.stretches.iter().enumerate() {
            if self.noted.outcome.failed.is_some() || self.noted.outcome.stopped || guard.is_short() {
                return;
            }
            let asked = requests.stretch(index, runs(stretch));
            let end = asked.requests.len();
            self.hardware.begin(stretch.role, self.clock.info.sampling);
            if !self.kernel.processes.dead {
                let mut done = stretch.done;
                let touched = requests.touched(index, 0, &self.kernel.processes.ended);
                self.clock.averages.begin(touched, self.clock.passed());
                self.looks.begin();
                let made = self.requests(asked, &|| guard.is_short());
                if let Err((request, _)) = &made {
                    done = piece.until(base_shift, index, *request);
                }
                self.clock.count(&done);
                let reached = made.as_ref().map_or_else(|(request, _)| *request, |()| end);
                if let Some(place) = asked.part(reached..end).place {
                    self.clock.averages.reach_end(&self.kernel.vm, place, self.clock.passed());
                }
                if let Err((request, problem)) = made {
                    let touched = requests.touched(index, request, &self.kernel.processes.ended);
                    self.noted.note_touched(touched, &self.kernel.vm);
                    self.noted.leave_peak(&self.hardware, &self.kernel.vm);
                    self.give_up(problem);
                }
            }
            if stretch.done.accesses > 0 {
                self.clock.counted.threads.access();
            }
            self.noted.note_touched(requests.touched(index, end, &self.kernel.processes.ended), &self.kernel.vm);
            self.clock.averages.begin(self.noted.touched.now, self.clock.passed());
            match stretch.mark {
                Some(Mark::Event(event)) => {
                    let event = &piece.batch.events[event].1;
                    self.clock.counted.threads.event(event);
                    // What the next piece begins with is not known yet.
                    let follows = index + 1 < piece.stretches.len();
                    let after = |done, kernel: &Kernel| requests.touched(index + 1, done, &kernel.processes.ended);
                    if self.noted.watch.contiguity && (!follows || after(0, &self.kernel) < self.noted.touched.now) {
                        self.noted.leave_peak(&self.hardware, &self.kernel.vm);
                    }
                    let said = self.said(event);
                    if matches!(event, Event::Exit) {
                        self.sample(None);
                    }
                    if let Err(problem) = self.observed_event(event, stop) {
                        self.give_up(problem);
                    }
                    // Without what was unmapped, or its process had alone.
                    if follows {
                        // What a process touches after it was killed is in no count.
                        let done = if self.kernel.processes.dead { usize::MAX } else { 0 };
                        self.noted.touched.now = after(done, &self.kernel);
                        self.clock.averages.begin(self.noted.touched.now, self.clock.passed());
                    }
                    if said.is_some() {
                        self.sample(said);
                    }
                }
                Some(Mark::Window(window)) => {
                    let superpages = self.kernel.vm.stats().mapped[1..].iter().any(|pages| *pages > 0);
                    self.hardware.turn(window, self.clock.counted.accesses, superpages);
                }
                None => {}
            }
            self.looks.end(end);
            match stretch.mark {
                Some(_) => self.run_due(),
                // Where a block ends is nothing to go by.
                None if self.looks.at_time => {}
                None => self.sample_if_due(),
            }
            if let Err(problem) = self.kernel.back_guest(&mut self.hardware) {
                self.give_up(problem);
            }
        }
    }

    /// The text of a sample that is taken at this event; `None` if none is.
    fn said(&self, event: &Event) -> Option<String> {
        match event {
            Event::Mark(name) => Some(name.clone()),
            Event::Exit => self.kernel.processes.current.map(|process| format!("process {} ends", process.0)),
            _ => None,
        }
    }

    /// Makes the requests, as long as memory is not short, which nothing is counted after; on
    /// failure returns which one could not be made, and why.
    fn requests(&mut self, asked: Asked<'_>, is_short: &dyn Fn() -> bool) -> Result<(), (usize, Problem)> {
        if self.kernel.vm.wants_misses() || self.kernel.misses.is_some() {
            return self.requests_telling(asked, is_short);
        }
        let (mut at, end, mut traps) = (0, asked.requests.len(), 0);
        loop {
            let stop = self.next_look(asked, at);
            let trapped = asked.part(at..stop).run(&mut self.hardware.mmu);
            let made = trapped.map_or(stop, |(index, _)| at + index);
            self.kernel.note_writes(&self.hardware.mmu, &asked.requests[at..made]);
            at = made;
            if trapped.is_some() {
                self.trap(asked.part(at..at + 1)).map_err(|problem| (at, problem))?;
                at += 1;
                self.run_due();
                self.kernel.back_guest(&mut self.hardware).map_err(|problem| (at - 1, problem))?;
                traps += 1;
                if traps % TRAPS == 0 && is_short() {
                    return Ok(());
                }
            } else if at == end {
                return Ok(());
            }
        }
    }

    /// As [`Simulation::requests`], one by one: each miss is counted by region, or the policy wants
    /// to know of it.
    fn requests_telling(&mut self, asked: Asked<'_>, is_short: &dyn Fn() -> bool) -> Result<(), (usize, Problem)> {
        for (at, request) in asked.requests.iter().enumerate() {
            if at % TRAPS == 0 && is_short() {
                return Ok(());
            }
            self.next_look(asked, at);
            let number = self.hardware.only().number;
            let before = self.hardware.mmu.misses(number);
            let one = asked.part(at..at + 1);
            match one.run(&mut self.hardware.mmu) {
                Some(_) => self.trap(one).map_err(|problem| (at, problem))?,
                None => self.kernel.note_writes(&self.hardware.mmu, one.requests),
            }
            if self.hardware.mmu.misses(number) > before {
                let Simulation { hardware, kernel: Kernel { vm, work, processes, misses, .. }, .. } = self;
                let is_mapped = || hardware.mmu.lookup(processes.space.0, request.page()).is_some();
                misses.iter_mut().filter(|_| is_mapped()).for_each(|misses| misses.missed(request.page()));
                let around = || hardware.mmu.held_around(number, request.page());
                let neighbour = vm.wants_neighbours().then(around).flatten();
                vm.missed(hardware, processes.space, request.page(), neighbour);
                work.waited += vm.miss_cycles();
                one.place.into_iter().for_each(|place| self.clock.averages.reach(&self.kernel.vm, place));
                self.run_due();
                self.kernel.back_guest(&mut self.hardware).map_err(|problem| (at, problem))?;
            }
        }
        Ok(())
    }

    /// Handles a trap until the access succeeds, as a processor would retry it.
    fn trap(&mut self, asked: Asked<'_>) -> Result<(), Problem> {
        let trapped = self.resolve(asked);
        self.show();
        trapped
    }

    fn resolve(&mut self, asked: Asked<'_>) -> Result<(), Problem> {
        let Simulation { hardware, kernel, clock, noted, .. } = self;
        let request = asked.requests[0];
        asked.place.into_iter().for_each(|place| clock.averages.reach(&kernel.vm, place));
        kernel.model(hardware).into_iter().for_each(|(model, mut at)| model.fault(&mut at));
        noted.faults.begin(hardware, kernel, clock);
        kernel.wait_for_background(|kernel| clock.elapsed(hardware, kernel));
        // What the fault has mapped lets the access through, at last after a few.
        for _ in 0..4 {
            let fault = kernel.fault(hardware, request.page(), request.access())?;
            if let Some(model) = &mut kernel.modelled {
                model.filled(&mut hardware.mmu, fault.frame.0, fault.source.map(|source| source.0), fault.zeroed);
                kernel.wait_for_disk(hardware);
            }
            kernel.back_guest(hardware)?;
            noted.faults.end(&fault, hardware, kernel, clock);
            if asked.retry(&mut hardware.mmu).is_ok() {
                kernel.note_writes(&hardware.mmu, &[request]);
                kernel.daemon(hardware);
                return Ok(());
            }
        }
        Err(Problem::traps_again(request.page()))
    }

    /// The modelled time so far on the only machine, idle time included: that of its busiest core.
    fn seconds(&self) -> f64 {
        self.clock.elapsed_seconds(&self.hardware, &self.kernel, self.hardware.only())
    }

    /// Modelled time on the policy's clock.
    fn policy_time(&self) -> u64 {
        self.hardware.setup().time_scale.nanoseconds(self.seconds())
    }

    /// Calls the background of the policy, and takes a sample, if one is due.
    #[inline]
    fn run_due(&mut self) {
        if self.kernel.vm.has_background() {
            self.run_background();
        }
        if self.kernel.host.as_ref().is_some_and(Host::has_background) {
            self.run_host_background();
        }
        self.sample_if_due();
    }

    /// Calls the policy's background if it is due. The clock is the machine's modelled time.
    fn run_background(&mut self) {
        let now = self.policy_time();
        let Simulation { hardware, kernel, clock, noted, .. } = self;
        // An estimate of a sampled stream may go back; time does not.
        if kernel.work.due(&kernel.vm).is_none_or(|due| now < due) {
            return;
        }
        let work = kernel.advance(hardware, now);
        let (member, Setup { machine, time_scale, background, name, .. }) = (hardware.only(), hardware.setup());
        if *background == BackgroundOn::Core {
            let (cost, holds) = (member.kernel_cycles(&work), work.holds());
            kernel.work.background_free += time_scale.nanoseconds(cost.total() as f64 / machine.clock.hertz as f64);
            if let Some(each @ 1..) = cost.locked().checked_div(holds) {
                // It looks first.
                let until = clock.elapsed(hardware, kernel) + cost.total();
                kernel.work.hold = Some(Hold { from: until - holds * each, until, each });
            }
        }
        if let Some(problem) = kernel.vm.background_failed() {
            noted.outcome.fail(format!("policy {name}: {problem}"));
        }
        self.show();
    }

    /// Calls the background of the host's policy.
    fn run_host_background(&mut self) {
        let now = self.policy_time();
        let Setup { machine, background, time_scale, .. } = &self.hardware.members[0].setup;
        if let Some(host) = &mut self.kernel.host {
            host.advance(&mut self.hardware.mmu, machine, (*background, *time_scale), now);
        }
    }
}
