//! What all workloads share: a program that does its work in steps, and the source that turns the
//! steps into batches.

use super::parameters::Values;
use crate::{Backing, Batch, Error, Event, Growth, Info, ProcessId, Run, Source, TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};
use superpage_pages::{Access, Protection};

/// Bytes in a page of a trace.
pub(super) const PAGE: u64 = 1 << TRACE_PAGE_SHIFT;

/// Where a workload's first region starts unless the layout is the point: aligned to 1 GB, the
/// largest page of any machine here.
pub(super) const REGION: u64 = 1 << 30;

/// Where the next region starts after `bytes` from `start` on: at the next multiple of [`REGION`].
pub(super) fn next_region(start: u64, bytes: u64) -> u64 {
    (start + bytes).next_multiple_of(REGION)
}

/// A workload at work.
pub(super) trait Program: Send {
    /// Does the next piece of work; `false` once nothing is left, when nothing may have been added.
    ///
    /// A piece should add no more than a few times [`Batch::RUNS`] runs.
    fn step(&mut self, out: &mut Out) -> bool;
}

/// Where a program puts its accesses and events. Consecutive data accesses to a page, or to a line
/// in a stream with lines, become a run of loads and one of stores, as [`Run`] says: both are
/// *units* here.
pub(super) struct Out {
    /// The bits of a byte's place in a unit.
    shift: u32,
    batch: Batch,
    /// The last runs of loads and of stores, on one unit: the next access may still belong to one
    /// of them.
    open: [Option<usize>; 2],
    /// The last run of fetches, which the next may continue.
    fetching: Option<usize>,
    /// Runs from the first open one on, kept out of the batch that has ended.
    kept: Vec<Run>,
}

#[cfg(test)]
impl Default for Out {
    fn default() -> Out {
        Out::new(false)
    }
}

impl Out {
    /// With units of a page, or of a line.
    fn new(lines: bool) -> Out {
        let shift = if lines { TRACE_LINE_SHIFT } else { TRACE_PAGE_SHIFT };
        Out { shift, batch: Batch::default(), open: [None; 2], fetching: None, kept: Vec::new() }
    }

    /// The bytes of a unit: whoever goes through memory in order does so unit by unit.
    pub(super) fn unit(&self) -> u64 {
        1 << self.shift
    }

    /// The first line of the unit of an address.
    #[inline]
    fn line(&self, address: u64) -> u64 {
        line(address, self.shift)
    }

    /// Adds loads or stores of so many words of 8 bytes from an address on, each with so many
    /// instructions.
    pub(super) fn words(&mut self, address: u64, access: Access, words: u64, instructions: u32) {
        let (mut at, end) = (address, address + 8 * words);
        while at < end {
            let in_unit = (self.unit() - at % self.unit()).min(end - at).div_ceil(8);
            self.data(at, access, in_unit as u32, in_unit as u32 * instructions);
            at += 8 * in_unit;
        }
    }

    /// Adds `references` consecutive loads or stores within a unit; `instructions` is what they and
    /// the work around them stand for.
    #[inline]
    pub(super) fn data(&mut self, address: u64, access: Access, references: u32, instructions: u32) {
        let line = self.line(address);
        let kind = usize::from(access == Access::Write);
        if let Some(open) = self.open[kind] {
            let run = &mut self.batch.runs[open];
            let room = run.references <= u32::MAX - references && run.instructions <= u32::MAX - instructions;
            // A count that would overflow starts a new run: the one case in which a unit has two of
            // a kind.
            if run.line() == line && room {
                run.references += references;
                run.instructions += instructions;
                return;
            }
        }
        self.open[1 - kind].take_if(|other| access == Access::Write || self.batch.runs[*other].line() != line);
        self.open[kind] = Some(self.batch.runs.len());
        self.batch.run(Run::on_line(line, access, references, instructions));
    }

