//! All rows of a sweep, from its cells: in the order of the grid, each compared with `base`. A few
//! parts are in memory at a time, however many rows there are.

use crate::Plan;
use crate::axis::Point;
use crate::cells::Cells;
use crate::damaged::{read, refused};
use crate::folder::Folder;
use crate::plan::Part;
use crate::pool::{on_all, pool};
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_output::explain;
use superpage_sim::{Certainty, Error, Row, RowFile, Run, compare, quantities};

/// The file of all rows.
pub(crate) const ROWS: &str = "rows.parquet";

/// Cells that are read at a time, for each processor.
const READ: usize = 64;

/// What the page shows of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    /// Whether others are compared with it.
    pub(crate) base: bool,
    /// Whether it ran to its end.
    pub(crate) ended: bool,
    /// Whether, moreover, the stream says what its kernel did.
    pub(crate) whole: bool,
    /// The modelled time.
    pub(crate) seconds: f64,
    /// What the page shows.
    pub(crate) values: quantities::Values,
    pub(crate) errors: quantities::Values,
}

impl Brief {
    /// `base`: the row that it is compared with, if there is one.
    fn of(row: &Row, base: Option<&Row>) -> Brief {
        let ended = row.error.is_none() && row.complete;
        Brief {
            base: row.is_base(),
            ended,
            whole: ended && row.sampled.as_ref().is_none_or(|sampled| sampled.kernel_exact),
            seconds: row.seconds,
            values: quantities::values(row, base),
            errors: quantities::errors(row),
        }
    }
}

/// All rows in short, and where the parts of the sweep are among them.
#[derive(Default)]
pub(crate) struct Merged {
    pub(crate) rows: Vec<Brief>,
    /// Which rows have an error, in words.
    pub(crate) failed: Vec<String>,
    pub(crate) certainty: Certainty,
    /// The first row of each part.
    starts: Vec<usize>,
}

impl Merged {
    /// The place of the row of a point.
    pub(crate) fn place(&self, plan: &Plan, point: &Point) -> usize {
        let (part, row) = plan.find(point);
        self.starts[part] + row
    }

    pub(crate) fn add(&mut self, stream: &str, rows: &[Row]) {
        self.starts.push(self.rows.len());
        for of_machine in rows.chunk_by(|a, b| a.machine == b.machine) {
            let base = of_machine.iter().find(|row| row.is_base());
            for row in of_machine {
                if let Some(error) = &row.error {
                    self.failed.push(format!("{stream}, {} {}: {error}", row.machine, row.policies()));
                }
                self.certainty.see(row);
                self.rows.push(Brief::of(row, base));
            }
        }
    }
}

/// Writes all rows of a folder that has all cells, as one file; `None` if `stop` ended it.
///
/// # Errors
/// [`Error::Output`]: a cell cannot be read, or the file not be written.
pub(crate) fn write(plan: &Plan, folder: &Folder, jobs: usize, stop: &AtomicBool) -> Result<Option<Merged>, Error> {
    let path = folder.file(ROWS);
    let failed = |problem: String| Error::output(path.display(), problem);
    let wrong = |error: std::io::Error| Error::output(path.display(), explain(error));
    let of_file = |error: Error| match error {
        Error::Output { problem, .. } => failed(problem),
        other => other,
    };
    let output = folder.create(ROWS).map_err(wrong)?;
    let axes = plan.parts.first().and_then(|part| plan.axes(part).into_iter().next()).unwrap_or_default();
    let mut file = RowFile::new(output.file().map_err(wrong)?, &axes).map_err(of_file)?;
    let mut merged = Merged::default();
    let each = |part: &Part, rows: Vec<Row>| {
        merged.add(&plan.streams[part.stream].name, &rows);
        rows.iter().try_for_each(|row| file.push(row)).map_err(of_file)
    };
    if !parts(plan, folder.cells(), (jobs, stop), each)? {
        return Ok(None);
    }
    file.finish().map_err(of_file)?;
    output.commit().map_err(wrong)?;
    Ok(Some(merged))
}

/// All rows of a folder that has all cells, in memory.
///
/// # Errors
/// [`Error::Output`]: a cell cannot be read.
pub(crate) fn rows(plan: &Plan, kept: &Cells, jobs: usize) -> Result<Vec<Row>, Error> {
    let mut all = Vec::with_capacity(plan.rows());
    parts(plan, kept, (jobs, &AtomicBool::new(false)), |_, rows| {
        all.extend(rows);
        Ok(())
    })?;
    Ok(all)
}

