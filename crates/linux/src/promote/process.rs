//! One process that is watched: what is known of it, and the next look at it.

use super::Options;
use super::budget::process_cpu;
use super::pace::Pace;
use crate::Error;
use crate::inspect::Why;
use crate::scan::{self, Pagemap, Unsuitable};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::time::Duration;
use superpage_vm::{Census, Ripe, Sample, Scanner};

/// Why nothing is promoted in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Excluded {
    /// It is a thread of the kernel, or has no memory any more.
    Kernel,
    /// This process may not look into it.
    Rights,
    /// It asked for no huge pages (`PR_SET_THP_DISABLE`).
    Disabled,
}

impl Excluded {
    /// A word for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Excluded::Kernel => "kernel",
            Excluded::Rights => "rights",
            Excluded::Disabled => "disabled",
        }
    }
}

/// What /proc/PID/stat says that matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    kernel: bool,
    /// When the process began, and where the stack of its program does: with another program that is another place.
    identity: (u64, u64),
    faults: u64,
    resident_pages: u64,
}

impl Stat {
    fn read(pid: i32) -> Result<Stat, Error> {
        let path = format!("/proc/{pid}/stat");
        let text = std::fs::read(&path).map_err(Error::file("read", path.as_str()))?;
        Stat::parse(&String::from_utf8_lossy(&text)).ok_or_else(|| {
            Error::Unable(format!("{path} is not as expected: is /proc mounted, and not as something else?"))
        })
    }

    pub(super) fn parse(text: &str) -> Option<Stat> {
        /// The flag of threads of the kernel.
        const KTHREAD: u64 = 0x0020_0000;
        // A name may have spaces and parentheses; what comes after the last one is numbers. The first word is field 3.
        let words: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |n: usize| words.get(n - 3)?.parse::<u64>().ok();
        let ended = matches!(*words.first()?, "Z" | "X");
        Some(Stat {
            kernel: field(9)? & KTHREAD != 0 || ended,
            identity: (field(22)?, field(28)?),
            faults: field(10)? + field(12)?,
            resident_pages: field(24)?,
        })
    }
}

/// What is needed to promote in a process: names of it, and of the memory of the program that it runs, that never come to mean
/// another.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) pidfd: OwnedFd,
    pub(super) pagemap: Pagemap,
}

/// Regions that were found as they should be for a promotion, and how many were not.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) regions: Vec<Ripe>,
    /// Others have their pages too.
    pub(super) shared: u64,
    /// They are not populated to the share any more.
    pub(super) changed: u64,
}

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Looked {
    /// The process has ended.
    Gone,
    /// Nothing can have changed.
    Quiet,
    /// It was scanned.
    Scanned,
}

/// A process that is watched. Times are since the promoter began; the scanner's are in milliseconds of that.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) name: String,
    pub(super) scanner: Scanner,
    pub(super) excluded: Option<Excluded>,
    pub(super) pace: Pace,
    pub(super) pinned: Option<Pinned>,
    /// Regions promoted since the last scan.
    pub(super) promoted: u64,
    /// Regions that are ripe, the first one last.
    pub(super) queue: Vec<Ripe>,
    pub(super) next_look: Duration,
    /// Ranges that the program or their kind excludes.
    pub(super) unsuitable: Vec<Unsuitable>,
    identity: Option<(u64, u64)>,
    cpu: Option<Duration>,
    memory: Option<(u64, u64)>,
    /// Looks in a row that found nothing new.
    quiet: u32,
    flags_read: Option<Duration>,
    /// Resident bytes of mappings that hold no region, and of regions populated below the share, by the reason.
    left: BTreeMap<Why, u64>,
    /// When it was first seen, and when what is left is to be measured again: each time that it has run twice as long.
    met: Duration,
    next_measure: Duration,
    /// It may have changed since it was measured.
    unmeasured: bool,
}

