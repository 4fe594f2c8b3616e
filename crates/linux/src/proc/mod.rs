//! What the kernel reports of processes as text. The names in it, of programs and of files, are
//! untrusted bytes.

pub mod maps;

use crate::Error;
use procfs::process::{MemoryMaps, Stat, StatFlags, Status};
use procfs::{FromBufRead, FromRead, ProcResult};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::Path;

/// Reads a file of `/proc`, with a replacement character for each piece of a name that is not
/// UTF-8: names are for display, and the numbers with them count all the same.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// The mappings in the text of `/proc/PID/maps` or `smaps`, with names as [`read`] returns them. A
/// path that the library would mistake for a segment of shared memory, `/SYSVx`, is returned as
/// `/./SYSVx`, which means the same.
pub fn mappings(text: &[u8]) -> ProcResult<MemoryMaps> {
    let text = String::from_utf8_lossy(text);
    let mut safe = String::new();
    // Searched once: most texts have none, and are long.
    let lines = if text.contains(SEGMENT) { text.split_inclusive('\n') } else { "".split_inclusive('\n') };
    for line in lines {
        // A mapping's line: address, permissions, offset, device, inode, spaces, path.
        match line.find(" /").map(|at| line.split_at(at + 1)) {
            Some((rest, path)) if path.starts_with(SEGMENT) && !is_segment(path) => {
                safe.push_str(rest);
                safe.push_str("/.");
                safe.push_str(path);
            }
            _ => safe.push_str(line),
        }
    }
    MemoryMaps::from_buf_read(if safe.is_empty() { text.as_bytes() } else { safe.as_bytes() })
}

/// The text of `maps` or `smaps` in parts of whole mappings, each of about `size` bytes or slightly
/// more.
pub fn parts(mut text: &[u8], size: usize) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        // A mapping begins with its address, in lower-case hexadecimal digits; its fields begin
        // with a capital letter.
        let begins = |pair: &[u8]| pair[0] == b'\n' && (pair[1].is_ascii_digit() || pair[1].is_ascii_lowercase());
        let end =
            text.get(size - 1..).and_then(|rest| rest.windows(2).position(begins)).map_or(text.len(), |at| size + at);
        let (part, rest) = text.split_at(end);
        text = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// The kernel's names for segments of System V shared memory: `/SYSV` and eight hexadecimal digits.
const SEGMENT: &str = "/SYSV";

fn is_segment(path: &str) -> bool {
    path.as_bytes().get(SEGMENT.len()..SEGMENT.len() + 8).is_some_and(|key| key.iter().all(u8::is_ascii_hexdigit))
}

/// The state of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// A program that runs.
    Runs,
    /// It runs, but its first thread, through which `/proc/PID` shows its memory, has ended: the
    /// number of another thread.
    Headless(i32),
    /// It has ended, and waits to be reaped by its parent.
    Zombie,
    /// There is no such process.
    Gone,
    /// A kernel thread.
    Kernel,
}

impl State {
    /// The state of a process now; reads one or two small files.
    pub fn of(pid: i32) -> State {
        let Some(stat) = stat(pid) else { return State::Gone };
        match stat.state {
            'Z' | 'X' => another_thread(pid).map_or(State::Zombie, State::Headless),
            _ if is_kernels(&stat) => State::Kernel,
            _ => State::Runs,
        }
    }

    /// Whether it is a running program.
    pub fn runs(self) -> bool {
        matches!(self, State::Runs | State::Headless(_))
    }
}

/// A process by its number, and by when it started: its number may be given to another one when it
/// has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// Its number.
    pub pid: i32,
    /// In clock ticks since boot.
    pub started: u64,
}

impl Named {
    /// The process that has this number now; `None` if there is none.
    pub fn of(pid: i32) -> Option<Named> {
        stat(pid).map(|stat| Named { pid, started: stat.starttime })
    }

    /// Whether it has not ended. Some 10 us. One that cannot be looked at, as with too many open
    /// files, is taken to live.
    pub fn lives(self) -> bool {
        match fs::read(format!("/proc/{}/stat", self.pid)) {
            Ok(text) => {
                let started = parse_stat(&text).map(|stat| stat.starttime);
                started == Some(self.started) && !matches!(State::of(self.pid), State::Zombie | State::Gone)
            }
            Err(error) => error.kind() != io::ErrorKind::NotFound && !gone(&error),
        }
    }
}