/// Each part with the places of its cells.
fn with_cells(plan: &Plan) -> Vec<(&Part, Vec<usize>)> {
    let mut parts: Vec<_> = plan.parts.iter().map(|part| (part, Vec::new())).collect();
    plan.cells.iter().enumerate().for_each(|(place, cell)| parts[cell.part].1.push(place));
    parts
}

/// Calls `each` with the rows of each part, in their order; returns false if `stop` ended that.
fn parts(
    plan: &Plan,
    kept: &Cells,
    (jobs, stop): (usize, &AtomicBool),
    mut each: impl FnMut(&Part, Vec<Row>) -> Result<(), Error>,
) -> Result<bool, Error> {
    let (pool, parts) = (pool(jobs), with_cells(plan));
    let rows = |(part, cells): &(&Part, Vec<usize>)| -> Result<Vec<Row>, Error> {
        let runs = runs(plan, kept, part, cells)?;
        Ok(runs.into_iter().zip(plan.axes(part)).map(|(run, axes)| Row { axes, ..run.row }).collect())
    };
    let mut rest = &parts[..];
    while !rest.is_empty() {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let mut number = 0;
        let some = rest.iter().take_while(|(_, cells)| {
            let more = number < READ * jobs;
            number += cells.len();
            more
        });
        let (now, later) = rest.split_at(some.count());
        for ((part, _), rows) in now.iter().zip(on_all(pool.as_ref(), now, rows)) {
            each(part, rows?)?;
        }
        rest = later;
    }
    Ok(true)
}

/// The runs of a part, in their order.
fn runs(plan: &Plan, kept: &Cells, part: &Part, cells: &[usize]) -> Result<Vec<Run>, Error> {
    let mut runs: Vec<Option<Run>> = vec![None; part.rows];
    for place in cells {
        let cell = read(plan, kept, *place).map_err(|problem| refused(plan, kept, &[(*place, problem)]))?;
        plan.cells[*place].rows.iter().zip(cell.runs).for_each(|(row, run)| runs[*row] = Some(run));
    }
    let mut runs: Vec<Run> = runs.into_iter().flatten().collect();
    compare(&mut runs);
    Ok(runs)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use superpage_sim::Sampled;

    pub(crate) fn plan() -> Plan {
        let text = "[sweep]\nname = \"small\"\n[axes]\nmachine = \"zen5\"\n\
                    workload = [\"touch:bytes=64K\", \"touch:bytes=128K\"]\n\
                    policy = [\"thp\", \"mthp\"]\nmemory = [\"64M\", \"128M\"]\n";
        Plan::new(crate::Sweep::of_text(text, "small.toml").unwrap(), &[]).unwrap()
    }

    #[test]
    fn the_row_of_a_point_is_found_among_all() {
        let (plan, mut merged) = (plan(), Merged::default());
        let row = |part: usize, row: usize| Row { seconds: (10 * part + row) as f64, ..Row::default() };
        for (number, part) in plan.parts.iter().enumerate() {
            merged.add("stream", &(0..part.rows).map(|place| row(number, place)).collect::<Vec<_>>());
        }
        // Each is compared with a row of `base`, which is no point.
        assert_eq!((plan.parts.len(), merged.rows.len(), plan.sweep.points().count()), (4, 12, 8));
        for point in plan.sweep.points() {
            let (part, row) = plan.find(&point);
            assert_eq!(merged.rows[merged.place(&plan, &point)].seconds, (10 * part + row) as f64);
        }
    }

    #[test]
    fn a_row_is_whole_if_it_ran_to_its_end_and_its_kernel_is_known() {
        let whole = |row: Row| Brief::of(&row, None).whole;
        let complete = || Row { complete: true, ..Row::default() };
        let sampled = |kernel_exact| Some(Sampled { kernel_exact, ..Sampled::default() });
        assert!(whole(complete()) && whole(Row { sampled: sampled(true), ..complete() }));
        assert!(!whole(Row { sampled: sampled(false), ..complete() }));
        assert!(!whole(Row { error: Some("killed".into()), ..complete() }));
        assert!(!whole(Row::default()));
    }

    #[test]
    fn a_row_with_an_error_is_named() {
        let mut merged = Merged::default();
        let killed =
            Row { error: Some("killed".into()), machine: "zen5".into(), policy: "thp".into(), ..Row::default() };
        merged.add("touch", &[Row::default(), killed]);
        assert_eq!(merged.failed, ["touch, zen5 thp: killed"]);
    }
}
