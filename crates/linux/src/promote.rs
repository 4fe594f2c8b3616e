//! Promoting the memory of running programs: what `superpage daemon` and `run --policy promote` do.
//!
//! A [`Promoter`] looks at its processes now and then, at quiet ones ever more rarely. Where memory changed it reads how far
//! regions of a huge page's size are populated ([`crate::scan`]); [`superpage_vm::Scanner`] decides which are ripe: populated
//! to the share, unchanged for the age. Those it promotes by `process_madvise(MADV_COLLAPSE)`, a few in a call, each checked
//! page by page right before, within its CPU budget, and more slowly in a process that it slows.
//!
//! Nothing is named by a number that may come to mean something else. The process is pinned by a `pidfd` and its memory by the
//! open page map, which shows nothing any more once the process has ended or runs another program; then nothing is promoted.
//! What the check cannot see is the time from it to the call: memory freed in those microseconds may be populated again by
//! the promotion, and an `exec` in them may promote a region of the new program that happens to lie at the same address.
//! Neither changes what any memory contains.

mod budget;
mod collapse;
mod counters;
pub(crate) mod headroom;
mod options;
mod pace;
mod process;
mod target;

pub use self::collapse::Refusal;
pub use self::counters::Counters;
pub use self::options::{Options, Span};
pub use self::process::Excluded;
pub use self::target::{Target, cgroup};

use self::budget::{Budget, process_cpu, thread_cpu};
use self::headroom::{Claims, Headroom, Place, admit};
use self::process::{Batch, Looked, Process};
use crate::inspect::{Reason, Why};
use crate::{Error, scan};
use rustix::fd::AsFd;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_vm::{Ripe, Scanner};

/// The longest that [`Promoter::run`] sleeps before it looks whether it shall stop.
const NAP: Duration = Duration::from_millis(100);

/// The longest pause when no free huge page can be had.
const LONGEST_MEMORY_PAUSE: Duration = Duration::from_secs(60);

/// How long promotion waits where tasks wait for memory: as long as that is seen in the kernel's averages.
const PRESSURE_PAUSE: Duration = Duration::from_secs(10);

/// Promotes the memory of other processes. All it does is on the thread that calls [`Promoter::step`] or [`Promoter::run`],
/// whose CPU time is its budget.
#[derive(Debug)]
pub struct Promoter {
    options: Options,
    target: Target,
    /// Bytes in a region.
    size: u64,
    processes: BTreeMap<i32, Process>,
    budget: Budget,
    /// Half of the budget: what looks and scans may use.
    scans: Budget,
    /// Where all of the process counts: what of its CPU time is charged already.
    charged: Option<Duration>,
    counters: Counters,
    began: Instant,
    next_members: Duration,
    /// Since no free huge page could be had: until when nothing is promoted, and how often in a row.
    memory: (Duration, u32),
    headroom: Headroom,
}

/// What would be promoted in a process, and what not and why; in regions.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Finding {
    /// The process.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Why nothing in it is promoted, if so.
    pub excluded: Option<&'static str>,
    /// Populated to the share and settled, and a headroom allows it: would be promoted now.
    pub ripe: u64,
    /// Populated to the share, but not yet for the age.
    pub young: u64,
    /// Populated below the share.
    pub sparse: u64,
    /// Huge pages already.
    pub huge: u64,
    /// Bytes of mappings under `MADV_NOHUGEPAGE`, or of static huge pages.
    pub unsuitable_bytes: u64,
    /// Resident memory in which nothing is promoted and why, the most first; what waits for memory is among it, and what is too
    /// young is not.
    pub reasons: Vec<Reason>,
    /// Addresses of the first few that are ripe, in the order of their promotion.
    pub first: Vec<u64>,
}

impl Promoter {
    /// A promoter for these processes. It does nothing yet.
    ///
    /// # Errors
    /// [`Error::Usage`]: the options make no sense. [`Error::Unable`]: the kernel has no huge pages or cannot promote for
    /// others (before Linux 6.1), or this process has no right to.
    pub fn new(options: Options, target: Target) -> Result<Promoter, Error> {
        able()?;
        Promoter::observer(options, target)
    }

