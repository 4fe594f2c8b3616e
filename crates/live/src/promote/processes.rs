//! Live processes as a policy sees them: a [`System`].

use super::claims::{admit, grows};
use super::clock::Clock;
use super::counters::Counters;
use super::given_back::GivenBack;
use super::options::{Options, SLOWDOWN};
use super::pace::{Pause, Progress, SHORTEST_PAUSE};
use super::process::{Process, Scope};
use super::survey::Survey;
use super::target::{Listing, Target};
use super::waits::Waits;
use rustix::fd::AsFd;
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use superpage_linux::collapse;
use superpage_linux::cpu::{process_cpu, thread_cpu};
use superpage_linux::headroom::{Headroom, Place};
use superpage_linux::proc::Named;
use superpage_linux::split::Splitter;
use superpage_linux::why::Why;
use superpage_output::foreign;
use superpage_pages::{Ladder, Level};
use superpage_vm::{
    Background, Candidate, Event, How, Look, MemoryState, Part as Regions, Refusal, Sample, Scanned, ScannedPart,
    SpaceId, System, Time,
};

/// How long promotion waits when tasks wait for memory: as long as the kernel's averages show it.
pub(super) const PRESSURE_PAUSE: Duration = Duration::from_secs(10);

/// The processes, as a policy sees them.
#[derive(Debug)]
pub(super) struct Processes {
    pub(super) options: Options,
    pub(super) target: Target,
    /// The processes, where the caller lists them.
    pub(super) listed: Option<BTreeSet<i32>>,
    /// All processes that were ever named by a number: who gets it later is not meant.
    pub(super) named: Vec<Named>,
    pub(super) ladder: Ladder,
    /// Bytes in a region, and the number of its base pages that must be populated.
    pub(super) size: u64,
    pub(super) least: u32,
    pub(super) processes: BTreeMap<i32, Process>,
    /// Those that have ended or execute another program, which the background has not heard of yet.
    pub(super) gone: BTreeSet<SpaceId>,
    pub(super) headroom: Headroom,
    /// Until when nothing is promoted, since tasks wait for memory.
    pub(super) pressed: Duration,
    /// What the background had used when its last call began.
    pub(super) tick: Duration,
    /// What splits huge pages. `None`: not asked for yet; `Some(None)`: this system cannot split.
    pub(super) splitter: Option<Option<Splitter>>,
    /// Whether the log says already that there are more processes than open files are allowed for.
    pub(super) warned_of_files: bool,
    /// Units of systemd that do not run, which is logged once.
    pub(super) absent_units: BTreeSet<PathBuf>,
    /// The addresses of all regions that were promoted, of a command's processes.
    pub(super) places: BTreeSet<u64>,
    pub(super) given_back: GivenBack,
    /// What would be promoted, in a dry run, which promotes nothing.
    pub(super) survey: Option<Survey>,
    pub(super) counters: Counters,
    pub(super) waits: Waits,
    pub(super) began: Instant,
    pub(super) clock: Clock,
}

impl Processes {
    /// This background, once it has had its start event.
    pub(super) fn with_start_event(&self, mut background: Box<dyn Background>) -> Box<dyn Background> {
        if background.wants().start {
            background.notify(Event::Start { ladder: self.ladder, costs: None });
        }
        background
    }

    /// Adds a share of what the command has used since the last call; no more is saved up than
    /// otherwise. Between calls of the background alone, so that what is spent never becomes less.
    pub(super) fn earn(&mut self) {
        if !self.clock.earns {
            return;
        }
        let used: Duration = self.processes.values_mut().map(Process::used).sum();
        let credit = self.clock.credit + used.mul_f64(self.options.of_command);
        self.clock.credit = credit.min(self.options.burst);
    }

