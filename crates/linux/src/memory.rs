//! How much memory this process may still allocate under all its limits, to refuse requests before anything is
//! allocated.

use crate::proc::bytes_of;
use crate::promote::headroom::Headroom;
use rustix::process::{Resource, getrlimit};
use std::fs;

/// What is left of one limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// Bytes.
    pub bytes: u64,
    /// What the limit is of, as words for a sentence.
    pub of: String,
    /// Whether memory counts as soon as it is mapped, even if never written.
    pub counts_untouched: bool,
}

/// What is left to this process of each limit: the system's memory that is available without swapping, the limits of
/// its control groups (versions 1 and 2) up to the root, and its own (`ulimit -v`, `ulimit -d`). A limit that the
/// kernel does not show does not apply.
pub fn left() -> Vec<Left> {
    let of_memory = |(bytes, of)| Left { bytes, of, counts_untouched: false };
    let mut all: Vec<Left> = Headroom::of("/").left(std::process::id() as i32).into_iter().map(of_memory).collect();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (resource, used, of) in [
        (Resource::As, "VmSize", "this process's address space (ulimit -v)"),
        (Resource::Data, "VmData", "this process's data (ulimit -d)"),
    ] {
        if let Some(limit) = getrlimit(resource).current {
            let bytes = limit.saturating_sub(bytes_of(&status, used).unwrap_or(0));
            all.push(Left { bytes, of: of.into(), counts_untouched: true });
        }
    }
    all
}

/// What the kernel thinks can be had of the system's memory without swapping, in bytes; `None` where it does not say.
pub fn available() -> Option<u64> {
    bytes_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_left_of_the_system() {
        let left = left();
        assert!(left.iter().any(|left| left.bytes > 1 << 20 && left.of.contains("system")), "{left:?}");
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
