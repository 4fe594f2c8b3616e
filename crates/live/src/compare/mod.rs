//! One command under several policies, run in turns, so that what differs is the policy's doing: times, faults, memory,
//! TLB misses, and which policy to use.
//!
//! Every round runs each policy once, in an order drawn at random from a seed; [`statistics`] evaluates the rounds.
//! The whole process tree is measured. System-wide changes of a policy are made under one lock that is held
//! for the whole comparison, and are restored after every run; where no policy makes any the lock is shared with other
//! comparisons, so that nobody else makes some. A row that was measured while settings differed gets no verdict.

mod advice;
mod bystanders;
mod columns;
mod constant;
pub mod counters;
mod did;
pub mod export;
mod host;
mod html;
mod looks;
mod options;
mod row;
mod run;
mod served;
pub mod statistics;

pub use advice::Advice;
pub use columns::{did_table, table};
pub use html::html;
pub use options::{Options, Output, Reaches, With};
pub use row::{Row, Run, Verdict};
pub use served::{Load, Server};

use crate::inspect::Reach;
use crate::launch::Plan;
use crate::policy::Did;
use crate::sample::{self, Budget};
use crate::session;
use bystanders::bystanders;
use constant::Constant;
use counters::{Available, Event};
use did::{Arm, Seen};
use looks::Looks;
use procfs::{Current, LoadAverage};
use run::{Done, Outcome};
use served::{Loader, last_lines};
use statistics::Family;
use std::ffi::OsString;
use std::io::ErrorKind::{NotFound, PermissionDenied};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use superpage_linux::Error;
use superpage_linux::pagemap::huge_page_bytes;
use superpage_linux::rules::Rules;
use superpage_linux::scan::Kind;
use superpage_linux::settings::Settings;
use superpage_linux::tree::{exits, run_outside};
use superpage_linux::why::shared_way_out;

/// Receives reports of a comparison's progress.
pub trait Watch {
    /// A run begins.
    fn run(&mut self, at: &At);

    /// Something that the user should know before time is spent: a sentence without a full stop.
    fn say(&mut self, sentence: &str);
}

/// A run among all.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The policy of the run.
    pub policy: &'a str,
    /// The round that it counts in, from 1; none for a run to warm up.
    pub round: Option<usize>,
    /// The number of rounds, at most.
    pub rounds: usize,
    /// Which of all runs it is, from 1, those that do not count among them.
    pub index: usize,
    /// How many there are, at most.
    pub of: usize,
}

/// Nobody looks.
impl Watch for () {
    fn run(&mut self, _: &At) {}
    fn say(&mut self, _: &str) {}
}

/// The results.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The command, quoted for a shell.
    pub command: String,
    /// The seed of the order within rounds.
    pub seed: u64,
    /// The number of complete rounds.
    pub rounds: usize,
    /// The number of rounds that were asked for.
    pub of: usize,
    /// Why there are no more.
    pub end: End,
    /// A row for each policy, the reference first; none if no round is complete.
    pub rows: Vec<Row>,
    /// Which policy to use; none if no round is complete.
    pub advice: Option<Advice>,
    /// What a reader of the rows must know: one sentence each, without a full stop.
    pub notes: Vec<String>,
}

/// Why a comparison has no more rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It has all that were asked for.
    Whole,
    /// It is adaptive, and every row has a verdict.
    Decided,
    /// Its time was over.
    TimeLimit,
    /// It was stopped.
    Stopped,
}

impl Comparison {
    /// Whether it was stopped, or its time was over, before the last round.
    pub fn ended_early(&self) -> bool {
        matches!(self.end, End::TimeLimit | End::Stopped)
    }

    /// How many rounds there are: `1 round`, `3 of 6 rounds, ended early`.
    pub fn rounds_in_words(&self) -> String {
        let why = match self.end {
            End::Whole => return counted(self.rounds, "round"),
            End::Decided => "then every row had a verdict",
            End::TimeLimit => "ended early by the time limit",
            End::Stopped => "ended early",
        };
        format!("{} of {}, {why}", self.rounds, counted(self.of, "round"))
    }
}

