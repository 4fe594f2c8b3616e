//! The page table of a process as the kernel shows it: `/proc/PID/pagemap`, one entry per base
//! page.
//!
//! Entries are read in large pieces, and only where `PAGEMAP_SCAN` (Linux 6.7) finds pages: a
//! reservation of a terabyte with a few pages in it costs what those pages cost. The scan also
//! reports the kinds of pages that the entries do not: zero pages, and pages mapped by huge pages.
//! Older kernels lack it: there all entries are read, and the kinds are inferred, see
//! `conclude.rs`.
//!
//! A [`Pagemap`] belongs to the memory that it was opened on. After an `exec` of the process it is
//! empty, and never shows the memory of the new program.

mod conclude;
mod entry;
mod frames;
mod look;
mod physical;

pub use conclude::Counted;
pub use entry::{Entry, aligned_frames};
pub use frames::Frames;
pub use look::{huge_bytes, open, page_of_file, private_copies};
pub use physical::Physical;

use crate::Error;
use crate::proc::gone;
use rustix::ioctl::{Opcode, opcode};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::LazyLock;

/// The page table of the memory that a process has now, for reading.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    /// Bytes of a base page.
    page: u64,
    /// Whether the kernel has `PAGEMAP_SCAN`.
    scans: bool,
    /// The frames, if it does not have that and shows frames.
    frames: Option<Frames>,
}

/// The argument of `PAGEMAP_SCAN`, as in the kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Consecutive pages of one kind, as in the kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Run {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
    categories: u64,
}

impl Run {
    const PRESENT: u64 = 1 << 3;
    const SWAPPED: u64 = 1 << 4;
    const ZERO: u64 = 1 << 5;
    const HUGE: u64 = 1 << 6;

    /// In memory, and not zero pages.
    pub fn resident(self) -> bool {
        self.categories & (Run::PRESENT | Run::ZERO) == Run::PRESENT
    }

    /// Mapped as parts of huge pages.
    pub fn huge(self) -> bool {
        self.categories & Run::HUGE != 0
    }

    fn zero(self) -> bool {
        self.categories & Run::ZERO != 0
    }
}

const PAGEMAP_SCAN: Opcode = opcode::read_write::<ScanArgument>(b'f', 16);

/// The most runs reported by one call.
const RUNS: usize = 1024;

/// The most pages scanned by one call: 64 MB, so that the process waits less than a millisecond for
/// its memory map.
const PAGES: u64 = 16384;

/// Entries that are processed together: 256 KB of them.
const PIECE: u64 = 32768;

