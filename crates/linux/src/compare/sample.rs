//! The memory of a run while it goes on: peak resident memory of the whole process tree, and how much of it is huge.
//!
//! A thread looks now and then at every member of the tree: at `status`, which is cheap, and, when memory is near its
//! peak, at `smaps_rollup`, which walks the page tables; in runs that do not count, for a policy that is about folios of
//! one size, also at every page's folio. Each has a budget of processor time in proportion to the time that the run has
//! taken, and the thread sleeps until the budget allows the next look; so it costs a run the same share whatever the run
//! does.

use crate::inspect::Process;
use crate::tree::descendants;
use serde::Serialize;
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use superpage_pages::PageSize;

/// How much processor time the looks may take, as shares of the time of the run.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// For resident memory.
    pub resident: f64,
    /// For huge pages.
    pub huge: f64,
    /// For folios.
    pub folios: f64,
}

impl Budget {
    /// In a run that is timed: 0.3 % of one processor together.
    pub const TIMED: Budget = Budget { resident: 0.001, huge: 0.002, folios: 0.0 };
    /// In a run whose time does not count.
    pub const WARMUP: Budget = Budget { resident: 0.02, huge: 0.1, folios: 0.2 };
}

/// The shortest time between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// What share of the peak counts as near it.
const NEAR: f64 = 0.9;

/// What was seen of the memory of a run.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Memory {
    /// The most memory that the tree had at once, huge pages of the static pool among it.
    pub peak: u64,
    /// How many of these bytes were mapped by huge pages, at the last look near the peak.
    pub huge: Option<u64>,
    /// The share of what was resident at that look that was mapped by huge pages, from 0 to 1.
    pub coverage: Option<f64>,
    /// How many bytes were in folios of the size that the policy is about, at the last look near the peak.
    pub folios: Option<u64>,
    /// The share of what was resident at that look that was in such folios, from 0 to 1.
    pub folio_coverage: Option<f64>,
}

/// What to look at, and what is known of runs of the same command before.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much time the looks may take.
    pub budget: Budget,
    /// The peak of an earlier run of this command: huge pages are looked at near it. Zero if there was none.
    pub expected: u64,
    /// The size of the folios that the policy is about, if it is about any.
    pub folio: Option<PageSize>,
}

/// A thread that looks at the tree of this process's descendants.
pub struct Sampler {
    end: Sender<()>,
    thread: JoinHandle<Seen>,
}

impl Sampler {
    /// Begins to look.
    pub fn start(plan: Plan) -> Sampler {
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || {
            let mut look = Look::new(plan);
            loop {
                let pause = look.look();
                match ended.recv_timeout(pause) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return look.seen(),
                }
            }
        });
        Sampler { end, thread }
    }

    /// Ends the looking. `most` is the peak of the largest process as the kernel tells it at the end.
    pub fn finish(self, most: u64) -> Memory {
        let _ = self.end.send(());
        let seen = self.thread.join().expect("looking does not panic");
        seen.with_peak(most)
    }
}

/// What one look at a part of memory saw.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Part {
    bytes: u64,
    of: u64,
    /// What `status` said was resident then.
    resident: u64,
}

impl Part {
    /// The part's bytes and share, if the look was near the peak.
    fn near(part: Option<Part>, peak: u64) -> (Option<u64>, Option<f64>) {
        let near = part.filter(|part| part.resident as f64 >= NEAR * peak as f64);
        (near.map(|part| part.bytes), near.map(|part| part.bytes as f64 / part.of as f64))
    }
}

/// A kind of look that walks page tables: what it has cost so far, and what it saw last.
#[derive(Clone, Copy, Debug)]
struct Walk {
    spent: Duration,
    /// Seconds that a look is expected to take for each byte that is resident, and besides.
    per_byte: f64,
    besides: f64,
    seen: Option<Part>,
}

impl Walk {
    fn new(seconds_per_gb: f64, besides: f64) -> Walk {
        Walk { spent: Duration::ZERO, per_byte: seconds_per_gb / (1u64 << 30) as f64, besides, seen: None }
    }

    /// Looks, if that stays within the budget. `look` tells the bytes of the part and of all.
    fn look(&mut self, resident: u64, allowed: Duration, look: impl FnOnce() -> (u64, u64)) {
        let bytes = resident as f64;
        let expected = Duration::from_secs_f64(bytes * self.per_byte + self.besides);
        if resident == 0 || self.spent + expected > allowed {
            return;
        }
        let before = processor_time();
        let (part, of) = look();
        let took = processor_time().saturating_sub(before);
        self.spent += took;
        // What is beyond the guess for the bytes is taken for a cost of every look; a guess that was too high is lowered.
        self.per_byte = self.per_byte.min(took.as_secs_f64() / bytes);
        self.besides = took.as_secs_f64() - bytes * self.per_byte;
        // Members that ended in between leave nothing to divide by.
        if of > 0 {
            self.seen = Some(Part { bytes: part, of, resident });
        }
    }
}

/// What the looks saw so far.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    /// The most that all members had at once, or that one had.
    peak: u64,
    huge: Option<Part>,
    folios: Option<Part>,
}

impl Seen {
    /// `most` is another lower bound of the peak.
    fn with_peak(self, most: u64) -> Memory {
        let peak = self.peak.max(most);
        let (huge, coverage) = Part::near(self.huge, peak);
        let (folios, folio_coverage) = Part::near(self.folios, peak);
        Memory { peak, huge, coverage, folios, folio_coverage }
    }
}

