//! The event stream: what happens to memory, in order, from whatever source.

use crate::Phase;
use superpage_pages::{Access, Protection};

/// Page numbers in a trace count pages of this many bits, whatever machine the trace came from or runs on.
pub const TRACE_PAGE_SHIFT: u32 = 12;

/// The number of a process in a trace. The first is 0; numbers are not used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId(pub u32);

/// Accesses of one kind to one page of 4 KB by the current process while their stream stays on that page.
///
/// Data accesses (reads and writes) and instruction fetches are two streams. While the data stream stays on a page, its
/// writes there are one run, its reads before the first write another, and its reads after it a third; all end when it
/// goes to another page. A run stands in the stream at its first access. So however often a program reads and writes a
/// page in turn, it has at most three runs there.
///
/// Only the first access of a run can miss in a TLB, change one, set a use bit or fault, on any machine with pages of at
/// least 4 KB, whatever its TLBs serve and replace, as long as none that is the first asked for data is asked for fetches
/// too. For the first read asks TLBs until one holds the page, and the nearest then has it as the entry used last. Until
/// the run ends that TLB is asked for this page only, by reads or, where it serves them too, by writes, so every further
/// read hits there, changes neither contents nor order, and asks nothing behind it; for writes likewise. (Those behind may
/// change meanwhile, by fetches.) The mapping itself can change under the stream at the first write only, by a trap, which
/// is where reads begin a new run: a write that succeeded leaves nothing for later reads to trap on.
///
/// Where an outer level encloses nearer ones *and* serves data and fetches, a fetch may take a page from under a run; that
/// is not seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Run {
    /// `page << 2 | kind`.
    tag: u64,
    /// Accesses in the run, at least 1: loads and stores, or for [`Access::Execute`] instruction fetches.
    pub references: u32,
    /// Instructions that the run stands for: for [`Access::Execute`] those fetched; for data 0 in a process whose
    /// fetches are in the trace, else the instructions since the run before.
    pub instructions: u32,
}

impl Run {
    /// A run of `references` accesses to the page with number `page` (below 2^62).
    pub const fn new(page: u64, access: Access, references: u32, instructions: u32) -> Run {
        Run { tag: page << 2 | access as u64, references, instructions }
    }

    /// The number of the 4 KB page.
    #[inline]
    pub const fn page(self) -> u64 {
        self.tag >> 2
    }

    /// The kind of all accesses of the run; see [`Info::loads_in_writes`] for those of old files.
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
        write!(f, "{:?} {:#x} x{} /{}", self.access(), self.page(), self.references, self.instructions)
    }
}

/// How the memory object behind a mapping may change its size (Navarro et al., section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Growth {
    /// Fixed when it is mapped: code, files, anonymous `mmap`.
    Fixed,
    /// A heap: its end moves, by [`Event::Grow`].
    Up,
    /// A stack: the mapping is the most it may take, and it grows down as it is touched.
    Down,
}

/// What lies behind a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// Zero-filled memory.
    Anonymous,
    /// A file: its number in the trace, its length in pages, and the page of it where the mapping starts.
    File {
        /// The number of the file; the same file has one number in all processes.
        file: u32,
        /// The length of the file, in 4 KB pages, rounded up.
        file_pages: u64,
        /// The first mapped page of the file.
        offset: u64,
    },
}

