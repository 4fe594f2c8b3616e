//! Samples a whole stream as the recorder samples a program.

use crate::event::{Batch, Event, Growth, Info, ProcessId, Run, Sampling, Source};
use crate::schedule::Schedule;
use crate::{Error, Phase};
use hashbrown::HashMap;
use std::ops::Range;
use superpage_pages::{Access, Protection};

/// A run that continues for longer than this many others, with no event between them, is assumed to
/// end there. Recorded runs end sooner, when a thread's buffer of 8192 words is handed over.
const AHEAD: usize = 1 << 14;

/// A phase may change after this many accesses of a run, however long no other begins: the stores
/// that fill a page are one run.
const STEP: u64 = 64;

const TOUCHED: u8 = 1;
const WRITTEN: u8 = 2;

/// A source of which accesses are left out: it keeps what the recorder would have kept of the same
/// program with the same sampling.
///
/// The windows of each thread are drawn from the seed as the recorder draws them
/// (`crates/recorder/src/schedule.rs`). A whole stream says when a run begins, but when it ends
/// only follows from later runs; between two beginnings the accesses of the open runs are assumed
/// to be evenly spread. A window may be up to 64 accesses of each open run too long; the recorder
/// cuts it at the next block of code. Memory: about 20 bytes per touched page. Time: a few
/// nanoseconds per run, and per 64 accesses where a window begins or ends.
///
/// ```
/// use superpage_trace::{Batch, Sample, Sampling, Source, workload};
/// let sampling = Sampling { on: 10_000, period: 100_000, seed: Some(7) };
/// let mut sample = Sample::new(workload::parse("zipf:bytes=16M,references=1M")?, sampling);
/// let (mut batch, mut kept) = (Batch::default(), 0);
/// while sample.fill(&mut batch)? {
///     kept += batch.runs.iter().map(|run| u64::from(run.references)).sum::<u64>();
/// }
/// assert!(kept < 400_000); // of some 3 million
/// # Ok::<(), superpage_trace::Error>(())
/// ```
pub struct Sample {
    inner: Box<dyn Source>,
    info: Info,
    sampling: Sampling,
    /// The batch that was read and is being processed.
    whole: Batch,
    next: Batch,
    /// The first run of `whole` that was not processed; some of those before it are still open.
    done: usize,
    /// Where each run of `whole` ends: the index of the run at whose beginning it is over.
    ends: Vec<usize>,
    threads: HashMap<u32, Thread>,
    thread: u32,
    process: ProcessId,
    /// The marks of touched pages.
    touched: HashMap<ProcessId, HashMap<u64, u8>>,
    /// The last stamp.
    clock: u64,
    /// The pages of mappings that grow up, by their first.
    heaps: HashMap<(ProcessId, u64), u64>,
    /// The open runs of `whole`, and their places in the sample if they are in it.
    open: Vec<Open>,
    ended: bool,
}

#[derive(Clone, Copy)]
struct Open {
    /// Its index in the whole batch.
    run: usize,
    /// Its index in the sample's batch.
    kept: Option<usize>,
    /// Whether it is left out until its phase ends.
    left_out: bool,
}

/// One of so many parts of the time between the beginnings of run `index` and of the next.
#[derive(Clone, Copy)]
struct Moment {
    index: usize,
    part: u64,
    of: u64,
}

struct Thread {
    process: ProcessId,
    /// When it last used each page in the gap, by loads and stores and by fetches; 0: not since its
    /// last window.
    used: HashMap<u64, [u64; 2]>,
    schedule: Schedule,
    phase: Phase,
    /// Accesses until the phase changes; overshoot is taken from the next phase.
    left: i64,
    /// Data references and instructions left out that were not reported yet.
    skipped: [u64; 2],
}

impl Sample {
    /// Samples `inner`, a whole stream, as `sampling` says. A sampling that leaves nothing out
    /// changes nothing.
    pub fn new(inner: Box<dyn Source>, sampling: Sampling) -> Sample {
        // Ends of runs are found by page, and windows cannot warm caches.
        let info = Info {
            sampling: Some(sampling),
            cold_windows: false,
            short_windows: false,
            mixed_windows: false,
            lines: false,
            runs: None,
            ..inner.info().clone()
        };
        Sample {
            inner,
            info,
            sampling,
            whole: Batch::default(),
            next: Batch::default(),
            done: 0,
            ends: Vec::new(),
            threads: HashMap::new(),
            thread: 0,
            process: ProcessId(0),
            touched: HashMap::new(),
            clock: 0,
            heaps: HashMap::new(),
            open: Vec::new(),
            ended: false,
        }
    }