/// A policy and how it is told apart from others of its name.
struct Entry {
    name: String,
    /// The command that it runs in place of the one that is compared.
    own: Option<Vec<OsString>>,
    plan: Plan,
    /// What was seen of it at work.
    seen: Seen,
    /// The most memory that a run of it had so far.
    peak: u64,
    /// What was seen of memory in runs that do not count.
    warmups: Vec<sample::Memory>,
    runs: Vec<Run>,
    /// How settings of the system differed in runs that do not count, for each in which they did.
    differed: Vec<String>,
    /// The look after which it is run no more, and why.
    dropped: Option<(Family, String)>,
}

impl Entry {
    /// Its runs in the first `rounds` rounds.
    fn runs(&self, rounds: usize) -> &[Run] {
        &self.runs[..rounds.min(self.runs.len())]
    }

    /// How settings of the system differed in runs of the first `rounds` rounds and those that do not count.
    fn differed(&self, rounds: usize) -> impl Iterator<Item = &String> {
        self.differed.iter().chain(self.runs(rounds).iter().filter_map(|run| run.differed.as_ref()))
    }
}

/// What ends a comparison early: the caller's flag, and the time limit.
struct Stop<'a> {
    flag: &'a Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Stop<'_> {
    /// Whether the caller's flag is set.
    fn is_flagged(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Whether the flag is set or the time is over.
    fn is_set(&self) -> bool {
        self.is_flagged() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// The settings of this system, locked if the policies or the reference change any, else locked together with others
/// that measure. While another process holds the lock this waits, and a signal should interrupt the wait: so install
/// handlers that only set a flag after this.
pub fn settings(options: &Options) -> Settings {
    let with = options.with.iter().map(|with| &with.policy);
    session::settings(options.policies.iter().chain(with).chain([&options.reference]), true, options.waits)
}

/// Compares. `stop` ends it early: the running command is ended, and the rounds that are complete
/// count, as when the time limit comes. While it runs, this process starts no other children.
///
/// # Errors
/// [`Error::Usage`] for options that make no sense; [`Error::Unable`] if a run fails, or none of the policies is
/// supported here except the reference; others of the settings and of the system. Settings are restored in any case.
pub fn compare(options: &Options, stop: &Arc<AtomicBool>, watch: &mut dyn Watch) -> Result<Comparison, Error> {
    compare_with(settings(options), options, stop, watch)
}

/// As [`compare`], with settings that are locked already.
///
/// # Errors
/// As [`compare`].
pub fn compare_with(
    mut settings: Settings,
    options: &Options,
    stop: &Arc<AtomicBool>,
    watch: &mut dyn Watch,
) -> Result<Comparison, Error> {
    if options.command.is_empty() {
        return Err(Error::Usage("there is no command to compare: name it after --".into()));
    }
    if options.runs == 0 {
        return Err(Error::Usage("at least one run is needed".into()));
    }
    if !options.waits && !settings.is_locked() {
        // Without the right to the lock it is as always; where another has it, this says who.
        if let Err(error @ Error::Unable(_)) = settings.share() {
            return Err(error);
        }
    }
    let mut notes = Vec::new();
    let others = match options.reach {
        Reaches::System => None,
        Reaches::Considerate => bystanders(),
        Reaches::OnlyMine => Some(String::new()),
    };
    let mut entries = entries(options, others, &mut settings, &mut notes)?;
    let changes = entries.iter().filter(|entry| entry.plan.is_global()).map(|entry| entry.name.as_str());
    let changes: Vec<&str> = changes.collect();
    if !changes.is_empty() {
        watch.say(&format!(
            "settings of the whole system are changed in the runs of {}, and put back after each",
            changes.join(", ")
        ));
    }
    let (others, rounds) = (entries.len() - 1, counted(options.runs, "round"));
    let needed = statistics::rounds_needed(others);
    if others > 0 && options.runs < needed {
        let policies = if others == 1 { "1 policy".to_string() } else { format!("{others} policies") };
        watch.say(&format!(
            "{rounds} will not be enough to advise: with {policies} beside {}, {needed} are the least (-r {needed})",
            options.reference
        ));
    }
    notes.extend(busy());
    // It is to be no child of this process, which takes in all that has no parent while a command
    // runs.
    let loader = options.server.as_ref().map(|server| Loader::start(server, &options.start()?)).transpose()?;
    let available = Available::among(&Event::HARDWARE);
    notes.extend(available.note());
    let (constant, rules) = (Constant::begin(&settings), Rules::read());
    let memory_before = look_under(options, entries.len() > 1, &mut notes)?;
    let traces = exits::check().map_err(|error| error.to_string());
    let mut comparing = Comparing {
        options,
        settings,
        constant,
        available,
        warms: memory_before == WARMED,
        loader,
        numbers: None,
        traces,
        left: 0,
        notes: Vec::new(),
    };

    let deadline = options.time_limit.and_then(|limit| Instant::now().checked_add(limit));
    let stop = &Stop { flag: stop, deadline };
    let mut looks = Looks::new(others, options.runs);
    let mut total = entries.len() * (options.warmup + options.runs);
    let mut index = 0;
    let mut rounds = 0;
    let mut decided = None;
    'rounds: for round in 0..options.warmup + options.runs {
        let measured = round.checked_sub(options.warmup);
        let mut order = match measured {
            Some(round) => statistics::order(options.seed, round as u64, entries.len()),
            None => (0..entries.len()).collect(),
        };
        order.retain(|which| entries[*which].dropped.is_none());
        for which in order {
            // Before the first run of a policy, the peaks of others tell about when to look at its memory.
            let known = entries.iter().map(|entry| entry.peak).filter(|peak| *peak > 0).min();
            // The same for all: what each policy found after its own amount would differ between them for ever.
            let warm = entries.iter().map(|entry| entry.peak).max().unwrap_or(0);
            let entry = &mut entries[which];
            let expected = if entry.peak > 0 { entry.peak } else { known.unwrap_or(0) };
            index += 1;
            let round = measured.map(|round| round + 1);
            watch.run(&At { policy: &entry.name, round, rounds: options.runs, index, of: total });
            let turn = Turn { round: measured, expected, warm };
            let Some(run) = comparing.run(entry, turn, stop)? else {
                break 'rounds;
            };
            entry.peak = entry.peak.max(run.memory.peak);
            match measured {
                Some(_) => entry.runs.push(run),
                None => {
                    entry.warmups.push(run.memory);
                    entry.differed.extend(run.differed);
                }
            }
        }
        rounds += usize::from(measured.is_some());
        if let Some(family) = options.adaptive.then(|| looks.due(rounds)).flatten() {
            let rows = rows(options, &entries, (rounds, family), (memory_before, &rules));
            for (which, why) in looks::losers(&rows) {
                entries[which].dropped = Some((family, why));
                total -= options.runs - rounds;
            }
            if looks::decided(&rows) {
                decided = Some(family);
                break;
            }
        }
    }
    let end = match () {
        () if decided.is_some() => End::Decided,
        () if rounds == options.runs => End::Whole,
        () if stop.is_flagged() => End::Stopped,
        () => End::TimeLimit,
    };
    notes.append(&mut comparing.notes);
    if comparing.left > 0 {
        notes.push(format!(
            "the command left processes behind that did not end ({} in all runs); they were ended, and its time is its own",
            comparing.left
        ));
    }
    comparing.settings.restore()?;
    notes.extend(entries.iter().filter_map(|entry| {
        let (name, runs, how) = (&entry.name, entry.differed(rounds).count(), entry.differed(rounds).next()?);
        Some(format!("settings differed in {} of {name}, so it gets no verdict: {how}", counted(runs, "run")))
    }));
    let rows = rows(options, &entries, (rounds, decided.unwrap_or(looks.last(rounds))), (memory_before, &rules));
    let early = matches!(end, End::TimeLimit | End::Stopped);
    let rows: Vec<Row> = rows.into_iter().map(|row| Row { ended_early: early, ..row }).collect();
    notes.extend(unseen(options, &rows, comparing.traces.err()));
    let reaches = entries.iter().filter_map(|entry| entry.seen.reach.as_ref());
    let misplaced: Vec<Kind> = reaches.flat_map(Reach::misplaced).collect();
    notes.extend(shared_way_out(&misplaced, &Rules::read()));
    if rows.iter().any(|row| row.counted_share.is_some_and(|share| share < 1.0)) {
        notes.push("hardware counters took turns: counts are scaled to the whole time".into());
    }
    notes.extend(advice::as_far(&rows));
    let advice = (!rows.is_empty()).then(|| advice::advise(&rows));
    let command = options.command_line();
    Ok(Comparison { command, seed: options.seed, rounds, of: options.runs, end, rows, advice, notes })
}

/// The policies that are supported here, the reference first, each tried once. A line goes to `notes` for each of
/// the others.
///
/// Where there are `others`, what reaches into their memory is left out.
fn entries(
    options: &Options,
    others: Option<String>,
    settings: &mut Settings,
    notes: &mut Vec<String>,
) -> Result<Vec<Entry>, Error> {
    let mut policies = options.policies.clone();
    match policies.iter().position(|policy| *policy == options.reference) {
        Some(place) => policies[..=place].rotate_right(1),
        None => policies.insert(0, options.reference.clone()),
    }
    let numbered = policies.iter().enumerate().map(|(index, policy)| {
        let before = policies[..index].iter().filter(|other| *other == policy).count();
        let name = if before == 0 { policy.to_string() } else { format!("{policy}#{}", before + 1) };
        let note = (before > 0).then(|| format!("{name} is {policy} once more, as it was named more than once"));
        (name, policy, None, note)
    });
    let with = options.with.iter().enumerate().map(|(index, with)| {
        let (name, line) = (format!("{} ({})", with.policy, index + 1), options.line_with(Some(&with.command)));
        let note = format!("{name} is {} with the command of --with number {}: {line}", with.policy, index + 1);
        (name, &with.policy, Some(&with.command), Some(note))
    });
    let wanted: Vec<_> = numbered.chain(with).collect();
    let mut entries: Vec<Entry> = Vec::new();
    let mut left_out = Vec::new();
    for (index, (name, policy, own, note)) in wanted.into_iter().enumerate() {
        let plan = Plan::new(policy, settings.system()).and_then(|plan| match &others {
            Some(others) if plan.is_global() => Err(Error::Unable(match others.is_empty() {
                true => "it changes settings of the whole system".into(),
                false => format!(
                    "it changes settings of the whole system, and other programs run: {others}; --system-wide \
                     compares it all the same"
                ),
            })),
            _ => Ok(plan),
        });
        let tried = plan.and_then(|plan| {
            let arrangement = plan.clone().arrange(settings)?;
            let said = arrangement.notes().to_vec();
            drop(arrangement);
            Ok((plan, said))
        });
        match tried {
            Ok((plan, said)) => {
                notes.extend(note);
                notes.extend(said.into_iter().map(|note| format!("{name}: {note}")));
                entries.push(Entry {
                    name,
                    own: own.cloned(),
                    plan,
                    seen: Seen::default(),
                    peak: 0,
                    warmups: Vec::new(),
                    runs: Vec::new(),
                    differed: Vec::new(),
                    dropped: None,
                });
            }
            Err(error) if index == 0 => return Err(error),
            Err(error) => left_out.push(format!("{name} is left out: {error}")),
        }
    }
    if entries.len() == 1 && !left_out.is_empty() {
        return Err(Error::Unable(format!(
            "nothing can be compared with {} here; {}",
            options.reference,
            left_out.join("; ")
        )));
    }
    notes.extend(left_out);
    Ok(entries)
}

/// So many of something: `1 run`, `2 runs`.
pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A sentence if other programs leave this machine no rest, by the load average of the last minute.
fn busy() -> Option<String> {
    let load = LoadAverage::current().ok()?.one;
    let processors = std::thread::available_parallelism().ok()?.get();
    let said =
        || format!("other programs keep this machine busy (load {load} on {processors} processors): times vary more");
    (load > processors as f32 / 2.0).then(said)
}

/// The words for the state of free memory before each run.
const METAL: &str = "metal";
const WARMED: &str = "warmed";
const COLD: &str = "cold host";

/// What lies under this machine, and what that means for the rows. `huge` says whether huge pages are compared at all.
fn look_under(options: &Options, huge: bool, notes: &mut Vec<String>) -> Result<&'static str, Error> {
    let (guest, reports) = (host::is_virtual(), host::reports_free_memory());
    if !guest && !reports {
        return Ok(METAL);
    }
    if guest && huge {
        // On a thread of its own, since it chooses a processor for itself.
        let finding = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, crate::probe::host_fractured);
            thread.map_err(Error::thread).map(|thread| thread.join().expect("probing does not panic"))
        })?;
        notes.push(match finding.is_so() {
            Some(true) => format!(
                "host-fractured: the host backs huge pages with small ones, so they reach no further in the TLB; gains come \
                 from cheaper walks and fewer faults ({})",
                finding.evidence
            ),
            Some(false) => format!("not host-fractured: huge pages reach as far in the TLB as they should ({})", finding.evidence),
            None => format!("whether the host fractures huge pages {}", finding.evidence),
        });
    }
    let why = match reports {
        true => "this machine may hand free memory back to its host",
        false => "the host of this virtual machine may take free memory",
    };
    if options.cold_host {
        notes.push(format!(
            "cold host: {why}, and nothing was touched before the runs; huge pages look worse than they are"
        ));
        return Ok(COLD);
    }
    notes.push(format!("{why}: before each run as much memory as any run needed so far was touched and freed"));
    Ok(WARMED)
}

