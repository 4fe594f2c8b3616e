//! gem5's accesses to memory, behind its caches and by physical address: the debug output of the
//! flag `MemoryAccess` (`src/mem/abstract_mem.cc`), such as
//! `7700: system.mem: Read from cpu.inst of size 64 on address 0x190 C`, and the text that
//! `util/decode_packet_trace.py` makes of a packet trace, such as `r,4096,64,256,1000`, with the
//! number of the packet before it and the address of the instruction after it where there are.

use super::by_line::{self, Format, Line, decimal, hexadecimal};
use super::{MOST_BYTES, Record, Records};
use crate::Error;
use std::path::Path;
use superpage_pages::Access;

const GEM5: Format = Format {
    parse,
    wrong: "not of gem5; expected a line of --debug-flags=MemoryAccess, such as \"7700: system.mem: Read from cpu.data \
            of size 64 on address 0x190 C\", or of decode_packet_trace.py, such as \"r,4096,64,256,1000\"",
    last: None,
    note: Some(
        "addresses are physical, and caches have kept back what they held: TLB misses of it are not the program's",
    ),
};

/// Opens a text of gem5. Nothing is read yet.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    by_line::open(path, &GEM5)
}

fn parse(line: &[u8], each: &mut dyn FnMut(Record)) -> Line {
    let Ok(line) = str::from_utf8(line) else { return Line::Wrong };
    let access = match line.split_once(" of size ") {
        Some((before, after)) => accessed(before, after),
        None => packet(line),
    };
    match access {
        Some(Some((tick, access, address, bytes))) => {
            each(Record::Access(access, address, bytes));
            tick.map_or(Line::Read, Line::At)
        }
        Some(None) => Line::Read,
        None if line.contains(" of size ") => Line::Wrong,
        // What other objects say, and the start of gem5.
        None if line.is_empty() || line.contains(": ") || line.starts_with("gem5") => Line::Read,
        None => Line::Wrong,
    }
}

/// The tick if it is there, kind, address and size of an access.
type Timed = (Option<u64>, Access, u64, u64);

/// The access in a line of the flag, split before the size.
fn accessed(before: &str, after: &str) -> Option<Option<Timed>> {
    let (bytes, rest) = after.split_once(" on address ")?;
    let address = hexadecimal(rest.split(' ').next()?.as_bytes())?;
    let bytes = decimal(bytes.as_bytes()).filter(|&bytes| bytes <= MOST_BYTES)?;
    let tick = before.trim_start().split_once(':').and_then(|(tick, _)| tick.parse().ok());
    let (kind, from) = before.rsplit_once(": ")?.1.split_once(" from ")?;
    let access = match kind {
        "IFetch" => Access::Execute,
        kind if kind.starts_with("Write") => Access::Write,
        kind if kind.starts_with("Read") && from.ends_with(".inst") => Access::Execute,
        kind if kind.starts_with("Read") => Access::Read,
        _ => return None,
    };
    Some(Some((tick, access, address, bytes)))
}

/// The access in a line of a packet trace; none if it is of a packet of another kind.
fn packet(line: &str) -> Option<Option<Timed>> {
    let mut cells = line.split(',').skip_while(|cell| cell.bytes().all(|byte| byte.is_ascii_digit()));
    let access = match cells.next()? {
        "r" => Some(Access::Read),
        "w" => Some(Access::Write),
        "u" => None,
        _ => return None,
    };
    let address = cells.next()?.parse().ok()?;
    let bytes = decimal(cells.next()?.as_bytes()).filter(|&bytes| bytes <= MOST_BYTES)?;
    // Flags are before the tick in newer ones, and there may be the instruction after it.
    let tick = cells.take(2).last().and_then(|tick| tick.parse().ok());
    Some(access.map(|access| (tick, access, address, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (bool, Vec<(Access, u64, u64)>) {
        let mut found = Vec::new();
        let read = parse(line.as_bytes(), &mut |record| match record {
            Record::Access(access, address, bytes) => found.push((access, address, bytes)),
            _ => panic!("no access"),
        });
        (!matches!(read, Line::Wrong), found)
    }

    #[test]
    fn lines() {
        let read = "  77000: system.mem_ctrl.dram: Read from cpu.data of size 8 on address 0x1f90 data 0x12 C";
        assert_eq!(of(read), (true, vec![(Access::Read, 0x1f90, 8)]));
        let fetch = "0: system.mem: Read from cpu.inst of size 64 on address 0x40 C";
        assert_eq!(of(fetch), (true, vec![(Access::Execute, 0x40, 64)]));
        assert_eq!(
            of("9: system.mem: Write from cpu.data of size 64 on address 0 C"),
            (true, vec![(Access::Write, 0, 64)])
        );
        assert_eq!(of("w,4096,64,1000"), (true, vec![(Access::Write, 4096, 64)]));
        assert_eq!(of("17,r,18446744073709551615,64,256,1000,99"), (true, vec![(Access::Read, u64::MAX, 64)]));
        for passed in ["u,4096,64,1000", "gem5 Simulator System.  https://www.gem5.org", "0: system.cpu: hello", ""] {
            assert_eq!(of(passed), (true, vec![]), "{passed}");
        }
        let number = "1: system.mem: Write from cpu.data of size 64 on address 0xZZZ C";
        let large = "1: system.mem: Read from cpu.data of size 99999999999999999999 on address 0x9000 C";
        for wrong in [number, large, "hello", "r,x,64", "r,1,999999999", "r,1", "1,2,3", "\u{fffd}"] {
            assert!(!of(wrong).0, "{wrong}");
        }
    }
}
