//! `superpages.sweep`, and what a cluster needs of it.

use crate::policy::{GivenPolicy, check_names};
use crate::rows::Rows;
use crate::{failed, limits, work};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use superpage_sweep::{CallerPolicy, Done, Listener, Options, RemoteCells, Shard, Sweep};

/// A sweep, checked completely.
#[pyclass(frozen, module = "superpages")]
pub(crate) struct Plan {
    plan: Arc<superpage_sweep::Plan>,
    /// The objects of policies, which are there as long as it.
    _policies: Vec<GivenPolicy>,
}

struct Bar<'a> {
    ticket: &'a work::Ticket,
    cells: AtomicU64,
    done: AtomicU64,
    notes: Mutex<Vec<String>>,
}

impl Listener for Bar<'_> {
    fn note(&self, text: &str) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    fn begins(&self, cells: usize, there: usize) {
        self.cells.store((cells + there) as u64, Ordering::Relaxed);
        self.done.store(there as u64, Ordering::Relaxed);
        self.ticket.progress(there as u64, Some((cells + there) as u64));
    }

    fn ended(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.ticket.progress(done, Some(self.cells.load(Ordering::Relaxed)));
    }

    fn on_thread(&self, work: &mut (dyn FnMut() + Send)) {
        work::known_to_python(self.ticket, work);
    }
}

/// Cells that ran, cells that are there, whether rows were written, and what users are warned of:
/// rows with an error, as sentences.
type Outcome = (usize, usize, bool, Vec<String>);

fn outcome(done: Done, notes: impl IntoIterator<Item = String>) -> Outcome {
    (done.ran, done.there, done.rows.is_some(), notes.into_iter().chain(done.failed).collect())
}

#[pymethods]
impl Plan {
    /// Reads the text of a sweep's file; `name` is for errors. `policies` are objects as `simulate`
    /// takes them, each with the text that tells it from others of its name.
    #[new]
    #[pyo3(signature = (text, name, policies = Vec::new()))]
    fn new(py: Python<'_>, text: String, name: String, policies: Vec<(Bound<'_, PyAny>, String)>) -> PyResult<Plan> {
        let (policies, texts): (Vec<_>, Vec<_>) = policies.into_iter().unzip();
        let policies = policies.iter().map(GivenPolicy::read).collect::<PyResult<Vec<_>>>()?;
        check_names(&policies)?;
        let own = policies.iter().zip(texts);
        let own =
            own.map(|(own, text)| (own.name.clone(), CallerPolicy { policy: own.policy.clone(), text })).collect();
        let plan = || superpage_sweep::Plan::with_policies(Sweep::of_text(&text, &name)?, own, &limits());
        let plan = py.detach(plan).map_err(failed)?;
        Ok(Plan { plan: Arc::new(plan), _policies: policies })
    }

    /// The names of the cells, each with the number of its stream.
    #[getter]
    fn cells(&self) -> Vec<(String, usize)> {
        self.plan.cell_names().map(|(name, stream)| (name.to_string(), stream)).collect()
    }

    /// The number of rows.
    #[getter]
    fn rows(&self) -> usize {
        self.plan.rows()
    }

    /// The paths of the traces that it names.
    #[getter]
    fn traces(&self) -> Vec<String> {
        self.plan.traces().map(String::from).collect()
    }

    /// Runs the cells that a folder does not have.
    #[pyo3(signature = (output, command, jobs = None, shard = "1/1", repair = false, progress = None))]
    #[allow(clippy::too_many_arguments, reason = "the keywords of Python")]
    fn run(
        &self,
        py: Python<'_>,
        output: PathBuf,
        command: String,
        jobs: Option<usize>,
        shard: &str,
        repair: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Outcome> {
        let shard: Shard = shard.parse().map_err(|error| PyValueError::new_err(format!("shard: {error}")))?;
        let jobs = match jobs {
            None => std::thread::available_parallelism().map_or(1, NonZero::get),
            Some(jobs @ 1..=1024) => jobs,
            Some(jobs) => return Err(PyValueError::new_err(format!("jobs: {jobs}: expected 1 to 1024"))),
        };
        let options = Options { jobs, shard, repair, limits: limits(), command };
        let run = |ticket: &work::Ticket| {
            let notes = Mutex::default();
            let bar = Bar { ticket, cells: AtomicU64::new(0), done: AtomicU64::new(0), notes };
            let done = superpage_sweep::run(&self.plan, &output, &options, &ticket.stop, &bar)?;
            Ok(outcome(done, bar.notes.into_inner().unwrap_or_else(PoisonError::into_inner)))
        };
        work::run(py, progress.as_ref(), run)?.map_err(failed)
    }

    /// The rows of a folder that has all cells.
    fn merged(&self, py: Python<'_>, output: PathBuf) -> PyResult<Rows> {
        py.detach(|| self.plan.merged(&output)).map(Rows::from).map_err(failed)
    }

    /// Runs the cells of these places, which are over one stream; returns the name and the file of
    /// each.
    #[pyo3(signature = (places, threads = 1))]
    fn run_cells<'py>(
        &self,
        py: Python<'py>,
        places: Vec<usize>,
        threads: usize,
    ) -> PyResult<Vec<(String, Bound<'py, PyBytes>)>> {
        // Workers of clusters call this from threads of their own, where no signal arrives.
        let run = |ticket: &work::Ticket| {
            work::with_threads(Some(threads), None, || self.plan.run_cells(&places, &ticket.stop).map_err(failed))?
        };
        let kept = work::run(py, None, run)??.unwrap_or_default();
        Ok(kept.into_iter().map(|(name, bytes)| (name, PyBytes::new(py, &bytes))).collect())
    }

    /// Opens a folder for cells that run elsewhere.
    #[pyo3(signature = (output, repair = false))]
    fn open(&self, py: Python<'_>, output: PathBuf, repair: bool) -> PyResult<Folder> {
        let open = |ticket: &work::Ticket| RemoteCells::open(Arc::clone(&self.plan), &output, repair, &ticket.stop);
        let store = work::run(py, None, open)?.map_err(failed)?;
        // What stops it is an exception, which `work::run` has returned.
        store.map(Folder).ok_or_else(|| PyRuntimeError::new_err("interrupted"))
    }
}

/// A folder of a sweep, held until this object is gone.
#[pyclass(frozen, module = "superpages")]
pub(crate) struct Folder(RemoteCells);

#[pymethods]
impl Folder {
    /// The places of cells that it does not have.
    fn missing(&self) -> PyResult<Vec<usize>> {
        self.0.missing().map_err(failed)
    }

    /// Keeps a cell.
    fn write(&self, py: Python<'_>, name: &str, bytes: &[u8]) -> PyResult<()> {
        py.detach(|| self.0.write(name, bytes)).map_err(failed)
    }

    /// Writes rows.parquet and index.html if all cells are there.
    fn finish(&self, py: Python<'_>, ran: usize, command: &str) -> PyResult<Outcome> {
        let done = py.detach(|| self.0.finish(ran, command)).map_err(failed)?;
        Ok(outcome(done, self.0.note().map(String::from)))
    }
}
