//! The text that Pin's example `pinatrace` writes: `0x401000: R 0x7ffe0010` for a load and `W` for
//! a store, each by the instruction at the first address; perhaps with the size and the value after
//! it. The last line is `#eof`. There are no fetches, and no instructions without an access.

use super::by_line::{self, Format, Line, decimal, hexadecimal};
use super::{MOST_BYTES, Record, Records};
use crate::Error;
use std::path::Path;
use superpage_pages::Access;

const PIN: Format = Format {
    parse,
    wrong: "not of pinatrace; expected a line such as \"0x7f3c: R 0x7ffe0010\"",
    last: Some("#eof"),
    note: Some(
        "instructions without an access are not in it, so counts for each instruction are not those of the program",
    ),
};

/// Opens the output of pinatrace. Nothing is read yet.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    by_line::open(path, &PIN)
}

fn parse(line: &[u8], each: &mut dyn FnMut(Record)) -> Line {
    if line.is_empty() || line.starts_with(b"#") {
        return Line::Read;
    }
    match access(line) {
        Some((access, address, bytes)) => {
            each(Record::Instructions(1));
            each(Record::Access(access, address, bytes));
            Line::Read
        }
        None => Line::Wrong,
    }
}

/// The kind, the address and the size in a line.
fn access(line: &[u8]) -> Option<(Access, u64, u64)> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    hexadecimal(words.next()?.strip_suffix(b":")?)?;
    let access = match words.next()? {
        b"R" => Access::Read,
        b"W" => Access::Write,
        _ => return None,
    };
    let address = hexadecimal(words.next()?)?;
    let bytes = words.next().map_or(Some(1), decimal).filter(|&bytes| bytes <= MOST_BYTES)?;
    Some((access, address, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(access(b"0x7f3c: R 0x7ffe0010"), Some((Access::Read, 0x7ffe_0010, 1)));
        assert_eq!(access(b"0x7f3c: W 0x7ffe0010  8 0x1f"), Some((Access::Write, 0x7ffe_0010, 8)));
        for wrong in
            ["R 0x10", "0x7f3c R 0x10", "0x7f3c: X 0x10", "0x7f3c: R", "0x7f3c: R 0x10 99999999", "0x1: R (nil)"]
        {
            assert_eq!(access(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
