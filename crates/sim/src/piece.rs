//! One piece of the stream, made ready for all points of a grid: runs between marks, and their requests for each size of
//! base page.

use crate::requests::{Course, Requests};
use std::collections::BTreeMap;
use superpage_pages::Access;
use superpage_trace::{Batch, Error, Event, Run, Source};

/// What part of a sampled stream the accesses that follow belong to. An unsampled stream is [`Phase::Measured`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The first half of a window of recorded accesses: caches and TLBs take on what the gap before has changed.
    Warming,
    /// The second half of the window: what ratios are taken from.
    Measured,
    /// A gap, of which only first touches and first writes are kept.
    Gap,
}

/// What happens between two runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// The event with this index in the batch.
    Event(usize),
    /// Another phase begins.
    Phase(Phase),
}

/// What some runs come to.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Done {
    /// Data references.
    pub(crate) references: u64,
    /// Instructions.
    pub(crate) instructions: u64,
    /// Data references and instruction fetches.
    pub(crate) accesses: u64,
}

impl Done {
    fn of(runs: &[Run]) -> Done {
        let mut done = Done::default();
        for run in runs {
            let count = u64::from(run.references);
            done.accesses += count;
            done.references += if run.access() == Access::Execute { 0 } else { count };
            done.instructions += u64::from(run.instructions);
        }
        done
    }
}

/// The runs between two marks, as counts, and the second mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// Where its runs begin in the batch.
    pub(crate) start: usize,
    /// Where they end.
    pub(crate) end: usize,
    /// What they come to.
    pub(crate) done: Done,
    /// What follows; `None` at the end of the batch.
    pub(crate) mark: Option<Mark>,
}

/// A batch and all that is derived from it once for all points.
pub(crate) struct Piece {
    pub(crate) batch: Batch,
    pub(crate) stretches: Vec<Stretch>,
    requests: Vec<Requests>,
}

/// Follows the phases of a sampled stream; each thread has its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    /// Half a window, in accesses; `None` for a stream that is not sampled.
    half: Option<u64>,
    threads: BTreeMap<u32, Thread>,
    current: u32,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    phase: Phase,
    /// Accesses since the window began.
    accesses: u64,
}

impl Phases {
    pub(crate) fn new(source: &dyn Source) -> Phases {
        let half = source.info().sampling.filter(|sampling| sampling.on < sampling.period).map(|s| s.on / 2);
        Phases { half, ..Phases::default() }
    }

    /// The phase in which every stream begins.
    pub(crate) fn first(&self) -> Phase {
        if self.half.is_some() { Phase::Warming } else { Phase::Measured }
    }

    fn thread(&mut self) -> &mut Thread {
        let phase = self.first();
        self.threads.entry(self.current).or_insert(Thread { phase, accesses: 0 })
    }

    /// Takes in an event; the phase that begins with it, if one does.
    fn event(&mut self, event: &Event) -> Option<Phase> {
        self.half?;
        let before = self.thread().phase;
        match event {
            Event::Switch { thread, .. } => self.current = *thread,
            Event::Skipped { references: 0, instructions: 0 } => self.thread().phase = Phase::Gap,
            Event::Skipped { .. } => *self.thread() = Thread { phase: Phase::Warming, accesses: 0 },
            _ => {}
        }
        Some(self.thread().phase).filter(|phase| *phase != before)
    }
}

impl Piece {
    pub(crate) fn new(shifts: &[u32]) -> Piece {
        let requests = shifts.iter().map(|shift| Requests::new(*shift)).collect();
        Piece { batch: Batch::default(), stretches: Vec::new(), requests }
    }

    /// Takes the next batch of `source`; `false` at its end.
    /// `courses` are those of the sizes of base page, in the order in which [`Piece::new`] was given them.
    pub(crate) fn fill(
        &mut self,
        source: &mut dyn Source,
        phases: &mut Phases,
        courses: &mut [Course],
    ) -> Result<bool, Error> {
        let more = source.fill(&mut self.batch)?;
        self.stretch(phases);
        for (requests, course) in self.requests.iter_mut().zip(courses) {
            requests.prepare(&self.batch, &self.stretches, course);
        }
        Ok(more)
    }

    fn stretch(&mut self, phases: &mut Phases) {
        self.stretches.clear();
        let mut from = 0;
        for index in 0..self.batch.events.len() {
            let to = self.batch.events[index].0 as usize;
            from = self.warm(from, to, phases);
            self.stretches.push(stretch(&self.batch, from, to, Some(Mark::Event(index))));
            from = to;
            if let Some(phase) = phases.event(&self.batch.events[index].1) {
                self.stretches.push(stretch(&self.batch, from, from, Some(Mark::Phase(phase))));
            }
        }
        let end = self.batch.runs.len();
        from = self.warm(from, end, phases);
        self.stretches.push(stretch(&self.batch, from, end, None));
    }

    /// Marks where the first half of a window ends among the runs of the range; the index from which runs are left.
    fn warm(&mut self, from: usize, to: usize, phases: &mut Phases) -> usize {
        let Some(half) = phases.half else { return from };
        let thread = phases.thread();
        if thread.phase != Phase::Warming {
            return from;
        }
        for index in from..to {
            thread.accesses += u64::from(self.batch.runs[index].references);
            if thread.accesses >= half {
                thread.phase = Phase::Measured;
                self.stretches.push(stretch(&self.batch, from, index + 1, Some(Mark::Phase(Phase::Measured))));
                return index + 1;
            }
        }
        from
    }

    /// The requests for machines whose base page has `base_shift` bits.
    pub(crate) fn requests(&self, base_shift: u32) -> &Requests {
        self.requests.iter().find(|requests| requests.base_shift() == base_shift).expect("one for each base page size")
    }

    /// What is done of stretch number `index` when its request number `request` cannot be carried out. O(runs).
    pub(crate) fn until(&self, base_shift: u32, index: usize, request: usize) -> Done {
        let stretch = &self.stretches[index];
        let runs = &self.batch.runs[stretch.start..stretch.end];
        Done::of(&runs[..self.requests(base_shift).run_of(index, runs, request)])
    }
}

fn stretch(batch: &Batch, start: usize, end: usize, mark: Option<Mark>) -> Stretch {
    Stretch { start, end, done: Done::of(&batch.runs[start..end]), mark }
}
