//! ChampSim's records of 64 bytes (`trace_instruction.h`), one for each instruction; `import` reads
//! them.
//!
//! A run says how many accesses go to its page or line, not in which instruction each is. So the
//! instructions of a run of fetches take the accesses that follow it in their order, each up to
//! four loads and then two stores, and what no instruction has room for is in further records. The
//! order of data accesses is that of the stream, and so is that of fetches. Before an event all is
//! written, so each event has its place among the records.

use super::{OneProcess, Out, Table};
use crate::file::Totals;
use crate::row::Row;
use crate::{TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};
use std::collections::VecDeque;
use std::io::{self, Write};

const RECORD: usize = 64;
const STORES: usize = 2;
const LOADS: usize = 4;

/// The code of streams without fetches: a page below what programs map.
pub(super) const CODE: u64 = 0x10_0000;

/// Instructions are so far apart, in bytes.
pub(super) const STEP: u64 = 4;

struct ChampSim {
    out: Out,
    written: u64,
    /// Whether there are fetches; until then instructions are those of data.
    fetches: bool,
    process: OneProcess,
    code: Code,
    data: VecDeque<Data>,
}

/// Instructions that are to be written.
#[derive(Default)]
struct Code {
    /// The first byte of their page or line, and its length.
    start: u64,
    bytes: u64,
    count: u64,
    /// Where the next is, in bytes from the start.
    at: u64,
}

/// Accesses that are to be written.
struct Data {
    address: u64,
    write: bool,
    count: u64,
}

pub(super) fn start(out: Out) -> io::Result<Box<dyn Table>> {
    let code = Code { start: CODE, bytes: 1 << TRACE_PAGE_SHIFT, ..Code::default() };
    Ok(Box::new(ChampSim {
        out,
        written: 0,
        fetches: false,
        process: OneProcess::default(),
        code,
        data: VecDeque::new(),
    }))
}

/// Bytes of the records, of which each instruction has one, and at least each so many accesses.
pub(super) fn size(totals: &Totals) -> u64 {
    let records = totals.instructions.max(totals.references / (LOADS + STORES) as u64);
    records.saturating_mul(RECORD as u64)
}

impl Table for ChampSim {
    fn row(&mut self, row: Row) -> io::Result<()> {
        let (Some(page), Some(references)) = (row.page, row.references) else { return self.all() };
        self.process.check(&row)?;
        let start = page << TRACE_PAGE_SHIFT | u64::from(row.line.unwrap_or(0)) << TRACE_LINE_SHIFT;
        let instructions = row.instructions.unwrap_or(0);
        match row.kind {
            "execute" => {
                self.some(1)?;
                self.fetches = true;
                let bytes = 1 << if row.line.is_some() { TRACE_LINE_SHIFT } else { TRACE_PAGE_SHIFT };
                // What only crosses into a page is an instruction there, so that it is fetched.
                self.code = Code { start, bytes, count: instructions.max(1), at: 0 };
            }
            kind => {
                if !self.fetches {
                    self.some(1)?;
                    self.code.count += instructions;
                }
                // Address 0 means none.
                let data = Data { address: start.max(8), write: kind == "write", count: references };
                self.data.push_back(data);
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<Out> {
        self.all()?;
        Ok(self.out)
    }

    fn records(&self) -> Option<u64> {
        Some(self.written)
    }
}

impl ChampSim {
    /// Writes all that is left.
    fn all(&mut self) -> io::Result<()> {
        self.some(0)
    }

    /// Writes the instructions, and further ones until at most so many runs of data are left: the
    /// last may go on in instructions to come.
    fn some(&mut self, runs: usize) -> io::Result<()> {
        while self.code.count > 0 || self.data.len() > runs {
            self.code.count = self.code.count.saturating_sub(1);
            let mut record = [0; RECORD];
            let mut put = |place: usize, address: u64| record[place..place + 8].copy_from_slice(&address.to_le_bytes());
            put(0, self.code.start + self.code.at);
            self.code.at = (self.code.at + STEP) % self.code.bytes;
            let (mut loads, mut stores) = (0, 0);
            while let Some(data) = self.data.front_mut() {
                // In a record, loads are before stores.
                let (place, taken, room) = if data.write {
                    (16, &mut stores, STORES)
                } else {
                    (32, &mut loads, if stores == 0 { LOADS } else { 0 })
                };
                if *taken >= room {
                    break;
                }
                put(place + *taken * 8, data.address);
                *taken += 1;
                data.count -= 1;
                if data.count == 0 {
                    self.data.pop_front();
                }
            }
            self.out.write_all(&record)?;
            self.written += 1;
        }
        Ok(())
    }
}
