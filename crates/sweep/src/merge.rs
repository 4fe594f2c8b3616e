//! All rows of a sweep, from its cells: in the order of the grid, each compared with `base`.

use crate::axis::Point;
use crate::pass::CELL;
use crate::plan::Part;
use crate::{Plan, folder};
use std::collections::BTreeMap;
use std::path::Path;
use superpage_sim::{Error, Kept, Row, Run, compare};

/// All rows, and where the parts of the sweep are among them.
pub(crate) struct Merged {
    pub(crate) rows: Vec<Row>,
    /// Which rows have an error, in words.
    pub(crate) failed: Vec<String>,
    /// The first row of each part.
    starts: Vec<usize>,
}

impl Merged {
    /// The place of the row of a point.
    pub(crate) fn place(&self, plan: &Plan, point: &Point) -> usize {
        let (part, row) = plan.find(point);
        self.starts[part] + row
    }
}

/// Reads all cells of a folder that has them.
///
/// # Errors
/// [`Error::Output`]: a cell cannot be read.
pub(crate) fn merge(plan: &Plan, path: &Path) -> Result<Merged, Error> {
    let mut merged = Merged { rows: Vec::with_capacity(plan.rows()), failed: Vec::new(), starts: Vec::new() };
    let mut cells: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    plan.cells.iter().enumerate().for_each(|(place, cell)| cells.entry(cell.part).or_default().push(place));
    for (place, cells) in cells {
        merged.starts.push(merged.rows.len());
        let runs = runs(plan, path, &plan.parts[place], &cells)?;
        for Run { row, .. } in runs {
            if let Some(error) = &row.error {
                let name = &plan.streams[plan.parts[place].stream].name;
                merged.failed.push(format!("{name}, {} {}: {error}", row.machine, row.policies()));
            }
            merged.rows.push(row);
        }
    }
    Ok(merged)
}

/// The runs of a part, in their order.
fn runs(plan: &Plan, path: &Path, part: &Part, cells: &[usize]) -> Result<Vec<Run>, Error> {
    let mut runs: Vec<Option<Run>> = vec![None; part.rows];
    for place in cells {
        let cell = &plan.cells[*place];
        let file = folder::cell(path, &cell.name);
        let wrong = |problem: String| Error::Output {
            what: "all rows".into(),
            problem: format!("{}: {problem}; remove that file and give the same command again", file.display()),
        };
        let kept = std::fs::read(&file).map_err(|error| error.to_string()).and_then(Kept::read).map_err(wrong)?;
        let of = kept.notes.iter().find(|(key, _)| key == CELL).map_or("", |(_, name)| name);
        if of != cell.name {
            return Err(wrong("it is of another cell".into()));
        }
        if kept.runs.len() != cell.rows.len() {
            return Err(wrong(format!("it has {} rows, expected {}", kept.runs.len(), cell.rows.len())));
        }
        cell.rows.iter().zip(kept.runs).for_each(|(row, run)| runs[*row] = Some(run));
    }
    let mut runs: Vec<Run> = runs.into_iter().flatten().collect();
    compare(&mut runs);
    Ok(runs)
}
