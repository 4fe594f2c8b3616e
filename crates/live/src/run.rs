//! One command under one policy, from start to end.

use crate::compare::sample::{Budget, Memory, Plan as Looks, Sampler, Walk};
use crate::inspect::Reach;
use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use superpage_linux::launch::{Plan, Promoting};
use superpage_linux::promote::Counters;
use superpage_linux::settings::{Settings, System};
use superpage_linux::signals::Signals;
use superpage_linux::text::{self, Placement, Way};
use superpage_linux::tree::{Ended, Tree, Usage, descendants};
use superpage_linux::{Error, Policy};

/// What watching may cost, besides what [`Watch`] does: 0.7 % of one core, most of it for huge pages and folios.
const WATCH: Budget = Budget { resident: 0.002, huge: 0.0025, folios: 0.0025 };

/// How a command is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What gives it its pages.
    pub policy: Policy,
    /// Wait for all that the command has started, not for the command alone.
    pub wait: bool,
    /// Look at the memory of the command and its descendants now and then: 0.1 s and 1 % of one core.
    pub watch: bool,
    /// Put its code on huge pages, also where the policy does not.
    pub text: Option<Way>,
    /// Leave the symbols of code that was remapped in a file for `perf report`; else they are there while the command runs.
    pub perf_map: bool,
}

/// What became of a command.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The status to end with: the command's own, or 128 and the signal that ended it.
    pub code: u8,
    /// How the command ended; `None` when a signal came before it was started.
    pub ended: Option<Ended>,
    /// What it and its descendants used, of those that have ended.
    pub usage: Usage,
    /// What was seen of their memory, if it was watched.
    pub memory: Option<Memory>,
    /// What the policy came to in it and its descendants, at the last look near their peak, if they were watched.
    pub reach: Option<Reach>,
    /// Its descendants that still run: their numbers, and their names as they gave them.
    pub left: Vec<(i32, String)>,
    /// What the promoter did, where the policy has one.
    pub promoted: Option<Counters>,
    /// What became of the command's code, where it was to be placed.
    pub text: Vec<Placement>,
    /// What was not possible with the code.
    pub text_notes: Vec<String>,
    /// What was done for the whole system, and what could not be done.
    pub notes: Vec<String>,
}

/// Runs a command under a policy and waits for it. Its standard streams are this process's, signals that come to this
/// process are passed on, and settings of the whole system are put back before this returns. To be called while the
/// process has one thread.
///
/// # Errors
/// [`Error::Unable`] where the system cannot carry out the policy, [`Error::Exec`] when the command cannot be started
/// ([`exec_status`](superpage_linux::tree::exec_status) tells the status for that).
pub fn run(options: &Options, command: &[OsString]) -> Result<Outcome, Error> {
    let [program, arguments @ ..] = command else {
        return Err(Error::Usage("there is no command to run; give it after --".to_string()));
    };
    let system = System::live();
    let plan = Plan::new(&options.policy, &system)?;
    let mut settings = Settings::new(system, true);
    if plan.is_global() {
        // Waiting for the lock can still be interrupted; from then on signals wait until all is put back. Without the
        // right to the lock the arrangement may still find everything as it should be.
        let _ = settings.lock();
    }
    let signals = Signals::hold()?;
    let arrangement = plan.arrange(&mut settings)?;
    let mut command = Command::new(program);
    command.args(arguments);
    arrangement.prepare(&mut command);
    signals.prepare(&mut command);
    let way = options.text.or(arrangement.text());
    if way.is_some() {
        text::prepare(&mut command)?;
    }
    if let Some(signal) = signals.ending() {
        let notes = arrangement.notes().to_vec();
        arrangement.restore()?;
        return Ok(Outcome {
            code: 128 + signal as u8,
            ended: None,
            usage: Usage::default(),
            memory: None,
            reach: None,
            left: Vec::new(),
            promoted: None,
            text: Vec::new(),
            text_notes: Vec::new(),
            notes,
        });
    }
    let mut tree = Tree::spawn(&mut command)?;
    let mut placed = way.map(|way| text::place(tree.pid() as u32, way, None)).unwrap_or_default();
    let passing = signals.pass_on(tree.pid(), tree.pidfd())?;
    let promoting = arrangement.promote()?;
    let sampler = options.watch.then(|| Sampler::start(looks(&options.policy)));
    // While the command runs already.
    let symbols = placed.symbols(tree.pid() as u32).unwrap_or_else(|error| {
        placed.notes.push(format!("perf will know no symbols of the remapped code: {error}"));
        None
    });
    let watch = options.watch.then(Watch::start);
    let ended = tree.wait(None)?.expect("it was waited for");
    if options.wait {
        tree.wait_all(None)?;
    }
    // Descendants that have just ended are counted, and what runs on is not waited for.
    let members = if tree.wait_all(Some(Duration::ZERO))? { Vec::new() } else { tree.members() };
    let left = members.into_iter().map(|pid| (pid, name(pid))).collect();
    let usage = tree.usage();
    // The kernel's own peak counts the moment before the exec too, when the command was a copy of this process.
    let memory = sampler.map(|sampler| sampler.finish(0));
    let promoted = promoting.map(Promoting::finish);
    tree.leave();
    if let Some(symbols) = symbols.filter(|_| options.perf_map) {
        symbols.keep();
    }
    let notes = arrangement.notes().to_vec();
    arrangement.restore()?;
    drop(passing);
    let (code, ended) = (ended.code(), Some(ended));
    let (text, text_notes) = (placed.code, placed.notes);
    // What was seen while memory was small says little of what there was later.
    let peak = memory.as_ref().map_or(0, |memory| memory.peak).max(usage.peak_process_bytes);
    let reach = watch.and_then(Watch::finish).filter(|reach| 4 * reach.resident >= peak);
    Ok(Outcome { code, ended, usage, memory, reach, left, promoted, text, text_notes, notes })
}

