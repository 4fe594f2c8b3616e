//! Runs a plan in one pass over a stream.

use crate::estimate::compared_errors;
use crate::pass::Pass;
use crate::room::Guard;
use crate::stream::Tap;
use crate::workers;
use crate::{Error, Row, Run, Setup, Watch};
use std::collections::BTreeMap;
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
    watch.every.map_or(Ok(()), crate::Every::check)?;
    let guard = Guard::new();
    guard.check_stream(source.info())?;
    let mut runs = match watch.cores {
        Some(cores) => {
            // Machines whose cores have as many hardware threads see the same order of threads.
            let mut kinds: BTreeMap<u32, (Vec<usize>, Vec<Setup>)> = BTreeMap::new();
            for (place, setup) in setups.iter().enumerate() {
                let (places, own) = kinds.entry(threads_per_core(setup)).or_default();
                places.push(place);
                own.push(setup.clone());
            }
            let mut taps = Tap::of(source, kinds.len());
            let streams = taps.iter_mut().zip(kinds.keys());
            let streams = streams.map(|(tap, siblings)| OnCores::new(tap, cores, *siblings));
            let mut streams: Vec<OnCores> = streams.collect();
            let passes = streams.iter_mut().zip(kinds.values());
            let passes = passes.map(|(stream, (places, own))| Pass::new(own, places, stream, watch));
            run_passes(passes.collect::<Result<_, _>>()?, &guard, stop, progress)?
        }
        None => {
            let places: Vec<usize> = (0..setups.len()).collect();
            run_passes(vec![Pass::new(setups, &places, source, watch)?], &guard, stop, progress)?
        }
    };
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

/// Simulates passes piece by piece in turn; returns their runs, with their places.
fn run_passes(
    mut passes: Vec<Pass<'_>>,
    guard: &Guard,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<(usize, Run)>, Error> {
    let mut complete = true;
    while complete && passes.iter().any(Pass::goes_on) {
        workers::with(|threads| -> Result<(), Error> {
            let begun = Instant::now();
            while passes.iter().any(Pass::goes_on) && begun.elapsed() < TURN {
                if stop.load(Ordering::Relaxed) {
                    complete = false;
                    break;
                }
                let mut going = passes.iter_mut().filter(|pass| pass.goes_on());
                going.try_for_each(|pass| pass.step(threads, guard, stop))?;
            }
            Ok(())
        })?;
        progress(passes.first().map_or_else(Progress::default, Pass::progress));
    }
    let finish = |pass: Pass<'_>| workers::with(|threads| pass.finish(threads, complete));
    Ok(passes.into_iter().flat_map(finish).collect())
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

/// The hardware threads of a core: one where several processors are not modelled.
fn threads_per_core(Setup { machine, kernel, .. }: &Setup) -> u32 {
    let alone = Mmu::refuses_cores(machine).is_some() || kernel.is_some();
    if alone { 1 } else { machine.clock.threads_per_core }
}

/// Whether the machines and kernels are modelled for as many cores as the stream runs on.
fn check_cores(setups: &[Setup], info: &Info) -> Result<(), Error> {
    if info.cores > 1 && info.mixed_windows {
        return Err(Error::Usage(format!(
            "{}: an old sample, whose windows begin with the pages of all threads: record it again, or give one core",
            info.workload
        )));
    }
    for Setup { machine, kernel, .. } in setups.iter().filter(|_| info.cores > 1) {
        let name = &machine.name;
        let refused = |why: &str| Err(Error::Usage(format!("machine {name}: {why}: give fewer cores, or none")));
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