/// A time in the scanner's unit.
pub(super) fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl Process {
    /// A process seen for the first time, to be looked at from `next_look` on.
    pub(super) fn new(pid: i32, scanner: Scanner, next_look: Duration) -> Process {
        Process {
            pid,
            name: String::new(),
            scanner,
            excluded: None,
            pace: Pace::default(),
            pinned: None,
            promoted: 0,
            queue: Vec::new(),
            next_look,
            unsuitable: Vec::new(),
            identity: None,
            cpu: None,
            memory: None,
            quiet: 0,
            flags_read: None,
            left: BTreeMap::new(),
            met: next_look,
            next_measure: Duration::ZERO,
            unmeasured: false,
        }
    }

    /// When a region is ripe, if any will be.
    pub(super) fn ripe_at(&self) -> Option<Duration> {
        if self.excluded.is_some() {
            return None;
        }
        let ripe = if self.queue.is_empty() {
            self.scanner.next_ripe().map(Duration::from_millis)
        } else {
            Some(Duration::ZERO)
        };
        ripe.map(|at| at.max(self.pace.until()))
    }

    /// Looks at the process: scans its memory if that may have changed. A process that has not run costs one call of less than
    /// a microsecond, one that has not touched memory reads one small file.
    ///
    /// # Errors
    /// What the kernel refused, other than by the end of the process.
    pub(super) fn look(&mut self, now: Duration, options: &Options, size: u64) -> Result<Looked, Error> {
        let Some(cpu) = process_cpu(self.pid) else { return Ok(Looked::Gone) };
        self.pace.look(now, cpu);
        let measure = self.unmeasured && now >= self.next_measure;
        if self.cpu.replace(cpu) == Some(cpu) && self.memory.is_some() && !measure {
            self.rest(now, options);
            return Ok(Looked::Quiet);
        }
        let Ok(stat) = Stat::read(self.pid) else { return Ok(Looked::Gone) };
        if self.identity.replace(stat.identity) != Some(stat.identity) {
            self.begin(&stat);
        }
        let memory = (stat.faults, stat.resident_pages);
        if self.excluded == Some(Excluded::Kernel) || (self.memory.replace(memory) == Some(memory) && !measure) {
            self.memory = Some(memory);
            self.rest(now, options);
            return Ok(Looked::Quiet);
        }
        let before = self.scanner.census();
        match self.scan(now, options, size) {
            Ok(()) if self.excluded == Some(Excluded::Disabled) => {
                let resident = stat.resident_pages * rustix::param::page_size() as u64;
                self.left = [(Why::Disabled, resident)].into();
            }
            Ok(()) => self.excluded = None,
            Err(error) => {
                self.scanner.clear();
                self.pinned = None;
                return self.cannot(error, now, options);
            }
        }
        if self.scanner.census() == before {
            self.rest(now, options);
        } else {
            self.quiet = 0;
            self.next_look = now + options.interval.0;
        }
        Ok(Looked::Scanned)
    }

    /// The process runs a program that is new to us.
    fn begin(&mut self, stat: &Stat) {
        self.scanner.clear();
        self.queue.clear();
        self.pinned = None;
        self.unsuitable.clear();
        self.flags_read = None;
        self.memory = None;
        self.quiet = 0;
        self.left.clear();
        self.next_measure = Duration::ZERO;
        // Any bytes: what a process calls itself. Whoever prints it escapes it.
        let name = std::fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        self.name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned();
        self.excluded = stat.kernel.then_some(Excluded::Kernel);
        if self.excluded.is_none() && thp_disabled(self.pid) {
            self.excluded = Some(Excluded::Disabled);
        }
    }

    /// Waits twice as long as before, up to the longest time.
    fn rest(&mut self, now: Duration, options: &Options) {
        self.quiet = (self.quiet + 1).min(16);
        self.next_look = now + (options.interval.0 * (1 << self.quiet)).min(options.idle.0);
    }

    fn cannot(&mut self, error: Error, now: Duration, options: &Options) -> Result<Looked, Error> {
        let source = match &error {
            Error::File { source, .. } | Error::System { source, .. } => source.raw_os_error(),
            _ => None,
        };
        match source {
            Some(libc::ENOENT | libc::ESRCH) => Ok(Looked::Gone),
            Some(libc::EACCES | libc::EPERM) => {
                self.excluded = Some(Excluded::Rights);
                self.next_look = now + options.idle.0;
                Ok(Looked::Quiet)
            }
            _ => {
                self.next_look = now + options.idle.0;
                Err(error)
            }
        }
    }

    fn scan(&mut self, now: Duration, options: &Options, size: u64) -> Result<(), Error> {
        self.queue.clear();
        if self.excluded == Some(Excluded::Disabled) {
            if thp_disabled(self.pid) {
                return Ok(());
            }
            self.excluded = None;
        }
        let number = Pid::from_raw(self.pid).ok_or_else(|| Error::Usage(format!("{} is no process", self.pid)))?;
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(Error::system("open a process"))?;
        let pagemap = Pagemap::open(self.pid).map_err(Error::file("read", format!("/proc/{}/pagemap", self.pid)))?;
        let scan::Split { fitting: mut mappings, left: misfits } = scan::split(self.pid, size)?;
        mappings.retain(|mapping| options.shared || mapping.kind == scan::Kind::Anonymous);
        let page = rustix::param::page_size() as u64;
        let pages = (size / page) as u32;
        let (least, mut sparse) = (self.scanner.least(), 0);
        let mut sweep = self.scanner.sweep(millis(now));
        for mapping in &mappings {
            if self.unsuitable.iter().any(|unsuitable| unsuitable.range.contains(&mapping.range.start)) {
                continue;
            }
            pagemap.populations(mapping, size, &mut |found| {
                if !found.huge && found.populated < least {
                    sparse += u64::from(found.populated) * page;
                }
                sweep.see(Sample {
                    region: found.region,
                    populated: found.populated.min(pages),
                    superpage: found.huge,
                });
            })?;
        }
        sweep.finish();
        self.left.remove(&Why::Disabled);
        self.left.insert(Why::NotPopulated, sparse);
        self.unmeasured = now < self.next_measure;
        if !self.unmeasured {
            self.measure(&pagemap, &misfits)?;
            self.next_measure = now + now.saturating_sub(self.met).max(options.interval.0);
        }
        self.promoted = 0;
        self.pinned = (self.scanner.candidates() > 0).then_some(Pinned { pidfd, pagemap });
        Ok(())
    }

    /// Measures what is resident in mappings that hold no region.
    fn measure(&mut self, pagemap: &Pagemap, misfits: &[(scan::Mapping, Why)]) -> Result<(), Error> {
        let mut resident: BTreeMap<Why, u64> = [(Why::TooSmall, 0), (Why::Misaligned, 0)].into();
        for (mapping, why) in misfits {
            let bytes = resident.entry(*why).or_default();
            let done = pagemap.runs(mapping.range.clone(), |run| *bytes += run.end - run.start);
            done.map_err(Error::system("scan the pages of a process"))?;
        }
        self.left.extend(resident);
        Ok(())
    }

    /// What is left alone is measured at the next look, whenever it was before.
    pub(super) fn measure_again(&mut self) {
        self.next_measure = Duration::ZERO;
        self.unmeasured = true;
    }

    /// Resident bytes in which nothing is promoted, by the reason.
    pub(super) fn left(&self) -> impl Iterator<Item = (Why, u64)> {
        let advised = self.unsuitable.iter().filter(|unsuitable| unsuitable.flag == "nh");
        let advised: u64 = advised.map(|unsuitable| unsuitable.resident).sum();
        let advised = if self.excluded.is_none() { advised } else { 0 };
        self.left.iter().map(|(why, bytes)| (*why, *bytes)).chain([(Why::AdvisedAgainst, advised)])
    }

    /// Takes regions whose pages others have too from the queue; gives their bytes.
    pub(super) fn drop_shared(&mut self, size: u64) -> u64 {
        let Some(pinned) = &self.pinned else { return 0 };
        let (before, least) = (self.queue.len(), self.scanner.least());
        self.queue.retain(|ripe| {
            let pages = pinned.pagemap.pages(ripe.region, size).unwrap_or_default();
            pages.own + pages.file >= least || pages.own + pages.file + pages.shared < least
        });
        (before - self.queue.len()) as u64 * size
    }

    /// Reads which ranges are unsuitable, unless that was done a short while ago; they have no part in the scans that follow.
    /// Walks the whole page table, as `smaps` does.
    pub(super) fn learn_flags(&mut self, now: Duration, options: &Options) {
        if self.flags_read.is_none_or(|read| now >= read + options.idle.0) {
            self.flags_read = Some(now);
            self.unsuitable = scan::unsuitable(self.pid).unwrap_or_default();
            self.scan_again(now);
        }
    }

    /// What is known of the memory is out of date.
    pub(super) fn scan_again(&mut self, at: Duration) {
        self.memory = None;
        self.quiet = 0;
        self.next_look = self.next_look.min(at);
    }

    /// Fills the queue with what is ripe. The first few are asked of how many pieces they are made, which sorts them.
    pub(super) fn fill_queue(&mut self, now: Duration, size: u64) {
        /// About one millisecond.
        const ASKED: usize = 64;
        self.queue = self.scanner.ripe(millis(now));
        if let Some(pinned) = &self.pinned {
            for ripe in self.queue.iter_mut().take(ASKED).filter(|ripe| ripe.pieces == u32::MAX) {
                ripe.pieces =
                    pinned.pagemap.pages(ripe.region, size).ok().and_then(|pages| pages.pieces).unwrap_or(u32::MAX);
                self.scanner.rank(ripe.region, None, Some(ripe.pieces));
            }
        }
        self.queue.sort_unstable_by(|one, other| other.order(one));
    }

    /// Takes the next regions to promote, each looked at page by page just now; those that do not stand that are left.
    pub(super) fn take_batch(&mut self, now: Duration, options: &Options, size: u64) -> Batch {
        let mut batch = Batch::default();
        if self.queue.is_empty() {
            self.fill_queue(now, size);
        }
        let Some(pinned) = &self.pinned else {
            self.queue.clear();
            self.scanner.clear();
            return batch;
        };
        let least = self.scanner.least();
        while batch.regions.len() < options.batch
            && let Some(ripe) = self.queue.pop()
        {
            let pages = pinned.pagemap.pages(ripe.region, size).unwrap_or_default();
            let populated = pages.own + pages.file;
            if populated >= least {
                batch.regions.push(Ripe { populated, ..ripe });
            } else if populated + pages.shared >= least {
                batch.shared += 1;
                self.scanner.put_off(ripe.region, millis(now));
            } else {
                batch.changed += 1;
                self.scanner.forget(ripe.region);
            }
        }
        if batch.changed > 0 {
            self.scan_again(now + options.interval.0);
        }
        batch
    }

    /// Whether it was looked at and is not left alone.
    pub(super) fn watched(&self) -> bool {
        self.identity.is_some() && self.excluded.is_none()
    }

    /// Whether a region is still populated to the share: an error that can also mean that it is unmapped meant something else.
    pub(super) fn still_stands(&self, region: u64, size: u64) -> bool {
        let pages = self.pinned.as_ref().and_then(|pinned| pinned.pagemap.pages(region, size).ok()).unwrap_or_default();
        pages.own + pages.file >= self.scanner.least()
    }

    pub(super) fn census(&self) -> Census {
        self.scanner.census()
    }
}

/// Whether the process asked for no huge pages.
fn thp_disabled(pid: i32) -> bool {
    let status = crate::told::read(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().filter_map(|line| line.strip_prefix("THP_enabled:")).any(|value| value.trim() == "0")
}

/// How many processes there are of each reason.
pub(super) fn count_excluded<'a>(processes: impl Iterator<Item = &'a Process>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for excluded in processes.filter_map(|process| process.excluded) {
        *counts.entry(excluded.name()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_do_not_matter() {
        let text = "7 (a) b (c)) S 3 7 7 0 -1 4194304 11 0 2 0 0 0 0 0 20 0 1 0 99 1000 44 1 2 3 1234 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.kernel, stat.identity), (false, (99, 1234)));
        assert_eq!((stat.faults, stat.resident_pages), (13, 44));
        assert!(Stat::parse("7 (x) S 1").is_none());
        let own = Stat::read(std::process::id() as i32).unwrap();
        assert!(own.resident_pages > 0 && own.faults > 0 && !own.kernel);
    }
}
