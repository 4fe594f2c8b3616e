//! A command and all its descendants: run, measured, waited for and, if necessary, killed as one.
//!
//! This process becomes the *child subreaper* of the tree: a descendant whose parent ends becomes a
//! child of this process and not of init, so that no daemon escapes. All children of this process
//! count as members of the tree. So only one tree lives at a time, others wait for it in
//! [`Tree::spawn`], and meanwhile the process must not start or wait for other children.

pub mod exits;

use crate::Error;
use crate::proc::State;
use exits::Exits;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the processes of a tree used, of those that have been waited for: by this process, or by
/// their parents in the tree. The kernel does not count a process whose parent ignores SIGCHLD.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Time in user mode, summed over processes and threads.
    pub user: Duration,
    /// Time in the kernel, summed over processes and threads.
    pub system: Duration,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults that waited for I/O.
    pub major_faults: u64,
    /// The largest resident memory of any single process, in bytes, without hugetlb pages.
    pub peak_process_bytes: u64,
    /// The number of processes that this one has waited for: the command, and those whose parents
    /// ended before them.
    pub waited: u64,
}

impl Usage {
    fn add(&mut self, usage: &libc::rusage) {
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        self.user += time(usage.ru_utime);
        self.system += time(usage.ru_stime);
        self.minor_faults += usage.ru_minflt as u64;
        self.major_faults += usage.ru_majflt as u64;
        self.peak_process_bytes = self.peak_process_bytes.max(usage.ru_maxrss as u64 * 1024);
        self.waited += 1;
    }
}

/// How the command itself ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// From just before it was started until it was waited for.
    pub wall: Duration,
}

impl Ended {
    /// The status in a shell's encoding: that of the command, or 128 plus the number of the signal
    /// that ended it.
    pub fn code(&self) -> u8 {
        match self.status.signal() {
            Some(signal) => 128 + signal as u8,
            None => self.status.code().unwrap_or(1) as u8,
        }
    }
}

/// A running command and its descendants. Dropping it kills them all, unless they are released by
/// [`Tree::leave`].
#[derive(Debug)]
pub struct Tree {
    child: Child,
    pidfd: OwnedFd,
    started: Instant,
    ended: Option<Ended>,
    usage: Usage,
    /// Whether this process has no children any more.
    empty: bool,
    left: bool,
    wake: Wake,
    /// The state of tracing, if its processes are stopped at their exit.
    exits: Option<Exits>,
    _subreaper: Subreaper,
}

impl Tree {
    /// Starts a command. Waits while another tree of this process lives. Costs a fork and an exec,
    /// about a millisecond.
    ///
    /// # Errors
    /// [`Error::Exec`] with the system's error if the program could not be started; see
    /// [`exec_status`].
    pub fn spawn(command: &mut Command) -> Result<Tree, Error> {
        Tree::start(command, None)
    }

    /// Starts a command like [`spawn`](Tree::spawn), and calls `hook` with the number of each of
    /// its processes that exits, which waits with all of its memory until the call returns; see
    /// [`exits`] for the consequences for the command. The calls are made while the tree is waited
    /// for, which only the thread that called this may do.
    ///
    /// # Errors
    /// Those of [`spawn`](Tree::spawn) and [`exits::check`].
    pub fn spawn_traced(command: &mut Command, hook: impl FnMut(i32) + 'static) -> Result<Tree, Error> {
        exits::check()?;
        exits::prepare(command);
        Tree::start(command, Some(Exits::new(Box::new(hook))))
    }