/// One event that is no access. Pages and lengths are in 4 KB pages; the process is the current one unless named. Those of
/// files, wired memory, idle time, marks and rewrites came with version 2 of the file format; recorded and imported streams
/// have none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// What follows is done by this thread of this process. The first event of a trace; the process exists from here on
    /// if it has not been forked.
    Switch {
        /// The process.
        process: ProcessId,
        /// The thread, numbered within the trace.
        thread: u32,
    },
    /// A mapping is made. It replaces what it overlaps.
    Map {
        /// The first page.
        start: u64,
        /// The number of pages.
        pages: u64,
        /// What may be done with it.
        protection: Protection,
        /// Whether writes are seen by others that map the same object.
        shared: bool,
        /// What lies behind it.
        backing: Backing,
        /// How it may change its size.
        growth: Growth,
    },
    /// Mappings in the range cease; holes are no error.
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
    /// The contents of the range are given up, the mappings stay (`MADV_DONTNEED`, `MADV_FREE`).
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
    /// The current process makes a copy of itself.
    Fork {
        /// The new process.
        child: ProcessId,
    },
    /// The current process starts another program: its mappings cease.
    Exec,
    /// The current process ends.
    Exit,
    /// In a sampled trace: so many accesses of the current thread were left out since the event of this kind before, and only
    /// first touches and first writes of pages kept. Where a recorder of before [`Event::Phase`] made the trace, one with
    /// both counts 0 begins a gap, and the one that tells the counts ends it.
    Skipped {
        /// Data references left out.
        references: u64,
        /// Instructions left out.
        instructions: u64,
    },
    /// Something that a reader should know: what could not be followed or was lost.
    Note(String),
    /// The process opens a file; it may have it open several times. A forked child has open what its parent has, a new
    /// program keeps it, and at the process's end all of it is closed.
    ///
    /// A file is as long as the longest that an open, a mapping or a write has told of it since it was made.
    Open {
        /// The number of the file; the same file has one number in all processes.
        file: u32,
        /// Its length in pages, rounded up.
        file_pages: u64,
    },
    /// The process closes a file once.
    Close {
        /// The file.
        file: u32,
    },
    /// The kernel brings pages of a file that the process has open into its page cache and copies from them (`read`).
    Read {
        /// The file.
        file: u32,
        /// The first page of it.
        start: u64,
        /// The number of pages.
        pages: u64,
    },
    /// Whole pages of a file that the process has open are overwritten in the page cache (`write`); those past its end
    /// make it longer.
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
    /// A file that nobody has open or mapped is deleted: its cached pages are dropped, dirty or not. A file that is given
    /// its number afterwards is another one.
    Remove {
        /// The file.
        file: u32,
    },
    /// The kernel takes pages for structures of its own, which it cannot move or page out.
    Wire {
        /// The number of pages.
        pages: u64,
    },
    /// The kernel gives back the pages that it took longest ago by [`Event::Wire`].
    Unwire {
        /// The number of pages.
        pages: u64,
    },
    /// Nothing runs.
    Idle {
        /// For how long.
        microseconds: u64,
    },
    /// A named part of the stream begins, and what went before ends.
    Mark(String),
    /// What the process writes to these pages from here on is what they hold already; it takes the place of the range
    /// named before. All other writes change the contents of their pages.
    Rewrite {
        /// The first page.
        start: u64,
        /// The number of pages; 0 if every write changes contents again.
        pages: u64,
    },
    /// In a sampled trace, since version 3 of the file format: what the current thread does from here on belongs to this
    /// phase of the sample. It stands before the thread's first access.
    Phase {
        /// Which.
        phase: Phase,
        /// The data references and fetches that its window stands for, where they are not a period of the [`Sampling`]:
        /// at the beginning of a recording. A window that stands for as many as it has is measured whole.
        period: Option<u64>,
    },
}

/// A piece of a stream: runs, and the events between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The runs, in order.
    pub runs: Vec<Run>,
    /// The events, in order; each comes before the run with its index (`runs.len()`: after the last).
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

/// Every how many accesses a sampled trace keeps how many.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sampling {
    /// Data references and instruction fetches recorded in each period.
    pub on: u64,
    /// The period, in data references and instruction fetches.
    pub period: u64,
    /// What the places of windows were drawn from, one in each period, as [`Event::Phase`] tells them; `None` in a trace of
    /// before version 3 of the file format, in which every period begins with its window and phases are not told.
    pub seed: Option<u64>,
}

impl Phase {
    /// The phase with this number, in the order of their declaration.
    pub(crate) fn of(number: u64) -> Option<Phase> {
        [Phase::Gap, Phase::Warming, Phase::Measured].into_iter().find(|phase| *phase as u64 == number)
    }
}

impl Sampling {
    /// A window begins with the pages that were used last in the gap before it: at most so many.
    pub const RECENT: usize = crate::schedule::RECENT;

    /// Sampling with places of windows that are drawn now, by the system's random numbers.
    pub fn drawn(on: u64, period: u64) -> Sampling {
        use std::hash::{BuildHasher, RandomState};
        // Seeds are told in decimal digits and read by people: a million of them will do.
        let seed = RandomState::new().hash_one(std::process::id()) % 1_000_000;
        Sampling { on, period, seed: Some(seed) }
    }
}

/// What is known of a stream before it is read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// What ran: a command line, or a workload with its parameters.
    pub workload: String,
    /// Set if accesses were left out.
    pub sampling: Option<Sampling>,
    /// Whether instruction fetches are in the stream.
    pub fetches: bool,
    /// Whether the runs of writes hold the reads of the same page after them too, which then have no run of their own. Files
    /// of versions 1 and 2 are so. Such a stream is exact on machines whose loads and stores ask the same TLBs.
    pub loads_in_writes: bool,
    /// Whether the windows of a sampled stream begin with whatever TLBs held before: files of before version 4 are so. Else each
    /// begins with an access to each of the pages that were used last in the gap before it.
    pub cold_windows: bool,
    /// Runs to come, if known: for progress only.
    pub runs: Option<u64>,
}

/// Where events come from: a trace file, a built-in workload, a program that runs just now.
pub trait Source: Send {
    /// What is known before reading.
    fn info(&self) -> &Info;

    /// Clears `batch` and fills it with the next piece of the stream; `false` at the end, with `batch` left empty.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, crate::Error>;

    /// A digest of what was read so far of a trace file; `None` for other sources.
    fn digest(&self) -> Option<String> {
        None
    }
}
