//! Promotes the memory of running programs: the work of `superpage daemon` and `run --policy promote`.
//!
//! The policy's background decides what is done and when, as in a simulation (`crates/vm/src/policy/promote.rs`). This
//! module implements [`System`] on live processes for it: it reads how far regions of a huge page's size are populated
//! ([`superpage_linux::scan`]), where memory changed; it promotes by `process_madvise(MADV_COLLAPSE)`, a few regions
//! per call, each checked page by page right before, if that leaves headroom to others, and more slowly in a process
//! that it slows.
//!
//! Nothing is named by a number that may be reused. Where a process is selected by its number, what counts is when it
//! started ([`Named`]). The process is pinned by a `pidfd` and its memory by the open page map, which is empty once the
//! process has ended or executed another program; then nothing is promoted. The check does not cover the time from it
//! to the call: memory freed in those microseconds may be populated again by the promotion, and an `exec` in them may
//! promote a region of the new program that happens to lie at the same address. Neither changes what any memory
//! contains.

mod claims;
mod counters;
mod options;
mod pace;
mod process;
mod survey;
mod target;
mod waits;

pub use self::counters::Counters;
pub use self::options::{Options, SLOWDOWN};
pub use self::survey::Finding;
pub use self::target::{Selected, Target};

use self::claims::admit;
use self::process::Process;
use self::survey::Survey;
use self::waits::Waits;
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
use superpage_linux::{Error, scan};
use superpage_pages::{Ladder, Level, PageSize};
use superpage_vm::{
    Background, Candidate, Event, How, Look, MemoryState, Part as Regions, Refusal, Sample, Scanned, SpaceId, System,
    Time,
};

/// A pause of promotion that is shorter is none that anybody decided on: it passes while the promoter sleeps.
const NAP: Duration = Duration::from_millis(100);

/// How long promotion waits when tasks wait for memory: as long as the kernel's averages show it.
const PRESSURE_PAUSE: Duration = Duration::from_secs(10);

/// Promotes the memory of other processes. All its work is done on the thread that calls [`Promoter::step`], whose
/// CPU time is its budget.
#[derive(Debug)]
pub struct Promoter {
    background: Box<dyn Background>,
    live: Processes,
}

/// The processes, as a policy sees them.
#[derive(Debug)]
struct Processes {
    options: Options,
    target: Target,
    /// Processes that are another promoter's.
    others: BTreeSet<i32>,
    /// All processes that were ever named by a number: who gets it later is not meant.
    named: Vec<Named>,
    ladder: Ladder,
    /// Bytes in a region, and the number of its base pages that must be populated.
    size: u64,
    least: u32,
    processes: BTreeMap<i32, Process>,
    /// Those that have ended or execute another program, of which the background was not told yet.
    gone: BTreeSet<SpaceId>,
    headroom: Headroom,
    /// Until when nothing is promoted, since tasks wait for memory.
    pressed: Duration,
    /// What the background had used when its last call began.
    tick: Duration,
    /// What splits huge pages, once that was asked for; `None` where nothing does.
    splitter: Option<Option<Splitter>>,
    /// Whether it was told that there are more processes than open files are allowed for.
    told_files: bool,
    /// Units of systemd that do not run, which is logged once.
    absent_units: BTreeSet<PathBuf>,
    /// The addresses of all regions that were promoted, of a command's processes.
    places: BTreeSet<u64>,
    /// What would be promoted, in a dry run, which promotes nothing.
    survey: Option<Survey>,
    counters: Counters,
    waits: Waits,
    began: Instant,
    clock: Clock,
}

/// The CPU time that is charged to the background.
#[derive(Debug, Default)]
struct Clock {
    /// Whether all of this process counts, and not only the working thread.
    whole: bool,
    /// Whether the processes are a command's, whose use earns time.
    earns: bool,
    /// Time that was earned and not used: what is used then is not charged.
    earned: Duration,
    /// What was charged up to the time of `mark`.
    used: Duration,
    mark: Duration,
    /// The part of it spent in scans.
    scans: Duration,
}

