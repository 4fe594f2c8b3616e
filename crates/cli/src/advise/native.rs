//! The mappings that a program makes natively, without address space randomization, as `strace`
//! reports them.

use super::mappings::Mappings;
use crate::stop::Stop;
use rustix::process::Signal;
#[cfg(target_os = "linux")]
use rustix::process::{Pid, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Runs a command under strace, and drops what it prints on standard output. A signal to stop ends
/// both.
///
/// # Errors
/// A sentence: strace is missing, or is not allowed to trace, or a signal came.
pub(super) fn run(command: &[OsString], stop: &Stop) -> Result<(Mappings, ExitStatus), String> {
    let failed = |error: std::io::Error| format!("strace did not run: {error}");
    let folder = superpage_trace::record::Folder::create(&std::env::temp_dir()).map_err(failed)?;
    let mut strace = Command::new("strace");
    // A file for each thread, in which no line is interrupted by others.
    strace.args(["-ff", "-ttt", "-qq", "-e", "signal=none", "-e", "trace=memory,process", "-o"]);
    strace.arg(folder.path().join("thread")).arg("--").args(command).stdout(Stdio::piped());
    #[cfg(target_os = "linux")]
    {
        superpage_linux::layout::allowed().map_err(|error| error.to_string())?;
        superpage_linux::layout::fix(&mut strace);
    }
    let mut child = strace.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => "strace is not installed (apt install strace)".into(),
        _ => failed(error),
    })?;
    let mut output = child.stdout.take().expect("it is piped");
    // Not joined: a process that leaves the trace may keep the pipe open.
    let dropping = std::thread::Builder::new().spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    let status = match dropping {
        Ok(_) => wait(&mut child, stop).map_err(failed)?,
        Err(error) => {
            end(&mut child).map_err(failed)?;
            return Err(failed(error));
        }
    };
    let Some(status) = status else { return Err("a signal interrupted the native run".into()) };
    let mut threads = BTreeMap::new();
    for file in std::fs::read_dir(folder.path()).map_err(failed)?.flatten() {
        let number = file.path().extension().and_then(|number| number.to_str()?.parse::<u32>().ok());
        let text = std::fs::read(file.path()).map_err(failed)?;
        threads.extend(number.map(|number| (number, String::from_utf8_lossy(&text).into_owned())));
    }
    match read(&threads) {
        Some(mappings) => Ok((mappings, status)),
        None => Err(format!("strace could not trace it ({status}): its message says why")),
    }
}

const LOOK: Duration = Duration::from_millis(20);

/// Waits for strace, which ends after all that it traces; `None` if a signal came first, and both
/// were ended.
fn wait(child: &mut Child, stop: &Stop) -> std::io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status).filter(|_| !stop.is_set())),
            None if stop.is_set() => return end(child).map(|()| None),
            None => std::thread::sleep(LOOK),
        }
    }
}

/// Asks the command to end (`SIGTERM`), and kills it and strace if they have not after half a
/// second: before a second signal ends this process. strace ends when there is nothing left to
/// trace.
fn end(child: &mut Child) -> std::io::Result<()> {
    let since = Instant::now();
    signal(child, Signal::TERM);
    while child.try_wait()?.is_none() && since.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(LOOK);
    }
    if child.try_wait()?.is_none() {
        signal(child, Signal::KILL);
        child.kill()?;
    }
    child.wait().map(drop)
}

/// Sends a signal to what strace has started, which is found while strace runs.
fn signal(strace: &Child, signal: Signal) {
    #[cfg(target_os = "linux")]
    for pid in superpage_linux::tree::descendants(strace.id() as i32) {
        let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, signal));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (strace, signal);
}

