//! Simulations that see one stream, and the piece of it at which they are.

use crate::one_kernel::groups;
use crate::room::Guard;
use crate::simulation::Simulation;
use crate::stream::{Carried, Phases, Piece};
use crate::{Error, Progress, Run, Setup, Watch, check_setups};
use rayon::prelude::*;
use std::sync::atomic::AtomicBool;
use superpage_trace::Source;

/// Simulations over one stream, piece by piece.
pub(crate) struct Pass<'a> {
    source: &'a mut dyn Source,
    watch: &'a Watch,
    simulations: Vec<Simulation>,
    rows: usize,
    phases: Phases,
    carried: Vec<Carried>,
    now: Piece,
    next: Piece,
    more: bool,
    progress: Progress,
}

impl<'a> Pass<'a> {
    /// These setups, given with their places in the grid, at the beginning of a stream.
    ///
    /// # Errors
    /// A setup cannot be built or cannot run over such a stream, or that fails.
    pub(crate) fn new(
        setups: &[Setup],
        places: &[usize],
        source: &'a mut dyn Source,
        watch: &'a Watch,
    ) -> Result<Pass<'a>, Error> {
        check_setups(setups, source.info(), watch.lines)?;
        let mut phases = Phases::new(source);
        let info = source.info().clone();
        let begin = |group: Vec<usize>| {
            let group: Vec<(usize, &Setup)> = group.into_iter().map(|at| (places[at], &setups[at])).collect();
            Simulation::new(&group, &info, watch)
        };
        let simulations = groups(setups, watch).into_iter().map(begin).collect::<Result<Vec<_>, Error>>()?;
        let mut shifts: Vec<u32> = setups.iter().map(|setup| setup.ladder.base().shift()).collect();
        shifts.sort_unstable();
        shifts.dedup();
        let mut carried: Vec<Carried> = shifts.iter().map(|shift| Carried::new(*shift, watch.lines, &info)).collect();
        let (mut now, next) = (Piece::new(&shifts), Piece::new(&shifts));
        let more = now.fill(source, &mut phases, &mut carried)?;
        let (rows, progress) = (setups.len(), Progress { runs: 0, of: info.runs });
        Ok(Pass { source, watch, simulations, rows, phases, carried, now, next, more, progress })
    }

    /// Whether there is a piece to simulate.
    pub(crate) fn goes_on(&self) -> bool {
        self.more
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// Simulates a piece, while the next one is prepared.
    ///
    /// # Errors
    /// The stream fails, or memory ran short.
    pub(crate) fn step(&mut self, threads: bool, guard: &Guard, stop: &AtomicBool) -> Result<(), Error> {
        let Pass { source, simulations, phases, carried, now, next, .. } = self;
        let step = |simulation: &mut Simulation| simulation.step(now, stop, guard);
        let filled = if threads {
            let fill = || next.fill(*source, phases, carried);
            rayon::join(fill, || simulations.par_iter_mut().for_each(step)).0
        } else {
            simulations.iter_mut().for_each(step);
            next.fill(*source, phases, carried)
        };
        self.more = filled?;
        guard.check(self.rows, self.watch)?;
        self.progress.runs += self.now.batch.runs.len() as u64;
        std::mem::swap(&mut self.now, &mut self.next);
        Ok(())
    }

    /// The runs, with their places.
    pub(crate) fn finish(self, threads: bool, complete: bool) -> Vec<(usize, Run)> {
        let info = self.source.info().clone();
        let finish = |simulation: Simulation| simulation.finish(&info, complete);
        if threads {
            self.simulations.into_par_iter().flat_map_iter(finish).collect()
        } else {
            self.simulations.into_iter().flat_map(finish).collect()
        }
    }
}
