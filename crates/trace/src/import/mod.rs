//! Traces of other tools as sources.
//!
//! An importer only knows how its format represents accesses. Such traces do not contain mappings,
//! so a first pass finds the touched pages, and the stream begins with a mapping for each region of
//! them, and a note that says so. A new format is one new file and a line in `FORMATS`.

mod by_line;
mod champsim;
mod collected;
mod csv;
mod drmemtrace;
mod gem5;
mod lackey;
mod lines;
mod listed;
mod packed;
mod page_table;
mod parquet;
mod perf;
mod pin;
mod regions;
mod several;
mod table;
mod text;

pub use collected::Collected;
pub use listed::Listed;

use crate::{Batch, Error, Event, Info, ProcessId, Run, RunBuilder, Source, TRACE_PAGE_SHIFT};
use hashbrown::HashMap;
use page_table::PageTable;
use regions::Touched;
use several::Several;
use std::path::{Path, PathBuf};
use superpage_pages::Access;

/// What a foreign trace says next.
enum Record {
    /// The kind, the address and the bytes of an access.
    Access(Access, u64, u64),
    /// What follows is done by the thread with this number, which may be any.
    Thread(u64),
    /// So many instructions, up to the next access, in a trace without fetches.
    Instructions(u64),
    /// Accesses to one page.
    Run(Run),
    /// An event. In a trace that has any, all that the trace maps is in events, and who does what.
    Event(Box<Event>),
}

/// The longest access accepted; those of real machines are shorter, XSAVE's being the longest.
const MOST_BYTES: u64 = 1 << 16;

/// The accesses of a foreign trace, in their order.
trait Records: Send {
    /// Passes on the next few thousand records; returns `false` if none were left.
    fn read(&mut self, each: &mut dyn FnMut(Record)) -> Result<bool, Error>;

    /// The command that was traced, if the trace contains it, as far as it has been read.
    fn workload(&self) -> Option<String> {
        None
    }

    /// Whether its runs are of lines, when all of it has been read; `None` if they can be either.
    fn lines(&self) -> Option<bool> {
        None
    }

    /// What to know of the trace, when all of it has been read.
    fn notes(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The file of the page table that lies with the trace.
    fn page_table_file(&self) -> Option<&Path> {
        None
    }

    /// The page table that the trace itself contains, when all of it has been read.
    fn page_table(&self) -> Option<PageTable> {
        None
    }
}

/// Opens a trace by its name.
type Open = fn(&Path) -> Result<Box<dyn Records>, Error>;

const FORMATS: [(&str, Open); 10] = [
    ("champsim", champsim::open),
    ("champsim-cloudsuite", champsim::open_cloudsuite),
    ("csv", csv::open),
    ("drmemtrace", drmemtrace::open),
    ("gem5", gem5::open),
    ("lackey", lackey::open),
    ("parquet", parquet::open),
    ("perf", perf::open),
    ("pin", pin::open),
    ("text", text::open),
];

/// The names of the formats that [`import`] reads.
pub fn formats() -> impl Iterator<Item = &'static str> {
    FORMATS.into_iter().map(|(name, _)| name)
}

/// Opens the foreign trace `path`:
///
/// - `lackey`: what `valgrind --tool=lackey --trace-mem=yes --log-file=FILE` writes;
/// - `champsim`, `champsim-cloudsuite`: instructions in records of 64 bytes, or of 96;
/// - `drmemtrace`: a final trace of `drrun -t drmemtrace -offline`, a file or a folder of files;
/// - `gem5`, `perf`, `pin`: texts of these tools, an access in each line;
/// - `csv`, `parquet`, `text`: what [`export`](crate::export::export) writes, which is the stream
///   that was exported; and tables with a column `address`.
///
/// Each but Parquet is plain or compressed with xz, gzip, zstd or zip. With `lines` in runs of
/// lines.
/// `page_table` is a `v2p.textproto` of drmemtrace, by default the one that lies with the trace;
/// [`Imported::notes`] tells what is in it. The files are read twice, the first time here.
///
/// # Errors
/// An unknown format; a missing or unreadable file, a directory of another tool, or an input that
/// cannot be read twice; bytes that are not of that format, with the line or the byte. Later ones
/// are returned by [`Source::fill`].
pub fn import(format: &str, path: &Path, lines: bool, page_table: Option<&Path>) -> Result<Imported, Error> {
    let open = opened(format, path)?;
    Imported::new((format, &path.display().to_string()), &|| open(path), lines, page_table)
}

/// Opens several foreign traces as one stream, each a thread, which take turns of some thousand
/// records. All have one memory.
///
/// # Errors
/// Those of [`import`]; a trace with runs or events.
pub fn import_threads(format: &str, paths: &[PathBuf], lines: bool) -> Result<Imported, Error> {
    let opens = paths.iter().map(|path| opened(format, path)).collect::<Result<Vec<_>, _>>()?;
    let traces = || opens.iter().zip(paths).map(|(open, path)| open(path)).collect::<Result<Vec<_>, _>>();
    let several = || Ok(Box::new(Several::new(traces()?)) as Box<dyn Records>);
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    Imported::new((format, &names.join(" + ")), &several, lines, None)
}

