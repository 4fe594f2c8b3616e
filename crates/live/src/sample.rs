//! The memory of a run while it continues: peak resident memory of the whole process tree, and how
//! much of it is huge.
//!
//! A thread periodically samples every member of the tree: `status`, which is cheap, and, when
//! memory is near its peak, `smaps_rollup`, which walks the page tables. In runs that are not
//! measured it also samples away from the peak, reads what the program requested, and, for a policy
//! about folios, every page's folio. Each kind has a budget of processor time in proportion to the
//! run's time so far, and the thread sleeps until the budget allows the next sample; one that takes
//! longer than expected is abandoned when the budget ends. So it costs a run the same share
//! whatever the run does. In a run that is not measured each process can also be sampled at the
//! moment of its exit ([`Sampler::at_ends`]), so that even the shortest is seen.

use crate::inspect::{MappingKind, Process, Reach};
use serde::Serialize;
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::cpu::thread_cpu;
use superpage_linux::proc::{self, bytes_of};
use superpage_linux::tree::descendants;
use superpage_vm::Sizes;

/// How much processor time samples may take, as shares of the time of the run.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// For resident memory.
    pub resident: f64,
    /// For huge pages.
    pub huge: f64,
    /// For folios.
    pub folios: f64,
    /// For huge pages besides, for looks when memory has grown by a tenth since the last: so a
    /// short run has one near its peak.
    pub growth: Duration,
}

impl Budget {
    /// In a run that is timed: 0.3 % of one processor together.
    pub(crate) const TIMED: Budget = Budget { resident: 0.001, huge: 0.002, folios: 0.0, growth: Duration::ZERO };
    /// In a run that is not timed.
    pub(crate) const WARMUP: Budget = Budget { resident: 0.05, huge: 0.2, folios: 0.2, growth: Duration::ZERO };
}

/// The shortest time between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// What share of the peak counts as near it.
const NEAR: f64 = 0.9;

/// The sampled memory of a run.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Memory {
    /// The most memory that the tree had at once, including huge pages of the static pool. Shared
    /// memory counts once: as much as the process has that has mapped most of it.
    pub peak: u64,
    /// How many of these bytes were mapped by huge pages, at the last sample near the peak.
    pub huge: Option<u64>,
    /// How many bytes were resident at that sample.
    pub looked: Option<u64>,
    /// The share of them that was mapped by huge pages, from 0 to 1.
    pub coverage: Option<f64>,
    /// How many bytes were in folios of the policy's sizes, at the last sample near the peak.
    pub folios: Option<u64>,
    /// The share of resident memory at that sample that was in such folios, from 0 to 1.
    pub folio_coverage: Option<f64>,
    /// The most bytes that any sample found mapped by huge pages at once.
    pub most_huge: Option<u64>,
}

/// What to sample, and what is known of earlier runs of the same command.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much time samples may take.
    pub budget: Budget,
    /// The peak of an earlier run of this command: huge pages are sampled near it. Zero if there
    /// was none.
    pub expected: u64,
    /// The folio sizes of the policy, if it has any.
    pub folio: Option<Sizes>,
    /// Sample huge pages even if memory is not near its peak, and what the program requested.
    pub thorough: bool,
    /// Set to stop sampling: a sample in progress is abandoned.
    pub stop: Arc<AtomicBool>,
}

/// What is asked of the thread that looks.
enum Ask {
    /// Sample at once, and then drop this.
    Look(Sender<()>),
    End,
}

/// A thread that samples the tree of this process's descendants. Dropping it ends the thread with
/// the next look.
pub struct Sampler {
    /// Dropped to begin.
    waits: Option<Sender<()>>,
    ask: Sender<Ask>,
    /// Set when the run has ended: what goes on then is given up.
    over: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
    /// What this process itself has resident: a command that is about to be executed is a copy of
    /// it.
    own: u64,
}