/// A thread of a process that has not ended, other than its first.
fn another_thread(pid: i32) -> Option<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut threads = tasks.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
    threads.find(|thread| {
        let stat = stat_of(format!("/proc/{pid}/task/{thread}/stat"));
        *thread != pid && stat.is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
    })
}

/// The contents of `/proc/PID/status`, with a name as [`read`] returns it. Some 30 us.
///
/// # Errors
/// The system's error; a malformed text, as if something else is mounted there.
pub fn status(pid: i32) -> io::Result<Status> {
    let text = read(format!("/proc/{pid}/status"))?;
    Status::from_buf_read(text.as_bytes()).map_err(io::Error::other)
}

/// [`status`] of this process.
///
/// # Errors
/// [`Error::File`].
pub fn own_status() -> Result<Status, Error> {
    status(std::process::id() as i32).map_err(Error::file("read", "/proc/self/status"))
}

/// What `/proc/PID/stat` says; `None` where the process is gone. Some 10 us.
pub fn stat(pid: i32) -> Option<Stat> {
    stat_of(format!("/proc/{pid}/stat"))
}

/// [`stat`] of a file.
pub(crate) fn stat_of(path: impl AsRef<Path>) -> Option<Stat> {
    parse_stat(&fs::read(path).ok()?)
}

/// [`stat`] of a text. A name, in parentheses, may have anything in it. procfs panics where there
/// is nothing on either side of them.
pub(crate) fn parse_stat(text: &[u8]) -> Option<Stat> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    let (before, rest) = text.split_once('(')?;
    let whole = before.ends_with(' ') && rest.rsplit_once(')')?.1.starts_with(' ');
    if whole { Stat::from_read(text.as_bytes()).ok() } else { None }
}

/// Whether it is a thread of the kernel.
pub fn is_kernels(stat: &Stat) -> bool {
    StatFlags::from_bits_truncate(stat.flags).contains(StatFlags::PF_KTHREAD)
}

/// The bytes in a line such as `VmRSS:  1234 kB` of `/proc/PID/status` or `/proc/meminfo`, where
/// procfs is too slow (`status` of many processes, again and again), or is not to be asked since it
/// knows no text that lacks any field
/// that it expects, as those of gVisor.
pub fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether a process disabled huge pages for itself. One that did so except where it is advised
/// does not count; the kernel tells for each mapping.
pub fn disabled(status: &Status) -> bool {
    status.thp_enabled == Some(false)
}

/// The error for something of a process that cannot be read.
pub fn refused(pid: u32, error: io::Error) -> Error {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => {
            Error::Usage(format!("there is no process {pid}: expected the number of a running process"))
        }
        Some(Errno::ACCESS | Errno::PERM) => Error::Unable(if rustix::process::geteuid().is_root() {
            format!(
                "process {pid} may not be looked into, not even by this root: it has capabilities that this one lacks, or a security \
             module protects it; look from outside the container or sandbox"
            )
        } else {
            format!(
                "process {pid} may not be looked into: it is another user's or protected; run as that user, or as root"
            )
        }),
        _ if gone(&error) => ended(pid),
        _ if error.kind() == io::ErrorKind::TimedOut => {
            Error::Unable(format!("the look at process {pid} was given up before its end"))
        }
        _ => Error::System { what: format!("read the page table of process {pid}"), source: error },
    }
}

/// The error for a process without memory to inspect: it ended meanwhile, or never has any.
pub fn ended(pid: u32) -> Error {
    let name = read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim_end_matches('\n');
    Error::Unable(match State::of(pid as i32) {
        State::Kernel => {
            format!("process {pid} ({name}) is a thread of the kernel: it has no memory to look at")
        }
        State::Zombie => {
            format!(
                "process {pid} ({name}) has ended, with all its memory, and only waits for its parent to hear of that"
            )
        }
        State::Headless(thread) => format!(
            "the first thread of process {pid} ({name}) has ended, and with it the sight of its memory: look through another \
             one (superpage inspect {thread})"
        ),
        State::Runs | State::Gone => format!("process {pid} ended while it was looked at"),
    })
}

