//! The results of a simulation: rows of the whole and of its parts, and samples.

use super::Simulation;
use crate::clock::Integrals;
use crate::estimate::Evidence;
use crate::estimate::own_errors;
use crate::hardware::Member;
use crate::kernel::{Kernel, Peak};
use crate::sources::{Sources, bloat};
use crate::{Every, Part, PolicyResult, Row, Run, Sample, Seen};
use superpage_pages::Counts;
use superpage_trace::Info;

/// The most samples of a run: some 5 KB each, and as much again where they are written.
const MOST: usize = 100_000;

/// What a machine has come to: its row, and the evidence of its estimates.
type State = (Row, Option<Evidence>);

/// What was recorded so far.
pub(super) struct Record {
    /// The current part.
    part: Option<Open>,
    /// The parts that are over, for each machine.
    parts: Vec<Vec<Part>>,
    samples: Vec<Sample>,
    /// The time, or the number of instructions, from which the next sample is due.
    pub(super) due: f64,
}

/// The current part.
struct Open {
    name: String,
    /// On each machine, when it began, in modelled seconds, and the row then.
    begun: Vec<(f64, Row)>,
    /// The integrals over instructions when it began.
    integrals: Integrals,
}

impl Record {
    /// The record of `machines` machines.
    pub(super) fn new(machines: usize) -> Record {
        Record { part: None, parts: vec![Vec::new(); machines], samples: Vec::new(), due: 0.0 }
    }
}

impl Simulation {
    /// The state on a machine, from which a row is made.
    fn sources<'a>(&'a self, member: &'a Member) -> Sources<'a> {
        Sources::new(&self.hardware, &self.kernel, &self.clock, &self.noted, member)
    }

    /// The counts so far on a machine.
    fn row(&self, member: &Member) -> Row {
        Row::of(&self.sources(member)).rated().timed(&self.noted.faults.all(member.number))
    }

    /// Begins a part, and ends the current one. A sampled stream has none: estimates do not grow as
    /// counts do, so that a part has no difference of two.
    pub(super) fn mark(&mut self, name: &str) {
        if self.clock.info.sampling.is_some() {
            return;
        }
        self.kernel.disk.settle();
        self.close_part();
        self.noted.faults.record(&self.hardware);
        self.noted.begin_part(&mut self.hardware.mmu);
        self.kernel.peak = Some(Peak::default());
        self.kernel.note_peak();
        let state = |member| (self.clock.seconds(&self.hardware, &self.kernel, member), self.row(member));
        let begun = self.hardware.members.iter().map(state).collect();
        self.record.part = Some(Open { name: name.into(), begun, integrals: self.clock.averages.integrals });
    }

    fn close_part(&mut self) {
        self.kernel.note_peak();
        let (Some(part), Some(peak)) = (self.record.part.take(), self.kernel.peak.take()) else { return };
        self.noted.faults.record(&self.hardware);
        let ladder = self.kernel.vm.ladder();
        let base = ladder.base().bytes();
        let integrals = self.clock.averages.integrals.since(&part.integrals);
        let touched = self.noted.touched.peak_of_part.max(self.noted.touched.now);
        for (member, (start_seconds, before)) in self.hardware.members.iter().zip(part.begun) {
            let row = Row {
                peak_touched_bytes: touched * base,
                peak_resident_bytes: peak.resident_pages * base,
                page_table_bytes: self.hardware.mmu.peak_page_table_bytes(),
                bloat_percent: bloat(touched, peak.resident_pages),
                pages: peak.pages(ladder),
                contiguous_percent: None,
                mean_bloat_percent: integrals.bloat_percent(),
                mean_huge_percent: integrals.huge_percent(),
                ..self.row(member).part(&before).timed(self.noted.faults.of_part(member.number))
            };
            self.record.parts[member.number].push(Part { name: part.name.clone(), start_seconds, row });
        }
    }