impl Sampler {
    /// Starts the thread, which waits for [`begin`](Sampler::begin).
    ///
    /// # Errors
    /// [`Error::System`]: no thread can be started.
    pub fn start(plan: Plan) -> Result<Sampler, Error> {
        let own = status(std::process::id() as i32).map_or(0, |status| status.resident.bytes());
        let (ask, asked) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let (waits, begun) = channel::<()>();
        let thread = std::thread::Builder::new().name("sampler".into()).spawn(move || {
            // It ends with an error: when the other end is dropped.
            let _ = begun.recv();
            let mut look = Look::new(plan, flag);
            let mut pause = look.look(false);
            loop {
                match asked.recv_timeout(pause) {
                    Err(RecvTimeoutError::Timeout) => pause = look.look(false),
                    Ok(Ask::Look(done)) => {
                        look.look(true);
                        drop(done);
                    }
                    _ => return look.seen(),
                }
            }
        });
        Ok(Sampler { waits: Some(waits), ask, over, thread: thread.map_err(Error::thread)?, own })
    }

    /// Samples from now on.
    pub fn begin(&mut self) {
        self.waits = None;
    }

    /// To be called when a process of the tree is about to exit and waits: samples the tree at
    /// once, whatever it costs, unless the plan's flag is set.
    pub fn at_ends(&self) -> impl FnMut(i32) + use<> {
        let ask = self.ask.clone();
        move |_| {
            let (done, looked) = channel();
            if ask.send(Ask::Look(done)).is_ok() {
                // It ends with an error: when the other end is dropped.
                let _ = looked.recv();
            }
        }
    }

    /// Stops sampling. `most` is the peak of the largest process as the kernel reports it at the
    /// end.
    pub fn finish(self, most: u64) -> Memory {
        self.finish_thorough(most).0
    }

    /// Like [`finish`](Sampler::finish), with what the program requested, if that was sampled.
    pub(crate) fn finish_thorough(mut self, most: u64) -> (Memory, Option<Reach>) {
        self.begin();
        self.over.store(true, Ordering::Relaxed);
        let _ = self.ask.send(Ask::End);
        let seen = self.thread.join().expect("looking does not panic");
        (seen.with_peak(most, self.own), seen.reach)
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
    /// A look, and what was resident before and after it: of a program that ends meanwhile it sees
    /// any part. `None` where all had ended, which leaves nothing to divide by.
    fn new(bytes: u64, of: u64, before: u64, after: u64) -> Option<Part> {
        (of > 0).then_some(Part { bytes, of, resident: before.min(after) })
    }

    /// The part, if the look was near the peak.
    fn near(part: Option<Part>, peak: u64) -> Option<Part> {
        part.filter(|part| part.resident as f64 >= NEAR * peak as f64)
    }

    fn share(self) -> f64 {
        self.bytes as f64 / self.of as f64
    }
}

/// A kind of look that walks page tables: what it has cost so far, and what the next one is
/// expected to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub(crate) spent: Duration,
    /// Seconds that a look is expected to take for each byte that is resident, and besides.
    per_byte: f64,
    besides: f64,
}

impl Walk {
    pub(crate) fn new(seconds_per_gb: f64, besides: f64) -> Walk {
        Walk { spent: Duration::ZERO, per_byte: seconds_per_gb / (1u64 << 30) as f64, besides }
    }