    /// A promoter that may only look ([`Promoter::survey`]): it needs no right to promote.
    ///
    /// # Errors
    /// As [`Promoter::new`], without the rights.
    pub fn observer(options: Options, target: Target) -> Result<Promoter, Error> {
        options.validate()?;
        let size = scan::huge_page_size(Path::new("/sys"))?;
        let budget = Budget::new(options.cpu, options.burst.0);
        let scans = Budget::new(options.cpu / 2.0, options.burst.0 / 2);
        let counters = Counters { region_bytes: size, ..Counters::default() };
        let processes = BTreeMap::new();
        let (began, next_members, memory) = (Instant::now(), Duration::ZERO, (Duration::ZERO, 0));
        Ok(Promoter {
            options,
            target,
            size,
            processes,
            budget,
            scans,
            charged: None,
            counters,
            began,
            next_members,
            memory,
            headroom: Headroom::of("/"),
        })
    }

    /// This process is here for the promoter alone: all that it uses counts, from its start, and no CPU time is saved up.
    pub fn count_the_process(&mut self) {
        self.budget.empty();
        self.scans.empty();
        self.charged = Some(Duration::ZERO);
    }

    /// A clock of the CPU time that the budget is for: this thread's, or this process's.
    fn own_cpu(&self) -> impl Fn() -> Duration + use<> {
        let whole = self.charged.is_some();
        move || if whole { process_cpu(std::process::id() as i32).unwrap_or_default() } else { thread_cpu() }
    }

    /// What is done, with these options from now on. What is known of the processes is kept, but not for how long their
    /// regions have been as they are.
    ///
    /// # Errors
    /// [`Error::Usage`]: the options make no sense; nothing is changed.
    pub fn reconfigure(&mut self, options: Options, target: Target) -> Result<(), Error> {
        options.validate()?;
        self.budget.change(options.cpu, options.burst.0);
        self.scans.change(options.cpu / 2.0, options.burst.0 / 2);
        self.options = options;
        self.target = target;
        let now = self.began.elapsed();
        for process in self.processes.values_mut() {
            process.scanner = scanner(&self.options, self.size);
            process.queue.clear();
            process.scan_again(now);
        }
        self.next_members = now;
        Ok(())
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        counters.elapsed = self.began.elapsed();
        let watched = || self.processes.values().filter(|process| process.watched());
        counters.watched = watched().count() as u64;
        counters.excluded = process::count_excluded(self.processes.values());
        for (why, bytes) in self.processes.values().flat_map(Process::left) {
            *counters.left.entry(why.name()).or_default() += bytes;
        }
        let sum = |of: fn(&Process) -> u64| watched().map(of).sum();
        counters.huge_regions = sum(|process| process.census().superpages + process.promoted);
        counters.candidate_regions = sum(|process| process.scanner.candidates() as u64);
        counters.sparse_regions = sum(|process| process.census().sparse);
        counters
    }

