//! Promotion of regions of another process: `process_madvise` with `MADV_COLLAPSE`.

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// Why the kernel did not promote a region, by error number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// `EINVAL`: the region is not eligible: under `MADV_NOHUGEPAGE` or `PR_SET_THP_DISABLE`, empty, unmapped meanwhile, or
    /// its pages are pinned.
    Ineligible,
    /// `ENOMEM`: no free huge page was available.
    NoMemory,
    /// `ENOMEM` too: the range was unmapped since it was checked.
    Unmapped,
    /// `EBUSY`: the process's control group is at its limit.
    GroupLimit,
    /// `EAGAIN`: some page was temporarily in use.
    Again,
    /// `EPERM`, `EACCES`: this process lacks the right.
    Rights,
    /// `ESRCH`: the process has ended.
    Gone,
    /// Any other error.
    Other(i32),
}

impl Refusal {
    fn from_error(error: &io::Error) -> Refusal {
        match error.raw_os_error().unwrap_or(0) {
            libc::EINVAL => Refusal::Ineligible,
            libc::ENOMEM => Refusal::NoMemory,
            libc::EBUSY => Refusal::GroupLimit,
            libc::EAGAIN => Refusal::Again,
            libc::EPERM | libc::EACCES => Refusal::Rights,
            libc::ESRCH => Refusal::Gone,
            other => Refusal::Other(other),
        }
    }

    /// A word for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Ineligible => "ineligible",
            Refusal::NoMemory => "no-memory",
            Refusal::Unmapped => "unmapped",
            Refusal::GroupLimit => "group-limit",
            Refusal::Again => "again",
            Refusal::Rights => "rights",
            Refusal::Gone => "gone",
            Refusal::Other(_) => "other",
        }
    }
}

/// Promotes regions of `size` bytes at these addresses in the process of `pidfd`, in one call as long as the kernel
/// accepts all. About 0.5 ms of CPU time each. Returns for each region whether it is now a huge page.
pub fn collapse(pidfd: BorrowedFd<'_>, addresses: &[u64], size: u64) -> Vec<Result<(), Refusal>> {
    let mut outcomes = Vec::with_capacity(addresses.len());
    while outcomes.len() < addresses.len() {
        match advise(pidfd, &addresses[outcomes.len()..], size) {
            // The kernel stops at the first region that it refuses, and returns the reason only if nothing was done
            // before: a call that begins with that region shows it.
            Ok(done) if done >= size => outcomes.extend(std::iter::repeat_n(Ok(()), (done / size) as usize)),
            Ok(_) => outcomes.push(Err(Refusal::Again)),
            Err(error) => {
                let refusal = Refusal::from_error(&error);
                let all = matches!(refusal, Refusal::Gone | Refusal::Rights);
                let these = if all { addresses.len() - outcomes.len() } else { 1 };
                outcomes.extend(std::iter::repeat_n(Err(refusal), these));
            }
        }
    }
    outcomes
}

/// Whether the kernel supports the request at all; the error is the errno.
pub fn probe(pidfd: BorrowedFd<'_>) -> Result<(), i32> {
    advise(pidfd, &[], 0).map(|_| ()).map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// One call; returns the number of bytes that are now huge pages, from the first address on.
fn advise(pidfd: BorrowedFd<'_>, addresses: &[u64], size: u64) -> io::Result<u64> {
    let range = |address: &u64| libc::iovec { iov_base: *address as *mut libc::c_void, iov_len: size as usize };
    let ranges: Vec<libc::iovec> = addresses.iter().map(range).collect();
    // SAFETY: the kernel reads the ranges, which are ours and live; collapsing never changes what the memory of any process
    // contains, only how it is mapped.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            ranges.as_ptr(),
            ranges.len(),
            libc::MADV_COLLAPSE,
            0,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done as u64) }
}
