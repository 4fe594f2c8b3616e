//! `fftw`: a model of FFTW's complex transform of an n x n x n array of doubles (Navarro et al.,
//! section 6.2). The corpus holds the real program; this shows its pattern of accesses at the grain
//! of pages, at any size.
//!
//! The array, 16 n^3 bytes, is one mapping aligned to 1 GB and first filled in order: 2 stores an
//! element. Then the three dimensions are transformed one after the other, the contiguous one
//! first. Each line of n elements along the dimension
//!
//! 1. is gathered into a buffer: 2 loads from the array and 2 stores into the buffer for each
//!    element,
//! 2. is transformed in the buffer in ceil(log2 n) passes, each of 2 loads and 2 stores an element
//!    of the buffer and 1 load an element of the table of roots of unity, which is as long as the
//!    line,
//! 3. is scattered back: 2 loads from the buffer and 2 stores into the array for each element.
//!
//! With `arrays=2` the transform is not in place: the lines of the first dimension are gathered
//! from the array and scattered into a second one, at the next multiple of 1 GB, where the other
//! dimensions are transformed; the first array stays as it was filled. Two arrays of 122 MB hold
//! the paper's 60 superpages of 4 MB (table 1), 30 each.
//!
//! Lines are taken in the order of their addresses. A pass goes page by page through the buffer and
//! the table, a run of each kind, as its order within a page is no concern of a TLB. Along the last
//! dimension the elements of a line are 16 n^2 bytes apart, 640 KB for n = 200: 200 pages of
//! whatever size up to 512 KB, more than the 128 entries of the Alpha's TLB, which is why the
//! paper's FFTW gains with 4 MB pages only (table 3). 2 instructions a reference are assumed.
//!
//! One transform of n = 200 misses 16.2 M times in 128 round-robin entries for 8 KB pages. The
//! paper's counter shows 243 steps of 512 K misses (99.59 % are `1 - 1/243`, 7.41 % are 18/243):
//! about eight such transforms.

use super::Kind;
use super::parameters::{Parameter, Values};
use super::program::{Out, PAGE, Pass, Program, REGION, Running, next_region};
use crate::{Error, Event, Source};
use superpage_pages::Access;

pub(super) const KIND: Kind = Kind {
    name: "fftw",
    help: "a model of an n x n x n complex transform (Navarro et al., section 6.2)",
    parameters: &[
        Parameter { name: "n", default: "200", help: "elements along each dimension" },
        Parameter { name: "arrays", default: "1", help: "1: in place; 2: from one array to another" },
        Parameter { name: "transforms", default: "1", help: "how many times the array is transformed" },
    ],
    start,
};

/// Bytes of a complex number of two doubles.
const ELEMENT: u64 = 16;

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let n = values.count("n", 2..=4000)?;
    let transforms = values.count("transforms", 1..=1_000_000)?;
    let array = n * n * n * ELEMENT;
    let runs = array.div_ceil(PAGE) + 12 * n * n * n * transforms;
    let arrays = values.count("arrays", 1..=2)?;
    let result = if arrays == 2 { next_region(REGION, array) } else { REGION };
    let work = next_region(result, array);
    let fill = Pass::new(REGION, array, 8, Access::Write, 2);
    let transform = Transform { n, result, work, fill, started: false, left: transforms * 3, line: 0 };
    Ok(Running::start(values, transform, false, runs))
}

struct Transform {
    n: u64,
    /// The array that is transformed into: the first, or another.
    result: u64,
    /// The buffer; the table of roots of unity is in the next page after it.
    work: u64,
    fill: Pass,
    started: bool,
    /// Dimensions still to be transformed, in all transforms; the next is `2 - (left - 1) % 3`, 0
    /// the contiguous one.
    left: u64,
    /// The next line along that dimension.
    line: u64,
}

impl Program for Transform {
    fn step(&mut self, out: &mut Out) -> bool {
        let bytes = self.n.pow(3) * ELEMENT;
        if !self.started {
            self.started = true;
            out.begin();
            out.map_anonymous(REGION, bytes);
            if self.result != REGION {
                out.map_anonymous(self.result, bytes);
            }
            out.map_anonymous(self.work, 2 * self.line_bytes());
        } else if self.fill.step(out) {
        } else if self.left == 0 {
            return false;
        } else {
            self.transform_line(out);
            self.line += 1;
            if self.line == self.n * self.n {
                self.line = 0;
                self.left -= 1;
            }
            if self.left == 0 {
                out.event(Event::Unmap { start: self.work / PAGE, pages: 2 * self.line_bytes() / PAGE });
                if self.result != REGION {
                    out.event(Event::Unmap { start: self.result / PAGE, pages: bytes.div_ceil(PAGE) });
                }
                out.unmap_and_exit(REGION, bytes);
            }
        }
        true
    }
}

impl Transform {
    /// The bytes of a line, in whole pages.
    fn line_bytes(&self) -> u64 {
        (self.n * ELEMENT).next_multiple_of(PAGE)
    }

    fn transform_line(&self, out: &mut Out) {
        let n = self.n;
        let dimension = 2 - (self.left - 1) % 3;
        let (stride, first) = match dimension {
            0 => (1, self.line * n),
            1 => (n, self.line / n * n * n + self.line % n),
            _ => (n * n, self.line),
        };
        let from = if dimension == 0 { REGION } else { self.result };
        let element = |array: u64, k: u64| array + (first + k * stride) * ELEMENT;
        let buffer = |k: u64| self.work + k * ELEMENT;
        for k in 0..n {
            out.data(element(from, k), Access::Read, 2, 4);
            out.data(buffer(k), Access::Write, 2, 4);
        }
        let in_unit = out.unit() / ELEMENT;
        for _ in 0..n.next_power_of_two().trailing_zeros() {
            for k in (0..n).step_by(in_unit as usize) {
                let elements = (n - k).min(in_unit) as u32;
                out.data(buffer(k), Access::Read, 2 * elements, 4 * elements);
                out.data(buffer(k), Access::Write, 2 * elements, 4 * elements);
                out.data(buffer(k) + self.line_bytes(), Access::Read, elements, 2 * elements);
            }
        }
        for k in 0..n {
            out.data(buffer(k), Access::Read, 2, 4);
            out.data(element(self.result, k), Access::Write, 2, 4);
        }
    }
}
