//! One run of the command under a policy.

use super::counters::Available;
use super::row::Run;
use super::sample::{self, Sampler};
use crate::inspect::Reach;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::launch::{Plan, Promoting, Work};
use superpage_linux::settings::Settings;
use superpage_linux::text;
use superpage_linux::tree::Tree;

/// How often the flag to stop is looked at while the command runs.
const LOOK: Duration = Duration::from_millis(100);
/// What is left behind by the command may go on for this long at least, or else as long as the command took.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a run.
pub(super) enum Outcome {
    /// It was measured.
    Done(Box<Done>),
    /// The flag to stop was set; nothing of the command lives any more.
    Stopped,
}

/// A run that was measured, and what was seen on the way.
pub(super) struct Done {
    pub(super) run: Run,
    /// How many processes that the command left behind had to be ended.
    pub(super) left: usize,
    /// What there is to say of the command's code.
    pub(super) code: Vec<String>,
    /// How much of the code lies on huge pages, where the policy places it.
    pub(super) code_bytes: u64,
    /// What the program asked for, where that was looked at.
    pub(super) reach: Option<Reach>,
    /// What the promoter of the policy did.
    pub(super) work: Option<Work>,
}

/// Runs `command` under the policy of `plan`, and waits for all that it starts; `traced`, each of its processes is looked at
/// when it ends, which takes time.
pub(super) fn run(
    mut command: Command,
    plan: Plan,
    settings: &mut Settings,
    available: &Available,
    looks: sample::Plan,
    traced: bool,
    stop: &AtomicBool,
) -> Result<Outcome, Error> {
    let arrangement = plan.arrange(settings)?;
    arrangement.prepare(&mut command);
    if arrangement.text().is_some() {
        text::prepare(&mut command)?;
    }
    // In a run that is timed nothing of ours comes before the start.
    let early = traced.then(|| Sampler::start(looks.clone()));
    let counters = available.open().map_err(Error::system("open hardware counters"))?;
    let started = Instant::now();
    let mut tree = match &early {
        Some(sampler) => Tree::spawn_traced(&mut command, sampler.at_ends())?,
        None => Tree::spawn(&mut command)?,
    };
    // Within the time of the command: it is what the policy costs.
    let placed = arrangement.text().map(|way| text::place(tree.pid() as u32, way, None)).unwrap_or_default();
    let promoting = arrangement.promote()?;
    let sampler = early.unwrap_or_else(|| Sampler::start(looks));
    let mut ended = None;
    let mut left = 0;
    let wall = loop {
        if stop.load(Ordering::Relaxed) {
            tree.end(Duration::from_secs(2))?;
            return Ok(Outcome::Stopped);
        }
        let Some(end) = ended else {
            ended = tree.wait(Some(LOOK))?;
            continue;
        };
        if tree.wait_all(Some(Duration::ZERO))? {
            break end.wall;
        }
        // The command has ended, and something that it started has not: it belongs to the run, unless it stays for good.
        if tree.wait_all(Some(LOOK))? {
            break started.elapsed();
        }
        if started.elapsed() > end.wall + end.wall.max(PATIENCE) {
            left = tree.members().len();
            tree.end(Duration::from_secs(2))?;
            break end.wall;
        }
    };
    let usage = tree.usage();
    let work = promoting.map(Promoting::finish_work);
    // It counts the moment before the exec too, when the command was a copy of this process: some MB are the least.
    let (memory, reach) = sampler.finish_thorough(usage.peak_process_bytes);
    let counts = counters.read().map_err(Error::system("read hardware counters"))?;
    drop(tree);
    arrangement.restore()?;
    let run = Run {
        wall: wall.as_secs_f64(),
        user: usage.user.as_secs_f64(),
        system: usage.system.as_secs_f64(),
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        memory,
        counts,
        code: ended.map_or(1, |ended| ended.code()),
        warmed: 0,
    };
    let code_bytes = placed.code.iter().map(|placement| placement.huge_bytes).sum();
    let code = placed.code.iter().map(ToString::to_string).chain(placed.notes).collect();
    Ok(Outcome::Done(Box::new(Done { run, left, code, code_bytes, reach, work })))
}
