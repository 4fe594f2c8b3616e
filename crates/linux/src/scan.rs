//! How far the memory of a process is populated: its mappings that could hold huge pages, and their populations.
//!
//! The populations come from `PAGEMAP_SCAN` (Linux 6.7), 7 ms for a GB of base pages and 0.04 ms for a GB of huge ones; where
//! the kernel lacks it, from the page map itself, 8 bytes a page, which is slower and takes huge pages for such only where
//! their frames may be seen (root).
//!
//! A [`Pagemap`] stays with the memory that it was opened on. After an `exec` of the process it shows nothing, never the
//! memory of the new program.

use crate::Error;
use rustix::ioctl::{Opcode, opcode};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What a mapping that may hold huge pages maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Private memory without a file.
    Anonymous,
    /// Memory shared through a memory file: `memfd_create`, `shm_open`, System V, `MAP_SHARED | MAP_ANONYMOUS`.
    Shared,
}

/// A mapping of a process that may hold huge pages: anonymous memory, private or shared, that may be read or written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The addresses.
    pub range: Range<u64>,
    /// What is mapped.
    pub kind: Kind,
    /// What the kernel calls it: `[heap]`, a path; often empty.
    pub name: String,
}

impl Mapping {
    /// The whole regions of `size` bytes (a power of two) that lie in the mapping.
    pub fn regions(&self, size: u64) -> Range<u64> {
        let start = self.range.start.div_ceil(size);
        start..(self.range.end / size).max(start)
    }
}

/// The mappings of a process in which a region of `size` bytes could be a huge page, ascending. Those of files, of the kernel
/// (`[vdso]`), of devices, without any right, too small or misaligned for one region are left out; so are static huge
/// pages as far as their name tells. O(mappings of the process), about 1 us each.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn mappings(pid: i32, size: u64) -> Result<Vec<Mapping>, Error> {
    let path = format!("/proc/{pid}/maps");
    let text = std::fs::read(&path).map_err(Error::file("read", path))?;
    let text = String::from_utf8_lossy(&text);
    let page = rustix::param::page_size() as u64;
    Ok(text
        .lines()
        .filter_map(|line| mapping(line, page))
        .filter(|(at, offset)| fits(at, *offset, size))
        .map(|(at, _)| at)
        .collect())
}

/// The mapping of a line of `maps` if it may hold huge pages, and its offset in the file.
fn mapping(line: &str, page: u64) -> Option<(Mapping, u64)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    let rights = rest.get(..4)?;
    if range.end - range.start < page || rights.starts_with("---") {
        return None;
    }
    let mut words = rest[4..].trim_start().splitn(4, ' ');
    let (offset, _device, inode) = (words.next()?, words.next()?, words.next()?);
    let name = words.next().unwrap_or_default().trim_start();
    let anonymous = name.is_empty() || name == "[heap]" || name == "[stack]" || name.starts_with("[anon:");
    let memory = name.starts_with("/memfd:")
        || name.starts_with("/dev/shm/")
        || name.starts_with("/dev/zero")
        || name.starts_with("/SYSV")
        || name.starts_with("[anon_shmem:");
    let kind = match rights.as_bytes()[3] {
        b'p' if inode == "0" && anonymous => Kind::Anonymous,
        b's' if memory => Kind::Shared,
        _ => return None,
    };
    Some((Mapping { range, kind, name: name.to_string() }, u64::from_str_radix(offset, 16).ok()?))
}

/// Whether there is a whole region, and, of a memory file, one that is a whole region there too.
fn fits(at: &Mapping, offset: u64, size: u64) -> bool {
    let congruent = at.kind == Kind::Anonymous || at.range.start.wrapping_sub(offset).is_multiple_of(size);
    congruent && !at.regions(size).is_empty()
}

/// A range of a process that can hold no huge page made by promotion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsuitable {
    /// The addresses.
    pub range: Range<u64>,
    /// The flag of `smaps` that says so: `nh` (`MADV_NOHUGEPAGE`), `ht` (static huge pages), `pf` or `io` (a device).
    pub flag: &'static str,
}

