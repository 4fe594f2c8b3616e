//! The text that [`export`](crate::export) writes: a kind, and the cells that there are, each after
//! its name; who does it is in rows of switches.

use super::Records;
use super::lines::Lines;
use super::table::{Cell, Cells, Column, Rows, Table};
use crate::Error;
use std::path::Path;

/// The cells of a line in their order, but for those of a switch.
const CELLS: [(&str, Column); 5] = [
    ("page", Column::Page),
    ("line", Column::Line),
    ("pages", Column::Pages),
    ("references", Column::References),
    ("instructions", Column::Instructions),
];

struct Text(Lines);

/// Opens such a text. Nothing is read yet.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    Table::records(Text(Lines::open(path)?), &path.display().to_string())
}

impl Rows for Text {
    fn names(&self) -> Vec<String> {
        ["kind"].into_iter().chain(CELLS.map(|(name, _)| name)).map(str::to_owned).collect()
    }

    fn read(&mut self, each: &mut dyn FnMut(&Cells) -> Result<(), String>) -> Result<bool, Error> {
        for _ in 0..Lines::AT_A_TIME {
            if !self.0.next()? {
                return Ok(false);
            }
            let line = String::from_utf8_lossy(self.0.line());
            let row = row(&line).and_then(|cells| each(&cells));
            row.map_err(|problem| self.0.wrong(&problem))?;
        }
        Ok(true)
    }
}

fn row(line: &str) -> Result<Cells, String> {
    let mut cells = Cells::default();
    let (kind, mut rest) = word(line);
    cells.set(Column::Kind, Cell::Text(kind))?;
    let switch = [("process", Column::Process), ("thread", Column::Thread)];
    let named: &[(&str, Column)] = match kind {
        "switch" => &switch,
        "note" | "mark" => &[],
        _ => &CELLS,
    };
    for &(name, column) in named {
        if let (found, after) = word(rest)
            && found == name
        {
            let (cell, after) = word(after);
            cells.set(column, Cell::Text(cell))?;
            rest = after;
        }
    }
    if !rest.is_empty() {
        cells.set(Column::Detail, Cell::Text(rest))?;
    }
    Ok(cells)
}

/// The first word, and what comes after it.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    (word, rest.trim_start_matches(' '))
}
