//! The runs of a piece as requests to machines with one size of base page.

use crate::piece::{Mark, Stretch};
use superpage_mmu::Request;
use superpage_pages::{Access, Vpn};
use superpage_trace::{Batch, Event, Run, TRACE_PAGE_SHIFT};

/// The runs of a batch as requests to the hardware, in the stretches between marks. All points whose machines have the
/// same base page share one.
#[derive(Debug)]
pub(crate) struct Requests {
    /// How many bits a page number of the stream loses on this machine.
    shift: u32,
    requests: Vec<Request>,
    /// For each stretch, where its requests end.
    ends: Vec<usize>,
    /// For each stretch, the last requests before it.
    before: Vec<Last>,
    last: Last,
}

/// Per stream (data, fetches) the last request, to which what stays on its page is added.
type Last = [Option<(Vpn, Access)>; 2];

impl Requests {
    /// For machines whose base page has `base_shift` bits, at least those of a trace page.
    pub(crate) fn new(base_shift: u32) -> Requests {
        let shift = base_shift - TRACE_PAGE_SHIFT;
        Requests { shift, requests: Vec::new(), ends: Vec::new(), before: Vec::new(), last: [None; 2] }
    }

    /// The number of bits of the base page.
    pub(crate) fn base_shift(&self) -> u32 {
        self.shift + TRACE_PAGE_SHIFT
    }

    /// Takes over `batch`. A run that stays on the page of the run before it in its stream can neither miss nor fault,
    /// as in [`superpage_trace::Run`], and makes no request; after an event every run does. (That the page daemon takes a page
    /// away while a run is on it is not seen: a run is one moment.)
    pub(crate) fn prepare(&mut self, batch: &Batch, stretches: &[Stretch]) {
        self.requests.clear();
        self.ends.clear();
        self.before.clear();
        for stretch in stretches {
            self.before.push(self.last);
            self.extend(&batch.runs[stretch.start..stretch.end]);
            self.ends.push(self.requests.len());
            if let Some(Mark::Event(index)) = stretch.mark
                && !matches!(batch.events[index].1, Event::Note(_) | Event::Skipped { .. })
            {
                self.last = [None; 2];
            }
        }
    }

    fn extend(&mut self, runs: &[Run]) {
        for run in runs {
            if let Some(request) = next(&mut self.last, self.shift, run) {
                self.requests.push(request);
            }
        }
    }

    /// Which of `runs`, those of stretch number `index`, made its request number `request`.
    pub(crate) fn run_of(&self, index: usize, runs: &[Run], request: usize) -> usize {
        let mut last = self.before[index];
        let makes = |run: &Run| next(&mut last, self.shift, run).is_some();
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
