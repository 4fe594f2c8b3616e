//! How much memory this process may still allocate under all its limits, to refuse requests before
//! anything is allocated.

use crate::headroom::Headroom;
use crate::proc::bytes_of;
use rustix::mm::{Advice, madvise};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;
use superpage_pages::{Ladder, Level, MAX_LEVELS};
use superpage_vm::MemoryState;

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

/// What is left to this process of each limit: the system's memory that is available without
/// swapping, the limits of its control groups (versions 1 and 2) up to the root, and its own
/// (`ulimit -v`, `ulimit -d`). A limit that the kernel does not show does not apply.
pub fn left() -> Vec<Left> {
    let mut all = Headroom::of("/").left(std::process::id() as i32);
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

/// Asks the kernel for huge pages at first touches of the whole pages in `memory`. Where there are
/// none, as with `enabled=never`, nothing changes.
pub fn ask_for_huge_pages<T>(memory: &mut [T]) {
    let (bytes, page) = (size_of_val(memory), rustix::param::page_size());
    let start = memory.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(page).min(bytes);
    let whole = (bytes - skipped) / page * page;
    // SAFETY: the range lies in `memory`, which is borrowed, and the advice leaves its contents as
    // they are.
    let _ = unsafe { madvise(start.add(skipped).cast(), whole, Advice::LinuxHugepage) };
}

/// What the kernel thinks can be had of the system's memory without swapping, in bytes; `None`
/// where it does not say.
pub fn available() -> Option<u64> {
    bytes_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

/// What memory is like, in pages of this ladder, of the system whose `/proc` is in `root`; `None`
/// where the kernel does not show it. The marks are the sums over all zones (`/proc/zoneinfo`), 0
/// where they are not shown; free extents are the free blocks of the buddy allocator
/// (`/proc/buddyinfo`), larger ones as several of the ladder's largest size.
pub fn state(root: &Path, ladder: &Ladder) -> Option<MemoryState> {
    let read = |name: &str| fs::read_to_string(root.join("proc").join(name)).ok();
    let (meminfo, base) = (read("meminfo")?, ladder.base().bytes());
    let pages = |name: &str| Some(bytes_of(&meminfo, name)? / base);
    let zones = read("zoneinfo").unwrap_or_default();
    let marks = |name: &str| {
        let of = |line: &str| {
            let mut words = line.split_whitespace();
            (words.next() == Some(name)).then(|| words.next()?.parse::<u64>().ok()).flatten()
        };
        zones.lines().filter_map(of).sum()
    };
    let mut extents = [0; MAX_LEVELS];
    for line in read("buddyinfo")?.lines() {
        // Node 0, zone   Normal   1046    527    128 ...: free blocks of each order.
        let blocks = line.split_whitespace().skip(4).map_while(|word| word.parse::<u64>().ok());
        for (order, blocks) in (0..).zip(blocks) {
            let level = ladder.levels().rev().find(|level| ladder.order(*level) <= order).unwrap_or(Level::BASE);
            extents[level.index()] += blocks << (order - ladder.order(level));
        }
    }
    let (total, free, available) = (pages("MemTotal")?, pages("MemFree")?, pages("MemAvailable")?);
    Some(MemoryState { total, free, available, low: marks("low"), aim: marks("high"), extents })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_extents_are_blocks_by_size() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join("proc").join(name), text).unwrap();
        assert_eq!(state(folder.path(), &Ladder::X86_64), None);
        write("meminfo", "MemTotal: 65536 kB\nMemFree:  40000 kB\nMemAvailable:   50000 kB\n");
        write(
            "buddyinfo",
            "Node 0, zone      DMA      1      0      0      0      0      0      0      0      0      0      2\n\
             Node 0, zone   Normal      4      3      0      0      0      0      0      0      1      5      0\n",
        );
        write(
            "zoneinfo",
            "Node 0, zone Normal\n  pages free 10000\n        min      100\n        low      125\n        high     150\n",
        );
        let state = state(folder.path(), &Ladder::X86_64).unwrap();
        assert_eq!((state.total, state.free, state.available), (16384, 10000, 12500));
        assert_eq!((state.low, state.aim), (125, 150));
        // Blocks of 4 MB hold two of 2 MB each.
        assert_eq!(state.extents[..3], [1 + 4 + 3 * 2 + 256, 5 + 2 * 2, 0]);
        assert_eq!(state.free_extents(&Ladder::X86_64, Level::BASE), 267 + 9 * 512);
    }

    #[test]
    fn the_running_system_shows_its_memory() {
        let Some(state) = state(Path::new("/"), &Ladder::X86_64) else { return };
        assert!(state.free > 0 && state.available > 0, "{state:?}");
    }

    #[test]
    fn something_is_left_of_the_system() {
        let left = left();
        assert!(left.iter().any(|left| left.bytes > 1 << 20 && left.of.contains("system")), "{left:?}");
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
