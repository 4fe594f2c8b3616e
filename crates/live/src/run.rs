//! One command under one policy, from start to end.

use crate::Policy;
use crate::inspect::Reach;
use crate::policy::Plan;
use crate::promote::Work;
use crate::sample::{Budget, Memory, Plan as Looks};
use crate::session::{self, Seen, Session, Task};
use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::signals::Signals;
use superpage_linux::text::{Placement, Way};
use superpage_linux::tree::{Ended, Usage};

/// What watching may cost, besides what [`Watch`](crate::watch::Watch) does: 50 ms and 1 % of one
/// core, half of it for huge pages.
const WATCH: Budget = Budget { resident: 0.002, huge: 0.005, folios: 0.0025, growth: Duration::from_millis(50) };

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy.
    pub policy: Policy,
    /// Wait for all descendants of the command, not for the command alone.
    pub wait: bool,
    /// Sample the memory of the command and its descendants from time to time: 0.1 s and 1 % of one
    /// core.
    pub watch: bool,
    /// Place its code on huge pages, even if the policy does not.
    pub text: Option<Way>,
    /// Keep the file with the symbols of remapped code for `perf report`; otherwise it exists while
    /// the command runs.
    pub perf_map: bool,
}

/// The results of a command.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Outcome {
    /// The exit status: the command's own, or 128 plus the signal that ended it.
    pub code: u8,
    /// How the command ended; `None` if a signal arrived before it was started.
    pub ended: Option<Ended>,
    /// The resources that it and its descendants used, of those that have ended.
    pub usage: Usage,
    /// What was sampled of their memory, if it was watched.
    pub memory: Option<Memory>,
    /// The effect of the policy on it and its descendants, at the last sample near their peak, if
    /// they were watched.
    pub reach: Option<Reach>,
    /// Its descendants that still run: their numbers, and their names, which are untrusted.
    pub left: Vec<(i32, String)>,
    /// What the promoter did, if the policy has one.
    pub work: Option<Work>,
    /// The results for the command's code, if it was to be placed.
    pub text: Vec<Placement>,
    /// What failed in placing the code.
    pub text_notes: Vec<String>,
    /// What was changed system-wide, and what could not be done.
    pub notes: Vec<String>,
}

/// Runs a command under a policy and waits for it. Its standard streams are this process's, signals
/// to this process are passed on, and system-wide settings are restored before this returns. Call
/// it while the process has one thread.
///
/// # Errors
/// [`Error::Unable`] if the system does not support the policy, [`Error::Exec`] if the command
/// cannot be started ([`exec_status`](superpage_linux::tree::exec_status) returns the status for
/// that).
pub fn run(options: &Options, command: &[OsString]) -> Result<Outcome, Error> {
    let [program, arguments @ ..] = command else {
        return Err(Error::Usage("there is no command to run; give it after --".to_string()));
    };
    let mut settings = session::settings([&options.policy], false, true);
    let plan = Plan::new(&options.policy, settings.system())?;
    // From now on signals wait until all is put back.
    let signals = Signals::hold()?;
    let mut command = Command::new(program);
    command.args(arguments);
    let folio = options.policy.live().folios;
    let looks = Looks { budget: WATCH, expected: 0, folio, thorough: false, stop: Arc::default() };
    let task = Task {
        command,
        way: options.text,
        looks: options.watch.then_some(looks),
        at_ends: false,
        reach: options.watch,
    };
    let session = Session::apply(plan, &mut settings, Some(signals), task)?;
    if let Some(signal) = session.ending() {
        return Ok(Outcome { code: 128 + signal as u8, notes: session.put_back(), ..Outcome::default() });
    }
    let begun = Instant::now();
    let mut running = session.start()?;
    // While the command runs already.
    let pid = running.tree.pid() as u32;
    let symbols = running.placed.symbols(pid).unwrap_or_else(|error| {
        running.placed.notes.push(format!("perf will know no symbols of the remapped code: {error}"));
        None
    });
    let mut ended = running.wait(None)?.expect("it was waited for");
    if options.wait {
        running.wait_all(None)?;
        ended.wall = ended.wall.max(begun.elapsed());
    }
    // Descendants that have just ended are counted, and what runs on is not waited for.
    let members = if running.wait_all(Some(Duration::ZERO))? { Vec::new() } else { running.tree.members() };
    let left = members.into_iter().map(|pid| (pid, name(pid))).collect();
    let usage = running.tree.usage();
    let Seen { memory, reach, work } = running.seen(usage.peak_process_bytes);
    if let Some(symbols) = symbols.filter(|_| options.perf_map) {
        symbols.keep();
    }
    let (notes, placed) = running.put_back(true);
    // What was seen while memory was small says little of what there was later.
    let peak = memory.as_ref().map_or(0, |memory| memory.peak).max(usage.peak_process_bytes);
    Ok(Outcome {
        code: ended.code(),
        ended: Some(ended),
        usage,
        memory,
        reach: reach.filter(|reach| 4 * reach.resident >= peak),
        left,
        work,
        text: placed.code,
        text_notes: placed.notes,
        notes,
    })
}

/// The name that a process has given itself.
fn name(pid: i32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\n').to_string()
}
