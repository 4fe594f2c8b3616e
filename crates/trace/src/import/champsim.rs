//! ChampSim's traces: a record per instruction, little-endian, often compressed. ChampSim's own
//! tracer writes 64 bytes, the traces of CloudSuite (`--cloudsuite`) have 96; both as in its
//! `trace_instruction.h`:
//!
//! | bytes | of 96 | what |
//! | --- | --- | --- |
//! | 0-7 | 0-7 | address of the instruction |
//! | 8, 9 | 8, 9 | whether it is a branch, whether it was taken |
//! | 10-15 | 10-17 | registers: two or four destinations, four sources |
//! | 16-31 | 24-55 | two or four addresses stored to, 0 for none |
//! | 32-63 | 56-87 | four addresses loaded from, 0 for none |
//! | | 88, 89 | address space, which ChampSim does not use |
//!
//! There are no lengths: each access counts on the page of its first byte. Loads come before
//! stores.

use super::packed::Packed;
use super::{Record, Records};
use crate::Error;
use std::ops::Range;
use std::path::Path;
use superpage_pages::Access;

/// Where in a record what is.
struct Layout {
    bytes: usize,
    stores: Range<usize>,
    loads: Range<usize>,
}

const CHAMPSIM: Layout = Layout { bytes: 64, stores: 16..32, loads: 32..64 };
const CLOUDSUITE: Layout = Layout { bytes: 96, stores: 24..56, loads: 56..88 };

struct ChampSim {
    layout: &'static Layout,
    input: Packed,
    buffer: Box<[u8]>,
    /// Bytes of records read so far.
    bytes: u64,
}

/// Opens a trace of ChampSim's tracer.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    with(path, &CHAMPSIM)
}

/// Opens a trace of CloudSuite for ChampSim.
pub(super) fn open_cloudsuite(path: &Path) -> Result<Box<dyn Records>, Error> {
    with(path, &CLOUDSUITE)
}

fn with(path: &Path, layout: &'static Layout) -> Result<Box<dyn Records>, Error> {
    let buffer = vec![0; layout.bytes * 1024].into_boxed_slice();
    Ok(Box::new(ChampSim { layout, input: Packed::open(path)?, buffer, bytes: 0 }))
}

impl Records for ChampSim {
    fn read(&mut self, each: &mut dyn FnMut(Record)) -> Result<bool, Error> {
        let &Layout { bytes, ref stores, ref loads } = self.layout;
        let length = self.input.fill(&mut self.buffer)?;
        let records = self.buffer[..length].chunks_exact(bytes);
        if let left @ 1.. = records.remainder().len() {
            let problem = format!("ends {left} bytes into a record; expected whole records of {bytes} bytes");
            return Err(self.input.error(self.bytes + (length - left) as u64, &problem));
        }
        for (number, record) in records.enumerate() {
            if record[8] > 1 || record[9] > 1 {
                let problem = format!(
                    "is not a record of ChampSim (bytes 8 and 9, branch and taken, are 0 or 1 in one); expected records of \
                     {bytes} bytes: those of 64 are the format champsim, those of CloudSuite, of 96, champsim-cloudsuite"
                );
                return Err(self.input.error(self.bytes + (number * bytes) as u64, &problem));
            }
            let word = |at: usize| u64::from_le_bytes(*record[at..].first_chunk().expect("within a record"));
            let some = |range: &Range<usize>| range.clone().step_by(8).map(word).filter(|&address| address != 0);
            each(Record::Access(Access::Execute, word(0), 1));
            some(loads).for_each(|load| each(Record::Access(Access::Read, load, 1)));
            some(stores).for_each(|store| each(Record::Access(Access::Write, store, 1)));
        }
        self.bytes += length as u64;
        Ok(length != 0)
    }
}
