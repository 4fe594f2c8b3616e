//! The memory of a run while it goes on: peak resident memory of the whole process tree, and how much of it is huge.
//!
//! A thread looks now and then at every member of the tree: at `status`, which is cheap, and, when memory is near its
//! peak, at `smaps_rollup`, which walks the page tables. Both have a budget of processor time in proportion to the time
//! that the run has taken, and the thread sleeps until the budget allows the next look; so it costs a run the same share
//! whatever the run does.

use crate::tree::descendants;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much processor time the looks may take, as shares of the time of the run.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// For resident memory.
    pub resident: f64,
    /// For huge pages.
    pub huge: f64,
}

impl Budget {
    /// In a run that is timed: 0.3 % of one processor together.
    pub const TIMED: Budget = Budget { resident: 0.001, huge: 0.002 };
    /// In a run whose time does not count.
    pub const WARMUP: Budget = Budget { resident: 0.02, huge: 0.1 };
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
    /// How many bytes more than before the run the whole system had in folios of the size that the policy is about, at
    /// most.
    pub folios: Option<u64>,
}

/// What to look at, and what is known of runs of the same command before.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much time the looks may take.
    pub budget: Budget,
    /// The peak of an earlier run of this command: huge pages are looked at near it. Zero if there was none.
    pub expected: u64,
    /// The size of the folios that the policy is about, if it is about any.
    pub folio: Option<u64>,
}

/// A thread that looks at the tree of this process's descendants.
pub struct Sampler {
    end: Sender<()>,
    thread: JoinHandle<Memory>,
}

impl Sampler {
    /// Begins to look.
    pub fn start(plan: Plan) -> Sampler {
        let (end, ended) = channel();
        let folios = plan.folio.and_then(Folios::new);
        let thread = std::thread::spawn(move || {
            let mut look = Look { plan, folios, ..Look::new() };
            loop {
                let pause = look.look();
                match ended.recv_timeout(pause) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return look.memory(),
                }
            }
        });
        Sampler { end, thread }
    }

    /// Ends the looking. `most` is the peak of the largest process as the kernel tells it at the end, or zero.
    pub fn finish(self, most: u64) -> Memory {
        let _ = self.end.send(());
        let mut memory = self.thread.join().expect("looking does not panic");
        if memory.peak < most {
            let near = memory.huge.is_some() && memory.peak as f64 >= NEAR * most as f64;
            memory = Memory { peak: most, ..memory };
            if !near {
                (memory.huge, memory.coverage) = (None, None);
            }
        }
        memory
    }
}

/// Memory in folios of one size, in the whole system: the kernel counts them, so reading it costs next to nothing.
struct Folios {
    path: PathBuf,
    size: u64,
    before: u64,
}

impl Folios {
    fn new(size: u64) -> Option<Folios> {
        let name = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{}kB/stats/nr_anon", size >> 10);
        let mut folios = Folios { path: name.into(), size, before: 0 };
        folios.before = folios.bytes()?;
        Some(folios)
    }

    fn bytes(&self) -> Option<u64> {
        Some(fs::read_to_string(&self.path).ok()?.trim().parse::<u64>().ok()? * self.size)
    }
}

/// A look at huge pages.
#[derive(Clone, Copy)]
struct Huge {
    bytes: u64,
    of: u64,
    /// What `status` said was resident then.
    resident: u64,
}

struct Look {
    plan: Plan,
    started: Instant,
    folios: Option<Folios>,
    most_folios: Option<u64>,
    /// The most that all members had at once, and the most that one had.
    peak: u64,
    largest: u64,
    huge: Option<Huge>,
    spent_resident: Duration,
    spent_huge: Duration,
    /// Seconds that a look at huge pages takes for a byte that is resident.
    cost: f64,
}

impl Look {
    fn new() -> Look {
        Look {
            plan: Plan { budget: Budget::TIMED, expected: 0, folio: None },
            started: Instant::now(),
            folios: None,
            most_folios: None,
            peak: 0,
            largest: 0,
            huge: None,
            spent_resident: Duration::ZERO,
            spent_huge: Duration::ZERO,
            // 15 ms for a GB of base pages is what was seen; the first look replaces it.
            cost: 15e-3 / (1u64 << 30) as f64,
        }
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
        self.peak = self.peak.max(sum);
        if let Some(folios) = &self.folios
            && let Some(bytes) = folios.bytes()
        {
            self.most_folios = self.most_folios.max(Some(bytes.saturating_sub(folios.before)));
        }
        let between = processor_time();
        self.spent_resident += between.saturating_sub(before);
        let elapsed = self.started.elapsed().as_secs_f64();
        let allowed = elapsed * self.plan.budget.huge - self.spent_huge.as_secs_f64();
        let near = sum as f64 >= NEAR * self.peak.max(self.plan.expected) as f64;
        if sum > 0 && near && sum as f64 * self.cost <= allowed {
            let (mut bytes, mut of) = (0, 0);
            for rollup in members.iter().filter_map(|pid| rollup(*pid)) {
                bytes += rollup.huge;
                of += rollup.resident;
            }
            let took = processor_time().saturating_sub(between);
            self.spent_huge += took;
            self.cost = took.as_secs_f64() / sum as f64;
            // A member that ended in between would leave nothing to divide by.
            if of > 0 {
                self.huge = Some(Huge { bytes, of, resident: sum });
            }
        }
        let due = self.spent_resident.as_secs_f64() / self.plan.budget.resident;
        PAUSE.max(Duration::from_secs_f64((due - self.started.elapsed().as_secs_f64()).max(0.0)))
    }

    fn memory(&self) -> Memory {
        let peak = self.peak.max(self.largest);
        let huge = self.huge.filter(|huge| huge.resident as f64 >= NEAR * peak as f64);
        Memory {
            peak,
            huge: huge.map(|huge| huge.bytes),
            coverage: huge.map(|huge| huge.bytes as f64 / huge.of as f64),
            folios: self.most_folios,
        }
    }
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
        let looked = Memory { peak: 100 << 20, huge: Some(50 << 20), coverage: Some(0.5), folios: None };
        let finish = |most| {
            let (end, ended) = channel();
            let thread = std::thread::spawn(move || ended.recv().map(|()| looked).unwrap());
            Sampler { end, thread }.finish(most)
        };
        assert_eq!(finish(0), looked);
        assert_eq!(finish(105 << 20), Memory { peak: 105 << 20, ..looked });
        assert_eq!(finish(200 << 20), Memory { peak: 200 << 20, huge: None, coverage: None, folios: None });
    }
}
