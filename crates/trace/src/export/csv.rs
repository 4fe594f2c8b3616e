//! The table as comma-separated values, numbers in decimal.

use super::{Out, Table};
use crate::file::Totals;
use crate::row::Row;
use std::io::{self, Write};
use superpage_output::foreign;

struct Csv(Out);

/// The columns of a row.
pub(super) const COLUMNS: &str = "process,thread,kind,page,pages,references,instructions,detail,line";

pub(super) fn start(mut out: Out) -> io::Result<Box<dyn Table>> {
    writeln!(out, "{COLUMNS}")?;
    Ok(Box::new(Csv(out)))
}

/// Bytes of the lines, which are hardly shorter than this.
pub(super) fn size(totals: &Totals) -> u64 {
    const LINE: u64 = 24;
    LINE.saturating_mul(totals.runs)
}

impl Table for Csv {
    fn row(&mut self, row: Row) -> io::Result<()> {
        write(&mut self.0, &row)
    }

    fn finish(self: Box<Self>) -> io::Result<Out> {
        Ok(self.0)
    }
}

/// Writes a row as a line.
pub(super) fn write(out: &mut Out, row: &Row) -> io::Result<()> {
    write!(out, "{},{},{}", row.process, row.thread, row.kind)?;
    for number in [row.page, row.pages, row.references, row.instructions] {
        match number {
            Some(number) => write!(out, ",{number}")?,
            None => out.write_all(b",")?,
        }
    }
    match &row.detail {
        Some(detail) => write!(out, ",\"{}\"", foreign(detail).replace('"', "\"\""))?,
        None => out.write_all(b",")?,
    }
    match row.line {
        Some(line) => writeln!(out, ",{line}"),
        None => out.write_all(b",\n"),
    }
}