    /// Promotes until `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let rest = self.step();
            std::thread::sleep(rest.min(NAP));
        }
    }

    /// Does what is due: looks at processes, and at most one batch of promotions. Gives how long there is nothing to do.
    pub fn step(&mut self) -> Duration {
        let own_cpu = self.own_cpu();
        let before = own_cpu();
        if let Some(charged) = self.charged {
            let beside = before.saturating_sub(charged);
            self.counters.cpu += beside;
            self.budget.spend(beside);
            self.charged = Some(before);
        }
        let now = self.began.elapsed();
        let wait = self.budget.wait(now);
        if !wait.is_zero() {
            return wait;
        }
        self.look(now);
        let looked = own_cpu();
        let calls = self.counters.calls;
        self.promote(now);
        let after = own_cpu();
        if self.counters.calls > calls {
            self.budget.expect(after.saturating_sub(before));
        }
        self.counters.scan_cpu += looked.saturating_sub(before);
        self.counters.promote_cpu += after.saturating_sub(looked);
        self.counters.cpu += after.saturating_sub(before);
        self.scans.spend(looked.saturating_sub(before));
        self.budget.spend(after.saturating_sub(before));
        self.charged = self.charged.map(|_| after);
        self.rest()
    }

    /// Looks at which processes there are, and at those that are due, as far as the budget goes.
    fn look(&mut self, now: Duration) {
        if !self.scans.wait(now).is_zero() {
            return;
        }
        if now >= self.next_members {
            self.meet(now);
        }
        let own_cpu = self.own_cpu();
        let began = own_cpu();
        let mut gone = Vec::new();
        for process in self.processes.values_mut().filter(|process| process.next_look <= now) {
            match process.look(now, &self.options, self.size) {
                Ok(Looked::Gone) => gone.push(process.pid),
                Ok(Looked::Quiet) => self.counters.quiet_looks += 1,
                Ok(Looked::Scanned) => {
                    self.counters.scans += 1;
                    let (pid, name, census) = (process.pid, process.name.as_str(), process.census());
                    tracing::trace!(
                        pid,
                        name,
                        huge = census.superpages,
                        candidates = census.candidates,
                        sparse = census.sparse,
                        "scanned"
                    );
                }
                Err(error) => tracing::warn!(pid = process.pid, "{error}"),
            }
            // One look at much memory may use all there is: the others are due again at the next step.
            if own_cpu().saturating_sub(began) > self.options.burst.0 / 2 {
                break;
            }
        }
        for pid in gone {
            self.processes.remove(&pid);
        }
    }

    /// Finds out which processes there are. One that ends within the first interval is never scanned.
    fn meet(&mut self, now: Duration) {
        self.next_members = now + self.options.interval.0;
        let members = self.target.members();
        self.processes.retain(|pid, _| members.contains(pid));
        for pid in members {
            let new = || Process::new(pid, scanner(&self.options, self.size), now + self.options.interval.0);
            self.processes.entry(pid).or_insert_with(new);
        }
    }

    /// The process whose turn it is: the busiest that has a ripe region.
    fn next_process(&self, now: Duration) -> Option<i32> {
        let ready = self.processes.values().filter(|process| process.ripe_at().is_some_and(|at| at <= now));
        ready.max_by(|one, other| one.pace.rate().total_cmp(&other.pace.rate())).map(|process| process.pid)
    }

    /// Promotes one batch.
    fn promote(&mut self, now: Duration) {
        if now < self.memory.0 {
            return;
        }
        let Some(process) = self.next_process(now).and_then(|pid| self.processes.get_mut(&pid)) else { return };
        let Some(cpu) = process_cpu(process.pid) else {
            let pid = process.pid;
            self.processes.remove(&pid);
            return;
        };
        process.pace.look(self.began.elapsed(), cpu);
        if let Some(place) = self.headroom.pressed(process.pid) {
            tracing::debug!(pid = process.pid, "tasks wait for memory in {place}: promotion waits");
            self.counters.pressure_backoffs += 1;
            match place {
                Place::System => self.memory.0 = now + PRESSURE_PAUSE,
                Place::Group(_) => process.pace.pause(now + PRESSURE_PAUSE),
            }
            return;
        }
        let Batch { regions: batch, shared, changed } = process.take_batch(now, &self.options, self.size);
        self.counters.shared += shared;
        self.counters.changed += changed;
        let page = rustix::param::page_size() as u64;
        let room = self.headroom.room(process.pid);
        let (batch, no_room) = admit(batch, &room, self.size, page);
        self.counters.no_room += no_room.len() as u64;
        for ripe in &no_room {
            process.scanner.put_off(ripe.region, process::millis(now));
        }
        if room.copies < self.size {
            tracing::debug!(pid = process.pid, "no room in {}: promotion waits", room.place);
            process.pace.pause(now + self.options.idle.0);
        }
        let Some(pinned) = process.pinned.as_ref().filter(|_| !batch.is_empty()) else { return };
        let addresses: Vec<u64> = batch.iter().map(|ripe| ripe.region * self.size).collect();
        let from = (self.began.elapsed(), process_cpu(process.pid).unwrap_or(cpu));
        let outcomes = collapse::collapse(pinned.pidfd.as_fd(), &addresses, self.size);
        let to = (self.began.elapsed(), process_cpu(process.pid).unwrap_or(from.1));
        self.counters.calls += 1;
        if process.pace.batch(from, to, self.options.slowdown) {
            self.counters.backoffs += 1;
        }
        let (pid, name) = (process.pid, process.name.as_str());
        let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let took = (to.0 - from.0).as_micros() as u64;
        tracing::debug!(pid, name, promoted = done, of = batch.len(), microseconds = took, "promoted");
        let mut out_of_memory = false;
        for (ripe, outcome) in batch.iter().zip(outcomes) {
            let outcome = match outcome {
                // The kernel says the same of a range that was unmapped since the check.
                Err(Refusal::NoMemory) if !process.still_stands(ripe.region, self.size) => Err(Refusal::Unmapped),
                other => other,
            };
            let Err(refusal) = outcome else {
                self.counters.promoted_regions += 1;
                self.counters.grown_bytes += self.size - u64::from(ripe.populated) * page;
                process.scanner.forget(ripe.region);
                process.promoted += 1;
                continue;
            };
            self.counters.refuse(refusal);
            tracing::debug!(pid, address = format_args!("{:#x}", ripe.region * self.size), ?refusal, "refused");
            match refusal {
                Refusal::Gone => process.pinned = None,
                Refusal::Rights => process.excluded = Some(Excluded::Rights),
                Refusal::NoMemory => out_of_memory = true,
                Refusal::Unmapped => process.scanner.forget(ripe.region),
                Refusal::GroupLimit => process.pace.pause(to.0 + self.options.idle.0),
                Refusal::Again | Refusal::Other(_) => process.scanner.put_off(ripe.region, process::millis(now)),
                Refusal::Ineligible => {
                    process.scanner.put_off(ripe.region, process::millis(now));
                    process.learn_flags(now, &self.options);
                }
            }
        }
        if out_of_memory {
            let pause = Duration::from_secs(1 << self.memory.1.min(6)).min(LONGEST_MEMORY_PAUSE);
            self.memory = (to.0 + pause, self.memory.1 + 1);
            self.counters.memory_backoffs += 1;
            process.queue.clear();
            tracing::warn!("no free huge page could be had; the next try is in {} s", pause.as_secs());
        } else if done > 0 {
            self.memory.1 = 0;
        }
    }

    /// How long nothing is due.
    fn rest(&mut self) -> Duration {
        let now = self.began.elapsed();
        let scans = now + self.scans.wait(now);
        let looks = self.processes.values().map(|process| process.next_look).min().unwrap_or(self.next_members);
        let looks = looks.min(self.next_members).max(scans);
        let ripe = self.processes.values().filter_map(Process::ripe_at).min();
        let next = ripe.map_or(looks, |ripe| looks.min(ripe.max(self.memory.0)));
        next.saturating_sub(now).max(self.budget.wait(now))
    }

    /// What would be promoted, and what not and why: looks at every process, waits for the age, and looks again. Promotes
    /// nothing, and goes by no budget. Ends early, with less, when `stop` is set.
    pub fn survey(&mut self, stop: &AtomicBool) -> Vec<Finding> {
        self.meet(self.began.elapsed());
        self.find();
        let until = self.began.elapsed() + self.options.age.0 + Duration::from_millis(1);
        while !stop.load(Ordering::Relaxed) && self.began.elapsed() < until {
            std::thread::sleep(NAP.min(until.saturating_sub(self.began.elapsed())));
        }
        let mut findings = self.find();
        findings.sort_by_key(|finding| (std::cmp::Reverse(finding.ripe), finding.pid));
        findings
    }

    fn find(&mut self) -> Vec<Finding> {
        let now = self.began.elapsed();
        let mut findings = Vec::new();
        for process in self.processes.values_mut() {
            process.learn_flags(now, &self.options);
            process.measure_again();
            if !matches!(process.look(now, &self.options, self.size), Ok(Looked::Quiet | Looked::Scanned)) {
                continue;
            }
            process.fill_queue(now, self.size);
            let candidates = process.scanner.candidates() as u64;
            let young = candidates - process.queue.len() as u64;
            let shared = process.drop_shared(self.size);
            let census = process.census();
            let left = process.left().chain([(Why::SharedByFork, shared)]).filter(|(_, bytes)| *bytes > 0);
            let finding = Finding {
                pid: process.pid,
                name: process.name.clone(),
                excluded: process.excluded.map(Excluded::name),
                ripe: 0,
                young,
                sparse: census.sparse,
                huge: census.superpages,
                unsuitable_bytes: process
                    .unsuitable
                    .iter()
                    .filter(|unsuitable| matches!(unsuitable.flag, "nh" | "ht"))
                    .map(|unsuitable| unsuitable.range.end - unsuitable.range.start)
                    .sum(),
                reasons: left.map(|(why, bytes)| Reason::of(why, bytes, self.size)).collect(),
                first: Vec::new(),
            };
            findings.push((process.pace.rate(), finding));
        }
        // The busiest come first, as in `next_process`.
        findings.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let mut claims = Claims::default();
        for (_, finding) in &mut findings {
            let queue = &self.processes[&finding.pid].queue;
            if !queue.is_empty() {
                self.ration(finding, queue.iter().rev().copied().collect(), &mut claims);
            }
            finding.reasons.sort_by_key(|reason| std::cmp::Reverse(reason.bytes));
        }
        findings.into_iter().map(|(_, finding)| finding).collect()
    }

    /// Says which of a process's regions that are ripe would be promoted beside the `claims` of others, and which wait for memory.
    fn ration(&self, finding: &mut Finding, ripe: Vec<Ripe>, claims: &mut Claims) {
        let page = rustix::param::page_size() as u64;
        let (fit, wait, why, place) = match self.headroom.pressed(finding.pid) {
            Some(place) => (Vec::new(), ripe, Why::Pressure, Some(place)),
            None => {
                let (fit, wait, place) = claims.admit(&self.headroom, finding.pid, ripe, (self.size, page));
                (fit, wait, Why::NoHeadroom, place)
            }
        };
        finding.ripe = fit.len() as u64;
        finding.first = fit.iter().take(8).map(|ripe| ripe.region * self.size).collect();
        if let Some(place) = place.filter(|_| !wait.is_empty()) {
            let bytes = wait.iter().map(|ripe| u64::from(ripe.populated) * page).sum();
            let reason = Reason::of(why, bytes, self.size);
            finding.reasons.push(Reason {
                blocks: wait.len() as u64,
                text: format!("{} in {place}", reason.text),
                ..reason
            });
        }
    }

    /// Bytes in a region: the size of the kernel's huge pages.
    pub fn region_bytes(&self) -> u64 {
        self.size
    }
}

fn scanner(options: &Options, size: u64) -> Scanner {
    let pages = (size / rustix::param::page_size() as u64) as u32;
    Scanner::new(pages, options.share, process::millis(options.age.0)).expect("options that were checked")
}

/// Whether the kernel can promote for others and lets this process.
fn able() -> Result<(), Error> {
    /// Its bit in the set of capabilities.
    const SYS_NICE: u32 = 23;
    let unable = |sentence: &str| Err(Error::Unable(sentence.to_string()));
    let status = crate::told::read("/proc/self/status").map_err(Error::file("read", "/proc/self/status"))?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    if set >> SYS_NICE & 1 == 0 {
        return unable(
            "promoting the memory of other processes needs CAP_SYS_NICE, and the right to trace them: run as root",
        );
    }
    let own = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    let own = own.map_err(Error::system("open a process (needs Linux 5.3)"))?;
    // No region at all: a kernel that knows the request does nothing.
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
/// Reads what `/proc/PID/stat` could say: for the fuzzer.
#[cfg(fuzzing)]
pub(crate) fn read_stat(text: &str) {
    let _ = process::Stat::parse(text);
}