/// Whether an error means that the memory is gone: the process has ended, or executed another
/// program.
pub fn gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH) || error.kind() == io::ErrorKind::UnexpectedEof
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::process::MMapPath;

    #[test]
    fn paths_that_look_like_segments_are_paths() {
        let line =
            |path: &str| format!("7f0000000000-7f0000001000 rw-s 00000000 00:01 7                          {path}\n");
        let parsed = |path: &str| mappings(line(path).as_bytes()).unwrap().0[0].pathname.clone();
        assert_eq!(parsed("/SYSV0000abcd (deleted)"), MMapPath::Vsys(0xabcd));
        for path in ["/SYSVx", "/SYSV", "/SYSV/a", "/SYSVzzzzzzzz", "/SYSV1234567\u{e9}", "/SYSV-data/long enough.so"] {
            assert_eq!(parsed(path), MMapPath::Path(format!("/.{path}").into()), "{path}");
        }
        assert_eq!(parsed("/tmp/SYSVx"), MMapPath::Path("/tmp/SYSVx".into()));
        let both = [line("/usr/bin/a"), "Rss:   4 kB\n".into(), line("/SYSVx")].concat();
        assert_eq!(mappings(both.as_bytes()).unwrap().0.len(), 2);
    }

    #[test]
    fn parts_hold_whole_mappings() {
        let one = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \nRss:   4 kB\nVmFlags: rd wr \n";
        let text = one.repeat(9);
        for size in [1, one.len() - 1, one.len(), one.len() + 1, text.len(), 2 * text.len()] {
            let parts: Vec<&[u8]> = parts(text.as_bytes(), size).collect();
            assert_eq!(parts.concat(), text.as_bytes());
            assert!(parts.iter().all(|part| part.len() % one.len() == 0), "{size}");
            assert_eq!(parts.len(), 9_usize.div_ceil(size.div_ceil(one.len()).max(1)), "{size}");
        }
    }

    /// It takes a second; where all of the text was gone through for each line, it took minutes.
    #[test]
    fn the_time_for_mappings_is_linear_in_them() {
        let line = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n";
        let about = "Rss:                   4 kB\n".repeat(20);
        let text = format!("{line}{about}").repeat(16000);
        let before = std::time::Instant::now();
        assert_eq!(mappings(text.as_bytes()).unwrap().0.len(), 16000);
        assert!(before.elapsed() < std::time::Duration::from_secs(10), "{:?}", before.elapsed());
    }

    #[test]
    fn fields_are_bytes() {
        let text = "Name:\tsh\nVmHWM:\t    2048 kB\nVmRSS:\t    1712 kB\nHugetlbPages:\t 4096 kB\n";
        assert_eq!(bytes_of(text, "VmRSS"), Some(1712 << 10));
        assert_eq!((bytes_of(text, "VmSwap"), bytes_of(text, "Vm")), (None, None));
    }

    #[test]
    fn names_of_processes_do_not_matter() {
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, rest) = own.rsplit_once(')').unwrap();
        for name in ["a", "(a) b (c)", ") R 1 2", "\u{fffd}", ""] {
            let stat = parse_stat(format!("7 ({name}){rest}").as_bytes()).unwrap();
            assert_eq!((stat.pid, stat.comm.as_str(), is_kernels(&stat)), (7, name, false));
        }
        for text in ["", "7 (x)", "7 (x) ", "7 (x) S 1", "(x) S", " (x) S 1", ")(", "7 )x( ", "7 ) ("] {
            assert!(parse_stat(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn the_dead_and_the_kernels_are_told_apart() {
        assert_eq!(State::of(std::process::id() as i32), State::Runs);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        while State::of(pid) == State::Runs {
            std::thread::yield_now();
        }
        assert_eq!(State::of(pid), State::Zombie);
        child.wait().unwrap();
        assert_eq!(State::of(pid), State::Gone);
    }
}
