//! Comma-separated values with a line of column names first; a row is a line.

use super::Records;
use super::lines::Lines;
use super::table::{Cell, Cells, Column, Rows, Table};
use crate::Error;
use csv_core::{ReadRecordResult, Reader};
use std::path::Path;

/// The most columns accepted.
const MOST_COLUMNS: usize = 1000;

struct Csv {
    lines: Lines,
    names: Vec<String>,
    columns: Vec<Option<Column>>,
    cells: Fields,
}

/// Opens a table; the names of its columns are read.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    let (mut lines, mut cells) = (Lines::open(path)?, Fields::new());
    lines.next()?;
    cells.split(lines.line().strip_prefix("\u{feff}".as_bytes()).unwrap_or(lines.line()));
    let names: Vec<String> = cells.each().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let columns = names.iter().map(|name| Column::named(name)).collect();
    Table::records(Csv { lines, names, columns, cells }, &path.display().to_string())
}

impl Rows for Csv {
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn read(&mut self, each: &mut dyn FnMut(&Cells) -> Result<(), String>) -> Result<bool, Error> {
        for _ in 0..Lines::AT_A_TIME {
            if !self.lines.next()? {
                return Ok(false);
            }
            if self.lines.line().is_empty() {
                continue;
            }
            // A quote within quotes is written twice.
            if self.lines.line().iter().filter(|byte| **byte == b'"').count() % 2 == 1 {
                return Err(self.lines.wrong("a quote that is not closed on its line, expected a row on each line"));
            }
            self.cells.split(self.lines.line());
            self.row(each).map_err(|problem| self.lines.wrong(&problem))?;
        }
        Ok(true)
    }
}

impl Csv {
    fn row(&self, each: &mut dyn FnMut(&Cells) -> Result<(), String>) -> Result<(), String> {
        let (found, expected) = (self.cells.count, self.columns.len());
        if found != expected {
            return Err(format!("{found} cells, expected {expected}, as the first line names"));
        }
        let mut cells = Cells::default();
        for (column, cell) in self.columns.iter().zip(self.cells.each()) {
            if let Some(column) = column.filter(|_| !cell.is_empty()) {
                cells.set(column, Cell::Text(&String::from_utf8_lossy(cell)))?;
            }
        }
        each(&cells)
    }
}

/// The fields of a line.
struct Fields {
    reader: Reader,
    bytes: Vec<u8>,
    /// Where each of them ends in `bytes`; only the first `count` are used.
    ends: Box<[usize; MOST_COLUMNS]>,
    count: usize,
}

impl Fields {
    fn new() -> Fields {
        Fields { reader: Reader::new(), bytes: Vec::new(), ends: Box::new([0; MOST_COLUMNS]), count: 0 }
    }

    /// Splits a line; of one with more than [`MOST_COLUMNS`] cells the rest is dropped.
    fn split(&mut self, line: &[u8]) {
        self.reader.reset();
        // What is unquoted is never longer.
        self.bytes.resize(line.len(), 0);
        let (mut input, mut bytes, mut ends) = (line, 0, 0);
        loop {
            let (to, places) = (&mut self.bytes[bytes..], &mut self.ends[ends..]);
            let (result, read, wrote, ended) = self.reader.read_record(input, to, places);
            let end = input.is_empty();
            (input, bytes, ends) = (&input[read..], bytes + wrote, ends + ended);
            // A record ends where no input is left.
            if result != ReadRecordResult::InputEmpty || end {
                break;
            }
        }
        self.count = ends;
    }

    fn each(&self) -> impl Iterator<Item = &[u8]> {
        let ends = &self.ends[..self.count];
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends).map(|(start, end)| self.bytes[start..*end].trim_ascii())
    }
}
