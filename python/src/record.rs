//! `superpages.record`.

use crate::{of_trace, work};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use superpage_trace::file::Writer;
use superpage_trace::record::{Command, exit_status, notes, start};
use superpage_trace::{Batch, Error, Sampling, Source};

/// Records a program; returns its exit status (128 and more: a signal) and what the recorder noted.
#[pyfunction]
#[pyo3(signature = (
    command, output, lines = false, calls = false, sample = None, seed = None, folder = None, stdout = None, progress = None
))]
#[allow(clippy::too_many_arguments, reason = "the keywords of Python")]
pub(crate) fn record(
    py: Python<'_>,
    command: Vec<OsString>,
    output: PathBuf,
    lines: bool,
    calls: bool,
    sample: Option<String>,
    seed: Option<u64>,
    folder: Option<PathBuf>,
    stdout: Option<PathBuf>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(u8, Vec<String>)> {
    let wrong = |problem| PyValueError::new_err(format!("sample: {problem}"));
    let sampling = sample.map(|text| text.parse::<Sampling>().map_err(wrong)).transpose()?;
    let sampling = sampling.map(|sample| Sampling { seed: seed.or(sample.seed), ..sample });
    let command =
        Command { sampling, lines, calls, folder, output: stdout, output_to_stderr: true, ..Command::new(&command) };
    command.check().map_err(of_trace)?;
    let run = |ticket: &work::Ticket| -> Result<_, Error> {
        let mut writer = Writer::create(&output, &command.info(), &notes())?;
        let mut recording = start(&command)?;
        let (stopper, ended) = (recording.stopper(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // However copying ends, also by a panic.
            struct End<'a>(&'a AtomicBool);
            impl Drop for End<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _end = End(&ended);
            // The program may be silent when Ctrl-C comes.
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    if ticket.stop.load(Ordering::Relaxed) {
                        return stopper.stop();
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            let mut copy = || {
                let (mut batch, mut runs) = (Batch::default(), 0);
                while recording.fill(&mut batch)? {
                    writer.write(&batch)?;
                    runs += batch.runs.len() as u64;
                    ticket.progress(runs, None);
                }
                Ok(runs)
            };
            copy()
        })
        .and_then(|runs: u64| Ok((runs, recording.finish()?)))
        .and_then(|(runs, outcome)| {
            // The emulator began, and could not start the program.
            if runs > 0 || outcome.status.success() {
                writer.finish()?;
            }
            Ok((runs, outcome))
        })
    };
    let (runs, outcome) = work::run(py, progress.as_ref(), run)?.map_err(of_trace)?;
    let status = exit_status(outcome.status);
    if runs == 0 && status != 0 {
        let what = "the emulator ended before the program began; its own message on standard error says why";
        return Err(PyRuntimeError::new_err(what));
    }
    Ok((status, outcome.notes))
}
