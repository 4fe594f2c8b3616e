//! A stream for other programs: as a table of the rows that `row.rs` describes, or in the format of
//! another simulator.
//!
//! A new format is one new file and a line in `FORMATS`.

mod champsim;
mod csv;
mod drmemtrace;
mod packing;
mod parquet;
mod text;

use crate::file::{Reader, Sink, Totals};
use crate::row::Row;
use crate::{Batch, Error, Event, Run, Source};
use packing::Packing;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Where a format is written.
type Out = BufWriter<Packing>;

/// Writes rows in some format.
trait Table {
    fn row(&mut self, row: Row) -> io::Result<()>;

    /// Writes what is still buffered.
    fn finish(self: Box<Self>) -> io::Result<Out>;

    /// Of a format without events: the records before the next row.
    fn records(&self) -> Option<u64> {
        None
    }
}

/// The process of a format that has one address space.
#[derive(Default)]
struct OneProcess(Option<u32>);

impl OneProcess {
    /// # Errors
    /// The row is of another process than those before.
    fn check(&mut self, row: &Row) -> io::Result<()> {
        if *self.0.get_or_insert(row.process) == row.process {
            return Ok(());
        }
        let problem = "the stream has accesses of several processes, and such a file is one address space; export a \
                       recording of one program";
        Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
    }
}

type Start = fn(Out) -> io::Result<Box<dyn Table>>;

/// The bytes that a stream with these totals takes, if compression leaves a number to know.
type Size = Option<fn(&Totals) -> u64>;

const FORMATS: [(&str, Start, Size); 5] = [
    ("parquet", parquet::start, None),
    ("csv", csv::start, Some(csv::size)),
    ("text", text::start, Some(csv::size)),
    ("champsim", champsim::start, Some(champsim::size)),
    ("drmemtrace", drmemtrace::start, Some(drmemtrace::size)),
];

/// The names of the formats that [`export`] writes.
pub fn formats() -> impl Iterator<Item = &'static str> {
    FORMATS.into_iter().map(|(name, ..)| name)
}

/// Checks that what [`export`] will write of the trace file `trace` fits on the file system of
/// `path`, and leaves 5 % of what is free there. A few runs may be very many records. What is
/// compressed is not checked. Cost: decoding the trace; it need not be whole with `up_to_cut`.
///
/// # Errors
/// It does not fit; those of [`Reader::open`].
pub fn check_room(format: &str, (trace, up_to_cut): (&Path, bool), path: Option<&Path>) -> Result<(), Error> {
    let size = FORMATS.into_iter().find(|&(name, ..)| name == format).and_then(|(.., size)| size);
    let Some(size) = size.filter(|_| !path.is_some_and(packing::packs)) else { return Ok(()) };
    let mut reader = if up_to_cut { Reader::open_up_to_cut(trace)? } else { Reader::open(trace)? };
    let name = path.unwrap_or(Path::new(STANDARD_OUTPUT));
    superpage_output::check_room(path, size(&reader.count()?)).map_err(|source| File::explained(name, false, source))
}

/// The name of standard output in errors.
pub const STANDARD_OUTPUT: &str = "standard output";

