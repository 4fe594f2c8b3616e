//! A program's code on huge pages, without changing the program.
//!
//! The command is started traced and stopped where it begins: at its entry point, when the dynamic
//! linker has mapped its libraries, before its first instruction. There, for each mapping of
//! code that holds at least one aligned huge page, system calls are made in the command's name, in
//! one of two ways:
//!
//! - [`Way::File`]: the file's pages are dropped from the page cache, the mapping is advised to be
//!   huge, and read in again. If the file system has large folios, the cache then holds the code in
//!   huge pages and the page table maps them. It is still the file: profilers, debuggers and other
//!   processes see no difference.
//! - [`Way::Remap`]: the code is copied to anonymous huge memory, which is moved over the code.
//!   Profilers then find no file there; [`Placed::symbols`] writes a map that `perf` reads instead.
//!
//! Then the command continues, no longer traced. Every step that fails is undone and reported, and
//! the command runs with its code where it was. A launcher, too small to have code to place, such
//! as `env`, a shell or a version manager's shim, is followed to the program that it executes in
//! its own place within a second. Nothing else is: a process that the command forks shares the code
//! as placed, one that executes another program has that program's code as the kernel loads it.

mod code;
mod file;
mod remap;
mod symbols;
#[cfg_attr(target_arch = "x86_64", path = "tracee.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "no_tracee.rs")]
mod tracee;

pub use symbols::Symbols;

use crate::Error;
use crate::tree::exits::prepare as traced;
use code::Code;
use rustix::fs::{Access, access};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};
use superpage_pages::Bytes;
use tracee::Tracee;

/// How code is placed on huge pages; see the module's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// As pages of the file.
    File,
    /// As a copy in anonymous memory.
    Remap,
    /// As pages of the file, and the rest as a copy.
    Auto,
}

impl FromStr for Way {
    type Err = Error;

    fn from_str(text: &str) -> Result<Way, Error> {
        match text {
            "file" => Ok(Way::File),
            "remap" => Ok(Way::Remap),
            "auto" => Ok(Way::Auto),
            _ => Err(Error::Usage(format!("{text} is no way to place code: expected file, remap or auto"))),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::File => "file",
            Way::Remap => "remap",
            Way::Auto => "auto",
        })
    }
}

/// The result for one mapping of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The file.
    pub path: PathBuf,
    /// The aligned part of the mapping, in whole huge pages.
    pub range: std::ops::Range<u64>,
    /// How many of its bytes are now mapped by huge pages.
    pub huge_bytes: u64,
    /// How it was placed; `None` if it stayed as it was.
    pub way: Option<Way>,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (huge, all) = (Bytes(self.huge_bytes), Bytes(self.range.end - self.range.start));
        write!(f, "code of {}: {huge} of {all} on huge pages", self.path.display())?;
        match self.way {
            Some(way) => write!(f, ", by {way}"),
            None => f.write_str(", as it lay"),
        }
    }
}

/// The result for a command's code.
#[derive(Debug, Default)]
pub struct Placed {
    /// The mappings that can have huge pages.
    pub code: Vec<Placement>,
    /// What failed, as sentences.
    pub notes: Vec<String>,
    /// The code that was remapped, with its files.
    remapped: Vec<(Code, File)>,
    /// The steps that were taken: system calls, reads and writes in the command's name.
    pub steps: usize,
}

impl Placed {
    /// Writes the symbols of remapped code for `perf`, in a file that is removed when the returned
    /// value is dropped; `None` if no code was remapped. `pid` is the process's number, which may
    /// have ended. Some 4 ms per MB of the program's file.
    ///
    /// # Errors
    /// [`Error::File`] if a program cannot be read or the map not be written, [`Error::Unable`] for
    /// a file that is not a program.
    pub fn symbols(&self, pid: u32) -> Result<Option<Symbols>, Error> {
        if self.remapped.is_empty() { Ok(None) } else { Symbols::write(pid, &self.remapped).map(Some) }
    }
}

/// Checks whether code can be placed here.
///
/// # Errors
/// [`Error::Unable`]: this process is itself traced, or this kind of processor is not supported.
pub fn check() -> Result<(), Error> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Error::Unable("code is placed on huge pages on x86-64 only so far".into()));
    }
    match crate::proc::own_status()?.tracerpid {
        0 => Ok(()),
        _ => Err(Error::Unable(
            "a process that is traced cannot trace another to place its code; run it untraced".into(),
        )),
    }
}

/// Prepares a command so that it stops for [`place`] when it is started.
///
/// # Errors
/// Those of [`check`], and [`Error::Unable`] if the program would run with another user's rights.
pub fn prepare(command: &mut Command) -> Result<(), Error> {
    check()?;
    if let Some(program) = program(command).filter(|program| privileged(program)) {
        let program = program.display();
        return Err(Error::Unable(format!(
            "{program} runs with its own rights (set-user-ID, set-group-ID or capabilities), which tracing would \
                 take from it; run without --text"
        )));
    }
    traced(command);
    Ok(())
}

