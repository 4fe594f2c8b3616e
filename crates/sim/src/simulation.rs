//! One simulation of a grid: a machine with a kernel on it, or several on which it does the same,
//! driven by the stream.

use crate::average::{Averages, Sums};
use crate::contiguous::Contiguous;
use crate::cost::Effort;
use crate::counted::Counted;
use crate::disk::Disk;
use crate::errors;
use crate::estimate::{Evidence, Translated, Whole};
use crate::files::Held;
use crate::footprint::Footprint;
use crate::fragment::{Fragmented, fragment};
use crate::group::{Member, asks_the_machine};
use crate::hardware::Hardware;
use crate::host::Host;
use crate::latency::Faults;
use crate::looks::Looks;
use crate::memory::contiguity;
use crate::parts::Peak;
use crate::sources::bloat;
use crate::stream::{self, Along, Asked, Mark, Piece, Stretch, Window};
use crate::{BackgroundOn, ContiguousPercent, Error, Every, Part, Row, Run, Sample, Setup, Watch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use superpage_mmu::{Machine, Mmu, Request};
use superpage_pages::{Access, MAX_LEVELS, Mapped};
use superpage_trace::{Event, Info, ProcessId, Sampling};
use superpage_vm::{Config, Costs, Hash, Need, SpaceId, Vm};

/// A kernel, and the machines on which it does the same, in the middle of a stream.
pub(crate) struct Simulation {
    /// The first machine's, for all that is the same on the others.
    pub(crate) setup: Setup,
    pub(crate) members: Vec<Member>,
    pub(crate) info: Info,
    pub(crate) vm: Vm,
    pub(crate) mmu: Mmu,
    /// The kernel of the host, if it has a policy of its own.
    pub(crate) host: Option<Host>,
    /// What the kernel itself touches, if there is a model of it.
    pub(crate) footprint: Option<Footprint>,
    pub(crate) disk: Disk,
    pub(crate) held: Held,
    pub(crate) fragmented: Fragmented,
    /// The bits that a page number of the stream loses here.
    pub(crate) shift: u32,
    pub(crate) processes: Processes,
    pub(crate) counted: Counted,
    pub(crate) touched: TouchedPages,
    pub(crate) averages: Averages,
    /// How far the runs of the current stretch were gone through to find where traps are.
    pub(crate) along: Along,
    pub(crate) looks: Looks,
    /// Whether somebody goes by the time.
    pub(crate) looks_at_time: bool,
    /// The same for samples.
    pub(crate) ahead: Along,
    /// Whether the TLBs have been brought back to where a window begins ([`Mmu::recall`]).
    pub(crate) recalled: bool,
    /// How many windows have begun so.
    pub(crate) windows: u64,
    pub(crate) work: Work,
    pub(crate) faults: Faults,
    pub(crate) outcome: Outcome,
    pub(crate) record: Record,
}

/// The processes of the stream.
pub(crate) struct Processes {
    /// The address space of each process that is alive.
    pub(crate) spaces: BTreeMap<ProcessId, SpaceId>,
    /// Processes that were killed and that the stream still continues with.
    pub(crate) ended: BTreeSet<ProcessId>,
    /// The process that runs, and its address space.
    pub(crate) current: Option<ProcessId>,
    pub(crate) space: SpaceId,
    /// Whether the current process was killed: what it does is left out.
    pub(crate) dead: bool,
}

/// Pages that programs have touched and still have.
#[derive(Default)]
pub(crate) struct TouchedPages {
    pub(crate) now: u64,
    pub(crate) peak: u64,
    /// What was mapped at the peak, by level.
    pub(crate) mapped_at_peak: [u64; MAX_LEVELS],
    /// How contiguous that was; of an earlier peak, as long as memory is `at_peak`.
    contiguous: Contiguous,
    at_peak: bool,
}

/// The part of the kernel's work that is not done at faults and calls.
#[derive(Default)]
pub(crate) struct Work {
    /// By the daemon, or the background of the policy.
    pub(crate) daemon: Effort,
    /// The part of it that another core can do: all but runs of the daemon that a request for
    /// memory waits for.
    pub(crate) beside: Effort,
    /// The background's part, and the modelled time from which it can be called again, in
    /// nanoseconds: when its last call was, or is over on a core of its own.
    pub(crate) background: Effort,
    pub(crate) background_free: u64,
    /// What the last call of the background holds, on a core of its own.
    pub(crate) hold: Option<Hold>,
    /// Cycles that the program waited for it, and that it cost at misses.
    pub(crate) waited: u64,
    /// How often it was called while programs had memory.
    pub(crate) background_runs: u64,
}

/// What a background on a core of its own holds while it promotes and demotes, one region after the
/// other: faults wait until it is done with the region. In cycles of modelled time.
#[derive(Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// How long it takes for each region.
    pub(crate) each: u64,
}

