//! The contiguity that the kernel gives: how much of fresh memory lies in aligned contiguous groups, before and after a churn.

use super::memory::{BASE, Memory};
use super::{Finding, Series};
use crate::Error;
use crate::inspect::contiguity as inspect;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Memory that is looked at, and that each child of the churn holds at most.
const BYTES: usize = 32 << 20;
const CHILDREN: usize = 8;

/// Anonymous, file and text memory, fresh and while the children of a churn hold every other page of theirs.
pub(crate) fn measure() -> Vec<Finding> {
    let mut findings = all("fresh", "");
    let churn = match Churn::start() {
        Ok(churn) => churn,
        Err(error) => {
            findings.push(Finding::unknown("contiguity.churn", "contiguity after a churn", error.to_string()));
            return findings;
        }
    };
    findings.extend(all("churned", ", after a churn"));
    drop(churn);
    findings
}

fn all(when: &str, then: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in ["anonymous", "file", "text"] {
        // The text of this program is where it was.
        if kind == "text" && when != "fresh" {
            continue;
        }
        let (name, what) =
            (format!("contiguity.{kind}.{when}"), format!("{kind} memory in aligned groups of 64K{then}"));
        let groups = match kind {
            "anonymous" => anonymous(),
            "file" => file(),
            _ => text(),
        };
        findings.push(match groups {
            Ok(groups) => groups.finding(&name, &what),
            Err(error) => Finding::unknown(&name, &what, error.to_string()),
        });
    }
    findings
}

/// Shares of memory in aligned contiguous groups, by bytes of the group.
struct Groups {
    resident: u64,
    shares: Vec<[f64; 2]>,
}

impl Groups {
    fn of(range: Range<u64>) -> Result<Groups, Error> {
        let contiguity = inspect(std::process::id(), range)?;
        if contiguity.resident_bytes == 0 {
            return Err(Error::Unable("nothing of it is in memory".into()));
        }
        let resident = contiguity.resident_bytes;
        let share = |bytes: u64| bytes as f64 / resident as f64;
        let shares = contiguity.aligned_bytes.iter().map(|(size, bytes)| [size.bytes() as f64, share(*bytes)]);
        Ok(Groups { resident, shares: shares.collect() })
    }

    fn finding(&self, name: &str, what: &str) -> Finding {
        let of = |bytes: f64| self.shares.iter().find(|[size, _]| *size == bytes).map_or(0.0, |[_, share]| *share);
        let shares: Vec<String> = [(16, "16K"), (32, "32K"), (64, "64K"), (2048, "2M")]
            .map(|(kilobytes, size)| format!("{:.0} % in {size}", 100.0 * of(f64::from(kilobytes << 10))))
            .to_vec();
        let evidence = format!("of {}: {}", superpage_report::bytes(self.resident), shares.join(", "));
        let value = 100.0 * of(65536.0);
        Finding::number(name, what, value, "%", 1.0, evidence).with(Series {
            name: name.into(),
            axes: ["bytes of an aligned group", "share of memory"],
            points: self.shares.clone(),
        })
    }
}

fn range(start: usize, bytes: usize) -> Range<u64> {
    start as u64..(start + bytes) as u64
}

fn anonymous() -> Result<Groups, Error> {
    let memory = Memory::base(BYTES)?;
    Groups::of(range(memory.start(), BYTES))
}

fn file() -> Result<Groups, Error> {
    let mut file = tempfile::tempfile().map_err(Error::system("make a temporary file"))?;
    let block = vec![1_u8; 1 << 20];
    for _ in 0..BYTES >> 20 {
        file.write_all(&block).map_err(Error::system("write a temporary file"))?;
    }
    let memory = Memory::file(file.as_raw_fd(), BYTES)?;
    memory.touch(0..BYTES, BASE);
    Groups::of(range(memory.start(), BYTES))
}

/// The text of this program.
fn text() -> Result<Groups, Error> {
    let maps = fs::read_to_string("/proc/self/maps").map_err(Error::file("read", "/proc/self/maps"))?;
    let own = std::env::current_exe().map_err(Error::system("find this program's file"))?;
    let own = own.to_string_lossy().into_owned();
    let line = maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with(&own));
    let range = line.and_then(|line| line.split(' ').next()?.split_once('-'));
    let address = |text: &str| u64::from_str_radix(text, 16).ok();
    match range.map(|(from, to)| (address(from), address(to))) {
        Some((Some(from), Some(to))) => Groups::of(from..to),
        _ => Err(Error::Unable(format!("/proc/self/maps has no text of {own}"))),
    }
}

/// Child processes that took memory in turns, page by page, and gave every other page back.
struct Churn {
    children: Vec<libc::pid_t>,
}

impl Churn {
    fn start() -> Result<Churn, Error> {
        let mut churn = Churn { children: Vec::new() };
        let mut ends = [0; 2];
        // SAFETY: the call fills the two numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(Error::system("make a pipe")(std::io::Error::last_os_error()));
        }
        let [read, write] = ends;
        let memory = Memory::new(BYTES)?;
        memory.advise(libc::MADV_NOHUGEPAGE)?;
        for child in 0..CHILDREN {
            // SAFETY: the child calls nothing but the system, allocates nothing, and ends by a signal.
            match unsafe { libc::fork() } {
                0 => hold(&memory, child, write),
                pid if pid > 0 => churn.children.push(pid),
                _ => break,
            }
        }
        let mut ready = [0_u8; CHILDREN];
        let mut seen = 0;
        while seen < churn.children.len() {
            // SAFETY: the bytes are ours.
            match unsafe { libc::read(read, ready.as_mut_ptr().cast(), ready.len()) } {
                count if count > 0 => seen += count as usize,
                _ => break,
            }
        }
        // SAFETY: both are ours.
        unsafe {
            libc::close(read);
            libc::close(write);
        }
        match seen {
            CHILDREN => Ok(churn),
            _ => Err(Error::Unable(format!("only {seen} of {CHILDREN} processes took memory"))),
        }
    }
}

/// What a child does: takes memory a few pages at a time, in turns with the others, gives every other page back, says so,
/// and waits for its end.
fn hold(memory: &Memory, child: usize, write: libc::c_int) -> ! {
    // SAFETY: the calls touch only this process; it ends with its parent.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for pass in 0..3 {
            for page in 0..BYTES / BASE {
                memory.touch(page * BASE..(page + 1) * BASE, BASE);
                if page % 8 == child {
                    libc::sched_yield();
                }
            }
            for page in (pass % 2..BYTES / BASE).step_by(2) {
                libc::madvise((memory.start() + page * BASE) as *mut libc::c_void, BASE, libc::MADV_DONTNEED);
            }
        }
        libc::write(write, [1_u8].as_ptr().cast(), 1);
        loop {
            libc::pause();
        }
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        for child in &self.children {
            // SAFETY: they are children of ours that were not waited for.
            unsafe {
                libc::kill(*child, libc::SIGKILL);
                libc::waitpid(*child, std::ptr::null_mut(), 0);
            }
        }
    }
}
