//! The named parts of a run, which its row does not have.

use crate::Row;
use crate::estimate::Evidence;
use crate::misses::MissesByRegion;

/// The results of one simulation, whole and by part.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The whole run.
    pub row: Row,
    /// The named parts of the stream, in order. What precedes the first mark is in none.
    pub parts: Vec<Part>,
    /// The basis of the estimates of a sampled stream.
    pub(crate) evidence: Option<Evidence>,
    /// Its misses by region, if they were counted.
    pub(crate) misses: Option<MissesByRegion>,
}

impl Run {
    /// This run without the figures that are relative to `base`.
    #[must_use]
    pub fn alone(mut self) -> Run {
        (self.row.tlb_miss_reduction_percent, self.row.speedup) = (None, None);
        if let Some(sampled) = &mut self.row.sampled {
            (sampled.tlb_miss_reduction_percent_error, sampled.speedup_error) = (None, None);
        }
        self
    }
}

impl From<Row> for Run {
    /// A run without parts.
    fn from(row: Row) -> Run {
        Run { row, parts: Vec::new(), evidence: None, misses: None }
    }
}

/// A named part of the stream, from one mark to the next or to the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The text of the mark.
    pub name: String,
    /// The modelled time at which the part begins, including idle time.
    pub start_seconds: f64,
    /// The counts of the part. Its peaks are those within the part, its `pages` those mapped when
    /// programs had most memory mapped, and its `contiguity` what is left at its end.
    pub row: Row,
}

/// The rows of `runs`, all of one stream; with `parts`, followed by those of each part, whose
/// workload is `workload/part`.
pub fn rows(runs: Vec<Run>, parts: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = runs.iter().map(|run| run.row.clone()).collect();
    let most = if parts { runs.iter().map(|run| run.parts.len()).max().unwrap_or(0) } else { 0 };
    for index in 0..most {
        for Part { name, row, .. } in runs.iter().filter_map(|run| run.parts.get(index)) {
            rows.push(Row { workload: format!("{}/{name}", row.workload), ..row.clone() });
        }
    }
    rows
}