/// What went wrong.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Why the run could not continue.
    pub(crate) failed: Option<String>,
    /// Why processes were killed, in order.
    pub(crate) reasons: Vec<String>,
    /// The run was interrupted within a piece of the stream: the rest of it is left out.
    pub(crate) stopped: bool,
}

/// What is recorded along the way: parts and samples.
pub(crate) struct Record {
    /// The current part.
    pub(crate) part: Option<Open>,
    /// The peak of page tables before it, in bytes.
    page_tables: u64,
    pub(crate) watch: Watch,
    pub(crate) samples: Vec<Sample>,
    /// The time, or the number of instructions, from which the next sample is due.
    pub(crate) due: f64,
}

/// The current part. Its state when it began is each machine's own.
pub(crate) struct Open {
    name: String,
    pub(crate) peak: Peak,
    /// Sums over time when it began.
    sums: Sums,
}

/// Why something could not be done.
pub(crate) enum Problem {
    /// The process cannot continue.
    Process(String),
    /// The run cannot continue.
    Run(String),
}

impl Problem {
    pub(crate) fn run(error: superpage_vm::Error) -> Problem {
        Problem::Run(error.to_string())
    }
}

impl Simulation {
    /// Of a group of setups, with their places in the grid: one kernel for all.
    pub(crate) fn new(group: &[(usize, &Setup)], info: &Info, watch: &Watch) -> Result<Simulation, Error> {
        let setup = group[0].1;
        let cannot = |error: superpage_vm::Error| Error::Usage(format!("machine {}: {error}", setup.machine.name));
        let Setup { ladder, frames, swap_pages, .. } = *setup;
        let needs = setup.policy.definition().needs;
        let wanted = setup.policy.background().is_some_and(|background| background.wants().contents);
        let answers = &setup.policy.answers;
        let read = answers.reclaim.hash != Hash::Off || answers.demote.underused.is_some();
        let contents = read || needs.contains(&Need::Contents) || wanted;
        let config = Config { ladder, frames, policy: setup.policy.clone(), swap_pages };
        let mut vm = Vm::new(config).map_err(cannot)?;
        // The memory is the machine's, whatever sizes the policy uses.
        let physical = setup.machine.ladder();
        let fragmented = fragment(&mut vm, &physical, setup.frames, &setup.fragment, setup.seed).map_err(cannot)?;
        vm.make_pool().map_err(cannot)?;
        let mut mmu = Mmu::of(&group.iter().map(|(_, setup)| setup.machine.as_ref()).collect::<Vec<_>>());
        if !asks_the_machine(setup) && watch.every.is_none() {
            mmu.defer();
        }
        let footprint = Footprint::new(setup, &mut vm, &mut mmu);
        let mut simulation = Simulation {
            vm,
            host: Host::new(setup, &mut mmu).map_err(cannot)?,
            footprint,
            mmu,
            members: group
                .iter()
                .enumerate()
                .map(|(number, (place, setup))| Member::new(*place, number, setup))
                .collect(),
            disk: Disk::new(setup.files, ladder.base().bytes(), setup.swap_pages, contents),
            held: Held::default(),
            fragmented,
            shift: setup.ladder.base().shift() - superpage_trace::TRACE_PAGE_SHIFT,
            processes: Processes {
                spaces: BTreeMap::new(),
                ended: BTreeSet::new(),
                current: None,
                space: SpaceId(0),
                dead: false,
            },
            counted: Counted::default(),
            touched: TouchedPages::default(),
            averages: Averages::default(),
            looks: Looks::default(),
            looks_at_time: false,
            along: Along::default(),
            ahead: Along::default(),
            recalled: false,
            windows: 0,
            work: Work::default(),
            faults: Faults::default(),
            outcome: Outcome::default(),
            record: Record { part: None, page_tables: 0, watch: *watch, samples: Vec::new(), due: 0.0 },
            setup: setup.clone(),
            info: info.clone(),
        };
        simulation.vm.started(Some(costs(&setup.machine, ladder.base().bytes())));
        simulation.looks_at_time =
            simulation.goes_by_time() || matches!(simulation.record.watch.every, Some(Every::Seconds(_)));
        simulation.run_due();
        Ok(simulation)
    }

