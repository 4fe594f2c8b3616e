//! The tables and figures of papers, run again: a paper's values next to what the simulator finds.
//!
//! Each table or figure is a file, `experiments/PAPER/NAME.toml`: what the paper ran, what runs
//! here, the paper's values as data, and how close each must be. The simulator never reads these
//! values; they are only compared with its results, or with measurements of real programs. It
//! decides nothing of what a machine or a policy does, and never adjusts a result to a paper's
//! value.
#![forbid(unsafe_code)]

mod catalogue;
mod computed;
mod coverage;
mod drawing;
mod experiment;
mod filling;
mod finding;
mod holes;
mod html;
mod judge;
mod live;
mod lookup;
mod markdown;
mod measure;
mod operations;
mod rows;
mod running;
mod settings;
mod streams;
mod table;
mod write;

pub use catalogue::{experiments, select, select_all};
pub use experiment::Experiment;
pub use finding::Finding;
pub use html::html;
pub use judge::Verdict;
pub use markdown::markdown;
pub use measure::Value;
pub use running::{Options, Watch};
pub use settings::with_settings;
pub use write::{columns, write};

use computed::Computed;
use experiment::Kind;
use finding::Values;
use live::{Found, Jobs};
use lookup::Lookup;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use streams::Passes;
use superpage_report::Figure;

/// The results of a set of experiments.
pub struct Report {
    pub(crate) done: Vec<Done>,
    /// What could not be run, one sentence each; a missing trace or program is not a failure.
    pub failures: Vec<String>,
    /// What a reader of measured values must know, one sentence each, without a full stop.
    pub notes: Vec<String>,
}

/// An experiment and its results.
pub(crate) struct Done {
    pub(crate) experiment: Experiment,
    pub(crate) findings: Vec<Finding>,
    pub(crate) drawings: Vec<Figure>,
}

impl Report {
    /// All rows, in the order of the experiments.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.done.iter().flat_map(|done| &done.findings)
    }

    /// All figures, each with the experiment that it is of.
    pub fn figures(&self) -> impl Iterator<Item = (&Experiment, &Figure)> {
        self.done.iter().flat_map(|done| done.drawings.iter().map(|figure| (&done.experiment, figure)))
    }
}

/// Runs the experiments, each stream once for all of them, and judges the results.
///
/// When `stop` is set this returns soon, with a report of what was done by then.
pub fn run(experiments: Vec<Experiment>, options: &Options, stop: &Arc<AtomicBool>, watch: &dyn Watch) -> Report {
    let mut passes = Passes::of(&experiments, options.long);
    passes.run(options, stop, watch);
    let mut jobs = Jobs::of(&experiments, options.long);
    jobs.run(options, stop, watch);
    let mut failures: Vec<String> = passes.failures().into_iter().chain(jobs.failures()).collect();
    let mut done = Vec::new();
    for experiment in experiments {
        let mut computed = compute(&experiment, options, stop, watch);
        failures.append(&mut computed.failures);
        done.push(judge(experiment, &passes, &jobs, computed));
    }
    let notes = jobs.notes().into_iter().chain(settings::notes(&done)).collect();
    Report { done, failures, notes }
}

/// The values that an experiment computes itself.
fn compute(experiment: &Experiment, options: &Options, stop: &AtomicBool, watch: &dyn Watch) -> Computed {
    match experiment.kind {
        _ if stop.load(Ordering::Relaxed) => Computed::default(),
        Kind::Coverage => coverage::compute(&experiment.workstations, &experiment.years),
        Kind::Operations => operations::compute(experiment),
        Kind::Holes => holes::compute(experiment, options, stop, watch),
        Kind::Filling => {
            experiment.filling.as_ref().map(|filling| filling::compute(filling, stop, watch)).unwrap_or_default()
        }
        Kind::Grid | Kind::Sequence | Kind::Live => Computed::default(),
    }
}

/// Findings and figures of an experiment whose streams have run.
fn judge(experiment: Experiment, passes: &Passes, jobs: &Jobs, mut computed: Computed) -> Done {
    let shown: Vec<Finding> = computed.shown.drain(..).map(|shown| finding::shown(&experiment, shown)).collect();
    let lookup = Lookup { experiment: &experiment, passes };
    let found = Found { experiment: &experiment, jobs };
    let values: &dyn Values = match experiment.kind {
        Kind::Live => &found,
        Kind::Grid | Kind::Sequence => &lookup,
        Kind::Coverage | Kind::Operations | Kind::Holes | Kind::Filling => &computed,
    };
    let mut findings = finding::findings(&experiment, passes, values);
    findings.extend(shown);
    let drawings = drawing::drawings(&experiment, values);
    Done { experiment, findings, drawings }
}
