//! Looking at memory as it is: where the pages of a process lie and how large they are, why it has no huge pages where it has
//! none, and what the system has free.

mod contiguity;
mod folios;
mod mapping;
mod process;
mod reach;
mod reason;
mod rules;
mod system;

pub use contiguity::{Contiguity, contiguity};
pub use mapping::{Kind, Mapping};
pub use process::Process;
pub(crate) use reach::part;
pub use reach::{Library, Reach};
pub use reason::{Reason, Why};
pub use rules::Rules;
pub use system::{Pool, System, Zone};

use crate::Error;
use crate::pagemap::{Entry, Pagemap, gone, huge_page_bytes};
use crate::told::{self, State};
use rustix::io::Errno;
use std::io;
use std::ops::Range;

/// Bytes of a base page of this system.
pub fn base_page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// How many bytes of a range of a process huge pages map.
pub(crate) fn huge_bytes(pid: u32, range: Range<u64>) -> Result<u64, Error> {
    let pagemap = open(pid)?;
    let told = if pagemap.scans() { None } else { Some(mapping::told(&process::smaps(pid, &|| true)?, &range)) };
    let mut pages = 0;
    let count = |_, block: &[Entry]| {
        pages += block.iter().filter(|entry| entry.resident() && entry.huge()).count() as u64;
        true
    };
    pagemap.blocks(range, told, count).map_err(|error| refused(pid, error))?;
    Ok(pages * pagemap.base())
}

/// Whether any page of a range of a mapping of a file is a private copy.
pub(crate) fn private_copies(pid: u32, range: Range<u64>) -> Result<bool, Error> {
    let mut copies = false;
    let copy = |entry: &Entry| (entry.resident() && entry.anonymous()) || entry.swapped();
    let blocks = open(pid)?.blocks(range, None, |_, block| {
        copies |= block.iter().any(copy);
        !copies
    });
    match blocks {
        Err(error) if !copies => Err(refused(pid, error)),
        _ => Ok(copies),
    }
}

/// The page of an address, if that is in a mapping of a file and no private copy yet: a write through `ptrace` makes one.
pub(crate) fn page_of_file(pid: u32, address: u64) -> Result<Option<u64>, Error> {
    let page = address / base_page_bytes() * base_page_bytes();
    Ok((!private_copies(pid, page..page + base_page_bytes())?).then_some(page))
}

/// The page table of a process.
fn open(pid: u32) -> Result<Pagemap, Error> {
    Pagemap::open(pid).map_err(|error| refused(pid, error))
}

/// Why something of a process cannot be read, as a sentence.
fn refused(pid: u32, error: io::Error) -> Error {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => {
            Error::Usage(format!("there is no process {pid}: expected the number of a running process"))
        }
        Some(Errno::ACCESS | Errno::PERM) => Error::Unable(format!(
            "process {pid} may not be looked into: it is another user's or protected; run as that user, or as root"
        )),
        _ if gone(&error) => ended(pid),
        _ if error.kind() == io::ErrorKind::TimedOut => {
            Error::Unable(format!("the look at process {pid} was given up before its end"))
        }
        _ => Error::System { what: format!("read the page table of process {pid}"), source: error },
    }
}

/// The process has no memory to look at: it went away in between, or it is none that has any.
fn ended(pid: u32) -> Error {
    let name = told::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim_end_matches('\n');
    Error::Unable(match State::of(pid as i32) {
        State::Kernel => {
            format!("process {pid} ({name}) is a thread of the kernel: it has no memory of its own to look at")
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
