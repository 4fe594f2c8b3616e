//! One run of the command under a policy.

use super::counters::Available;
use super::row::Run;
use super::sample::{self, Sampler};
use crate::Error;
use crate::launch::Plan;
use crate::settings::Settings;
use crate::text;
use crate::tree::Tree;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the flag to stop is looked at while the command runs.
const LOOK: Duration = Duration::from_millis(100);
/// What is left behind by the command may go on for this long at least, or else as long as the command took.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a run.
pub(super) enum Outcome {
    /// It was measured. With it, how many processes that the command left behind had to be ended, and what is to be said of
    /// the command's code.
    Done(Run, usize, Vec<String>),
    /// The flag to stop was set; nothing of the command lives any more.
    Stopped,
}

/// Runs `command` under the policy of `plan`, and waits for all that it starts.
pub(super) fn run(
    mut command: Command,
    plan: Plan,
    settings: &mut Settings,
    available: &Available,
    looks: sample::Plan,
    stop: &AtomicBool,
) -> Result<Outcome, Error> {
    let arrangement = plan.arrange(settings)?;
    arrangement.prepare(&mut command);
    if arrangement.text().is_some() {
        text::prepare(&mut command)?;
    }
    let counters = available.open().map_err(Error::system("open hardware counters"))?;
    let started = Instant::now();
    let mut tree = Tree::spawn(&mut command)?;
    // Within the time of the command: it is what the policy costs.
    let placed = arrangement.text().map(|way| text::place(tree.pid() as u32, way, None)).unwrap_or_default();
    let promoting = arrangement.promote()?;
    let sampler = Sampler::start(looks);
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
    drop(promoting);
    // It counts the moment before the exec too, when the command was a copy of this process: some MB are the least.
    let memory = sampler.finish(usage.peak_process_bytes);
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
    let code = placed.code.iter().map(ToString::to_string).chain(placed.notes);
    Ok(Outcome::Done(run, left, code.collect()))
}
