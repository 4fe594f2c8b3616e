//! Reading cells, and what is said of those that are damaged.

use crate::Plan;
use crate::cells::{Cells, Unread};
use crate::pass::CELL;
use crate::pool::{on_all, pool};
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_sim::{Error, Kept};

/// The contents of a cell, or why it is damaged.
pub(crate) fn read(plan: &Plan, kept: &Cells, place: usize) -> Result<Kept, Unread> {
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

/// A cell that cannot be read: its place, and why.
pub(crate) type Damaged = (usize, Unread);

/// Reads cells that are there, and returns the damaged ones in their order, and with `errors` also
/// those of which a row has an error. Ends early if `stop` is set.
pub(crate) fn damaged(
    plan: &Plan,
    kept: &Cells,
    places: &[usize],
    errors: bool,
    (jobs, stop): (usize, &AtomicBool),
) -> Vec<Damaged> {
    let one = |place: &usize| match read(plan, kept, *place) {
        _ if stop.load(Ordering::Relaxed) => None,
        Err(problem) => Some((*place, problem)),
        Ok(cell) if errors => cell.runs.into_iter().find_map(|run| Some((*place, run.row.error?.into()))),
        Ok(_) => None,
    };
    on_all(pool(jobs).as_ref(), places, one).into_iter().flatten().collect()
}

/// The error that names damaged cells.
pub(crate) fn refused(plan: &Plan, kept: &Cells, damaged: &[Damaged]) -> Error {
    const SHOWN: usize = 10;
    let path = |place: usize| kept.path(&plan.cells[place].name).display().to_string();
    if let Some((place, Unread { problem, .. })) = damaged.iter().find(|(_, unread)| unread.passing) {
        let way_out =
            "that says nothing of the cell, and none was removed; raise the limit (ulimit -n, ulimit -v) and try again";
        return Error::output(path(*place), format_args!("it cannot be read: {problem}; {way_out}"));
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
    Error::output("all rows", format_args!("{} damaged {cells}: {all}; {way_out}", damaged.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::tests::plan;

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
