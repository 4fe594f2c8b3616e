//! A churn: memory is allocated in base pages, one page in two at random is freed, allocated again
//! and freed, so that the kernel's free memory is in single pages.
//!
//! It is bounded, so that other programs are not affected: a share of the available memory, never
//! below a floor, for some seconds.

use super::memory::{BASE, HUGE, Memory};
use crate::inspect::System;
use procfs::{Current, Meminfo};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_linux::{Error, memory};

/// The least memory that is left to all others, in bytes, and as a share of all memory.
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

/// No more is taken after that long: memory that a host has to find first takes ten times as long
/// as other memory.
fn limit(share: f64) -> Duration {
    Duration::from_secs_f64((20.0 * share).max(2.0))
}

/// Memory of which one base page in two is held, at random. All of it is given back when this is
/// dropped.
pub(crate) struct Churn {
    _memory: Memory,
    /// What was done, as a sentence.
    pub(crate) done: String,
    /// Bytes that were taken.
    pub(crate) taken: u64,
}

impl Churn {
    /// Takes this share of what is available. Ends early, with what it has by then, when what is
    /// available falls to the floor, when the time is over, or when `stop` is set.
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

/// Populates the unpopulated part of the first `bytes`. Returns how far that went, and why no
/// further.
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

/// Frees each of the base pages with a probability of one half.
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
    memory::available().ok_or_else(|| Error::Unable("/proc/meminfo does not tell MemAvailable".into()))
}

/// Bytes that may be taken now: above the floor of the system, and within the limits of all control
/// groups.
fn spare() -> Result<u64, Error> {
    let all = Meminfo::current().map(|memory| memory.mem_total).unwrap_or(0);
    let above = available()?.saturating_sub(FLOOR.max(all / FLOOR_SHARE));
    // The system's own is among them, of which more is left above.
    let groups = memory::left().into_iter().filter(|left| !left.counts_untouched);
    let left = groups.map(|left| left.bytes.saturating_sub(GROUP_FLOOR)).min();
    Ok(left.map_or(above, |left| above.min(left)))
}

/// What the kernel has free: the sum of all zones.
pub(crate) struct Free {
    /// Blocks of each order, by `/proc/buddyinfo`.
    pub(crate) blocks: Vec<u64>,
    /// Bytes on the lists that each processor keeps for itself, where freed pages go first, by
    /// `/proc/zoneinfo`.
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
    fn half_of_the_pages_go_and_nothing_beyond_the_memory() {
        let memory = Memory::base(8 << 20).unwrap();
        give_back_half(&memory, 4 << 20, &mut fastrand::Rng::with_seed(1)).unwrap();
        let mut here = vec![0_u8; 2048];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let done = unsafe { libc::mincore(memory.start() as *mut libc::c_void, 8 << 20, here.as_mut_ptr()) };
        assert_eq!(done, 0);
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
