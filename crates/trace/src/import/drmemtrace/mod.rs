//! Final traces of drmemtrace, DynamoRIO's tracer (`drrun -t drmemtrace -offline`): a file for each
//! thread, or one for all.
//!
//! The files of a folder are one stream, in the order of DynamoRIO's own serial reader
//! (`scheduler/scheduler_fixed.cpp`, `DEPENDENCY_TIMESTAMPS`): each file is cut at its timestamps,
//! and the part with the earliest is next, of equal ones that of the first file by name. A
//! timestamp that a chunk of a file only repeats cuts nothing.

mod entry;
mod stream;

use super::page_table::PageTable;
use super::{Record, Records};
use crate::Error;
use hashbrown::{HashMap, HashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use stream::{Counts, Pause, Stream};

/// How to make a final trace of a raw one.
const CONVERT: &str = "drrun -t drmemtrace -indir DIR writes it to DIR/trace";

/// The name of the page table that lies with a trace.
const PAGE_TABLE: &str = "v2p.textproto";

/// All files of a trace.
struct Merged {
    streams: Vec<Stream>,
    /// By time: which file goes on then.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    current: Option<usize>,
    /// The process, and the first file that named it.
    process: Option<(u64, usize)>,
    threads: HashSet<u64>,
    program: Option<String>,
    page_table: Option<PathBuf>,
}

/// Opens a trace: a file, a folder of files, or a folder with such a folder `trace`.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    let files = if path.is_dir() { files(path)? } else { vec![path.to_owned()] };
    let streams: Vec<Stream> = files.iter().map(|file| Stream::open(file)).collect::<Result<_, _>>()?;
    let near = files[0].parent().into_iter().chain(Some(path).filter(|path| path.is_dir()));
    let places = near.flat_map(|folder| ["", "aux", "raw"].map(|part| folder.join(part).join(PAGE_TABLE)));
    // drmemtrace.PROGRAM.THREAD.NUMBER.trace
    let name = unpacked_name(&files[0]);
    let program = name.strip_prefix("drmemtrace.").and_then(|rest| Some(rest.rsplitn(4, '.').nth(3)?.to_owned()));
    Ok(Box::new(Merged {
        waiting: (0..streams.len()).map(|number| Reverse((0, number))).collect(),
        streams,
        current: None,
        process: None,
        threads: HashSet::new(),
        program,
        page_table: places.into_iter().find(|place| place.is_file()),
    }))
}

/// The files of a trace in a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let below = folder.join("trace");
    let within = if below.is_dir() { &below } else { folder };
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(within)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
        Ok(entries.into_iter().filter(|path| path.is_file() && is_trace(path)).collect())
    };
    let mut files = list().map_err(|source| Error::Io { path: within.to_owned(), source })?;
    files.sort_unstable();
    if files.is_empty() {
        let problem = if folder.join("raw").is_dir() || folder.ends_with("raw") {
            format!("has only a raw trace of drmemtrace; expected a final one: {CONVERT}")
        } else {
            "has no files of drmemtrace; expected names that end in .trace or .memtrace, perhaps with .zip or .gz \
                  after it"
                .to_owned()
        };
        return Err(Error::input(within.display().to_string(), problem));
    }
    Ok(files)
}

/// Whether a file of this name is one of a trace; schedules, lists of modules and statistics lie
/// next to them.
fn is_trace(path: &Path) -> bool {
    let name = unpacked_name(path);
    name.ends_with(".trace") || name.ends_with(".memtrace")
}

/// The name of a file without what says how it is compressed.
fn unpacked_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [".zip", ".gz", ".zst", ".xz"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name).to_owned()
}

impl Records for Merged {
    fn read(&mut self, each: &mut dyn FnMut(Record)) -> Result<bool, Error> {
        let number = match self.current.take() {
            Some(number) => number,
            None => {
                let Some(Reverse((_, number))) = self.waiting.pop() else { return Ok(false) };
                if let Some(thread) = self.streams[number].thread {
                    each(Record::Thread(thread));
                }
                number
            }
        };
        let stream = &mut self.streams[number];
        match stream.read(each)? {
            Pause::Enough => self.current = Some(number),
            Pause::Time(time) => self.waiting.push(Reverse((time, number))),
            Pause::End => {}
        }
        self.threads.extend(stream.thread);
        let Some(process) = self.streams[number].process else { return Ok(true) };
        let &mut (first, file) = self.process.get_or_insert((process, number));
        if process == first {
            return Ok(true);
        }
        let [one, other] = [file, number].map(|number| self.streams[number].path().display().to_string());
        let problem = format!(
            "is of process {process}, and {one} of {first}; expected one process: put the files of each process into their own folder"
        );
        Err(Error::input(other, problem))
    }

    fn workload(&self) -> Option<String> {
        self.program.clone()
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        let version = self.streams.iter().filter_map(|stream| stream.version).max().unwrap_or_default();
        let sum = |count: fn(&Counts) -> u64| self.streams.iter().map(|stream| count(&stream.counts)).sum::<u64>();
        let left_out = [
            (sum(|counts| counts.prefetches), "prefetches"),
            (sum(|counts| counts.flushes), "cache flushes"),
            (sum(|counts| counts.unfetched), "iterations of string instructions after the first"),
            (sum(|counts| counts.kernel), "accesses of the kernel"),
        ];
        let left_out = left_out.into_iter().filter(|&(count, _)| count > 0);
        let left_out: Vec<_> = left_out.map(|(count, what)| format!("{what}: {count}")).collect();
        let (threads, files) = (self.threads.len(), self.streams.len());
        let mut about = format!("version {version}, threads: {threads}, files: {files}");
        if !left_out.is_empty() {
            about += &format!("; left out: {}", left_out.join(", "));
        }
        let mut notes = vec![("drmemtrace", about)];
        if self.streams.iter().any(|stream| stream.counts.filtered) {
            let text = "a cache held back what it had when this was recorded, so references and misses are too few";
            notes.push(("filtered", text.to_owned()));
        }
        let last = self.streams.iter().map(|stream| stream.counts.window).max().unwrap_or_default();
        if last > 0 {
            let text = format!(
                "{} with gaps between them, which are read as if they followed each other",
                last.saturating_add(1)
            );
            notes.push(("windows", text));
        }
        notes
    }

    fn page_table_file(&self) -> Option<&Path> {
        self.page_table.as_deref()
    }

    fn page_table(&self) -> Option<PageTable> {
        let size = self.streams.iter().find(|stream| !stream.pages.is_empty())?.page_size?;
        let mut pages = HashMap::new();
        self.streams
            .iter()
            .filter(|stream| stream.page_size == Some(size))
            .for_each(|stream| pages.extend(&stream.pages));
        Some(PageTable::new("physical addresses in the trace".to_owned(), size, &pages))
    }
}
