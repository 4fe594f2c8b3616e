//! A stream as a table for other programs: one row for each run and each event, in their order.
//!
//! | column | of a run | of an event |
//! | --- | --- | --- |
//! | `process`, `thread` | who did it | who did it; of a switch, who goes on |
//! | `kind` | `read`, `write`, `execute` | its name, such as `switch` or `file-read`; `docs/trace-events.md` lists them |
//! | `page` | its number of 4 KB | the first page, if it has one: of `file-read` and `file-write` in the file |
//! | `pages` | | how many, if it says |
//! | `references` | accesses | of `skipped`, those left out |
//! | `instructions` | see [`Run`] | of `skipped`, those left out |
//! | `detail` | | the rest, in words |
//! | `line` | in a stream with lines, which of the page's 64 | |
//!
//! A new format is one new file and a line in `FORMATS`.

mod csv;
mod parquet;
mod text;

use crate::file::{Sink, kind_name};
use crate::{Backing, Batch, Error, Event, Growth, Run, Source, TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use superpage_pages::Access;

/// A row of the table; empty cells are `None`.
struct Row {
    process: u32,
    thread: u32,
    kind: &'static str,
    page: Option<u64>,
    pages: Option<u64>,
    references: Option<u64>,
    instructions: Option<u64>,
    detail: Option<String>,
    line: Option<u8>,
}

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
    let (mut batch, mut process, mut thread, lines) = (Batch::default(), 0, 0, source.info().lines);
    while source.fill(&mut batch)? {
        let mut next = 0;
        for (place, event) in batch.events.drain(..) {
            runs(&mut *table, &batch.runs[next..place as usize], process, thread, lines).map_err(io)?;
            next = place as usize;
            if let Event::Switch { process: to, thread: of } = event {
                (process, thread) = (to.0, of);
            }
            table.row(event_row(event, process, thread)).map_err(io)?;
        }
        runs(&mut *table, &batch.runs[next..], process, thread, lines).map_err(io)?;
    }
    table.finish().and_then(|mut out| out.flush()).and_then(|()| sink.commit()).map_err(io)
}

/// The lines of a page.
const LINES: u64 = 1 << (TRACE_PAGE_SHIFT - TRACE_LINE_SHIFT);

fn runs(table: &mut dyn Table, runs: &[Run], process: u32, thread: u32, lines: bool) -> io::Result<()> {
    runs.iter().try_for_each(|run| {
        table.row(Row {
            process,
            thread,
            kind: match run.access() {
                Access::Read => "read",
                Access::Write => "write",
                Access::Execute => "execute",
            },
            page: Some(run.page()),
            pages: None,
            references: Some(run.references.into()),
            instructions: Some(run.instructions.into()),
            detail: None,
            line: lines.then_some((run.line() % LINES) as u8),
        })
    })
}

fn event_row(event: Event, process: u32, thread: u32) -> Row {
    let empty = (None, None, None, None, None);
    let kind = kind_name(&event);
    let (page, pages, references, instructions, detail) = match event {
        Event::Switch { .. } | Event::Exec | Event::Exit => empty,
        Event::Map { start, pages, protection, shared, backing, growth } => {
            let shared = if shared { "shared" } else { "private" };
            let backing = match backing {
                Backing::Anonymous => "anonymous".to_owned(),
                Backing::File { file, file_pages, offset } => {
                    format!("file {file} of {file_pages} pages from {offset}")
                }
            };
            let growth = match growth {
                Growth::Fixed => "fixed",
                Growth::Up => "grows up",
                Growth::Down => "grows down",
            };
            (Some(start), Some(pages), None, None, Some(format!("{protection} {shared} {backing}, {growth}")))
        }
        Event::Unmap { start, pages }
        | Event::Discard { start, pages }
        | Event::Grow { start, pages }
        | Event::Rewrite { start, pages } => (Some(start), Some(pages), None, None, None),
        Event::Protect { start, pages, protection } => {
            (Some(start), Some(pages), None, None, Some(protection.to_string()))
        }
        Event::Advise { start, pages, hint } => (Some(start), Some(pages), None, None, Some(hint.to_string())),
        Event::Remap { from, from_pages, to, to_pages } => {
            (Some(from), Some(from_pages), None, None, Some(format!("to {to}, {to_pages} pages")))
        }
        Event::Fork { child } => (None, None, None, None, Some(format!("child {}", child.0))),
        Event::Skipped { references, instructions } => (None, None, Some(references), Some(instructions), None),
        Event::Phase { phase, period } => {
            let period = period.map(|period| format!(" of {period}")).unwrap_or_default();
            (None, None, None, None, Some(format!("{phase:?}{period}").to_lowercase()))
        }
        Event::Call { path, at, bytes } => {
            let pages =
                if bytes == 0 { 0 } else { ((at + (bytes - 1)) >> TRACE_PAGE_SHIFT) - (at >> TRACE_PAGE_SHIFT) + 1 };
            (Some(at >> TRACE_PAGE_SHIFT), Some(pages), None, None, Some(format!("{path}, {bytes} bytes at {at:#x}")))
        }
        Event::Open { file, file_pages } => (None, Some(file_pages), None, None, Some(format!("file {file}"))),
        Event::Close { file } | Event::Sync { file } | Event::Remove { file } => {
            (None, None, None, None, Some(format!("file {file}")))
        }
        Event::Read { file, start, pages } | Event::Write { file, start, pages } => {
            (Some(start), Some(pages), None, None, Some(format!("file {file}")))
        }
        Event::Wire { pages } | Event::Unwire { pages } => (None, Some(pages), None, None, None),
        Event::Idle { microseconds } => (None, None, None, None, Some(format!("{microseconds} us"))),
        Event::Note(text) | Event::Mark(text) => (None, None, None, None, Some(text)),
    };
    Row { process, thread, kind, page, pages, references, instructions, detail, line: None }
}
