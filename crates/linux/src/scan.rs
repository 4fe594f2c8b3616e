//! The population of a process's memory: its mappings that could hold huge pages, and how far their
//! regions are populated.
//!
//! The populations come from the [`Pagemap`]: by `PAGEMAP_SCAN` (Linux 6.7), 7 ms for a GB of base
//! pages and 0.04 ms for a GB of huge ones; on kernels that lack it, by reading 8 bytes per page,
//! which is slower and recognizes huge pages only if frames are visible (root).

use crate::Error;
use crate::pagemap::{Entry, Frames, Pagemap};
use crate::proc::maps;
use procfs::process::MemoryMap;
use std::ops::Range;
use superpage_vm::Why;

/// What backs a mapping that may hold huge pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Private memory without a file.
    Anonymous,
    /// Memory shared without a mounted file system: `memfd_create`, System V, `MAP_SHARED |
    /// MAP_ANONYMOUS`.
    Shared,
    /// Memory shared through a file of a mounted file system in memory, by `shm_open`: in
    /// `/dev/shm`.
    Mounted,
}

/// A mapping of a process that may hold huge pages: anonymous memory, private or shared, that may
/// be read or written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The addresses.
    pub range: Range<u64>,
    /// What is mapped.
    pub kind: Kind,
    /// The kernel's name for it: `[heap]`, a path; often empty.
    pub name: String,
}

impl Mapping {
    /// The whole regions of `size` bytes (a power of two) that lie in the mapping.
    pub fn regions(&self, size: u64) -> Range<u64> {
        let start = self.range.start.div_ceil(size);
        start..(self.range.end / size).max(start)
    }
}

/// The mappings of a process in which a region of `size` bytes could be a huge page, ascending.
/// Those of files, of the kernel (`[vdso]`), of devices, without any right, too small or misaligned
/// for one region are left out; so are static huge pages that are recognizable by name. O(mappings
/// of the process), about 1 us each.
///
/// # Errors
/// The process has ended, or this process may not inspect it.
pub fn mappings(pid: i32, size: u64) -> Result<Vec<Mapping>, Error> {
    Ok(split(pid, size)?.fitting)
}

/// The mappings of a process that are anonymous or of a memory file.
#[derive(Debug, Default)]
pub struct Split {
    /// Those that [`mappings`] returns.
    pub fitting: Vec<Mapping>,
    /// Those in which no region could be a huge page, and why.
    pub left: Vec<(Mapping, Why)>,
}

/// [`mappings`], and the others of their kinds.
///
/// # Errors
/// As [`mappings`].
pub fn split(pid: i32, size: u64) -> Result<Split, Error> {
    let path = format!("/proc/{pid}/maps");
    let text = maps::read(&path).map_err(Error::file("read", path))?;
    let text = String::from_utf8_lossy(&text);
    let page = rustix::param::page_size() as u64;
    let listed = text.lines().filter_map(|line| mapping(line, page));
    let apart = maps::newest(listed, |(at, _)| (at.range.start, at.range.end), |(at, _), end| at.range.end = end);
    let mut split = Split::default();
    for (at, offset) in apart {
        match misfit(&at, offset, size) {
            None => split.fitting.push(at),
            Some(why) => split.left.push((at, why)),
        }
    }
    Ok(split)
}

/// The mapping of a line of `maps` if it may hold huge pages, and its offset in the file. Read of
/// every process at every scan: procfs takes several times as long, and panics on some names.
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
        || name.starts_with("/dev/zero")
        || name.starts_with("/SYSV")
        || name.starts_with("[anon_shmem:");
    let kind = match rights.as_bytes()[3] {
        b'p' if inode == "0" && anonymous => Kind::Anonymous,
        b's' if memory => Kind::Shared,
        b's' if name.starts_with("/dev/shm/") => Kind::Mounted,
        _ => return None,
    };
    Some((Mapping { range, kind, name: name.to_string() }, u64::from_str_radix(offset, 16).ok()?))
}

/// Why there is no region: the mapping contains no whole one, or, for a memory file, none that is
/// also aligned in the file.
fn misfit(at: &Mapping, offset: u64, size: u64) -> Option<Why> {
    let congruent = at.kind == Kind::Anonymous || at.range.start.wrapping_sub(offset).is_multiple_of(size);
    match (at.regions(size).is_empty(), congruent) {
        (true, _) => Some(Why::TooSmall),
        (_, false) => Some(Why::Misaligned),
        _ => None,
    }
}

/// A range of a process that can hold no huge page made by promotion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsuitable {
    /// The addresses.
    pub range: Range<u64>,
    /// The flag of `smaps` that shows it: `nh` (`MADV_NOHUGEPAGE`), `ht` (static huge pages), `pf`
    /// or `io` (a device).
    pub flag: &'static str,
    /// Bytes of it that are resident, static huge pages included.
    pub resident: u64,
}