    /// Processes the runs of `whole` before `stop`. The event after them is at `end`, or the batch
    /// ends there.
    fn runs(&mut self, stop: usize, end: usize, batch: &mut Batch) {
        if self.done == stop {
            return;
        }
        let (thread, process) = (self.thread, self.process);
        let first = self.threads.is_empty();
        let mut state = self.threads.remove(&thread).unwrap_or_else(|| {
            let Sampling { on, period, seed } = self.sampling;
            let stream = (u64::from(process.0) << 32) | u64::from(thread);
            let schedule = Schedule::new(on, period, seed.unwrap_or(0), stream);
            let schedule = if first { schedule.with_beginning() } else { schedule };
            Thread { process, used: HashMap::new(), schedule, phase: Phase::Gap, left: 0, skipped: [0; 2] }
        });
        self.find_ends(self.open.iter().map(|open| open.run).min().unwrap_or(self.done), end);
        for index in self.done..stop {
            for place in (0..self.open.len()).rev() {
                if self.ends[self.open[place].run] <= index {
                    let over = self.open.remove(place);
                    self.stamp(&mut state, over.run);
                }
            }
            self.turn_if_due(&mut state, batch);
            self.open.insert(0, Open { run: index, kept: None, left_out: false });
            let of = self.parts(&state);
            for part in 0..of {
                if part > 0 {
                    self.turn_if_due(&mut state, batch);
                }
                for place in 0..self.open.len() {
                    self.take(place, Moment { index, part, of }, &mut state, batch);
                }
            }
        }
        self.done = stop;
        self.threads.insert(thread, state);
    }

    /// Finds where each of the runs ends.
    fn find_ends(&mut self, start: usize, end: usize) {
        self.ends.resize(self.whole.runs.len(), 0);
        let mut open: [Option<usize>; 3] = [None; 3];
        for index in start..end {
            let run = self.whole.runs[index];
            for (kind, place) in open.iter_mut().enumerate() {
                let Some(other) = *place else { continue };
                let fetches = (kind == Access::Execute as usize, run.access() == Access::Execute);
                let over = match fetches {
                    (true, true) => true,
                    (false, false) => kind == run.access() as usize || self.whole.runs[other].page() != run.page(),
                    _ => false,
                };
                if over {
                    self.ends[other] = index.min(other + AHEAD);
                    *place = None;
                }
            }
            open[run.access() as usize] = Some(index);
        }
        for index in open.into_iter().flatten() {
            self.ends[index] = end.min(index + AHEAD);
        }
    }

    /// Begins the next phase if this one's accesses are used up: all open runs are cut.
    fn turn_if_due(&mut self, state: &mut Thread, batch: &mut Batch) {
        if state.left > 0 {
            return;
        }
        for place in (0..self.open.len()).rev() {
            self.stamp(state, self.open[place].run);
        }
        self.turn(state, batch);
        self.open.iter_mut().for_each(|open| (open.kept, open.left_out) = (None, false));
    }

    /// In how many parts the time between the beginnings of the newest run and of the next is
    /// taken: in one, unless the phase may change within.
    fn parts(&self, state: &Thread) -> u64 {
        let most = |open: &Open| {
            let steps = (self.ends[open.run] - open.run) as u64;
            u64::from(self.whole.runs[open.run].references).div_ceil(steps)
        };
        let most = self.open.iter().map(most).max().unwrap_or(0);
        let all = (most as i64).saturating_mul(self.open.len() as i64);
        if state.left > all { 1 } else { most.div_ceil(STEP).max(1) }
    }

    /// Takes what the open run at `place` does now.
    fn take(&mut self, place: usize, now: Moment, state: &mut Thread, batch: &mut Batch) {
        let Moment { index, part, of } = now;
        let open = self.open[place];
        let run = self.whole.runs[open.run];
        let (step, steps) = ((index - open.run) as u64 * of + part, (self.ends[open.run] - open.run) as u64 * of);
        // The first access is where the run begins; instructions come with the references.
        let all = u64::from(run.references);
        let share = |step: u64| (u128::from(all - 1) * u128::from(step) / u128::from(steps)) as u64;
        let done = |step: u64| if step == 0 { 0 } else { 1 + share(step) };
        let (before, after) = (done(step), done(step + 1));
        let passed = |references: u64| (u128::from(run.instructions) * u128::from(references) / u128::from(all)) as u32;
        let references = (after - before) as u32;
        let mut instructions = passed(after) - passed(before);
        if references == 0 {
            return;
        }
        state.left -= i64::from(references);
        if let Some(kept) = open.kept {
            batch.runs[kept].references += references;
            batch.runs[kept].instructions += instructions;
            return;
        }
        let (mut left_out, recording) = (references, state.phase != Phase::Gap);
        if !open.left_out {
            let news = self.mark(run);
            if recording || news {
                let count = if recording { references } else { 1 };
                left_out -= count;
                let own = match (recording, run.access()) {
                    (false, Access::Execute) => instructions.min(1),
                    _ => instructions,
                };
                instructions -= own;
                self.open[place].kept = recording.then_some(batch.runs.len());
                batch.run(Run::new(run.page(), run.access(), count, own));
            }
            self.open[place].left_out = !recording;
        }
        state.skipped[0] += if run.access() == Access::Execute { 0 } else { u64::from(left_out) };
        state.skipped[1] += u64::from(instructions) * u64::from(!recording);
    }