/// What opens a trace of this format.
fn opened(format: &str, path: &Path) -> Result<Open, Error> {
    let Some((_, open)) = FORMATS.into_iter().find(|&(name, _)| name == format) else {
        let known = formats().collect::<Vec<_>>().join(", ");
        return Err(Error::input(format, format!("is not a trace format; expected one of: {known}")));
    };
    // Checked before it is opened, which for a pipe would wait until somebody writes.
    if std::fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir()) {
        let problem = "is not a regular file, and importing reads its input twice: save it to a file first";
        return Err(Error::input(path.display().to_string(), problem));
    }
    Ok(open)
}

/// A foreign trace as a source.
pub struct Imported {
    info: Info,
    notes: Vec<(String, String)>,
    /// The events before the first run, until they have been returned.
    start: Vec<Event>,
    records: Box<dyn Records>,
    builder: RunBuilder,
    threads: Threads,
    ended: bool,
}

impl Imported {
    /// The stream of a trace of this format and name.
    fn new(
        (format, name): (&str, &str),
        open: &dyn Fn() -> Result<Box<dyn Records>, Error>,
        lines: bool,
        page_table: Option<&Path>,
    ) -> Result<Imported, Error> {
        let mut records = open()?;
        let given = page_table.or(records.page_table_file()).map(PageTable::read).transpose()?;
        let wrong = |problem: String| Err(Error::input(name, problem));
        let (mut touched, mut events, mut calls) = (Touched::default(), false, false);
        let mut touch = |record| match record {
            Record::Access(access, address, bytes) => touched.access(access, address, bytes),
            Record::Run(run) => touched.access(run.access(), run.page() << TRACE_PAGE_SHIFT, 1),
            Record::Event(event) => {
                events = true;
                calls |= matches!(*event, Event::Call { .. });
            }
            Record::Thread(_) | Record::Instructions(_) => {}
        };
        while records.read(&mut touch)? {}
        if touched.is_empty() {
            return wrong(format!("contains no access; expected a {format} trace"));
        }
        let known = records.lines();
        if lines && known == Some(false) {
            return wrong("has pages without lines: import it without --lines".into());
        }
        let lines = known.unwrap_or(lines);
        let workload = records.workload().unwrap_or_else(|| name.to_owned());
        let mut notes: Vec<_> = records.notes().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        if let Some(table) = given.or_else(|| records.page_table()) {
            notes.push(("page table".to_owned(), table.describe(touched.pages())));
        }
        let start = if events { Vec::new() } else { touched.events(format) };
        let records = open()?;
        let info = Info { workload, fetches: touched.fetches(), lines, calls, ..Info::default() };
        let builder = if lines { RunBuilder::of_lines() } else { RunBuilder::new() };
        Ok(Imported { info, notes, start, records, builder, threads: Threads::default(), ended: false })
    }

    /// What to know of the trace, as keys and values for
    /// [`Writer::create`](crate::file::Writer::create).
    pub fn notes(&self) -> &[(String, String)] {
        &self.notes
    }
}

/// The threads of a foreign trace, numbered in the order of their first accesses.
#[derive(Default)]
struct Threads {
    numbers: HashMap<u64, u32>,
    /// The thread of the next access, if it may be another than that of the previous one.
    next: Option<u64>,
    current: u32,
}

impl Threads {
    /// Adds a switch if another thread made the previous access.
    #[inline]
    fn follow(&mut self, builder: &mut RunBuilder, batch: &mut Batch) {
        if let Some(next) = self.next.take() {
            let count = self.numbers.len() as u32;
            let thread = *self.numbers.entry(next).or_insert(count);
            if std::mem::replace(&mut self.current, thread) != thread {
                builder.event(batch, Event::Switch { process: ProcessId(0), thread });
            }
        }
    }
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
        while !self.ended && batch.runs.len().max(batch.events.len()) < Batch::RUNS {
            let (builder, threads) = (&mut self.builder, &mut self.threads);
            self.ended = !self.records.read(&mut |record| match record {
                Record::Access(access, address, bytes) => {
                    threads.follow(builder, batch);
                    match access {
                        Access::Read => builder.read(batch, address, bytes),
                        Access::Write => builder.write(batch, address, bytes),
                        Access::Execute => builder.fetch(batch, address, bytes),
                    }
                }
                Record::Thread(thread) => threads.next = Some(thread),
                // They are of the thread whose access comes.
                Record::Instructions(count) => {
                    threads.follow(builder, batch);
                    builder.instructions(count);
                }
                Record::Run(run) => {
                    threads.follow(builder, batch);
                    builder.close(batch);
                    batch.run(run);
                }
                Record::Event(event) => builder.event(batch, *event),
            })?;
        }
        self.builder.close(batch);
        Ok(!batch.runs.is_empty() || !batch.events.is_empty())
    }
}
