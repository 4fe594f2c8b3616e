//! Code on huge pages of its file.

use super::code::{Code, HUGE};
use super::tracee::Tracee;
use crate::Error;
use crate::pagemap::{huge_bytes, private_copies};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// `MADV_POPULATE_READ`, `MADV_COLLAPSE`.
const POPULATE_READ: u64 = 22;
const COLLAPSE: u64 = 25;

/// Places code; returns how many of its bytes are then mapped by huge pages. The mapping shows the
/// same file before and after, whatever fails.
///
/// The steps escalate: the cache may contain huge pages already, so that advice is enough;
/// otherwise its pages are dropped and read again; a file system in memory needs them collapsed.
pub(super) fn place(tracee: &mut Tracee, pid: u32, code: &Code) -> Result<u64, Error> {
    let range = &code.range;
    let bytes = range.end - range.start;
    if !code.offset.is_multiple_of(HUGE) {
        return Err(Error::Unable("its address and its offset in the file differ modulo 2 MB".into()));
    }
    if private_copies(pid, range.clone())? {
        return Err(Error::Unable("the process has private copies of some of its pages".into()));
    }
    let mut advise = |what: &str, advice: u64| {
        tracee.call(what, libc::SYS_madvise, [range.start, bytes, advice, 0, 0, 0]).map(|_| ())
    };
    advise("advise huge pages for the code of", libc::MADV_HUGEPAGE as u64)?;
    for attempt in 0..3 {
        // A page that is mapped stays in the cache; a page of a file that is dropped here comes
        // back when it is used.
        advise("unmap the code of", libc::MADV_DONTNEED as u64)?;
        if attempt == 1 {
            evict(pid, code)?;
        }
        advise("read in the code of", POPULATE_READ)?;
        if attempt == 2 {
            // If this fails, the code stays as it was.
            let _ = advise("collapse the code of", COLLAPSE);
        }
        if huge_bytes(pid, range.clone())? == bytes {
            break;
        }
    }
    huge_bytes(pid, range.clone())
}

/// Drops the pages of a piece of code from the page cache, except those that some process maps or
/// that are not written back.
fn evict(pid: u32, code: &Code) -> Result<(), Error> {
    let file = code.open(pid)?;
    let metadata = file.metadata().map_err(Error::file("read", &code.path))?;
    if metadata.ino() != code.inode {
        return Err(Error::Unable("the file was replaced since it was mapped".into()));
    }
    if being_written(&file) {
        return Err(Error::Unable("the file is open for writing".into()));
    }
    let bytes = NonZeroU64::new(code.range.end - code.range.start);
    fadvise(&file, code.offset, bytes, Advice::DontNeed).map_err(Error::system("drop the file's pages from the cache"))
}

/// Whether somebody has the file open for writing: then the kernel grants no read lease.
fn being_written(file: &File) -> bool {
    // SAFETY: `fcntl` with these commands takes a number and touches no memory.
    let leased = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
    if leased == 0 {
        // SAFETY: as above.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
        return false;
    }
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}
