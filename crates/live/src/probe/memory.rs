//! Memory of known page sizes, for timing.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use superpage_linux::Error;
use superpage_linux::pagemap::Counted;
use superpage_linux::proc::maps::smaps;

/// Bytes of a base page.
pub(crate) const BASE: usize = 4096;
/// Bytes of the superpage that Linux calls huge.
pub(crate) const HUGE: usize = 2 << 20;

/// Private anonymous memory whose start is a multiple of 2 MB.
pub(crate) struct Memory {
    map: *mut libc::c_void,
    mapped: usize,
    start: *mut u8,
    bytes: usize,
}

impl Memory {
    /// Maps it, untouched; what pages it is given is up to the advice that follows.
    pub(crate) fn new(bytes: usize) -> Result<Memory, Error> {
        let mapped = bytes + HUGE;
        let map = map(std::ptr::null_mut(), mapped, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
        let start = map.cast::<u8>();
        let start = start.wrapping_add(start.align_offset(HUGE));
        Ok(Memory { map, mapped, start, bytes })
    }

    /// Only base pages, touched.
    pub(crate) fn base(bytes: usize) -> Result<Memory, Error> {
        let memory = Memory::new(bytes)?;
        memory.advise(libc::MADV_NOHUGEPAGE)?;
        memory.touch(0..bytes, BASE);
        Ok(memory)
    }

    /// Only base pages, whose frames do not follow each other as the pages do: touched in a random
    /// order.
    pub(crate) fn scattered(bytes: usize) -> Result<Memory, Error> {
        let memory = Memory::new(bytes)?;
        memory.advise(libc::MADV_NOHUGEPAGE)?;
        let mut pages: Vec<usize> = (0..bytes / BASE).collect();
        fastrand::Rng::with_seed(bytes as u64).shuffle(&mut pages);
        for page in pages {
            memory.touch(page * BASE..(page + 1) * BASE, BASE);
        }
        Ok(memory)
    }

    /// As many huge pages as the kernel provides, touched. [`huge_bytes`](Memory::huge_bytes)
    /// returns how much of it they are.
    pub(crate) fn huge(bytes: usize) -> Result<Memory, Error> {
        let memory = Memory::new(bytes)?;
        memory.advise(libc::MADV_HUGEPAGE)?;
        memory.touch(0..bytes, BASE);
        if memory.huge_bytes()? < bytes {
            // Where faults give none, collapsing may.
            let _ = memory.advise(libc::MADV_COLLAPSE);
        }
        Ok(memory)
    }

    /// A file, shared.
    pub(crate) fn file(fd: libc::c_int, bytes: usize) -> Result<Memory, Error> {
        let memory = Memory::new(bytes)?;
        map(memory.start.cast(), bytes, libc::MAP_SHARED | libc::MAP_FIXED, fd)?;
        Ok(memory)
    }

    /// Advises the kernel about all of it.
    pub(crate) fn advise(&self, advice: libc::c_int) -> Result<(), Error> {
        self.advise_part(0..self.bytes, advice)
    }

    /// Advises the kernel about a part of it.
    pub(crate) fn advise_part(&self, part: Range<usize>, advice: libc::c_int) -> Result<(), Error> {
        assert!(part.start <= part.end && part.end <= self.bytes, "the part lies in the memory");
        // SAFETY: the range is ours. The advices that drop its contents leave zeroes, which any
        // reader of it may see.
        match unsafe { libc::madvise(self.start.add(part.start).cast(), part.len(), advice) } {
            0 => Ok(()),
            _ => Err(Error::system(format!("advise the kernel ({advice}) about memory"))(io::Error::last_os_error())),
        }
    }

    /// Unmaps a part of it. [`fill`](Memory::fill) must follow before anything else is mapped.
    pub(crate) fn unmap(&self, part: Range<usize>) -> Result<(), Error> {
        assert!(part.start <= part.end && part.end <= self.bytes, "the part lies in the memory");
        // SAFETY: the range is ours, and nobody uses it until it is mapped again.
        match unsafe { libc::munmap(self.start.add(part.start).cast(), part.len()) } {
            0 => Ok(()),
            _ => Err(Error::system("unmap memory")(io::Error::last_os_error())),
        }
    }

    /// Maps base pages, untouched, where a part was unmapped.
    ///
    /// # Errors
    /// Something else was mapped there meanwhile, which stays.
    pub(crate) fn fill(&self, part: Range<usize>) -> Result<(), Error> {
        assert!(part.start <= part.end && part.end <= self.bytes, "the part lies in the memory");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        map(self.start.wrapping_add(part.start).cast(), part.len(), flags, -1)?;
        self.advise_part(part, libc::MADV_NOHUGEPAGE)
    }

    /// Writes a byte every `step` bytes of a part.
    pub(crate) fn touch(&self, part: Range<usize>, step: usize) {
        assert!(part.end <= self.bytes, "the part lies in the memory");
        for at in part.step_by(step) {
            // SAFETY: the byte is in the mapping, which is ours alone.
            unsafe { self.start.add(at).write_volatile(1) };
        }
    }

    /// The same frames, mapped `by` bytes behind a multiple of 2 MB, by base pages (the move splits
    /// huge ones where it is not by whole 2 MB).
    pub(crate) fn moved(self, by: usize) -> Result<Memory, Error> {
        let mut to = Memory::new(self.bytes + HUGE)?;
        to.start = to.start.wrapping_add(by);
        to.bytes = self.bytes;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: both ranges are ours and equally long; that of `to` holds nothing, and `self` is
        // used no more.
        let moved = unsafe { libc::mremap(self.start.cast(), self.bytes, self.bytes, flags, to.start) };
        match moved {
            libc::MAP_FAILED => Err(Error::system("move a mapping")(io::Error::last_os_error())),
            _ => Ok(to),
        }
    }

    /// The same frames, page `at` of the new mapping having those of page `from[at]` of this one,
    /// `by` bytes behind a multiple of 2 MB. All are base pages: a mapping each, until they lie
    /// in order again.
    pub(crate) fn permuted(self, from: &[usize], by: usize) -> Result<Memory, Error> {
        assert!(from.len() * BASE == self.bytes, "a page for each page");
        let mut to = Memory::new(self.bytes + HUGE)?;
        to.start = to.start.wrapping_add(by);
        to.bytes = self.bytes;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        for (at, from) in from.iter().enumerate() {
            assert!(*from < self.bytes / BASE, "the page lies in the memory");
            let (from, at) = (self.start.wrapping_add(from * BASE), to.start.wrapping_add(at * BASE));
            // SAFETY: both pages are ours; that of `to` holds nothing, and that of `self` is used
            // no more.
            if unsafe { libc::mremap(from.cast(), BASE, BASE, flags, at) } == libc::MAP_FAILED {
                return Err(Error::system("move a page")(io::Error::last_os_error()));
            }
        }
        Ok(to)
    }

    /// The first byte.
    pub(crate) fn start(&self) -> usize {
        self.start as usize
    }

    /// The size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The base page that begins at this offset.
    pub(crate) fn page(&self, at: usize) -> &[u8] {
        assert!(at + BASE <= self.bytes, "the page lies in the memory");
        // SAFETY: the page is in the mapping, which is ours; nobody writes to it while this is
        // borrowed.
        unsafe { std::slice::from_raw_parts(self.start.add(at), BASE) }
    }

    /// The bytes of it that pages of 2 MB map, by `/proc/self/smaps`.
    pub(crate) fn huge_bytes(&self) -> Result<usize, Error> {
        let range = self.start() as u64..(self.start() + self.bytes) as u64;
        let counted = Counted::of(&smaps(std::process::id(), &|| true)?, &range);
        Ok(counted.huge as usize * BASE)
    }
}

/// One huge page of a memory file, mapped many times in a row: as many huge pages for a TLB, and
/// hardly any memory.
pub(crate) struct Aliases {
    memory: Memory,
}

impl Aliases {
    /// Maps it so often.
    ///
    /// # Errors
    /// The kernel does not make it a huge page, or not everywhere.
    pub(crate) fn new(times: usize) -> Result<Aliases, Error> {
        let file = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC)
            .and_then(|file| rustix::fs::ftruncate(&file, HUGE as u64).map(|()| file))
            .map_err(Error::system("make a memory file"))?;
        let memory = Memory::new(times * HUGE)?;
        for part in (0..times).map(|time| time * HUGE..(time + 1) * HUGE) {
            let at = (memory.start() + part.start) as *mut libc::c_void;
            map(at, HUGE, libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd())?;
            if part.start == 0 {
                memory.advise_part(part.clone(), libc::MADV_HUGEPAGE)?;
                memory.touch(part.clone(), BASE);
                memory.advise_part(part, libc::MADV_COLLAPSE)?;
            } else {
                memory.touch(part.start..part.start + 1, 1);
            }
        }
        Ok(Aliases { memory })
    }

    /// The mappings as one memory.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.map, self.mapped) };
    }
}

/// A readable and writable mapping of a file or of none, where the kernel chooses unless the flags
/// say otherwise.
fn map(at: *mut libc::c_void, bytes: usize, flags: libc::c_int, fd: libc::c_int) -> Result<*mut libc::c_void, Error> {
    // SAFETY: a new mapping where the kernel chooses touches nothing that exists.
    let map = unsafe { libc::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    match map {
        libc::MAP_FAILED => Err(Error::system(format!("map {bytes} bytes"))(io::Error::last_os_error())),
        map => Ok(map),
    }
}
