//! Runs that are kept in a file until others are there to be compared with: Parquet, with the
//! columns of rows, and one more for what the errors of a sampled stream are found from.

use crate::columns::{Column, Values, fields, push};
use crate::parquet_file::{Packed, digest_of, with_notes};
use crate::{Error, Row, Run};
use bytes::Bytes;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Map, Value};
use std::fs::File;
use superpage_report::{Keys, Stored};

/// The note with the digest of the file's data: a byte of plain numbers that changes would
/// otherwise be another number.
const DIGEST: &str = "superpage.digest";

/// The column that rows do not have.
const EVIDENCE: &str = "evidence";

/// The most bytes that such a file may claim to have unpacked.
const UNPACKED: i64 = 1 << 30;

/// The file that keeps these runs, without parts, and notes for whoever reads it.
///
/// # Errors
/// [`Error::Output`]: it cannot be made.
pub fn keep(runs: &[Run], notes: &[(&str, String)]) -> Result<Vec<u8>, Error> {
    let failed = |problem: String| Error::output("the rows", problem);
    let mut columns: Vec<Column> = Row::KEYS.iter().map(Column::of).collect();
    runs.iter().for_each(|run| push(&mut columns, &fields(&run.row)));
    let evidence = |run: &Run| run.evidence.as_ref().map(serde_json::to_string).transpose();
    let evidence =
        runs.iter().map(evidence).collect::<Result<Vec<_>, _>>().map_err(|error| failed(error.to_string()))?;
    columns.push(Column { name: EVIDENCE.into(), values: Values::Texts(evidence) });
    with_notes(&columns, notes, Packed::Only(EVIDENCE), Some(DIGEST)).map_err(|error| failed(error.to_string()))
}

/// The contents of a file that [`keep`] has made.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The runs.
    pub runs: Vec<Run>,
    /// The notes.
    pub notes: Vec<(String, String)>,
}

impl Kept {
    /// Reads the notes alone.
    ///
    /// # Errors
    /// In words, it is no Parquet file.
    pub fn notes(file: File) -> Result<Vec<(String, String)>, String> {
        SerializedFileReader::new(file).map(|reader| notes(&reader)).map_err(|error| error.to_string())
    }

    /// Reads the contents of the file.
    ///
    /// # Errors
    /// In words, it is none that [`keep`] has made in this version of superpage, or it is damaged.
    pub fn read(file: Vec<u8>) -> Result<Kept, String> {
        let file = Bytes::from(file);
        let reader = SerializedFileReader::new(file.clone()).map_err(|error| error.to_string())?;
        let notes = notes(&reader);
        let digest = notes.iter().find(|(key, _)| key == DIGEST).map_or("", |(_, digest)| digest);
        let bytes = digest.split(' ').next().and_then(|bytes| bytes.parse().ok()).unwrap_or(usize::MAX);
        if file.get(..bytes).is_none_or(|data| digest_of(data) != digest) {
            return Err("its checksum is missing or wrong".into());
        }
        let unpacked: i64 = reader.metadata().row_groups().iter().map(|group| group.total_byte_size()).sum();
        if !(0..=UNPACKED).contains(&unpacked) {
            return Err(format!("it claims {unpacked} bytes unpacked, and at most {UNPACKED} are accepted"));
        }
        let rows = reader.get_row_iter(None).map_err(|error| error.to_string())?;
        let run = |row: Result<parquet::record::Row, parquet::errors::ParquetError>| -> Result<Run, String> {
            let row = row.map_err(|error| error.to_string())?;
            let values = row.get_column_iter().map(|(key, field)| Ok((key.clone(), value(key, field)?)));
            let mut values = values.collect::<Result<Map<String, Value>, String>>()?;
            let evidence = values.remove(EVIDENCE).ok_or(format!("there is no column {EVIDENCE}"))?;
            Ok(Run {
                row: serde_json::from_value(Value::Object(values)).map_err(|error| error.to_string())?,
                evidence: serde_json::from_value(evidence).map_err(|error| error.to_string())?,
                parts: Vec::new(),
                misses: None,
            })
        };
        Ok(Kept { runs: rows.map(run).collect::<Result<_, _>>()?, notes })
    }
}

fn notes<R: ChunkReader + 'static>(reader: &SerializedFileReader<R>) -> Vec<(String, String)> {
    let notes = reader.metadata().file_metadata().key_value_metadata().into_iter().flatten();
    notes.map(|note| (note.key.clone(), note.value.clone().unwrap_or_default())).collect()
}

/// Whether the values of a column are JSON as text.
fn is_json(key: &str) -> bool {
    key == EVIDENCE || Row::KEYS.iter().any(|known| known.name == key && known.stored == Stored::Json)
}

fn value(key: &str, field: &Field) -> Result<Value, String> {
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(truth) => (*truth).into(),
        Field::Long(number) => (*number as u64).into(),
        Field::Double(number) => (*number).into(),
        Field::Str(text) if is_json(key) => serde_json::from_str(text).map_err(|e| format!("{key}: {e}"))?,
        Field::Str(text) => text.clone().into(),
        other => return Err(format!("{key}: a value of another kind: {other}")),
    })
}
