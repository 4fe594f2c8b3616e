//! One watched process: what is known of it, and its next scan.

use super::Options;
use super::pace::{Pace, Progress};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use superpage_linux::Error;
use superpage_linux::cpu::process_cpu;
use superpage_linux::pagemap::{Frames, Pagemap};
use superpage_linux::proc;
use superpage_linux::rules::Rules;
use superpage_linux::scan::{self, Kind, Unsuitable};
use superpage_linux::why::{Part, Why};
use superpage_vm::{Look, Part as Regions, Sample, Scanned, ScannedPart};

/// What differs for another process of that number, and for another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    /// When the process started, in ticks.
    started: u64,
    /// The start address of its stack.
    stack: u64,
}

/// The relevant fields of /proc/PID/stat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    kernel: bool,
    identity: Identity,
    activity: Activity,
}

/// What changes when a process touches memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Activity {
    faults: u64,
    resident_pages: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Stat> {
        let stat = proc::stat(pid)?;
        Some(Stat {
            kernel: proc::is_kernels(&stat) || matches!(stat.state, 'Z' | 'X'),
            identity: Identity { started: stat.starttime, stack: stat.startstack },
            activity: Activity { faults: stat.minflt + stat.majflt, resident_pages: stat.rss },
        })
    }
}

/// Handles for promotion in a process: of the process, and of the memory of the program that it
/// runs. They are never reused for another.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) pidfd: OwnedFd,
    pub(super) pagemap: Pagemap,
}

/// What the last scan found, in regions; each is counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Seen {
    /// Regions that are huge pages already.
    pub(super) huge: u64,
    /// Regions populated below the share.
    pub(super) sparse: u64,
    /// Regions populated at least to the share.
    pub(super) candidates: u64,
}

/// What a scan looks for: regions of `size` bytes, candidates of which are populated to `least`
/// base pages.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) options: &'a Options,
    pub(super) size: u64,
    pub(super) least: u32,
}

/// A watched process. Times are since the promoter began.
#[derive(Default, Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) name: String,
    pub(super) seen: Seen,
    /// Why nothing in it is promoted: it is the kernel's, this process has no right, or it disabled
    /// huge pages.
    pub(super) excluded: Option<Why>,
    pub(super) pace: Pace,
    pub(super) pinned: Option<Pinned>,
    /// Regions promoted since the last scan.
    pub(super) promoted: u64,
    /// Candidates that the last check of each left alone: others share their pages, or the program
    /// has given pages back.
    kept: BTreeMap<u64, Why>,
    /// Ranges excluded by the program or by their kind.
    pub(super) unsuitable: Vec<Unsuitable>,
    /// Scans that failed since the last that did not.
    pub(super) failures: u64,
    identity: Option<Identity>,
    cpu: Option<Duration>,
    /// The processor time that was credited to the promoter already.
    credited_cpu: Duration,
    /// The activity that the last scan saw.
    seen_activity: Option<Activity>,
    flags_read: Option<Duration>,
    /// The mappings with pages that were given back, and when that was read.
    given_back: Option<(Duration, Vec<Range<u64>>)>,
    /// Resident memory of mappings that contain no region that could be huge, and of regions
    /// populated below the share, by reason and kind.
    left: BTreeMap<(Why, Kind), Part>,
    /// Since when its age counts, and when what is left alone is measured again: each time that it
    /// is twice as old.
    met: Duration,
    next_measure: Duration,
    /// Whether it may have changed since it was measured.
    unmeasured: bool,
}

impl Process {
    /// A process seen for the first time, whose age counts from `met`.
    pub(super) fn new(pid: i32, met: Duration) -> Process {
        Process { pid, met, ..Process::default() }
    }

    /// Regions that could be promoted, as far as is known.
    pub(super) fn candidates(&self) -> u64 {
        self.seen.candidates.saturating_sub(self.promoted + self.kept.len() as u64)
    }

    /// The candidates that are left alone, by reason.
    pub(super) fn kept(&self) -> impl Iterator<Item = Why> {
        self.kept.values().copied()
    }

    /// Notes what a check of a region found.
    pub(super) fn note_check(&mut self, region: u64, found: Result<(), Why>) {
        match found {
            Err(why @ (Why::SharedByFork | Why::GivenBack)) => _ = self.kept.insert(region, why),
            _ => _ = self.kept.remove(&region),
        }
    }

    /// The processor time that it has used since the last call.
    pub(super) fn used(&mut self) -> Duration {
        let used = process_cpu(self.pid).unwrap_or(self.credited_cpu);
        used.saturating_sub(std::mem::replace(&mut self.credited_cpu, used))
    }