    /// Ends all processes, checks that no frame is leaked, and returns the counts of each machine,
    /// with its place in the grid.
    pub(crate) fn finish(mut self, info: &Info, complete: bool) -> Vec<(usize, Run)> {
        self.clock.info = info.clone();
        self.kernel.disk.settle();
        self.close_part();
        self.noted.faults.record(&self.hardware);
        self.noted.leave_peak(&self.hardware, &self.kernel.vm);
        self.sample(Some("end".into()));
        let state = |member: &Member| {
            let translated = member.translated(&self.hardware.mmu);
            (self.row(member), member.windows.evidence(&self.clock.info, &translated, &self.clock.counted))
        };
        let left: Vec<State> = self.hardware.members.iter().map(state).collect();
        let Kernel { vm, disk, processes, .. } = &mut self.kernel;
        for space in processes.spaces.values() {
            if let Err(error) = vm.exit(&mut self.hardware, *space) {
                self.noted.outcome.fail(error);
            }
        }
        disk.settle();
        let frames_leaked = vm.leaked_frames();
        let policy_result = match PolicyResult::read(vm.background_result()) {
            Ok(result) => result,
            Err(problem) => {
                self.noted.outcome.fail(format!("policy {}: {problem}", self.hardware.setup().name));
                None
            }
        };
        self.show();
        let complete = complete && !self.noted.outcome.stopped;
        let by_time = self.kernel.goes_by_time();
        let parts = std::mem::take(&mut self.record.parts);
        let misses = self.kernel.misses.take();
        let run = |((member, mut parts), (left, evidence)): ((&Member, Vec<Part>), State)| {
            let mut row = Row {
                active_bytes: left.active_bytes,
                inactive_bytes: left.inactive_bytes,
                cache_bytes: left.cache_bytes,
                swap_used_bytes: left.swap_used_bytes,
                contiguity: left.contiguity,
                end_resident_bytes: left.end_resident_bytes,
                end_touched_bytes: left.end_touched_bytes,
                series: self.noted.watch.every.map(|_| self.record.samples.clone()),
                frames_leaked,
                policy_result: policy_result.clone(),
                // What was cut off has not ended.
                ..if info.cut { left } else { self.row(member) }
            };
            row.complete &= complete;
            own_errors(&mut row, evidence.as_ref().filter(|_| !by_time));
            for part in &mut parts {
                part.row.workload.clone_from(&row.workload);
            }
            if let Some(last) = parts.last_mut() {
                last.row.complete &= complete;
            }
            (member.place, Run { row, parts, evidence, misses: misses.clone() })
        };
        let mut runs: Vec<(usize, Run)> = self.hardware.members.iter().zip(parts).zip(left).map(run).collect();
        if let Some(mut host) = self.kernel.host.take() {
            let ended = host.end(&mut self.hardware.mmu);
            for (_, Run { row, .. }) in &mut runs {
                row.host_frames_leaked = *ended.as_ref().unwrap_or(&0);
                if let Err(error) = &ended {
                    row.error.get_or_insert(error.to_string());
                }
            }
        }
        runs
    }

    /// Keeps the state if it is time to.
    #[inline]
    pub(super) fn sample_if_due(&mut self) {
        if let Some(every) = self.noted.watch.every {
            self.sample_at(every);
        }
    }

    /// Modelled time until the next sample, in seconds, if samples go by time.
    pub(super) fn until_sample(&self) -> Option<f64> {
        match self.noted.watch.every {
            Some(Every::Seconds(_)) => Some(self.record.due - self.seconds()),
            _ => None,
        }
    }

    fn sample_at(&mut self, every: Every) {
        let (now, step) = self.at_moment(|simulation| match every {
            Every::Seconds(step) => (simulation.seconds(), step),
            Every::Instructions(step) => (simulation.clock.passed() as f64, step as f64),
        });
        if now >= self.record.due {
            self.record.due = ((now / step).floor() + 1.0) * step;
            self.sample(None);
        }
    }

    /// Keeps the state after this event, if states are kept.
    pub(super) fn sample(&mut self, event: Option<String>) {
        if self.noted.watch.every.is_some() {
            if self.record.samples.len() >= MOST {
                let problem = format!("{MOST} samples were taken, which is the most: give a longer step (--every)");
                self.noted.outcome.fail(problem);
                return;
            }
            let sample = self.at_moment(|simulation| Sample::of(&simulation.sources(simulation.hardware.only())));
            let sample = Sample { event, ..sample };
            self.hardware.unseen.push(self.kernel.processes.space, || Seen::Sample(Box::new(sample.clone())));
            self.record.samples.push(sample);
            self.show();
        }
    }

    /// With the instructions of the stretch that are over: they are counted when it ends.
    pub(super) fn at_moment<T>(&mut self, look: impl Fn(&Simulation) -> T) -> T {
        let within = self.clock.within();
        self.clock.counted.instructions += within;
        let seen = look(self);
        self.clock.counted.instructions -= within;
        seen
    }
}
