//! Signals that this process receives on behalf of the command that it runs, and passes on.
//!
//! The signals are blocked and read from a descriptor, so no handler runs and none can interrupt
//! restoring settings. A signal that this process ignores, as SIGHUP under `nohup`, stays ignored,
//! by the command too.

use crate::Error;
use crate::tree::pidfd_signal;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Those of [`ending`] that have a name.
const ENDING: [i32; 16] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGABRT,
    libc::SIGXCPU,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGSYS,
    libc::SIGTRAP,
];

/// Others that are passed on. SIGKILL and SIGSTOP cannot be, and SIGCHLD, SIGTTIN and SIGTTOU are
/// this process's own.
const OTHERS: [i32; 3] = [libc::SIGWINCH, libc::SIGCONT, libc::SIGTSTP];

/// The signals that end a process which does not catch them, those of the application too; but not
/// those by which the processor says that the process is wrong, nor SIGPIPE and SIGXFSZ, which are
/// ignored.
pub fn ending() -> impl Iterator<Item = i32> {
    ENDING.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// All signals that are passed on.
fn passed() -> impl Iterator<Item = i32> {
    ending().chain(OTHERS)
}

fn ends(signal: i32) -> bool {
    ENDING.contains(&signal) || signal >= libc::SIGRTMIN()
}

/// The signal by which the GNU C library changes the user of all threads. The first thread that it
/// starts makes it catch the signal, and what is caught is not ignored by the command any more,
/// even if the caller of this process had it ignored.
const BETWEEN_THREADS: i32 = 33;

/// Signals blocked in this thread, and in the threads that it starts from now on. Dropping it
/// unblocks them.
pub struct Signals {
    before: libc::sigset_t,
    /// Whether [`BETWEEN_THREADS`] was ignored.
    ignored: bool,
    held: OwnedFd,
}

/// A signal that was read.
struct Got {
    signal: i32,
    /// Sent by the terminal's driver, which signals the whole foreground group: the command has it
    /// already.
    by_kernel: bool,
    /// The process that sent it, 0 for the kernel.
    sender: i32,
}

impl Signals {
    /// Blocks the signals. Call it while this is the only thread, since others would still be ended
    /// by them.
    ///
    /// # Errors
    /// [`Error::System`] if signalfd fails.
    pub fn hold() -> Result<Signals, Error> {
        let mut set = empty_set();
        for signal in passed().filter(|&signal| !ignored(signal)) {
            // SAFETY: the set is initialized and the signal a valid one.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        let mut before = empty_set();
        // SAFETY: the set is initialized; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::system("read signals from a descriptor (signalfd)")(io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and has no other owner.
        let held = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: both sets are variables of this frame.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) };
        Ok(Signals { before, ignored: between_threads_ignored(), held })
    }

    /// Unblocks the signals in a command that is started, and has it ignore what was ignored.
    pub fn prepare(&self, command: &mut Command) {
        let (before, ignored) = (self.before, self.ignored);
        let unblock = move || {
            if ignored {
                ignore_between_threads();
            }
            // SAFETY: the set is a copy that the closure owns; this call is allowed between fork
            // and exec.
            match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) } {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        };
        // SAFETY: the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(unblock) };
    }

    /// A signal that has arrived and would have ended this process; call it before there is a
    /// command.
    pub fn ending(&self) -> Option<i32> {
        std::iter::from_fn(|| self.read()).map(|got| got.signal).find(|signal| ends(*signal))
    }

    /// A thread that passes signals on to a process once it knows which ([`Passing::begin`]),
    /// until the returned value is dropped. They stay blocked for as long as these [`Signals`]
    /// live.
    ///
    /// # Errors
    /// [`Error::System`] if no thread or descriptor can be created.
    pub fn pass_on(&self) -> Result<Passing, Error> {
        let (begin, begun) = channel::<(i32, OwnedFd)>();
        let (stop, stopped) = UnixStream::pair().map_err(Error::system("make a pipe"))?;
        let held = self.held.try_clone().map_err(Error::system("copy a descriptor"))?;
        let thread = std::thread::Builder::new().name("signals".into()).spawn(move || {
            let Ok((pid, pidfd)) = begun.recv() else { return };
            loop {
                let mut ready = [PollFd::new(&held, PollFlags::IN), PollFd::new(&stopped, PollFlags::IN)];
                match poll(&mut ready, None) {
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => return,
                    Ok(_) if !ready[1].revents().is_empty() => return,
                    Ok(_) => {}
                }
                while let Some(got) = read(&held) {
                    pass(&got, pid, &pidfd);
                }
            }
        });
        let thread = thread.map_err(Error::thread)?;
        Ok(Passing { begin: Some(begin), stop: Some(stop), thread: Some(thread) })
    }

    fn read(&self) -> Option<Got> {
        read(&self.held)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set is what this thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Signals are being passed on, or will be. Dropping it ends that.
pub struct Passing {
    /// Tells to whom, once.
    begin: Option<Sender<(i32, OwnedFd)>>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Passing {
    /// Passes signals on to this process from now on, those that have waited too.
    ///
    /// # Errors
    /// [`Error::System`] if no descriptor can be created.
    pub fn begin(&mut self, pid: i32, pidfd: BorrowedFd<'_>) -> Result<(), Error> {
        let pidfd = pidfd.try_clone_to_owned().map_err(Error::system("copy a descriptor"))?;
        if let Some(begin) = self.begin.take() {
            // The thread waits for it.
            let _ = begin.send((pid, pidfd));
        }
        Ok(())
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        drop(self.begin.take());
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Passes one signal on, unless the command has it already: from the terminal, or because it sent
/// it to its own group.
fn pass(got: &Got, pid: i32, pidfd: &OwnedFd) {
    // A terminal that goes away signals only the leader of its session; the others get the signal
    // when the leader ends.
    let alone = got.signal == libc::SIGHUP && leads_session();
    let has_it = (got.by_kernel && !alone) || got.sender == pid;
    if !has_it {
        let _ = pidfd_signal(std::os::fd::AsFd::as_fd(pidfd), got.signal);
    }
    if got.signal == libc::SIGTSTP {
        // So that the shell sees its job stopped. SIGCONT continues this process, and is read here
        // too. SAFETY: sending a signal touches no memory of this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
}

/// Whether this process leads its session, as when a terminal was opened for it.
fn leads_session() -> bool {
    // SAFETY: both calls take numbers and touch no memory. The session is 0 where its leader is
    // outside the namespace of this process, as in a container that was entered: a number that
    // rustix's Pid cannot hold.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// The next blocked signal, without waiting.
fn read(held: &OwnedFd) -> Option<Got> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer has the stated length.
    let got = unsafe { libc::read(held.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    if got != size as isize {
        return None;
    }
    // SAFETY: the kernel has filled it in, according to the length.
    let info = unsafe { info.assume_init() };
    let by_kernel = info.ssi_code > 0;
    let sender = if by_kernel { 0 } else { info.ssi_pid as i32 };
    Some(Got { signal: info.ssi_signo as i32, by_kernel, sender })
}

/// Whether this process ignores a signal.
pub fn ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is changed; the action is written where the call succeeds.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } == 0;
    // SAFETY: it was written.
    known && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// The kernel's form of an action, at least as long as it is: the handler comes first. The C
/// library does not let its own signals be looked at or changed.
type Action = [usize; 8];

/// The length of the kernel's signal sets, in bytes.
const SET_BYTES: usize = 8;

fn between_threads_ignored() -> bool {
    let mut action: Action = [0; 8];
    let none = std::ptr::null::<Action>();
    // SAFETY: nothing is changed; the action is written where the call succeeds, and has room for
    // it.
    let known =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, BETWEEN_THREADS, none, &raw mut action, SET_BYTES) } == 0;
    known && action[0] == libc::SIG_IGN
}

fn ignore_between_threads() {
    let mut action: Action = [0; 8];
    action[0] = libc::SIG_IGN;
    let none = std::ptr::null_mut::<Action>();
    // SAFETY: the action is one of the kernel's form without flags, handler or mask; the command
    // that follows has one thread.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, BETWEEN_THREADS, &raw const action, none, SET_BYTES) };
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call initializes the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}
