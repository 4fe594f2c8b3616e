//! Long work: on a thread of its own, while the calling thread listens for Ctrl-C and reports
//! progress.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rayon::{ThreadBuilder, ThreadPoolBuilder};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often the calling thread looks.
const STEP: Duration = Duration::from_millis(50);

/// How many steps an exception waits for work to end by itself, before it is raised in what that
/// has called in Python, and again.
const PATIENCE: u32 = 20;

/// The most threads, as of `superpage sim --threads`.
const MOST: usize = 1024;

/// What the work and the calling thread tell each other.
#[derive(Default)]
pub(crate) struct Ticket {
    /// Set when the work is to end.
    pub(crate) stop: Arc<AtomicBool>,
    done: AtomicU64,
    of: AtomicU64,
    /// The threads that call into Python, by the numbers that Python knows them by.
    threads: Mutex<Vec<u64>>,
    ended: Mutex<bool>,
    told: Condvar,
}

impl Ticket {
    /// So much is done, of so much if that is known.
    pub(crate) fn progress(&self, done: u64, of: Option<u64>) {
        self.done.store(done, Ordering::Relaxed);
        self.of.store(of.unwrap_or(0), Ordering::Relaxed);
    }

    /// Raises an exception in whatever its threads run in Python: a policy that does not return
    /// sees no flag.
    fn interrupt(&self, py: Python<'_>) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let raised = py.import("superpages._interrupt").and_then(|module| module.call_method1("interrupt", (threads,)));
        // An interpreter without it waits, as long as the policy takes.
        drop(raised);
    }

    fn end(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    /// Waits a step, or until the work ends; returns whether it has.
    fn wait(&self) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if *ended {
            return true;
        }
        *self.told.wait_timeout(ended, STEP).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Runs `work` on another thread, without the interpreter's lock. Each step this calls `progress`
/// with what is done and of how much (0: not known), and lets signals in: an exception of either
/// ends the work, and is raised when that has ended.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Ticket) -> T + Send,
) -> PyResult<T> {
    let ticket = Ticket::default();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("superpage".into()).spawn_scoped(scope, || {
            // However it ends, also by a panic.
            struct End<'a>(&'a Ticket);
            impl Drop for End<'_> {
                fn drop(&mut self) {
                    self.0.end();
                }
            }
            let _end = End(&ticket);
            work(&ticket)
        });
        let thread = thread.map_err(|error| PyRuntimeError::new_err(format!("cannot start a thread: {error}")))?;
        let (mut raised, mut steps) = (Ok(()), 0);
        while !py.detach(|| ticket.wait()) {
            if raised.is_ok() {
                raised = look(py, progress, &ticket);
                if raised.is_err() {
                    ticket.stop.store(true, Ordering::Relaxed);
                }
                continue;
            }
            steps += 1;
            if steps % PATIENCE == 0 {
                ticket.interrupt(py);
            }
        }
        let worked = py.detach(|| thread.join());
        raised.and_then(|()| look(py, progress, &ticket))?;
        worked.map_err(|_| PyRuntimeError::new_err("a bug in superpage, please report it: a panic, see standard error"))
    })
}

fn look(py: Python<'_>, progress: Option<&Bound<'_, PyAny>>, ticket: &Ticket) -> PyResult<()> {
    py.check_signals()?;
    if let Some(progress) = progress {
        progress.call1((ticket.done.load(Ordering::Relaxed), ticket.of.load(Ordering::Relaxed)))?;
    }
    Ok(())
}

/// Calls `work` with a thread state of Python's that lasts as long as it: calls into Python find
/// it, where each would otherwise make and delete one. The interpreter's lock is free meanwhile.
pub(crate) fn known_to_python(ticket: &Ticket, work: &mut (dyn FnMut() + Send)) {
    let threads = || ticket.threads.lock().unwrap_or_else(PoisonError::into_inner);
    Python::attach(|py| {
        let number = py.import("threading").and_then(|module| module.call_method0("get_ident")?.extract::<u64>());
        let number = number.ok();
        threads().extend(number);
        py.detach(work);
        threads().retain(|other| Some(*other) != number);
    });
}

/// Calls `work` with so many threads for simulations, or with those of the process. Where Python is
/// `called` for a ticket, from threads that it knows.
pub(crate) fn with_threads<T: Send>(
    threads: Option<usize>,
    called: Option<&Ticket>,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    let threads = match threads {
        None if called.is_none() => return Ok(work()),
        None => std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST),
        Some(threads @ 1..=MOST) => threads,
        Some(_) => return Err(PyValueError::new_err(format!("threads: expected 1 to {MOST}"))),
    };
    let known = |thread: ThreadBuilder| {
        let mut thread = Some(thread);
        let mut run = || thread.take().into_iter().for_each(ThreadBuilder::run);
        match called {
            Some(ticket) => known_to_python(ticket, &mut run),
            None => run(),
        }
    };
    let pool = ThreadPoolBuilder::new().num_threads(threads);
    pool.build_scoped(known, |pool| pool.install(work))
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start {threads} threads: {error}")))
}
