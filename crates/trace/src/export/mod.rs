//! A stream as a table for other programs, of the rows that `row.rs` describes.
//!
//! A new format is one new file and a line in `FORMATS`.

mod csv;
mod parquet;
mod text;

use crate::file::Sink;
use crate::row::Row;
use crate::{Batch, Error, Event, Run, Source};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Writes rows in some format.
trait Table {
    fn row(&mut self, row: Row) -> io::Result<()>;

    /// Writes what is still buffered.
    fn finish(self: Box<Self>) -> io::Result<Box<dyn Write + Send>>;
}

type Start = fn(Box<dyn Write + Send>) -> io::Result<Box<dyn Table>>;

const FORMATS: [(&str, Start); 3] = [("parquet", parquet::start), ("csv", csv::start), ("text", text::start)];

/// The names of the formats that [`export`] writes.
pub fn formats() -> impl Iterator<Item = &'static str> {
    FORMATS.into_iter().map(|(name, _)| name)
}

/// The name of standard output in errors.
pub const STANDARD_OUTPUT: &str = "standard output";

/// Writes the rest of `source` as `parquet`, `csv` or `text` to the file `path`, or to standard
/// output. A file gets its name when it is complete; if the export fails, nothing is left of it.
///
/// # Errors
/// An unknown format; `parquet` to a terminal; those of the source; a write fails.
pub fn export(format: &str, source: &mut dyn Source, path: Option<&Path>) -> Result<(), Error> {
    let Some((_, start)) = FORMATS.into_iter().find(|&(name, _)| name == format) else {
        let known = formats().collect::<Vec<_>>().join(", ");
        return Err(Error::input(format, format!("is not an export format; expected one of: {known}")));
    };
    if format == "parquet" && path.is_none() && io::stdout().is_terminal() {
        return Err(Error::input(format, "is binary and cannot be written to a terminal: name a file with -o FILE"));
    }
    let name = path.map_or_else(|| PathBuf::from(STANDARD_OUTPUT), Path::to_owned);
    let explain = if path.is_some() { superpage_output::explain } else { |source| source };
    let io = |source| Error::Io { path: name.clone(), source: explain(source) };
    let mut sink = match path {
        Some(path) => Sink::file(path),
        None => Ok(Sink::plain(Box::new(io::stdout()))),
    }
    .map_err(io)?;
    let mut table = start(Box::new(BufWriter::with_capacity(1 << 18, sink.take()))).map_err(io)?;
    let (mut batch, mut who, lines) = (Batch::default(), (0, 0), source.info().lines);
    while source.fill(&mut batch)? {
        let mut next = 0;
        for (place, event) in batch.events.drain(..) {
            runs(&mut *table, &batch.runs[next..place as usize], who, lines).map_err(io)?;
            next = place as usize;
            if let Event::Switch { process, thread } = event {
                who = (process.0, thread);
            }
            table.row(Row::of_event(event, who)).map_err(io)?;
        }
        runs(&mut *table, &batch.runs[next..], who, lines).map_err(io)?;
    }
    table.finish().and_then(|mut out| out.flush()).and_then(|()| sink.commit()).map_err(io)
}

/// Writes the rows of runs, of this process and thread, of a stream with lines or without.
fn runs(table: &mut dyn Table, runs: &[Run], who: (u32, u32), lines: bool) -> io::Result<()> {
    runs.iter().try_for_each(|run| table.row(Row::of_run(*run, who, lines)))
}
