//! Writes a trace file.

use super::block::{BLOCK_RUNS, Encoder};
use super::bytes::put_number;
use super::frame::{CLOSING, Front, Kind, NOBODY};
use super::header;
use super::sink::Sink;
use super::totals::{Counter, Totals};
use crate::Error;
use crate::event::{Batch, Event, Info, Run};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The level of zstd. On recorded programs level 1 makes files about 6 % larger, and level 6 makes them about 10 %
/// smaller in twice the time.
const LEVEL: i32 = 3;

/// Writes a trace file.
///
/// The file appears under its name only when [`Writer::finish`] has completed it, see [`superpage_output`]; if the
/// writer is dropped or fails, nothing is left. Compression is done on the calling thread.
pub struct Writer {
    path: PathBuf,
    version: u32,
    /// `None` after an error.
    sink: Option<Sink>,
    encoder: Encoder,
    counter: Counter,
    compressor: zstd::bulk::Compressor<'static>,
    raw: Vec<u8>,
    packed: Vec<u8>,
    frame: Vec<u8>,
    /// The length of each block's frame, and its number of runs.
    index: Vec<(u32, u32)>,
    written: u64,
    /// The process and thread that were current before the block being collected.
    before: (u32, u32),
    /// The current process and thread.
    current: (u32, u32),
}

impl Writer {
    /// Starts the file `path`; an existing file stays until [`Writer::finish`]. `notes` are free keys and values, such
    /// as the architecture and the recorder's version. If `path` is not a regular file, such as a pipe, it is written
    /// directly.
    ///
    /// # Errors
    /// The file cannot be created, or the workload's name and the notes are together longer than 1 MB.
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
            compressor: zstd::bulk::Compressor::new(LEVEL)
                .map_err(|source| Error::Io { path: path.clone(), source })?,
            path,
            version: header::version(info),
            sink: Some(sink),
            encoder: Encoder::default(),
            counter: Counter::default(),
            raw: Vec::new(),
            packed: Vec::new(),
            frame: header,
            index: Vec::new(),
            written: 0,
            before: NOBODY,
            current: NOBODY,
        };
        writer.put_frame()?;
        Ok(writer)
    }

    /// Adds a piece of the stream. A note longer than [`super::NOTE_BYTES`] is cut to that length.
    ///
    /// # Errors
    /// A write fails; the unfinished file is then removed.
    pub fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut next = 0;
        for &(place, ref event) in &batch.events {
            self.write_runs(&batch.runs[next..place as usize])?;
            next = place as usize;
            if let Event::Switch { process, thread } = *event {
                self.current = (process.0, thread);
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

    /// Completes the file and gives it its name; returns its totals. Call it also when a recording is
    /// interrupted: the file then holds what has come so far, and is complete.
    ///
    /// # Errors
    /// A write fails; the unfinished file is then removed.
    pub fn finish(mut self) -> Result<Totals, Error> {
        if !self.encoder.is_empty() {
            self.end_block()?;
        }
        let totals = self.counter.totals();
        self.raw.clear();
        totals.put(&mut self.raw, self.version);
        put_number(&mut self.raw, self.index.len() as u64);
        for &(length, runs) in &self.index {
            put_number(&mut self.raw, length.into());
            put_number(&mut self.raw, runs.into());
        }
        let footer = self.written;
        std::mem::swap(&mut self.raw, &mut self.packed);
        self.frame(Kind::Footer, 0, 0);
        self.put_frame()?;
        self.frame = [footer.to_le_bytes(), CLOSING].concat();
        self.put_frame()?;
        let done = self.sink.take().ok_or_else(failed_before).and_then(Sink::commit);
        done.map_err(|source| self.error(source)).map(|()| totals)
    }

    fn end_full_block(&mut self) -> Result<(), Error> {
        if self.encoder.is_full() { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<(), Error> {
        let (runs, events) = (self.encoder.runs() as u32, self.encoder.events());
        self.encoder.finish(&mut self.raw);
        self.pack()?;
        self.frame(Kind::Block, runs, events);
        self.put_frame()?;
        self.index.push((self.frame.len() as u32, runs));
        self.before = self.current;
        Ok(())
    }

    /// Compresses `raw` into `packed`.
    fn pack(&mut self) -> Result<(), Error> {
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(self.raw.len()));
        let done = self.compressor.compress_to_buffer(&self.raw, &mut self.packed);
        done.map(drop).map_err(|source| self.error(source))
    }

    /// Puts a frame around the bytes in `packed`.
    fn frame(&mut self, kind: Kind, runs: u32, events: u32) {
        let (number, packed) = (self.index.len() as u32, self.packed.len() as u32);
        let raw = if kind == Kind::Block { self.raw.len() as u32 } else { packed };
        let front = Front { kind, number, packed, raw, runs, events, current: self.before };
        front.encode(&self.packed, &mut self.frame);
    }

    /// Writes the bytes in `frame`.
    fn put_frame(&mut self) -> Result<(), Error> {
        self.written += self.frame.len() as u64;
        let sink = self.sink.as_mut().ok_or_else(failed_before);
        sink.and_then(|sink| sink.write_all(&self.frame)).map_err(|source| self.error(source))
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