    fn start(command: &mut Command, exits: Option<Exits>) -> Result<Tree, Error> {
        room_for_files()?;
        let subreaper = Subreaper::new()?;
        let wake = Wake::new().map_err(Error::system("watch for the end of children"))?;
        forked(command);
        let started = Instant::now();
        let mut child = command.spawn().map_err(|source| exec_error(command, source))?;
        let pidfd = match pidfd_open(child.id() as i32) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(Error::system("open a descriptor of the command's process (Linux 5.3 has them)")(error));
            }
        };
        let usage = Usage::default();
        let (ended, empty, left) = (None, false, false);
        Ok(Tree { child, pidfd, started, ended, usage, empty, left, wake, exits, _subreaper: subreaper })
    }

    /// The process of the command itself.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// A descriptor of the command's process: signals sent through it cannot reach another process
    /// that reuses its number.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// What the processes that have been waited for have used: complete once
    /// [`wait_all`](Tree::wait_all) has returned true.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// How the command itself ended, if it has and was waited for.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Waits until the command itself has ended, at most for `timeout`. Descendants may continue.
    ///
    /// # Errors
    /// [`Error::System`] if waiting for children fails.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Ended>, Error> {
        self.wait_until(timeout, |tree| tree.ended.is_some())?;
        Ok(self.ended)
    }

    /// Waits until the command and all its descendants have ended, at most for `timeout`. Returns
    /// whether they have.
    ///
    /// # Errors
    /// As for [`wait`](Tree::wait).
    pub fn wait_all(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        self.wait_until(timeout, |tree| tree.empty)?;
        Ok(self.empty)
    }

    fn wait_until(&mut self, timeout: Option<Duration>, done: impl Fn(&Tree) -> bool) -> Result<(), Error> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            // Emptied before checking the children: one that ends in between fills the pipe again.
            self.wake.drain();
            self.reap()?;
            if done(self) {
                return Ok(());
            }
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if rest == Some(Duration::ZERO) {
                return Ok(());
            }
            self.wake.wait(rest).map_err(Error::system("wait for the command"))?;
        }
    }

    /// Collects the status and the usage of all children that have ended.
    fn reap(&mut self) -> Result<(), Error> {
        while !self.empty {
            let mut status = 0;
            // SAFETY: a rusage is plain numbers, for which zeros are valid.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: both pointers are to variables of this frame.
            let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG | libc::__WALL, &mut usage) };
            if pid > 0 {
                if libc::WIFSTOPPED(status) {
                    // This process sees it if it traces the command: it is not the end.
                    let command = self.pid();
                    if let Some(exits) = &mut self.exits {
                        exits.stopped(command, pid, status);
                    }
                    continue;
                }
                let status = ExitStatus::from_raw(status);
                let traced = self.exits.as_mut().is_some_and(|exits| exits.ended(pid));
                if traced && parent(pid).is_some_and(|parent| parent != std::process::id() as i32) {
                    // Its parent waits for it too, and counts what it used.
                    continue;
                }
                self.usage.add(&usage);
                if pid == self.pid() {
                    self.ended = Some(Ended { status, wall: self.started.elapsed() });
                }
            } else if pid == 0 {
                return Ok(());
            } else {
                match io::Error::last_os_error() {
                    error if error.raw_os_error() == Some(libc::ECHILD) => self.empty = true,
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(Error::system("wait for the command")(error)),
                }
            }
        }
        Ok(())
    }

    /// The living members of the tree, parents before their children: the command, its descendants,
    /// and former descendants of members that have ended. Reads a small file per thread of each.
    pub fn members(&self) -> Vec<i32> {
        descendants(std::process::id() as i32)
    }

    /// Sends a signal to the command itself. Does nothing if it has ended.
    ///
    /// # Errors
    /// [`Error::System`] without the right to: the command may have become another user's.
    pub fn signal(&self, signal: i32) -> Result<(), Error> {
        pidfd_signal(self.pidfd(), signal).map_err(Error::system(format!("send signal {signal} to the command")))
    }

    /// Ends all members: sends SIGTERM, and SIGKILL to those that live after `grace`. Returns when
    /// all have ended, with the number of those that lived after `grace`.
    ///
    /// # Errors
    /// As for [`wait`](Tree::wait), and [`Error::Unable`] if this process may not kill a member.
    pub fn end(&mut self, grace: Duration) -> Result<usize, Error> {
        if self.wait_all(Some(Duration::ZERO))? {
            return Ok(0);
        }
        if !grace.is_zero() {
            for pid in self.members() {
                // The descriptor is opened first, then membership is checked again: a number may be
                // reused.
                let Ok(pidfd) = pidfd_open(pid) else { continue };
                if self.members().contains(&pid) {
                    let _ = pidfd_signal(pidfd.as_fd(), libc::SIGTERM);
                    let _ = pidfd_signal(pidfd.as_fd(), libc::SIGCONT);
                }
            }
            if self.wait_all(Some(grace))? {
                return Ok(0);
            }
        }
        let left = self.members().len();
        // A child keeps its number until it is waited for. Its children become this process's, for
        // the next round.
        let patience = Instant::now() + Duration::from_secs(10);
        while !self.empty {
            let own = std::process::id() as i32;
            for pid in children(own) {
                // As above: the process of the descriptor is the child, or has ended.
                let Ok(pidfd) = pidfd_open(pid) else { continue };
                if children(own).contains(&pid) {
                    let _ = pidfd_signal(pidfd.as_fd(), libc::SIGKILL);
                }
            }
            self.wait_all(Some(Duration::from_millis(20)))?;
            if !self.empty && Instant::now() > patience {
                let left: Vec<String> = self.members().iter().map(i32::to_string).collect();
                return Err(Error::Unable(format!("processes {} cannot be ended by this user", left.join(", "))));
            }
        }
        Ok(left)
    }

    /// Releases what still runs, as a shell does with what a command leaves behind.
    pub fn leave(mut self) {
        self.left = true;
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.left
            && let Err(error) = self.end(Duration::ZERO)
        {
            eprintln!("superpage: {error}");
        }
    }
}

