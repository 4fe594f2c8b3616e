//! One pass over a stream, for one cell or several.

use crate::Plan;
use crate::cells::MOST;
use crate::plan::Stream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use superpage_sim::{Error, Row, Run, Setup, keep, run_parts};
use superpage_trace::Cores;

/// The note of a cell that says how long it took.
pub(crate) const SECONDS: &str = "superpage.seconds";

/// The note of a cell with its name.
pub(crate) const CELL: &str = "superpage.cell";

/// A cell that runs: its place, and its setups.
pub(crate) type Running = (usize, Vec<Setup>);

/// Cells that ran: the name and the file of each.
pub(crate) type CellFiles = Vec<(String, Vec<u8>)>;

/// Runs cells over one stream in one pass and returns the name and the file of each; `None` if
/// `stop` ended them. The rows of a cell that cannot be run have the error.
///
/// # Errors
/// A file cannot be made, memory ran short, or the stream cannot be read.
pub(crate) fn pass(plan: &Plan, cells: &[Running], stop: &AtomicBool) -> Result<Option<CellFiles>, Error> {
    let (begun, stream) = (Instant::now(), &plan.streams[plan.stream_of(cells[0].0)]);
    let all: Vec<Setup> = cells.iter().flat_map(|(_, setups)| setups).cloned().collect();
    let run = || {
        let mut source = stream.source(plan.sweep.lines)?;
        run_parts(&all, source.as_mut(), stop, &|_| {}, &plan.watch(stream.cores))
    };
    let (mut runs, seconds) = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(runs)) => {
            // What fails while it is being stopped may fail because of that.
            let stopped = stop.load(Ordering::Relaxed);
            if runs.iter().any(|run| !run.row.complete && (stopped || run.row.error.is_none())) {
                return Ok(None);
            }
            (runs.into_iter().map(Run::alone).collect::<Vec<_>>(), Some(begun.elapsed().as_secs_f64()))
        }
        // That is not the cell's doing, and may be otherwise next time: nothing is kept.
        Ok(Err(error @ (Error::Memory(_) | Error::Trace(superpage_trace::Error::Io { .. })))) => return Err(error),
        // Which of them it was shows when each runs alone.
        Ok(Err(_)) | Err(_) if cells.len() > 1 => {
            let mut all = Vec::new();
            for cell in cells.chunks(1) {
                let Some(kept) = pass(plan, cell, stop)? else { return Ok(None) };
                all.extend(kept);
            }
            return Ok(Some(all));
        }
        Ok(Err(error)) => (failed(&all, stream, &error.to_string()), None),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let problem = format!("a bug in superpage, please report it: {}", text.unwrap_or("a panic"));
            (failed(&all, stream, &problem), None)
        }
    };
    let seconds = seconds.map(|seconds| (SECONDS, format!("{:.6}", seconds / cells.len() as f64)));
    let mut kept = Vec::new();
    for (place, setups) in cells {
        let rest = runs.split_off(setups.len());
        let name = &plan.cells[*place].name;
        let notes: Vec<(&str, String)> = seconds.clone().into_iter().chain([(CELL, name.clone())]).collect();
        let mut bytes = keep(&runs, &notes)?;
        if bytes.len() as u64 > MOST {
            let problem =
                format!("its rows have {} bytes, and a cell at most {MOST}: give a longer `every`", bytes.len());
            bytes = keep(&failed(setups, stream, &problem), &notes)?;
        }
        kept.push((name.clone(), bytes));
        runs = rest;
    }
    Ok(Some(kept))
}

/// Runs whose rows have only this error.
fn failed(setups: &[Setup], stream: &Stream, problem: &str) -> Vec<Run> {
    let Cores { number, quantum, migrate } = stream.cores.unwrap_or(Cores { quantum: 0, ..Cores::new(0) });
    let failed =
        |setup| Row { most_cores: number.into(), quantum, migrate, ..Row::failed(setup, &stream.name, problem.into()) };
    setups.iter().map(|setup| failed(setup).into()).collect()
}
