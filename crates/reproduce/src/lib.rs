//! The tables and figures of papers, run again: what a paper says beside what the simulator finds.
//!
//! Each table or figure is a file, `experiments/PAPER/NAME.toml`: what the paper ran, what runs here, the paper's values
//! as data, and how near each must come. The simulator never sees these values; they are only compared with what it says.
#![forbid(unsafe_code)]

mod catalogue;
mod coverage;
mod experiment;
mod finding;
mod judge;
mod lookup;
mod measure;
mod streams;
mod write;

pub use catalogue::{experiments, select};
pub use experiment::Experiment;
pub use finding::Finding;
pub use judge::Verdict;
pub use measure::Value;
pub use streams::{Options, Watch};
pub use write::write;

use lookup::Lookup;
use std::sync::atomic::AtomicBool;
use streams::Passes;

/// What came of a set of experiments.
pub struct Report {
    pub(crate) done: Vec<Done>,
    /// What could not be run, a sentence each; a trace that is not there is no failure.
    pub failures: Vec<String>,
}

/// An experiment and what was found.
pub(crate) struct Done {
    pub(crate) experiment: Experiment,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    /// All rows, in the order of the experiments.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.done.iter().flat_map(|done| &done.findings)
    }
}

/// Runs the experiments, each stream once for all of them, and judges what comes out.
///
/// When `stop` is set the work ends soon, and the report has what was done by then.
pub fn run(experiments: Vec<Experiment>, options: &Options, stop: &AtomicBool, watch: &dyn Watch) -> Report {
    let mut passes = Passes::of(&experiments, options.long);
    passes.run(options, stop, watch);
    let failures = passes.failures();
    let judge = |experiment: Experiment| {
        let findings = finding::findings(&experiment, &passes, &Lookup { experiment: &experiment, passes: &passes });
        Done { experiment, findings }
    };
    Report { done: experiments.into_iter().map(judge).collect(), failures }
}
