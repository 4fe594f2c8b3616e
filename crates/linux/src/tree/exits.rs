//! The moment when a process of a tree exits, with its memory still there: `PTRACE_O_TRACEEXIT`.
//!
//! The command is traced from its exec on, and so is what its processes fork; threads are not. A
//! traced process stops after a fork, after an exec and at its exit: some 50 us each, so this is
//! for runs whose time does not count. It is detached at its exit, so that its parent waits for it
//! as usual; and when a signal stops it, so that it stays stopped until SIGCONT as usual.
//!
//! Tracing changes two things for a command: it cannot trace its own children, and without
//! CAP_SYS_PTRACE here a program with its own privileges does not get them. [`check`] refuses
//! the latter; as for the rest, the caller must run such a command untraced in the end.

use crate::Error;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Called for each process that exits.
type Hook = Box<dyn FnMut(i32)>;

/// Checks whether processes can be stopped at their exit.
///
/// # Errors
/// [`Error::Unable`]: this process is itself traced, or may not trace everything that a command may
/// start.
pub fn check() -> Result<(), Error> {
    /// CAP_SYS_PTRACE.
    const RIGHT: u64 = 1 << 19;
    let status = crate::proc::own_status()?;
    if status.tracerpid != 0 {
        return Err(Error::Unable("superpage is traced itself, and who is traced cannot trace others".into()));
    }
    match status.capeff & RIGHT {
        0 => Err(Error::Unable("it takes CAP_SYS_PTRACE to trace all that a command may start: run as root".into())),
        _ => Ok(()),
    }
}

/// Prepares a command to be traced from its exec on, by the thread that starts it.
pub(crate) fn prepare(command: &mut Command) {
    let tracer = std::process::id();
    // SAFETY: system calls without memory, between fork and exec. If tracing fails the command runs
    // untraced: nothing is called at its exit, and `text::place` notices. Where this process was
    // killed meanwhile, another parent is the tracer, which never resumes the command: it must not
    // begin.
    unsafe {
        command.pre_exec(move || {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            if std::os::unix::process::parent_id() == tracer { Ok(()) } else { libc::_exit(1) }
        });
    }
}

/// The traced processes of a tree. All calls are made by the thread that started the command.
pub(super) struct Exits {
    hook: Hook,
    /// Those seen before: a new process stops once, for its tracer.
    met: HashSet<i32>,
}

impl fmt::Debug for Exits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exits").field("met", &self.met).finish_non_exhaustive()
    }
}

impl Exits {
    pub(super) fn new(hook: Hook) -> Exits {
        Exits { hook, met: HashSet::new() }
    }

    /// Resumes a stopped process; `status` is the result of waiting for it. Errors mean that the
    /// process is gone.
    pub(super) fn stopped(&mut self, command: i32, number: i32, status: i32) {
        let pid = Pid::from_raw(number);
        let event = status >> 16;
        let signal = Signal::try_from(libc::WSTOPSIG(status)).ok();
        let new = !self.met.contains(&number);
        let own = if number == command { Signal::SIGTRAP } else { Signal::SIGSTOP };
        if event == libc::PTRACE_EVENT_EXIT {
            (self.hook)(number);
            self.met.remove(&number);
            let _ = ptrace::detach(pid, None);
        } else if event != 0 {
            let _ = ptrace::cont(pid, None);
        } else if new && signal == Some(own) {
            self.met.insert(number);
            let options = Options::PTRACE_O_TRACEEXIT
                | Options::PTRACE_O_TRACEEXEC
                | Options::PTRACE_O_TRACEFORK
                | Options::PTRACE_O_TRACEVFORK;
            let _ = ptrace::setoptions(pid, options);
            let _ = ptrace::cont(pid, None);
        } else if ptrace::getsiginfo(pid).is_err() {
            // It is not about to get a signal, but is being stopped by one.
            self.met.remove(&number);
            let _ = ptrace::detach(pid, None);
        } else {
            let _ = ptrace::cont(pid, signal);
        }
    }

    /// Handles the end of a process. Returns whether it was traced until then: killed where it
    /// could not stop any more.
    pub(super) fn ended(&mut self, number: i32) -> bool {
        self.met.remove(&number)
    }
}
