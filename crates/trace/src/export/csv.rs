//! The table as comma-separated values, numbers in decimal.

use super::Table;
use crate::row::Row;
use std::io::{self, Write};
use superpage_output::foreign;

struct Csv(Box<dyn Write + Send>);

pub(super) fn start(mut out: Box<dyn Write + Send>) -> io::Result<Box<dyn Table>> {
    out.write_all(b"process,thread,kind,page,pages,references,instructions,detail,line\n")?;
    Ok(Box::new(Csv(out)))
}

impl Table for Csv {
    fn row(&mut self, row: Row) -> io::Result<()> {
        write!(self.0, "{},{},{}", row.process, row.thread, row.kind)?;
        for number in [row.page, row.pages, row.references, row.instructions] {
            match number {
                Some(number) => write!(self.0, ",{number}")?,
                None => self.0.write_all(b",")?,
            }
        }
        match row.detail {
            Some(detail) => write!(self.0, ",\"{}\"", foreign(&detail).replace('"', "\"\""))?,
            None => self.0.write_all(b",")?,
        }
        match row.line {
            Some(line) => writeln!(self.0, ",{line}"),
            None => self.0.write_all(b",\n"),
        }
    }

    fn finish(self: Box<Self>) -> io::Result<Box<dyn Write + Send>> {
        Ok(self.0)
    }
}
