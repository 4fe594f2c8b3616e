//! ChampSim's traces: a record of 64 bytes per instruction, little-endian, often compressed.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0-7 | address of the instruction |
//! | 8, 9 | whether it is a branch, whether it was taken |
//! | 10-15 | registers: two destinations, four sources |
//! | 16-31 | two addresses stored to, 0 for none |
//! | 32-63 | four addresses loaded from, 0 for none |
//!
//! There are no lengths: each access counts on the page of its first byte. Loads come before stores.

use super::Records;
use crate::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use superpage_pages::Access;

const RECORD: usize = 64;

struct ChampSim {
    path: PathBuf,
    input: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    /// Bytes of records read so far.
    bytes: u64,
}

/// Opens a ChampSim trace and detects its compression.
pub(super) fn open(file: File, path: &Path) -> Result<Box<dyn Records>, Error> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let mut plain = BufReader::with_capacity(1 << 18, file);
    let input: Box<dyn Read + Send> = match plain.fill_buf().map_err(io)? {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(plain)),
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(plain)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::stream::read::Decoder::with_buffer(plain).map_err(io)?),
        _ => Box::new(plain),
    };
    let buffer = vec![0; RECORD * 1024].into_boxed_slice();
    Ok(Box::new(ChampSim { path: path.to_owned(), input, buffer, bytes: 0 }))
}

impl Records for ChampSim {
    fn read(&mut self, each: &mut dyn FnMut(Access, u64, u64)) -> Result<bool, Error> {
        let length = self.fill()?;
        let records = self.buffer[..length].chunks_exact(RECORD);
        if let left @ 1.. = records.remainder().len() {
            let problem = format!("ends {left} bytes into a record; expected whole records of {RECORD} bytes");
            return Err(self.error(self.bytes + (length - left) as u64, &problem));
        }
        for (number, record) in records.enumerate() {
            if record[8] > 1 || record[9] > 1 {
                let problem = "is not a ChampSim record (bytes 8 and 9, branch and taken, are 0 or 1 in one); expected \
                               records of 64 bytes as ChampSim's tracer writes them";
                return Err(self.error(self.bytes + (number * RECORD) as u64, problem));
            }
            let word = |at: usize| u64::from_le_bytes(*record[at..].first_chunk().expect("a record has 64 bytes"));
            each(Access::Execute, word(0), 1);
            (32..64).step_by(8).map(word).filter(|&load| load != 0).for_each(|load| each(Access::Read, load, 1));
            (16..32).step_by(8).map(word).filter(|&store| store != 0).for_each(|store| each(Access::Write, store, 1));
        }
        self.bytes += length as u64;
        Ok(length != 0)
    }

    fn workload(&self) -> Option<String> {
        None
    }
}

impl ChampSim {
    /// Fills the buffer as far as input is available.
    fn fill(&mut self) -> Result<usize, Error> {
        let mut length = 0;
        while length < self.buffer.len() {
            match self.input.read(&mut self.buffer[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let problem = format!("cannot be decompressed: {error}; expected a whole file: fetch it again");
                    return Err(self.error(self.bytes + length as u64, &problem));
                }
            }
        }
        Ok(length)
    }

    fn error(&self, byte: u64, problem: &str) -> Error {
        Error::input(format!("{}: byte {byte} of its records", self.path.display()), problem)
    }
}