/// One run among all.
#[derive(Clone, Copy)]
struct Turn {
    /// The round that it counts in, or none.
    round: Option<usize>,
    /// The peak of its memory that is expected, in bytes.
    expected: u64,
    /// The bytes that are touched before.
    warm: u64,
}

/// What all runs have in common.
struct Comparing<'a> {
    options: &'a Options,
    settings: Settings,
    constant: Constant,
    available: Available,
    warms: bool,
    /// What starts the load, where a server is compared.
    loader: Option<Loader>,
    /// Whether its output had a throughput so far.
    numbers: Option<bool>,
    /// Whether processes can be looked at when they end; else why not.
    traces: Result<(), String>,
    /// How many processes that the command left behind had to be ended.
    left: usize,
    /// What there is to say of the command and its code.
    notes: Vec<String>,
}

impl Comparing<'_> {
    /// One run, with what comes before and after it. `None` if it was stopped.
    fn run(&mut self, entry: &mut Entry, turn: Turn, stop: &Stop) -> Result<Option<Run>, Error> {
        let options = self.options;
        if !aside("--prepare", &options.prepare, options.output, &|| stop.is_set())? {
            return Ok(None);
        }
        let outcome = self.measure(entry, turn, stop);
        // It puts back what was prepared, so it runs whatever became of the run; only a signal that
        // comes while it runs ends it.
        let stopped = stop.flag.swap(false, Ordering::Relaxed);
        let concluded = aside("--conclude", &options.conclude, options.output, &|| stop.is_flagged());
        stop.flag.fetch_or(stopped, Ordering::Relaxed);
        let Some((done, traced)) = outcome? else {
            self.notes.extend(concluded.err().map(|error| error.to_string()));
            return Ok(None);
        };
        if !concluded? {
            return Ok(None);
        }
        let Done { run, left, code, seen } = done;
        if run.code != 0 && traced && !options.ignore_failure {
            // It may be one that traces others, such as a debugger. Where it fails anyhow the next try says so.
            self.traces = Err("it ended with a failure where it was traced".into());
            self.note(format!(
                "the command ended with status {} under {} in a warm-up run that traced it; it was run again \
                 without tracing",
                run.code, entry.name
            ));
            return self.run(entry, turn, stop);
        }
        self.left += left;
        entry.seen.add(seen);
        code.into_iter().for_each(|said| self.note(format!("{}: {said}", entry.name)));
        self.judge(entry, turn, &run)?;
        Ok(Some(run))
    }

    /// The run itself, and whether its processes were traced. `None` if it was stopped.
    fn measure(&mut self, entry: &Entry, turn: Turn, stop: &Stop) -> Result<Option<(Done, bool)>, Error> {
        let (options, Turn { round, expected, warm }) = (self.options, turn);
        let warmed = if self.warms { host::warm(warm) } else { 0 };
        if stop.is_set() {
            return Ok(None);
        }
        let budget = if round.is_some() { Budget::TIMED } else { Budget::WARMUP };
        let plan = entry.plan.clone();
        let (folio, thorough) = (plan.policy.live().folios, round.is_none());
        let looks = sample::Plan { budget, expected, folio, thorough, stop: Arc::clone(stop.flag) };
        // What places code traces the command itself, at its start.
        // A server is looked at while it serves.
        let traced = thorough && self.traces.is_ok() && plan.policy.live().way.is_none() && options.server.is_none();
        let log = self.loader.as_ref().map(Loader::log);
        let command = options.measured(entry.own.as_deref(), log.as_deref())?;
        let serves = options.server.as_ref().zip(self.loader.as_mut());
        let task = run::Task { command, serves, plan, looks, traced, constant: &self.constant, stop };
        let outcome = run::run(task, &mut self.settings, &self.available).map_err(|error| match error {
            Error::Unable(why) if self.loader.is_some() => Error::Unable(format!("under {}: {why}", entry.name)),
            // Not where the system has no room for a process.
            Error::Exec { ref source, .. } if [NotFound, PermissionDenied].contains(&source.kind()) => {
                Error::Usage(format!("{error}; name a program that can be run"))
            }
            error => error,
        })?;
        let Outcome::Done(mut done) = outcome else { return Ok(None) };
        done.run.warmed = warmed;
        Ok((!stop.is_set()).then_some((*done, traced)))
    }

    /// Refuses a run that failed, or whose load said nothing that can be compared.
    fn judge(&mut self, entry: &Entry, Turn { round, .. }: Turn, run: &Run) -> Result<(), Error> {
        let options = self.options;
        if let Some(loader) = &self.loader {
            self.show(loader);
        }
        let (what, said) = match &self.loader {
            Some(loader) => ("load", last_lines(&loader.output())),
            None => ("command", "--show-output shows what it says".into()),
        };
        // What shells and setsid say of a program that is not there, or cannot be executed.
        if matches!(run.code, 126 | 127) {
            return Err(Error::Usage(format!(
                "the {what} ended with status {} under {}: a program in it does not exist or cannot be executed; {said}; \
                 name one that can be run",
                run.code, entry.name
            )));
        }
        if run.code != 0 && !options.ignore_failure {
            let when = round.map_or("a warm-up run".to_string(), |round| format!("round {}", round + 1));
            return Err(Error::Unable(format!(
                "the {what} ended with status {} under {} in {when}; {said}; -i compares in spite of it",
                run.code, entry.name
            )));
        }
        if let Some(load) = &run.load {
            if let Some(rate) = load.odd {
                return Err(Error::Unable(format!(
                    "under {}: the load says that it had {rate:?} requests a second, which is no throughput: see that it \
                     reaches the server; {said}",
                    entry.name
                )));
            }
            let numbers = load.requests_per_second.is_some();
            if self.numbers.is_some_and(|before| before != numbers) {
                return Err(Error::Unable(format!(
                    "the load's output has a throughput in some runs and none in others, as under {}: {said}",
                    entry.name
                )));
            }
            self.numbers = Some(numbers);
            if !numbers {
                self.note(NO_NUMBER.into());
            }
            if load.tests > 1 && load.latencies.iter().any(Option::is_some) {
                self.note(SEVERAL.into());
            }
        }
        if run.code != 0 && round.is_none() {
            self.note(format!("the {what} ended with status {} under {} in a warm-up run", run.code, entry.name));
        }
        Ok(())
    }

    /// What the server and the load said, where that is to be shown. Where nobody reads it, it is
    /// lost.
    fn show(&self, loader: &Loader) {
        for file in [loader.log(), loader.output()] {
            let said = || std::fs::read(&file).unwrap_or_default();
            let _ = match self.options.output {
                Output::Null => Ok(()),
                Output::Inherit => std::io::stdout().write_all(&said()),
                Output::Stderr => std::io::stderr().write_all(&said()),
            };
        }
    }

    /// Says something once, at the end.
    fn note(&mut self, said: String) {
        if !self.notes.contains(&said) {
            self.notes.push(said);
        }
    }
}