    /// Looks, if that is expected to stay within the budget; without one, it looks anyhow. `look`
    /// polls the callback to learn whether to continue: until `over` is set, or the budget is used
    /// up.
    pub(crate) fn look<T>(
        &mut self,
        resident: u64,
        allowed: Option<Duration>,
        over: &dyn Fn() -> bool,
        look: impl FnOnce(&dyn Fn() -> bool) -> T,
    ) -> Option<T> {
        let bytes = resident as f64;
        let expected = Duration::from_secs_f64(bytes * self.per_byte + self.besides);
        if resident == 0 || allowed.is_some_and(|allowed| self.spent + expected > allowed) {
            return None;
        }
        let before = thread_cpu();
        let most = allowed.map(|allowed| allowed.saturating_sub(self.spent));
        let took = || thread_cpu().saturating_sub(before);
        let go_on = || !over() && most.is_none_or(|most| took() <= most);
        let seen = go_on().then(|| look(&go_on));
        let (whole, took) = (go_on(), took());
        self.spent += took;
        if !whole {
            // How long it would have taken nobody knows; the next is to have room for twice as
            // much.
            self.besides = self.besides.max(2.0 * took.as_secs_f64());
            return None;
        }
        // What is beyond the guess for the bytes is taken for a cost of every look; a guess that
        // was too high is lowered.
        self.per_byte = self.per_byte.min(took.as_secs_f64() / bytes);
        // Rounding may take it below zero.
        self.besides = (took.as_secs_f64() - bytes * self.per_byte).max(0.0);
        seen
    }
}

/// What the looks saw so far.
#[derive(Clone, Default, Debug)]
struct Seen {
    /// The most that all members had at once, or that one had.
    peak: u64,
    huge: Option<Part>,
    folios: Option<Part>,
    most_huge: Option<u64>,
    reach: Option<Reach>,
}

impl Seen {
    /// `most` is another lower bound of the peak. If it is no more than some 10 % above `own` it
    /// tells nothing of the command: it may be what the command had before its exec, when it was a
    /// copy of this process.
    fn with_peak(&self, most: u64, own: u64) -> Memory {
        let its_own = if most > own + own / 10 { most } else { 0 };
        let (peak, known) = (self.peak.max(most), self.peak.max(its_own));
        let (huge, folios) = (Part::near(self.huge, known), Part::near(self.folios, known));
        Memory {
            peak,
            huge: huge.map(|part| part.bytes),
            looked: huge.map(|part| part.of),
            coverage: huge.map(Part::share),
            folios: folios.map(|part| part.bytes),
            folio_coverage: folios.map(Part::share),
            most_huge: self.most_huge,
        }
    }
}

struct Look {
    plan: Plan,
    over: Arc<AtomicBool>,
    started: Instant,
    sum: u64,
    largest: u64,
    spent: Duration,
    huge: Walk,
    /// What was spent on looks at memory that had grown, beyond the budget.
    growth: Duration,
    folios: Walk,
    reach: Walk,
    seen: Seen,
}

impl Look {
    fn new(plan: Plan, over: Arc<AtomicBool>) -> Look {
        // A first guess of what was seen with base pages: 15 ms for a GB; 100 ms where each page is
        // looked at, and 50 ms for tables of all physical memory.
        let (huge, folios, reach) = (Walk::new(15e-3, 0.0), Walk::new(100e-3, 50e-3), Walk::new(20e-3, 0.0));
        let (started, none, seen) = (Instant::now(), Duration::ZERO, Seen::default());
        Look { plan, over, started, sum: 0, largest: 0, spent: none, huge, growth: none, folios, reach, seen }
    }

