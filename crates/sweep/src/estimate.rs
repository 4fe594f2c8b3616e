//! How long a sweep will take: from the cells that are there, or from a short trial of each stream.

use crate::Plan;
use crate::cells::{CELLS, Cells};
use crate::folder;
use crate::pass::SECONDS;
use crate::run::{Options, PASS};
use rayon::ThreadPoolBuilder;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_output::Output;
use superpage_sim::{Error, Kept, Run, Setup, keep, run_parts};

/// How long a stream is tried.
const TRIAL: Duration = Duration::from_millis(500);
/// What ends sooner is tried once more: the first time something is done takes longer.
const SHORT: Duration = Duration::from_millis(50);
/// How often the file of a cell is tried.
const FILES: usize = 9;
/// The most streams that are tried.
const TRIED: usize = 12;
/// The most cells that are read to learn how long they took.
const READ: usize = 1000;

/// What is to be done, and how long it will take.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Cells of the sweep.
    pub cells: usize,
    /// Its rows.
    pub rows: usize,
    /// Cells of the shard.
    pub shard_cells: usize,
    /// Those of them that are there.
    pub there: usize,
    /// Seconds that the missing ones of the shard will take, on one processor each, as many at a
    /// time as the options allow; `None` if nothing could be tried.
    pub seconds: Option<f64>,
    /// Cells that were measured when they ran.
    pub measured: usize,
    /// Streams of which cells were run for a moment now, since none was measured.
    pub tried: usize,
    /// Seconds of each missing cell outside its simulation: to lay out its setups, to write its
    /// file to the disk, and to read that again for all rows.
    pub overhead: f64,
    /// In words, what the folder was made for, if that is another sweep.
    pub differs: Option<String>,
}

/// Means of seconds a cell: of all, and by stream.
#[derive(Default)]
struct Means {
    all: (f64, usize),
    streams: BTreeMap<usize, (f64, usize)>,
}

impl Means {
    fn add(&mut self, stream: usize, seconds: f64) {
        for mean in [&mut self.all, self.streams.entry(stream).or_default()] {
            *mean = (mean.0 + seconds, mean.1 + 1);
        }
    }

    fn of(&self, stream: usize) -> f64 {
        let (sum, number) = self.streams.get(&stream).unwrap_or(&self.all);
        sum / *number as f64
    }
}

/// Estimates without running anything for long, and without leaving a file. A cell takes as long as
/// the mean of the measured ones over its stream, or else of those that were tried, or of all; and
/// what its file takes here.
///
/// # Errors
/// A cell cannot be tried.
pub fn estimate(plan: &Plan, path: &Path, options: &Options, stop: &AtomicBool) -> Result<Estimate, Error> {
    let cells = Cells::of(path)?;
    let there = cells.names()?;
    let is_there = |place: &usize| there.contains(&plan.cells[*place].name);
    let shard_cells = (0..plan.cells.len()).filter(|place| options.shard.has(*place));
    let (done, missing): (Vec<usize>, Vec<usize>) = shard_cells.partition(is_there);
    let mut means = Means::default();
    let all_there: Vec<usize> = (0..plan.cells.len()).filter(is_there).collect();
    // From all over the sweep.
    for place in all_there.iter().step_by(all_there.len().div_ceil(READ).max(1)) {
        let file = cells.open(&plan.cells[*place].name).ok();
        let notes = file.and_then(|file| Kept::notes(file).ok()).unwrap_or_default();
        let seconds = notes.iter().find(|(key, _)| key == SECONDS).and_then(|(_, value)| value.parse().ok());
        if let Some(seconds) = seconds {
            means.add(plan.stream_of(*place), seconds);
        }
    }
    let (measured, mut tried, mut overhead) = (means.all.1, 0, 0.0);
    if !missing.is_empty() {
        let runs = try_streams(plan, &missing, &mut means, stop)?;
        tried = means.all.1 - measured;
        let one = all_there.first().and_then(|place| cells.read(&plan.cells[*place].name).ok());
        let runs = one.and_then(|file| Kept::read(file).ok()).map_or(runs, |kept| kept.runs);
        overhead = overhead_of(plan, path, &missing, &runs)?;
    }
    let seconds = missing.iter().map(|place| means.of(plan.stream_of(*place)) + overhead).sum::<f64>();
    Ok(Estimate {
        cells: plan.cells.len(),
        rows: plan.rows(),
        shard_cells: done.len() + missing.len(),
        there: done.len(),
        seconds: (means.all.1 > 0 || missing.is_empty())
            .then(|| seconds / options.jobs.clamp(1, missing.len().max(1)) as f64),
        measured,
        tried,
        overhead,
        differs: folder::differs(path, plan),
    })
}