/// Writes the rest of `source` in one of the [`formats`] to the file `path`, or to standard output;
/// compressed if its name ends in `.gz`, `.xz` or `.zst`. A file gets its name when it is complete;
/// if the export fails, nothing is left of it. The file `events` has what `champsim` and
/// `drmemtrace` have no records for: a CSV table of the events, each with the records before it.
///
/// # Errors
/// An unknown format; a binary one to a terminal; `events` of a format that has them itself;
/// accesses of a second process in `champsim` or `drmemtrace`; those of the source; a write fails.
pub fn export(format: &str, source: &mut dyn Source, path: Option<&Path>, events: Option<&Path>) -> Result<(), Error> {
    let Some((_, start, _)) = FORMATS.into_iter().find(|&(name, ..)| name == format) else {
        let known = formats().collect::<Vec<_>>().join(", ");
        return Err(Error::input(format, format!("is not an export format; expected one of: {known}")));
    };
    if matches!(format, "parquet" | "champsim" | "drmemtrace") && path.is_none() && io::stdout().is_terminal() {
        return Err(Error::input(format, "is binary and cannot be written to a terminal: name a file with -o FILE"));
    }
    let mut file = File::create(path)?;
    let mut events = events.map(|path| File::create(Some(path))).transpose()?;
    let mut table = start(file.out().map_err(file.error())?).map_err(file.error())?;
    let begun = |events: &mut File| events.out().map_err(events.error());
    let mut list = events.as_mut().map(begun).transpose()?;
    if let (Some(list), Some(file)) = (&mut list, &events) {
        if table.records().is_none() {
            return Err(Error::input(format, "has the events among its rows: no file of events belongs to it"));
        }
        writeln!(list, "record,{}", csv::COLUMNS).map_err(file.error())?;
    }
    let (mut batch, mut who, lines) = (Batch::default(), (0, 0), source.info().lines);
    while source.fill(&mut batch)? {
        let mut next = 0;
        for (place, event) in batch.events.drain(..) {
            runs(&mut *table, &batch.runs[next..place as usize], who, lines).map_err(file.error())?;
            next = place as usize;
            if let Event::Switch { process, thread } = event {
                who = (process.0, thread);
            }
            let row = Row::of_event(event, who);
            table.row(row.clone()).map_err(file.error())?;
            if let (Some(list), Some(records), Some(file)) = (&mut list, table.records(), &events) {
                write!(list, "{records},").and_then(|()| csv::write(list, &row)).map_err(file.error())?;
            }
        }
        runs(&mut *table, &batch.runs[next..], who, lines).map_err(file.error())?;
    }
    let out = table.finish().map_err(file.error())?;
    file.finish(out)?;
    match events.zip(list) {
        Some((events, list)) => events.finish(list),
        None => Ok(()),
    }
}

/// A file that is written, or standard output.
struct File {
    name: PathBuf,
    standard_output: bool,
    sink: Sink,
}

impl File {
    fn create(path: Option<&Path>) -> Result<File, Error> {
        let (name, sink) = match path {
            Some(path) => (path.to_owned(), Sink::file(path)),
            None => (PathBuf::from(STANDARD_OUTPUT), Ok(Sink::plain(Box::new(io::stdout())))),
        };
        let sink = sink.map_err(|source| File::explained(&name, path.is_none(), source))?;
        Ok(File { name, standard_output: path.is_none(), sink })
    }

    fn out(&mut self) -> io::Result<Out> {
        Ok(BufWriter::with_capacity(1 << 18, Packing::new(self.sink.take(), &self.name)?))
    }

    /// An error of the file.
    fn error(&self) -> impl Fn(io::Error) -> Error + use<> {
        let (name, standard_output) = (self.name.clone(), self.standard_output);
        move |source| File::explained(&name, standard_output, source)
    }

    fn explained(name: &Path, standard_output: bool, source: io::Error) -> Error {
        let source = if standard_output { source } else { superpage_output::explain(source) };
        Error::Io { path: name.to_owned(), source }
    }

    /// Writes what is left, and gives the file its name.
    fn finish(self, out: Out) -> Result<(), Error> {
        let error = self.error();
        let packed = out.into_inner().map_err(io::IntoInnerError::into_error);
        packed.and_then(Packing::finish).and_then(|()| self.sink.commit()).map_err(error)
    }
}

/// Writes the rows of runs, of this process and thread, of a stream with lines or without.
fn runs(table: &mut dyn Table, runs: &[Run], who: (u32, u32), lines: bool) -> io::Result<()> {
    runs.iter().try_for_each(|run| table.row(Row::of_run(*run, who, lines)))
}
