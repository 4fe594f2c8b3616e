//! Rows turned into columns with types, for files and for programs that read columns.

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use superpage_report::{Key, Keys, Stored};

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

impl Values {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            Values::Counts(values) => values.len(),
            Values::Numbers(values) => values.len(),
            Values::Truths(values) => values.len(),
            Values::Texts(values) => values.len(),
        }
    }
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
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

impl Column {
    /// One without rows, for a key.
    pub(crate) fn of(key: &Key) -> Column {
        let values = match key.stored {
            Stored::Count => Values::Counts(Vec::new()),
            Stored::Number => Values::Numbers(Vec::new()),
            Stored::Truth => Values::Truths(Vec::new()),
            Stored::Text | Stored::Json => Values::Texts(Vec::new()),
        };
        Column { name: key.name.into(), values }
    }

    /// Adds the value of a row; one that is not of the column's type becomes null, and of numbers
    /// true is 1.
    pub(crate) fn push(&mut self, value: &Value) {
        match &mut self.values {
            Values::Counts(values) => values.push(value.as_u64()),
            Values::Numbers(values) => {
                values.push(value.as_f64().or_else(|| value.as_bool().map(|truth| f64::from(u8::from(truth)))));
            }
            Values::Truths(values) => values.push(value.as_bool()),
            Values::Texts(values) => values.push(text(value)),
        }
    }
}

/// The columns of rows: one for each key, and for what else the first of them has.
pub fn columns<'a, R: Keys + Serialize + 'a>(rows: impl IntoIterator<Item = &'a R>) -> Vec<Column> {
    let mut columns = Vec::new();
    for fields in rows.into_iter().map(fields) {
        if columns.is_empty() {
            columns = heads(R::KEYS, &fields);
        }
        push(&mut columns, &fields);
    }
    if columns.is_empty() { heads(R::KEYS, &Map::new()) } else { columns }
}

/// Columns without rows: of these keys, and of those of `more` that are not among them, by the
/// types of their values.
pub(crate) fn heads(keys: &[Key], more: &Map<String, Value>) -> Vec<Column> {
    let others = more.iter().filter(|(name, _)| !keys.iter().any(|key| key.name == *name));
    let other = |(name, value): (&String, &Value)| Column {
        name: name.clone(),
        values: match value {
            Value::Number(number) if number.is_u64() => Values::Counts(Vec::new()),
            Value::Number(_) => Values::Numbers(Vec::new()),
            _ => Values::Texts(Vec::new()),
        },
    };
    keys.iter().map(Column::of).chain(others.map(other)).collect()
}

/// The keys and values of a row, in their order.
pub fn fields(row: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(row) {
        Ok(Value::Object(map)) => map,
        _ => unreachable!("a row is a struct of plain values"),
    }
}

/// Adds a row to columns of its keys.
pub(crate) fn push(columns: &mut [Column], fields: &Map<String, Value>) {
    for column in columns {
        column.push(fields.get(&column.name).unwrap_or(&Value::Null));
    }
}

/// The most rows of a group of a Parquet file: what its writers, and most readers, have in memory
/// at a time.
pub(crate) const GROUP: usize = 32_768;

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
        group(&mut writer, columns, from..rows.min(from + GROUP))?;
    }
    if let Some(key) = digest {
        writer.flush()?;
        let data = digest_of(writer.inner());
        writer.append_key_value_metadata(KeyValue::new(key.to_string(), data));
    }
    writer.close()?;
    Ok(bytes)
}

/// How many bytes these are, and their digest.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("{} {:032x}", bytes.len(), xxhash_rust::xxh3::xxh3_128(bytes))
}

/// The writer of a file with such columns.
pub(crate) fn writer<W: Write + Send>(
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
pub(crate) fn group<W: Write + Send>(
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
