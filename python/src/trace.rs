//! Traces: what one holds, and one made of accesses.

use crate::accesses::{self, Accesses};
use crate::{of_trace, work};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use superpage_trace::file::{self, Writer};
use superpage_trace::record::notes;
use superpage_trace::{Batch, Error};

/// What a trace holds, as JSON: what `superpage trace info --format json` prints.
#[pyfunction]
pub(crate) fn trace_info(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let summary = py.detach(|| file::info(&path, false)).map_err(of_trace)?;
    serde_json::to_string(&summary).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Writes accesses as a trace.
#[pyfunction]
#[pyo3(signature = (path, accesses, lines = false, progress = None))]
pub(crate) fn write_trace(
    py: Python<'_>,
    path: PathBuf,
    accesses: Accesses<'_>,
    lines: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<()> {
    let mut source = accesses::source(&accesses, lines)?;
    let write = |ticket: &work::Ticket| -> Result<bool, Error> {
        let mut writer = Writer::create(&path, source.info(), &notes())?;
        let (mut batch, mut runs) = (Batch::default(), 0);
        while source.fill(&mut batch)? {
            if ticket.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            writer.write(&batch)?;
            runs += batch.runs.len() as u64;
            ticket.progress(runs, source.info().runs);
        }
        writer.finish().map(|_| true)
    };
    let whole = work::run(py, progress.as_ref(), write)?.map_err(of_trace)?;
    // What stops it is an exception, which `work::run` has returned.
    if whole { Ok(()) } else { Err(PyKeyboardInterrupt::new_err(())) }
}