/// The ranges of a process that are unsuitable. Walks the whole page table: about as dear as a scan.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn unsuitable(pid: i32) -> Result<Vec<Unsuitable>, Error> {
    let path = format!("/proc/{pid}/smaps");
    let text = std::fs::read(&path).map_err(Error::file("read", path))?;
    let (mut range, mut found) = (0..0, Vec::new());
    for line in String::from_utf8_lossy(&text).lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let excluding = ["nh", "ht", "pf", "io"];
            let flag = excluding.into_iter().find(|flag| flags.split_whitespace().any(|word| word == *flag));
            found.extend(flag.map(|flag| Unsuitable { range: range.clone(), flag }));
        } else if let Some((start, end)) = line.split(' ').next().and_then(|word| word.split_once('-'))
            && let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
        {
            range = start..end;
        }
    }
    Ok(found)
}

/// How far one region is populated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Population {
    /// The number of the region: its address in regions.
    pub region: u64,
    /// Base pages that are mapped, without those that map the shared page of zeroes.
    pub populated: u32,
    /// Whether it is mapped as one huge page.
    pub huge: bool,
}

/// What the page table of a region says, page by page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pages {
    /// Pages in memory that no other process maps: what a promotion copies and then frees.
    pub own: u32,
    /// Pages in memory that others map too (after a fork, or merged), and those that map the shared page of zeroes.
    pub shared: u32,
    /// Pages of a memory file that are in memory.
    pub file: u32,
    /// Pages out in swap.
    pub swapped: u32,
    /// Runs of pages whose frames follow each other; `None` where this process may not see frames.
    pub pieces: Option<u32>,
}

/// The page table of the memory that a process has now, for reading.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    /// Whether the kernel has `PAGEMAP_SCAN`.
    scans: bool,
    page: u64,
}

const PRESENT: u64 = 1 << 3;
const PFNZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

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

/// What it tells of pages that follow each other and are alike, as in the kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Run {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGEMAP_SCAN: Opcode = opcode::read_write::<ScanArgument>(b'f', 16);

/// Runs told in one call.
const RUNS: usize = 1024;

/// Pages told in one call: 64 MB, so that the process waits less than a millisecond where it needs its memory map.
const PAGES: u64 = 16384;

/// Entries of the page map read at once where there is no scan.
const ENTRIES: usize = 8192;

