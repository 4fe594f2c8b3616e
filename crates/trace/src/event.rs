//! The event stream: everything that happens to memory, in order, whatever its source.

use crate::Phase;
use superpage_pages::{Access, Hint, Protection, parse_count};

/// Page numbers in a trace count pages of this many bits, whatever machine the trace comes from or
/// runs on.
pub const TRACE_PAGE_SHIFT: u32 = 12;

/// The bits of a byte's place in a line, in streams that have lines ([`Info::lines`]).
pub const TRACE_LINE_SHIFT: u32 = 6;

/// The bits of a line's place in its page.
const LINE_BITS: u32 = TRACE_PAGE_SHIFT - TRACE_LINE_SHIFT;

/// The longest path of an [`Event::Call`], in bytes.
pub const CALL_BYTES: usize = 32;

/// The end of memory and of files in a trace: page numbers of accesses, mappings and files are
/// below this.
pub const PAGES_LIMIT: u64 = 1 << (64 - TRACE_PAGE_SHIFT);

/// The number of a process in a trace. The first is 0; numbers are not reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessId(pub u32);

/// Accesses of one kind to one 4 KB page by the current process while their stream stays on that
/// page.
///
/// Data accesses (reads and writes) and instruction fetches are two streams. While the data stream
/// stays on a page, its writes there are one run, its reads before the first write another, and its
/// reads after it a third; all end when it moves to another page. A run has its place in the stream
/// at its first access. So however often a program alternates reads and writes of a page, it has at
/// most three runs there.
///
/// Only the first access of a run can miss in a TLB, change one, set a use bit or fault, on any
/// machine with pages of at least 4 KB, whatever its TLBs serve and replace, provided that no
/// first-level TLB serves both data and fetches. Reason: the first read looks into TLBs until one
/// holds the page, and the nearest then has it as its most recently used entry. Until the run ends,
/// that TLB only sees this page, by reads or, if it serves them too, by writes. So every further
/// read hits there, changes neither contents nor order, and reaches nothing behind it; likewise for
/// writes. (The TLBs behind may change meanwhile, by fetches.) The mapping itself can change under
/// the stream only at the first write, by a trap, and there reads begin a new run: after a
/// successful write, later reads cannot trap.
///
/// If an outer level is inclusive *and* serves data and fetches, a fetch may evict a page during a
/// run; that is not modelled. Nor is it where a first-level TLB for data also holds pointers to
/// page tables, as on the Alpha: the walk of a fetch that misses may load one there, between two
/// accesses of a run.
///
/// In a stream with lines ([`Info::lines`]) a run's accesses are to one line of 64 bytes, and all
/// that is said here of pages holds of lines: then it is also the first access alone that can miss
/// in a cache of such lines that serves no other stream. TLBs see more runs, of which those that
/// stay on a page change nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Run {
    /// `page << 8 | line << 2 | kind`.
    tag: u64,
    /// Accesses in the run, at least 1: loads and stores, or for [`Access::Execute`] instruction
    /// fetches.
    pub references: u32,
    /// Instructions that the run stands for: for [`Access::Execute`] those fetched; for data, 0 in
    /// a process whose fetches are in the trace, otherwise the instructions since the previous run.
    pub instructions: u32,
}

impl Run {
    /// A run of `references` accesses to the page with number `page` (below 2^56), or to its first
    /// line.
    pub const fn new(page: u64, access: Access, references: u32, instructions: u32) -> Run {
        Run::on_line(page << LINE_BITS, access, references, instructions)
    }

    /// A run of `references` accesses to the line with number `line` of memory (below 2^62).
    pub const fn on_line(line: u64, access: Access, references: u32, instructions: u32) -> Run {
        Run { tag: line << 2 | access as u64, references, instructions }
    }

    /// A run by its [`Run::tag`].
    #[inline]
    pub(crate) const fn tagged(tag: u64, references: u32, instructions: u32) -> Run {
        Run { tag, references, instructions }
    }

    /// The number of the 4 KB page.
    #[inline]
    pub const fn page(self) -> u64 {
        self.tag >> (2 + LINE_BITS)
    }

    /// The number of the line of 64 bytes in memory; in a stream without lines, of the first in the
    /// page.
    #[inline]
    pub const fn line(self) -> u64 {
        self.tag >> 2
    }

