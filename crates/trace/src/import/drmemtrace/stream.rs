//! One file of a trace: the accesses of a thread, or of several one after the other.

use super::super::Record;
use super::super::packed::Packed;
use super::entry::{BYTES, FILTERED, Kind, VERSIONS, marker};
use crate::Error;
use hashbrown::HashMap;
use std::path::Path;
use superpage_pages::{Access, PageSize};

/// Records read at a time.
const AT_A_TIME: usize = 4096;

/// Why reading pauses.
pub(super) enum Pause {
    /// What follows happened from this time on, in microseconds.
    Time(u64),
    /// Enough was read.
    Enough,
    /// There is no more.
    End,
}

/// What was left out, or is to be reported.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) prefetches: u64,
    pub(super) flushes: u64,
    pub(super) unfetched: u64,
    /// Accesses and instructions of the kernel.
    pub(super) kernel: u64,
    /// The number of the last window of a trace with gaps.
    pub(super) window: u64,
    pub(super) filtered: bool,
}

/// A file that is being read.
pub(super) struct Stream {
    input: Packed,
    buffer: Box<[u8]>,
    length: usize,
    at: usize,
    /// Bytes of records before the buffer.
    before: u64,
    last: Option<Kind>,
    pub(super) version: Option<u64>,
    pub(super) thread: Option<u64>,
    pub(super) process: Option<u64>,
    /// The previous instruction and the end of it.
    fetched: Option<(u64, u64)>,
    in_kernel: bool,
    /// Whether the file is in chunks, each of which repeats time and processor at its beginning.
    chunked: bool,
    repeats: bool,
    pub(super) counts: Counts,
    /// The physical address before a virtual one.
    physical: u64,
    pub(super) page_size: Option<PageSize>,
    /// Physical pages by virtual ones.
    pub(super) pages: HashMap<u64, u64>,
}

