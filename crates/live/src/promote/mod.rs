//! Promotes the memory of running programs: the work of `superpage daemon` and `run --policy
//! promote`.
//!
//! The policy's background decides what is done and when, as in a simulation
//! (`crates/vm/src/policy/promote.rs`). This module implements [`System`] on live processes for it:
//! it reads how far regions of a huge page's size are populated ([`superpage_linux::scan`]), where
//! memory changed; it promotes by `process_madvise(MADV_COLLAPSE)`, a few regions per call, each
//! checked page by page right before, if that leaves headroom to others, and more slowly in a
//! process that it slows.
//!
//! Nothing is named by a number that may be reused. Where a process is selected by its number, what
//! counts is when it started ([`superpage_linux::proc::Named`]). The process is pinned by a `pidfd`
//! and its memory by the open page map, which is empty once the process has ended or executed
//! another program; then nothing is promoted. The check does not cover the time from it to the
//! call: memory freed in those microseconds may be populated again by the promotion, and an `exec`
//! in them may promote a region of the new program that happens to lie at the same address. Neither
//! changes what any memory contains.

mod claims;
mod clock;
mod counters;
mod given_back;
mod options;
mod pace;
mod process;
mod processes;
mod promoting;
mod survey;
mod target;
mod waits;

pub use self::counters::Counters;
pub use self::options::{Options, SLOWDOWN};
pub use self::promoting::{Promoting, Work};
pub use self::survey::Finding;
pub use self::target::{Listing, Selected, Target};
pub(crate) use self::waits::reason;

use self::clock::Clock;
use self::given_back::GivenBack;
use self::process::Process;
use self::processes::Processes;
use self::waits::Waits;
use rustix::fd::AsFd;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use superpage_linux::headroom::Headroom;
use superpage_linux::pagemap::huge_page_size;
use superpage_linux::why::Why;
use superpage_linux::{Error, collapse};
use superpage_pages::{Ladder, PageSize};
use superpage_vm::{Background, System};

/// Promotes the memory of other processes. All its work is done on the thread that calls
/// [`Promoter::step`], whose CPU time is its budget.
#[derive(Debug)]
pub struct Promoter {
    background: Box<dyn Background>,
    live: Processes,
}

impl Promoter {
    /// A promoter for these processes, which has not started.
    ///
    /// # Errors
    /// [`Error::Unable`]: the kernel has no huge pages or cannot promote
    /// for others (before Linux 6.1), or this process lacks the right.
    pub fn new(options: Options, target: Target) -> Result<Promoter, Error> {
        able()?;
        Promoter::observer(options, target)
    }

    /// A promoter that may only observe ([`Promoter::survey`]): it needs no right to promote.
    ///
    /// # Errors
    /// As for [`Promoter::new`], except for the rights.
    pub fn observer(options: Options, target: Target) -> Result<Promoter, Error> {
        let size = huge_page_size(Path::new("/sys"))?;
        let page = rustix::param::page_size() as u64;
        let sizes: Option<Vec<PageSize>> = [page, size].into_iter().map(PageSize::from_bytes).collect();
        let ladder = sizes.and_then(|sizes| Ladder::new(&sizes).ok());
        let ladder = ladder.ok_or_else(|| Error::Unable(format!("unsupported huge-page size: {size} bytes")))?;
        let mut named = Vec::new();
        let live = Processes {
            least: options.least(size),
            options,
            target: target.pinned_by(&mut named),
            listed: None,
            named,
            ladder,
            size,
            processes: BTreeMap::new(),
            gone: BTreeSet::new(),
            headroom: Headroom::of("/"),
            pressed: Duration::ZERO,
            tick: Duration::ZERO,
            splitter: None,
            warned_of_files: false,
            absent_units: BTreeSet::new(),
            places: BTreeSet::new(),
            given_back: GivenBack::default(),
            survey: None,
            counters: Counters { region_bytes: size, ..Counters::default() },
            waits: Waits::default(),
            began: Instant::now(),
            clock: Clock::default(),
        };
        Ok(Promoter { background: live.with_start_event(live.options.background()), live })
    }

    /// Declares that this process only runs the promoter: all that it uses counts, from its start,
    /// and no CPU time is saved up.
    pub(crate) fn count_the_process(&mut self) {
        self.live.clock = Clock { whole: true, used: self.live.options.burst, ..Clock::default() };
    }

