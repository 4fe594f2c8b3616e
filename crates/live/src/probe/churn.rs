//! A churn: memory is taken in base pages, one page in two at random is given back, taken again and given back, so that what
//! the kernel has free lies in single pages.
//!
//! It is bounded, so that nobody else goes short: a share of what is available, never under a floor, for some seconds.

use super::memory::{BASE, HUGE, Memory};
use crate::inspect::System;
use procfs::{Current, Meminfo};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_linux::Error;

/// What is left available to all others, at least: so many bytes, and this share of all memory.
const FLOOR: u64 = 512 << 20;
const FLOOR_SHARE: u64 = 16;
/// What is left of a control group's limit.
const GROUP_FLOOR: u64 = 64 << 20;
/// A churn of less than that is none.
const LEAST: u64 = 64 << 20;
/// How much is taken between two looks at what is available and at the clock.
const STEP: usize = 32 << 20;
/// How often half is given back and taken again.
const TURNS: usize = 2;

/// No more is taken after that long: memory that a host has to find first takes ten times as long as other memory.
fn limit(share: f64) -> Duration {
    Duration::from_secs_f64((20.0 * share).max(2.0))
}

/// Memory of which one base page in two is held, at random. All of it is given back when this is dropped.
pub(crate) struct Churn {
    _memory: Memory,
    /// What was done, as a sentence.
    pub(crate) done: String,
    /// Bytes that were taken.
    pub(crate) taken: u64,
}

impl Churn {
    /// Takes this share of what is available. Ends early, with what it has by then, when what is available falls to the
    /// floor, when the time is over, or when `stop` is set.
    ///
    /// # Errors
    /// Too little is available, or the system says no.
    pub(crate) fn start(share: f64, stop: &AtomicBool) -> Result<Churn, Error> {
        let (available, spare) = (available()?, spare()?);
        let wanted = ((available as f64 * share) as u64).min(spare);
        if wanted < LEAST {
            return Err(Error::Unable(format!(
                "{} are too few for it: of {} available, {} may be taken",
                superpage_report::bytes(wanted),
                superpage_report::bytes(available),
                superpage_report::bytes(spare)
            )));
        }
        let bytes = (wanted as usize).next_multiple_of(HUGE);
        let begun = Instant::now();
        let until = begun + limit(share);
        let memory = Memory::new(bytes)?;
        memory.advise(libc::MADV_NOHUGEPAGE)?;
        let mut random = fastrand::Rng::with_seed(bytes as u64);
        let (taken, ended) = take(&memory, bytes, until, stop)?;
        // What was there once is there sooner the next time.
        let until = until + limit(share) / 2;
        let mut turns = 0;
        while turns < TURNS && Instant::now() < until {
            give_back_half(&memory, taken, &mut random)?;
            take(&memory, taken, until, stop)?;
            turns += 1;
        }
        give_back_half(&memory, taken, &mut random)?;
        let done = format!(
            "{} ({:.0} % of what was available) taken in base pages, half of them given back at random and taken again {turns} \
             times, half given back: in {:.1} s{}",
            superpage_report::bytes(taken as u64),
            100.0 * taken as f64 / available as f64,
            begun.elapsed().as_secs_f64(),
            ended.map(|why| format!("; ended early: {why}")).unwrap_or_default()
        );
        Ok(Churn { _memory: memory, done, taken: taken as u64 })
    }
}

