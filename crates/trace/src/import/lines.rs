//! The lines of a text, plain or compressed.

use super::packed::Packed;
use crate::Error;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest line accepted: the command line of a program may be 2 MB.
const MOST_LINE: u64 = 4 << 20;

/// A text, of which one line at a time is in memory.
pub(super) struct Lines {
    path: PathBuf,
    input: BufReader<Packed>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Lines that are read at a time.
    pub(super) const AT_A_TIME: usize = 4096;

    /// Opens a text. Nothing is read yet.
    pub(super) fn open(path: &Path) -> Result<Lines, Error> {
        let input = BufReader::with_capacity(1 << 18, Packed::open(path)?);
        Ok(Lines { path: path.to_owned(), input, line: Vec::new(), number: 0 })
    }

    /// Reads the next line; returns `false` if none was left.
    pub(super) fn next(&mut self) -> Result<bool, Error> {
        self.line.clear();
        let read = (&mut self.input).take(MOST_LINE).read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| self.input.get_ref().unreadable(0, &error))? as u64;
        self.number += u64::from(read != 0);
        if read == MOST_LINE && self.line.last() != Some(&b'\n') {
            return Err(self.wrong(&format!("at {MOST_LINE} bytes the line has no end; expected a text")));
        }
        Ok(read != 0)
    }

    /// The line that was read last, without its end.
    pub(super) fn line(&self) -> &[u8] {
        self.line.trim_ascii_end()
    }

    /// The beginning of that line, as errors show it.
    pub(super) fn shown(&self) -> String {
        let line = self.line();
        format!("\"{}\"", line[..line.len().min(40)].escape_ascii())
    }

    /// An error at that line.
    pub(super) fn wrong(&self, problem: &str) -> Error {
        Error::input(format!("{}: line {}", self.path.display(), self.number), problem)
    }
}