struct Look {
    plan: Plan,
    started: Instant,
    sum: u64,
    largest: u64,
    spent: Duration,
    huge: Walk,
    folios: Walk,
}

impl Look {
    fn new(plan: Plan) -> Look {
        // A first guess of what was seen with base pages: 15 ms for a GB; 100 ms where each page is looked at, and 50 ms for
        // tables of all physical memory.
        let (huge, folios) = (Walk::new(15e-3, 0.0), Walk::new(100e-3, 50e-3));
        Look { plan, started: Instant::now(), sum: 0, largest: 0, spent: Duration::ZERO, huge, folios }
    }

    /// One look. Returns how long to wait until the next.
    fn look(&mut self) -> Duration {
        let before = processor_time();
        let members = descendants(std::process::id() as i32);
        let mut sum = 0;
        for status in members.iter().filter_map(|pid| status(*pid)) {
            sum += status.resident;
            self.largest = self.largest.max(status.most);
        }
        self.sum = self.sum.max(sum);
        self.spent += processor_time().saturating_sub(before);
        if sum as f64 >= NEAR * self.sum.max(self.plan.expected) as f64 {
            let budget = self.plan.budget;
            let elapsed = self.started.elapsed();
            self.huge.look(sum, elapsed.mul_f64(budget.huge), || {
                let rollups = members.iter().filter_map(|pid| rollup(*pid));
                rollups.fold((0, 0), |(huge, all), rollup| (huge + rollup.huge, all + rollup.resident))
            });
            if let Some(size) = self.plan.folio {
                self.folios.look(sum, elapsed.mul_f64(budget.folios), || in_folios(&members, size));
            }
        }
        let due = self.spent.as_secs_f64() / self.plan.budget.resident;
        PAUSE.max(Duration::from_secs_f64((due - self.started.elapsed().as_secs_f64()).max(0.0)))
    }

    fn seen(&self) -> Seen {
        Seen { peak: self.sum.max(self.largest), huge: self.huge.seen, folios: self.folios.seen }
    }
}

/// The bytes that are in folios of a size, and all resident bytes of the members that could be looked into.
fn in_folios(members: &[i32], size: PageSize) -> (u64, u64) {
    let (mut bytes, mut of) = (0, 0);
    for process in members.iter().filter_map(|pid| Process::read(*pid as u32).ok()) {
        for (mapping, folios) in process.mappings.iter().filter_map(|map| Some((map, map.folio_bytes.as_ref()?))) {
            bytes += folios.get(&size).copied().unwrap_or(0);
            of += mapping.resident_bytes;
        }
    }
    (bytes, of)
}

/// The processor time of this thread so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Status {
    resident: u64,
    /// The most that was ever resident since the exec.
    most: u64,
}

/// From `/proc/PID/status`: `VmRSS` and `VmHWM`, each with the huge pages of the static pool, which the kernel counts
/// apart.
fn status(pid: i32) -> Option<Status> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let pool = field(&text, "HugetlbPages:").unwrap_or(0);
    Some(Status { resident: field(&text, "VmRSS:")? + pool, most: field(&text, "VmHWM:")? + pool })
}

struct Rollup {
    resident: u64,
    huge: u64,
}

/// From `/proc/PID/smaps_rollup`: what is resident, huge pages of the static pool among it, and what of it is huge.
fn rollup(pid: i32) -> Option<Rollup> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let sum = |names: &[&str]| names.iter().filter_map(|name| field(&text, name)).sum::<u64>();
    let pool = sum(&["Shared_Hugetlb:", "Private_Hugetlb:"]);
    let huge = pool + sum(&["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"]);
    Some(Rollup { resident: field(&text, "Rss:")? + pool, huge })
}

/// The bytes of a line such as `VmRSS:  1234 kB`.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_bytes() {
        let text = "Name:\tsh\nVmHWM:\t    2048 kB\nVmRSS:\t    1712 kB\nHugetlbPages:\t 4096 kB\n";
        assert_eq!(field(text, "VmRSS:"), Some(1712 << 10));
        assert_eq!(field(text, "VmSwap:"), None);
    }

    #[test]
    fn a_peak_that_was_not_seen_has_no_coverage() {
        let mb = |count: u64| count << 20;
        let part = Part { bytes: mb(50), of: mb(100), resident: mb(100) };
        let seen = Seen { peak: mb(100), huge: Some(part), folios: None };
        let memory = Memory { peak: mb(100), huge: Some(mb(50)), coverage: Some(0.5), ..Memory::default() };
        assert_eq!(seen.with_peak(0), memory);
        assert_eq!(seen.with_peak(mb(105)), Memory { peak: mb(105), ..memory });
        assert_eq!(seen.with_peak(mb(200)), Memory { peak: mb(200), ..Memory::default() });
    }

    #[test]
    fn a_walk_keeps_to_its_budget() {
        let mut walk = Walk::new(1.0, 0.0);
        walk.look(1 << 30, Duration::from_millis(900), || panic!("it would take a second"));
        walk.look(1 << 20, Duration::from_millis(900), || (1, 2));
        assert_eq!(walk.seen, Some(Part { bytes: 1, of: 2, resident: 1 << 20 }));
        assert!(walk.per_byte * ((1u64 << 30) as f64) < 1.0, "the cost is now the measured one");
    }
}
