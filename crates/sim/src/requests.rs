//! The runs of a piece as requests to machines with one size of base page.

use crate::piece::{Mark, Stretch};
use crate::touched::{Owner, Touched};
use std::collections::BTreeSet;
use superpage_mmu::Request;
use superpage_pages::{Access, Vpn};
use superpage_trace::{Batch, Event, ProcessId, Run, TRACE_PAGE_SHIFT};

/// The runs of a batch as requests to the hardware, in the stretches between marks. All points whose machines have the
/// same base page share one.
pub(crate) struct Requests {
    base_shift: u32,
    requests: Vec<Request>,
    /// For each stretch, where its requests end.
    ends: Vec<usize>,
    /// For each stretch, the last requests before it.
    before: Vec<Last>,
    /// The requests that touched a page which nobody had touched.
    touches: Vec<usize>,
    /// For each stretch, the touched pages at the end of its requests, by owner, and where they and the touches end.
    owned: Vec<(Owner, u64)>,
    counted: Vec<(usize, usize)>,
}

/// What goes on from one batch to the next, for machines with one size of base page.
pub(crate) struct Course {
    /// How many bits a page number of the stream loses on them.
    shift: u32,
    last: Last,
    touched: Touched,
}

impl Course {
    /// For machines whose base page has `base_shift` bits, at least those of a trace page.
    pub(crate) fn new(base_shift: u32) -> Course {
        let shift = base_shift - TRACE_PAGE_SHIFT;
        Course { shift, last: [None; 2], touched: Touched::new(shift) }
    }
}

/// Per stream (data, fetches) the last request, to which what stays on its page is added.
type Last = [Option<(Vpn, Access)>; 2];

impl Requests {
    /// For machines whose base page has `base_shift` bits.
    pub(crate) fn new(base_shift: u32) -> Requests {
        Requests {
            base_shift,
            requests: Vec::new(),
            ends: Vec::new(),
            before: Vec::new(),
            touches: Vec::new(),
            owned: Vec::new(),
            counted: Vec::new(),
        }
    }

    /// The number of bits of the base page.
    pub(crate) fn base_shift(&self) -> u32 {
        self.base_shift
    }

    /// Takes over `batch`. A run that stays on the page of the run before it in its stream can neither miss nor fault,
    /// as in [`superpage_trace::Run`], and makes no request; after an event every run does. (That the page daemon takes a page
    /// away while a run is on it is not seen: a run is one moment.)
    pub(crate) fn prepare(&mut self, batch: &Batch, stretches: &[Stretch], course: &mut Course) {
        self.requests.clear();
        self.ends.clear();
        self.before.clear();
        self.touches.clear();
        self.owned.clear();
        self.counted.clear();
        for stretch in stretches {
            self.before.push(course.last);
            self.extend(&batch.runs[stretch.start..stretch.end], course);
            self.ends.push(self.requests.len());
            self.owned.extend(course.touched.owned());
            self.counted.push((self.owned.len(), self.touches.len()));
            if let Some(Mark::Event(index)) = stretch.mark {
                let event = &batch.events[index].1;
                course.touched.event(event);
                if !matches!(event, Event::Note(_) | Event::Skipped { .. }) {
                    course.last = [None; 2];
                }
            }
        }
    }

    fn extend(&mut self, runs: &[Run], course: &mut Course) {
        for run in runs {
            if let Some(request) = next(&mut course.last, course.shift, run) {
                if course.touched.access(request.page().0, request.access()) {
                    self.touches.push(self.requests.len());
                }
                self.requests.push(request);
            }
        }
    }

    /// The touched pages when `done` requests of stretch number `index` are carried out, without those of processes that
    /// were ended and whom the stream does not know to be. (What such a process shared since a fork counts as its own if it
    /// touched it first.)
    pub(crate) fn touched(&self, index: usize, done: usize, ended: &BTreeSet<ProcessId>) -> u64 {
        let (from, touched_before) = index.checked_sub(1).map_or((0, 0), |before| self.counted[before]);
        let (to, touches) = self.counted[index];
        let lives = |owner: &Owner| owner.is_none_or(|process| !ended.contains(&process));
        let at_end: u64 = self.owned[from..to].iter().filter(|(owner, _)| lives(owner)).map(|(_, pages)| pages).sum();
        let undone = index.checked_sub(1).map_or(0, |before| self.ends[before]) + done;
        let later = self.touches[touched_before..touches].iter().rev().take_while(|touch| **touch >= undone);
        at_end - later.count() as u64
    }

    /// Which of `runs`, those of stretch number `index`, made its request number `request`.
    pub(crate) fn run_of(&self, index: usize, runs: &[Run], request: usize) -> usize {
        let mut last = self.before[index];
        let shift = self.base_shift - TRACE_PAGE_SHIFT;
        let makes = |run: &Run| next(&mut last, shift, run).is_some();
        let made: Vec<bool> = runs.iter().map(makes).collect();
        let mut those = made.iter().enumerate().filter(|(_, made)| **made);
        those.nth(request).expect("each request was made by a run").0
    }

    /// The requests of stretch number `index`.
    pub(crate) fn stretch(&self, index: usize) -> &[Request] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.requests[start..self.ends[index]]
    }
}

/// The request that `run` makes, if it leaves the page of the run before it in its stream.
#[inline]
fn next(last: &mut Last, shift: u32, run: &Run) -> Option<Request> {
    let (page, access) = (Vpn(run.page() >> shift), run.access());
    let last = &mut last[usize::from(access == Access::Execute)];
    let stays = matches!(*last, Some((p, a)) if p == page && (a == access || a == Access::Write));
    if stays {
        return None;
    }
    *last = Some((page, access));
    Some(Request::new(page, access))
}
