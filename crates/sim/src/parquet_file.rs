//! Columns as a Parquet file, whole or a group of rows at a time.

use crate::columns::{Column, Values, fields, heads, push};
use crate::{Error, Row};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use serde_json::{Map, Value};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use superpage_report::Keys;

/// Which columns of a file are compressed. For a few rows that takes longer than to write them.
#[derive(Clone, Copy)]
pub(crate) enum Packed {
    /// All.
    Whole,
    /// The one of this name.
    Only(&'static str),
}

/// The most rows of a group of a Parquet file: what its writers, and most readers, have in memory
/// at a time.
const GROUP: usize = 32_768;

/// A Parquet file of columns, all compressed.
///
/// # Errors
/// In words, it cannot be made.
pub fn parquet(columns: &[Column]) -> Result<Vec<u8>, String> {
    with_notes(columns, &[], Packed::Whole, None).map_err(|error| error.to_string())
}

/// A Parquet file of columns, with notes in its metadata, and a last one under the key `digest`, if
/// that is given, which says how many bytes of the file are data, and their digest.
pub(crate) fn with_notes(
    columns: &[Column],
    notes: &[(&str, String)],
    packed: Packed,
    digest: Option<&str>,
) -> Result<Vec<u8>, ParquetError> {
    let mut bytes = Vec::new();
    let mut writer = writer(&mut bytes, columns, notes, packed)?;
    let rows = columns.first().map_or(0, |column| column.values.len());
    for from in (0..rows).step_by(GROUP) {
        write_group(&mut writer, columns, from..rows.min(from + GROUP))?;
    }
    if let Some(key) = digest {
        writer.flush()?;
        let data = digest_of(writer.inner());
        writer.append_key_value_metadata(KeyValue::new(key.to_string(), data));
    }
    writer.close()?;
    Ok(bytes)
}

/// The number of these bytes, and their digest.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("{} {:032x}", bytes.len(), xxhash_rust::xxh3::xxh3_128(bytes))
}

/// The writer of a file with such columns.
fn writer<W: Write + Send>(
    out: W,
    columns: &[Column],
    notes: &[(&str, String)],
    packed: Packed,
) -> Result<SerializedFileWriter<W>, ParquetError> {
    let fields = columns.iter().map(|column| {
        let kind = match column.values {
            Values::Counts(_) => Physical::INT64,
            Values::Numbers(_) => Physical::DOUBLE,
            Values::Truths(_) => Physical::BOOLEAN,
            Values::Texts(_) => Physical::BYTE_ARRAY,
        };
        let text = (kind == Physical::BYTE_ARRAY).then_some(LogicalType::String);
        let field = Type::primitive_type_builder(&column.name, kind).with_repetition(Repetition::OPTIONAL);
        Ok(Arc::new(field.with_logical_type(text).build()?))
    });
    let fields = fields.collect::<Result<Vec<_>, ParquetError>>()?;
    let schema = Arc::new(Type::group_type_builder("row").with_fields(fields).build()?);
    SerializedFileWriter::new(out, schema, Arc::new(properties(notes, packed).build()))
}

/// Writes these rows of the columns as a group.
fn write_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &[Column],
    rows: Range<usize>,
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let mut out = group.next_column()?.expect("as many columns as the schema has");
        match &column.values {
            Values::Counts(values) => {
                let (levels, present) = split(&values[rows.clone()], |value| *value as i64);
                out.typed::<Int64Type>().write_batch(&present, Some(&levels), None)?;
            }
            Values::Numbers(values) => {
                let (levels, present) = split(&values[rows.clone()], |value| *value);
                out.typed::<DoubleType>().write_batch(&present, Some(&levels), None)?;
            }
            Values::Truths(values) => {
                let (levels, present) = split(&values[rows.clone()], |value| *value);
                out.typed::<BoolType>().write_batch(&present, Some(&levels), None)?;
            }
            Values::Texts(values) => {
                let (levels, present) =
                    split(&values[rows.clone()], |value| ByteArray::from(value.as_bytes().to_vec()));
                out.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None)?;
            }
        }
        out.close()?;
    }
    group.close()?;
    Ok(())
}

fn properties(notes: &[(&str, String)], packed: Packed) -> WriterPropertiesBuilder {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let properties = match packed {
        Packed::Whole => WriterProperties::builder().set_compression(zstd),
        Packed::Only(column) => WriterProperties::builder().set_column_compression(ColumnPath::from(column), zstd),
    };
    let note = |(key, value): &(&str, String)| KeyValue::new(key.to_string(), value.clone());
    let notes: Vec<KeyValue> = notes.iter().map(note).collect();
    if notes.is_empty() { properties } else { properties.set_key_value_metadata(Some(notes)) }
}

/// Whether each value is there, and those that are.
fn split<T, U>(values: &[Option<T>], convert: impl Fn(&T) -> U) -> (Vec<i16>, Vec<U>) {
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (levels, values.iter().flatten().map(convert).collect())
}

/// A Parquet file of rows that are written while they come: a group of them at a time is in memory.
/// The file is the one that [`write`](crate::write) makes of all at once.
pub struct RowFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    /// The columns without rows.
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
        write_group(&mut self.writer, &self.columns, 0..self.rows).map_err(failed)?;
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
    Error::output("the rows", problem)
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