/// The ranges of a process that are unsuitable. Walks the whole page table: about as expensive as a
/// scan. Parses three lines of each mapping itself, since the process may be any: procfs makes a
/// table of all lines, and panics on some.
///
/// # Errors
/// The process has ended, or this process may not inspect it.
pub fn unsuitable(pid: i32) -> Result<Vec<Unsuitable>, Error> {
    let path = format!("/proc/{pid}/smaps");
    let text = maps::read(&path).map_err(Error::file("read", path))?;
    Ok(unsuitable_in(&String::from_utf8_lossy(&text)))
}

/// The mappings of a process of which an eighth or more was given back (`MADV_FREE`) and not
/// written since, by address: of less, an allocator has used most again. Walks the whole page
/// table, as `smaps` does.
///
/// # Errors
/// The process cannot be looked into.
pub fn given_back(pid: i32) -> Result<Vec<Range<u64>>, Error> {
    let smaps = maps::smaps(pid as u32, &|| true)?;
    Ok(smaps.iter().filter(|map| gave_back(map)).map(|map| map.address.0..map.address.1).collect())
}

/// Whether an eighth or more of a mapping was given back and not written since.
pub fn gave_back(map: &MemoryMap) -> bool {
    let bytes = |key| map.extension.map.get(key).copied().unwrap_or(0);
    bytes("LazyFree") > 0 && 8 * bytes("LazyFree") >= bytes("Rss")
}

/// [`unsuitable`], of the text of `smaps`.
fn unsuitable_in(smaps: &str) -> Vec<Unsuitable> {
    /// The lines that add up to what is resident: static huge pages are not in `Rss`.
    const RESIDENT: [&str; 3] = ["Rss", "Shared_Hugetlb", "Private_Hugetlb"];
    let (mut range, mut resident, mut found) = (0..0, 0, Vec::new());
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let excluding = ["nh", "ht", "pf", "io"];
            let flag = excluding.into_iter().find(|flag| flags.split_whitespace().any(|word| word == *flag));
            found.extend(flag.map(|flag| Unsuitable { range: range.clone(), flag, resident }));
        } else if let Some((_, size)) = line.split_once(':').filter(|(name, _)| RESIDENT.contains(name)) {
            resident += size.split_whitespace().next().and_then(|size| size.parse::<u64>().ok()).unwrap_or(0) * 1024;
        } else if let Some((start, end)) = line.split(' ').next().and_then(|word| word.split_once('-'))
            && let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
        {
            (range, resident) = (start..end, 0);
        }
    }
    found
}

/// The population of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Population {
    /// The number of the region: its address divided by its size.
    pub region: u64,
    /// Base pages that are mapped, without those that map the zero page.
    pub populated: u32,
    /// Whether it is mapped as one huge page.
    pub huge: bool,
}

/// The state of a region's pages, from its page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pages {
    /// Pages in memory that no other process maps: a promotion copies and then frees them.
    pub own: u32,
    /// Pages in memory that others map too (after a fork, or merged), and those that map the zero
    /// page.
    pub shared: u32,
    /// Pages of a memory file that are in memory.
    pub file: u32,
    /// Pages in swap space.
    pub swapped: u32,
    /// Runs of pages with consecutive frames; `None` if this process may not see frames.
    pub pieces: Option<u32>,
}

impl Pagemap {
    /// Reports each region of `size` bytes that lies in the mapping and has any page, ascending.
    ///
    /// # Errors
    /// A system call failed; a process that has ended has no pages, which is not an error.
    pub fn populations(&self, mapping: &Mapping, size: u64, tell: &mut dyn FnMut(Population)) -> Result<(), Error> {
        let all = &mut |population| {
            tell(population);
            true
        };
        self.populations_from(mapping, size, 0, all)
    }

    /// The populations from the region of this number on, as long as `tell` returns `true`.
    ///
    /// # Errors
    /// As for [`populations`](Pagemap::populations).
    pub fn populations_from(
        &self,
        mapping: &Mapping,
        size: u64,
        from: u64,
        tell: &mut dyn FnMut(Population) -> bool,
    ) -> Result<(), Error> {
        let regions = mapping.regions(size);
        let range = regions.start.max(from) * size..regions.end * size;
        if range.is_empty() {
            return Ok(());
        }
        let mut count = Count { size, page: self.base(), at: None, wanted: true, tell };
        let done = self.runs_while(range, |run| count.add(run.start..run.end, run.huge()));
        done.map_err(Error::system("scan the pages of a process"))?;
        count.flush();
        Ok(())
    }