    /// One look; at an end it goes by no budget, since there is no later one. Returns how long to
    /// wait until the next.
    fn look(&mut self, at_end: bool) -> Duration {
        let before = thread_cpu();
        let mut members = descendants(std::process::id() as i32);
        members.retain(|pid| !is_copy(*pid));
        let mut all = Amount::default();
        for status in members.iter().filter_map(|pid| status(*pid)) {
            all = all.and(status.resident);
            self.largest = self.largest.max(status.most);
        }
        let sum = all.bytes();
        let resident = || members.iter().filter_map(|pid| Some(status(*pid)?.resident));
        let still = || resident().fold(Amount::default(), Amount::and).bytes();
        self.sum = self.sum.max(sum);
        self.spent += thread_cpu().saturating_sub(before);
        let thorough = self.plan.thorough || at_end;
        let expected = if thorough { 0 } else { self.plan.expected };
        let near = sum as f64 >= NEAR * self.sum.max(expected) as f64;
        let (budget, elapsed) = (self.plan.budget, self.started.elapsed());
        let allowed = |share: f64| (!at_end).then(|| elapsed.mul_f64(share));
        let (stop, over) = (Arc::clone(&self.plan.stop), Arc::clone(&self.over));
        let over = || stop.load(Ordering::Relaxed) || over.load(Ordering::Relaxed);
        if near && let Some(sizes) = self.plan.folio {
            // The first look near the peak of other policies is worth what it costs where time does
            // not count, and comes before others: a short program may have given all back when the
            // budget allows one.
            let due = thorough && self.plan.expected > 0 && sum as f64 >= NEAR * self.plan.expected as f64;
            let allowed = allowed(budget.folios).filter(|_| !due || self.seen.folios.is_some());
            let seen = self.folios.look(sum, allowed, &over, |go_on| in_folios(&members, sizes, go_on));
            self.seen.folios = seen.and_then(|(bytes, of)| Part::new(bytes, of, sum, still())).or(self.seen.folios);
        }
        if near || thorough {
            let grown = self.seen.huge.is_none_or(|last| sum > last.resident + last.resident / 10);
            let growth = if grown { budget.growth.saturating_sub(self.growth) } else { Duration::ZERO };
            // What was spent on growth is not held against later looks.
            let ordinary = allowed(budget.huge).map(|allowed| allowed + self.growth);
            let seen = self.huge.look(sum, ordinary.map(|allowed| allowed + growth), &over, |go_on| {
                // The kernel sums up a process in one call.
                let rollups = members.iter().take_while(|_| go_on()).filter_map(|pid| rollup(*pid));
                let add = |all: Rollup, one: Rollup| Rollup {
                    resident: all.resident.and(one.resident),
                    huge: all.huge.and(one.huge),
                };
                let all = rollups.fold(Rollup::default(), add);
                (all.huge.bytes(), all.resident.bytes())
            });
            self.growth += ordinary.map_or(Duration::ZERO, |ordinary| self.huge.spent.saturating_sub(ordinary));
            if let Some(part) = seen.and_then(|(bytes, of)| Part::new(bytes, of, sum, still())) {
                self.seen.most_huge = self.seen.most_huge.max(Some(part.bytes));
                // The last that is near, not the largest: memory that stays may still become huge.
                let whole = part.resident as f64 >= NEAR * self.sum as f64;
                self.seen.huge = if near && whole { Some(part) } else { self.seen.huge };
            }
        }
        if near && thorough {
            let seen = self.reach.look(sum, allowed(budget.huge), &over, |go_on| Reach::read(&members, go_on));
            self.seen.reach = seen.or(self.seen.reach.take());
        }
        let due = self.spent.as_secs_f64() / self.plan.budget.resident;
        PAUSE.max(Duration::from_secs_f64((due - self.started.elapsed().as_secs_f64()).max(0.0)))
    }

    fn seen(&self) -> Seen {
        Seen { peak: self.sum.max(self.largest), ..self.seen.clone() }
    }
}

/// The bytes of memory that no file backs that are in folios of these sizes, and all resident bytes
/// of the members that could be looked into.
fn in_folios(members: &[i32], sizes: Sizes, go_on: &dyn Fn() -> bool) -> (u64, u64) {
    let (mut bytes, mut of) = (0, 0);
    let members = members.iter().take_while(|_| go_on());
    for process in members.filter_map(|pid| Process::read_while(*pid as u32, go_on).ok()) {
        for (mapping, folios) in process.mappings.iter().filter_map(|map| Some((map, map.folio_bytes.as_ref()?))) {
            if matches!(mapping.kind, MappingKind::Anonymous | MappingKind::SharedMemory) {
                bytes += sizes.iter().filter_map(|size| folios.get(&size)).sum::<u64>();
            }
            of += mapping.resident_bytes;
        }
    }
    (bytes, of)
}

