//! The page table of a process as the kernel shows it: `/proc/PID/pagemap`, one entry a base page, read in large pieces and
//! only where `PAGEMAP_SCAN` finds something.
//!
//! A reservation of a terabyte with a few pages in it costs what those pages cost. Frame numbers are shown to those with
//! `CAP_SYS_ADMIN` only.

use crate::Error;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// One entry: the kernel's bits, and two of ours where the kernel leaves bits unused.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Entry(u64);

impl Entry {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const FILE: u64 = 1 << 61;
    const EXCLUSIVE: u64 = 1 << 56;
    const FRAME: u64 = (1 << 55) - 1;
    /// Ours: the page of zeroes, which all share.
    const ZERO: u64 = 1 << 60;
    /// Ours: mapped by an entry of the next level of the page table, 2 MB on x86-64.
    const HUGE: u64 = 1 << 59;

    /// In memory, and no page of zeroes.
    pub(crate) fn resident(self) -> bool {
        self.0 & (Entry::PRESENT | Entry::ZERO) == Entry::PRESENT
    }

    /// The page of zeroes: read, never written.
    pub(crate) fn zero(self) -> bool {
        self.0 & Entry::ZERO != 0
    }

    /// In swap space, or on its way to another frame.
    pub(crate) fn swapped(self) -> bool {
        self.0 & Entry::SWAPPED != 0
    }

    /// Resident, and not a file's or shared memory's.
    pub(crate) fn anonymous(self) -> bool {
        self.0 & Entry::FILE == 0
    }

    /// Mapped by this process only.
    pub(crate) fn exclusive(self) -> bool {
        self.0 & Entry::EXCLUSIVE != 0
    }

    /// Mapped as part of a huge page.
    pub(crate) fn huge(self) -> bool {
        self.0 & Entry::HUGE != 0
    }

    /// The frame; 0, which no program ever has, where the kernel hides it.
    pub(crate) fn frame(self) -> u64 {
        if self.0 & Entry::PRESENT == 0 { 0 } else { self.0 & Entry::FRAME }
    }
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    told: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const SCAN: Opcode = opcode::read_write::<Scan>(b'f', 16);
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;

/// See the module.
pub(crate) struct Pagemap {
    pid: u32,
    file: File,
    /// Bytes of a base page.
    base: u64,
    /// Bytes that an entry of the next level of the page table maps.
    huge: u64,
}

/// Entries read at once: 256 KB of them.
const PIECE: u64 = 32768;

impl Pagemap {
    /// The page table of a process.
    ///
    /// # Errors
    /// No such process; one that may not be looked into.
    pub(crate) fn open(pid: u32) -> Result<Pagemap, Error> {
        let file = File::open(format!("/proc/{pid}/pagemap")).map_err(|error| refused(pid, error))?;
        let base = rustix::param::page_size() as u64;
        Ok(Pagemap { pid, file, base, huge: huge_page_bytes() })
    }

    /// Bytes of a base page.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Bytes of a huge page: what an entry of the next level of the page table maps.
    pub(crate) fn huge(&self) -> u64 {
        self.huge
    }

    /// Whether the kernel shows frames to this process.
    pub(crate) fn shows_frames(&self) -> bool {
        // A local variable is in memory.
        let here = 0_u8;
        let own = Pagemap::open(std::process::id());
        let mut entry = [Entry::default()];
        let at = (&raw const here).addr() as u64 / self.base * self.base;
        own.and_then(|own| own.read(at..at + self.base, &mut entry)).is_ok() && entry[0].frame() != 0
    }

