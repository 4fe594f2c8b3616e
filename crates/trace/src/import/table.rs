//! Tables: those that [`export`](crate::export) writes, whose rows are runs and events, and those
//! of others, whose rows are accesses: they have a column `address`.
//!
//! Columns are known by their names, in any order; others are not used, and a note says so. A
//! format of tables only knows how to read the cells of a row.

use super::{MOST_BYTES, Record, Records};
use crate::Error;
use crate::check::Rules;
use crate::row::{Row, known_kind};
use superpage_pages::Access;

/// A column that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Column {
    Process,
    Thread,
    Kind,
    Page,
    Pages,
    References,
    Instructions,
    Detail,
    Line,
    Address,
    Size,
    Time,
}

/// Their names; those of a row first.
const NAMES: [(&str, Column); 12] = [
    ("process", Column::Process),
    ("thread", Column::Thread),
    ("kind", Column::Kind),
    ("page", Column::Page),
    ("pages", Column::Pages),
    ("references", Column::References),
    ("instructions", Column::Instructions),
    ("detail", Column::Detail),
    ("line", Column::Line),
    ("address", Column::Address),
    ("size", Column::Size),
    ("time", Column::Time),
];

impl Column {
    /// The column with this name.
    pub(super) fn named(name: &str) -> Option<Column> {
        NAMES.into_iter().find_map(|(known, column)| (known == name).then_some(column))
    }
}

/// A cell with something in it.
pub(super) enum Cell<'a> {
    Number(u64),
    /// For numbers that others stored so; below 2^53 they are exact.
    Real(f64),
    Text(&'a str),
}

/// The cells of a row that are of known columns.
#[derive(Default)]
pub(super) struct Cells {
    pub(super) row: Row,
    address: Option<u64>,
    size: Option<u64>,
    time: Option<f64>,
}

impl Cells {
    /// Fills a cell.
    ///
    /// # Errors
    /// What was found and expected there, as a part of a sentence.
    pub(super) fn set(&mut self, column: Column, cell: Cell<'_>) -> Result<(), String> {
        let row = &mut self.row;
        match column {
            Column::Kind => row.kind = kind(text(cell)?)?,
            Column::Detail => row.detail = Some(text(cell)?.to_owned()).filter(|text| !text.is_empty()),
            Column::Time => self.time = Some(time(cell)?),
            Column::Address => {
                if let Cell::Real(number) = cell {
                    let why = "floating-point numbers do not hold 64-bit addresses exactly: store whole numbers";
                    return Err(format!("address {number}: {why}"));
                }
                self.address = Some(number(column, cell)?);
            }
            Column::Process => row.process = small(column, cell)?,
            Column::Thread => row.thread = small(column, cell)?,
            Column::Line => row.line = Some(small(column, cell)?),
            Column::Page => row.page = Some(number(column, cell)?),
            Column::Pages => row.pages = Some(number(column, cell)?),
            Column::References => row.references = Some(number(column, cell)?),
            Column::Instructions => row.instructions = Some(number(column, cell)?),
            Column::Size => self.size = Some(number(column, cell)?),
        }
        Ok(())
    }
}

fn text(cell: Cell<'_>) -> Result<&str, String> {
    match cell {
        Cell::Text(text) => Ok(text),
        Cell::Number(_) | Cell::Real(_) => Err("a number, expected a text".into()),
    }
}

fn number(column: Column, cell: Cell<'_>) -> Result<u64, String> {
    // Data frames turn a column of whole numbers that has empty cells into one of reals.
    let whole = |real: f64| (real >= 0.0 && real < (1u64 << 53) as f64 && real.fract() == 0.0).then_some(real as u64);
    let (number, shown) = match cell {
        Cell::Number(number) => (Some(number), String::new()),
        Cell::Real(real) => (whole(real), real.to_string()),
        Cell::Text(text) => {
            let number = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
                Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
                Some(_) => None,
                None => text.strip_suffix(".0").unwrap_or(text).parse().ok(),
            };
            (number, text.chars().take(40).collect())
        }
    };
    let (name, _) = NAMES[column as usize];
    number.ok_or_else(|| {
        format!("{name} {shown:?}, expected a whole number from 0 to 2^64 - 1, decimal or hexadecimal with 0x")
    })
}

fn small<T: TryFrom<u64>>(column: Column, cell: Cell<'_>) -> Result<T, String> {
    let number = number(column, cell)?;
    T::try_from(number).map_err(|_| format!("{} {number} is too large", NAMES[column as usize].0))
}

fn time(cell: Cell<'_>) -> Result<f64, String> {
    let time = match cell {
        Cell::Number(time) => time as f64,
        Cell::Real(time) => time,
        Cell::Text(text) => text.parse().unwrap_or(f64::NAN),
    };
    if time.is_finite() { Ok(time) } else { Err("a time that is no number".into()) }
}

/// The kind that others call so, too.
fn kind(name: &str) -> Result<&'static str, String> {
    known_kind(name).map_or_else(
        || match name.to_ascii_lowercase().as_str() {
            "r" | "read" | "l" | "load" => Ok("read"),
            "w" | "write" | "s" | "store" => Ok("write"),
            "x" | "execute" | "i" | "fetch" | "ifetch" => Ok("execute"),
            _ => {
                let shown: String = name.chars().take(40).collect();
                Err(format!("kind {shown:?}, expected read, write or execute (or R, W, X), or an event's"))
            }
        },
        Ok,
    )
}

