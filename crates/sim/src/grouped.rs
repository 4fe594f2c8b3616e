//! Rows written as a Parquet file while they come, so that not all are in memory: a group of them
//! at a time is.

use crate::columns::{Column, GROUP, Packed, fields, group, heads, push, writer};
use crate::{Error, Row};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use serde_json::{Map, Value};
use std::io::Write;
use superpage_report::Keys;

/// A Parquet file of rows, the same as [`write`](crate::write) writes of all at once.
pub struct RowFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    /// Of a group without rows.
    heads: Vec<Column>,
    /// The rows of a group that is not full yet.
    columns: Vec<Column>,
    rows: usize,
}

impl<W: Write + Send> RowFile<W> {
    /// Begins a file of rows that have such `axes`.
    ///
    /// # Errors
    /// A write fails.
    pub fn new(out: W, axes: &Map<String, Value>) -> Result<RowFile<W>, Error> {
        let heads = heads(Row::KEYS, axes);
        let writer = writer(out, &heads, &[], Packed::Whole).map_err(failed)?;
        Ok(RowFile { writer, columns: heads.clone(), heads, rows: 0 })
    }

    /// Adds a row. Memory: some 1.5 KB for each row of a group of at most 32768.
    ///
    /// # Errors
    /// A write fails.
    pub fn push(&mut self, row: &Row) -> Result<(), Error> {
        push(&mut self.columns, &fields(row));
        self.rows += 1;
        if self.rows == GROUP { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> Result<(), Error> {
        group(&mut self.writer, &self.columns, 0..self.rows).map_err(failed)?;
        (self.columns, self.rows) = (self.heads.clone(), 0);
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// A write fails.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.rows > 0 {
            self.group()?;
        }
        self.writer.close().map_err(failed)?;
        Ok(())
    }
}

fn failed(error: ParquetError) -> Error {
    let problem = match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => superpage_output::explain(*source).to_string(),
            Err(other) => other.to_string(),
        },
        other => other.to_string(),
    };
    Error::Output { what: "the rows".into(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, write};
    use superpage_report::Screen;

    #[test]
    fn rows_that_come_are_the_file_of_all_at_once() {
        let row = |number: u64| Row {
            workload: format!("w{number}"),
            references: number,
            speedup: (number > 2).then_some(number as f64),
            error: (number == GROUP as u64).then(|| "none".into()),
            axes: Map::from_iter([("entries".into(), number.into()), ("trace".into(), Value::Null)]),
            ..Row::default()
        };
        let rows: Vec<Row> = (0..GROUP as u64 + 5).map(row).collect();
        for rows in [&rows[..], &rows[..3], &rows[..0]] {
            let mut whole = Vec::new();
            write(rows, Format::Parquet, Screen::stdout(true), &mut whole).unwrap();
            let mut out = Vec::new();
            let mut file =
                RowFile::new(&mut out, &rows.first().map(|row| row.axes.clone()).unwrap_or_default()).unwrap();
            rows.iter().for_each(|row| file.push(row).unwrap());
            file.finish().unwrap();
            assert!(out == whole, "{} rows", rows.len());
        }
    }
}