/// Runs a command to its end, outside of any tree and while there is none: what it leaves behind is
/// nobody's. When `stop` says so, it is ended with its descendants: by SIGTERM, and by SIGKILL
/// after 2 s. Returns its status.
///
/// # Errors
/// [`Error::Exec`] if it could not be started; [`Error::System`] if it cannot be waited for.
pub fn run_outside(command: &mut Command, stop: &dyn Fn() -> bool) -> Result<ExitStatus, Error> {
    const LOOK: Duration = Duration::from_millis(20);
    let mut child = command.spawn().map_err(|source| exec_error(command, source))?;
    while !stop() {
        if let Some(status) = child.try_wait().map_err(Error::system("wait for a command"))? {
            return Ok(status);
        }
        std::thread::sleep(LOOK);
    }
    let mut held = Vec::new();
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let pid = child.id() as i32;
        // The child keeps its number until it is waited for; of another process it is taken as just
        // listed.
        held.extend(std::iter::once(pid).chain(descendants(pid)).filter_map(|pid| pidfd_open(pid).ok()));
        for pidfd in &held {
            let _ = pidfd_signal(pidfd.as_fd(), signal).and_then(|()| pidfd_signal(pidfd.as_fd(), libc::SIGCONT));
        }
        let patience = Instant::now() + Duration::from_secs(2);
        while held.iter().any(|pidfd| !has_ended(pidfd)) && Instant::now() < patience {
            std::thread::sleep(LOOK);
        }
    }
    child.wait().map_err(Error::system("wait for a command"))
}

/// Whether the process of a descriptor has ended, waited for or not.
fn has_ended(pidfd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Checks, before there is a command, that there are descriptors for everything that watching it
/// needs: the pipe to start it, the pidfd, those to wake it and to pass signals on, and the files
/// that are read one at a time.
fn room_for_files() -> Result<(), Error> {
    const NEEDED: usize = 18;
    let own = || std::fs::File::open("/dev/null");
    let held: Result<Vec<_>, _> = (0..NEEDED).map(|_| own()).collect();
    match held {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Err(Error::Unable(format!(
            "too few files may be open here to watch a command, which takes {NEEDED} more: raise the limit (ulimit -n 64)"
        ))),
        _ => Ok(()),
    }
}

/// Makes sure that a command is started by a fork. One with nothing to do before its exec would be
/// started in the memory of this process, as by `vfork`, and the kernel would count the largest
/// size that this process ever had as the command's peak.
fn forked(command: &mut Command) {
    // SAFETY: it does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
}

/// Why a command could not be started. A directory of PATH that may not be searched makes the
/// system return EACCES for a program that does not exist: as in a shell, such a program counts as
/// missing.
fn exec_error(command: &Command, source: io::Error) -> Error {
    let program = command.get_program();
    let by_path = !program.as_encoded_bytes().contains(&b'/');
    let path = std::env::var_os("PATH").unwrap_or_default();
    let nowhere = || !std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    let source = match source.kind() {
        io::ErrorKind::PermissionDenied if by_path && nowhere() => io::Error::from_raw_os_error(libc::ENOENT),
        _ => source,
    };
    Error::Exec { program: program.to_string_lossy().into_owned(), source }
}

/// The exit status for a command that could not be started, by the convention of shells: 127 if
/// there is no such program, 126 if it cannot be run, and the error's own status if it is about
/// something else.
pub fn exec_status(error: &Error) -> u8 {
    match error {
        Error::Exec { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => 127,
            _ => 126,
        },
        error => error.status(),
    }
}

/// The children of a process, of all its threads, including those that have ended and are not
/// waited for.
pub fn children(pid: i32) -> Vec<i32> {
    match listed_children(pid) {
        Some(children) => children,
        None => parents().into_iter().filter(|&(_, parent)| parent == pid).map(|(child, _)| child).collect(),
    }
}

/// All living descendants of a process, parents before their children. What starts or ends
/// meanwhile may be missed.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut all: Option<HashMap<i32, Vec<i32>>> = None;
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        let children = match (&all, listed_children(parent)) {
            (None, Some(children)) => children,
            // Ended meanwhile, or a kernel that does not list children: one scan of all processes
            // serves for the rest.
            _ => {
                let all = all.get_or_insert_with(|| {
                    let mut all: HashMap<i32, Vec<i32>> = HashMap::new();
                    for (child, parent) in parents() {
                        all.entry(parent).or_default().push(child);
                    }
                    all
                });
                all.get(&parent).cloned().unwrap_or_default()
            }
        };
        for child in children {
            if !found.contains(&child) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found.retain(|&pid| State::of(pid).runs());
    found
}

/// From `/proc/PID/task/TID/children`, which procfs reads too, but without telling the reasons
/// apart; empty if the process is gone, `None` if the kernel has no such file.
fn listed_children(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Some(children) };
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => children.extend(text.split_whitespace().filter_map(|child| child.parse::<i32>().ok())),
            // No such file, although the thread still exists.
            Err(_) if task.path().join("stat").exists() => return None,
            Err(_) => {}
        }
    }
    Some(children)
}

