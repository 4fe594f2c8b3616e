//! Promotion of regions of another process: `process_madvise` with `MADV_COLLAPSE`.

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;
use superpage_vm::Why;

/// Why the kernel did not promote a region, by error number. `EINVAL` stands for memory under
/// `MADV_NOHUGEPAGE` or `PR_SET_THP_DISABLE`, for what is empty, unmapped meanwhile, or pinned;
/// `ENOMEM` also for what was unmapped since it was checked.
fn refusal(error: &io::Error) -> Why {
    match error.raw_os_error().unwrap_or(0) {
        libc::EINVAL => Why::Ineligible,
        libc::ENOMEM => Why::NoExtent,
        libc::EBUSY => Why::GroupLimit,
        libc::EAGAIN => Why::Busy,
        libc::EPERM | libc::EACCES => Why::Rights,
        libc::ESRCH => Why::Gone,
        _ => Why::Other,
    }
}

/// Promotes regions of `size` bytes at these addresses in the process of `pidfd`, in one call as
/// long as the kernel accepts all. About 0.5 ms of CPU time each. Returns for each region whether
/// it is now a huge page.
pub fn collapse(pidfd: BorrowedFd<'_>, addresses: &[u64], size: u64) -> Vec<Result<(), Why>> {
    let mut outcomes = Vec::with_capacity(addresses.len());
    while outcomes.len() < addresses.len() {
        match advise(pidfd, &addresses[outcomes.len()..], size) {
            // The kernel stops at the first region that it refuses, and returns the reason only if
            // nothing was done before: a call that begins with that region shows it.
            Ok(done) if done >= size => outcomes.extend(std::iter::repeat_n(Ok(()), (done / size) as usize)),
            Ok(_) => outcomes.push(Err(Why::Busy)),
            Err(error) => {
                let why = refusal(&error);
                if why == Why::Other {
                    tracing::debug!("a region cannot be collapsed: {error}");
                }
                let all = matches!(why, Why::Gone | Why::Rights);
                let these = if all { addresses.len() - outcomes.len() } else { 1 };
                outcomes.extend(std::iter::repeat_n(Err(why), these));
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
    // SAFETY: the kernel reads the ranges, which are ours and live; collapsing never changes what
    // the memory of any process contains, only how it is mapped.
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