    pub(crate) fn base_shift(&self) -> u32 {
        self.setup.ladder.base().shift()
    }

    /// Simulates one piece of the stream. `stop` ends idle time within it, and all that would come
    /// after that.
    pub(crate) fn step(&mut self, piece: &Piece, stop: &AtomicBool) {
        let requests = piece.requests(self.base_shift());
        let runs = |stretch: &Stretch| &piece.batch.runs[stretch.start..stretch.end];
        for (index, stretch) in piece.stretches.iter().enumerate() {
            if self.outcome.failed.is_some() || self.outcome.stopped {
                return;
            }
            let asked = requests.stretch(index, runs(stretch));
            let end = asked.requests.len();
            match stretch.part {
                stream::Part::Recent => self.recalled = true,
                stream::Part::Window if std::mem::take(&mut self.recalled) => self.begin_window(),
                _ => {}
            }
            if !self.processes.dead {
                let mut done = stretch.done;
                let before = self.passed();
                self.averages.begin(requests.touched(index, 0, &self.processes.ended));
                (self.along, self.ahead) = (Along::default(), Along::default());
                let made = self.requests(asked);
                if let Err((request, _)) = &made {
                    done = piece.until(self.base_shift(), index, *request);
                }
                self.counted.references += done.references;
                self.counted.instructions += done.instructions;
                self.counted.accesses += done.accesses;
                let reached = made.as_ref().map_or_else(|(request, _)| *request, |()| end);
                asked.part(reached..end).place.into_iter().for_each(|place| self.reach_end(place, before));
                if let Err((request, problem)) = made {
                    self.note_touched(requests.touched(index, request, &self.processes.ended));
                    self.leave_peak();
                    self.give_up(problem);
                }
            }
            if stretch.done.accesses > 0 {
                self.counted.threads.access();
            }
            self.note_touched(requests.touched(index, end, &self.processes.ended));
            self.averages.begin(self.touched.now);
            match stretch.mark {
                Some(Mark::Event(event)) => {
                    self.counted.threads.event(&piece.batch.events[event].1);
                    if self.record.watch.contiguity {
                        // What the next piece begins with is not known yet.
                        let after = (index + 1 < piece.stretches.len())
                            .then(|| requests.touched(index + 1, 0, &self.processes.ended));
                        if after.is_none_or(|after| after < self.touched.now) {
                            self.leave_peak();
                        }
                    }
                    let event = &piece.batch.events[event].1;
                    let said = self.said(event);
                    if matches!(event, Event::Exit) {
                        self.sample(None);
                    }
                    if let Err(problem) = self.event(event, stop) {
                        self.give_up(problem);
                    }
                    // Without what was unmapped, or its process had alone.
                    if index + 1 < piece.stretches.len() {
                        // What a process touches after it was killed is in no count.
                        let done = if self.processes.dead { usize::MAX } else { 0 };
                        self.touched.now = requests.touched(index + 1, done, &self.processes.ended);
                        self.averages.begin(self.touched.now);
                    }
                    if said.is_some() {
                        self.sample(said);
                    }
                }
                Some(Mark::Window(window)) => self.turn(window),
                None => {}
            }
            self.looks.end(end);
            match stretch.mark {
                Some(_) => self.run_due(),
                // Where a block ends is nothing to go by.
                None if self.looks_at_time => {}
                None => self.sample_if_due(),
            }
            if let Err(problem) = self.back_guest() {
                self.give_up(problem);
            }
        }
    }

    /// A window of a sampled stream begins, after the time before it was made up for. What missed
    /// in the first level is remembered for an eighth of a period's length, at least. That was
    /// measured: longer, and programs that just fit a level have too many misses; shorter, and a
    /// Redis has.
    fn begin_window(&mut self) {
        let enough = self.info.sampling.map_or(1, Sampling::windows_in_period);
        self.mmu.note_misses(self.windows.is_multiple_of((enough / 8).max(1)));
        self.windows += 1;
    }

    /// What a sample says of an event that it follows, if one does.
    fn said(&self, event: &Event) -> Option<String> {
        match event {
            Event::Mark(name) => Some(name.clone()),
            Event::Exit => self.processes.current.map(|process| format!("process {} ends", process.0)),
            _ => None,
        }
    }