    /// Notes what promotion waits for: the background, the system, and processes that have
    /// candidates.
    pub(super) fn note_waits(&mut self, background: Option<Refusal>) {
        let now = self.began.elapsed();
        let waiting = || self.processes.values().filter(|process| process.candidates() > 0);
        let background = background.map(|waits| (waits.why, Duration::from_nanos(waits.until)));
        let pressed = (now < self.pressed && waiting().next().is_some()).then_some((Why::Pressure, self.pressed));
        let own = waiting().map(|process| process.pace.pause()).filter(|pause| now < pause.until);
        self.waits.replace(background.into_iter().chain(pressed).chain(own.map(|pause| (pause.why, pause.until))));
    }

    /// The processes that are selected, by this listing. A unit that does not run, and a name that
    /// no process has, is logged once.
    pub(super) fn list(&mut self, listing: &mut Listing) -> BTreeSet<i32> {
        let absent = &mut self.absent_units;
        self.target.members_of(listing, &mut |unit, error| {
            if absent.insert(unit.to_path_buf()) {
                tracing::warn!("{}; it is looked for at each scan", foreign(&error.to_string()));
            }
        })
    }

    pub(super) fn process(&self, space: SpaceId) -> Option<&Process> {
        self.processes.get(&pid_of(space))
    }

    /// Each process takes two open files while something in it may be promoted. Further processes
    /// are not watched where the limit allows no more, which is logged once.
    pub(super) fn warn_of_files(&mut self) {
        const OTHERS: u64 = 32;
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let held = self.processes.values().filter(|process| process.pinned.is_some()).count() as u64;
        if !self.warned_of_files && 2 * held + OTHERS > allowed {
            self.warned_of_files = true;
            tracing::warn!(
                "watching {held} processes takes {} open files, close to the limit of {allowed}: further processes \
                 are not watched; raise `ulimit -n`",
                2 * held
            );
        }
    }

    /// Splits the huge page of a region; whether that was tried. Why not is logged once.
    pub(super) fn split(&mut self, space: SpaceId, region: u64) -> bool {
        let range = region * self.size..(region + 1) * self.size;
        let splitter = self.splitter.get_or_insert_with(|| {
            Splitter::of("/sys/kernel/debug").inspect_err(|error| tracing::warn!("{error}")).ok()
        });
        let Some((splitter, process)) = splitter.as_ref().zip(self.processes.get_mut(&pid_of(space))) else {
            return false;
        };
        process.scan_again();
        let done = splitter.split(process.pid, range);
        done.inspect_err(|error| tracing::debug!(pid = process.pid, "{error}")).is_ok()
    }

    /// Scans a process: this part of it, or all if that may have changed.
    pub(super) fn scan_process(
        &mut self,
        space: SpaceId,
        part: Option<Regions>,
        see: &mut dyn FnMut(Sample),
    ) -> ScannedPart {
        let Some(process) = self.processes.get_mut(&pid_of(space)) else { return Scanned::Gone.into() };
        let (before, identity) = (self.clock.read(), process.identity());
        let scope = Scope { options: &self.options, size: self.size, least: self.least };
        let mut scanned = process.scan_if_changed(self.began.elapsed(), scope, part, see);
        self.clock.scan_time += self.clock.read().saturating_sub(before);
        // Another process of that number, or another program: a new address space, which the next
        // list has.
        if identity.is_some() && process.identity() != identity {
            scanned = Ok(Scanned::Gone.into());
        }
        match scanned.as_ref().map(|part| part.scanned) {
            Ok(Scanned::Gone) => {
                self.processes.remove(&pid_of(space));
                self.survey.iter_mut().for_each(|survey| survey.forget(pid_of(space)));
                self.gone.insert(space);
            }
            Ok(Scanned::Unchanged) => self.counters.quiet_scans += 1,
            Ok(Scanned::Closed) => {}
            Ok(Scanned::Seen | Scanned::NewProgram) => {
                self.counters.scans += 1;
                let (pid, name, seen) = (process.pid, process.name.as_str(), process.seen);
                tracing::trace!(
                    pid,
                    name,
                    huge = seen.huge,
                    candidates = seen.candidates,
                    sparse = seen.sparse,
                    "scanned"
                );
            }
            // A process that cannot be scanned is scanned again each time: it is logged once.
            Err(error) if process.failures == 1 => tracing::warn!(pid = process.pid, "{error}"),
            Err(error) => tracing::debug!(pid = process.pid, "{error}"),
        }
        scanned.unwrap_or(Scanned::Closed.into())
    }

