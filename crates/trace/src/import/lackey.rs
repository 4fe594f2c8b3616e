//! The output of Valgrind's tool Lackey with `--trace-mem=yes`: one line per access, as
//! `I  04015b70,3` for a fetch and ` L 1ffefff8,8`, ` S ...`, ` M ...` for a load, a store, and a
//! modify, which is a load and then a store. Plain or compressed.

use super::packed::Packed;
use super::{Record, Records};
use crate::Error;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use superpage_pages::Access;

/// Lines read at a time.
const LINES: usize = 4096;

/// The longest access accepted; those of real machines are shorter, XSAVE's being the longest.
const MOST_BYTES: u64 = 1 << 16;

/// The longest line accepted: the command line of a program may be 2 MB.
const MOST_LINE: u64 = 4 << 20;

struct Lackey {
    path: PathBuf,
    input: BufReader<Packed>,
    line: Vec<u8>,
    number: u64,
    command: Option<String>,
}

/// Opens a Lackey trace. Nothing is read yet.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    let input = BufReader::with_capacity(1 << 18, Packed::open(path)?);
    Ok(Box::new(Lackey { path: path.to_owned(), input, line: Vec::new(), number: 0, command: None }))
}

impl Records for Lackey {
    fn read(&mut self, each: &mut dyn FnMut(Record)) -> Result<bool, Error> {
        for _ in 0..LINES {
            self.line.clear();
            let read = (&mut self.input).take(MOST_LINE).read_until(b'\n', &mut self.line);
            let read = read.map_err(|error| self.input.get_ref().unreadable(0, &error))?;
            if read == 0 {
                return Ok(false);
            }
            self.number += 1;
            if read as u64 == MOST_LINE && self.line.last() != Some(&b'\n') {
                return Err(self.no_record(&self.line, &format!("at {MOST_LINE} bytes the line has no end")));
            }
            let line = self.line.trim_ascii_end();
            let Some((kind, address, bytes)) = access(line) else {
                self.other_line()?;
                continue;
            };
            match kind {
                b'I' => each(Record::Access(Access::Execute, address, bytes)),
                b'L' => each(Record::Access(Access::Read, address, bytes)),
                b'S' => each(Record::Access(Access::Write, address, bytes)),
                _ => {
                    each(Record::Access(Access::Read, address, bytes));
                    each(Record::Access(Access::Write, address, bytes));
                }
            }
        }
        Ok(true)
    }

    fn workload(&self) -> Option<String> {
        self.command.clone()
    }
}

impl Lackey {
    /// Handles a line that is not an access: Valgrind's own, or an error.
    fn other_line(&mut self) -> Result<(), Error> {
        let line = self.line.trim_ascii_end();
        if line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--") {
            let text = String::from_utf8_lossy(line);
            if let Some((_, command)) = text.split_once("== Command: ") {
                self.command.get_or_insert_with(|| command.to_owned());
            }
            return Ok(());
        }
        Err(self.no_record(line, "it is none of Valgrind's own lines"))
    }

    fn no_record(&self, line: &[u8], reason: &str) -> Error {
        let shown = line[..line.len().min(40)].escape_ascii();
        Error::input(
            format!("{}: line {}", self.path.display(), self.number),
            format!(
                "\"{shown}\" is not a Lackey record: {reason}; expected one such as \" L 1ffefffe78,8\"; if the program's own \
                 output is mixed in, run valgrind with --log-file=FILE",
            ),
        )
    }
}

/// The kind, the address and the size in a line.
fn access(line: &[u8]) -> Option<(u8, u64, u64)> {
    let (kind, rest) = match line {
        [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
        [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*kind, rest),
        _ => return None,
    };
    let comma = rest.iter().position(|&byte| byte == b',')?;
    let (address, bytes) = (&rest[..comma], &rest[comma + 1..]);
    if address.is_empty() || address.len() > 16 || bytes.is_empty() || bytes.len() > 6 {
        return None;
    }
    let address = address.iter().try_fold(0, |sum, &digit| Some(sum << 4 | u64::from(hexadecimal(digit)?)))?;
    let bytes =
        bytes.iter().try_fold(0, |sum, &digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))?;
    (bytes <= MOST_BYTES).then_some((kind, address, bytes))
}

fn hexadecimal(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::access;

    #[test]
    fn lines() {
        assert_eq!(access(b"I  0401ab70,3"), Some((b'I', 0x401ab70, 3)));
        assert_eq!(access(b" M 1FFF000618,16"), Some((b'M', 0x1fff000618, 16)));
        assert_eq!(access(b" L ffffffffff600000,8"), Some((b'L', 0xffff_ffff_ff60_0000, 8)));
        for wrong in ["", " L ", " L ,8", " L 12", " L 12,", "L 12,8", " X 12,8", " L 12,65537", " S 1g,8", "I 12,8"] {
            assert_eq!(access(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