    /// `page << 8 | line << 2 | kind`.
    #[inline]
    pub(crate) const fn tag(self) -> u64 {
        self.tag
    }

    /// The kind of all accesses of the run; [`Info::loads_in_writes`] describes those of old files.
    #[inline]
    pub const fn access(self) -> Access {
        match self.tag & 3 {
            0 => Access::Read,
            1 => Access::Write,
            _ => Access::Execute,
        }
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (page, line) = (self.page(), self.line() % (1 << LINE_BITS));
        write!(f, "{:?} {page:#x}:{line} x{} /{}", self.access(), self.references, self.instructions)
    }
}

/// How the memory object behind a mapping may change its size (Navarro et al., section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Growth {
    /// Fixed when it is mapped: code, files, anonymous `mmap`.
    Fixed,
    /// A heap: its end moves ([`Event::Grow`]).
    Up,
    /// A stack: the mapping is its maximum, and it grows down as it is touched.
    Down,
}

/// What backs a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// Zero-filled memory.
    Anonymous,
    /// A file: its number in the trace, its length in pages, and the page of it where the mapping
    /// starts.
    File {
        /// The number of the file; the same file has one number in all processes.
        file: u32,
        /// The length of the file, in 4 KB pages, rounded up.
        file_pages: u64,
        /// The first mapped page of the file.
        offset: u64,
    },
}

