//! Traces of other tools as sources.
//!
//! An importer only knows how its format represents accesses. Such traces do not contain mappings, so a first pass
//! finds the touched pages, and the stream begins with a mapping for each region of them, and a note that says so. A
//! new format is one new file and a line in `FORMATS`.

mod champsim;
mod lackey;
mod regions;

use crate::file::open_file;
use crate::{Batch, Error, Event, Info, ProcessId, RunBuilder, Source};
use regions::Touched;
use std::fs::File;
use std::path::Path;
use superpage_pages::Access;

/// The accesses of a foreign trace, in their order.
trait Records: Send {
    /// Passes on the kind, the address and the bytes of the next few thousand accesses; returns `false` if none were
    /// left.
    fn read(&mut self, each: &mut dyn FnMut(Access, u64, u64)) -> Result<bool, Error>;

    /// The command that was traced, if the trace contains it, as far as it has been read.
    fn workload(&self) -> Option<String>;
}

/// Makes an importer of an opened file with a name for errors.
type Open = fn(File, &Path) -> Result<Box<dyn Records>, Error>;

const FORMATS: [(&str, Open); 2] = [("champsim", champsim::open), ("lackey", lackey::open)];

/// The names of the formats that [`import`] reads.
pub fn formats() -> impl Iterator<Item = &'static str> {
    FORMATS.into_iter().map(|(name, _)| name)
}

/// Opens the foreign trace `path`:
///
/// - `lackey`: what `valgrind --tool=lackey --trace-mem=yes --log-file=FILE` writes;
/// - `champsim`: instructions in 64-byte records, plain or compressed with xz, gzip or zstd.
///
/// With `lines` in runs of lines. The file is read twice, the first time here.
///
/// # Errors
/// An unknown format; a missing or unreadable file, a directory, or an input that cannot be read twice; bytes
/// that are not of that format, with the line or the byte. Later ones are returned by [`Source::fill`].
pub fn import(format: &str, path: &Path, lines: bool) -> Result<Box<dyn Source>, Error> {
    let Some((_, open)) = FORMATS.into_iter().find(|&(name, _)| name == format) else {
        let known = formats().collect::<Vec<_>>().join(", ");
        return Err(Error::input(format, format!("is not a trace format; expected one of: {known}")));
    };
    // Checked before it is opened, which for a pipe would wait until somebody writes.
    if std::fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir()) {
        let problem = "is not a regular file, and importing reads its input twice: save it to a file first";
        return Err(Error::input(path.display().to_string(), problem));
    }
    let mut records = open(open_file(path)?, path)?;
    let mut touched = Touched::default();
    while records.read(&mut |access, address, bytes| touched.access(access, address, bytes))? {}
    if touched.is_empty() {
        return Err(Error::input(path.display().to_string(), format!("contains no access; expected a {format} trace")));
    }
    let workload = records.workload().unwrap_or_else(|| path.display().to_string());
    let start = touched.events(format);
    let records = open(open_file(path)?, path)?;
    let info = Info { workload, fetches: touched.fetches(), lines, ..Info::default() };
    let builder = if lines { RunBuilder::of_lines() } else { RunBuilder::new() };
    Ok(Box::new(Imported { info, start, records, builder, ended: false }))
}

/// A foreign trace as a source.
struct Imported {
    info: Info,
    /// The events before the first run, until they have been returned.
    start: Vec<Event>,
    records: Box<dyn Records>,
    builder: RunBuilder,
    ended: bool,
}

impl Source for Imported {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        let start = std::mem::take(&mut self.start);
        if !start.is_empty() {
            batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
            start.into_iter().for_each(|event| batch.event(event));
        }
        while !self.ended && batch.runs.len() < Batch::RUNS {
            let builder = &mut self.builder;
            self.ended = !self.records.read(&mut |access, address, bytes| match access {
                Access::Read => builder.read(batch, address, bytes),
                Access::Write => builder.write(batch, address, bytes),
                Access::Execute => builder.fetch(batch, address, bytes),
            })?;
        }
        self.builder.close(batch);
        Ok(!batch.runs.is_empty() || !batch.events.is_empty())
    }
}