    /// Scans the process's memory if that may have changed, and reports what it holds. A process
    /// that has not run costs one call of less than a microsecond; for one that has not touched
    /// memory, one small file is read. With `part`, these regions are reported in any case.
    ///
    /// # Errors
    /// A system call failed, for another reason than the end of the process.
    pub(super) fn scan_if_changed(
        &mut self,
        now: Duration,
        scope: Scope<'_>,
        part: Option<Regions>,
        see: &mut dyn FnMut(Sample),
    ) -> Result<ScannedPart, Error> {
        let Some(cpu) = process_cpu(self.pid) else { return Ok(Scanned::Gone.into()) };
        self.pace.measure(Progress { at: now, cpu });
        let wanted = part.is_some() || self.unmeasured && now >= self.next_measure;
        if self.cpu.replace(cpu) == Some(cpu) && self.seen_activity.is_some() && !wanted {
            return Ok(Scanned::Unchanged.into());
        }
        let Some(stat) = Stat::read(self.pid) else { return Ok(Scanned::Gone.into()) };
        let is_new = self.identity.replace(stat.identity) != Some(stat.identity);
        if is_new {
            self.begin(&stat);
        }
        let kernels = self.excluded == Some(Why::Kernel);
        if kernels || (self.seen_activity.replace(stat.activity) == Some(stat.activity) && !wanted) {
            self.seen_activity = Some(stat.activity);
            return Ok(if part.is_some() { Scanned::Closed } else { Scanned::Unchanged }.into());
        }
        let part = part.unwrap_or(Regions::ALL);
        let scanned = self.scan(now, scope, part, see);
        self.failures = if scanned.is_err() { self.failures + 1 } else { 0 };
        match scanned {
            Ok(_) if self.excluded == Some(Why::Disabled) => {
                let resident = stat.activity.resident_pages * rustix::param::page_size() as u64;
                self.left = [((Why::Disabled, Kind::Anonymous), Part::of_bytes(resident, scope.size))].into();
                Ok(Scanned::Closed.into())
            }
            Ok(next) => {
                self.excluded = None;
                if part.from > 0 || next.is_some() {
                    self.scan_again();
                }
                Ok(ScannedPart { scanned: if is_new { Scanned::NewProgram } else { Scanned::Seen }, next })
            }
            Err(error) => {
                self.seen = Seen::default();
                self.pinned = None;
                self.classify_scan_error(error).map(ScannedPart::from)
            }
        }
    }

    /// Starts watching a program that is new to us.
    fn begin(&mut self, stat: &Stat) {
        self.seen = Seen::default();
        self.pinned = None;
        self.unsuitable.clear();
        self.kept.clear();
        (self.flags_read, self.given_back) = (None, None);
        self.seen_activity = None;
        self.left.clear();
        self.next_measure = Duration::ZERO;
        // Untrusted bytes: the process names itself. Whoever prints the name escapes it.
        let name = std::fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        self.name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned();
        self.excluded = stat.kernel.then_some(Why::Kernel);
        if self.excluded.is_none() && thp_disabled(self.pid) {
            self.excluded = Some(Why::Disabled);
        }
    }

    fn classify_scan_error(&mut self, error: Error) -> Result<Scanned, Error> {
        let source = match &error {
            Error::File { source, .. } | Error::System { source, .. } => source.raw_os_error(),
            _ => None,
        };
        match source {
            Some(libc::ENOENT | libc::ESRCH) => Ok(Scanned::Gone),
            Some(libc::EACCES | libc::EPERM) => {
                self.excluded = Some(Why::Rights);
                Ok(Scanned::Closed)
            }
            _ => {
                // Nothing is known of the memory, though it may not change any more.
                self.seen_activity = None;
                Err(error)
            }
        }
    }