    /// As [`count_the_process`](Promoter::count_the_process), from now on: for one of
    /// several promoters.
    pub(crate) fn join_the_process(&mut self) {
        self.count_the_process();
        self.live.clock.mark = self.live.clock.read();
    }

    /// Selects its processes from this listing, until the next call; leaves out those that are
    /// `taken`, and adds the others to them. Without such calls a promoter lists processes itself.
    pub fn list(&mut self, listing: &mut Listing, taken: &mut BTreeSet<i32>) {
        let own: BTreeSet<i32> = self.live.list(listing).into_iter().filter(|pid| taken.insert(*pid)).collect();
        self.live.listed = Some(own);
    }

    /// Whether the last list of processes left it none.
    pub(crate) fn is_idle(&self) -> bool {
        self.live.listed.as_ref().is_some_and(BTreeSet::is_empty) && self.live.processes.is_empty()
    }

    /// How often it has scanned a process or tried to promote in one.
    pub(crate) fn attempts(&self) -> u64 {
        let Counters { calls, scans, quiet_scans, shared, changed, no_room, .. } = &self.live.counters;
        calls + scans + quiet_scans + shared + changed + no_room
    }

    /// Whether something is due that waits for processor time.
    pub(crate) fn lacks_time(&self) -> bool {
        self.background.waits(self.live.now()).is_some_and(|waits| waits.why == Why::Budget)
    }

    /// Declares that the processes are those of a command that runs for nothing else: a share of
    /// what they use may be used beyond the share of a core, and they may be slowed by it unless it
    /// is given by how much ([`Options::of_command`]).
    pub(crate) fn serve_a_command(&mut self) {
        let Processes { clock, options, .. } = &mut self.live;
        clock.earns = true;
        options.slowdown.get_or_insert(SLOWDOWN.max(options.of_command));
    }

    /// Applies these options from now on. What is known of the processes is kept, except for what
    /// the policy knew. A process that was named before is still the one that had that number then.
    pub(crate) fn reconfigure(&mut self, options: Options, target: Target) {
        let live = &mut self.live;
        live.least = options.least(live.size);
        // No time is saved up.
        live.clock.used = options.burst;
        live.options = options;
        self.background = live.with_start_event(live.options.background());
        live.target = target.pinned_by(&mut live.named);
        live.listed = None;
        live.processes.values_mut().for_each(Process::scan_again);
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.live.options
    }

    /// The processes, as they were selected.
    pub fn target(&self) -> &Target {
        &self.live.target
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let live = &self.live;
        let mut counters = live.counters.clone();
        counters.elapsed = live.began.elapsed();
        waits::REASONS.into_iter().for_each(|reason| _ = counters.waited.entry(reason).or_default());
        counters.left = [Why::TooSmall, Why::Misaligned, Why::NotPopulated].map(|why| (why.name(), 0)).into();
        let watched = || live.processes.values().filter(|process| process.watched());
        counters.watched = watched().count() as u64;
        counters.excluded = process::count_excluded(live.processes.values());
        for (why, _, part) in live.processes.values().flat_map(|process| process.left(live.size)) {
            *counters.left.entry(why.name()).or_default() += part.bytes;
        }
        let sum = |of: fn(&Process) -> u64| watched().map(of).sum();
        counters.huge_regions = sum(|process| process.seen.huge + process.promoted);
        counters.candidate_regions = sum(Process::candidates);
        for why in watched().flat_map(Process::kept) {
            *counters.kept_regions.entry(why.name()).or_default() += 1;
        }
        counters.sparse_regions = sum(|process| process.seen.sparse);
        counters
    }

    /// The addresses of all regions that became huge, of the processes of a command; those of
    /// others are not kept.
    pub fn places(&self) -> &BTreeSet<u64> {
        &self.live.places
    }

    /// Does what is due: checks and scans processes, and the promotions that this allows. Returns
    /// for how long nothing is due.
    pub fn step(&mut self) -> Duration {
        self.live.counters.cpu += self.live.clock.begin();
        self.live.earn();
        self.live.waits.count(self.live.began.elapsed(), &mut self.live.counters.waited);
        let scans = self.live.clock.scan_time;
        if self.call() {
            let live = &mut self.live;
            let (used, scans) = (live.clock.end(), live.clock.scan_time.saturating_sub(scans));
            live.counters.cpu += used;
            live.counters.scan_cpu += scans;
            live.counters.promote_cpu += used.saturating_sub(scans);
        }
        let waits = self.background.waits(self.live.now());
        self.live.note_waits(waits);
        self.rest()
    }

