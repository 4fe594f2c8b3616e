//! Plain anonymous memory from the kernel, with huge pages or without: what a region is compared
//! with.

use std::io;

/// A range of anonymous memory, at a multiple of 2 MB.
pub(crate) struct Anonymous {
    start: *mut u8,
    bytes: usize,
    map: *mut libc::c_void,
    mapped: usize,
}

const BLOCK: usize = 2 << 20;

impl Anonymous {
    /// Maps it, and asks for huge pages (`MADV_HUGEPAGE`) or for none.
    pub(crate) fn new(bytes: usize, huge: bool) -> io::Result<Anonymous> {
        let mapped = bytes + BLOCK;
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping where the kernel chooses touches nothing that exists.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), mapped, rights, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = map.cast::<u8>().wrapping_add(map.cast::<u8>().align_offset(BLOCK));
        let memory = Anonymous { start, bytes, map, mapped };
        memory.advise(if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE })?;
        Ok(memory)
    }

    /// Makes each 2 MB of it, populated by base pages, a huge page now, by copying.
    #[allow(dead_code, reason = "not all that share this file ask for it")]
    pub(crate) fn collapse(&self) -> io::Result<()> {
        self.advise(libc::MADV_HUGEPAGE)?;
        self.advise(libc::MADV_COLLAPSE)
    }

    /// All of it.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped, zeroed, ours, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: none of the advices used here changes contents.
        match unsafe { libc::madvise(self.start.cast(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.map, self.mapped) };
    }
}
