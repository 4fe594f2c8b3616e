//! One piece of the stream, prepared for all simulations of a grid: runs between marks, and their
//! requests for each size of base page.

use super::carried::Carried;
use super::requests::Requests;
use super::stretch::{Done, Mark, Phases, PrefixSums, Role, Stretch};
use superpage_pages::Counts;
use superpage_trace::{Batch, Error, Source};

/// A batch, and everything derived from it once for all simulations.
pub(crate) struct Piece {
    pub(crate) batch: Batch,
    sums: PrefixSums,
    pub(crate) stretches: Vec<Stretch>,
    requests: Vec<Requests>,
}

impl Piece {
    pub(crate) fn new(shifts: &[u32]) -> Piece {
        let requests = shifts.iter().map(|shift| Requests::new(*shift)).collect();
        Piece { batch: Batch::default(), sums: PrefixSums::default(), stretches: Vec::new(), requests }
    }

    /// Reads the next batch of `source`; returns `false` at its end. `carried` has one entry for
    /// each size of base page, in the order given to [`Piece::new`].
    pub(crate) fn fill(
        &mut self,
        source: &mut dyn Source,
        phases: &mut Phases,
        carried: &mut [Carried],
    ) -> Result<bool, Error> {
        let more = source.fill(&mut self.batch)?;
        self.sums.count(&self.batch.runs);
        self.stretch(phases);
        for (requests, carried) in self.requests.iter_mut().zip(carried) {
            requests.prepare((&self.batch, &self.sums), &self.stretches, carried);
        }
        Ok(more)
    }

    fn stretch(&mut self, phases: &mut Phases) {
        self.stretches.clear();
        let mut from = 0;
        for index in 0..self.batch.events.len() {
            let to = self.batch.events[index].0 as usize;
            let before = self.between(from, to, (Some(Mark::Event(index)), phases.role()));
            phases.runs(to - from, before.done.accesses);
            self.stretches.push(before);
            from = to;
            if let Some(window) = phases.event(&self.batch.events[index].1) {
                self.stretches.push(self.between(from, from, (Some(Mark::Window(window)), Role::Other)));
            }
        }
        let rest = self.between(from, self.batch.runs.len(), (None, phases.role()));
        phases.runs(self.batch.runs.len() - from, rest.done.accesses);
        self.stretches.push(rest);
    }

    fn between(&self, start: usize, end: usize, (mark, role): (Option<Mark>, Role)) -> Stretch {
        let before = |run| self.sums.before(&self.batch.runs, run);
        Stretch { start, end, done: before(end).since(&before(start)), mark, role }
    }

    /// The requests for machines whose base page has `base_shift` bits.
    pub(crate) fn requests(&self, base_shift: u32) -> &Requests {
        self.requests.iter().find(|requests| requests.base_shift() == base_shift).expect("one for each base page size")
    }

    /// What has been done of stretch number `index` when its request number `request` cannot be
    /// made. O(runs).
    pub(crate) fn until(&self, base_shift: u32, index: usize, request: usize) -> Done {
        let stretch = &self.stretches[index];
        let runs = &self.batch.runs[stretch.start..stretch.end];
        Done::of(&runs[..self.requests(base_shift).run_of(index, runs, request)])
    }
}