    /// Calls the background if it is due; whether it was.
    fn call(&mut self) -> bool {
        let Promoter { background, live } = self;
        let now = live.now();
        let due = background.next().is_some_and(|due| due <= now);
        if due {
            live.tick = live.clock.spent();
            background.tick(now, live);
            let gone = std::mem::take(&mut live.gone);
            if background.events().gone {
                gone.into_iter().for_each(|space| background.gone(space));
            }
        }
        due
    }

    /// For how long the background is not due.
    fn rest(&self) -> Duration {
        let next = self.background.next().map_or(Duration::MAX, Duration::from_nanos);
        next.saturating_sub(self.live.began.elapsed())
    }

    /// Bytes in a region: the size of the kernel's huge pages.
    pub fn region_bytes(&self) -> u64 {
        self.live.size
    }
}

/// Checks that the kernel can promote for others, and lets this process do so.
fn able() -> Result<(), Error> {
    /// Its bit in the set of capabilities.
    const SYS_NICE: u32 = 23;
    let unable = |sentence: &str| Err(Error::Unable(sentence.to_string()));
    if superpage_linux::proc::own_status()?.capeff >> SYS_NICE & 1 == 0 {
        return unable(
            "promoting the memory of other processes needs CAP_SYS_NICE, and the right to trace them: run as root",
        );
    }
    let own = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    let own = own.map_err(Error::system("open a process (needs Linux 5.3)"))?;
    // No region at all: a kernel that supports the request does nothing.
    match collapse::probe(own.as_fd()) {
        Ok(()) => Ok(()),
        Err(libc::ENOSYS) => unable("this kernel has no process_madvise: promotion needs Linux 6.1"),
        Err(libc::EPERM) => unable(
            "process_madvise is not permitted here: a container needs CAP_SYS_NICE, and a seccomp profile that allows it",
        ),
        Err(_) => unable(
            "this kernel cannot collapse memory into huge pages: promotion needs Linux 6.1 with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_linux::cpu::thread_cpu;

    /// Uses this thread's processor time.
    fn spin(time: Duration) {
        let until = thread_cpu() + time;
        while thread_cpu() < until {}
    }

    #[test]
    fn what_is_used_of_earned_time_is_not_charged() {
        let (work, more) = (Duration::from_millis(2), Duration::from_secs(1));
        let mut clock = Clock { credit: more, ..Clock::default() };
        clock.begin();
        let before = clock.spent();
        spin(work);
        assert_eq!(clock.spent(), before);
        let used = clock.end();
        assert!(used >= work);
        assert_eq!((clock.spent(), clock.credit), (before, more - used));
        clock.credit = Duration::from_millis(1);
        clock.begin();
        spin(work);
        let used = clock.end();
        assert_eq!((clock.used, clock.credit), (before + used - Duration::from_millis(1), Duration::ZERO));
        clock.begin();
        let before = clock.spent();
        spin(work);
        assert!(clock.spent() >= before + work);
    }

    #[test]
    fn a_command_earns_a_share_of_what_it_uses_and_no_more_than_may_be_saved() {
        let options: Options = "promote:of-command=50%,burst=1h".parse().unwrap();
        let mut promoter = Promoter::observer(options, Target::default()).unwrap();
        let own = std::process::id() as i32;
        promoter.live.processes.insert(own, Process::new(own, Duration::ZERO));
        promoter.live.earn();
        assert_eq!(promoter.live.clock.credit, Duration::ZERO, "no command");
        promoter.serve_a_command();
        assert_eq!(promoter.live.options.slowdown, Some(0.5));
        spin(Duration::from_millis(2));
        promoter.live.earn();
        let first = promoter.live.clock.credit;
        assert!(first >= Duration::from_millis(1));
        spin(Duration::from_millis(2));
        promoter.live.earn();
        assert!(promoter.live.clock.credit >= first + Duration::from_millis(1));
        promoter.live.options.burst = Duration::from_micros(5);
        promoter.live.earn();
        assert_eq!(promoter.live.clock.credit, Duration::from_micros(5));
    }

    #[test]
    fn a_command_is_slowed_by_no_more_than_is_given() {
        for (text, slowdown) in [("promote", 0.1), ("promote:of-command=1%", 0.02), ("promote:slowdown=2%", 0.02)] {
            let mut promoter = Promoter::observer(text.parse().unwrap(), Target::default()).unwrap();
            promoter.serve_a_command();
            assert_eq!(promoter.live.options.slowdown, Some(slowdown), "{text}");
        }
    }
}