/// An event other than an access. Pages and lengths are in 4 KB pages; the process is the current
/// one unless named. The events of files, wired memory, idle time, marks and rewrites came with
/// version 2 of the file format; recorded and imported streams have none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// What follows is done by this thread of this process. The first event of a trace; if the
    /// process was not forked, it exists from here on.
    Switch {
        /// The process.
        process: ProcessId,
        /// The thread, numbered within the trace.
        thread: u32,
    },
    /// A mapping is made. It replaces whatever it overlaps.
    Map {
        /// The first page.
        start: u64,
        /// The number of pages.
        pages: u64,
        /// The rights.
        protection: Protection,
        /// Whether others that map the same object see writes.
        shared: bool,
        /// What backs it.
        backing: Backing,
        /// How it may change its size.
        growth: Growth,
    },
    /// Mappings in the range are removed; holes are no error.
    Unmap {
        /// The first page.
        start: u64,
        /// The number of pages.
        pages: u64,
    },
    /// Rights change in the range; holes are no error.
    Protect {
        /// The first page.
        start: u64,
        /// The number of pages.
        pages: u64,
        /// The new rights.
        protection: Protection,
    },
    /// The contents of the range are discarded, the mappings stay (`MADV_DONTNEED`, `MADV_FREE`).
    Discard {
        /// The first page.
        start: u64,
        /// The number of pages.
        pages: u64,
    },
    /// The growing mapping that starts at `start` is now `pages` long (`brk`); it may also shrink.
    Grow {
        /// The first page of the mapping.
        start: u64,
        /// Its new length; 0 unmaps it.
        pages: u64,
    },
    /// A mapping moves with its contents or changes its length (`mremap`).
    Remap {
        /// The first page before.
        from: u64,
        /// The length before.
        from_pages: u64,
        /// The first page afterwards.
        to: u64,
        /// The length afterwards.
        to_pages: u64,
    },
    /// The current process forks.
    Fork {
        /// The new process.
        child: ProcessId,
    },
    /// The current process executes another program: its mappings are removed.
    Exec,
    /// The current process ends.
    Exit,
    /// The thread goes on on another hardware thread. Only streams on cores have these
    /// ([`OnCores`](crate::OnCores)); in a file it is a note.
    Migrate {
        /// Its number.
        thread: u32,
        /// The number of that: number H is on core H modulo the number of cores.
        to: u32,
    },
    /// In a sampled trace: the accesses of the current thread that were left out since the previous
    /// event of this kind; of those, only first touches and first writes of pages were kept. In
    /// traces of recorders older than [`Event::Phase`], one with both counts 0 begins a gap, and
    /// the one with the counts ends it.
    Skipped {
        /// Data references left out.
        references: u64,
        /// Instructions left out.
        instructions: u64,
    },
    /// Something that a reader should know: what could not be followed, or was lost.
    Note(String),
    /// The process opens a file, perhaps not for the first time. A forked child inherits what its
    /// parent has open, a new program keeps it, and all of it is closed when the process ends.
    ///
    /// The length of a file is the largest that an open, a mapping or a write has stated since it
    /// was created.
    Open {
        /// The number of the file; the same file has one number in all processes.
        file: u32,
        /// Its length in pages, rounded up.
        file_pages: u64,
    },
    /// The process closes one of its opens of a file.
    Close {
        /// The file.
        file: u32,
    },
    /// The kernel reads pages of a file that the process has open into its page cache and copies
    /// from them (`read`).
    Read {
        /// The file.
        file: u32,
        /// The first page of it.
        start: u64,
        /// The number of pages.
        pages: u64,
    },
    /// Whole pages of a file that the process has open are overwritten in the page cache (`write`);
    /// pages beyond its end extend it.
    Write {
        /// The file.
        file: u32,
        /// The first page of it.
        start: u64,
        /// The number of pages.
        pages: u64,
    },
    /// The dirty pages of a file are written out (`fsync`, `msync`).
    Sync {
        /// The file.
        file: u32,
    },
    /// A file that nobody has open or mapped is deleted: its cached pages are dropped, dirty or
    /// not. If its number is used again, that is another file.
    Remove {
        /// The file.
        file: u32,
    },
    /// The kernel allocates pages for its own structures, which it can neither move nor page
    /// out.
    Wire {
        /// The number of pages.
        pages: u64,
    },
    /// The kernel frees the pages that it has held longest by [`Event::Wire`].
    Unwire {
        /// The number of pages.
        pages: u64,
    },
    /// Nothing runs.
    Idle {
        /// For how long.
        microseconds: u64,
    },
    /// A named part of the stream begins, and the previous part ends.
    Mark(String),
    /// What the process writes to these pages from here on is what they already hold; this replaces
    /// the range named before. All other writes change the contents of their pages.
    Rewrite {
        /// The first page.
        start: u64,
        /// The number of pages; 0 if every write changes contents again.
        pages: u64,
    },
    /// Since version 5 of the file format: the process's hint for the range from here on
    /// (madvise(2)), in place of any before; holes are no error, and no mapping changes.
    Advise {
        /// The first page.
        start: u64,
        /// The number of pages.
        pages: u64,
        /// The hint.
        hint: Hint,
    },
    /// Since version 7 of the file format, in streams that say so ([`Info::calls`]): the process
    /// calls the kernel, which runs and returns to it. What a call does to mappings, files and
    /// processes is in events of their own, and a call that one of these stands for whole
    /// ([`Event::Map`], [`Event::Fork`], [`Event::Open`], ...) has none of this kind; one that
    /// reads or writes a file has both ([`Event::Read`]). A call that waits stands where it goes
    /// on, after the switch.
    Call {
        /// The path through the kernel, such as `null` or `pipe-read`: at most [`CALL_BYTES`]
        /// lower-case letters, digits and `-`.
        path: String,
        /// The first byte of the program's buffer.
        at: u64,
        /// How many bytes the kernel copies from the buffer or to it; 0: none.
        bytes: u64,
    },
    /// In a sampled trace, since version 3 of the file format: from here on the current thread is
    /// in this phase of the sample. It precedes the thread's first access.
    Phase {
        /// The phase.
        phase: Phase,
        /// The data references and fetches that its window stands for, if that is not a period of
        /// the [`Sampling`]: at the beginning of a recording. If the window has as many, it is
        /// measured completely.
        period: Option<u64>,
    },
}

/// A piece of a stream: runs, and the events between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The runs, in order.
    pub runs: Vec<Run>,
    /// The events, in order; each comes before the run with its index (`runs.len()`: after the
    /// last).
    pub events: Vec<(u32, Event)>,
}

impl Batch {
    /// The number of runs after which a source ends a batch.
    pub const RUNS: usize = 1 << 14;

    /// Removes everything and keeps the memory.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.events.clear();
    }

    /// Adds a run.
    #[inline]
    pub fn run(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Adds an event after the runs so far.
    pub fn event(&mut self, event: Event) {
        self.events.push((self.runs.len() as u32, event));
    }
}

