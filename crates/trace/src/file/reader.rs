//! Reads a trace file.

use super::block::Decoder;
use super::bytes::Damage;
use super::frame::{self, Front, Kind, NOBODY};
use super::layout::{Block, Input, Layout, read_at};
use super::totals::{Counter, Totals};
use crate::Error;
use crate::check::{Rules, ranges};
use crate::event::{Batch, Event, Info, PAGES_LIMIT, ProcessId, Source};
use serde::Serialize;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// What could not be read of a cut or damaged trace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Lost {
    /// The first block that could not be read, from 0.
    pub block: usize,
    /// Where it begins in the file.
    pub byte: u64,
    /// The bytes of the file from there on.
    pub bytes: u64,
    /// The number of runs from there on, if the footer is there to tell.
    pub runs: Option<u64>,
    /// What is wrong with it.
    pub problem: String,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "block {} at byte {} could not be read: {}; ", self.block, self.byte, self.problem)?;
        match self.runs {
            Some(runs) => write!(f, "{runs} runs from there on are lost"),
            None => {
                write!(f, "{} bytes from there on, and whatever the recorder had not yet written, are lost", self.bytes)
            }
        }
    }
}

/// A trace file as a [`Source`].
///
/// What is read keeps the rules that consumers rely on: page numbers below [`PAGES_LIMIT`], and,
/// when read from the start, events and accesses only of processes that exist and files that are
/// open; anything else is an error ([`Error::Input`]) that names the block and the event.
/// [`check_stream`](crate::check_stream) knows them all.
///
/// Memory: about a megabyte, and 32 bytes per block of up to 65536 runs. Malformed or hostile bytes
/// cause errors, never panics, and use no more memory than those of a good file.
pub struct Reader {
    path: PathBuf,
    input: Box<dyn Input>,
    layout: Layout,
    up_to_cut: bool,
    decompressor: zstd::bulk::Decompressor<'static>,
    frame: Vec<u8>,
    decoder: Decoder,
    next_block: usize,
    /// The process and thread to begin with after a seek.
    resume: Option<(u32, u32)>,
    lost: Option<Lost>,
    /// Set once the note about what is lost has been returned.
    reported: bool,
    /// What events must keep; `None` if everything may come.
    rules: Option<Checked>,
    /// The digest of the checksums of the blocks read since the start.
    digest: Xxh3,
}

