//! A final trace of drmemtrace, all threads in one file; `import/drmemtrace` reads it.
//!
//! Runs are written whole, in their order: each instruction and each access is a record. Where a
//! run of fetches begins with the end of an instruction, that is the last one of the page or line
//! below, if the run before was there; otherwise it is an instruction more.

use super::champsim::{CODE, STEP};
use super::{OneProcess, Out, Table};
use crate::file::Totals;
use crate::row::Row;
use crate::{TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};
use std::io::{self, Write};

/// Kinds of records: `trace_type_t` of DynamoRIO's `trace_entry.h`.
mod kind {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const INSTRUCTION: u16 = 10;
    pub(super) const THREAD: u16 = 22;
    pub(super) const THREAD_EXIT: u16 = 23;
    pub(super) const PROCESS: u16 = 24;
    pub(super) const HEADER: u16 = 25;
    pub(super) const FOOTER: u16 = 26;
    pub(super) const MARKER: u16 = 28;
}

/// Kinds of markers: `trace_marker_type_t`.
mod marker {
    pub(super) const TIMESTAMP: u16 = 2;
    pub(super) const CPU: u16 = 3;
    pub(super) const FILE_TYPE: u16 = 9;
    pub(super) const LINE_SIZE: u16 = 10;
    pub(super) const VERSION: u16 = 12;
    pub(super) const PAGE_SIZE: u16 = 18;
}

/// The version that is written, and the type of file: of x86-64, without encodings.
const VERSION: u64 = 7;
const X86_64: u64 = 0x40;

/// Bytes of a record.
const RECORD: usize = 12;

/// Bytes of a data access, none of which crosses a line.
const WORD: u16 = 8;

struct DrMemTrace {
    out: Out,
    written: u64,
    process: OneProcess,
    /// The thread of the last record, and all there were.
    thread: Option<u32>,
    threads: Vec<u32>,
    fetches: bool,
    /// The last instruction of a run of fetches, until it is known where it ends.
    last: Option<Last>,
}

/// An instruction that is to be written.
struct Last {
    address: u64,
    /// The end of its page or line; `None`: of the address space.
    end: Option<u64>,
    /// Whether its run has no other.
    only: bool,
}

pub(super) fn start(out: Out) -> io::Result<Box<dyn Table>> {
    let (process, threads) = (OneProcess::default(), Vec::new());
    let mut trace = DrMemTrace { out, written: 0, process, thread: None, threads, fetches: false, last: None };
    trace.put(kind::HEADER, 0, VERSION)?;
    trace.put(kind::MARKER, marker::VERSION, VERSION)?;
    trace.put(kind::MARKER, marker::FILE_TYPE, X86_64)?;
    Ok(Box::new(trace))
}

/// Bytes of the records, of which each instruction and each access has one.
pub(super) fn size(totals: &Totals) -> u64 {
    totals.instructions.saturating_add(totals.references).saturating_mul(RECORD as u64)
}

impl Table for DrMemTrace {
    fn row(&mut self, row: Row) -> io::Result<()> {
        let (Some(page), Some(references)) = (row.page, row.references) else { return self.last() };
        self.process.check(&row)?;
        if self.thread != Some(row.thread) {
            self.last()?;
            self.begin(&row)?;
        }
        let start = page << TRACE_PAGE_SHIFT | u64::from(row.line.unwrap_or(0)) << TRACE_LINE_SHIFT;
        let bytes = 1 << if row.line.is_some() { TRACE_LINE_SHIFT } else { TRACE_PAGE_SHIFT };
        let instructions = row.instructions.unwrap_or(0);
        match row.kind {
            "execute" => {
                self.fetches = true;
                let crossed = references > instructions && self.crossing(start)?;
                self.last()?;
                let count = if crossed { instructions } else { instructions.max(1) };
                self.fetch(start, bytes, count, crossed)
            }
            name => {
                if self.last.as_ref().is_some_and(|last| last.only) {
                    self.last()?;
                }
                for at in 0..if self.fetches { 0 } else { instructions } {
                    self.put(kind::INSTRUCTION, STEP as u16, CODE + at * STEP % (1 << TRACE_PAGE_SHIFT))?;
                }
                let number = if name == "write" { kind::WRITE } else { kind::READ };
                (0..references).try_for_each(|_| self.put(number, WORD, start))
            }
        }
    }

    fn finish(mut self: Box<Self>) -> io::Result<Out> {
        self.last()?;
        for thread in std::mem::take(&mut self.threads) {
            self.put(kind::THREAD_EXIT, 4, u64::from(thread) + 1)?;
        }
        self.put(kind::FOOTER, 0, 0)?;
        Ok(self.out)
    }

    fn records(&self) -> Option<u64> {
        Some(self.written)
    }
}

impl DrMemTrace {
    fn put(&mut self, kind: u16, size: u16, value: u64) -> io::Result<()> {
        self.written += 1;
        let mut record = [0; RECORD];
        record[..2].copy_from_slice(&kind.to_le_bytes());
        record[2..4].copy_from_slice(&size.to_le_bytes());
        record[4..].copy_from_slice(&value.to_le_bytes());
        self.out.write_all(&record)
    }

    /// What follows is of the row's thread. Time is the number of records.
    fn begin(&mut self, row: &Row) -> io::Result<()> {
        self.put(kind::THREAD, 4, u64::from(row.thread) + 1)?;
        self.put(kind::PROCESS, 4, u64::from(row.process) + 1)?;
        if !self.threads.contains(&row.thread) {
            self.threads.push(row.thread);
            self.put(kind::MARKER, marker::LINE_SIZE, 1 << TRACE_LINE_SHIFT)?;
            self.put(kind::MARKER, marker::PAGE_SIZE, 1 << TRACE_PAGE_SHIFT)?;
        }
        self.thread = Some(row.thread);
        self.put(kind::MARKER, marker::TIMESTAMP, self.written)?;
        self.put(kind::MARKER, marker::CPU, 0)
    }

    /// Writes the instruction that waits, if one does.
    fn last(&mut self) -> io::Result<()> {
        match self.last.take() {
            Some(last) => self.put(kind::INSTRUCTION, STEP as u16, last.address),
            None => Ok(()),
        }
    }

    /// Writes the instruction that waits across the beginning of this page or line, if it may be;
    /// returns whether it was.
    fn crossing(&mut self, start: u64) -> io::Result<bool> {
        let crosses = self.last.take_if(|last| last.end == Some(start)).is_some();
        if crosses {
            self.put(kind::INSTRUCTION, STEP as u16, start - STEP / 2)?;
        }
        Ok(crosses)
    }

    /// Writes so many instructions of a page or line, but for the last.
    fn fetch(&mut self, start: u64, bytes: u64, count: u64, crossed: bool) -> io::Result<()> {
        let address = |at: u64| start + at * STEP % bytes;
        let Some(last) = count.checked_sub(1) else { return Ok(()) };
        for at in 0..last {
            self.put(kind::INSTRUCTION, STEP as u16, address(at))?;
        }
        self.last = Some(Last { address: address(last), end: start.checked_add(bytes), only: last == 0 && !crossed });
        Ok(())
    }
}
