//! Code as a copy in anonymous huge memory.

use super::code::{Code, HUGE};
use super::tracee::Tracee;
use crate::Error;
use crate::pagemap::huge_bytes;

/// `MADV_COLLAPSE`.
const COLLAPSE: u64 = 25;

/// Places code; returns how many of its bytes are then mapped by huge pages. On an error the code
/// stays as it was.
pub(super) fn place(tracee: &mut Tracee, pid: u32, code: &Code) -> Result<u64, Error> {
    let bytes = code.range.end - code.range.start;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // One extra huge page, to have room for the alignment.
    let room = bytes + HUGE;
    let arguments = [0, room, protection as u64, flags as u64, u64::MAX, 0];
    let start = tracee.call("map memory in", libc::SYS_mmap, arguments)?;
    let copy = start.next_multiple_of(HUGE);
    let moved = fill(tracee, pid, code, copy).and_then(|()| {
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let arguments = [copy, bytes, bytes, flags, code.range.start, 0];
        tracee.call("move the copy over the code of", libc::SYS_mremap, arguments)
    });
    // The rest of the room: both ends of it, or all.
    let mut ends = vec![(start, copy - start), (copy + bytes, start + room - copy - bytes)];
    if moved.is_err() {
        ends = vec![(start, room)];
    }
    tracee.calmly(|tracee| {
        for (at, bytes) in ends.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let _ = tracee.call("unmap memory in", libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]);
        }
    });
    moved?;
    huge_bytes(pid, code.range.clone())
}

/// Makes a copy of the code, on huge pages, with its protection.
fn fill(tracee: &mut Tracee, pid: u32, code: &Code, copy: u64) -> Result<(), Error> {
    let bytes = code.range.end - code.range.start;
    let advice = [copy, bytes, libc::MADV_HUGEPAGE as u64, 0, 0, 0];
    tracee.call("advise huge pages for the copy in", libc::SYS_madvise, advice)?;
    for at in (0..bytes).step_by(HUGE as usize) {
        tracee.copy(code.range.start + at, copy + at, HUGE as usize)?;
    }
    if huge_bytes(pid, copy..copy + bytes)? < bytes {
        // Blocks that got no huge page at their first touch may get one now.
        let _ = tracee.call("collapse the copy in", libc::SYS_madvise, [copy, bytes, COLLAPSE, 0, 0, 0]);
    }
    if huge_bytes(pid, copy..copy + bytes)? == 0 {
        return Err(Error::Unable(
            "the kernel gives it no huge pages: none are free, or they are disabled for it".into(),
        ));
    }
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    tracee.call("make the copy executable in", libc::SYS_mprotect, [copy, bytes, protection, 0, 0, 0])?;
    Ok(())
}