/// The mappings of the process that was first, from the lines of each thread by its number; `None`
/// where there is none.
fn read(threads: &BTreeMap<u32, String>) -> Option<Mappings> {
    let lines = |thread: &u32| threads.get(thread).into_iter().flat_map(|text| text.lines()).filter_map(timed);
    let (_, first) = threads.keys().filter_map(|thread| Some((lines(thread).next()?.0, *thread))).min()?;
    let (mut own, mut new) = (BTreeSet::from([first]), vec![first]);
    while let Some(thread) = new.pop() {
        let calls = lines(&thread).filter(|(_, call)| call.starts_with("clone") && call.contains("CLONE_THREAD"));
        let begun = calls.filter_map(|(_, call)| call.rsplit_once(" = ")?.1.trim().parse().ok());
        new.extend(begun.filter(|thread| own.insert(*thread)));
    }
    let mut all: Vec<(u64, &str)> = own.iter().flat_map(lines).collect();
    all.sort_by_key(|(time, _)| *time);
    let mut mappings = Mappings::default();
    for (_, call) in all {
        let _ = take(&mut mappings, call);
    }
    Some(mappings)
}

/// A line's time in microseconds, and its call.
fn timed(line: &str) -> Option<(u64, &str)> {
    let (time, call) = line.split_once(' ')?;
    let (seconds, fraction) = time.split_once('.')?;
    Some((seconds.parse::<u64>().ok()? * 1_000_000 + fraction.parse::<u64>().ok()?, call))
}

/// Applies a call; `None` where it failed, or changes no mapping.
fn take(mappings: &mut Mappings, call: &str) -> Option<()> {
    const PAGE: u64 = 4096;
    let (call, result) = call.rsplit_once(" = ")?;
    let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
    let arguments: Vec<&str> = arguments.split(", ").collect();
    let word = |text: &str| match text.split_whitespace().next()?.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let number = |at: usize| word(arguments.get(at)?);
    let range = |start: u64, bytes: u64| start..start + bytes.div_ceil(PAGE) * PAGE;
    let result = word(result)?;
    match name {
        "execve" if result == 0 => *mappings = Mappings::default(),
        "mmap" => {
            let rights = arguments.get(2)?;
            let bit = |name, bit| if rights.contains(name) { bit } else { 0 };
            let rights = bit("PROT_READ", 1) | bit("PROT_WRITE", 2) | bit("PROT_EXEC", 4);
            mappings.map(range(result, number(1)?), rights, !arguments.get(3)?.contains("MAP_ANONYMOUS"));
        }
        "munmap" if result == 0 => mappings.unmap(&range(number(0)?, number(1)?)),
        "mremap" => mappings.remap(&range(number(0)?, number(1)?), range(result, number(2)?)),
        // What precedes the next page belongs to the program's data.
        "brk" => {
            let start = if mappings.heap.start == 0 { result.div_ceil(PAGE) * PAGE } else { mappings.heap.start };
            mappings.grow(start..start.max(result.div_ceil(PAGE) * PAGE));
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_process_and_its_threads_are_read_in_their_order() {
        let first = "1.000001 execve(\"/bin/sh\", [\"sh\"], 0x7ffe /* 3 vars */) = 0\n\
            1.000002 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7000000\n\
            1.000003 execve(\"/no\", [\"no\"], 0x7ffe /* 3 vars */) = -1 ENOENT (No such file or directory)\n\
            1.000004 execve(\"/bin/x\", [\"x\"], 0x7ffe /* 3 vars */) = 0\n\
            1.000005 brk(NULL)                               = 0x5555000\n\
            1.000006 brk(0x5576000)                          = 0x5576000\n\
            1.000007 mmap(NULL, 5000, PROT_READ, MAP_PRIVATE, 3, 0) = 0x6000000\n\
            1.000008 clone3({flags=CLONE_VM|CLONE_THREAD, child_tid=0x7f}, 88) = 12\n\
            1.000009 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD) = 13\n\
            1.000020 munmap(0x8000000, 4096)          = 0\n\
            1.000021 mremap(0x9000000, 4096, 12288, MREMAP_MAYMOVE) = 0xa000000\n\
            1.000030 exit_group(0) = ?\n";
        let thread = "1.000010 mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x8000000\n\
            1.000011 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x9000000\n";
        let child = "1.000012 mmap(NULL, 65536, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0xb000000\n";
        let threads = [(11, first), (12, thread), (13, child)].map(|(number, text)| (number, text.to_string()));
        let mappings = read(&threads.into()).unwrap();
        assert_eq!(mappings.heap, 0x5555000..0x5576000);
        assert_eq!(mappings.sums(), (8192 + 4096 + 12288, 8192));
    }
}