/// Whether a process is this one's own copy, made to execute the command and not yet doing so: its
/// memory is this process's.
fn is_copy(pid: i32) -> bool {
    /// `PF_FORKNOEXEC`, forked and nothing executed since.
    const FORKED: u32 = 0x40;
    proc::stat(pid).is_some_and(|stat| stat.ppid == std::process::id() as i32 && stat.flags & FORKED != 0)
}

/// Memory of processes.
#[derive(Clone, Copy, Default)]
struct Amount {
    /// Of each alone, in bytes.
    own: u64,
    /// Shared memory.
    shared: u64,
}

impl Amount {
    /// That of both: shared memory is taken for the same, of which one process may have mapped
    /// more.
    fn and(self, other: Amount) -> Amount {
        Amount { own: self.own + other.own, shared: self.shared.max(other.shared) }
    }

    fn bytes(self) -> u64 {
        self.own + self.shared
    }
}

struct Status {
    resident: Amount,
    /// The most that was ever resident since the exec.
    most: u64,
}

/// From `/proc/PID/status`: `VmRSS` and `VmHWM`, each with the huge pages of the static pool, which
/// the kernel counts apart.
fn status(pid: i32) -> Option<Status> {
    let text = proc::read(format!("/proc/{pid}/status")).ok()?;
    let pool = bytes_of(&text, "HugetlbPages").unwrap_or(0);
    let (all, shared) = (bytes_of(&text, "VmRSS")?, bytes_of(&text, "RssShmem").unwrap_or(0));
    let resident = Amount { own: all.saturating_sub(shared) + pool, shared };
    Some(Status { resident, most: bytes_of(&text, "VmHWM")? + pool })
}

#[derive(Clone, Copy, Default)]
struct Rollup {
    resident: Amount,
    huge: Amount,
}

/// The values of `/proc/PID/smaps_rollup`, in bytes, by name. The kernel walks the page tables.
fn totals(pid: i32) -> Option<HashMap<String, u64>> {
    let mut maps = proc::mappings(&fs::read(format!("/proc/{pid}/smaps_rollup")).ok()?).ok()?;
    Some(maps.0.pop()?.extension.map)
}

/// From `/proc/PID/smaps_rollup`: what is resident, huge pages of the static pool among it, and
/// what of it is huge. How much of that is shared memory only `/proc/PID/status` says.
fn rollup(pid: i32) -> Option<Rollup> {
    let shared = status(pid)?.resident.shared;
    let of = totals(pid)?;
    let sum = |names: &[&str]| names.iter().filter_map(|name| of.get(*name)).sum::<u64>();
    let pool = sum(&["Shared_Hugetlb", "Private_Hugetlb"]);
    let resident = Amount { own: of.get("Rss")?.saturating_sub(shared) + pool, shared };
    let huge =
        Amount { own: pool + sum(&["AnonHugePages", "FilePmdMapped"]), shared: sum(&["ShmemPmdMapped"]).min(shared) };
    Some(Rollup { resident, huge })
}