impl Clock {
    fn read(&self) -> Duration {
        if self.whole { process_cpu(std::process::id() as i32).unwrap_or_default() } else { thread_cpu() }
    }

    /// Begins a unit of work; returns what this process has used otherwise, if all of it counts.
    fn begin(&mut self) -> Duration {
        let now = self.read();
        let beside = if self.whole { now.saturating_sub(self.mark) } else { Duration::ZERO };
        self.used += beside;
        self.mark = now;
        beside
    }

    /// Ends a unit of work; returns what it used.
    fn end(&mut self) -> Duration {
        let now = self.read();
        let used = now.saturating_sub(self.mark);
        let free = used.min(self.earned);
        self.earned -= free;
        self.used += used - free;
        self.mark = now;
        used
    }

    fn spent(&self) -> Duration {
        self.used + self.read().saturating_sub(self.mark).saturating_sub(self.earned)
    }
}

impl Promoter {
    /// A promoter for these processes, which has not started.
    ///
    /// # Errors
    /// [`Error::Unable`]: the kernel has no huge pages or cannot promote
    /// for others (before Linux 6.1), or this process lacks the right.
    pub fn new(options: Options, target: Target) -> Result<Promoter, Error> {
        able()?;
        Promoter::observer(options, target)
    }

    /// A promoter that may only observe ([`Promoter::survey`]): it needs no right to promote.
    ///
    /// # Errors
    /// As for [`Promoter::new`], except for the rights.
    pub fn observer(options: Options, target: Target) -> Result<Promoter, Error> {
        let size = scan::huge_page_size(Path::new("/sys"))?;
        let page = rustix::param::page_size() as u64;
        let sizes: Option<Vec<PageSize>> = [page, size].into_iter().map(PageSize::from_bytes).collect();
        let ladder = sizes.and_then(|sizes| Ladder::new(&sizes).ok());
        let ladder = ladder.ok_or_else(|| Error::Unable(format!("huge pages of {size} bytes are of no use here")))?;
        let mut named = Vec::new();
        let live = Processes {
            least: options.least(size),
            options,
            target: target.after(&mut named),
            others: BTreeSet::new(),
            named,
            ladder,
            size,
            processes: BTreeMap::new(),
            gone: BTreeSet::new(),
            headroom: Headroom::of("/"),
            pressed: Duration::ZERO,
            tick: Duration::ZERO,
            splitter: None,
            told_files: false,
            absent_units: BTreeSet::new(),
            places: BTreeSet::new(),
            survey: None,
            counters: Counters { region_bytes: size, ..Counters::default() },
            waits: Waits::default(),
            began: Instant::now(),
            clock: Clock::default(),
        };
        Ok(Promoter { background: live.begun(live.options.background()), live })
    }

    /// Declares that this process only runs the promoter: all that it uses counts, from its start, and no CPU time is
    /// saved up.
    pub fn count_the_process(&mut self) {
        self.live.clock = Clock { whole: true, used: self.live.options.burst, ..Clock::default() };
    }

    /// As [`count_the_process`](Promoter::count_the_process), from now on: for a promoter beside others.
    pub(crate) fn join_the_process(&mut self) {
        self.count_the_process();
        self.live.clock.mark = self.live.clock.read();
    }

    /// Leaves these processes to others, from the next look on.
    pub fn leave(&mut self, others: BTreeSet<i32>) {
        self.live.others = others;
    }

    /// The processes that it had at its last look.
    pub(crate) fn processes(&self) -> impl Iterator<Item = i32> {
        self.live.processes.keys().copied()
    }

    /// Whether the next step has something to do.
    pub(crate) fn is_due(&self) -> bool {
        self.rest().is_zero()
    }

