//! The table as a Parquet file, compressed with zstd, one million rows per group.

use super::{Out, Table};
use crate::row::Row;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::collections::TryReserveError;
use std::io;
use std::sync::Arc;

const SCHEMA: &str = "message trace {
    required int32 process;
    required int32 thread;
    required binary kind (UTF8);
    optional int64 page;
    optional int64 pages;
    optional int64 references;
    optional int64 instructions;
    optional binary detail (UTF8);
    optional int64 line;
}";

const GROUP: usize = 1 << 20;

/// So much memory is to be free when a group is encoded: some for each row, and as much for buffers
/// and compression. The library allocates it, and ends the process where it cannot.
const ENCODED_ROW: usize = 96;
const ENCODER: usize = 24 << 20;

struct Parquet {
    writer: SerializedFileWriter<Out>,
    process: Vec<i32>,
    thread: Vec<i32>,
    kind: Vec<ByteArray>,
    /// Page, pages, references, instructions.
    numbers: [Optional<i64>; 4],
    detail: Optional<ByteArray>,
    line: Optional<i64>,
}

/// A column with empty cells: which rows have a value (definition level 1), and the values.
struct Optional<T> {
    levels: Vec<i16>,
    values: Vec<T>,
}

impl<T> Default for Optional<T> {
    fn default() -> Optional<T> {
        Optional { levels: Vec::new(), values: Vec::new() }
    }
}

impl<T> Optional<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(value.is_some().into());
        self.values.extend(value);
    }

    fn reserve(&mut self, rows: usize) -> std::result::Result<(), TryReserveError> {
        self.levels.try_reserve(rows)?;
        self.values.try_reserve(rows)
    }
}

pub(super) fn start(out: Out) -> io::Result<Box<dyn Table>> {
    let schema = parse_message_type(SCHEMA).map_err(io_error)?;
    let zstd = Compression::ZSTD(ZstdLevel::try_new(3).map_err(io_error)?);
    let properties = WriterProperties::builder().set_compression(zstd).set_max_row_group_row_count(Some(GROUP)).build();
    let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties)).map_err(io_error)?;
    Ok(Box::new(Parquet {
        writer,
        process: Vec::new(),
        thread: Vec::new(),
        kind: Vec::new(),
        numbers: Default::default(),
        detail: Optional::default(),
        line: Optional::default(),
    }))
}

impl Table for Parquet {
    fn row(&mut self, row: Row) -> io::Result<()> {
        if self.kind.len() == self.kind.capacity() {
            self.reserve().map_err(|_| self.no_memory())?;
        }
        self.process.push(row.process as i32);
        self.thread.push(row.thread as i32);
        self.kind.push(ByteArray::from(bytes::Bytes::from_static(row.kind.as_bytes())));
        let numbers = [row.page, row.pages, row.references, row.instructions];
        for (column, number) in self.numbers.iter_mut().zip(numbers) {
            column.push(number.map(|number| number as i64));
        }
        self.detail.push(row.detail.map(|detail| ByteArray::from(detail.into_bytes())));
        self.line.push(row.line.map(i64::from));
        if self.kind.len() == GROUP { self.end_group().map_err(io_error) } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> io::Result<Out> {
        self.end_group().and_then(|()| self.writer.into_inner()).map_err(io_error)
    }
}

impl Parquet {
    /// Makes room for more rows, and sees that they can be encoded.
    fn reserve(&mut self) -> std::result::Result<(), TryReserveError> {
        let rows = self.kind.len().max(1024).min(GROUP - self.kind.len());
        self.process.try_reserve(rows)?;
        self.thread.try_reserve(rows)?;
        self.numbers.iter_mut().try_for_each(|column| column.reserve(rows))?;
        self.detail.reserve(rows)?;
        self.line.reserve(rows)?;
        Vec::<u8>::new().try_reserve_exact(ENCODER + ENCODED_ROW * (self.kind.len() + rows))?;
        self.kind.try_reserve(rows)
    }

    fn no_memory(&self) -> io::Error {
        let problem = format!(
            "there is no memory for more than {} rows of a group, which may have {GROUP}; raise the limit (ulimit -v), or export csv, \
             which takes next to none",
            self.kind.len()
        );
        io::Error::new(io::ErrorKind::OutOfMemory, problem)
    }

    fn end_group(&mut self) -> Result<()> {
        if self.kind.is_empty() {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        put::<Int32Type>(&mut group, &mut self.process, None)?;
        put::<Int32Type>(&mut group, &mut self.thread, None)?;
        put::<ByteArrayType>(&mut group, &mut self.kind, None)?;
        for column in &mut self.numbers {
            put::<Int64Type>(&mut group, &mut column.values, Some(&mut column.levels))?;
        }
        put::<ByteArrayType>(&mut group, &mut self.detail.values, Some(&mut self.detail.levels))?;
        put::<Int64Type>(&mut group, &mut self.line.values, Some(&mut self.line.levels))?;
        group.close().map(drop)
    }
}

/// Writes the next column of a group and empties it.
fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Out>,
    values: &mut Vec<T::T>,
    levels: Option<&mut Vec<i16>>,
) -> Result<()> {
    let mut column = group.next_column()?.expect("the schema has a column for each that is written");
    column.typed::<T>().write_batch(values, levels.as_ref().map(|levels| &levels[..]), None)?;
    column.close()?;
    values.clear();
    if let Some(levels) = levels {
        levels.clear();
    }
    Ok(())
}

/// The system's error if that is the cause.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => cause.downcast().map_or_else(io::Error::other, |cause| *cause),
        error => io::Error::other(error),
    }
}
