//! One run of the command under a policy.

use super::constant::Constant;
use super::counters::Available;
use super::did;
use super::row::Run;
use crate::launch::Plan;
use crate::sample;
use crate::session::{self, Seen, Session};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::settings::Settings;

/// How often the flag to stop is looked at while the command runs.
const LOOK: Duration = Duration::from_millis(100);
/// How often the settings of the system are looked at meanwhile, besides at its start and end.
const SETTINGS: Duration = Duration::from_secs(1);
/// What is left behind by the command may go on for this long at least, or else as long as the command took.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a run.
pub(super) enum Outcome {
    /// It was measured.
    Done(Box<Done>),
    /// The stop flag was set; no process of the command lives any more.
    Stopped,
}

/// A run that was measured, and what was seen on the way.
pub(super) struct Done {
    pub(super) run: Run,
    /// How many processes that the command left behind had to be ended.
    pub(super) left: usize,
    /// What there is to say of the command's code.
    pub(super) code: Vec<String>,
    /// What the policy did.
    pub(super) seen: did::Seen,
}

/// A run that is to be done.
pub(super) struct Task<'a> {
    pub(super) command: Command,
    pub(super) plan: Plan,
    pub(super) looks: sample::Plan,
    /// Each of its processes is looked at when it ends, which takes time.
    pub(super) traced: bool,
    pub(super) constant: &'a Constant,
    pub(super) stop: &'a AtomicBool,
}

/// Runs a command under a policy, and waits for all that it starts.
pub(super) fn run(task: Task, settings: &mut Settings, available: &Available) -> Result<Outcome, Error> {
    let Task { command, plan, looks, traced, constant, stop } = task;
    let mut differed = constant.differs();
    let task = session::Task { command, way: None, looks: Some(looks), at_ends: traced, reach: false };
    let session = Session::apply(plan, settings, None, task)?;
    let mut in_force = constant.in_force();
    let counters = available.open().map_err(Error::system("open hardware counters"))?;
    let mut running = session.start()?;
    let started = running.started;
    let mut ended = None;
    let mut left = 0;
    let mut looked = started;
    let wall = loop {
        if looked.elapsed() >= SETTINGS {
            in_force.look(running.has_ended_brief());
            looked = Instant::now();
        }
        if stop.load(Ordering::Relaxed) {
            running.tree.end(Duration::from_secs(2))?;
            return Ok(Outcome::Stopped);
        }
        let Some(end) = ended else {
            ended = running.wait(Some(LOOK))?;
            continue;
        };
        if running.wait_all(Some(Duration::ZERO))? {
            break end.wall;
        }
        // The command has ended, and something that it started has not: it belongs to the run, unless it stays for
        // good.
        if running.wait_all(Some(LOOK))? {
            break started.elapsed();
        }
        if started.elapsed() > end.wall + end.wall.max(PATIENCE) {
            left = running.tree.members().len();
            running.tree.end(Duration::from_secs(2))?;
            break end.wall;
        }
    };
    let usage = running.tree.usage();
    in_force.look(running.has_ended_brief());
    // It counts the moment before the exec too, when the command was a copy of this process: some MB are the least.
    let Seen { memory, reach, work } = running.seen(usage.peak_process_bytes);
    let counts = counters.read().map_err(Error::system("read hardware counters"))?;
    let (_, placed) = running.put_back(false);
    if settings.mark() > 0 {
        let sentence = "the comparison ends: the next run would be measured under settings that were not put back";
        return Err(Error::Unable(sentence.to_string()));
    }
    differed = differed.or(in_force.differed);
    let run = Run {
        wall: wall.as_secs_f64(),
        user: usage.user.as_secs_f64(),
        system: usage.system.as_secs_f64(),
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        memory: memory.expect("it was looked at"),
        counts,
        code: ended.map_or(1, |ended| ended.code()),
        warmed: 0,
        differed,
    };
    let code_bytes = placed.code.iter().map(|placement| placement.huge_bytes).sum();
    let code: Vec<String> = placed.code.iter().map(ToString::to_string).chain(placed.notes).collect();
    let seen = did::Seen { reach, work, code_bytes, code: code.first().cloned() };
    Ok(Outcome::Done(Box::new(Done { run, left, code, seen })))
}