/// Those of these processes that live, and their memory, in bytes, where what several of them share
/// counts once; with huge pages of the static pool. Walks their page tables.
pub(crate) fn proportional(pids: &[i32]) -> (Vec<i32>, u64) {
    let of = |pid: &i32| {
        let totals = totals(*pid)?;
        let part = |name: &str| totals.get(name).copied().unwrap_or(0);
        Some((*pid, part("Pss") + part("Private_Hugetlb"), part("Shared_Hugetlb")))
    };
    let seen: Vec<(i32, u64, u64)> = pids.iter().filter_map(of).collect();
    // The kernel shows no shares of the static pool: as much as the process with most of it has.
    let pool = seen.iter().map(|(_, _, pool)| *pool).max().unwrap_or(0);
    (seen.iter().map(|(pid, ..)| *pid).collect(), pool + seen.iter().map(|(_, own, _)| own).sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_that_was_not_seen_has_no_coverage() {
        let mb = |count: u64| count << 20;
        let part = Part { bytes: mb(50), of: mb(100), resident: mb(100) };
        let seen = Seen { peak: mb(100), huge: Some(part), ..Seen::default() };
        let (huge, looked, coverage) = (Some(mb(50)), Some(mb(100)), Some(0.5));
        let memory = Memory { peak: mb(100), huge, looked, coverage, ..Memory::default() };
        // The three are of one sample, also where the peak is another's.
        assert_eq!(seen.with_peak(0, 0), memory);
        assert_eq!(seen.with_peak(mb(105), mb(10)), Memory { peak: mb(105), ..memory });
        assert_eq!(seen.with_peak(mb(200), mb(10)), Memory { peak: mb(200), ..Memory::default() });
    }

    #[test]
    fn a_look_during_which_a_program_ends_is_not_near_its_peak() {
        let mb = |count: u64| count << 20;
        let share = |after| {
            let huge = Part::new(mb(27), mb(100), mb(100), after);
            Seen { peak: mb(100), huge, ..Seen::default() }.with_peak(0, 0).coverage
        };
        assert_eq!([share(mb(100)), share(mb(20))], [Some(0.27), None]);
        assert_eq!(Part::new(0, 0, mb(100), 0), None);
    }

    #[test]
    fn shared_memory_counts_once() {
        let [server, worker] = [(10, 256), (3, 2)].map(|(own, shared)| Amount { own, shared });
        assert_eq!([worker; 4].into_iter().fold(server, Amount::and).bytes(), 10 + 4 * 3 + 256);
    }

    #[test]
    fn what_a_small_command_had_before_its_exec_is_not_its_peak() {
        let part = Part { bytes: 0, of: 1 << 20, resident: 1 << 20 };
        let seen = Seen { peak: 1 << 20, huge: Some(part), ..Seen::default() };
        assert_eq!(seen.with_peak(8 << 20, 8 << 20).coverage, Some(0.0));
        assert_eq!(seen.with_peak(9 << 20, 8 << 20).coverage, None);
    }

    #[test]
    fn a_walk_that_takes_longer_than_expected_is_given_up() {
        let mut walk = Walk::new(1e-9, 0.0);
        let endless = |go_on: &dyn Fn() -> bool| while go_on() {};
        let (budget, before) = (Duration::from_millis(20), thread_cpu());
        assert_eq!(walk.look(1 << 20, Some(budget), &|| false, endless), None);
        let took = thread_cpu() - before;
        assert!(took >= budget && took < 2 * budget, "{took:?}");
        assert!(walk.look(1 << 20, Some(2 * budget), &|| false, |_| ()).is_none(), "it would be given up again");
        assert!(walk.look(1 << 20, Some(4 * budget), &|| false, |_| ()).is_some());
        assert_eq!(walk.look(1 << 20, None, &|| true, |_| ()), None, "nobody wants it any more");
    }

    #[test]
    fn a_walk_keeps_to_its_budget() {
        let mut walk = Walk::new(1.0, 0.0);
        let (allowed, never) = (Some(Duration::from_millis(900)), || false);
        assert_eq!(walk.look(1 << 30, allowed, &never, |_| panic!("it would take a second")), None::<()>);
        assert_eq!(walk.look(1 << 20, allowed, &never, |_| 7), Some(7));
        assert_eq!(walk.look(0, None, &never, |_| 7), None, "there is nothing to look at");
        assert!(walk.per_byte * ((1u64 << 30) as f64) < 1.0, "the cost is now the measured one");
        // Sizes that do not divide evenly: what a look costs besides is never less than nothing.
        for bytes in (3..100_000).step_by(7) {
            let mut walk = Walk::new(1.0, 0.0);
            assert_eq!(walk.look(bytes, None, &never, |_| std::hint::black_box(bytes)), Some(bytes));
            assert_eq!(walk.look(0, None, &never, |_| 0), None, "what is looked at has ended");
        }
    }
}