impl Reader {
    /// Opens a complete trace.
    ///
    /// # Errors
    /// The file is missing, a directory, unreadable, empty, not a trace, of a newer version, or cut
    /// off ([`Reader::open_up_to_cut`] can read that). A damaged block is an error when it is read.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        Reader::new(Box::new(open_file(path)?), path, false)
    }

    /// Opens a trace that may be cut off or damaged: reading ends before the first block that is
    /// not whole, with an [`Event::Note`], and [`Reader::lost`] returns what is missing.
    ///
    /// # Errors
    /// As for [`Reader::open`], except that only the header must be intact.
    pub fn open_up_to_cut(path: &Path) -> Result<Reader, Error> {
        Reader::new(Box::new(open_file(path)?), path, true)
    }

    /// Opens a trace in memory, named `name` in errors, as [`Reader::open`] or
    /// [`Reader::open_up_to_cut`] does.
    pub fn from_bytes(bytes: Vec<u8>, name: &str, up_to_cut: bool) -> Result<Reader, Error> {
        Reader::new(Box::new(io::Cursor::new(bytes)), Path::new(name), up_to_cut)
    }

    fn new(mut input: Box<dyn Input>, path: &Path, up_to_cut: bool) -> Result<Reader, Error> {
        let mut layout = Layout::read(&mut *input, path)?;
        // Pages of all threads are its own where there is one.
        layout.info.mixed_windows &= layout.totals.as_ref().and_then(|totals| totals.threads) != Some(1);
        let io = |source| Error::Io { path: path.to_owned(), source };
        let mut reader = Reader {
            decompressor: zstd::bulk::Decompressor::new().map_err(io)?,
            path: path.to_owned(),
            input,
            layout,
            up_to_cut,
            frame: Vec::new(),
            decoder: Decoder::default(),
            next_block: 0,
            resume: None,
            lost: None,
            reported: false,
            rules: Some(Checked::default()),
            digest: Xxh3::new(),
        };
        if let Some((byte, damage)) = reader.layout.cut {
            reader.damaged(reader.layout.blocks.len(), byte, damage)?;
        }
        Ok(reader)
    }

    /// Lets events and accesses come that break the rules of a stream, to look at the file as it
    /// is.
    pub fn unchecked(mut self) -> Reader {
        self.rules = None;
        self
    }

    /// The free keys and values of the header.
    pub fn notes(&self) -> &[(String, String)] {
        &self.layout.notes
    }

    /// The totals of the whole trace; `None` if its footer is missing.
    pub fn totals(&self) -> Option<&Totals> {
        self.layout.totals.as_ref()
    }

    /// The version of the file's format.
    pub fn version(&self) -> u32 {
        self.layout.version
    }

    /// The number of blocks.
    pub fn blocks(&self) -> usize {
        self.layout.blocks.len()
    }

    /// The length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.layout.length
    }

    /// What could not be read, as far as reading has come; `None` for an intact trace.
    pub fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    /// Continues reading at block `block`. The next batch begins with an [`Event::Switch`] to the
    /// process and thread that are current there; the mappings made before are not repeated. Cost:
    /// constant.
    ///
    /// # Errors
    /// There is no such block.
    pub fn seek_to_block(&mut self, block: usize) -> Result<(), Error> {
        if block > self.blocks() {
            let problem = format!("has {} blocks, so there is no block {block}", self.blocks());
            return Err(Error::input(self.path.display().to_string(), problem));
        }
        self.decoder.raw();
        self.digest = Xxh3::new();
        self.next_block = block;
        // What came before another block is not known.
        self.rules = self.rules.is_some().then(|| Checked { rules: (block == 0).then(Rules::default), events: 0 });
        self.resume = None;
        if block < self.blocks() && self.load()? {
            self.resume = Some(self.decoder.current()).filter(|&current| current != NOBODY);
        }
        Ok(())
    }

    /// Checks the checksums of all blocks without decoding them; returns their bytes before
    /// compression. Cost: reading the file.
    ///
    /// # Errors
    /// A block is damaged, unless the trace was opened up to its cut; or the file cannot be read.
    pub fn verify(&mut self) -> Result<u64, Error> {
        let mut raw = 0;
        self.digest = Xxh3::new();
        for number in 0..self.blocks() {
            let block = self.layout.blocks[number];
            let read = self.read_frame(block).map_err(|source| self.io(source))?;
            match read.and_then(|()| check_block(&self.frame, number, block)) {
                Ok((front, _)) => {
                    raw += u64::from(front.raw);
                    self.digest.update(frame::checksum(&self.frame));
                }
                Err(damage) => {
                    self.damaged(number, block.offset, damage)?;
                    break;
                }
            }
        }
        Ok(raw)
    }

    /// Reads from the start to the end and computes the totals.
    pub(crate) fn count(&mut self) -> Result<Totals, Error> {
        self.seek_to_block(0)?;
        self.reported = true; // The note of what is lost does not belong to the trace.
        let (mut counter, mut batch) = (Counter::default(), Batch::default());
        while self.fill(&mut batch)? {
            counter.batch(&batch);
        }
        Ok(counter.totals())
    }

    /// Reads and checks the next block; returns `false` if it is lost.
    fn load(&mut self) -> Result<bool, Error> {
        let (number, block) = (self.next_block, self.layout.blocks[self.next_block]);
        let read = self.read_frame(block).map_err(|source| self.io(source))?;
        match read.and_then(|()| self.decode_block(block)) {
            Ok(()) => {
                self.digest.update(frame::checksum(&self.frame));
                self.next_block += 1;
                Ok(true)
            }
            Err(damage) => {
                self.decoder.raw();
                self.damaged(number, block.offset, damage)?;
                Ok(false)
            }
        }
    }

    /// Checks what was just read of a block.
    fn check(&mut self, batch: &Batch) -> Result<(), Error> {
        let Some(checked) = &mut self.rules else { return Ok(()) };
        checked.batch(batch, self.decoder.largest_page()).map_err(|problem| {
            let what = format!("{}: block {}, {problem}", self.path.display(), self.next_block.saturating_sub(1));
            Error::input(what, "record or import the trace again")
        })
    }

    fn io(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }

    /// Reads the frame of a block into `frame`.
    fn read_frame(&mut self, block: Block) -> io::Result<Result<(), Damage>> {
        if block.length > frame::BLOCK_BYTES {
            return Ok(Err(Damage("its length is beyond what a block can have")));
        }
        self.frame.resize(block.length as usize, 0);
        read_at(&mut *self.input, block.offset, &mut self.frame).map(Ok)
    }

    /// Decompresses the block in `frame`.
    fn decode_block(&mut self, block: Block) -> Result<(), Damage> {
        let (front, packed) = check_block(&self.frame, self.next_block, block)?;
        let raw = self.decoder.raw();
        raw.reserve(front.raw as usize);
        match self.decompressor.decompress_to_buffer(packed, raw) {
            Ok(length) if length == front.raw as usize => self.decoder.open(&front, &self.layout.info),
            _ => Err(Damage("it cannot be decompressed")),
        }
    }

    /// Turns damage into an error, or records it and ends the trace there.
    fn damaged(&mut self, block: usize, byte: u64, Damage(problem): Damage) -> Result<(), Error> {
        let length = self.layout.length;
        if !self.up_to_cut {
            return Err(Error::input(
                self.path.display().to_string(),
                format!(
                    "block {block}, at byte {byte} of {length}, is not whole: {problem}; expected whole blocks and a \
                     footer; `sim`, `trace info` and `trace export` read the {block} blocks before it with --up-to-cut"
                ),
            ));
        }
        let first_run = self.layout.blocks.get(block).map_or(0, |block| block.first_run);
        let runs = self.totals().map(|totals| totals.runs - first_run);
        self.lost = Some(Lost { block, byte, bytes: length - byte, runs, problem: problem.into() });
        self.layout.blocks.truncate(block);
        self.layout.info.runs = Some(self.layout.blocks.last().map_or(0, |block| block.first_run + block.runs));
        Ok(())
    }
}