    /// What follows belongs to this window of a sampled stream, or to none.
    fn turn(&mut self, window: Option<Window>) {
        let superpages = self.vm.stats().mapped[1..].iter().any(|pages| *pages > 0);
        for member in &mut self.members {
            let mut windows = std::mem::take(&mut member.windows);
            windows.turn(window, &member.translated(&self.mmu), self.counted.accesses, superpages);
            member.windows = windows;
        }
    }

    /// The machine, where a policy asks for its misses or its time: then there is one.
    pub(crate) fn only(&self) -> &Member {
        debug_assert!(self.members.len() == 1, "machines with different times");
        &self.members[0]
    }

    /// Makes the requests; on failure returns which one could not be made, and why.
    pub(crate) fn requests(&mut self, asked: Asked<'_>) -> Result<(), (usize, Problem)> {
        if self.vm.wants_misses() {
            return self.requests_telling(asked);
        }
        let (mut at, end) = (0, asked.requests.len());
        loop {
            let stop = self.next_look(asked, at);
            let trapped = asked.part(at..stop).run(&mut self.mmu);
            let made = trapped.map_or(stop, |(index, _)| at + index);
            self.note_writes(&asked.requests[at..made]);
            at = made;
            if trapped.is_some() {
                self.trap(asked.part(at..at + 1)).map_err(|problem| (at, problem))?;
                at += 1;
                self.run_due();
                self.back_guest().map_err(|problem| (at - 1, problem))?;
            } else if at == end {
                return Ok(());
            }
        }
    }

    /// The same for a policy that wants to know of each miss, one by one.
    fn requests_telling(&mut self, asked: Asked<'_>) -> Result<(), (usize, Problem)> {
        for (at, request) in asked.requests.iter().enumerate() {
            self.next_look(asked, at);
            let before = self.mmu.misses(self.only().number);
            let one = asked.part(at..at + 1);
            match one.run(&mut self.mmu) {
                Some(_) => self.trap(one).map_err(|problem| (at, problem))?,
                None => self.note_writes(one.requests),
            }
            if self.mmu.misses(self.only().number) > before {
                let around = || self.mmu.held_around(self.only().number, request.page());
                let neighbour = self.vm.wants_neighbours().then(around).flatten();
                let hardware = Hardware::new(&mut self.mmu, &self.setup.machine.pages.sizes);
                self.vm.missed(&hardware, self.processes.space, request.page(), neighbour);
                self.work.waited += self.vm.miss_cycles();
                one.place.into_iter().for_each(|place| self.reach(place));
                self.run_due();
                self.back_guest().map_err(|problem| (at, problem))?;
            }
        }
        Ok(())
    }

    /// These requests were made: the contents of the pages that they wrote have changed.
    #[inline]
    pub(crate) fn note_writes(&mut self, requests: &[Request]) {
        let Some(contents) = &mut self.disk.contents else { return };
        for request in requests.iter().filter(|request| request.access() == Access::Write) {
            let page = request.page();
            if let Some(Mapped { frame, .. }) = self.mmu.lookup(self.processes.space.0, page) {
                contents.write(self.processes.current, page, frame);
            }
        }
    }

    /// Records the number of touched pages, which only grows until the next event or access.
    fn note_touched(&mut self, pages: u64) {
        self.touched.now = pages;
        if pages >= self.touched.peak {
            (self.touched.peak, self.touched.mapped_at_peak) = (pages, self.vm.stats().mapped);
            self.touched.at_peak = true;
        }
        if let Some(part) = &mut self.record.part {
            part.peak.touched_pages = part.peak.touched_pages.max(pages);
        }
    }

    /// Called before memory that was touched goes away.
    fn leave_peak(&mut self) {
        if self.record.watch.contiguity && std::mem::take(&mut self.touched.at_peak) {
            let is_file = |space, page| self.vm.maps_file_page(SpaceId(space), page);
            self.touched.contiguous = Contiguous::count(&self.mmu, self.base_shift(), is_file);
        }
    }

    /// Calls the background of the policy, and takes a sample, if one is due.
    #[inline]
    pub(crate) fn run_due(&mut self) {
        self.background();
        self.sample_if_due();
    }

    /// The modelled time so far on a machine, including idle time.
    pub(crate) fn seconds(&self, member: &Member) -> f64 {
        let cycles = self.cycles(member, &self.whole(member, &member.translated(&self.mmu)));
        cycles as f64 / member.setup.machine.clock.hertz as f64 + self.counted.idle_microseconds as f64 / 1e6
    }

