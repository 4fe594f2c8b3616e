//! Runs a plan in one pass over a stream.

use crate::estimate::compared_errors;
use crate::one_kernel::groups;
use crate::room::Guard;
use crate::simulation::Simulation;
use crate::stream::{Carried, Phases, Piece};
use crate::workers;
use crate::{Error, Row, Run, Setup, Watch};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_mmu::Mmu;
use superpage_trace::{Cores, Info, OnCores, Source};

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Runs of the stream that were simulated.
    pub runs: u64,
    /// The number of runs in all, if the stream says so.
    pub of: Option<u64>,
}

/// Runs all `setups` over `source` in one pass, and returns a row for each, in their order.
///
/// The setups are those of one plan: rows are compared with `base` by their machine's name.
/// Machines on which the kernel does the same are one simulation: they share it, its mappings and
/// TLBs of the first level that are alike. The simulations are independent; threads run them, one
/// for each core or those of the rayon pool of the caller ([`use_threads`](crate::use_threads)),
/// while the next piece of the stream is prepared. The rows do not depend on the number of threads.
/// When `stop` is set, the run ends at the next piece, or within idle time, with rows that say so.
///
/// # Errors
/// The stream fails, or a setup cannot be built.
pub fn run(
    setups: &[Setup],
    source: &mut dyn Source,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Row>, Error> {
    let runs = run_parts(setups, source, stop, progress, &Watch::default())?;
    Ok(runs.into_iter().map(|run| run.row).collect())
}

/// The shortest time that threads work before the caller hears of the progress: to wake them takes
/// as long as a batch of one machine.
const TURN: Duration = Duration::from_millis(20);

/// Like [`run`], and also returns the named parts of the stream each by itself, and what `watch`
/// asks for.
///
/// # Errors
/// As for [`run`], or the sampling interval is 0, or what reading the stream takes
/// ([`Info::memory`]) is not left.
pub fn run_parts(
    setups: &[Setup],
    source: &mut dyn Source,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
    watch: &Watch,
) -> Result<Vec<Run>, Error> {
    check_migration(watch.cores, source.info())?;
    match watch.cores {
        Some(cores) => run_pass(setups, &mut OnCores::new(source, cores), stop, progress, watch),
        None => run_pass(setups, source, stop, progress, watch),
    }
}

/// One pass over a stream.
fn run_pass(
    setups: &[Setup],
    source: &mut dyn Source,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
    watch: &Watch,
) -> Result<Vec<Run>, Error> {
    watch.every.map_or(Ok(()), crate::Every::check)?;
    check_setups(setups, source.info(), watch.lines)?;
    let guard = Guard::new();
    guard.check_stream(source.info())?;
    let mut phases = Phases::new(source);
    let info = source.info().clone();
    let begin = |group: Vec<usize>| {
        let group: Vec<(usize, &Setup)> = group.into_iter().map(|place| (place, &setups[place])).collect();
        Simulation::new(&group, &info, watch)
    };
    let mut simulations = groups(setups, watch).into_iter().map(begin).collect::<Result<Vec<_>, Error>>()?;
    let mut shifts: Vec<u32> = setups.iter().map(|setup| setup.ladder.base().shift()).collect();
    shifts.sort_unstable();
    shifts.dedup();

    let mut carried: Vec<Carried> = shifts.iter().map(|shift| Carried::new(*shift, watch.lines, &info)).collect();
    let mut now = Piece::new(&shifts);
    let mut next = Piece::new(&shifts);
    let mut done = Progress { runs: 0, of: info.runs };
    let mut more = now.fill(source, &mut phases, &mut carried)?;
    let mut complete = true;
    // Each looks before each piece, so that only what one piece needs is allocated after memory ran
    // short.
    let step = |simulation: &mut Simulation, piece: &Piece| {
        if !guard.is_short() {
            simulation.step(piece, stop);
        }
    };
    while more && complete {
        workers::with(|threads| -> Result<(), Error> {
            let begun = Instant::now();
            while more && begun.elapsed() < TURN {
                if stop.load(Ordering::Relaxed) {
                    complete = false;
                    break;
                }
                let filled = if threads {
                    let fill = || next.fill(source, &mut phases, &mut carried);
                    let step_all = || simulations.par_iter_mut().for_each(|simulation| step(simulation, &now));
                    rayon::join(fill, step_all).0
                } else {
                    simulations.iter_mut().for_each(|simulation| step(simulation, &now));
                    next.fill(source, &mut phases, &mut carried)
                };
                more = filled?;
                guard.check(setups.len(), watch)?;
                done.runs += now.batch.runs.len() as u64;
                std::mem::swap(&mut now, &mut next);
            }
            Ok(())
        })?;
        progress(done);
    }
    let info = source.info().clone();
    let finish = |simulation: Simulation| simulation.finish(&info, complete);
    let mut runs: Vec<(usize, Run)> = workers::with(|threads| {
        if threads {
            simulations.into_par_iter().flat_map_iter(finish).collect()
        } else {
            simulations.into_iter().flat_map(finish).collect()
        }
    });
    runs.sort_unstable_by_key(|(place, _)| *place);
    let mut runs: Vec<Run> = runs.into_iter().map(|(_, run)| run).collect();
    let digest = source.digest();
    for run in &mut runs {
        run.parts.iter_mut().map(|part| &mut part.row).chain([&mut run.row]).for_each(|row| {
            row.trace_digest.clone_from(&digest);
        });
    }
    compare(&mut runs);
    Ok(runs)
}

/// Whether the threads of the stream can migrate, if they are to.
///
/// # Errors
/// It is sampled.
pub fn check_migration(cores: Option<Cores>, info: &Info) -> Result<(), Error> {
    if cores.is_some_and(|cores| cores.migrate) && info.sampling.is_some() {
        return Err(Error::Usage(format!(
            "{}: is sampled, and when its threads would migrate in gaps is not known: leave out --migrate",
            info.workload
        )));
    }
    Ok(())
}

/// Whether the stream says which lines caches hold.
///
/// # Errors
/// It has pages and no lines, or is sampled.
pub fn check_stream_lines(info: &Info) -> Result<(), Error> {
    let problem = if !info.lines {
        "has pages and no lines: record or import it with --lines, or leave out --lines here"
    } else if info.sampling.is_some() {
        "is sampled, and what caches hold after a gap is not known: leave out --lines"
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!("{}: {problem}", info.workload)))
}