    /// Declares that the processes are those of a command that runs for nothing else: a share of what they use may be
    /// used beyond the share of a core, and they may be slowed by it unless it is given by how much
    /// ([`Options::of_command`]).
    pub fn serve_a_command(&mut self) {
        let Processes { clock, options, .. } = &mut self.live;
        clock.earns = true;
        options.slowdown.get_or_insert(SLOWDOWN.max(options.of_command));
    }

    /// Applies these options from now on. What is known of the processes is kept, except for what the policy knew. A
    /// process that was named before is still the one that had that number then.
    pub fn reconfigure(&mut self, options: Options, target: Target) {
        let live = &mut self.live;
        live.least = options.least(live.size);
        // No time is saved up.
        live.clock.used = options.burst;
        live.options = options;
        self.background = live.begun(live.options.background());
        live.target = target.after(&mut live.named);
        live.processes.values_mut().for_each(Process::scan_again);
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.live.options
    }

    /// The processes, as they were selected.
    pub fn target(&self) -> &Target {
        &self.live.target
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let live = &self.live;
        let mut counters = live.counters.clone();
        counters.elapsed = live.began.elapsed();
        waits::REASONS.into_iter().for_each(|reason| _ = counters.waited.entry(reason).or_default());
        counters.left = [Why::TooSmall, Why::Misaligned, Why::NotPopulated].map(|why| (why.name(), 0)).into();
        let watched = || live.processes.values().filter(|process| process.watched());
        counters.watched = watched().count() as u64;
        counters.excluded = process::count_excluded(live.processes.values());
        for (why, _, part) in live.processes.values().flat_map(|process| process.left(live.size)) {
            *counters.left.entry(why.name()).or_default() += part.bytes;
        }
        let sum = |of: fn(&Process) -> u64| watched().map(of).sum();
        counters.huge_regions = sum(|process| process.seen.huge + process.promoted);
        counters.candidate_regions = sum(|process| process.seen.candidates.saturating_sub(process.promoted));
        counters.sparse_regions = sum(|process| process.seen.sparse);
        counters
    }

    /// The addresses of all regions that became huge, of the processes of a command; those of others are not kept.
    pub fn places(&self) -> &BTreeSet<u64> {
        &self.live.places
    }

    /// Does what is due: checks and scans processes, and the promotions that this allows. Returns for how long nothing
    /// is due.
    pub fn step(&mut self) -> Duration {
        self.live.counters.cpu += self.live.clock.begin();
        self.live.earn();
        self.live.waits.count(self.live.began.elapsed(), &mut self.live.counters.waited);
        let scans = self.live.clock.scans;
        if self.call() {
            let live = &mut self.live;
            let (used, scans) = (live.clock.end(), live.clock.scans.saturating_sub(scans));
            live.counters.cpu += used;
            live.counters.scan_cpu += scans;
            live.counters.promote_cpu += used.saturating_sub(scans);
        }
        let due = self.background.waits(self.live.now());
        self.live.note_waits(due);
        self.rest()
    }

    /// Calls the background if it is due; whether it was.
    fn call(&mut self) -> bool {
        let Promoter { background, live } = self;
        let now = live.now();
        let due = background.next().is_some_and(|due| due <= now);
        if due {
            live.tick = live.clock.spent();
            background.tick(now, live);
            let gone = std::mem::take(&mut live.gone);
            if background.events().gone {
                gone.into_iter().for_each(|space| background.gone(space));
            }
        }
        due
    }

    /// For how long the background is not due.
    fn rest(&self) -> Duration {
        let next = self.background.next().map_or(Duration::MAX, Duration::from_nanos);
        next.saturating_sub(self.live.began.elapsed())
    }

    /// Bytes in a region: the size of the kernel's huge pages.
    pub fn region_bytes(&self) -> u64 {
        self.live.size
    }
}

impl Processes {
    /// A background at its start.
    fn begun(&self, mut background: Box<dyn Background>) -> Box<dyn Background> {
        if background.wants().start {
            background.told(Event::Start { ladder: self.ladder, costs: None });
        }
        background
    }