    /// Begins the next phase or, if a run was longer than that, the one after it. A window begins
    /// with the pages used in the gap before it, each replacing one access that was left out.
    fn turn(&mut self, state: &mut Thread, batch: &mut Batch) {
        let (gap, mut period, mut recent) = (state.phase == Phase::Gap, None, Vec::new());
        while state.left <= 0 {
            let next = state.schedule.next();
            state.left += next.length as i64;
            (state.phase, period) = (next.phase, next.period);
        }
        if gap && state.phase != Phase::Gap {
            recent = state.recent();
        }
        state.tell_skipped(batch);
        if !recent.is_empty() {
            batch.event(Event::Phase { phase: Phase::Warming, period });
        }
        recent.into_iter().for_each(|run| batch.run(run));
        // What follows continues none of these runs.
        batch.event(Event::Phase { phase: state.phase, period });
    }

    /// Records that the page of a run was used just now, if accesses are being left out.
    fn stamp(&mut self, state: &mut Thread, run: usize) {
        let run = self.whole.runs[run];
        if state.phase == Phase::Gap {
            self.clock += 1;
            state.used.entry(run.page()).or_default()[usize::from(run.access() == Access::Execute)] = self.clock;
        }
    }

    /// Marks the page of a run as touched or written. Returns whether that is new.
    fn mark(&mut self, run: Run) -> bool {
        let marks = self.touched.entry(self.process).or_default().entry(run.page()).or_default();
        let new = *marks | if run.access() == Access::Write { TOUCHED | WRITTEN } else { TOUCHED };
        std::mem::replace(marks, new) != new
    }

    fn forget(&mut self, start: u64, pages: u64) {
        let range = start..start.saturating_add(pages);
        self.touched.get_mut(&self.process).into_iter().for_each(|touched| remove(touched, &range));
        self.own_threads().for_each(|thread| remove(&mut thread.used, &range));
    }

    /// The threads of the current process.
    fn own_threads(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.threads.values_mut().filter(|thread| thread.process == self.process)
    }

    /// Applies new rights to a range: pages that may no longer be read, or executed, do not count
    /// as recently used.
    fn restrict(&mut self, start: u64, pages: u64, protection: Protection) {
        let range = start..start.saturating_add(pages);
        for (stream, access) in [Access::Read, Access::Execute].into_iter().enumerate() {
            if !protection.allows(access) {
                let used = self.own_threads().flat_map(|thread| &mut thread.used);
                used.filter(|(page, _)| range.contains(page)).for_each(|(_, stamps)| stamps[stream] = 0);
            }
        }
    }

    fn event(&mut self, event: &Event, batch: &mut Batch) {
        match *event {
            Event::Switch { process, thread } => (self.process, self.thread) = (process, thread),
            Event::Map { start, pages, growth, .. } => {
                self.forget(start, pages);
                if growth == Growth::Up {
                    self.heaps.insert((self.process, start), pages);
                }
            }
            Event::Unmap { start, pages } | Event::Discard { start, pages } => self.forget(start, pages),
            Event::Protect { start, pages, protection } => self.restrict(start, pages, protection),
            Event::Grow { start, pages } => {
                let before = self.heaps.insert((self.process, start), pages).unwrap_or(pages);
                self.forget(start + pages.min(before), pages.abs_diff(before));
            }
            Event::Remap { from, from_pages, to, to_pages } => {
                self.forget(from, from_pages);
                self.forget(to, to_pages);
            }
            Event::Fork { child } => {
                let heaps: Vec<_> = self.heaps.iter().filter(|(heap, _)| heap.0 == self.process).collect();
                let heaps: Vec<_> = heaps.into_iter().map(|(heap, pages)| ((child, heap.1), *pages)).collect();
                self.heaps.extend(heaps);
            }
            Event::Exec => self.forget(0, u64::MAX),
            Event::Exit => {
                let process = self.process;
                self.tell_skipped(|thread| thread.process == process, batch);
                self.forget(0, u64::MAX);
                self.touched.remove(&process);
            }
            _ => {}
        }
        batch.event(event.clone());
    }