    /// # Errors
    /// The kernel cannot tell huge pages, so that only [`contiguity`](super::contiguity()) can be known.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.scan(0..self.base)?.iter().any(|region| region.categories == 0) {
            return Err(Error::Unable("this kernel has no PAGEMAP_SCAN: expected Linux 6.7 or later".into()));
        }
        Ok(())
    }

    /// Calls `each` with all entries of every huge-page-aligned block of the range that holds a page, present or swapped,
    /// ascending: the number of the block's first base page and its entries. Pages of the block outside the range are shown
    /// as absent.
    ///
    /// About 20 us and 7 ms per GB of memory in use, in huge and in base pages; nothing for addresses that are not.
    ///
    /// # Errors
    /// The process has ended, or the kernel refuses.
    pub(crate) fn blocks(&self, range: Range<u64>, mut each: impl FnMut(u64, &[Entry])) -> Result<(), Error> {
        let pages = self.huge / self.base;
        let piece = PIECE.max(pages) * self.base;
        let mut entries: Vec<Entry> = Vec::new();
        let mut regions = self.scan(range.clone())?.into_iter().peekable();
        while let Some(region) = regions.peek() {
            // From the block with the next page on, as far as it goes without a block that is empty.
            let start = region.start / self.huge * self.huge;
            let mut end = start;
            let mut inside: Vec<Region> = Vec::new();
            while let Some(region) = regions.peek_mut() {
                if region.start >= end + self.huge || end - start >= piece {
                    break;
                }
                let to = region.end.min(start + piece);
                inside.push(Region { end: to, ..*region });
                end = to.next_multiple_of(self.huge);
                if to == region.end {
                    regions.next();
                } else {
                    region.start = to;
                }
            }
            let (from, to) = (start.max(range.start), end.min(range.end));
            entries.clear();
            entries.resize(((end - start) / self.base) as usize, Entry::default());
            self.read(from..to, &mut entries[((from - start) / self.base) as usize..])?;
            for region in inside {
                let bits = if region.categories & IS_ZERO != 0 { Entry::ZERO } else { 0 }
                    | if region.categories & IS_HUGE != 0 { Entry::HUGE } else { 0 };
                if bits != 0 {
                    let at = ((region.start - start) / self.base) as usize..((region.end - start) / self.base) as usize;
                    entries[at].iter_mut().for_each(|entry| entry.0 |= bits);
                }
            }
            for (i, block) in entries.chunks(pages as usize).enumerate() {
                if block.iter().any(|entry| entry.0 & (Entry::PRESENT | Entry::SWAPPED) != 0) {
                    each(start / self.base + i as u64 * pages, block);
                }
            }
        }
        Ok(())
    }

    /// Where pages are, present or swapped, with what kind they are, ascending and apart from each other. A kernel before
    /// 6.7 cannot tell: then the whole range, of no kind.
    fn scan(&self, range: Range<u64>) -> Result<Vec<Region>, Error> {
        let mut found = Vec::new();
        let mut answers = vec![Region::default(); 1024];
        let mut start = range.start;
        while start < range.end {
            let mut request = Scan {
                size: size_of::<Scan>() as u64,
                start,
                end: range.end,
                regions: answers.as_mut_ptr() as u64,
                regions_len: answers.len() as u64,
                any_of: IS_PRESENT | IS_SWAPPED,
                told: IS_PRESENT | IS_SWAPPED | IS_ZERO | IS_HUGE,
                ..Scan::default()
            };
            // SAFETY: `request` is the structure of this request, and the kernel writes it and at most `regions_len` regions
            // to `answers`, which live across the call. What it leaves in them is plain numbers.
            let done = unsafe { ioctl(self.file.as_fd(), Updater::<{ SCAN }, _>::new(&mut request)) };
            match done {
                Ok(()) => {}
                Err(Errno::NOTTY | Errno::INVAL) => {
                    return Ok(vec![Region { start: range.start, end: range.end, categories: 0 }]);
                }
                Err(error) => return Err(refused(self.pid, error.into())),
            }
            let mut reached = request.walk_end;
            for answer in &answers {
                if answer.end <= start {
                    break;
                }
                reached = reached.max(answer.end);
                found.push(*answer);
            }
            answers.fill(Region::default());
            if reached <= start {
                return Err(Error::Unable(format!("the kernel's scan of process {} does not advance", self.pid)));
            }
            start = reached;
        }
        Ok(found)
    }

    /// The entries of a range, in order.
    fn read(&self, range: Range<u64>, entries: &mut [Entry]) -> Result<(), Error> {
        let mut bytes = vec![0_u8; ((range.end - range.start) / self.base) as usize * 8];
        let exact = self.file.read_exact_at(&mut bytes, range.start / self.base * 8);
        exact.map_err(|error| refused(self.pid, error))?;
        for (entry, bytes) in entries.iter_mut().zip(bytes.chunks_exact(8)) {
            *entry = Entry(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
        }
        Ok(())
    }
}

/// Bytes of a huge page; of 2 MB where the kernel was built without them.
pub(crate) fn huge_page_bytes() -> u64 {
    let path = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let text = std::fs::read_to_string(path).ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(2 << 20)
}

/// Why something of a process cannot be read, as a sentence.
pub(crate) fn refused(pid: u32, error: io::Error) -> Error {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => {
            Error::Usage(format!("there is no process {pid}: expected the number of a running process"))
        }
        Some(Errno::ACCESS | Errno::PERM) => Error::Unable(format!(
            "process {pid} may not be looked into: it is another user's or protected; run as that user, or as root"
        )),
        Some(Errno::SRCH) => ended(pid),
        None if error.kind() == io::ErrorKind::UnexpectedEof => ended(pid),
        _ => Error::System { what: format!("read the page table of process {pid}"), source: error },
    }
}

/// The process went away in between.
pub(crate) fn ended(pid: u32) -> Error {
    Error::Unable(format!("process {pid} ended while it was looked at"))
}