    pub(crate) fn whole(&self, member: &Member, translated: &Translated<'_>) -> Whole {
        let whole = member.windows.whole(&self.info, translated, &self.counted);
        // The instructions of the stretch that are over are counted when it ends.
        let within = self.averages.at.saturating_sub(self.passed());
        Whole { instructions: whole.instructions + within, ..whole }
    }

    /// The modelled time so far on a machine, in cycles.
    pub(crate) fn cycles(&self, member: &Member, whole: &Whole) -> u64 {
        let machine = &member.setup.machine;
        let translation = whole.tlb_hit_cycles + whole.walk_cycles + whole.data_cycles;
        let kernel = member.kernel(&self.effort());
        let host = self.host_cycles(member);
        let all = whole.program_cycles(machine)
            + translation
            + kernel.total()
            + self.kernel_cycles()
            + self.disk.cycles(machine)
            + host;
        all + self.work.waited - self.moved_cycles(member)
    }

    /// The part of the kernel's work that another core does.
    pub(crate) fn moved_cycles(&self, member: &Member) -> u64 {
        match member.setup.background {
            BackgroundOn::Core => {
                member.kernel(&self.work.beside).total() - self.work.beside.interrupts(&member.setup.machine)
            }
            BackgroundOn::Program => 0,
        }
    }

    /// The part of it that the host's kernel took, without what another core does.
    pub(crate) fn host_cycles(&self, member: &Member) -> u64 {
        let cycles = |host: &Host| host.cycles(&self.mmu, &member.setup.machine, member.digest_cycles());
        self.host.as_ref().map_or(0, cycles) - self.host_moved_cycles(member)
    }

    /// The part of the work of the host's kernel that another core does.
    pub(crate) fn host_moved_cycles(&self, member: &Member) -> u64 {
        let moved = |host: &Host| host.background_cycles(&member.setup.machine);
        match member.setup.background {
            BackgroundOn::Core => self.host.as_ref().map_or(0, moved),
            BackgroundOn::Program => 0,
        }
    }

    /// The most that page tables took at a time, in bytes.
    pub(crate) fn page_table_bytes(&self) -> u64 {
        self.record.page_tables.max(self.mmu.peak_page_table_bytes())
    }

    /// How contiguous mapped memory was at its peak, if somebody asked.
    pub(crate) fn contiguous_percent(&self) -> Option<ContiguousPercent> {
        self.record.watch.contiguity.then(|| self.touched.contiguous.percent())
    }

    /// The contiguity that is left ([`contiguity`]).
    pub(crate) fn contiguity(&self) -> f64 {
        contiguity(&self.vm, &self.setup.ladder, self.setup.frames)
    }

    /// The kernel's work so far.
    pub(crate) fn effort(&self) -> Effort {
        let effort =
            Effort::new(&self.mmu.shared(), self.vm.counts(), self.counted.copied_bytes, self.counted.idle_hashed);
        effort.without(self.filled_bytes())
    }

    /// Begins a part, and ends the current one. A sampled stream has none: estimates do not grow as
    /// counts do, so that a part has no difference of two.
    pub(crate) fn mark(&mut self, name: &str) {
        if self.info.sampling.is_some() {
            return;
        }
        self.disk.settle();
        self.close_part();
        self.record_faults();
        self.members.iter_mut().for_each(Member::begin_latencies);
        self.record.page_tables = self.page_table_bytes();
        self.mmu.restart_page_table_peak();
        let mut peak = Peak::default();
        peak.note(&self.setup.ladder, &self.vm.stats(), self.touched.now);
        let begun: Vec<_> = self.members.iter().map(|member| (self.seconds(member), self.row(member))).collect();
        self.members.iter_mut().zip(begun).for_each(|(member, begun)| member.begun = Some(begun));
        self.record.part = Some(Open { name: name.into(), peak, sums: self.averages.sums });
    }