    /// Adds a share of what the command has used since the last call; no more is saved up than otherwise. Between
    /// calls of the background alone, so that what is spent never becomes less.
    fn earn(&mut self) {
        if !self.clock.earns {
            return;
        }
        let used: Duration = self.processes.values_mut().map(Process::used).sum();
        let earned = self.clock.earned + used.mul_f64(self.options.of_command);
        self.clock.earned = earned.min(self.options.burst);
    }

    /// Notes what promotion waits for: the background, the system, and processes that have candidates.
    fn note_waits(&mut self, background: Option<(Why, Time)>) {
        let now = self.began.elapsed();
        let waiting = || self.processes.values().filter(|process| process.seen.candidates > process.promoted);
        let background = background.map(|(why, until)| (why, Duration::from_nanos(until)));
        let pressed = (now < self.pressed && waiting().next().is_some()).then_some((Why::Pressure, self.pressed));
        let own = waiting().map(|process| process.pace.until()).filter(|(until, _)| now < *until);
        self.waits.replace(background.into_iter().chain(pressed).chain(own.map(|(until, why)| (why, until))));
    }

    fn process(&self, space: SpaceId) -> Option<&Process> {
        self.processes.get(&(space.0 as i32))
    }

    /// Each process takes two open files while something in it may be promoted. Where no more are allowed, others are
    /// left out, which is told once.
    fn tell_of_files(&mut self) {
        const OTHERS: u64 = 32;
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let held = self.processes.values().filter(|process| process.pinned.is_some()).count() as u64;
        if !self.told_files && 2 * held + OTHERS > allowed {
            self.told_files = true;
            tracing::warn!(
                "two open files for each of {held} processes are nearly the {allowed} that this one may have: others are left out; raise `ulimit -n`"
            );
        }
    }

    /// Splits the huge page of a region; whether that was tried. Why not is told once.
    fn split(&mut self, space: SpaceId, region: u64) -> bool {
        let range = region * self.size..(region + 1) * self.size;
        let splitter = self.splitter.get_or_insert_with(|| {
            Splitter::of("/sys/kernel/debug").inspect_err(|error| tracing::warn!("{error}")).ok()
        });
        let Some((splitter, process)) = splitter.as_ref().zip(self.processes.get_mut(&(space.0 as i32))) else {
            return false;
        };
        process.scan_again();
        let done = splitter.split(process.pid, range);
        done.inspect_err(|error| tracing::debug!(pid = process.pid, "{error}")).is_ok()
    }