impl Pagemap {
    /// Opens that of a process. Needs the right to trace it (`ptrace`), as root or as its owner.
    ///
    /// # Errors
    /// There is no such process, or this process may not inspect it.
    pub fn open(pid: impl Into<i64>) -> io::Result<Pagemap> {
        let file = File::open(format!("/proc/{}/pagemap", pid.into()))?;
        let page = rustix::param::page_size() as u64;
        let map = Pagemap { file, page, scans: true, frames: None };
        // An empty range: the kernel only checks that it supports the request.
        match map.scan(page..page, &mut [Run::default()]) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => Ok(map.without_scan()),
            _ => Ok(map),
        }
    }

    /// This page table, read as on a kernel without `PAGEMAP_SCAN`.
    pub fn without_scan(self) -> Pagemap {
        Pagemap { scans: false, frames: Frames::open(), ..self }
    }

    /// Whether the kernel has `PAGEMAP_SCAN`.
    pub fn scans(&self) -> bool {
        self.scans
    }

    /// Bytes of a base page.
    pub fn base(&self) -> u64 {
        self.page
    }

    /// Bytes of a huge page: what an entry of the next level of the page table maps.
    pub fn huge(&self) -> u64 {
        huge_page_bytes()
    }

    /// Whether the memory still exists: the process has neither ended nor executed another program.
    pub fn alive(&self) -> bool {
        self.file.read_at(&mut [0; 8], 0).is_ok_and(|read| read > 0)
    }

    /// Reports the pages of a range that are resident, in runs, ascending. 7 ms for a GB of base
    /// pages and 0.04 ms for a GB of huge ones; without scan as for [`blocks`](Pagemap::blocks).
    ///
    /// # Errors
    /// A system call failed. Memory that is gone has no pages, which is not an error.
    pub fn runs(&self, range: Range<u64>, mut each: impl FnMut(Run)) -> io::Result<()> {
        self.runs_while(range, |run| {
            each(run);
            true
        })
    }

    /// As [`Pagemap::runs`], as long as `each` returns that more are wanted.
    ///
    /// # Errors
    /// As for [`runs`](Pagemap::runs).
    pub fn runs_while(&self, range: Range<u64>, mut each: impl FnMut(Run) -> bool) -> io::Result<()> {
        if self.scans {
            return self.in_use(range, |run| !run.resident() || each(run));
        }
        let kind = |entry: &Entry| (entry.resident(), entry.huge());
        let mut wanted = true;
        let done = self.blocks(range, None, |page, block| {
            let mut start = page * self.page;
            for alike in block.chunk_by(|one, other| kind(one) == kind(other)) {
                let end = start + alike.len() as u64 * self.page;
                let categories = if alike[0].huge() { Run::HUGE } else { 0 } | Run::PRESENT;
                wanted = wanted && (!alike[0].resident() || each(Run { start, end, categories }));
                start = end;
            }
            wanted
        });
        match done {
            Err(error) if gone(&error) || !wanted => Ok(()),
            done => done,
        }
    }

    /// Calls `each` with all entries of every huge-page-aligned block of the range that holds a
    /// page, present or swapped, ascending: the number of the block's first base page and its
    /// entries. Pages of the block outside the range are shown as absent. It returns whether to
    /// continue. `counted` holds the counts of `smaps` for the range; it matters without scan only.
    ///
    /// About 20 us and 7 ms per GB of memory in use, in huge and in base pages; addresses without
    /// pages cost nothing. Without scan 1.2 ms per GB of addresses and 30 ms per GB of base pages.
    ///
    /// # Errors
    /// A system call failed, the memory is gone ([`gone`]), or `each` stopped
    /// ([`io::ErrorKind::TimedOut`]).
    pub fn blocks(
        &self,
        range: Range<u64>,
        mut counted: Option<Counted>,
        mut each: impl FnMut(u64, &[Entry]) -> bool,
    ) -> io::Result<()> {
        let huge = self.huge();
        let pages = huge / self.page;
        let piece = PIECE.max(pages) * self.page;
        let mut entries: Vec<Entry> = Vec::new();
        let mut runs = Vec::new();
        if self.scans {
            self.in_use(range.clone(), |run| {
                runs.push(run);
                true
            })?;
        } else {
            runs.push(Run { start: range.start, end: range.end, categories: 0 });
        }
        let mut runs = runs.into_iter().peekable();
        while let Some(run) = runs.peek() {
            // From the block with the next page on, up to the first block that is empty.
            let start = run.start / huge * huge;
            let mut end = start;
            let mut inside: Vec<Run> = Vec::new();
            while let Some(run) = runs.peek_mut() {
                // A block that was begun is finished.
                if run.start >= end + huge || (end - start >= piece && run.start >= end) {
                    break;
                }
                let to = run.end.min(start + piece);
                inside.push(Run { end: to, ..*run });
                end = to.next_multiple_of(huge);
                if to == run.end {
                    runs.next();
                } else {
                    run.start = to;
                }
            }
            let (from, to) = (start.max(range.start), end.min(range.end));
            entries.clear();
            entries.resize(((end - start) / self.page) as usize, Entry::default());
            let wanted = &mut entries[((from - start) / self.page) as usize..][..((to - from) / self.page) as usize];
            if self.entries(from / self.page, wanted)? < wanted.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for run in inside {
                if run.zero() || run.huge() {
                    let at = ((run.start - start) / self.page) as usize..((run.end - start) / self.page) as usize;
                    entries[at].iter_mut().for_each(|entry| entry.mark(run.zero(), run.huge()));
                }
            }
            for (i, block) in entries.chunks_mut(pages as usize).enumerate() {
                if block.iter().any(|entry| entry.present() || entry.swapped()) {
                    if !self.scans {
                        conclude::conclude(block, self.frames.as_ref(), &mut counted);
                    }
                    if !each(start / self.page + i as u64 * pages, block) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the entries from a page on, in order; returns how many, fewer than requested if the
    /// memory is gone.
    pub fn entries(&self, page: u64, entries: &mut [Entry]) -> io::Result<usize> {
        let mut bytes = [0; 8192];
        let mut have = 0;
        while have < entries.len() {
            let wanted = bytes.len().min((entries.len() - have) * 8);
            let read = match self.file.read_at(&mut bytes[..wanted], (page + have as u64) * 8) {
                Err(error) if gone(&error) => 0,
                read => read?,
            };
            if read < 8 {
                break;
            }
            for (entry, word) in entries[have..].iter_mut().zip(bytes[..read].chunks_exact(8)) {
                *entry = Entry::of(word);
            }
            have += read / 8;
        }
        Ok(have)
    }

    /// The pages of a range that are present or swapped, in runs of one kind, ascending and
    /// disjoint, as long as `each` returns that more are wanted.
    fn in_use(&self, range: Range<u64>, mut each: impl FnMut(Run) -> bool) -> io::Result<()> {
        let mut runs = [Run::default(); RUNS];
        let mut next = range.start;
        while next < range.end {
            let (found, walked) = self.scan(next..range.end, &mut runs)?;
            if !runs[..found].iter().all(|run| each(*run)) {
                return Ok(());
            }
            // The end of the walk can be before the end of the last run, and the next call would
            // repeat it.
            let end = runs[..found].last().map_or(walked, |run| run.end.max(walked));
            if end <= next {
                return Err(io::Error::other("the kernel's scan does not advance"));
            }
            next = end;
        }
        Ok(())
    }

    /// Fills `runs`; returns how many, and where the walk ended.
    fn scan(&self, range: Range<u64>, runs: &mut [Run]) -> io::Result<(usize, u64)> {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: range.start,
            end: range.end,
            vec: runs.as_mut_ptr() as u64,
            vec_len: runs.len() as u64,
            max_pages: PAGES,
            category_anyof_mask: Run::PRESENT | Run::SWAPPED,
            return_mask: Run::PRESENT | Run::SWAPPED | Run::ZERO | Run::HUGE,
            ..ScanArgument::default()
        };
        // SAFETY: the argument and the runs that it names, as many as it says, are ours and live
        // through the call.
        let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as libc::Ioctl, &mut argument) };
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((found as usize, argument.walk_end))
    }
}

