//! The table for people: one line per row, pages in hexadecimal, and the process only where it
//! changes.

use super::{Out, Table};
use crate::row::Row;
use std::io::{self, Write};
use superpage_output::foreign;

struct Text(Out);

pub(super) fn start(out: Out) -> io::Result<Box<dyn Table>> {
    Ok(Box::new(Text(out)))
}

impl Table for Text {
    fn row(&mut self, row: Row) -> io::Result<()> {
        let out = &mut self.0;
        write!(out, "{:<8}", row.kind)?;
        if row.kind == "switch" {
            write!(out, " process {} thread {}", row.process, row.thread)?;
        }
        if let Some(page) = row.page {
            write!(out, " page {page:#x}")?;
        }
        if let Some(line) = row.line {
            write!(out, " line {line}")?;
        }
        if let Some(pages) = row.pages {
            write!(out, " pages {pages}")?;
        }
        if let Some(references) = row.references {
            write!(out, " references {references}")?;
        }
        if let Some(instructions) = row.instructions {
            write!(out, " instructions {instructions}")?;
        }
        match row.detail {
            Some(detail) => writeln!(out, " {}", foreign(&detail)),
            None => writeln!(out),
        }
    }

    fn finish(self: Box<Self>) -> io::Result<Out> {
        Ok(self.0)
    }
}
