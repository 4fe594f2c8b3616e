//! Parquet files: flat tables of whole numbers and texts, as data frames write them.

use super::Records;
use super::table::{Cell, Cells, Column, Rows, Table};
use crate::Error;
use crate::file::open_file;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::cell;
use std::fs::File;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

/// Rows that are read at a time.
const AT_A_TIME: usize = 8192;

struct Parquet {
    file: String,
    reader: SerializedFileReader<File>,
    /// Its places in the file, for each known column.
    columns: Vec<(usize, Column)>,
    /// The row groups opened so far, and what is left of the last.
    groups: usize,
    open: Vec<ColumnReader>,
    left: usize,
    /// Rows before the next.
    row: u64,
}

/// Opens a table; its metadata are read.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    let file = path.display().to_string();
    let opened = open_file(path)?;
    let reader = calmly(|| SerializedFileReader::new(opened)).map_err(|error| wrong(&file, &error))?;
    let schema = reader.metadata().file_metadata().schema_descr();
    let known = |place: usize| Some((place, Column::named(schema.column(place).path().string().as_str())?));
    let columns: Vec<_> = (0..schema.num_columns()).filter_map(known).collect();
    for &(place, column) in &columns {
        let (described, name) = (schema.column(place), schema.column(place).path().string());
        if described.max_rep_level() != 0 || described.max_def_level() > 1 {
            return Err(Error::input(file, format!("column {name}: is nested, expected one value in each row")));
        }
        if columns.iter().filter(|(_, other)| *other == column).count() > 1 {
            return Err(Error::input(file, format!("column {name}: is there twice")));
        }
    }
    Table::records(Parquet { file: file.clone(), reader, columns, groups: 0, open: Vec::new(), left: 0, row: 0 }, &file)
}

thread_local! {
    /// Whether a panic of this thread is an error that is returned.
    static CALM: cell::Cell<bool> = const { cell::Cell::new(false) };
}

/// Calls the library, which panics at some damage: that is an error too, and nothing is printed.
fn calmly<T>(call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !CALM.get() {
                before(panic)
            }
        }));
    });
    CALM.set(true);
    // What a panic leaves half changed is not read any more.
    let ended = catch_unwind(AssertUnwindSafe(call));
    CALM.set(false);
    ended.unwrap_or_else(|_| Err(ParquetError::General("it is damaged".into())))
}

fn wrong(file: &str, error: &ParquetError) -> Error {
    let said = error.to_string();
    // Once for each error within another.
    let said = said.trim_start_matches("Parquet error: ");
    let problem = match error {
        ParquetError::NYI(_) | ParquetError::General(_)
            if ["ompression", "Disabled feature"].iter().any(|what| said.contains(what)) =>
        {
            format!("{said}; expected a table with zstd, snappy or no compression")
        }
        _ => format!("{said}; expected a whole Parquet file"),
    };
    Error::input(file, problem.replace('\n', " "))
}

impl Rows for Parquet {
    fn names(&self) -> Vec<String> {
        let columns = self.reader.metadata().file_metadata().schema_descr().columns();
        columns.iter().map(|column| column.path().string()).collect()
    }

    fn read(&mut self, each: &mut dyn FnMut(&Cells) -> Result<(), String>) -> Result<bool, Error> {
        while self.left == 0 {
            if self.groups == self.reader.num_row_groups() {
                return Ok(false);
            }
            calmly(|| self.next_group()).map_err(|error| wrong(&self.file, &error))?;
        }
        let rows = self.left.min(AT_A_TIME);
        let mut table: Vec<Cells> = Vec::new();
        table.resize_with(rows, Cells::default);
        let schema = self.reader.metadata().file_metadata().schema_descr_ptr();
        for (open, &(place, column)) in self.open.iter_mut().zip(&self.columns) {
            let described = schema.column(place);
            let unsigned = matches!(described.logical_type_ref(), Some(LogicalType::Integer(of)) if !of.is_signed)
                || matches!(described.converted_type(), ConvertedType::UINT_32 | ConvertedType::UINT_64);
            let filled = || Ok(fill(open, (column, described.max_def_level() == 1, unsigned), &mut table));
            calmly(filled).unwrap_or_else(|error| Err((None, error.to_string()))).map_err(
                |(row, problem)| match row {
                    Some(row) => Error::input(format!("{}: row {}", self.file, self.row + row as u64), problem),
                    None => wrong(&self.file, &ParquetError::General(problem)),
                },
            )?;
        }
        for cells in &table {
            each(cells).map_err(|problem| Error::input(format!("{}: row {}", self.file, self.row), problem))?;
            self.row += 1;
        }
        self.left -= rows;
        Ok(true)
    }
}