    /// Whether promotions may be tried in a process now.
    pub(super) fn ready(&mut self, space: SpaceId) -> Result<(), Refusal> {
        let now = self.began.elapsed();
        let Some(process) = self.processes.get_mut(&pid_of(space)) else { return Err(Why::Gone.into()) };
        let wait = |until: Duration, why| Err(Refusal { why, until: nanos(until) });
        let pause = process.pace.pause();
        match () {
            () if self.clock.spent().saturating_sub(self.tick) > self.options.burst => {
                return wait(now + SHORTEST_PAUSE, Why::Budget);
            }
            () if now < self.pressed => return wait(self.pressed, Why::Pressure),
            () if now < pause.until => return wait(pause.until, pause.why),
            () => {}
        }
        if let Some(cpu) = process_cpu(process.pid) {
            process.pace.measure(Progress { at: now, cpu });
        }
        let Some(place) = self.headroom.pressed(process.pid) else { return Ok(()) };
        tracing::debug!(pid = process.pid, "tasks wait for memory in {place}: promotion waits");
        self.counters.pressure_backoffs += 1;
        let until = now + PRESSURE_PAUSE;
        match place {
            Place::System => self.pressed = until,
            Place::Group(_) => process.pace.leave_alone(Pause { until, why: Why::Pressure }),
        }
        wait(until, Why::Pressure)
    }

    /// Checks regions page by page.
    pub(super) fn check(&mut self, space: SpaceId, regions: &[Candidate]) -> Vec<Result<Candidate, Why>> {
        let Some(process) = self.processes.get_mut(&pid_of(space)) else {
            return vec![Err(Why::Gone); regions.len()];
        };
        let (size, frames) = (self.size, self.given_back.frames());
        let (now, fresh) = (self.began.elapsed(), self.options.idle);
        let check = |candidate: &Candidate| {
            let populated = process.check(candidate.region, size, candidate.least)?;
            if frames.is_some_and(|frames| {
                process.gave_back(candidate.region * size..(candidate.region + 1) * size, frames, now, fresh)
            }) {
                return Err(Why::GivenBack);
            }
            Ok(Candidate { populated, ..*candidate })
        };
        let checked: Vec<Result<Candidate, Why>> = regions.iter().map(check).collect();
        for (candidate, found) in regions.iter().zip(&checked) {
            process.note_check(candidate.region, found.map(|_| ()));
        }
        let count = |why| checked.iter().filter(|checked| **checked == Err(why)).count() as u64;
        let (shared, changed) = (count(Why::SharedByFork), count(Why::NotPopulated));
        self.counters.shared += shared;
        self.counters.changed += changed;
        let given_back = count(Why::GivenBack);
        if given_back > 0 {
            *self.counters.refused.entry(Why::GivenBack.name()).or_default() += given_back;
        }
        if changed > 0 {
            process.scan_again();
        }
        checked
    }

