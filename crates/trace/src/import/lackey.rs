//! The output of Valgrind's tool Lackey with `--trace-mem=yes`: one line per access, as
//! `I  04015b70,3` for a fetch and ` L 1ffefff8,8`, ` S ...`, ` M ...` for a load, a store, and a
//! modify, which is a load and then a store. Plain or compressed.

use super::by_line::{self, Format, Line, decimal, hexadecimal};
use super::{MOST_BYTES, Record, Records};
use crate::Error;
use std::path::Path;
use superpage_pages::Access;

const LACKEY: Format = Format {
    parse,
    wrong: "not a Lackey record: it is none of Valgrind's own lines; expected one such as \" L 1ffefffe78,8\"; if the \
            program's own output is mixed in, run valgrind with --log-file=FILE",
    last: None,
    note: None,
};

/// Opens a Lackey trace. Nothing is read yet.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    by_line::open(path, &LACKEY)
}

fn parse(line: &[u8], each: &mut dyn FnMut(Record)) -> Line {
    let Some((kind, address, bytes)) = access(line) else { return other_line(line) };
    match kind {
        b'I' => each(Record::Access(Access::Execute, address, bytes)),
        b'L' => each(Record::Access(Access::Read, address, bytes)),
        b'S' => each(Record::Access(Access::Write, address, bytes)),
        _ => {
            each(Record::Access(Access::Read, address, bytes));
            each(Record::Access(Access::Write, address, bytes));
        }
    }
    Line::Read
}

/// A line that is not an access: Valgrind's own, or an error.
fn other_line(line: &[u8]) -> Line {
    if !(line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--")) {
        return Line::Wrong;
    }
    match String::from_utf8_lossy(line).split_once("== Command: ") {
        Some((_, command)) => Line::Command(command.to_owned()),
        None => Line::Read,
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
    let bytes = decimal(&rest[comma + 1..]).filter(|&bytes| bytes <= MOST_BYTES)?;
    Some((kind, hexadecimal(&rest[..comma])?, bytes))
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