/// Places the code of a command that was passed to [`prepare`]. Call it once, soon, from the thread
/// that started the command: the command waits. Returns when the command continues; for one without
/// code to place, within a second. Each 2 MB of code take some 0.2 ms by remapping; by file the
/// time to read the code from disk, unless an earlier run left it in the cache in huge pages.
///
/// `fail_at` is for tests: the step with that number fails.
pub fn place(pid: u32, way: Way, fail_at: Option<usize>) -> Placed {
    let mut placed = Placed::default();
    let mut tracee = match Tracee::adopt(pid, fail_at) {
        Ok(tracee) => tracee,
        Err(error) => {
            placed.notes.push(format!("the command's code stays as it is: {error}"));
            return placed;
        }
    };
    if let Err(error) = place_all(&mut tracee, pid, way, &mut placed) {
        placed.notes.push(format!("the command's code stays as it is: {error}"));
    }
    placed.steps = tracee.release();
    placed
}

/// How long a launcher is given to execute its program.
const LAUNCH: Duration = Duration::from_secs(1);

/// The code of the command, or of the program that it executes in its own place, with that program
/// at its entry point.
fn find_code(tracee: &mut Tracee, pid: u32, placed: &mut Placed) -> Result<Vec<Code>, Error> {
    let until = Instant::now() + LAUNCH;
    loop {
        let status = crate::proc::status(pid as i32).map_err(Error::system("read its status"))?;
        if status.seccomp.is_some_and(|mode| mode != 0) {
            return Err(Error::Unable(
                "it runs under a seccomp filter, which may forbid what --text does in its name".into(),
            ));
        }
        tracee.run_to_entry()?;
        let all = code::all(pid)?;
        if !all.is_empty() {
            return Ok(all);
        }
        let nothing = "the command has no code that covers an aligned 2 MB";
        if !may_follow()? {
            placed.notes.push(format!("{nothing}; what it executes in its place is followed for root alone"));
            return Ok(all);
        }
        if !tracee.follow(until.saturating_duration_since(Instant::now()))? {
            placed.notes.push(format!("{nothing}, and executes no other program in its place within a second"));
            return Ok(all);
        }
    }
}

/// Whether this process has CAP_SYS_PTRACE. Without it a privileged (set-user-ID) program would
/// not get them while it is traced, and which program a launcher executes is not known in advance.
fn may_follow() -> Result<bool, Error> {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    Ok(crate::proc::own_status()?.capeff & CAP_SYS_PTRACE != 0)
}

fn place_all(tracee: &mut Tracee, pid: u32, way: Way, placed: &mut Placed) -> Result<(), Error> {
    let all = find_code(tracee, pid, placed)?;
    for code in all {
        let mut placement = Placement { path: code.path.clone(), range: code.range.clone(), huge_bytes: 0, way: None };
        let bytes = code.range.end - code.range.start;
        let mut why = Vec::new();
        if way != Way::Remap {
            match file::place(tracee, pid, &code) {
                Ok(huge) if huge > 0 => (placement.huge_bytes, placement.way) = (huge, Some(Way::File)),
                Ok(_) => why.push("by file: the kernel put no huge page there".to_string()),
                Err(error) => why.push(format!("by file: {error}")),
            }
        }
        if way != Way::File && placement.huge_bytes < bytes {
            match remap::place(tracee, pid, &code) {
                Ok(huge) => {
                    (placement.huge_bytes, placement.way) = (huge, Some(Way::Remap));
                    match code.open(pid) {
                        Ok(file) => placed.remapped.push((code.clone(), file)),
                        Err(error) => placed.notes.push(format!("perf will know no symbols of this code: {error}")),
                    }
                }
                Err(error) => why.push(format!("by remapping: {error}")),
            }
        }
        if placement.huge_bytes < bytes {
            let reasons = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
            placed.notes.push(format!(
                "{} of {} bytes of the code of {} are on huge pages{reasons}",
                placement.huge_bytes,
                bytes,
                code.path.display()
            ));
        }
        placed.code.push(placement);
    }
    Ok(())
}

/// The file of a command's program, if it is found.
fn program(command: &Command) -> Option<PathBuf> {
    let name = Path::new(command.get_program());
    if name.components().count() > 1 {
        return Some(name.to_path_buf());
    }
    let own = command.get_envs().find(|(variable, _)| *variable == "PATH").and_then(|(_, path)| path);
    let path = own.map_or_else(|| std::env::var_os("PATH"), |path| Some(path.to_os_string()))?;
    let candidates: Vec<PathBuf> = std::env::split_paths(&path).map(|folder| folder.join(name)).collect();
    candidates.into_iter().find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}

/// Whether a program runs with more rights than its caller.
fn privileged(program: &Path) -> bool {
    let mode = std::fs::metadata(program).map_or(0, |metadata| metadata.permissions().mode());
    let mut capabilities = [0_u8; 64];
    let capable = rustix::fs::getxattr(program, "security.capability", &mut capabilities[..]).is_ok();
    mode & 0o6000 != 0 || capable
}