    /// Adds data runs as they are, as [`Out::data`] takes them: each on another unit than the one
    /// before it, the first on another than the open runs. Quicker than [`Out::data`] where that is
    /// known.
    #[inline]
    pub(super) fn distinct(&mut self, runs: impl Iterator<Item = (u64, Access, u32, u32)>) {
        let (before, shift) = (self.batch.runs.len(), self.shift);
        self.batch.runs.extend(runs.map(|(address, access, references, instructions)| {
            Run::on_line(line(address, shift), access, references, instructions)
        }));
        if let Some(last) = self.batch.runs[before..].last() {
            let kind = usize::from(last.access() == Access::Write);
            self.open = [None; 2];
            self.open[kind] = Some(self.batch.runs.len() - 1);
        }
    }

    /// Adds the fetches of straight code from an address on. Instructions have 4 bytes.
    pub(super) fn code(&mut self, address: u64, instructions: u32) {
        let (mut at, end) = (address, address + 4 * u64::from(instructions));
        while at < end {
            let bytes = (self.unit() - at % self.unit()).min(end - at);
            self.fetches(at, (bytes / 4) as u32);
            at += bytes;
        }
    }

    /// Adds the fetches of code that runs once, from the start of a page on. Instructions have 4
    /// bytes.
    pub(super) fn fetch_once(&mut self, page: u64, instructions: u32) {
        self.code(page * PAGE, instructions);
    }

    /// Adds the fetches of a loop at the start of a page.
    pub(super) fn fetch(&mut self, page: u64, instructions: u32) {
        self.fetches(page * PAGE, instructions);
    }

    /// Adds `count` fetches within a unit.
    fn fetches(&mut self, address: u64, count: u32) {
        let line = self.line(address);
        if let Some(last) = self.fetching.map(|last| &mut self.batch.runs[last])
            && last.line() == line
            && last.references <= u32::MAX - count
        {
            last.references += count;
            last.instructions += count;
            return;
        }
        self.fetching = Some(self.batch.runs.len());
        self.batch.run(Run::on_line(line, Access::Execute, count, count));
    }

    /// Adds an event. No run reaches over it.
    pub(super) fn event(&mut self, event: Event) {
        (self.open, self.fetching) = ([None; 2], None);
        self.batch.event(event);
    }

    /// The runs of the batch so far.
    #[cfg(test)]
    pub(super) fn runs(&self) -> &[Run] {
        &self.batch.runs
    }

    /// Adds the event that begins every workload.
    pub(super) fn begin(&mut self) {
        self.event(Event::Switch { process: ProcessId(0), thread: 0 });
    }

    /// Maps fixed anonymous memory to be read and written; `start` and `bytes` are in bytes, the
    /// end is rounded up.
    pub(super) fn map_anonymous(&mut self, start: u64, bytes: u64) {
        self.event(Event::Map {
            start: start / PAGE,
            pages: bytes.div_ceil(PAGE),
            protection: Protection::READ_WRITE,
            shared: false,
            backing: Backing::Anonymous,
            growth: Growth::Fixed,
        });
    }

    /// Unmaps a range, in bytes, and ends the process.
    pub(super) fn unmap_and_exit(&mut self, start: u64, bytes: u64) {
        self.event(Event::Unmap { start: start / PAGE, pages: bytes.div_ceil(PAGE) });
        self.event(Event::Exit);
    }
}

/// The first line of the unit of an address.
#[inline]
fn line(address: u64, shift: u32) -> u64 {
    address >> shift << (shift - TRACE_LINE_SHIFT)
}

/// A sequential pass over a region, one run for each of its units: how memory is filled before the
/// work proper.
pub(super) struct Pass {
    /// The next byte and the end; the next is a page's first, or the end.
    next: u64,
    end: u64,
    step: u64,
    instructions: u32,
    access: Access,
}

impl Pass {
    /// A pass over `bytes` from `start`, a page's first byte, with one access for each `step`
    /// bytes, a divisor of a page, and `instructions` for each access.
    pub(super) fn new(start: u64, bytes: u64, step: u64, access: Access, instructions: u32) -> Pass {
        Pass { next: start, end: start + bytes, step, instructions, access }
    }