/// Said of a load in whose output nothing is known.
const NO_NUMBER: &str = "the load's output has no throughput that is known, so the time that it took is compared; \
    --throughput TEXT says what stands before the number";

/// Said of a load with percentiles of several tests.
const SEVERAL: &str = "the load has several tests: requests/s counts as many requests of each, and percentiles are those \
    of the slowest";

/// What is done before or after a run, without a policy. Returns false if it failed when it was to
/// stop: it was ended, or got a signal too.
fn aside(flag: &str, script: &Option<String>, output: Output, stop: &dyn Fn() -> bool) -> Result<bool, Error> {
    let Some(script) = script else { return Ok(true) };
    let status = run_outside(&mut options::start(&[script.into()], true, output)?, stop)?;
    match status.success() {
        true => Ok(true),
        false if stop() => Ok(false),
        false => Err(Error::Unable(format!("what {flag} says failed with {status}: {script}"))),
    }
}

/// A row for each policy, of the first `rounds` rounds, at a look at the `family`. `rules` are the
/// settings of the system when they began.
fn rows(
    options: &Options,
    entries: &[Entry],
    (rounds, family): (usize, Family),
    (memory_before, rules): (&'static str, &Rules),
) -> Vec<Row> {
    if rounds == 0 {
        return Vec::new();
    }
    let reference: Vec<f64> = entries[0].runs[..rounds].iter().map(|run| run.wall).collect();
    let rows = entries.iter().enumerate().map(|(index, entry)| {
        let runs: Vec<&Run> = entry.runs(rounds).iter().collect();
        let family = entry.dropped.as_ref().map_or(family, |(family, _)| *family);
        let beside = (index > 0).then_some((&reference[..], family));
        let line = options.line_with(entry.own.as_deref());
        let row = Row::of((&line, &entry.name), memory_before, &runs, &entry.warmups, beside);
        let own_command = entry.own.as_deref().map(options::line);
        let (settings_differed, dropped) = (entry.differed(rounds).count(), entry.dropped.as_ref());
        Row { settings_differed, dropped: dropped.map(|(_, why)| why.clone()), own_command, ..row }
    });
    let mut rows: Vec<Row> = rows.collect();
    let arm = |index: usize| {
        let Entry { plan, seen, .. } = &entries[index];
        Arm { policy: &plan.policy, row: &rows[index], seen }
    };
    let huge = huge_page_bytes();
    let others = (1..entries.len()).map(|index| match entries[index].own {
        // What is huge under the reference is another command's.
        Some(_) => Did::new(did::as_it_is(arm(index), huge, rules), None),
        None => did::beside(arm(index), arm(0), huge, rules),
    });
    let first = Did::new(did::as_it_is(arm(0), huge, rules), None);
    let told: Vec<Did> = std::iter::once(first).chain(others).collect();
    let comparable = entries[0].differed(rounds).next().is_none();
    for (row, Did { words, reached }) in rows.iter_mut().zip(told) {
        let did = if row.settings_differed > 0 { format!("under other settings: {words}") } else { words };
        row.tell(did, reached, comparable);
    }
    rows
}

/// A sentence on the rows that do not say how much is huge; `traces` is why processes were not looked at when they
/// ended.
fn unseen(options: &Options, rows: &[Row], traces: Option<String>) -> Option<String> {
    let unseen: Vec<&str> =
        rows.iter().filter(|row| row.huge_coverage_percent.is_none()).map(|row| row.policy.as_str()).collect();
    if unseen.is_empty() {
        return None;
    }
    let why = match traces {
        _ if options.server.is_some() => {
            "it served too short a time: give more of the load, or warm-up runs (-w), which are looked at more closely"
                .into()
        }
        _ if options.warmup == 0 => {
            "only runs that do not count are looked at when they end, and there are none".into()
        }
        Some(why) => format!("the command is not looked at when it ends: {why}"),
        None => "at its end it had given back what it had at the peak, which was too short to be looked at".into(),
    };
    Some(format!("what is huge at the peak was not seen under {}: {why}", unseen.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let usage = |options: Options| matches!(compare(&options, &Arc::default(), &mut ()), Err(Error::Usage(_)));
        assert!(usage(Options { policies: Vec::new(), ..Options::new([""; 0]) }));
        assert!(usage(Options { policies: Vec::new(), runs: 0, ..Options::new(["true"]) }));
    }
}