    /// Promotes, in one call, those of these regions that passed the check and have room.
    pub(super) fn promote_checked(&mut self, space: SpaceId, regions: &mut [Result<Candidate, Why>]) {
        let Some(process) = self.processes.get_mut(&pid_of(space)) else { return };
        let (now, size, page) = (self.began.elapsed(), self.size, rustix::param::page_size() as u64);
        let (room, counters) = (self.headroom.room(process.pid), &mut self.counters);
        let passed = regions.iter().filter_map(|checked| checked.ok()).collect();
        let (batch, no_room) = admit(passed, &room, size, page);
        counters.no_room += no_room.len() as u64;
        if room.copies < size {
            tracing::debug!(pid = process.pid, "no room in {}: promotion waits", room.place);
            let until = now.saturating_add(self.options.idle);
            process.pace.leave_alone(Pause { until, why: Why::NoHeadroom });
        } else if !no_room.is_empty() {
            let (pid, regions) = (process.pid, no_room.len());
            tracing::debug!(pid, regions, "no room for what these regions would add");
        }
        let mut outcomes = Vec::new();
        if let Some(pinned) = process.pinned.as_ref().filter(|_| !batch.is_empty()) {
            let addresses: Vec<u64> = batch.iter().map(|candidate| candidate.region * size).collect();
            let cpu = |before| process_cpu(process.pid).unwrap_or(before);
            let from = Progress { at: self.began.elapsed(), cpu: cpu(Duration::ZERO) };
            let before = thread_cpu();
            outcomes = collapse::collapse(pinned.pidfd.as_fd(), &addresses, size);
            let used = thread_cpu().saturating_sub(before);
            let to = Progress { at: self.began.elapsed(), cpu: cpu(from.cpu) };
            counters.calls += 1;
            let pause = process.pace.batch(from, to, self.options.slowdown.unwrap_or(SLOWDOWN));
            counters.back_off(pause);
            let (pid, name) = (process.pid, process.name.as_str());
            let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            counters.collapse_cpu += if done > 0 { used } else { Duration::ZERO };
            let took = (to.at - from.at).as_micros() as u64;
            tracing::debug!(pid, name, promoted = done, of = batch.len(), microseconds = took, "promoted");
        }
        let mut outcomes = outcomes.into_iter();
        for outcome in regions.iter_mut() {
            let Ok(candidate) = *outcome else { continue };
            let Candidate { region, least, .. } = candidate;
            if no_room.iter().any(|candidate| candidate.region == region) {
                *outcome = Err(Why::NoHeadroom);
                continue;
            }
            let why = match outcomes.next().unwrap_or(Err(Why::NotPopulated)) {
                Ok(()) => {
                    counters.promoted_regions += 1;
                    counters.grown_bytes += grows(&candidate, size, page);
                    process.promoted += 1;
                    if self.clock.earns {
                        self.places.insert(region * size);
                    }
                    continue;
                }
                // The kernel returns the same for a range that was unmapped since the check.
                Err(Why::NoExtent) if process.check(region, size, least).is_err() => Why::Unmapped,
                Err(why) => why,
            };
            *outcome = Err(why);
            *counters.refused.entry(why.name()).or_default() += 1;
            tracing::debug!(pid = process.pid, address = format_args!("{:#x}", region * size), %why, "refused");
            match why {
                Why::Gone => process.pinned = None,
                Why::Rights => process.excluded = Some(Why::Rights),
                Why::GroupLimit => {
                    process.pace.leave_alone(Pause { until: now.saturating_add(self.options.idle), why });
                }
                Why::Ineligible => process.learn_flags(now, &self.options),
                _ => {}
            }
        }
        if regions.contains(&Err(Why::NoExtent)) {
            counters.memory_backoffs += 1;
            tracing::warn!("no free huge page could be had: promotion waits");
        }
    }
}

impl System for Processes {
    fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    fn now(&self) -> Time {
        nanos(self.began.elapsed())
    }

    fn spent(&self) -> Time {
        nanos(self.clock.spent())
    }

    /// The processes that exist. One that ends within the first interval is never scanned.
    fn spaces(&mut self) -> Vec<SpaceId> {
        let before = self.clock.read();
        let members = match self.listed.clone() {
            Some(listed) => listed,
            None => self.list(&mut Listing::default()),
        };
        self.warn_of_files();
        let gone = &mut self.gone;
        self.processes.retain(|pid, _| members.contains(pid) || !gone.insert(SpaceId(*pid as u32)));
        let met = self.began.elapsed().saturating_add(self.options.interval);
        for pid in &members {
            self.processes.entry(*pid).or_insert_with(|| Process::new(*pid, met));
        }
        self.clock.scan_time += self.clock.read().saturating_sub(before);
        members.into_iter().map(|pid| SpaceId(pid as u32)).collect()
    }