impl Parquet {
    fn next_group(&mut self) -> Result<(), ParquetError> {
        let rows = self.reader.metadata().row_group(self.groups).num_rows();
        self.left = usize::try_from(rows)?;
        let group = self.reader.get_row_group(self.groups)?;
        self.groups += 1;
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let open = |&(place, _): &(usize, Column)| {
            Ok(get_column_reader(schema.column(place), group.get_column_page_reader(place)?))
        };
        self.open = self.columns.iter().map(open).collect::<Result<_, ParquetError>>()?;
        Ok(())
    }
}

/// The row where it went wrong, if it is known, and what.
type Problem = (Option<usize>, String);

/// Reads the next rows of a column into the cells of each.
fn fill(
    from: &mut ColumnReader,
    (column, optional, unsigned): (Column, bool, bool),
    table: &mut [Cells],
) -> Result<(), Problem> {
    let signed = |number: i64| match u64::try_from(number) {
        Err(_) if !unsigned => Err(format!("{number}, expected a number from 0")),
        _ => Ok(Cell::Number(number as u64)),
    };
    let rows = table.len();
    let mut set = |row: usize, cell: Result<Cell<'_>, String>| {
        cell.and_then(|cell| table[row].set(column, cell)).map_err(|problem| (Some(row), problem))
    };
    match from {
        ColumnReader::Int64ColumnReader(from) => {
            each(from, rows, optional, &mut |row, &number| set(row, signed(number)))
        }
        ColumnReader::Int32ColumnReader(from) => each(from, rows, optional, &mut |row, &number| {
            set(row, if unsigned { Ok(Cell::Number((number as u32).into())) } else { signed(number.into()) })
        }),
        ColumnReader::DoubleColumnReader(from) => {
            each(from, rows, optional, &mut |row, &real| set(row, Ok(Cell::Real(real))))
        }
        ColumnReader::FloatColumnReader(from) => {
            each(from, rows, optional, &mut |row, &real| set(row, Ok(Cell::Real(real.into()))))
        }
        ColumnReader::ByteArrayColumnReader(from) => each(from, rows, optional, &mut |row, bytes| {
            set(row, Ok(Cell::Text(&String::from_utf8_lossy(bytes.data()))))
        }),
        _ => Err((None, format!("column {column:?} is of a type that is not read; expected whole numbers or texts"))),
    }
}

/// Takes the value of a row.
type Set<'a, V> = dyn FnMut(usize, &V) -> Result<(), Problem> + 'a;

/// Reads so many rows of a column, and passes on those that are not empty.
fn each<T: DataType>(
    from: &mut ColumnReaderImpl<T>,
    rows: usize,
    optional: bool,
    set: &mut Set<'_, T::T>,
) -> Result<(), Problem> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (mut left, mut row) = (rows, 0);
    while left > 0 {
        levels.clear();
        values.clear();
        let read = from.read_records(left, optional.then_some(&mut levels), None, &mut values);
        let (records, _, _) = read.map_err(|error| (None, error.to_string()))?;
        if records == 0 {
            return Err((None, "a column ends before the others".into()));
        }
        let mut values = values.iter();
        for number in 0..records {
            if optional && levels.get(number) == Some(&0) {
                continue;
            }
            match values.next() {
                Some(value) => set(row + number, value)?,
                None => return Err((None, "a column has fewer values than rows".into())),
            }
        }
        (left, row) = (left - records, row + records);
    }
    Ok(())
}
