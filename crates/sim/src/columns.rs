//! Rows turned into columns with types, for files and for programs that read columns.

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use serde_json::Value;
use std::sync::Arc;

/// A column of a table: its name, and a value or none for each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The key of the rows.
    pub name: String,
    /// The values, in the order of the rows.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Counts, and what else is a whole number from 0.
    Counts(Vec<Option<u64>>),
    /// Numbers.
    Numbers(Vec<Option<f64>>),
    /// True or false.
    Truths(Vec<Option<bool>>),
    /// Text; nested values are JSON.
    Texts(Vec<Option<String>>),
}

/// Which columns of a file are compressed. For a few rows that takes longer than to write them.
#[derive(Clone, Copy)]
pub(crate) enum Packed {
    /// All.
    Whole,
    /// The one of this name.
    Only(&'static str),
}

/// The text of one value: none for null, JSON if it is nested.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The columns of rows with the same keys in the same order. The type of a column follows from its values; a key that is null in all rows
/// becomes text.
pub(crate) fn columns(rows: &[Vec<(String, Value)>]) -> Vec<Column> {
    let Some(first) = rows.first() else { return Vec::new() };
    let column = |(place, (name, _)): (usize, &(String, Value))| {
        let all = || rows.iter().map(|row| &row[place].1);
        let are = |kind: fn(&Value) -> bool| all().all(|value| value.is_null() || kind(value));
        let values = if are(|_| false) {
            Values::Texts(vec![None; rows.len()])
        } else if are(Value::is_u64) {
            Values::Counts(all().map(Value::as_u64).collect())
        } else if are(Value::is_number) {
            Values::Numbers(all().map(Value::as_f64).collect())
        } else if are(Value::is_boolean) {
            Values::Truths(all().map(Value::as_bool).collect())
        } else {
            Values::Texts(all().map(text).collect())
        };
        Column { name: name.clone(), values }
    };
    first.iter().enumerate().map(column).collect()
}

/// A Parquet file of columns, all compressed.
///
/// # Errors
/// In words, it cannot be made.
pub fn parquet(columns: &[Column]) -> Result<Vec<u8>, String> {
    with_notes(columns, &[], Packed::Whole).map_err(|error| error.to_string())
}

/// A Parquet file of columns, with notes in its metadata.
pub(crate) fn with_notes(
    columns: &[Column],
    notes: &[(&str, String)],
    packed: Packed,
) -> Result<Vec<u8>, ParquetError> {
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
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties(notes, packed).build()))?;
    if !columns.is_empty() {
        let mut group = writer.next_row_group()?;
        for column in columns {
            let mut out = group.next_column()?.expect("as many columns as the schema has");
            match &column.values {
                Values::Counts(values) => {
                    let (levels, present) = split(values, |value| *value as i64);
                    out.typed::<Int64Type>().write_batch(&present, Some(&levels), None)?;
                }
                Values::Numbers(values) => {
                    let (levels, present) = split(values, |value| *value);
                    out.typed::<DoubleType>().write_batch(&present, Some(&levels), None)?;
                }
                Values::Truths(values) => {
                    let (levels, present) = split(values, |value| *value);
                    out.typed::<BoolType>().write_batch(&present, Some(&levels), None)?;
                }
                Values::Texts(values) => {
                    let (levels, present) = split(values, |value| ByteArray::from(value.as_bytes().to_vec()));
                    out.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None)?;
                }
            }
            out.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(bytes)
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