/// Populates the first `bytes` where they are not. Gives how far that went, and why no further.
fn take(
    memory: &Memory,
    bytes: usize,
    until: Instant,
    stop: &AtomicBool,
) -> Result<(usize, Option<&'static str>), Error> {
    for at in (0..bytes).step_by(STEP) {
        let part = at..(at + STEP).min(bytes);
        if spare()? < part.len() as u64 {
            return Ok((at, Some("what is available would fall under the floor")));
        }
        if Instant::now() > until {
            return Ok((at, Some("the time was over")));
        }
        if stop.load(Ordering::Relaxed) {
            return Ok((at, Some("it was interrupted")));
        }
        match memory.advise_part(part.clone(), libc::MADV_POPULATE_WRITE) {
            // Kernels before 5.14.
            Err(Error::System { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                memory.touch(part, BASE);
            }
            done => done?,
        }
    }
    Ok((bytes, None))
}

/// Gives back each of the base pages with a chance of one half.
fn give_back_half(memory: &Memory, bytes: usize, random: &mut fastrand::Rng) -> Result<(), Error> {
    let mut from = None;
    for page in 0..=bytes / BASE {
        let goes = page < bytes / BASE && random.bool();
        match (goes, from) {
            (true, None) => from = Some(page),
            (false, Some(first)) => {
                memory.advise_part(first * BASE..page * BASE, libc::MADV_DONTNEED)?;
                from = None;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Bytes that programs can have without swapping, by the kernel's estimate.
fn available() -> Result<u64, Error> {
    let available = Meminfo::current().ok().and_then(|memory| memory.mem_available);
    available.ok_or_else(|| Error::Unable("/proc/meminfo does not tell MemAvailable".into()))
}

/// Bytes that may be taken now: above the floor of the system, and within the limits of all control groups.
fn spare() -> Result<u64, Error> {
    let all = Meminfo::current().map(|memory| memory.mem_total).unwrap_or(0);
    let above = available()?.saturating_sub(FLOOR.max(all / FLOOR_SHARE));
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = groups(&membership, Path::new("/sys/fs/cgroup"));
    let left = groups.iter().filter_map(|group| left(group)).min();
    Ok(left.map_or(above, |left| above.min(left.saturating_sub(GROUP_FLOOR))))
}

/// The folders of the control groups for memory that a process is in, by its `/proc/self/cgroup`: each with those above it.
/// Inside a container the mount itself is one.
fn groups(membership: &str, mount: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mount = match controllers {
            "" => mount.to_path_buf(),
            _ if controllers.split(',').any(|one| one == "memory") => mount.join("memory"),
            _ => continue,
        };
        let inside = Path::new(path.trim_start_matches('/'));
        folders.extend(inside.ancestors().map(|folder| mount.join(folder)));
    }
    folders
}

/// What a control group may still take; `None` if it has no limit.
fn left(group: &Path) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    let limit = ["memory.max", "memory.high", "memory.limit_in_bytes"].into_iter().filter_map(number).min()?;
    let used = ["memory.current", "memory.usage_in_bytes"].into_iter().find_map(number).unwrap_or(0);
    Some(limit.saturating_sub(used))
}

/// What the kernel has free: the sum of all zones.
pub(crate) struct Free {
    /// Blocks of each order, by `/proc/buddyinfo`.
    pub(crate) blocks: Vec<u64>,
    /// Bytes on the lists that each processor keeps for itself, where freed pages go first, by `/proc/zoneinfo`.
    pub(crate) kept: u64,
}

impl Free {
    pub(crate) fn now() -> Result<Free, Error> {
        let mut blocks = Vec::new();
        for zone in System::read()?.zones {
            blocks.resize(blocks.len().max(zone.free_blocks.len()), 0);
            blocks.iter_mut().zip(&zone.free_blocks).for_each(|(sum, zone)| *sum += zone);
        }
        let zoneinfo = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
        Ok(Free { blocks, kept: kept(&zoneinfo) * BASE as u64 })
    }

    /// Free bytes in blocks of this order and of larger ones.
    pub(crate) fn bytes_from(&self, order: usize) -> u64 {
        self.blocks.iter().enumerate().skip(order).map(|(order, blocks)| blocks * (BASE << order) as u64).sum()
    }
}

/// Base pages on the lists of processors.
fn kept(zoneinfo: &str) -> u64 {
    let count = |line: &str| line.trim().strip_prefix("count:")?.trim().parse::<u64>().ok();
    zoneinfo.lines().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_for_memory_with_all_above() {
        let mount = Path::new("/cg");
        let all = |text: &str| {
            let folders = groups(text, mount);
            folders.iter().map(|folder| folder.to_string_lossy().trim_end_matches('/').to_string()).collect::<Vec<_>>()
        };
        assert_eq!(all("0::/a/b\n"), ["/cg/a/b", "/cg/a", "/cg"]);
        assert_eq!(all("0::/\n"), ["/cg"]);
        assert_eq!(all("5:cpu,cpuacct:/x\n4:memory:/y\n"), ["/cg/memory/y", "/cg/memory"]);
        assert!(all("").is_empty());
    }

    #[test]
    fn the_tightest_limit_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(left(folder.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "100\n");
        assert_eq!(left(folder.path()), None);
        write("memory.high", "1000\n");
        assert_eq!(left(folder.path()), Some(900));
        write("memory.max", "50\n");
        assert_eq!(left(folder.path()), Some(0));
    }

    #[test]
    fn half_of_the_pages_go_and_nothing_beyond_the_memory() {
        let memory = Memory::base(8 << 20).unwrap();
        give_back_half(&memory, 4 << 20, &mut fastrand::Rng::with_seed(1)).unwrap();
        let mut here = vec![0_u8; 2048];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let told = unsafe { libc::mincore(memory.start() as *mut libc::c_void, 8 << 20, here.as_mut_ptr()) };
        assert_eq!(told, 0);
        let held = here[..1024].iter().filter(|page| **page & 1 == 1).count();
        assert!((400..624).contains(&held), "{held}");
        assert!(here[1024..].iter().all(|page| page & 1 == 1));
    }

    #[test]
    fn free_memory_is_counted_by_order() {
        let free = Free { blocks: vec![2, 0, 1], kept: 0 };
        assert_eq!((free.bytes_from(0), free.bytes_from(1), free.bytes_from(3)), (24576, 16384, 0));
        let zones = "  pagesets\n    cpu: 0\n              count:    200\n              high: 9\n    cpu: 1\n              count: 7\n";
        assert_eq!(kept(zones), 207);
    }

    #[test]
    fn no_share_is_too_little() {
        let error = Churn::start(0.0, &AtomicBool::new(false)).err().expect("it must say so");
        assert!(error.to_string().contains("too few") || error.to_string().contains("MemAvailable"), "{error}");
    }
}