/// Bytes of a base page of this system.
pub fn base_page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The size in bytes of the kernel's transparent huge pages: 2 MB on x86-64 and on AArch64 with
/// base pages of 4 KB.
///
/// # Errors
/// The kernel has none.
pub fn huge_page_size(sys: &Path) -> Result<u64, Error> {
    let path = sys.join("kernel/mm/transparent_hugepage/hpage_pmd_size");
    let size = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    size.filter(|size: &u64| size.is_power_of_two() && *size > rustix::param::page_size() as u64).ok_or_else(|| {
        let sentence = format!(
            "this kernel has no transparent huge pages ({} cannot be read): promotion needs a kernel with \
             CONFIG_TRANSPARENT_HUGEPAGE, and /sys mounted",
            path.display()
        );
        Error::Unable(sentence)
    })
}

/// Bytes of a huge page; 2 MB if the kernel was built without them.
pub fn huge_page_bytes() -> u64 {
    static BYTES: LazyLock<u64> = LazyLock::new(|| huge_page_size(Path::new("/sys")).unwrap_or(2 << 20));
    *BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_has_the_kernels_number() {
        assert_eq!((PAGEMAP_SCAN, size_of::<ScanArgument>()), (0xc060_6610, 96));
    }

    #[test]
    fn a_block_comes_once_where_many_runs_meet_the_end_of_a_piece() {
        let (page, huge) = (base_page_bytes(), huge_page_bytes());
        let blocks = PIECE * page / huge + 3;
        let bytes = ((blocks + 1) * huge) as usize;
        // SAFETY: private memory, which nothing else knows.
        let memory = unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            assert!(at != libc::MAP_FAILED && libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) == 0);
            at as u64
        };
        let first = memory.next_multiple_of(huge);
        // SAFETY: an address in that memory.
        let touch = |at: u64| unsafe { std::ptr::write_volatile(at as *mut u8, 1) };
        // A page in each block, and every other page of the last of a piece.
        (0..blocks).for_each(|block| touch(first + block * huge));
        (0..huge / page).step_by(2).for_each(|at| touch(first + (blocks - 4) * huge + at * page));
        let map = Pagemap::open(std::process::id()).unwrap();
        let mut found = Vec::new();
        let mut present = 0;
        map.blocks(first..first + blocks * huge, None, |page, block| {
            found.push(page);
            present += block.iter().filter(|entry| entry.present()).count() as u64;
            true
        })
        .unwrap();
        assert_eq!(found, (0..blocks).map(|block| (first + block * huge) / page).collect::<Vec<_>>());
        assert_eq!(present, blocks - 1 + huge / page / 2);
        // SAFETY: as above; nobody uses it any more.
        unsafe { libc::munmap(memory as *mut libc::c_void, bytes) };
    }
}
