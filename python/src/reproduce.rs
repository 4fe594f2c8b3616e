//! `superpages.reproduce`.

use crate::rows::Rows;
use crate::{failed, work};
use pyo3::prelude::*;
use std::path::PathBuf;
use superpage_reproduce::{Options, Watch};
use superpage_sim::Progress;

/// The experiments by their full names, with titles.
#[pyfunction]
pub(crate) fn experiments() -> Vec<(String, String)> {
    let all = superpage_reproduce::experiments().into_iter();
    all.map(|experiment| (experiment.full_name(), experiment.title.clone())).collect()
}

struct Bar<'a>(&'a work::Ticket);

impl Watch for Bar<'_> {
    fn stream(&self, _: &str, _: usize, _: usize) {
        self.0.progress(0, None);
    }

    fn progress(&self, progress: Progress) {
        self.0.progress(progress.runs, progress.of);
    }
}

/// Runs experiments; returns findings, and notes and failures as sentences.
#[pyfunction]
#[pyo3(signature = (names, corpus, programs, long = false, progress = None))]
#[allow(clippy::too_many_arguments, reason = "the keywords of Python")]
pub(crate) fn reproduce(
    py: Python<'_>,
    names: Vec<String>,
    corpus: PathBuf,
    programs: PathBuf,
    long: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(Rows, Vec<String>, Vec<String>)> {
    let chosen = superpage_reproduce::select_all(&names).map_err(failed)?;
    let options = Options { corpus, long, programs };
    let report = work::run(py, progress.as_ref(), |ticket| {
        superpage_reproduce::run(chosen, &options, &ticket.stop, &Bar(ticket))
    })?;
    let (notes, failures) = (report.notes.clone(), report.failures.clone());
    Ok((Rows::from(report), notes, failures))
}
