//! Samples of accesses: what `perf script -F tid,time,event,addr,data_src` prints of
//! `perf mem record` or `perf record -d`. A line begins with the thread; before the address is the
//! event's name with a colon, or the time's; after it may be the data source, as in
//! `71 12.345678: cpu/mem-loads/P: 7ffe0010 5080022 |OP LOAD|LVL L1 hit|SNP None|TLB L2 miss|...`.
//!
//! Samples are no stream: between two of them a program makes some thousand accesses.

use super::by_line::{self, Format, Line, decimal, hexadecimal};
use super::{Record, Records};
use crate::Error;
use std::path::Path;
use superpage_pages::Access;

const PERF: Format = Format {
    parse,
    wrong: "no sample; expected what perf script -F tid,time,event,addr,data_src prints, such as \"71 12.345678: \
            cpu/mem-loads/P: 7ffe0010 5080022 |OP LOAD|LVL L1 hit|SNP None|TLB L1 hit|LCK No\"",
    last: None,
    note: Some(
        "these are samples, not all accesses: they say which regions are hot, not how many TLB misses there are",
    ),
};

/// Opens samples. Nothing is read yet.
pub(super) fn open(path: &Path) -> Result<Box<dyn Records>, Error> {
    by_line::open(path, &PERF)
}

fn parse(line: &[u8], each: &mut dyn FnMut(Record)) -> Line {
    if line.is_empty() || line.starts_with(b"#") {
        return Line::Read;
    }
    match sample(line) {
        Some((thread, Some((access, address)))) => {
            each(Record::Thread(thread));
            each(Record::Access(access, address, 1));
            Line::Read
        }
        Some((_, None)) => Line::Read,
        None => Line::Wrong,
    }
}

/// The thread of a sample, and its access; none without an address, as of an event that has none.
fn sample(line: &[u8]) -> Option<(u64, Option<(Access, u64)>)> {
    let words = || line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let thread = decimal(words().next()?)?;
    let time = words().nth(1).and_then(|word| str::from_utf8(word.strip_suffix(b":")?).ok()?.parse::<f64>().ok());
    if time.is_some_and(|time| !time.is_finite()) {
        return None;
    }
    // The source is a text with spaces, and its words may end in a colon.
    let source = words().position(|word| word.starts_with(b"|OP")).unwrap_or(usize::MAX);
    let colon = words().take(source).enumerate().filter(|(_, word)| word.ends_with(b":")).last()?.0;
    let address = hexadecimal(words().nth(colon + 1)?)?;
    let operation = words().nth(source.saturating_add(1)).unwrap_or_default();
    let named = words().nth(colon)?.windows(6).any(|part| part == b"stores");
    let store = if source == usize::MAX { named } else { operation.starts_with(b"STORE") };
    let access = if store { Access::Write } else { Access::Read };
    Some((thread, (address != 0).then_some((access, address))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let load =
            b"  71 12.345678:  cpu/mem-loads/P:  7ffe0010  5080022 |OP LOAD|LVL L1 hit|SNP None|TLB L1 hit|LCK No";
        assert_eq!(sample(load), Some((71, Some((Access::Read, 0x7ffe_0010)))));
        let store = b"71 12.345678: 7ffe0010 5080022 |OP STORE|LVL L1 hit|SNP N/A|TLB Walker hit|LCK No|BLK  N/A";
        assert_eq!(sample(store), Some((71, Some((Access::Write, 0x7ffe_0010)))));
        let named = b"71 12.345678: cpu/mem-stores/P: ffffffff81000000";
        assert_eq!(sample(named), Some((71, Some((Access::Write, 0xffff_ffff_8100_0000)))));
        assert_eq!(sample(b"71 12.345678: page-faults: 0"), Some((71, None)));
        for wrong in ["ls 71 12.3: 10", "71 12.3: x", "71", "71 10", "71 12.3:", "71 nan: e: 10", "71 inf: 10"] {
            assert_eq!(sample(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
