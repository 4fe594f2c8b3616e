//! The runs of a comparison: each with what comes before and after it, and whether it counts.

use super::constant::Constant;
use super::counters::Available;
use super::entries::Entry;
use super::host::{Before, Free};
use super::row::Run;
use super::run::{self, Done, Outcome};
use super::served::{Loader, last_lines};
use super::{Options, Output, Stop, options};
use crate::sample::{self, Budget};
use std::io::ErrorKind::{NotFound, PermissionDenied};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use superpage_linux::Error;
use superpage_linux::settings::Settings;
use superpage_linux::tree::run_outside;

/// One run among all.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// The round that it counts in, or none.
    pub(super) round: Option<usize>,
    /// The peak of its memory that is expected, in bytes.
    pub(super) expected: u64,
    /// The bytes that are touched before.
    pub(super) warm: u64,
}

/// What all runs have in common.
pub(super) struct Comparing<'a> {
    pub(super) options: &'a Options,
    pub(super) settings: Settings,
    pub(super) constant: Constant,
    pub(super) available: Available,
    pub(super) before: Before,
    /// What starts the load, where a server is compared.
    pub(super) loader: Option<Loader>,
    /// Whether its output had a throughput so far.
    pub(super) numbers: Option<bool>,
    /// Whether processes can be looked at when they end; else why not.
    pub(super) traces: Result<(), String>,
    /// How many processes that the command left behind had to be ended.
    pub(super) left: usize,
    /// What there is to say of the command and its code.
    pub(super) notes: Vec<String>,
}

impl Comparing<'_> {
    /// One run, with what comes before and after it. `None` if it was stopped.
    pub(super) fn run(&mut self, entry: &mut Entry, turn: Turn, stop: &Stop) -> Result<Option<Run>, Error> {
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
            // It may be one that traces others, such as a debugger. Where it fails anyhow the next
            // try says so.
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
        let Free { warmed, blocks } = self.before.prepare(warm, &|| stop.is_set())?;
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
        (done.run.warmed, done.run.free_blocks) = (warmed, blocks);
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
                let after = self.options.server.as_ref().and_then(|server| server.after.as_deref());
                if let Some(after) = after {
                    return Err(Error::Usage(format!(
                        "the load's output has no number after {after:?} (--throughput) under {}: {said}",
                        entry.name
                    )));
                }
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