    fn scan(
        &mut self,
        now: Duration,
        Scope { options, size, least }: Scope<'_>,
        part: Regions,
        see: &mut dyn FnMut(Sample),
    ) -> Result<Option<u64>, Error> {
        if self.excluded == Some(Why::Disabled) {
            if thp_disabled(self.pid) {
                return Ok(None);
            }
            self.excluded = None;
        }
        let number = Pid::from_raw(self.pid).ok_or_else(|| Error::Usage(format!("{} is no process", self.pid)))?;
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(Error::system("open a process"))?;
        let pagemap = Pagemap::open(self.pid).map_err(Error::file("read", format!("/proc/{}/pagemap", self.pid)))?;
        // Both are of the process that was looked at, and of the program that it runs: it had that
        // number before and after.
        if Stat::read(self.pid).map(|stat| stat.identity) != self.identity {
            return Err(Error::system("open a process")(std::io::Error::from_raw_os_error(libc::ESRCH)));
        }
        let scan::Split { fitting: mut mappings, left: mut misfits } = scan::split(self.pid, size)?;
        let shared = |mapping: &scan::Mapping| mapping.kind != Kind::Anonymous;
        if !options.shared {
            mappings.retain(|mapping| !shared(mapping));
        } else if mappings.iter().any(shared) && Rules::read().denies_shared() {
            misfits.extend(mappings.extract_if(.., |mapping| shared(mapping)).map(|mapping| (mapping, Why::Never)));
        }
        let page = rustix::param::page_size() as u64;
        let pages = (size / page) as u32;
        // Counts go on with a part that goes on.
        let mut seen = if part.from > 0 { self.seen } else { Seen::default() };
        if part.from == 0 {
            self.left.retain(|(why, _), _| !matches!(why, Why::Disabled | Why::NotPopulated));
        }
        // A range that was unsuitable may have been mapped again since, and be suitable now.
        self.unmeasured = now < self.next_measure;
        if !self.unmeasured && !self.unsuitable.is_empty() {
            self.unsuitable = scan::unsuitable(self.pid).unwrap_or_default();
        }
        let (mut reported, mut next, mut again) = (0, None, BTreeSet::new());
        for mapping in &mappings {
            if self.unsuitable.iter().any(|unsuitable| unsuitable.range.contains(&mapping.range.start)) {
                continue;
            }
            pagemap.populations_from(mapping, size, part.from, &mut |found| {
                if reported == part.most {
                    next = Some(found.region);
                    return false;
                }
                reported += 1;
                if !found.huge && found.populated < least {
                    let part = self.left.entry((Why::NotPopulated, mapping.kind)).or_default();
                    part.bytes += u64::from(found.populated) * page;
                    part.blocks += 1;
                }
                match found.huge {
                    true => seen.huge += 1,
                    false if found.populated >= least => seen.candidates += 1,
                    false => seen.sparse += u64::from(found.populated > 0),
                }
                if !found.huge && found.populated >= least && self.kept.contains_key(&found.region) {
                    again.insert(found.region);
                }
                see(Sample { region: found.region, populated: found.populated.min(pages), superpage: found.huge });
                true
            })?;
            if next.is_some() {
                break;
            }
        }
        self.seen = seen;
        let scanned = part.from..next.unwrap_or(u64::MAX);
        self.kept.retain(|region, _| !scanned.contains(region) || again.contains(region));
        if !self.unmeasured {
            self.measure(&pagemap, &misfits, size)?;
            self.next_measure = now.saturating_add(now.saturating_sub(self.met).max(options.interval));
        }
        self.promoted = 0;
        self.pinned = (seen.candidates > 0).then_some(Pinned { pidfd, pagemap });
        Ok(next)
    }

    /// Measures resident memory in mappings that contain no region that could be huge.
    fn measure(&mut self, pagemap: &Pagemap, misfits: &[(scan::Mapping, Why)], size: u64) -> Result<(), Error> {
        self.left.retain(|(why, _), _| !matches!(why, Why::TooSmall | Why::Misaligned | Why::Never));
        // Two mappings may be in one block, and are in ascending order unless they lie apart for a
        // reason.
        let mut last = BTreeMap::new();
        for (mapping, why) in misfits {
            let key = (*why, mapping.kind);
            let part = self.left.entry(key).or_default();
            let done = pagemap.runs(mapping.range.clone(), |run| {
                let (first, end) = (run.start / size, run.end.div_ceil(size));
                let before = last.insert(key, end - 1);
                part.bytes += run.end - run.start;
                part.blocks += end - first - u64::from(before == Some(first));
            });
            done.map_err(Error::system("scan the pages of a process"))?;
        }
        Ok(())
    }

    /// Makes the next scan measure what is left alone, whenever that was last done.
    pub(super) fn measure_again(&mut self) {
        self.next_measure = Duration::ZERO;
        self.unmeasured = true;
    }

    /// Resident memory in which nothing is promoted, by reason and kind; regions have `size` bytes.
    pub(super) fn left(&self, size: u64) -> impl Iterator<Item = (Why, Kind, Part)> {
        let advised = self.unsuitable.iter().filter(|unsuitable| unsuitable.flag == "nh");
        let advised: u64 = advised.map(|unsuitable| unsuitable.resident).sum();
        let advised = Part::of_bytes(if self.excluded.is_none() { advised } else { 0 }, size);
        let left = self.left.iter().map(|((why, kind), part)| (*why, *kind, *part));
        left.chain([(Why::AdvisedAgainst, Kind::Anonymous, advised)])
    }