/// Reads the rows of some format.
pub(super) trait Rows: Send {
    /// The names of its columns.
    fn names(&self) -> Vec<String>;

    /// Passes on the next few thousand rows; returns `false` if none were left. An error that comes
    /// back is returned with the place of the row.
    fn read(&mut self, each: &mut dyn FnMut(&Cells) -> Result<(), String>) -> Result<bool, Error>;
}

/// A table as records.
pub(super) struct Table {
    rows: Box<dyn Rows>,
    state: State,
}

/// What has been read so far.
#[derive(Default)]
struct State {
    /// Whether rows are accesses.
    addresses: bool,
    /// Whether the first row was an event: who does what is in events then.
    stream: Option<bool>,
    rules: Rules,
    /// Of the previous row.
    time: Option<f64>,
    process: Option<u32>,
    thread: Option<u32>,
    lines: Option<bool>,
    fetches: bool,
    instructions: bool,
}

impl Table {
    /// The records of these rows, of the file with that name.
    ///
    /// # Errors
    /// There are neither addresses nor pages among its columns, or two have one name that is known.
    pub(super) fn records(rows: impl Rows + 'static, file: &str) -> Result<Box<dyn Records>, Error> {
        let names = rows.names();
        let has = |name: &str| names.iter().any(|known| known == name);
        let addresses = has("address");
        if !(addresses || has("page") && has("kind")) {
            let found: String = names.join(", ").chars().take(200).collect();
            let problem = format!(
                "has the columns {found:?}; expected one named address, and kind, size, thread, time and instructions \
                 where there are such, or those that trace export writes"
            );
            return Err(Error::input(file, problem));
        }
        let twice = |place: &usize| Column::named(&names[*place]).is_some() && names[..*place].contains(&names[*place]);
        if let Some(place) = (1..names.len()).find(twice) {
            let problem = format!("has two columns named {}; expected one: rename or remove the other", names[place]);
            return Err(Error::input(file, problem));
        }
        Ok(Box::new(Table { rows: Box::new(rows), state: State { addresses, ..State::default() } }))
    }
}

impl Records for Table {
    fn read(&mut self, each: &mut dyn FnMut(Record)) -> Result<bool, Error> {
        let state = &mut self.state;
        self.rows.read(&mut |cells| state.row(cells, each))
    }

    fn lines(&self) -> Option<bool> {
        self.state.lines
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        let (known, unknown): (Vec<_>, Vec<_>) =
            self.rows.names().into_iter().partition(|name| Column::named(name).is_some());
        let unused = if unknown.is_empty() { String::new() } else { format!("; not used: {}", unknown.join(", ")) };
        vec![("columns", format!("{}{unused}", known.join(", ")))]
    }
}

impl State {
    fn row(&mut self, cells: &Cells, each: &mut dyn FnMut(Record)) -> Result<(), String> {
        let row = &cells.row;
        if let Some(time) = cells.time
            && let before = self.time.replace(time)
            && before.is_some_and(|before| before > time)
        {
            return Err(format!("time {time} after {}: sort the table by time", before.unwrap_or_default()));
        }
        if self.addresses {
            self.who(row, each)?;
            return self.access(cells, each);
        }
        let Some(run) = row.run()? else {
            let event = row.event()?;
            if !*self.stream.get_or_insert(true) {
                return Err(format!("{} after rows without events, expected a switch as the first row", row.kind));
            }
            self.rules.event(&event)?;
            each(Record::Event(Box::new(event)));
            return Ok(());
        };
        if *self.lines.get_or_insert(row.line.is_some()) != row.line.is_some() {
            return Err("a line in some rows only, expected one in each run or none".into());
        }
        if *self.stream.get_or_insert(false) {
            self.rules.accesses()?
        } else {
            self.who(row, each)?
        }
        each(Record::Run(run));
        Ok(())
    }

    /// Says which thread goes on, where it is another. Without events all rows are of one process.
    fn who(&mut self, row: &Row, each: &mut dyn FnMut(Record)) -> Result<(), String> {
        if let before = *self.process.get_or_insert(row.process)
            && before != row.process
        {
            return Err(format!("process {} after {before}, expected rows of one: keep only its", row.process));
        }
        if self.thread.replace(row.thread) != Some(row.thread) {
            each(Record::Thread(row.thread.into()));
        }
        Ok(())
    }

    fn access(&mut self, cells: &Cells, each: &mut dyn FnMut(Record)) -> Result<(), String> {
        let (size, row) = (cells.size.unwrap_or(1), &cells.row);
        let address = cells.address.ok_or("no address, expected one in each row")?;
        if size > MOST_BYTES {
            return Err(format!("size {size}, expected at most {MOST_BYTES} bytes"));
        }
        let access = match row.kind {
            "" | "read" => Access::Read,
            "write" => Access::Write,
            "execute" => Access::Execute,
            other => return Err(format!("kind {other} with an address, expected read, write or execute")),
        };
        self.fetches |= access == Access::Execute;
        self.instructions |= row.instructions.is_some();
        if self.fetches && self.instructions {
            let both = "both instructions and rows of kind execute, which count as one each";
            return Err(format!("{both}: leave out one of them"));
        }
        let instructions = row.instructions.unwrap_or(0);
        if instructions > u32::MAX.into() {
            return Err(format!("instructions {instructions}, expected at most {} before an access", u32::MAX));
        }
        each(Record::Instructions(instructions));
        each(Record::Access(access, address, size));
        Ok(())
    }
}