    /// A pass of 8-byte stores, 3 instructions each: store, advance, branch.
    pub(super) fn populate(start: u64, bytes: u64) -> Pass {
        Pass::new(start, bytes, 8, Access::Write, 3)
    }

    /// The pages that are left.
    pub(super) fn pages(&self) -> u64 {
        (self.end - self.next).div_ceil(PAGE)
    }

    /// Goes on for at most a batch; `false` when nothing was left.
    pub(super) fn step(&mut self, out: &mut Out) -> bool {
        let some = self.next < self.end;
        let stride = out.unit().max(self.step);
        for _ in 0..(self.end - self.next).div_ceil(stride).min(Batch::RUNS as u64) {
            let bytes = stride.min(self.end - self.next);
            let references = bytes.div_ceil(self.step) as u32;
            out.data(self.next, self.access, references, references * self.instructions);
            self.next += bytes;
        }
        some
    }
}

/// Anonymous memory that grows upward in steps: the heap of `brk`, or mappings that Linux merges
/// because each is made next to the one before it.
pub(super) struct Growing {
    start: u64,
    step: u64,
    mapped: u64,
    used: u64,
}

impl Growing {
    /// From `start` on in steps of `step` bytes, both multiples of a page; nothing is mapped yet.
    pub(super) fn new(start: u64, step: u64) -> Growing {
        Growing { start, step, mapped: 0, used: 0 }
    }

    /// Returns the address of the next `bytes`, for which the mapping grows if it must.
    pub(super) fn take(&mut self, out: &mut Out, bytes: u64) -> u64 {
        let address = self.start + self.used;
        self.used += bytes;
        if self.used > self.mapped {
            let (first, start) = (self.mapped == 0, self.start / PAGE);
            self.mapped = self.used.next_multiple_of(self.step);
            let pages = self.mapped / PAGE;
            let (protection, backing) = (Protection::READ_WRITE, Backing::Anonymous);
            out.event(if first {
                Event::Map { start, pages, protection, shared: false, backing, growth: Growth::Up }
            } else {
                Event::Grow { start, pages }
            });
        }
        address
    }
}

/// A program as a source.
pub(super) struct Running<P> {
    info: Info,
    program: P,
    out: Out,
}

impl<P: Program + 'static> Running<P> {
    /// The program as a source; `runs` is about how many runs it will give.
    pub(super) fn start(values: &Values, program: P, fetches: bool, runs: u64) -> Box<dyn Source> {
        Running::described(values, program, Info { fetches, runs: Some(runs), ..Info::default() })
    }

    /// The program as a source of which `info` says whether there are fetches and system calls, and
    /// about how many runs.
    pub(super) fn described(values: &Values, program: P, info: Info) -> Box<dyn Source> {
        let lines = values.lines;
        // Nobody has counted the runs of lines.
        let runs = info.runs.filter(|_| !lines);
        let info = Info { workload: values.label(), lines, runs, ..info };
        Box::new(Running { info, program, out: Out::new(lines) })
    }
}

impl<P: Program> Source for Running<P> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        let out = &mut self.out;
        std::mem::swap(batch, &mut out.batch);
        out.batch.runs.append(&mut out.kept);
        let mut going = true;
        while going && out.batch.runs.len() < Batch::RUNS {
            going = self.program.step(out);
        }
        match out.open.iter().flatten().min().copied() {
            Some(first) if going => {
                out.kept.extend(out.batch.runs.drain(first..));
                out.open = out.open.map(|open| Some(open? - first));
                out.fetching = out.fetching.and_then(|last| last.checked_sub(first));
            }
            _ => (out.open, out.fetching) = ([None; 2], None),
        }
        std::mem::swap(batch, &mut out.batch);
        Ok(!batch.runs.is_empty() || !batch.events.is_empty())
    }
}