impl Pagemap {
    /// That of a process. Needs the right to trace it (`ptrace`), as root or as its owner.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub fn open(pid: i32) -> Result<Pagemap, Error> {
        let path = format!("/proc/{pid}/pagemap");
        let file = File::open(&path).map_err(Error::file("read", path))?;
        let page = rustix::param::page_size() as u64;
        let mut map = Pagemap { file, scans: true, page };
        // An empty range: the kernel only checks that it knows the request.
        let unknown = [Some(libc::ENOTTY), Some(libc::EINVAL)];
        if let Err(error) = map.scan_once(page..page, &mut [Run::default()]) {
            map.scans = !unknown.contains(&error.raw_os_error());
        }
        Ok(map)
    }

    /// As on a kernel without `PAGEMAP_SCAN`, whatever this one has.
    pub fn without_scan(mut self) -> Pagemap {
        self.scans = false;
        self
    }

    /// Tells of each region of `size` bytes that lies in the mapping and has any page, ascending.
    ///
    /// # Errors
    /// The kernel refused; a process that has ended has no pages, which is no error.
    pub fn populations(&self, mapping: &Mapping, size: u64, tell: &mut dyn FnMut(Population)) -> Result<(), Error> {
        let regions = mapping.regions(size);
        let range = regions.start * size..regions.end * size;
        let done = if self.scans { self.scan(range, size, tell) } else { self.read(range, size, tell) };
        done.map_err(Error::system("scan the pages of a process"))
    }

    fn scan(&self, range: Range<u64>, size: u64, tell: &mut dyn FnMut(Population)) -> io::Result<()> {
        let mut runs = [Run::default(); RUNS];
        let mut count = Count { size, page: self.page, at: None, tell };
        let mut next = range.start;
        while next < range.end {
            let (found, walked) = self.scan_once(next..range.end, &mut runs)?;
            for run in &runs[..found] {
                count.add(run.start..run.end, run.categories & HUGE != 0);
            }
            // The end of the walk can come back short of the last run that was told, and the next call would repeat it.
            let end = runs[..found].last().map_or(walked, |run| run.end.max(walked));
            if end <= next {
                break;
            }
            next = end;
        }
        count.flush();
        Ok(())
    }

    /// Fills `runs`; gives how many, and where the walk ended.
    fn scan_once(&self, range: Range<u64>, runs: &mut [Run]) -> io::Result<(usize, u64)> {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: range.start,
            end: range.end,
            vec: runs.as_mut_ptr() as u64,
            vec_len: runs.len() as u64,
            max_pages: PAGES,
            category_inverted: PFNZERO,
            category_mask: PRESENT | PFNZERO,
            return_mask: HUGE,
            ..ScanArgument::default()
        };
        // SAFETY: the argument and the runs that it names, as many as it says, are ours and live through the call.
        let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as libc::Ioctl, &mut argument) };
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((found as usize, argument.walk_end))
    }

    /// The same from the page map alone.
    fn read(&self, range: Range<u64>, size: u64, tell: &mut dyn FnMut(Population)) -> io::Result<()> {
        let per_region = (size / self.page) as usize;
        let step = (ENTRIES / per_region).max(1) as u64 * size;
        let flags = File::open("/proc/kpageflags").ok();
        let mut next = range.start;
        while next < range.end {
            let end = (next + step).min(range.end);
            let entries = self.entries(next..end)?;
            for (i, entries) in entries.chunks_exact(per_region).enumerate() {
                let populated = entries.iter().filter(|entry| entry.present()).count() as u32;
                if populated > 0 {
                    let huge = flags.as_ref().is_some_and(|flags| one_huge_page(entries, flags));
                    tell(Population { region: next / size + i as u64, populated, huge });
                }
            }
            next = end;
        }
        Ok(())
    }

    /// Looks at each page of one region now. About 10 us.
    ///
    /// # Errors
    /// The kernel refused. A process that has ended or runs another program has no pages, which is no error.
    pub fn pages(&self, region: u64, size: u64) -> Result<Pages, Error> {
        let what = "read the page table of a process";
        let entries = self.entries(region * size..(region + 1) * size).map_err(Error::system(what))?;
        let mut pages = Pages::default();
        let (mut pieces, mut seen, mut expected) = (0, false, None);
        for entry in entries {
            pages.swapped += u32::from(entry.swapped());
            if !entry.present() {
                expected = None;
                continue;
            }
            match (entry.file(), entry.exclusive()) {
                (true, _) => pages.file += 1,
                (false, true) => pages.own += 1,
                (false, false) => pages.shared += 1,
            }
            let frame = entry.frame();
            seen |= frame != 0;
            pieces += u32::from(expected != Some(frame));
            expected = Some(frame + 1);
        }
        pages.pieces = seen.then_some(pieces);
        Ok(pages)
    }

    /// The entries of a range; fewer than asked for where the memory is gone.
    fn entries(&self, range: Range<u64>) -> io::Result<Vec<Entry>> {
        let mut bytes = vec![0; ((range.end - range.start) / self.page * 8) as usize];
        let mut have = 0;
        while have < bytes.len() {
            match self.file.read_at(&mut bytes[have..], range.start / self.page * 8 + have as u64) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break,
                Err(error) => return Err(error),
            }
        }
        let words = bytes[..have].chunks_exact(8);
        Ok(words.map(|word| Entry(u64::from_ne_bytes(word.try_into().expect("eight bytes")))).collect())
    }
}

/// An entry of the page map.
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    fn present(self) -> bool {
        self.0 >> 63 & 1 != 0
    }

    fn swapped(self) -> bool {
        self.0 >> 62 & 1 != 0
    }

    fn file(self) -> bool {
        self.0 >> 61 & 1 != 0
    }

    fn exclusive(self) -> bool {
        self.0 >> 56 & 1 != 0
    }

    /// Zero where this process may not see it.
    fn frame(self) -> u64 {
        self.0 & ((1 << 55) - 1)
    }
}