    /// Reports what each of some threads left out.
    fn tell_skipped(&mut self, which: impl Fn(&Thread) -> bool, batch: &mut Batch) {
        let skipped = |thread: &Thread| thread.skipped != [0; 2] && which(thread);
        let mut threads: Vec<(&u32, &mut Thread)> =
            self.threads.iter_mut().filter(|(_, thread)| skipped(thread)).collect();
        threads.sort_unstable_by_key(|(number, _)| **number);
        let own = (self.process, self.thread);
        let mut at = own;
        for (number, thread) in threads {
            switch(&mut at, (thread.process, *number), batch);
            thread.tell_skipped(batch);
        }
        switch(&mut at, own, batch);
    }
}

/// Goes to a thread, if the stream is elsewhere.
fn switch(at: &mut (ProcessId, u32), to: (ProcessId, u32), batch: &mut Batch) {
    if std::mem::replace(at, to) != to {
        batch.event(Event::Switch { process: to.0, thread: to.1 });
    }
}

/// Removes the pages of a range.
fn remove<T>(pages: &mut HashMap<u64, T>, range: &Range<u64>) {
    if range.end - range.start < pages.len() as u64 {
        range.clone().for_each(|page| drop(pages.remove(&page)));
    } else {
        pages.retain(|page, _| !range.contains(page));
    }
}

impl Thread {
    /// An access each to the pages that were used in the gap, the most recent last; no more than
    /// were skipped.
    fn recent(&mut self) -> Vec<Run> {
        let mut found = Vec::new();
        for (number, stamps) in self.used.drain() {
            let stamps = stamps.into_iter().enumerate().filter(|(_, stamp)| *stamp > 0);
            found.extend(stamps.map(|(stream, stamp)| (stamp, number, stream)));
        }
        found.sort_unstable_by_key(|(stamp, ..)| std::cmp::Reverse(*stamp));
        found.retain(|(_, _, stream)| {
            let some = self.skipped[*stream] > 0;
            self.skipped[*stream] -= u64::from(some);
            some
        });
        let run = |(_, page, stream): (u64, u64, usize)| match stream {
            0 => Run::new(page, Access::Read, 1, 0),
            _ => Run::new(page, Access::Execute, 1, 1),
        };
        found.into_iter().rev().map(run).collect()
    }

    fn tell_skipped(&mut self, batch: &mut Batch) {
        let [references, instructions] = std::mem::take(&mut self.skipped);
        if references + instructions > 0 {
            batch.event(Event::Skipped { references, instructions });
        }
    }
}

impl Source for Sample {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        if self.sampling.on >= self.sampling.period {
            return self.inner.fill(batch);
        }
        batch.clear();
        // A run that continues is a new run in the new batch.
        self.open.iter_mut().for_each(|open| open.kept = None);
        while batch.runs.is_empty() && batch.events.is_empty() && !self.ended {
            self.ended = !self.inner.fill(&mut self.next)?;
            let offset = self.whole.runs.len() as u32;
            self.whole.runs.append(&mut self.next.runs);
            self.whole.events.extend(self.next.events.drain(..).map(|(at, event)| (at + offset, event)));
            for place in 0..self.whole.events.len() {
                let (at, event) = self.whole.events[place].clone();
                self.runs(at as usize, at as usize, batch);
                self.open.clear();
                self.event(&event, batch);
            }
            self.whole.events.clear();
            // A batch of a file may end within a run.
            let end = self.whole.runs.len();
            if self.ended {
                self.runs(end, end, batch);
            } else if end - self.done > 2 * AHEAD {
                self.runs(end - AHEAD, end, batch);
            }
            let over = self.open.iter().map(|open| open.run).min().unwrap_or(self.done);
            self.whole.runs.drain(..over);
            self.ends.drain(..over.min(self.ends.len()));
            self.open.iter_mut().for_each(|open| open.run -= over);
            self.done -= over;
            if self.ended {
                self.tell_skipped(|_| true, batch);
            }
        }
        Ok(!batch.runs.is_empty() || !batch.events.is_empty())
    }
}

impl std::fmt::Debug for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sample").field("info", &self.info).finish_non_exhaustive()
    }
}
