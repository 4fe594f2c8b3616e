//! How long a sweep will take: from the cells that are there, or from a short trial of each stream.

use crate::Plan;
use crate::folder;
use crate::pass::SECONDS;
use crate::run::{Options, PASS};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_sim::{Error, Kept, run_parts};

/// How long a stream is tried.
const TRIAL: Duration = Duration::from_millis(500);
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
    pub own: usize,
    /// Those of them that are there.
    pub there: usize,
    /// Seconds that the missing ones of the shard will take, on one processor each, with so many at a time; `None` if
    /// nothing could be tried.
    pub seconds: Option<f64>,
    /// Cells that the estimate is from.
    pub from: usize,
    /// Whether these were run for a moment now, and not measured when they ran.
    pub trial: bool,
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

/// Estimates without running anything for long. A cell takes as long as the mean of the measured ones over its stream, or of all.
///
/// # Errors
/// A cell cannot be tried.
pub fn estimate(plan: &Plan, path: &Path, options: &Options, stop: &AtomicBool) -> Result<Estimate, Error> {
    let there = folder::cells(path);
    let own = (0..plan.cells.len()).filter(|place| options.shard.has(*place));
    let (done, missing): (Vec<usize>, Vec<usize>) = own.partition(|place| there.contains(&plan.cells[*place].name));
    let mut means = Means::default();
    let all_there = plan.cells.iter().filter(|cell| there.contains(&cell.name));
    for cell in all_there.take(READ) {
        let kept = File::open(folder::cell(path, &cell.name)).map_err(|error| error.to_string()).and_then(Kept::notes);
        let notes = kept.unwrap_or_default();
        let seconds = notes.iter().find(|(key, _)| key == SECONDS).and_then(|(_, value)| value.parse().ok());
        if let Some(seconds) = seconds {
            means.add(plan.parts[cell.part].stream, seconds);
        }
    }
    let trial = means.all.1 == 0 && !missing.is_empty();
    if trial {
        try_streams(plan, &missing, &mut means, stop)?;
    }
    let seconds = missing.iter().map(|place| means.of(plan.parts[plan.cells[*place].part].stream)).sum::<f64>();
    Ok(Estimate {
        cells: plan.cells.len(),
        rows: plan.rows(),
        own: done.len() + missing.len(),
        there: done.len(),
        seconds: (means.all.1 > 0 || missing.is_empty())
            .then(|| seconds / options.jobs.clamp(1, missing.len().max(1)) as f64),
        from: means.all.1,
        trial,
        differs: folder::differs(path, plan),
    })
}

/// Runs missing cells of each stream for a moment, and scales by how much of the stream that was.
fn try_streams(plan: &Plan, missing: &[usize], means: &mut Means, stop: &AtomicBool) -> Result<(), Error> {
    let mut by_stream: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for place in missing {
        by_stream.entry(plan.parts[plan.cells[*place].part].stream).or_default().push(*place);
    }
    for (stream, places) in by_stream.iter().take(TRIED) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // As many as share a pass, from all over the sweep.
        let step = places.len().div_ceil(PASS);
        let tried: Vec<usize> = places.iter().copied().step_by(step).collect();
        let setups =
            tried.iter().map(|place| plan.setups_of(&plan.cells[*place])).collect::<Result<Vec<_>, Error>>()?;
        let setups = setups.concat();
        let (enough, share) = (AtomicBool::new(false), std::sync::Mutex::new(1.0));
        let begun = Instant::now();
        let progress = |progress: superpage_sim::Progress| {
            if begun.elapsed() > TRIAL || stop.load(Ordering::Relaxed) {
                enough.store(true, Ordering::Relaxed);
            }
            let done = progress.of.map_or(1.0, |of| progress.runs as f64 / of.max(1) as f64);
            *share.lock().expect("no holder panics") = done.clamp(1e-9, 1.0);
        };
        let mut source = plan.streams[*stream].source(plan.sweep.lines)?;
        run_parts(&setups, source.as_mut(), &enough, &progress, &plan.watch())?;
        let share = if enough.load(Ordering::Relaxed) { *share.lock().expect("no holder panics") } else { 1.0 };
        means.add(*stream, begun.elapsed().as_secs_f64() / share / tried.len() as f64);
    }
    Ok(())
}
