//! All rows of a sweep, from its cells: in the order of the grid, each compared with `base`. A few
//! parts are in memory at a time, however many rows there are.

use crate::Plan;
use crate::axis::Point;
use crate::folder::{Cells, Folder, Unread};
use crate::measures;
use crate::pass::CELL;
use crate::plan::Part;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_output::explain;
use superpage_sim::{Certainty, Error, Kept, Row, RowFile, Run, compare};

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
    pub(crate) speedup: Option<f64>,
    /// The modelled time.
    pub(crate) seconds: f64,
    /// What the map shows.
    pub(crate) values: measures::Values,
}

impl Brief {
    /// `base`: the row that it is compared with, if there is one.
    fn of(row: &Row, base: Option<&Row>) -> Brief {
        let ended = row.error.is_none() && row.complete;
        Brief {
            base: row.is_base(),
            ended,
            whole: ended && row.sampled.as_ref().is_none_or(|sampled| sampled.kernel_exact),
            speedup: row.speedup,
            seconds: row.seconds,
            values: measures::values(row, base),
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
        for beside in rows.chunk_by(|a, b| a.machine == b.machine) {
            let base = beside.iter().find(|row| row.is_base());
            for row in beside {
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
    let failed = |problem: String| Error::Output { what: path.display().to_string(), problem };
    let wrong = |error: std::io::Error| failed(explain(error).to_string());
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
    if !parts(plan, folder.cells(), &cells(plan), (jobs, stop), each)? {
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
    parts(plan, kept, &cells(plan), (jobs, &AtomicBool::new(false)), |_, rows| {
        all.extend(rows);
        Ok(())
    })?;
    Ok(all)
}

/// A cell that cannot be read: its place, and why.
pub(crate) type Damaged = (usize, Unread);

/// Reads cells that are there, and keeps nothing of them: the damaged ones, in their order, and
/// those with an error where these are `wanted` too. Ends early if `stop` is set.
pub(crate) fn damaged(
    plan: &Plan,
    kept: &Cells,
    places: &[usize],
    wanted: bool,
    (jobs, stop): (usize, &AtomicBool),
) -> Vec<Damaged> {
    let one = |place: &usize| match read(plan, kept, *place) {
        _ if stop.load(Ordering::Relaxed) => None,
        Err(problem) => Some((*place, problem)),
        Ok(cell) if wanted => cell.runs.into_iter().find_map(|run| Some((*place, run.row.error?.into()))),
        Ok(_) => None,
    };
    match ThreadPoolBuilder::new().num_threads(jobs).build() {
        Ok(pool) => pool.install(|| places.par_iter().filter_map(one).collect()),
        Err(_) => places.iter().filter_map(one).collect(),
    }
}

/// The error that names damaged cells.
pub(crate) fn refused(plan: &Plan, kept: &Cells, damaged: &[Damaged]) -> Error {
    const SHOWN: usize = 10;
    let path = |place: usize| kept.path(&plan.cells[place].name).display().to_string();
    if let Some((place, Unread { problem, .. })) = damaged.iter().find(|(_, unread)| unread.passing) {
        let way_out =
            "that says nothing of the cell, and none was removed; raise the limit (ulimit -n, ulimit -v) and try again";
        return Error::Output { what: path(*place), problem: format!("it cannot be read: {problem}; {way_out}") };
    }
    let one = |(place, unread): &Damaged| format!("{}: {}", path(*place), unread.problem);
    let mut all = damaged.iter().take(SHOWN).map(one).collect::<Vec<_>>().join("; ");
    if damaged.len() > SHOWN {
        all += &format!("; and {} more", damaged.len() - SHOWN);
    }
    let (cells, them) = if damaged.len() == 1 { ("cell", "it") } else { ("cells", "them") };
    let repair = format!("--repair (in Python, repair=True) removes {them} and computes {them} again");
    let mut folders = damaged.iter().map(|(place, _)| &plan.cells[*place].name).filter(|name| kept.is_folder(name));
    let way_out = match (folders.next(), folders.count()) {
        (None, _) => repair,
        (Some(name), more) => {
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            let folder = kept.path(name);
            format!("{}{more} is a folder, and no sweep made it: remove it, then {repair}", folder.display())
        }
    };
    Error::Output { what: "all rows".into(), problem: format!("{} damaged {cells}: {all}; {way_out}", damaged.len()) }
}

/// The places of the cells of each part.
fn cells(plan: &Plan) -> Vec<Vec<usize>> {
    let mut cells = vec![Vec::new(); plan.parts.len()];
    plan.cells.iter().enumerate().for_each(|(place, cell)| cells[cell.part].push(place));
    cells
}

/// Calls `each` with the rows of each part, in their order; returns false if `stop` ended that.
fn parts(
    plan: &Plan,
    kept: &Cells,
    cells: &[Vec<usize>],
    (jobs, stop): (usize, &AtomicBool),
    mut each: impl FnMut(&Part, Vec<Row>) -> Result<(), Error>,
) -> Result<bool, Error> {
    let pool = ThreadPoolBuilder::new().num_threads(jobs).build();
    let rows = |place: usize| {
        let part = &plan.parts[place];
        let runs = runs(plan, kept, part, &cells[place])?;
        Ok(runs.into_iter().zip(plan.axes(part)).map(|(run, axes)| Row { axes, ..run.row }).collect())
    };
    let mut from = 0;
    while from < cells.len() {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let mut number = 0;
        let some = cells[from..].iter().take_while(|cells| {
            let more = number < READ * jobs;
            number += cells.len();
            more
        });
        let to = from + some.count();
        let all: Vec<Result<Vec<Row>, Error>> = match &pool {
            Ok(pool) => pool.install(|| (from..to).into_par_iter().map(rows).collect()),
            Err(_) => (from..to).map(rows).collect(),
        };
        for (place, rows) in (from..to).zip(all) {
            each(&plan.parts[place], rows?)?;
        }
        from = to;
    }
    Ok(true)
}

/// The contents of a cell, or why it is damaged.
fn read(plan: &Plan, kept: &Cells, place: usize) -> Result<Kept, Unread> {
    let cell = &plan.cells[place];
    let kept = Kept::read(kept.read(&cell.name)?)?;
    let of = kept.notes.iter().find(|(key, _)| key == CELL).map_or("", |(_, name)| name);
    if of != cell.name {
        return Err("it is of another cell".to_string().into());
    }
    if kept.runs.len() != cell.rows.len() {
        return Err(format!("it has {} rows, expected {}", kept.runs.len(), cell.rows.len()).into());
    }
    Ok(kept)
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
mod tests {
    use super::*;
    use superpage_sim::Sampled;

    fn plan() -> Plan {
        let text = "[sweep]\nname = \"small\"\n[axes]\nworkload = [\"touch:bytes=64K\", \"touch:bytes=128K\"]\nmachine = \"zen5\"\n\
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

    #[test]
    fn ten_damaged_cells_are_named_and_the_others_counted() {
        let (plan, cells) = (plan(), Cells::of("none".as_ref()).unwrap());
        let refused = |number: usize| {
            let damaged: Vec<Damaged> =
                (0..number).map(|at| (at % plan.cells.len(), format!("problem {at}").into())).collect();
            refused(&plan, &cells, &damaged).to_string()
        };
        let one = refused(1);
        assert!(
            one.contains("1 damaged cell: ") && one.contains(": problem 0; --repair") && one.contains("removes it"),
            "{one}"
        );
        let ten = refused(10);
        assert!(
            ten.contains("10 damaged cells: ") && ten.contains("problem 9; --repair") && ten.contains("removes them"),
            "{ten}"
        );
        assert!(refused(11).contains("problem 9; and 1 more; --repair"));
        let many = refused(13);
        assert!(many.contains("problem 9; and 3 more; --repair") && !many.contains("problem 10"), "{many}");
    }

    #[test]
    fn a_cell_is_not_damaged_because_this_process_has_too_many_open_files() {
        let (plan, cells) = (plan(), Cells::of(std::path::Path::new("/nowhere")).unwrap());
        let unread = |code: i32| Unread::of(&std::io::Error::from_raw_os_error(code));
        let error = refused(&plan, &cells, &[(0, unread(5)), (1, unread(24))]).to_string();
        assert!(
            error.contains("ulimit -n") && !error.contains("--repair") && !error.contains("damaged cell"),
            "{error}"
        );
        assert!(refused(&plan, &cells, &[(0, unread(5))]).to_string().contains("1 damaged cell"));
    }
}