/// Whether these simulations can run over a stream of this kind.
///
/// # Errors
/// A machine or a model of the kernel needs lines, which the stream has not, or cannot hold those
/// that it has.
pub fn check_setups(setups: &[Setup], info: &Info, lines: bool) -> Result<(), Error> {
    check_cores(setups, info)?;
    if lines { check_lines(setups, info) } else { check_pages(setups) }
}

/// Whether the machines and kernels are modelled for as many cores as the stream runs on.
fn check_cores(setups: &[Setup], info: &Info) -> Result<(), Error> {
    if info.cores > 1 && info.mixed_windows {
        return Err(Error::Usage(format!(
            "{}: is an old sample, whose windows begin with the pages of all threads: record it again, or give --cores 1",
            info.workload
        )));
    }
    for Setup { machine, kernel, .. } in setups.iter().filter(|_| info.cores > 1) {
        let name = &machine.name;
        let refused = |why: &str| Err(Error::Usage(format!("machine {name}: {why}: give fewer --cores")));
        if let Some(why) = Mmu::refuses_cores(machine) {
            return refused(why);
        }
        if let Some(has) = machine.clock.cores.filter(|has| *has < info.cores) {
            return refused(&format!("it has {has} {}, not {}", if has == 1 { "core" } else { "cores" }, info.cores));
        }
        if let Some(kernel) = kernel {
            return refused(&format!("kernel {} is modelled for one core", kernel.text));
        }
    }
    Ok(())
}

/// Whether the machines can hold the lines of the stream in their caches.
fn check_lines(setups: &[Setup], info: &Info) -> Result<(), Error> {
    check_stream_lines(info)?;
    for setup in setups {
        if let Some(problem) = Mmu::refuses_lines(&setup.machine, setup.frames << setup.ladder.base().shift()) {
            return Err(Error::Usage(format!("machine {}: {problem}", setup.machine.name)));
        }
    }
    Ok(())
}

/// Whether the machines can run a stream without lines.
fn check_pages(setups: &[Setup]) -> Result<(), Error> {
    if let Some(kernel) = setups.iter().find_map(|setup| setup.kernel.as_ref()) {
        return Err(Error::Usage(format!(
            "kernel {}: only in a stream with lines is there room for what a kernel touches: give --lines",
            kernel.text
        )));
    }
    match setups.iter().find(|setup| setup.machine.shadow.is_some()) {
        Some(setup) => Err(Error::Usage(format!(
            "machine {}: only lines say what goes to its memory controller: give --lines, and a trace recorded with it",
            setup.machine.name
        ))),
        None => Ok(()),
    }
}

/// Sets every row's figures relative to `base` on the same machine: rows of one stream under one
/// set of conditions, those of a machine next to each other, as [`run_parts`] returns them. It has
/// done that already; this is for runs of several calls put together.
pub fn compare(runs: &mut [Run]) {
    for group in runs.chunk_by_mut(|a, b| a.row.machine == b.row.machine) {
        let bases: Vec<Run> = group.iter().filter(|run| run.row.is_base()).cloned().collect();
        for run in group {
            // The one with the same kernel.
            let Some(base) = bases.iter().find(|base| base.row.kernel == run.row.kernel) else { continue };
            run.row.compare(&base.row);
            compared_errors(&mut run.row, run.evidence.as_ref(), &base.row, base.evidence.as_ref());
            for (part, base) in run.parts.iter_mut().zip(&base.parts) {
                part.row.compare(&base.row);
            }
        }
    }
}