/// The state of the rules.
struct Checked {
    /// Those that need what came before; `None` after a seek.
    rules: Option<Rules>,
    /// The events so far.
    events: u64,
}

impl Default for Checked {
    fn default() -> Checked {
        Checked { rules: Some(Rules::default()), events: 0 }
    }
}

impl Checked {
    /// Checks a piece of a block that accesses pages up to `largest`; an error is where and what is
    /// wrong.
    fn batch(&mut self, batch: &Batch, largest: Option<u64>) -> Result<(), String> {
        if let Some(page) = largest.filter(|page| *page >= PAGES_LIMIT) {
            return Err(format!("an access to page {page:#x}, expected pages below 2^52"));
        }
        let mut at = 0;
        for (place, event) in &batch.events {
            let checked = match &mut self.rules {
                Some(rules) => {
                    let before = if *place > at { rules.accesses() } else { Ok(()) };
                    before.and_then(|()| rules.event(event))
                }
                None => ranges(event),
            };
            checked.map_err(|problem| format!("event {}: {problem}", self.events))?;
            at = *place;
            self.events += 1;
        }
        match &self.rules {
            Some(rules) if at < batch.runs.len() as u32 => {
                rules.accesses().map_err(|problem| format!("event {}: {problem}", self.events))
            }
            _ => Ok(()),
        }
    }
}

/// The front and the compressed bytes of a block, if they match the index.
fn check_block(frame: &[u8], number: usize, block: Block) -> Result<(Front, &[u8]), Damage> {
    let (front, packed) = frame::open(frame)?;
    if front.kind != Kind::Block || front.number != number as u32 || u64::from(front.runs) != block.runs {
        return Err(Damage("it is not the block that the index names"));
    }
    Ok((front, packed))
}

/// Opens a file for reading; a directory, a pipe or a device is an error.
pub(crate) fn open_file(path: &Path) -> Result<File, Error> {
    superpage_output::open_regular(path).map_err(|source| match source.kind() {
        io::ErrorKind::IsADirectory => {
            Error::input(path.display().to_string(), "is a directory; expected the name of a trace file")
        }
        _ => Error::Io { path: path.to_owned(), source },
    })
}

impl Source for Reader {
    fn info(&self) -> &Info {
        &self.layout.info
    }

    fn digest(&self) -> Option<String> {
        Some(format!("{:016x}", self.digest.digest()))
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        while self.decoder.is_done() {
            if self.next_block == self.blocks() || !self.load()? {
                if let Some(lost) = self.lost.as_ref().filter(|_| !self.reported) {
                    self.reported = true;
                    batch.event(Event::Note(format!("{}: {lost}", self.path.display())));
                    return Ok(true);
                }
                return Ok(false);
            }
        }
        if let Some((process, thread)) = self.resume.take() {
            batch.event(Event::Switch { process: ProcessId(process), thread });
        }
        self.decoder.read(Batch::RUNS, batch);
        self.check(batch)?;
        Ok(true)
    }
}
