//! Writes a trace file.

use super::block::{BLOCK_RUNS, Columns, Encoder};
use super::bytes::put_number;
use super::frame::{CLOSING, Front, Kind, NOBODY};
use super::header;
use super::pool::{Block, Encoded, Pool};
use super::sink::Sink;
use super::totals::{Counter, Totals};
use crate::Error;
use crate::event::{Batch, Event, Info, Run};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a trace file.
///
/// The file appears under its name only when [`Writer::finish`] has completed it, see
/// [`superpage_output`]; if the writer is dropped or fails, nothing is left. Blocks are encoded,
/// compressed and checked by threads of the writer's own, one for each processor and at most eight,
/// and written by the calling one; two for each of them may be in memory at once.
pub struct Writer {
    path: PathBuf,
    version: u32,
    /// Whether runs are of lines.
    lines: bool,
    /// Whether there may be system calls.
    calls: bool,
    /// `None` after an error.
    sink: Option<Sink>,
    encoder: Encoder,
    counter: Counter,
    pool: Pool,
    /// Columns of blocks that have been encoded, to be used again.
    empty: Vec<Columns>,
    /// Blocks that were given to the pool.
    blocks: u32,
    /// The length of each block's frame, and its number of runs.
    index: Vec<(u32, u32)>,
    written: u64,
    /// The process and thread that were current before the block being collected.
    before: (u32, u32),
    /// The current process and thread.
    current: (u32, u32),
}

impl Writer {
    /// Starts the file `path`; an existing file stays until [`Writer::finish`]. `notes` are free
    /// keys and values, such as the architecture and the recorder's version. If `path` is not a
    /// regular file, such as a pipe, it is written directly.
    ///
    /// # Errors
    /// The file cannot be created, or the workload's name and the notes are together longer than 1
    /// MB.
    pub fn create(path: &Path, info: &Info, notes: &[(String, String)]) -> Result<Writer, Error> {
        let sink = Sink::file(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Writer::start(path.to_owned(), sink, info, notes)
    }

    /// Starts a trace on any writer.
    ///
    /// # Errors
    /// As for [`Writer::create`].
    pub fn new(out: impl Write + Send + 'static, info: &Info, notes: &[(String, String)]) -> Result<Writer, Error> {
        Writer::start(PathBuf::from("output"), Sink::plain(Box::new(out)), info, notes)
    }

    fn start(path: PathBuf, sink: Sink, info: &Info, notes: &[(String, String)]) -> Result<Writer, Error> {
        let header = header::encode(info, notes);
        if header.len() > header::DESCRIPTION_BYTES {
            let (length, most) = (header.len(), header::DESCRIPTION_BYTES);
            return Err(Error::input(
                path.display().to_string(),
                format!(
                    "the workload's name and the notes take {length} bytes, more than the {most} of a header: shorten them"
                ),
            ));
        }
        let mut writer = Writer {
            path,
            version: header::version(info),
            lines: info.lines,
            calls: info.calls,
            sink: Some(sink),
            encoder: Encoder::default(),
            counter: Counter::default(),
            pool: Pool::new(),
            empty: Vec::new(),
            blocks: 0,
            index: Vec::new(),
            written: 0,
            before: NOBODY,
            current: NOBODY,
        };
        writer.put(&header)?;
        Ok(writer)
    }

    /// Adds a piece of the stream. A note longer than [`super::NOTE_BYTES`] is cut to that length.
    ///
    /// # Errors
    /// A write fails, of this or of an earlier piece, or the piece has a system call and the
    /// stream's [`Info`] said that there is none; the unfinished file is then removed.
    pub fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut next = 0;
        for &(place, ref event) in &batch.events {
            self.write_runs(&batch.runs[next..place as usize])?;
            next = place as usize;
            if let Event::Switch { process, thread } = *event {
                self.current = (process.0, thread);
            }
            if !self.calls && matches!(event, Event::Call { .. }) {
                let problem = "a system call in a stream said to hold none; set Info::calls";
                return Err(self.error(io::Error::other(problem)));
            }
            self.encoder.add_event(event, &mut self.counter);
            self.end_full_block()?;
        }
        self.write_runs(&batch.runs[next..])
    }

    fn write_runs(&mut self, mut runs: &[Run]) -> Result<(), Error> {
        while !runs.is_empty() {
            let (now, later) = runs.split_at(runs.len().min(BLOCK_RUNS - self.encoder.runs()));
            self.encoder.add_runs(now, &mut self.counter);
            self.end_full_block()?;
            runs = later;
        }
        Ok(())
    }

    /// What has been written so far.
    pub fn totals(&self) -> Totals {
        self.counter.totals()
    }

    /// Completes the file and gives it its name; returns its totals. Call it also when a recording
    /// is interrupted: the file then holds what has come so far, and is complete.
    ///
    /// # Errors
    /// A write fails; the unfinished file is then removed.
    pub fn finish(mut self) -> Result<Totals, Error> {
        if !self.encoder.is_empty() {
            self.end_block()?;
        }
        while let Some(encoded) = self.pool.take() {
            self.put_block(encoded)?;
        }
        let totals = self.counter.totals();
        let mut content = Vec::new();
        totals.put(&mut content, self.version);
        put_number(&mut content, self.index.len() as u64);
        for &(length, runs) in &self.index {
            put_number(&mut content, length.into());
            put_number(&mut content, runs.into());
        }
        let footer = self.written;
        let (number, length) = (self.index.len() as u32, content.len() as u32);
        let front =
            Front { kind: Kind::Footer, number, packed: length, raw: length, runs: 0, events: 0, current: self.before };
        let mut frame = Vec::new();
        front.encode(&content, &mut frame);
        self.put(&frame)?;
        self.put(&[footer.to_le_bytes(), CLOSING].concat())?;
        let done = self.sink.take().ok_or_else(failed_before).and_then(Sink::commit);
        done.map_err(|source| self.error(source)).map(|()| totals)
    }

    fn end_full_block(&mut self) -> Result<(), Error> {
        if self.encoder.is_full() { self.end_block() } else { Ok(()) }
    }

    /// Gives the block to the pool, and writes those that have come back.
    fn end_block(&mut self) -> Result<(), Error> {
        while let Some(encoded) = self.pool.take_ready() {
            self.put_block(Ok(encoded))?;
        }
        if self.pool.is_full()
            && let Some(encoded) = self.pool.take()
        {
            self.put_block(encoded)?;
        }
        let columns = self.encoder.take(self.empty.pop().unwrap_or_default());
        let given = self.pool.give(Block { columns, number: self.blocks, before: self.before, lines: self.lines });
        given.map_err(|source| self.error(source))?;
        self.blocks += 1;
        self.before = self.current;
        Ok(())
    }

    /// Writes an encoded block.
    fn put_block(&mut self, encoded: io::Result<Encoded>) -> Result<(), Error> {
        let Encoded { frame, runs, columns } = encoded.map_err(|source| self.error(source))?;
        let frame = frame.map_err(|source| self.error(source))?;
        self.put(&frame)?;
        self.index.push((frame.len() as u32, runs));
        self.empty.push(columns);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.written += bytes.len() as u64;
        let sink = self.sink.as_mut().ok_or_else(failed_before);
        sink.and_then(|sink| sink.write_all(bytes)).map_err(|source| self.error(source))
    }

    /// Abandons the file.
    fn error(&mut self, source: io::Error) -> Error {
        self.sink = None;
        Error::Io { path: self.path.clone(), source: superpage_output::explain(source) }
    }
}

fn failed_before() -> io::Error {
    io::Error::other("writing failed before")
}