/// Every process and its parent.
fn parents() -> Vec<(i32, i32)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| parent(pid).map(|parent| (pid, parent))).collect()
}

/// The parent of a process.
fn parent(pid: i32) -> Option<i32> {
    crate::proc::stat(pid).map(|stat| stat.ppid)
}

/// Whether a process is the parent of this one, or the parent's parent, and so on.
pub fn is_ancestor(pid: i32) -> bool {
    is_ancestor_of(std::process::id() as i32, pid)
}

/// Whether `pid` is the parent of `of`, or the parent's parent, and so on.
pub fn is_ancestor_of(of: i32, pid: i32) -> bool {
    std::iter::successors(parent(of), |&above| parent(above)).any(|above| above == pid)
}

/// A descriptor of a process.
fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// Sends a signal through a descriptor of a process; no error if the process has ended.
pub(crate) fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open, there is no siginfo, and no flags.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, 0usize, 0u32) };
    match sent {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            error => Err(error),
        },
    }
}

/// A pipe into which each SIGCHLD writes a byte.
#[derive(Debug)]
struct Wake {
    pipe: UnixStream,
    signal: signal_hook::SigId,
}

impl Wake {
    fn new() -> io::Result<Wake> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let signal = signal_hook::low_level::pipe::register(libc::SIGCHLD, sender)?;
        Ok(Wake { pipe, signal })
    }

    fn drain(&mut self) {
        while matches!(self.pipe.read(&mut [0; 256]), Ok(256)) {}
    }

    /// Waits until there is a byte, a signal has arrived, or the time has passed.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.signal);
    }
}

/// Whether this process has a tree: only one at a time.
static LIVING: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// While this lives, orphans of the tree become children of this process.
#[derive(Debug)]
struct Subreaper {
    before: bool,
}

impl Subreaper {
    fn new() -> Result<Subreaper, Error> {
        let (lock, ended) = &LIVING;
        let lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.wait_while(lock, |living| *living).unwrap_or_else(PoisonError::into_inner) = true;
        let mut before: libc::c_int = 0;
        // SAFETY: the pointer is to a variable of this frame.
        unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &mut before as *mut libc::c_int) };
        let subreaper = Subreaper { before: before != 0 };
        subreaper.set(true).map_err(Error::system("become the parent of orphans (PR_SET_CHILD_SUBREAPER)"))?;
        Ok(subreaper)
    }

    fn set(&self, on: bool) -> io::Result<()> {
        // SAFETY: it takes a number and no pointer.
        match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, on as libc::c_ulong) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        let _ = self.set(self.before);
        *LIVING.0.lock().unwrap_or_else(PoisonError::into_inner) = false;
        LIVING.1.notify_one();
    }
}