/// How many of how many accesses a sampled trace keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sampling {
    /// Data references and instruction fetches recorded in each period.
    pub on: u64,
    /// The period, in data references and instruction fetches.
    pub period: u64,
    /// The seed from which the positions of windows were drawn, one in each period, as
    /// [`Event::Phase`] marks them; `None` in a trace older than version 3 of the file format,
    /// where every period begins with its window and phases are not marked.
    pub seed: Option<u64>,
}

impl Sampling {
    /// How many windows are as long as the time from one to the next, rounded up.
    pub fn windows_in_period(self) -> u64 {
        self.period.div_ceil(self.on.max(1))
    }
}

impl Phase {
    /// The phase with this number, in the order of their declaration.
    pub(crate) fn of(number: u64) -> Option<Phase> {
        [Phase::Gap, Phase::Warming, Phase::Measured].into_iter().find(|phase| *phase as u64 == number)
    }
}

impl Sampling {
    /// Where windows are short ([`Info::short_windows`]), each begins with at most this many pages,
    /// those used last in the gap before it.
    pub const SHORT: usize = 8192;

    /// Sampling with window positions drawn now, from the system's random numbers.
    pub fn drawn(on: u64, period: u64) -> Sampling {
        use std::hash::{BuildHasher, RandomState};
        // Seeds are printed in decimal and read by people: a million of them are enough.
        let seed = RandomState::new().hash_one(std::process::id()) % 1_000_000;
        Sampling { on, period, seed: Some(seed) }
    }
}

impl std::str::FromStr for Sampling {
    type Err = String;

    /// `ON/PERIOD`, two counts as in 1M/20M, with window positions drawn now.
    fn from_str(text: &str) -> Result<Sampling, String> {
        let (on, period) = text.split_once('/').ok_or("expected two counts as in 1M/20M")?;
        let (on, period) =
            (parse_count(on).map_err(|e| e.to_string())?, parse_count(period).map_err(|e| e.to_string())?);
        if on == 0 || on > period {
            return Err("expected ON of at least 1 and at most PERIOD".into());
        }
        Ok(Sampling::drawn(on, period))
    }
}

/// What is known of a stream before it is read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// What ran: a command line, or a workload with its parameters.
    pub workload: String,
    /// The sampling, if accesses were left out.
    pub sampling: Option<Sampling>,
    /// Whether instruction fetches are in the stream.
    pub fetches: bool,
    /// Whether the accesses of a run are to one line of 64 bytes, not only to one page.
    pub lines: bool,
    /// Whether system calls are in the stream ([`Event::Call`]).
    pub calls: bool,
    /// Whether runs of writes include the reads of the same page after them, which then have no run
    /// of their own, as in files of versions 1 and 2. Such a stream is exact on machines whose
    /// loads and stores use the same TLBs.
    pub loads_in_writes: bool,
    /// Whether the windows of a sampled stream begin with whatever TLBs held before, as in files
    /// older than version 4. Otherwise each begins with an access to each of the pages that were
    /// used in the gap before it, the most recent last.
    pub cold_windows: bool,
    /// Whether those are at most [`Sampling::SHORT`] pages, as in files older than version 8.
    pub short_windows: bool,
    /// Whether those are the pages that all threads of the process used, as in recordings made
    /// before each thread had its own.
    pub mixed_windows: bool,
    /// The number of runs to come, if known; only for showing progress.
    pub runs: Option<u64>,
    /// Bytes of memory that reading the stream will take, in addition to batches: what a built-in
    /// workload keeps of its program's data, allocated when the stream begins.
    pub memory: u64,
    /// The cores on which its threads run ([`OnCores`](crate::OnCores)); 0: all take turns on one,
    /// in the order of the stream. No file has cores.
    pub cores: u32,
    /// The hardware threads of each of these cores.
    pub siblings: u32,
    /// Known at the end: the stream was cut off before its processes ended.
    pub cut: bool,
}

/// Where events come from: a trace file, a built-in workload, or a running program.
pub trait Source: Send {
    /// What is known before reading.
    fn info(&self) -> &Info;

    /// Clears `batch` and fills it with the next piece of the stream. Returns `false` at the end,
    /// with `batch` left empty.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, crate::Error>;

    /// A digest of what was read so far of a trace file; `None` for other sources.
    fn digest(&self) -> Option<String> {
        None
    }
}
