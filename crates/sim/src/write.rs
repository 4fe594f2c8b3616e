//! Rows in the formats that people and programs read: a table, JSON, CSV, Parquet.

use crate::columns::{columns, fields, text};
use crate::table::table;
use crate::{Error, Row, parquet};
use std::io::Write;
use std::str::FromStr;
use superpage_report::{Screen, foreign};

/// The format in which rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For people: one table per workload.
    Table,
    /// One array of objects.
    Json,
    /// A header and one line per row; nested values as JSON text. What a terminal would obey is
    /// escaped.
    Csv,
    /// A Parquet file with one column per key; nested values as JSON text.
    Parquet,
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Format, Error> {
        match text {
            "table" => Ok(Format::Table),
            "json" => Ok(Format::Json),
            "csv" => Ok(Format::Csv),
            "parquet" => Ok(Format::Parquet),
            _ => Err(Error::Usage(format!("unknown format {text}: expected table, json, csv or parquet"))),
        }
    }
}

/// Writes `rows` to `out`; a table is formatted for `screen`.
///
/// # Errors
/// A write fails.
pub fn write(rows: &[Row], format: Format, screen: Screen, out: &mut (impl Write + Send)) -> Result<(), Error> {
    match format {
        Format::Table => out.write_all(table(rows, screen).as_bytes()).map_err(failed)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, rows).map_err(failed)?;
            out.write_all(b"\n").map_err(failed)?;
        }
        Format::Csv => csv(rows, out).map_err(failed)?,
        Format::Parquet => out.write_all(&parquet(&columns(rows)).map_err(failed)?).map_err(failed)?,
    }
    out.flush().map_err(failed)
}

fn csv(rows: &[Row], out: &mut impl Write) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(out);
    for (place, row) in rows.iter().enumerate() {
        let fields = fields(row);
        if place == 0 {
            writer.write_record(fields.keys())?;
        }
        writer.write_record(fields.values().map(|value| foreign(&text(value).unwrap_or_default()).into_owned()))?;
    }
    writer.flush()?;
    Ok(())
}

fn failed(problem: impl ToString) -> Error {
    Error::output("the results", problem)
}
