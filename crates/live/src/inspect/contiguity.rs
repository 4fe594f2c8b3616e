//! Memory that a coalescing TLB, or a page table with contiguous bits, could map by larger entries.

use std::collections::BTreeMap;
use std::ops::Range;
use superpage_linux::Error;
use superpage_linux::pagemap::{Entry, open};
use superpage_linux::proc::refused;
use superpage_pages::PageSize;

/// How contiguous the pages of a range are in physical memory.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Contiguity {
    /// Bytes in memory, without zero pages that were only read, since these share one page.
    pub resident_bytes: u64,
    /// For every size above the base page up to the huge page: the resident bytes in groups of that
    /// size, aligned in virtual and in physical memory, whose pages are all resident in consecutive
    /// frames.
    pub aligned_bytes: BTreeMap<PageSize, u64>,
    /// Maximal runs of consecutive pages in consecutive frames, aligned or not: base pages in a run
    /// -> number of such runs.
    pub runs: BTreeMap<u64, u64>,
}

impl Contiguity {
    /// The share of resident memory in aligned contiguous groups of a size, 0 to 1; `None` if
    /// nothing is resident.
    pub fn share(&self, size: PageSize) -> Option<f64> {
        let bytes = self.aligned_bytes.get(&size).copied().unwrap_or(0);
        (self.resident_bytes > 0).then(|| bytes as f64 / self.resident_bytes as f64)
    }

    /// Checks that the parts agree: the runs contain all resident pages, and larger groups consist
    /// of smaller ones.
    ///
    /// # Errors
    /// A sentence that says what is inconsistent.
    pub fn validate(&self) -> Result<(), String> {
        let base = rustix::param::page_size() as u64;
        let pages: u64 = self.runs.iter().map(|(length, number)| length * number).sum();
        if pages * base != self.resident_bytes {
            return Err(format!("runs hold {pages} pages, resident are {} bytes", self.resident_bytes));
        }
        let mut most = self.resident_bytes;
        for (size, bytes) in &self.aligned_bytes {
            if *bytes > most || bytes % size.bytes() != 0 {
                return Err(format!("{bytes} bytes in groups of {size}, of at most {most}"));
            }
            most = *bytes;
        }
        Ok(())
    }
}

/// The contiguity of a range of addresses of a process, its own (`std::process::id()`) or
/// another's.
///
/// Pages of several mappings count as one range, whatever their protections. The cost is that of
/// reading the page table: some 10 ms per GB in use.
///
/// # Errors
/// No such process, or one of another user; without `CAP_SYS_ADMIN`, since the kernel then hides
/// frames ([`Error::Unable`]); the range is not of whole base pages ([`Error::Usage`]).
pub fn contiguity(pid: u32, range: Range<u64>) -> Result<Contiguity, Error> {
    let pagemap = open(pid)?;
    if range.start > range.end || !(range.start | range.end).is_multiple_of(pagemap.base()) {
        let (start, end, base) = (range.start, range.end, pagemap.base());
        return Err(Error::Usage(format!("{start:#x}..{end:#x} is no range of whole pages of {base} bytes")));
    }
    let mut count = Count::new(pagemap.base(), pagemap.huge());
    let blocks = pagemap.blocks(range, None, |page, block| {
        count.block(page, block);
        true
    });
    blocks.map_err(|error| refused(pid, error))?;
    count.finish().ok_or_else(hidden)
}

/// Why frames cannot be known.
fn hidden() -> Error {
    Error::Unable("the kernel shows where pages lie in memory only to CAP_SYS_ADMIN: run as root".into())
}

/// A run of contiguous pages: its last page and frame, and its length in pages.
struct Run {
    page: u64,
    frame: u64,
    length: u64,
}

/// Counts the contiguity of blocks as they are read.
pub(super) struct Count {
    so_far: Contiguity,
    base: u64,
    orders: u32,
    /// The run that may go on.
    run: Option<Run>,
    hidden: bool,
    /// For each group of the order in hand: its first frame if it is contiguous and aligned; zero
    /// else.
    groups: Vec<u64>,
}

impl Count {
    pub(super) fn new(base: u64, huge: u64) -> Count {
        let orders = (huge / base).trailing_zeros();
        Count { so_far: Contiguity::default(), base, orders, run: None, hidden: false, groups: Vec::new() }
    }

    /// The next block of the range: its first page and all its entries.
    pub(super) fn block(&mut self, page: u64, block: &[Entry]) {
        for (i, entry) in block.iter().enumerate() {
            if entry.resident() {
                self.page(page + i as u64, entry.frame());
            }
        }
        self.groups.clear();
        self.groups.extend(block.iter().map(|entry| if entry.resident() { entry.frame() } else { 0 }));
        for order in 1..=self.orders {
            let half = 1 << (order - 1);
            let mut groups = 0;
            for i in 0..self.groups.len() / 2 {
                let (low, high) = (self.groups[2 * i], self.groups[2 * i + 1]);
                let whole = low != 0 && high == low + half && low.trailing_zeros() >= order;
                self.groups[i] = if whole { low } else { 0 };
                groups += u64::from(whole);
            }
            self.groups.truncate(self.groups.len() / 2);
            let bytes = self.base << order;
            let size = PageSize::from_bytes(bytes).expect("a power of two");
            *self.so_far.aligned_bytes.entry(size).or_default() += groups * bytes;
        }
    }

    fn page(&mut self, page: u64, frame: u64) {
        self.hidden |= frame == 0;
        self.so_far.resident_bytes += self.base;
        let length = match &self.run {
            Some(run) if (page, frame) == (run.page + 1, run.frame + 1) => run.length + 1,
            _ => {
                self.close();
                1
            }
        };
        self.run = Some(Run { page, frame, length });
    }

    /// Counts the run, which ends.
    fn close(&mut self) {
        if let Some(Run { length, .. }) = self.run.take() {
            *self.so_far.runs.entry(length).or_default() += 1;
        }
    }

    /// The count; `None` if the kernel hid the frames.
    pub(super) fn finish(mut self) -> Option<Contiguity> {
        self.close();
        debug_assert_eq!(self.so_far.validate(), Ok(()));
        (!self.hidden).then_some(self.so_far)
    }
}
