//! What all workloads share: a program that does its work in steps, and the source that turns the steps into batches.

use super::parameters::Values;
use crate::{Backing, Batch, Error, Event, Growth, Info, ProcessId, Run, Source, TRACE_PAGE_SHIFT};
use superpage_pages::{Access, Protection};

/// Bytes in a page of a trace.
pub(super) const PAGE: u64 = 1 << TRACE_PAGE_SHIFT;

/// Where a workload's first region starts unless the layout is the point: aligned to 1 GB, the largest page of any
/// machine here.
pub(super) const REGION: u64 = 1 << 30;

/// A workload at work.
pub(super) trait Program: Send {
    /// Does the next piece of work; `false` once nothing is left, when nothing may have been added.
    ///
    /// A piece should add no more than a few times [`Batch::RUNS`] runs.
    fn step(&mut self, out: &mut Out) -> bool;
}

/// Where a program puts its accesses and events. Consecutive data accesses to a page become a run of loads and one of
/// stores, as [`Run`] says.
#[derive(Default)]
pub(super) struct Out {
    batch: Batch,
    /// The last runs of loads and of stores, on one page: the next access may still belong to one of them.
    open: [Option<usize>; 2],
    /// Runs from the first open one on, kept out of the batch that has ended.
    kept: Vec<Run>,
}

impl Out {
    /// Adds `references` consecutive loads or stores within a page; `instructions` is what they and the work around them
    /// stand for.
    #[inline]
    pub(super) fn data(&mut self, page: u64, access: Access, references: u32, instructions: u32) {
        let kind = usize::from(access == Access::Write);
        if let Some(open) = self.open[kind] {
            let run = &mut self.batch.runs[open];
            let room = run.references <= u32::MAX - references && run.instructions <= u32::MAX - instructions;
            // A count that would overflow starts a new run: the one case in which a page has two of a kind.
            if run.page() == page && room {
                run.references += references;
                run.instructions += instructions;
                return;
            }
        }
        self.open[1 - kind].take_if(|other| access == Access::Write || self.batch.runs[*other].page() != page);
        self.open[kind] = Some(self.batch.runs.len());
        self.batch.run(Run::new(page, access, references, instructions));
    }

    /// Adds data runs as they are: each on another page than the one before it, the first on another than the open runs.
    /// Quicker than [`Out::data`] where that is known.
    #[inline]
    pub(super) fn distinct(&mut self, runs: impl Iterator<Item = Run>) {
        let before = self.batch.runs.len();
        self.batch.runs.extend(runs);
        if let Some(last) = self.batch.runs[before..].last() {
            let kind = usize::from(last.access() == Access::Write);
            self.open = [None; 2];
            self.open[kind] = Some(self.batch.runs.len() - 1);
        }
    }

    /// Adds one instruction run; the caller sees to it that the one before it was on another page.
    pub(super) fn fetch(&mut self, page: u64, instructions: u32) {
        self.batch.run(Run::new(page, Access::Execute, instructions, instructions));
    }

    /// Adds an event. No run reaches over it.
    pub(super) fn event(&mut self, event: Event) {
        self.open = [None; 2];
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

    /// Maps fixed anonymous memory to be read and written; `start` and `bytes` are in bytes, the end is rounded up.
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

/// A sequential pass over a region, one run for each of its pages: how memory is filled before the work proper.
pub(super) struct Pass {
    /// The next byte and the end; the next is a page's first, or the end.
    next: u64,
    end: u64,
    step: u64,
    instructions: u32,
    access: Access,
}

impl Pass {
    /// A pass over `bytes` from `start`, a page's first byte, with one access for each `step` bytes, a divisor of a page,
    /// and `instructions` for each access.
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
        for _ in 0..self.pages().min(Batch::RUNS as u64) {
            let bytes = PAGE.min(self.end - self.next);
            let references = bytes.div_ceil(self.step) as u32;
            out.data(self.next / PAGE, self.access, references, references * self.instructions);
            self.next += bytes;
        }
        some
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
        let info = Info { workload: values.label(), fetches, runs: Some(runs), ..Info::default() };
        Box::new(Running { info, program, out: Out::default() })
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
            }
            _ => out.open = [None; 2],
        }
        std::mem::swap(batch, &mut out.batch);
        Ok(!batch.runs.is_empty() || !batch.events.is_empty())
    }
}
