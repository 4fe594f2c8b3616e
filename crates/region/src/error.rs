//! Errors of regions.

use std::io;

/// Why a region was not made, or an operation on it failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process has no access to a `userfaultfd`.
    #[error(
        "this process may not use userfaultfd ({0}); run as root, or get access to /dev/userfaultfd, or set \
         vm.unprivileged_userfaultfd to 1"
    )]
    Rights(io::Error),
    /// Only user-mode faults can be handled, and the builder was not told that this is enough.
    #[error(
        "this process may handle faults of user mode only, so that system calls into memory of the region that is not populated \
         would fail (EFAULT); run as root, or get access to /dev/userfaultfd, or set vm.unprivileged_userfaultfd to 1, or say \
         Builder::user_mode_only"
    )]
    UserModeOnly,
    /// The region was made by the parent of this process.
    #[error("the region belongs to the process that made it, and this is a forked child, which has none of its memory")]
    Forked,
    /// The kernel's `userfaultfd` lacks what a region needs.
    #[error("this kernel's userfaultfd has no {0}; Linux 6.1 or later on x86-64 or AArch64 has it")]
    Kernel(&'static str),
    /// The base page is not 4 KB.
    #[error("the base page of this machine has {0} bytes; a region needs 4096")]
    BasePage(usize),
    /// A size outside the range of a region.
    #[error("a region has from one base page to less than 2^44 bytes, not {0}")]
    Bytes(usize),
    /// A limit outside the range of a region.
    #[error("the limit of a region is from 2 MB to less than 2^44 bytes, not {0}")]
    Limit(usize),
    /// A policy that would leave a region with base pages for ever: which, and why.
    #[error(
        "policy {policy} does nothing for a region: {why}; a region can have reservation, freebsd, talluri-hill or base"
    )]
    Policy {
        /// The name of the policy.
        policy: &'static str,
        /// What a region lacks for it.
        why: &'static str,
    },
    /// No frame is left, and no page can be evicted.
    #[error("no frame is left for page {0} of the region; raise its limit, name a swap directory, or discard pages")]
    OutOfMemory(usize),
    /// A range that is not inside the region, or not of whole base pages.
    #[error("bytes {start}..{end} are not whole base pages inside the region of {bytes} bytes")]
    Range {
        /// The first byte.
        start: usize,
        /// The byte after the last.
        end: usize,
        /// The size of the region.
        bytes: usize,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: the error that the system could not do `what`.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System { what, source: source.into() }
    }
}
