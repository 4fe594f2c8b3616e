//! `superpage.record`, and what a trace holds.

use crate::{of_trace, work};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use superpage_pages::parse_count;
use superpage_trace::file::{self, Writer};
use superpage_trace::record::{Command, start};
use superpage_trace::{Batch, Error, Sampling, Source};

/// Records a program; returns its exit status (128 and more: a signal) and what the recorder noted.
#[pyfunction]
#[pyo3(signature = (command, output, lines = false, calls = false, sample = None, seed = None, progress = None))]
#[allow(clippy::too_many_arguments, reason = "the keywords of Python")]
pub(crate) fn record(
    py: Python<'_>,
    command: Vec<OsString>,
    output: PathBuf,
    lines: bool,
    calls: bool,
    sample: Option<String>,
    seed: Option<u64>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<(i32, Vec<String>)> {
    let sampling = sample.map(|text| sampling(&text, seed)).transpose()?;
    let command = Command { sampling, lines, calls, output_to_stderr: true, ..Command::new(&command) };
    command.check().map_err(of_trace)?;
    let run = |ticket: &work::Ticket| -> Result<_, Error> {
        let notes = [
            ("recorder".to_string(), format!("superpage {}", env!("CARGO_PKG_VERSION"))),
            ("architecture".to_string(), std::env::consts::ARCH.to_string()),
        ];
        let mut writer = Writer::create(&output, &command.info(), &notes)?;
        let mut recording = start(&command)?;
        let (stopper, ended) = (recording.stopper(), AtomicBool::new(false));
        std::thread::scope(|scope| {
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
            let copied = copy();
            ended.store(true, Ordering::Relaxed);
            copied
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
    let status = exit_code(outcome.status);
    if runs == 0 && status != 0 {
        let what = "the emulator ended before the program began; its own message on standard error says why";
        return Err(PyRuntimeError::new_err(what));
    }
    Ok((status, outcome.notes))
}

fn exit_code(status: std::process::ExitStatus) -> i32 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return 128 + signal;
    }
    status.code().unwrap_or(1)
}

fn sampling(text: &str, seed: Option<u64>) -> PyResult<Sampling> {
    let counts = text.split_once('/').and_then(|(on, of)| Some((parse_count(on).ok()?, parse_count(of).ok()?)));
    match counts {
        Some((on, period)) if (1..=period).contains(&on) => {
            let sample = Sampling::drawn(on, period);
            Ok(Sampling { seed: seed.or(sample.seed), ..sample })
        }
        _ => Err(PyValueError::new_err(format!("sample: {text}: expected ON/PERIOD, two counts as in 1M/20M"))),
    }
}

/// What a trace holds, as JSON: what `superpage trace info --format json` prints.
#[pyfunction]
pub(crate) fn trace_info(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let summary = py.detach(|| file::info(&path, false)).map_err(of_trace)?;
    serde_json::to_string(&summary).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