/// Runs missing cells of each stream that has no mean for a moment, and scales by how much of the
/// stream that was. Returns the runs of the last of them.
fn try_streams(plan: &Plan, missing: &[usize], means: &mut Means, stop: &AtomicBool) -> Result<Vec<Run>, Error> {
    let mut last = Vec::new();
    let mut by_stream: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for place in missing {
        by_stream.entry(plan.stream_of(*place)).or_default().push(*place);
    }
    by_stream.retain(|stream, _| !means.streams.contains_key(stream));
    for (stream, places) in by_stream.iter().take(TRIED) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // As many as share a pass, from all over the sweep.
        let step = places.len().div_ceil(PASS);
        let tried: Vec<usize> = places.iter().copied().step_by(step).collect();
        let setups: Vec<Vec<Setup>> =
            tried.iter().map(|place| plan.setups_of(&plan.cells[*place])).collect::<Result<_, Error>>()?;
        // On one thread, as cells run.
        let pool = ThreadPoolBuilder::new().num_threads(1).build().ok();
        let alone = || try_cells(plan, *stream, &setups.concat(), stop);
        let once = || pool.as_ref().map_or_else(alone, |pool| pool.install(alone));
        let (mut seconds, mut runs) = once()?;
        if seconds < SHORT.as_secs_f64() {
            (seconds, runs) = once()?;
        }
        means.add(*stream, seconds / tried.len() as f64);
        runs.truncate(setups.first().map_or(0, Vec::len));
        last = runs;
    }
    Ok(last)
}

/// Runs these setups over a stream for a moment: how long they take to its end, and their runs so
/// far.
fn try_cells(plan: &Plan, stream: usize, setups: &[Setup], stop: &AtomicBool) -> Result<(f64, Vec<Run>), Error> {
    let (enough, share) = (AtomicBool::new(false), std::sync::Mutex::new(1.0));
    let begun = Instant::now();
    let progress = |progress: superpage_sim::Progress| {
        if begun.elapsed() > TRIAL || stop.load(Ordering::Relaxed) {
            enough.store(true, Ordering::Relaxed);
        }
        let done = progress.of.map_or(1.0, |of| progress.runs as f64 / of.max(1) as f64);
        *share.lock().expect("no holder panics") = done.clamp(1e-9, 1.0);
    };
    let stream = &plan.streams[stream];
    let mut source = stream.source(plan.sweep.lines)?;
    let runs = run_parts(setups, source.as_mut(), &enough, &progress, &plan.watch(stream.cores))?;
    let share = if enough.load(Ordering::Relaxed) { *share.lock().expect("no holder panics") } else { 1.0 };
    Ok((begun.elapsed().as_secs_f64() / share, runs))
}

/// The seconds of a cell outside its simulation: the median of a few, with the file of these runs.
fn overhead_of(plan: &Plan, path: &Path, missing: &[usize], runs: &[Run]) -> Result<f64, Error> {
    // The file has no name, so none is left.
    let name = nearest(path).join("cell");
    let disk = |bytes: &[u8]| {
        let mut output = Output::create(&name)?;
        output.write_all(bytes)?;
        output.file()?.sync_all()
    };
    let mut times = Vec::new();
    for place in missing[missing.len() / 2..].iter().take(FILES) {
        let begun = Instant::now();
        plan.setups_of(&plan.cells[*place])?;
        let bytes = keep(runs, &[])?;
        // Where nothing can be written the sweep itself will say so.
        let _ = disk(&bytes);
        let _ = Kept::read(bytes);
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Where the cells are, or the folder that is there of those that they will be in.
fn nearest(path: &Path) -> PathBuf {
    let cells = path.join(CELLS);
    let is = cells.ancestors().find(|folder| folder.is_dir());
    is.map_or_else(|| ".".into(), Path::to_path_buf)
}
