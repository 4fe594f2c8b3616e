//! How experiments are run, and what comes of it.

use crate::measure::slug;
use std::path::PathBuf;
use superpage_report::Point;
use superpage_sim::{Progress, Row};

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the traces of the corpus.
    pub corpus: PathBuf,
    /// Whether the longer parameters are used where a file has them.
    pub long: bool,
    /// The folder of this project's own programs that kind `live` runs: the examples of
    /// `superpage-live`.
    pub programs: PathBuf,
}

/// Receives reports of progress.
pub trait Watch: Sync {
    /// The stream with this name begins, as number `index` (from 1) of `of`.
    fn stream(&self, name: &str, index: usize, of: usize);
    /// So much of it is done.
    fn progress(&self, progress: Progress);
}

/// The result of one policy over a stream.
#[derive(Clone)]
pub(crate) enum Outcome {
    Done(Box<Ran>),
    /// The trace is missing, so there is no result.
    Missing(String),
    /// It could not be run.
    Failed(String),
    /// It was not run, or not to its end, because of an interrupt.
    Interrupted,
}

/// What a policy did over a stream.
#[derive(Clone)]
pub(crate) struct Ran(pub(crate) superpage_sim::Run);

impl Ran {
    /// The counts of a part of the stream, or of the whole. A part is named like its mark, up to
    /// the colon, with a number appended if it is not the first with its name: `fftw-2`.
    pub(crate) fn part(&self, name: Option<&str>) -> Option<&Row> {
        let Some(name) = name else { return Some(&self.0.row) };
        let numbered =
            name.rsplit_once('-').and_then(|(name, n)| Some((name, n.parse::<usize>().ok()?.checked_sub(1)?)));
        let (name, index) = numbered.unwrap_or((name, 0));
        let alike = |part: &&superpage_sim::Part| slug(part.name.split(':').next().unwrap_or_default().trim()) == name;
        self.0.parts.iter().filter(alike).nth(index).map(|part| &part.row)
    }

    /// The error that ended a process early, if there is one.
    pub(crate) fn error(&self) -> Option<&str> {
        self.0.row.error.as_deref()
    }

    /// A quantity of the state of memory over seconds of modelled time.
    pub(crate) fn over_time(&self, key: &str) -> Option<Vec<Point>> {
        let value = |sample: &superpage_sim::Sample| {
            Some(match key {
                "contiguity" => sample.contiguity,
                "free_bytes" => sample.free_bytes as f64,
                "cache_bytes" => sample.cache_bytes as f64,
                "inactive_bytes" => sample.inactive_bytes as f64,
                "active_bytes" => sample.active_bytes as f64,
                "wired_bytes" => sample.wired_bytes as f64,
                _ => return None,
            })
        };
        let point =
            |sample: &superpage_sim::Sample| Some(Point { x: sample.seconds, y: value(sample)?, label: String::new() });
        // Those at steps of time.
        let samples = self.0.row.series.iter().flatten().filter(|sample| sample.event.is_none());
        let mut points = samples.map(point).collect::<Option<Vec<Point>>>()?;
        if key == "contiguity" && !points.is_empty() {
            // The end itself, which lies between two samples.
            let row = &self.0.row;
            points.push(Point { x: row.seconds + row.idle_seconds, y: row.contiguity, label: String::new() });
        }
        Some(points)
    }
}