    /// The populated pages of a region. An error if they are fewer than `least` now, because the
    /// program unmapped some, or shares them since a fork. Nothing is populated in a process that
    /// has ended or runs another program.
    pub(super) fn check(&self, region: u64, size: u64, least: u32) -> Result<u32, Why> {
        let pinned = self.pinned.as_ref().filter(|_| self.excluded.is_none()).ok_or(Why::NotPopulated)?;
        let pages = pinned.pagemap.pages(region, size).unwrap_or_default();
        let least = least.max(1);
        match pages.own + pages.file {
            populated if populated >= least => Ok(populated),
            _ if resident(&pinned.pagemap, region, size).0 >= least => Err(Why::SharedByFork),
            _ => Err(Why::NotPopulated),
        }
    }

    /// Whether the program has given pages of a region back. Flags of frames say so until the
    /// kernel notices that they were written since; `smaps` knows it at once, for a whole mapping,
    /// and is read where what is known of it is not `fresh`.
    pub(super) fn gave_back(&mut self, region: Range<u64>, frames: &Frames, now: Duration, fresh: Duration) -> bool {
        if !self.pinned.as_ref().is_some_and(|pinned| pinned.pagemap.given_back(region.clone(), frames)) {
            return false;
        }
        if self.given_back.as_ref().is_none_or(|(read, _)| now >= read.saturating_add(fresh)) {
            let Ok(mappings) = scan::given_back(self.pid) else { return true };
            self.given_back = Some((now, mappings));
        }
        let mut mappings = self.given_back.iter().flat_map(|(_, mappings)| mappings);
        mappings.any(|mapping| mapping.start < region.end && region.start < mapping.end)
    }

    /// The pages of a region, as the page table shows them: it knows neither reservations nor what
    /// was accessed.
    pub(super) fn look(&self, region: u64, size: u64) -> Look {
        let opened = if self.pinned.is_some() { None } else { Pagemap::open(self.pid).ok() };
        let Some(pagemap) = self.pinned.as_ref().map(|pinned| &pinned.pagemap).or(opened.as_ref()) else {
            return Look::default();
        };
        let pages = pagemap.pages(region, size).unwrap_or_default();
        let (resident, superpage) = resident(pagemap, region, size);
        let populated = pages.own + pages.file;
        let shared = resident.saturating_sub(populated);
        Look { populated, shared, swapped: pages.swapped, superpage, ..Look::default() }
    }

    /// The number of physically contiguous pieces of a region.
    pub(super) fn pieces(&self, region: u64, size: u64) -> Option<u32> {
        self.pinned.as_ref()?.pagemap.pages(region, size).ok()?.pieces
    }

    /// Reads which ranges are unsuitable, unless that was done a short time ago; later scans
    /// exclude them. Walks the whole page table, as `smaps` does.
    pub(super) fn learn_flags(&mut self, now: Duration, options: &Options) {
        if self.flags_read.is_none_or(|read| now >= read.saturating_add(options.idle)) {
            self.flags_read = Some(now);
            self.unsuitable = scan::unsuitable(self.pid).unwrap_or_default();
            self.scan_again();
        }
    }

    /// Marks what is known of the memory as out of date: it will be scanned next time.
    pub(super) fn scan_again(&mut self) {
        self.seen_activity = None;
    }

    /// Which program of which process the last scan saw: when the process started, and where its
    /// stack does. `None` before the first.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Whether it was scanned and is not left alone.
    pub(super) fn watched(&self) -> bool {
        self.identity.is_some() && self.excluded.is_none()
    }
}

/// The pages of a region that are in memory, and whether one is part of a huge page. A page of
/// zeroes that was only read is none: by itself a page table shows it as shared. A region that
/// cannot be scanned has no pages.
fn resident(pagemap: &Pagemap, region: u64, size: u64) -> (u32, bool) {
    let (mut bytes, mut superpage) = (0, false);
    _ = pagemap.runs_while(region * size..(region + 1) * size, |run| {
        bytes += run.end - run.start;
        superpage |= run.huge();
        true
    });
    ((bytes / pagemap.base()) as u32, superpage)
}

/// Whether the process disabled huge pages.
fn thp_disabled(pid: i32) -> bool {
    proc::status(pid).is_ok_and(|status| proc::disabled(&status))
}

/// The number of processes for each reason.
pub(super) fn count_excluded<'a>(processes: impl Iterator<Item = &'a Process>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for excluded in processes.filter_map(|process| process.excluded) {
        *counts.entry(excluded.name()).or_default() += 1;
    }
    counts
}
