//! Signals that would end this process: a flag that long work tests between steps, and the exit
//! status.

use crate::Failure;
#[cfg(not(target_os = "linux"))]
use signal_hook::consts::SIGHUP;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use superpage_trace::record::{self, Recording};

/// The signals that end a process that does not catch them, but for those by which the processor
/// reports a broken program (SIGSEGV and the like), and SIGPIPE and SIGXFSZ.
#[cfg(target_os = "linux")]
pub(crate) fn ending() -> impl Iterator<Item = i32> {
    superpage_linux::signals::ending()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn ending() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter()
}

/// Whether a signal to stop has arrived, and which.
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
    /// Whether the next signal ends the process.
    ready: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    /// Whether any signal ends the process: nothing is left to stop or to restore.
    done: Arc<AtomicBool>,
}

/// What a second signal does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// It ends the process at once.
    Ends,
    /// It ends the process if it comes a second after the first or later: a terminal that is closed
    /// sends several, and what was recorded must be written.
    EndsLater,
    /// It has no further effect, if something must be restored in any case.
    Waits,
}

impl Stop {
    /// From now on the first of those that [end](ending) a process sets the flag, and a second one
    /// ends the process at once. An ignored signal, such as SIGHUP under `nohup`, stays ignored;
    /// SIGINT and SIGQUIT are caught even if a shell has a script's background jobs ignore them.
    pub(crate) fn catch() -> Stop {
        Stop::of(ending(), Second::Ends)
    }

    /// The same for a recording ([`Stop::recording`]): what comes within a second is one signal.
    pub(crate) fn catch_for_recording() -> Stop {
        Stop::of(ending(), Second::EndsLater)
    }

    /// Like [`catch`](Stop::catch), but what comes within a second is one signal: batch systems and
    /// `timeout` send it to a process and to its group.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn catch_once_a_second() -> Result<Stop, Failure> {
        let stop = Stop::of(ending(), Second::EndsLater);
        let (_, waits) = std::sync::mpsc::channel();
        stop.later(waits)?;
        Ok(stop)
    }

    /// Like [`catch`](Stop::catch), for these signals.
    pub(crate) fn of(signals: impl Iterator<Item = i32>, second: Second) -> Stop {
        let flag = Arc::default();
        let ready = if second == Second::Ends { Arc::clone(&flag) } else { Arc::default() };
        let stop = Stop { flag, ready, signal: Arc::new(AtomicUsize::new(SIGINT as usize)), done: Arc::default() };
        for signal in signals.filter(|signal| [SIGINT, SIGTERM, SIGQUIT].contains(signal) || !ignored(*signal)) {
            let ends_if = |flag: &Arc<AtomicBool>| {
                signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(flag)).map(drop)
            };
            let ends = || match second {
                Second::Ends | Second::EndsLater => ends_if(&stop.done).and_then(|()| ends_if(&stop.ready)),
                Second::Waits => ends_if(&stop.done),
            };
            // The order matters: the second signal finds the flag set by the first, and when the
            // flag is seen set, the number is set too.
            let registered = ends()
                .and_then(|()| signal_hook::flag::register_usize(signal, Arc::clone(&stop.signal), signal as usize))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop.flag)));
            if let Err(error) = registered {
                eprintln!("superpage: signal {signal} cannot be caught ({error}); it will lose the run");
            }
        }
        stop
    }

    /// The flag.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.flag
    }

    /// Whether a signal has arrived.
    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// From now on a signal ends the process at once: all is computed and restored, and what is
    /// written now may block for ever, as a pipe that nobody reads.
    pub(crate) fn done(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    /// The exit status of a stopped process: 128 plus the signal.
    pub(crate) fn status(&self) -> ExitCode {
        ExitCode::from(128 + self.signal.load(Ordering::Relaxed) as u8)
    }

    /// Starts a recording, which a signal stops from another thread: the caller may block in a
    /// system call. The thread is there before the program: where it cannot be had, that is not
    /// started.
    ///
    /// # Errors
    /// No thread can be started, or what [`record::start`] says.
    pub(crate) fn recording(&self, command: &record::Command) -> Result<Recording, Failure> {
        let (tell, told) = std::sync::mpsc::channel();
        self.later(told)?;
        let recording = record::start(command)?;
        let _ = tell.send(recording.stopper());
        Ok(recording)
    }

    /// Starts the thread that ends what `told` names when the first signal comes, and lets another
    /// end the process a second later.
    fn later(&self, told: Receiver<record::Stop>) -> Result<(), Failure> {
        let (flag, ready) = (Arc::clone(&self.flag), Arc::clone(&self.ready));
        let thread = std::thread::Builder::new().name("stop".into()).spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
            }
            // It waits for what is started, or has nothing to stop any more.
            told.iter().for_each(|stopper| stopper.stop());
            std::thread::sleep(Duration::from_secs(1));
            ready.store(true, Ordering::Relaxed);
        });
        let way_out = "raise the limit of processes: ulimit -u, or pids.max of the control group";
        let failed = |error| Failure::Run(format!("cannot start a thread ({way_out}): {error}"));
        thread.map(drop).map_err(failed)
    }
}

#[cfg(target_os = "linux")]
fn ignored(signal: i32) -> bool {
    superpage_linux::signals::ignored(signal)
}

#[cfg(not(target_os = "linux"))]
fn ignored(_: i32) -> bool {
    false
}

/// Turns a write beyond the file size limit (`ulimit -f`) into an error of that write, instead of
/// the end of this process by SIGXFSZ. This uses a handler, which programs that are started do not
/// inherit.
pub(crate) fn outlive_file_limit() {
    if !ignored(SIGXFSZ) {
        // If it cannot be caught it ends this process, as before.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}