    fn scan_part(&mut self, space: SpaceId, _: Level, part: Regions, see: &mut dyn FnMut(Sample)) -> ScannedPart {
        self.scan_process(space, Some(part), see)
    }

    fn scan_if_changed(&mut self, space: SpaceId, _: Level, see: &mut dyn FnMut(Sample)) -> Scanned {
        self.scan_process(space, None, see).scanned
    }

    fn look(&mut self, space: SpaceId, _: Level, region: u64) -> Look {
        self.process(space).map_or(Look::default(), |process| process.look(region, self.size))
    }

    fn rate(&self, space: SpaceId) -> f64 {
        self.process(space).map_or(0.0, |process| process.pace.rate())
    }

    fn pieces(&mut self, space: SpaceId, _: Level, region: u64) -> Option<u32> {
        // It matters to nobody while nothing is promoted.
        self.process(space).filter(|_| self.began.elapsed() >= self.pressed)?.pieces(region, self.size)
    }

    fn memory(&mut self) -> Option<MemoryState> {
        superpage_linux::memory::state(Path::new("/"), &self.ladder)
    }

    /// Promotes by copying, as the kernel does, and refuses promotion in place. It tries a few
    /// regions at a time, until the process is to be left alone, no huge page is free, or this call
    /// has used the processor time that may be saved up.
    fn promote(&mut self, space: SpaceId, _: Level, regions: &[Candidate], how: How) -> Vec<Result<(), Refusal>> {
        let mut outcomes = Vec::with_capacity(regions.len());
        // Why the rest of the regions is not tried.
        let mut ended = None;
        for batch in regions.chunks(self.options.batch) {
            let mut checked = self.check(space, batch);
            if let Some(survey) = &mut self.survey {
                survey.note_asked(&self.headroom, pid_of(space), checked.iter_mut().zip(batch), self.size);
            } else if checked.iter().any(Result::is_ok) {
                let ready = match how {
                    How::InPlace => Err(Why::Otherwise.into()),
                    How::ByCopying | How::Either => self.ready(space),
                };
                match ready {
                    Ok(()) => self.promote_checked(space, &mut checked),
                    Err(refusal) => {
                        ended = Some(refusal);
                        break;
                    }
                }
            }
            ended = checked.contains(&Err(Why::NoExtent)).then(|| Why::NoExtent.into());
            outcomes.extend(checked.into_iter().map(|done| done.map(|_| ()).map_err(Refusal::from)));
            if ended.is_some() {
                break;
            }
        }
        if let Some(refusal) = ended {
            outcomes.resize(regions.len(), Err(refusal));
        }
        outcomes
    }

    /// Splits a huge page, where debugfs lets it.
    fn demote(&mut self, space: SpaceId, level: Level, region: u64) -> bool {
        let huge = self.survey.is_none() && level == self.ladder.largest() && self.look(space, level, region).superpage;
        huge && self.split(space, region) && !self.look(space, level, region).superpage
    }

    fn shrink(&mut self, space: SpaceId, level: Level, region: u64) -> u64 {
        let before = self.look(space, level, region);
        if self.survey.is_some() || level != self.ladder.largest() || !before.superpage || !self.split(space, region) {
            return 0;
        }
        // What maps the zero page is not populated any more.
        u64::from(before.populated.saturating_sub(self.look(space, level, region).populated))
    }
}

/// The process whose address space it is.
fn pid_of(space: SpaceId) -> i32 {
    space.0 as i32
}

/// A time of the promoter in the unit of policies.
pub(super) fn nanos(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}