    fn close_part(&mut self) {
        let Some(Open { name, mut peak, sums }) = self.record.part.take() else { return };
        self.record_faults();
        let ladder = &self.setup.ladder;
        peak.note(ladder, &self.vm.stats(), self.touched.now);
        let (base, sums) = (ladder.base().bytes(), self.averages.sums.since(&sums));
        let part = |member: &Member| {
            let (start_seconds, before) = member.begun.as_ref().expect("the part has begun on all machines");
            let row = Row {
                peak_touched_bytes: peak.touched_pages * base,
                peak_resident_bytes: peak.resident_pages * base,
                page_table_bytes: self.mmu.peak_page_table_bytes(),
                bloat_percent: bloat(peak.touched_pages, peak.resident_pages),
                pages: peak.pages(ladder),
                contiguous_percent: None,
                mean_bloat_percent: sums.bloat_percent(),
                mean_huge_percent: sums.huge_percent(),
                ..self.row(member).part(before).timed(&member.latencies)
            };
            Part { name: name.clone(), start_seconds: *start_seconds, row }
        };
        let parts: Vec<Part> = self.members.iter().map(part).collect();
        self.members.iter_mut().zip(parts).for_each(|(member, part)| member.parts.push(part));
    }

    /// Called before mappings or pages are removed.
    pub(crate) fn note_peak(&mut self) {
        if let Some(part) = &mut self.record.part {
            part.peak.note(&self.setup.ladder, &self.vm.stats(), self.touched.now);
        }
    }

    /// Ends all processes, checks that no frame is leaked, and returns the counts of each machine,
    /// with its place in the grid.
    pub(crate) fn finish(mut self, info: &Info, complete: bool) -> Vec<(usize, Run)> {
        self.info = info.clone();
        self.disk.settle();
        self.close_part();
        self.record_faults();
        self.leave_peak();
        self.sample(Some("end".into()));
        let state = |member: &Member| {
            let translated = member.translated(&self.mmu);
            (self.row(member), member.windows.evidence(&self.info, &translated, &self.counted))
        };
        let left: Vec<(Row, Option<Evidence>)> = self.members.iter().map(state).collect();
        let spaces: Vec<SpaceId> = self.processes.spaces.values().copied().collect();
        for space in spaces {
            if let Err(error) = self.vm.exit(&mut Hardware::new(&mut self.mmu, &self.setup.machine.pages.sizes), space)
            {
                self.outcome.failed.get_or_insert(error.to_string());
            }
        }
        self.disk.settle();
        let frames_leaked = self.vm.leaked_frames();
        let complete = complete && !self.outcome.stopped;
        let by_time = self.goes_by_time();
        let samples = std::mem::take(&mut self.record.samples);
        let members = std::mem::take(&mut self.members);
        let run = |(mut member, (left, evidence)): (Member, (Row, Option<Evidence>))| {
            let mut row = Row {
                active_bytes: left.active_bytes,
                inactive_bytes: left.inactive_bytes,
                cache_bytes: left.cache_bytes,
                swap_used_bytes: left.swap_used_bytes,
                contiguity: left.contiguity,
                end_resident_bytes: left.end_resident_bytes,
                end_touched_bytes: left.end_touched_bytes,
                series: self.record.watch.every.map(|_| samples.clone()),
                frames_leaked,
                // What was cut off has not ended.
                ..if info.cut { left } else { self.row(&member) }
            };
            row.complete &= complete;
            errors::own_errors(&mut row, evidence.as_ref().filter(|_| !by_time));
            for part in &mut member.parts {
                part.row.workload.clone_from(&row.workload);
            }
            if let Some(last) = member.parts.last_mut() {
                last.row.complete &= complete;
            }
            (member.place, Run { row, parts: member.parts, evidence })
        };
        let mut runs: Vec<(usize, Run)> = members.into_iter().zip(left).map(run).collect();
        if let Some(mut host) = self.host.take() {
            let ended = host.end(&mut self.mmu);
            for (_, Run { row, .. }) in &mut runs {
                row.host_frames_leaked = *ended.as_ref().unwrap_or(&0);
                if let Err(error) = &ended {
                    row.error.get_or_insert(error.to_string());
                }
            }
        }
        runs
    }
}

/// What the kernel's work costs on a machine with base pages of so many bytes, as a policy may ask.
fn costs(machine: &Machine, page: u64) -> Costs {
    let nanoseconds = |cycles: u64| (u128::from(cycles) * 1_000_000_000 / u128::from(machine.clock.hertz)) as u64;
    let costs = &machine.costs;
    Costs {
        fault: nanoseconds(costs.fault),
        zero: nanoseconds(costs.zero_per_kb * page / 1024),
        copy: nanoseconds(costs.copy_per_kb * page / 1024),
        shootdown: nanoseconds(costs.shootdown),
    }
}