/// The name that a process has given itself.
fn name(pid: i32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\n').to_string()
}

/// A thread that looks at what the policy comes to, ever more rarely: each time that the command has run a quarter longer.
struct Watch {
    /// Set when the command has ended: a look that goes on is given up.
    over: Arc<AtomicBool>,
    thread: JoinHandle<Option<Reach>>,
}

impl Watch {
    /// When the first look is; most programs have read their libraries then.
    const FIRST: Duration = Duration::from_millis(100);
    /// The most that looking may take of a processor's time, beyond what is free.
    const SHARE: f64 = 0.003;
    const FREE: Duration = Duration::from_millis(100);
    /// How long a look waits that the budget does not allow yet.
    const AGAIN: Duration = Duration::from_secs(1);

    fn start() -> Watch {
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        Watch { over, thread: std::thread::spawn(move || Watch::looks(&|| flag.load(Ordering::Relaxed))) }
    }

    /// Ends the looking. Gives what was seen last where there was about as much memory as there ever was.
    fn finish(self) -> Option<Reach> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().expect("looking does not panic")
    }

    fn looks(over: &dyn Fn() -> bool) -> Option<Reach> {
        // A first guess is as good as none: what takes longer is given up.
        let (began, mut walk) = (Instant::now(), Walk::new(0.0, 0.0));
        let (mut best, mut next): (Option<Reach>, _) = (None, Watch::FIRST);
        while !over() {
            let now = began.elapsed();
            if now < next {
                std::thread::park_timeout(next - now);
                continue;
            }
            let allowed = Watch::FREE + now.mul_f64(Watch::SHARE);
            let look = |go_on: &dyn Fn() -> bool| Reach::read_while(&descendants(std::process::id() as i32), go_on);
            match walk.look(1, Some(allowed), over, look) {
                Some(seen) => {
                    if best.as_ref().is_none_or(|best| seen.resident as f64 >= 0.9 * best.resident as f64) {
                        best = Some(seen);
                    }
                    next = began.elapsed() + now / 4;
                }
                None => next = began.elapsed() + Watch::AGAIN,
            }
        }
        best
    }
}

/// When to look at memory: folios are counted where the policy is about them.
fn looks(policy: &Policy) -> Looks {
    let folio = match policy {
        Policy::Mthp { sizes } => Some(*sizes),
        _ => None,
    };
    Looks { budget: WATCH, expected: 0, folio, thorough: false, stop: Arc::default() }
}