/// Whether the pages are one huge page by their frames and the first one's flags.
fn one_huge_page(entries: &[Entry], flags: &File) -> bool {
    /// In kpageflags: part of a transparent huge page, the first of a compound page.
    const HUGE_HEAD: u64 = 1 << 22 | 1 << 15;
    let first = entries[0].frame();
    let contiguous = entries.iter().enumerate().all(|(i, entry)| entry.present() && entry.frame() == first + i as u64);
    let mut word = [0; 8];
    first != 0
        && first.is_multiple_of(entries.len() as u64)
        && contiguous
        && flags.read_exact_at(&mut word, first * 8).is_ok()
        && u64::from_ne_bytes(word) & HUGE_HEAD == HUGE_HEAD
}

/// Sums runs of pages by region.
struct Count<'a> {
    size: u64,
    page: u64,
    at: Option<Population>,
    tell: &'a mut dyn FnMut(Population),
}

impl Count<'_> {
    fn add(&mut self, run: Range<u64>, huge: bool) {
        let mut start = run.start;
        while start < run.end {
            let region = start / self.size;
            let end = run.end.min((region + 1) * self.size);
            if self.at.is_none_or(|at| at.region != region) {
                self.flush();
                self.at = Some(Population { region, populated: 0, huge: false });
            }
            if let Some(at) = &mut self.at {
                at.populated += ((end - start) / self.page) as u32;
                at.huge |= huge;
            }
            start = end;
        }
    }

    fn flush(&mut self) {
        if let Some(done) = self.at.take() {
            (self.tell)(done);
        }
    }
}

/// The size in bytes of the huge pages that the kernel makes of populated memory: 2 MB on x86-64 and on AArch64 with base
/// pages of 4 KB.
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

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE_SIZE: u64 = 2 << 20;

    fn found(line: &str) -> Option<(Mapping, u64)> {
        mapping(line, 4096).filter(|(at, offset)| fits(at, *offset, HUGE_SIZE))
    }

    #[test]
    fn the_request_has_the_kernels_number() {
        assert_eq!((PAGEMAP_SCAN, size_of::<ScanArgument>()), (0xc060_6610, 96));
    }

    #[test]
    fn lines_of_maps() {
        let heap = found("55e8c9a00000-55e8ca200000 rw-p 00000000 00:00 0                          [heap]").unwrap();
        assert_eq!((heap.0.kind, heap.0.name.as_str()), (Kind::Anonymous, "[heap]"));
        assert_eq!(heap.0.regions(HUGE_SIZE).count(), 4);
        assert!(found("7f0000000000-7f0000400000 rw-p 00000000 00:00 0 ").is_some());
        assert!(found("7f0000000000-7f0000400000 rw-p 00000000 00:00 0 [anon: glibc: malloc arena]").is_some());
        assert!(found("7f0000100000-7f00003ff000 rw-p 00000000 00:00 0 ").is_none(), "holds no whole region");
        assert!(found("7f0000000000-7f0000400000 ---p 00000000 00:00 0 ").is_none(), "no rights");
        assert!(found("7f0000000000-7f0000400000 rw-p 00000000 08:01 77  /usr/lib/libc.so.6").is_none());
        assert!(found("7f0000000000-7f0000400000 rw-p 00000000 00:10 77  /anon_hugepage (deleted)").is_none());
        assert!(found("7ffc00000000-7ffc00400000 r-xp 00000000 00:00 0  [vdso]").is_none());
        let shared = found("7f0000000000-7f0000400000 rw-s 00200000 00:01 9  /memfd:a b (deleted)").unwrap();
        assert_eq!((shared.0.kind, shared.0.name.as_str()), (Kind::Shared, "/memfd:a b (deleted)"));
        assert!(found("7f0000000000-7f0000400000 rw-s 00001000 00:01 9  /memfd:a (deleted)").is_none(), "shifted");
    }

    #[test]
    fn runs_are_summed_by_region() {
        let mut told = Vec::new();
        let mut tell = |population: Population| told.push((population.region, population.populated, population.huge));
        let mut count = Count { size: HUGE_SIZE, page: 4096, at: None, tell: &mut tell };
        count.add(0x1ff000..0x201000, false);
        count.add(0x300000..0x301000, false);
        count.add(0x800000..0xc00000, true);
        count.flush();
        assert_eq!(told, [(0, 1, false), (1, 2, false), (4, 512, true), (5, 512, true)]);
    }
}