impl Stream {
    pub(super) fn open(path: &Path) -> Result<Stream, Error> {
        Ok(Stream {
            input: Packed::open(path)?,
            buffer: vec![0; BYTES * AT_A_TIME].into_boxed_slice(),
            length: 0,
            at: 0,
            before: 0,
            last: None,
            version: None,
            thread: None,
            process: None,
            fetched: None,
            in_kernel: false,
            chunked: false,
            repeats: false,
            counts: Counts::default(),
            physical: 0,
            page_size: None,
            pages: HashMap::new(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.input.path()
    }

    /// Passes on accesses and changes of the thread up to a pause.
    pub(super) fn read(&mut self, each: &mut dyn FnMut(Record)) -> Result<Pause, Error> {
        if self.at == self.length && !self.fill()? {
            return Ok(Pause::End);
        }
        while self.at < self.length {
            let record: [u8; BYTES] = *self.buffer[self.at..].first_chunk().expect("whole records");
            let [number, size] = [0, 2].map(|at| u16::from_le_bytes([record[at], record[at + 1]]));
            let value = u64::from_le_bytes(*record[4..].first_chunk().expect("eight bytes"));
            let kind = match Kind::of(number) {
                Some(kind) => kind,
                None => {
                    return Err(self.wrong(&format!(
                        "has kind {number}, which version {} does not have: fetch it again",
                        VERSIONS.end()
                    )));
                }
            };
            self.last = Some(kind);
            match kind {
                Kind::Read => self.access(each, Access::Read, value, size)?,
                Kind::Write => self.access(each, Access::Write, value, size)?,
                Kind::Fetch => self.fetch(each, value, size)?,
                Kind::MaybeFetch if self.fetched.is_none_or(|(previous, _)| previous != value) => {
                    self.fetch(each, value, size)?;
                }
                Kind::NoFetch | Kind::MaybeFetch => {
                    self.counts.unfetched += 1;
                    self.fetched = Some((value, value.wrapping_add(u64::from(size))));
                }
                Kind::Bundle => self.bundle(each, size, value.to_le_bytes())?,
                Kind::Prefetch => self.counts.prefetches += 1,
                Kind::Flush => self.counts.flushes += 1,
                Kind::Ignored | Kind::Footer => {}
                Kind::Header => self.header(value)?,
                Kind::Thread => {
                    self.thread = Some(value);
                    each(Record::Thread(value));
                }
                Kind::Process if self.process.is_some_and(|process| process != value) => {
                    let process = self.process.unwrap_or_default();
                    return Err(self.wrong(&format!(
                        "is of process {value}, and those before of {process}; expected one process: filter the trace by process"
                    )));
                }
                Kind::Process => self.process = Some(value),
                Kind::Marker => {
                    if let Some(time) = self.marker(size, value)? {
                        self.at += BYTES;
                        return Ok(Pause::Time(time));
                    }
                }
            }
            self.at += BYTES;
        }
        Ok(Pause::Enough)
    }

    /// Reads the next records; returns `false` at the end of the file.
    fn fill(&mut self) -> Result<bool, Error> {
        self.before += self.length as u64;
        (self.length, self.at) = (self.input.fill(&mut self.buffer)?, 0);
        let known = self.version.is_some()
            || Kind::of(u16::from_le_bytes([self.buffer[0], self.buffer[1]])) == Some(Kind::Header);
        if !known && self.length > 0 {
            return Err(self.no_trace());
        }
        if let left @ 1.. = self.length % BYTES {
            self.at = self.length - left;
            return Err(
                self.wrong(&format!("ends {left} bytes into a record of {BYTES}, so it is cut: fetch it again"))
            );
        }
        if self.length == 0 && self.last != Some(Kind::Footer) {
            return Err(self.wrong("ends without a footer, so it is cut: fetch it again, or let the tracer end"));
        }
        Ok(self.length != 0)
    }

    #[inline]
    fn access(&mut self, each: &mut dyn FnMut(Record), access: Access, at: u64, bytes: u16) -> Result<(), Error> {
        if self.in_kernel {
            self.counts.kernel += 1;
            return Ok(());
        }
        if self.thread.is_none() {
            return Err(self.wrong("is an access before any thread; expected the thread and the process first"));
        }
        each(Record::Access(access, at, u64::from(bytes)));
        Ok(())
    }

    #[inline]
    fn fetch(&mut self, each: &mut dyn FnMut(Record), at: u64, bytes: u16) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        self.fetched = Some((at, at.wrapping_add(u64::from(bytes))));
        self.access(each, Access::Execute, at, bytes)
    }

    fn bundle(&mut self, each: &mut dyn FnMut(Record), count: u16, lengths: [u8; 8]) -> Result<(), Error> {
        let Some(lengths) = lengths.get(..usize::from(count)) else {
            return Err(self.wrong(&format!("is a bundle of {count} instructions; expected at most 8")));
        };
        for &length in lengths {
            let Some((_, end)) = self.fetched else {
                return Err(self.wrong("is a bundle of instructions without one before it that says where they are"));
            };
            self.fetch(each, end, u16::from(length))?;
        }
        Ok(())
    }

    fn header(&mut self, version: u64) -> Result<(), Error> {
        if VERSIONS.contains(&version) {
            self.version = Some(version);
            return Ok(());
        }
        // There a record has 8 bytes, so the second one is read as the upper half of the version.
        if version > u64::from(u32::MAX) && VERSIONS.contains(&(version & u64::from(u32::MAX))) {
            return Err(self.wrong("is of a program of 32 bits, whose records are not read; expected one of 64 bits"));
        }
        let (first, last) = VERSIONS.into_inner();
        Err(self.wrong(&format!(
            "is version {version} of drmemtrace's format; expected {first} to {last}: convert the raw trace with a DynamoRIO \
             of such a version"
        )))
    }

    /// Handles a marker; returns the time if it says that.
    fn marker(&mut self, kind: u16, value: u64) -> Result<Option<u64>, Error> {
        match kind {
            marker::TIMESTAMP if !self.repeats => return Ok(Some(value)),
            marker::CPU => self.repeats = false,
            marker::CHUNK_INSTRUCTIONS => self.chunked = value > 0,
            marker::CHUNK_FOOTER => self.repeats = self.chunked,
            marker::FILE_TYPE => self.counts.filtered |= value & FILTERED != 0,
            marker::WINDOW => self.counts.window = self.counts.window.max(value),
            marker::SYSTEM_CALL_BEGINS | marker::CONTEXT_SWITCH_BEGINS => self.in_kernel = true,
            marker::SYSTEM_CALL_ENDS | marker::CONTEXT_SWITCH_ENDS => self.in_kernel = false,
            marker::PAGE_SIZE => match PageSize::from_bytes(value).filter(|size| size.shift() >= 12) {
                Some(size) => self.page_size = Some(size),
                None => return Err(self.wrong(&format!("has page size {value}; expected a power of two from 4096 on"))),
            },
            marker::PHYSICAL_ADDRESS => self.physical = value,
            marker::VIRTUAL_ADDRESS => {
                let Some(size) = self.page_size else {
                    return Err(self.wrong("is a physical address before the page size; expected that first"));
                };
                self.pages.insert(value >> size.shift(), self.physical >> size.shift());
            }
            _ => {}
        }
        Ok(None)
    }

    /// The error for a file that does not begin with a header.
    fn no_trace(&self) -> Error {
        // A raw trace has entries of 8 bytes; the upper bits of the first, a header, are 110_00000
        // or 110_00100.
        if self.length >= 8 && matches!(self.buffer[7], 0xc0 | 0xc4) {
            return self.wrong(&format!("is a raw trace of drmemtrace; expected a final one: {}", super::CONVERT));
        }
        self.wrong(
            "is not a header of drmemtrace; expected a final trace, such as those in trace/ of a folder drmemtrace.*.dir",
        )
    }

    /// An error at the current record.
    fn wrong(&self, problem: &str) -> Error {
        self.input.error(self.before + self.at as u64, problem)
    }
}