    /// Scans a process: this part of it, or all if that may have changed.
    fn scan_process(
        &mut self,
        space: SpaceId,
        part: Option<Regions>,
        see: &mut dyn FnMut(Sample),
    ) -> (Scanned, Option<u64>) {
        let Some(process) = self.processes.get_mut(&(space.0 as i32)) else { return (Scanned::Gone, None) };
        let (before, identity) = (self.clock.read(), process.identity());
        let scope = (&self.options, self.size, self.least);
        let mut scanned = process.scan_if_changed(self.began.elapsed(), scope, part, see);
        self.clock.scans += self.clock.read().saturating_sub(before);
        // Another process of that number, or another program: a new address space, which the next list has.
        if identity.is_some() && process.identity() != identity {
            scanned = Ok((Scanned::Gone, None));
        }
        match scanned {
            Ok((Scanned::Gone, _)) => {
                self.processes.remove(&(space.0 as i32));
                self.survey.iter_mut().for_each(|survey| survey.forget(space.0 as i32));
                self.gone.insert(space);
            }
            Ok((Scanned::Unchanged, _)) => self.counters.quiet_scans += 1,
            Ok((Scanned::Closed, _)) => {}
            Ok((Scanned::Seen | Scanned::Anew, _)) => {
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
            // A process that cannot be scanned is scanned again each time: it is told once.
            Err(ref error) if process.failures == 1 => tracing::warn!(pid = process.pid, "{error}"),
            Err(ref error) => tracing::debug!(pid = process.pid, "{error}"),
        }
        scanned.unwrap_or((Scanned::Closed, None))
    }

    /// Whether promotions may be tried in a process now.
    fn ready(&mut self, space: SpaceId) -> Result<(), Refusal> {
        let now = self.began.elapsed();
        let Some(process) = self.processes.get_mut(&(space.0 as i32)) else { return Err(Why::Gone.into()) };
        let wait = |until: Duration, why| Err(Refusal { why, until: nanos(until) });
        match process.pace.until() {
            _ if self.clock.spent().saturating_sub(self.tick) > self.options.burst => {
                return wait(now + NAP, Why::Budget);
            }
            _ if now < self.pressed => return wait(self.pressed, Why::Pressure),
            (until, why) if now < until => return wait(until, why),
            _ => {}
        }
        if let Some(cpu) = process_cpu(process.pid) {
            process.pace.measure(now, cpu);
        }
        let Some(place) = self.headroom.pressed(process.pid) else { return Ok(()) };
        tracing::debug!(pid = process.pid, "tasks wait for memory in {place}: promotion waits");
        self.counters.pressure_backoffs += 1;
        let until = now + PRESSURE_PAUSE;
        match place {
            Place::System => self.pressed = until,
            Place::Group(_) => process.pace.pause(until, Why::Pressure),
        }
        wait(until, Why::Pressure)
    }

    /// Checks regions page by page.
    fn check(&mut self, space: SpaceId, regions: &[Candidate]) -> Vec<Result<Candidate, Why>> {
        let Some(process) = self.processes.get_mut(&(space.0 as i32)) else {
            return vec![Err(Why::Gone); regions.len()];
        };
        let check = |candidate: &Candidate| {
            let populated = process.check(candidate.region, self.size, candidate.least)?;
            Ok(Candidate { populated, ..*candidate })
        };
        let checked: Vec<Result<Candidate, Why>> = regions.iter().map(check).collect();
        let count = |why| checked.iter().filter(|checked| **checked == Err(why)).count() as u64;
        let (shared, changed) = (count(Why::SharedByFork), count(Why::NotPopulated));
        self.counters.shared += shared;
        self.counters.changed += changed;
        if changed > 0 {
            process.scan_again();
        }
        checked
    }

    /// Promotes, in one call, those of these regions that passed the check and have room.
    fn promote_checked(&mut self, space: SpaceId, regions: &mut [Result<Candidate, Why>]) {
        let Some(process) = self.processes.get_mut(&(space.0 as i32)) else { return };
        let (now, size, page) = (self.began.elapsed(), self.size, rustix::param::page_size() as u64);
        let (room, counters) = (self.headroom.room(process.pid), &mut self.counters);
        let passed = regions.iter().filter_map(|checked| checked.ok()).collect();
        let (batch, no_room) = admit(passed, &room, size, page);
        counters.no_room += no_room.len() as u64;
        if room.copies < size {
            tracing::debug!(pid = process.pid, "no room in {}: promotion waits", room.place);
            process.pace.pause(now.saturating_add(self.options.idle), Why::NoHeadroom);
        }
        let mut outcomes = Vec::new();
        if let Some(pinned) = process.pinned.as_ref().filter(|_| !batch.is_empty()) {
            let addresses: Vec<u64> = batch.iter().map(|candidate| candidate.region * size).collect();
            let cpu = |before| process_cpu(process.pid).unwrap_or(before);
            let from = (self.began.elapsed(), cpu(Duration::ZERO));
            let before = thread_cpu();
            outcomes = collapse::collapse(pinned.pidfd.as_fd(), &addresses, size);
            let used = thread_cpu().saturating_sub(before);
            let to = (self.began.elapsed(), cpu(from.1));
            counters.calls += 1;
            let pause = process.pace.batch(from, to, self.options.slowdown.unwrap_or(SLOWDOWN));
            counters.back_off(pause);
            let (pid, name) = (process.pid, process.name.as_str());
            let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            counters.collapse_cpu += if done > 0 { used } else { Duration::ZERO };
            let took = (to.0 - from.0).as_micros() as u64;
            tracing::debug!(pid, name, promoted = done, of = batch.len(), microseconds = took, "promoted");
        }
        let mut outcomes = outcomes.into_iter();
        for told in regions.iter_mut() {
            let Ok(Candidate { region, populated, least, .. }) = *told else { continue };
            if no_room.iter().any(|candidate| candidate.region == region) {
                *told = Err(Why::NoHeadroom);
                continue;
            }
            let why = match outcomes.next().unwrap_or(Err(Why::NotPopulated)) {
                Ok(()) => {
                    counters.promoted_regions += 1;
                    counters.grown_bytes += size - u64::from(populated) * page;
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
            *told = Err(why);
            *counters.refused.entry(why.name()).or_default() += 1;
            tracing::debug!(pid = process.pid, address = format_args!("{:#x}", region * size), %why, "refused");
            match why {
                Why::Gone => process.pinned = None,
                Why::Rights => process.excluded = Some(Why::Rights),
                Why::GroupLimit => process.pace.pause(now.saturating_add(self.options.idle), why),
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
        let absent = &mut self.absent_units;
        let mut members = self.target.members_but(&mut |unit, error| {
            if absent.insert(unit.to_path_buf()) {
                tracing::warn!("{error}; it is looked for at each scan");
            }
        });
        members.retain(|pid| !self.others.contains(pid));
        self.tell_of_files();
        let gone = &mut self.gone;
        self.processes.retain(|pid, _| members.contains(pid) || !gone.insert(SpaceId(*pid as u32)));
        let met = self.began.elapsed().saturating_add(self.options.interval);
        for pid in &members {
            self.processes.entry(*pid).or_insert_with(|| Process::new(*pid, met));
        }
        self.clock.scans += self.clock.read().saturating_sub(before);
        members.into_iter().map(|pid| SpaceId(pid as u32)).collect()
    }

    fn scan_part(
        &mut self,
        space: SpaceId,
        _: Level,
        part: Regions,
        see: &mut dyn FnMut(Sample),
    ) -> (Scanned, Option<u64>) {
        self.scan_process(space, Some(part), see)
    }

    fn scan_if_changed(&mut self, space: SpaceId, _: Level, see: &mut dyn FnMut(Sample)) -> Scanned {
        self.scan_process(space, None, see).0
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

    /// Promotes by copying, as the kernel does, and refuses promotion in place. It tries a few regions at a time, until
    /// the process is to be left alone, no huge page is free, or this call has used the processor time that may be
    /// saved up.
    fn promote(&mut self, space: SpaceId, _: Level, regions: &[Candidate], how: How) -> Vec<Result<(), Refusal>> {
        let mut outcomes = Vec::with_capacity(regions.len());
        // Why the rest of the regions is not tried.
        let mut ended = None;
        for batch in regions.chunks(self.options.batch) {
            let mut told = self.check(space, batch);
            if let Some(survey) = &mut self.survey {
                survey.promote(&self.headroom, space.0 as i32, (&mut told, batch), self.size);
            } else if told.iter().any(|checked| checked.is_ok()) {
                let ready = match how {
                    How::InPlace => Err(Why::Otherwise.into()),
                    How::ByCopying | How::Either => self.ready(space),
                };
                match ready {
                    Ok(()) => self.promote_checked(space, &mut told),
                    Err(refusal) => {
                        ended = Some(refusal);
                        break;
                    }
                }
            }
            ended = told.contains(&Err(Why::NoExtent)).then(|| Why::NoExtent.into());
            outcomes.extend(told.into_iter().map(|done| done.map(|_| ()).map_err(Refusal::from)));
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
        // What maps the page of zeroes is not populated any more.
        u64::from(before.populated.saturating_sub(self.look(space, level, region).populated))
    }
}

/// A time of the promoter in the unit of policies.
fn nanos(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}

/// Checks that the kernel can promote for others, and lets this process do so.
fn able() -> Result<(), Error> {
    /// Its bit in the set of capabilities.
    const SYS_NICE: u32 = 23;
    let unable = |sentence: &str| Err(Error::Unable(sentence.to_string()));
    if superpage_linux::proc::own_status()?.capeff >> SYS_NICE & 1 == 0 {
        return unable(
            "promoting the memory of other processes needs CAP_SYS_NICE, and the right to trace them: run as root",
        );
    }
    let own = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    let own = own.map_err(Error::system("open a process (needs Linux 5.3)"))?;
    // No region at all: a kernel that supports the request does nothing.
    match collapse::probe(own.as_fd()) {
        Ok(()) => Ok(()),
        Err(libc::ENOSYS) => unable("this kernel has no process_madvise: promotion needs Linux 6.1"),
        Err(libc::EPERM) => unable(
            "process_madvise is not permitted here: a container needs CAP_SYS_NICE, and a seccomp profile that allows it",
        ),
        Err(_) => unable(
            "this kernel cannot collapse memory into huge pages: promotion needs Linux 6.1 with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses this thread's processor time.
    fn spin(time: Duration) {
        let until = thread_cpu() + time;
        while thread_cpu() < until {}
    }

    #[test]
    fn what_is_used_of_earned_time_is_not_charged() {
        let (work, more) = (Duration::from_millis(2), Duration::from_secs(1));
        let mut clock = Clock { earned: more, ..Clock::default() };
        clock.begin();
        let before = clock.spent();
        spin(work);
        assert_eq!(clock.spent(), before);
        let used = clock.end();
        assert!(used >= work);
        assert_eq!((clock.spent(), clock.earned), (before, more - used));
        clock.earned = Duration::from_millis(1);
        clock.begin();
        spin(work);
        let used = clock.end();
        assert_eq!((clock.used, clock.earned), (before + used - Duration::from_millis(1), Duration::ZERO));
        clock.begin();
        let before = clock.spent();
        spin(work);
        assert!(clock.spent() >= before + work);
    }

    #[test]
    fn a_command_earns_a_share_of_what_it_uses_and_no_more_than_may_be_saved() {
        let options: Options = "promote:of-command=50%,burst=1h".parse().unwrap();
        let mut promoter = Promoter::observer(options, Target::default()).unwrap();
        let own = std::process::id() as i32;
        promoter.live.processes.insert(own, Process::new(own, Duration::ZERO));
        promoter.live.earn();
        assert_eq!(promoter.live.clock.earned, Duration::ZERO, "no command");
        promoter.serve_a_command();
        assert_eq!(promoter.live.options.slowdown, Some(0.5));
        spin(Duration::from_millis(2));
        promoter.live.earn();
        let first = promoter.live.clock.earned;
        assert!(first >= Duration::from_millis(1));
        spin(Duration::from_millis(2));
        promoter.live.earn();
        assert!(promoter.live.clock.earned >= first + Duration::from_millis(1));
        promoter.live.options.burst = Duration::from_micros(5);
        promoter.live.earn();
        assert_eq!(promoter.live.clock.earned, Duration::from_micros(5));
    }

    #[test]
    fn a_command_is_slowed_by_no_more_than_is_given() {
        for (text, slowdown) in [("promote", 0.1), ("promote:of-command=1%", 0.02), ("promote:slowdown=2%", 0.02)] {
            let mut promoter = Promoter::observer(text.parse().unwrap(), Target::default()).unwrap();
            promoter.serve_a_command();
            assert_eq!(promoter.live.options.slowdown, Some(slowdown), "{text}");
        }
    }
}