    /// Reads the page table of one region now. About 10 us.
    ///
    /// # Errors
    /// A system call failed. A process that has ended or runs another program has no pages, which
    /// is not an error.
    pub fn pages(&self, region: u64, size: u64) -> Result<Pages, Error> {
        let what = "read the page table of a process";
        let mut entries = vec![Entry::default(); (size / self.base()) as usize];
        let have = self.entries(region * size / self.base(), &mut entries).map_err(Error::system(what))?;
        let mut pages = Pages::default();
        let (mut pieces, mut seen, mut expected) = (0, false, None);
        for entry in &entries[..have] {
            pages.swapped += u32::from(entry.swapped());
            if !entry.present() {
                expected = None;
                continue;
            }
            match (entry.anonymous(), entry.exclusive()) {
                (false, _) => pages.file += 1,
                (true, true) => pages.own += 1,
                (true, false) => pages.shared += 1,
            }
            let frame = entry.frame();
            seen |= frame != 0;
            pieces += u32::from(expected != Some(frame));
            expected = Some(frame + 1);
        }
        pages.pieces = seen.then_some(pieces);
        Ok(pages)
    }

    /// Whether pages of a region were given back (`MADV_FREE`) and are there still, or were written
    /// since, which the kernel has not noticed: [`given_back`] knows. Up to 0.5 ms, where no two
    /// frames follow each other; a region that cannot be read has none.
    pub fn given_back(&self, region: Range<u64>, frames: &Frames) -> bool {
        let mut entries = vec![Entry::default(); ((region.end - region.start) / self.base()) as usize];
        let have = self.entries(region.start / self.base(), &mut entries).unwrap_or(0);
        let anonymous = entries[..have].iter().filter(|entry| entry.present() && entry.anonymous() && !entry.huge());
        let mut places: Vec<u64> = anonymous.map(|entry| entry.frame()).collect();
        places.sort_unstable();
        places.chunk_by(|one, next| one + 1 == *next).any(|run| {
            let mut flags = vec![0; run.len()];
            frames.flags(run[0], &mut flags);
            flags.iter().any(|flags| flags & Frames::ANONYMOUS != 0 && flags & Frames::KEPT == 0)
        })
    }
}

/// Sums runs of pages by region.
struct Count<'a> {
    size: u64,
    page: u64,
    at: Option<Population>,
    /// Whether more are wanted.
    wanted: bool,
    tell: &'a mut dyn FnMut(Population) -> bool,
}

impl Count<'_> {
    fn add(&mut self, run: Range<u64>, huge: bool) -> bool {
        let mut start = run.start;
        while start < run.end && self.wanted {
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
        self.wanted
    }

    fn flush(&mut self) {
        if let Some(done) = self.at.take().filter(|_| self.wanted) {
            self.wanted = (self.tell)(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE_SIZE: u64 = 2 << 20;

    fn found(line: &str) -> Option<(Mapping, u64)> {
        mapping(line, 4096).filter(|(at, offset)| misfit(at, *offset, HUGE_SIZE).is_none())
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
        let mounted = found("7f0000000000-7f0000400000 rw-s 00200000 00:01 9  /dev/shm/a").unwrap();
        assert_eq!(mounted.0.kind, Kind::Mounted);
        assert!(found("7f0000000000-7f0000400000 rw-s 00001000 00:01 9  /memfd:a (deleted)").is_none(), "shifted");
    }

    #[test]
    fn what_is_unsuitable_counts_what_is_resident_and_not_addresses() {
        let smaps = "7f0000000000-7f0040000000 rw-p 00000000 00:00 0 \nSize: 1048576 kB\nRss: 8 kB\nVmFlags: rd wr nh \n\
                     7f0040000000-7f0040800000 rw-p 00000000 00:10 7 /anon_hugepage (deleted)\nRss: 0 kB\nShared_Hugetlb: 0 kB\n\
                     Private_Hugetlb: 4096 kB\nVmFlags: rd wr ht \n7f0050000000-7f0050800000 rw-p 00000000 00:00 0 \nRss: 8 kB\n\
                     VmFlags: rd wr \n";
        let found: Vec<_> = unsuitable_in(smaps).iter().map(|found| (found.flag, found.resident)).collect();
        assert_eq!(found, [("nh", 8 << 10), ("ht", 4 << 20)]);
    }

    #[test]
    fn runs_are_summed_by_region() {
        let mut seen = Vec::new();
        let mut tell = |population: Population| {
            seen.push((population.region, population.populated, population.huge));
            true
        };
        let mut count = Count { size: HUGE_SIZE, page: 4096, at: None, wanted: true, tell: &mut tell };
        count.add(0x1ff000..0x201000, false);
        count.add(0x300000..0x301000, false);
        count.add(0x800000..0xc00000, true);
        count.flush();
        assert_eq!(seen, [(0, 1, false), (1, 2, false), (4, 512, true), (5, 512, true)]);
    }
}
