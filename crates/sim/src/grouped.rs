//! Rows written as a Parquet file while they come, so that not all are in memory: a group of them at a time is.

use crate::columns::{Column, GROUP, Kinds, Packed, group, writer};
use crate::report::fields;
use crate::{Error, Row};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use std::io::Write;

/// A Parquet file of rows, the same as [`write`](crate::write) writes of all at once, if `kinds` are those of all of them.
///
/// Which types its columns have follows from all rows, so whoever cannot know them writes once with a guess, such as those of the first
/// rows, and again with those that [`RowFile::finish`] returns, if they are others.
pub struct RowFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    kinds: Kinds,
    seen: Kinds,
    /// The rows of a group that is not full yet.
    columns: Vec<Column>,
    rows: usize,
}

impl Kinds {
    /// The types of the columns of these rows.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Kinds {
        let mut kinds = Kinds::default();
        rows.into_iter().for_each(|row| kinds.see(&fields(row)));
        kinds
    }
}

impl<W: Write + Send> RowFile<W> {
    /// Begins a file with columns of these types.
    ///
    /// # Errors
    /// A write fails.
    pub fn new(out: W, kinds: Kinds) -> Result<RowFile<W>, Error> {
        let columns = kinds.columns();
        let writer = writer(out, &columns, &[], Packed::Whole).map_err(failed)?;
        Ok(RowFile { writer, kinds, seen: Kinds::default(), columns, rows: 0 })
    }

    /// Adds a row. Memory: some 1.5 KB for each row of a group of at most 32768.
    ///
    /// # Errors
    /// A write fails.
    pub fn push(&mut self, row: &Row) -> Result<(), Error> {
        let fields = fields(row);
        self.seen.see(&fields);
        self.columns.iter_mut().zip(&fields).for_each(|(column, (_, value))| column.push(value));
        self.rows += 1;
        if self.rows == GROUP { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> Result<(), Error> {
        group(&mut self.writer, &self.columns, 0..self.rows).map_err(failed)?;
        (self.columns, self.rows) = (self.kinds.columns(), 0);
        Ok(())
    }

    /// Writes what is left; returns the types that fit all rows. If they are not those that the file began with, it is not to be used.
    ///
    /// # Errors
    /// A write fails.
    pub fn finish(mut self) -> Result<Kinds, Error> {
        if self.rows > 0 {
            self.group()?;
        }
        self.writer.close().map_err(failed)?;
        Ok(self.seen)
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
            ..Row::default()
        };
        let rows: Vec<Row> = (0..GROUP as u64 + 5).map(row).collect();
        for rows in [&rows[..], &rows[..3], &rows[..0]] {
            let mut whole = Vec::new();
            write(rows, Format::Parquet, Screen::stdout(true), &mut whole).unwrap();
            let streamed = |kinds: &Kinds| {
                let mut out = Vec::new();
                let mut file = RowFile::new(&mut out, kinds.clone()).unwrap();
                rows.iter().for_each(|row| file.push(row).unwrap());
                (file.finish().unwrap(), out)
            };
            let all = Kinds::of(rows);
            assert_eq!(streamed(&all), (all.clone(), whole));
            // From a wrong guess it learns the right types.
            assert_eq!(streamed(&Kinds::of(rows.first())).0, all);
        }
    }
}
