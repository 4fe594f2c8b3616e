//! Signals that would end this process: a flag that long work looks at between two steps, and the status to end with.

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The signals that end a process which does not catch them, and that are sent to ask for that. Those that say that a program is
/// broken (SIGSEGV and the like) are not among them.
pub(crate) const ENDING: [i32; 7] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM];

/// Whether a signal came that asks to stop, and which.
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

/// What a second signal does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// It ends the process at once.
    Ends,
    /// Nothing more than the first, where something has to be put back in any case.
    Waits,
}

impl Stop {
    /// From now on the first of [`ENDING`] sets the flag, and a second one ends the process at once. One that is ignored, as
    /// SIGHUP under `nohup`, stays so; SIGINT and SIGQUIT are caught also where a shell has a script's background jobs ignore them.
    pub(crate) fn catch() -> Stop {
        Stop::of(&ENDING, Second::Ends)
    }

    /// As [`catch`](Stop::catch), for these signals.
    pub(crate) fn of(signals: &[i32], second: Second) -> Stop {
        let stop = Stop { flag: Arc::default(), signal: Arc::new(AtomicUsize::new(SIGINT as usize)) };
        for &signal in signals.iter().filter(|signal| [SIGINT, SIGTERM, SIGQUIT].contains(signal) || !ignored(**signal))
        {
            let ends = || match second {
                Second::Ends => {
                    signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop.flag))
                        .map(drop)
                }
                Second::Waits => Ok(()),
            };
            // The order matters: the second signal finds the flag set by the first, and where the flag is seen the number is
            // there.
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

    /// Whether a signal came.
    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The status of who was stopped: 128 and the signal.
    pub(crate) fn status(&self) -> ExitCode {
        ExitCode::from(128 + self.signal.load(Ordering::Relaxed) as u8)
    }

    /// Calls `then` once a signal came, for what may wait in a system call meanwhile. The thread ends with the process.
    pub(crate) fn then(&self, then: impl FnOnce() + Send + 'static) {
        let flag = Arc::clone(&self.flag);
        std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
            }
            then();
        });
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

/// Makes a file that would grow beyond the limit (`ulimit -f`) an error of that write, and not the end of this process by SIGXFSZ.
/// By a handler, which a program that is started does not inherit: for it the signal is as it was.
pub(crate) fn outlive_file_limit() {
    if !ignored(SIGXFSZ) {
        // Where it cannot be caught it ends this process, as before.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}
