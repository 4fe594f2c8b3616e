//! `cmp`: two files of one length are mapped and compared from the start to the end: the paper's
//! sequential access, in which every byte of each page is used and the costs of promotion are
//! spread thin (Navarro et al., section 6.6).
//!
//! Each byte is a load from either file, and 8 instructions for the two are assumed: load, load,
//! compare, branch, and the Each byte is a load from either file, and 8 instructions for the two
//! are assumed: load, load, compare, branch, and the same again to count lines and bytes. The loads
//! alternate between the files; since the order within a pair of pages does not matter to a TLB,
//! each 4 KB page is one run.

use super::Kind;
use super::files::{data_file, open_and_map, unmap_and_close};
use super::parameters::{MOST_BYTES, Parameter, Values};
use super::program::{Out, PAGE, Program, REGION, Running};
use crate::{Batch, Error, Event, Source};
use superpage_pages::{Access, Protection};

pub(super) const KIND: Kind = Kind {
    name: "cmp",
    help: "compare two mapped files byte by byte (Navarro et al., section 6.6)",
    parameters: &[Parameter { name: "bytes", default: "100M", help: "the length of each file" }],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let bytes = values.bytes("bytes", 1..=MOST_BYTES)?;
    let second = (REGION + bytes).next_multiple_of(REGION);
    let starts = [REGION, second];
    Ok(Running::start(values, Compare { bytes, starts, next: None }, false, 2 * bytes.div_ceil(PAGE)))
}

struct Compare {
    bytes: u64,
    starts: [u64; 2],
    /// The next byte; `None` before the files are mapped.
    next: Option<u64>,
}

impl Program for Compare {
    fn step(&mut self, out: &mut Out) -> bool {
        let pages = self.bytes.div_ceil(PAGE);
        let files = [0, 1].map(|index| (data_file("cmp", index), self.starts[index as usize]));
        match self.next {
            None => {
                out.begin();
                for (file, start) in files {
                    open_and_map(out, file, pages, start, Protection::READ);
                }
                self.next = Some(0);
            }
            Some(next) if next < self.bytes => {
                let unit = out.unit();
                let end = self.bytes.min(next + Batch::RUNS as u64 / 2 * unit);
                for at in (next..end).step_by(unit as usize) {
                    let count = unit.min(end - at) as u32;
                    for start in self.starts {
                        out.data(start + at, Access::Read, count, 4 * count);
                    }
                }
                self.next = Some(end);
                if end == self.bytes {
                    for (file, start) in files {
                        unmap_and_close(out, file, pages, start);
                    }
                    out.event(Event::Exit);
                }
            }
            Some(_) => return false,
        }
        true
    }
}
