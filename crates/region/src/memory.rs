//! The physical memory of a region: a memory file as long as the region, page for page, mapped
//! once; and the window through which the pager reads and writes the contents of pages.
//!
//! The contents of page `n` of the region are at offset `n` of the file, whichever frame the
//! manager has assigned. A frame of the manager is the right to one page of memory: a page of the
//! file has memory only while a frame backs it, each frame backs at most one page, and there are as
//! many frames as the limit allows. When a frame is given to another page, the page that had it
//! loses its memory (a hole is punched). So the limit holds and the region stays one mapping of the
//! kernel, however scattered frames are.
//!
//! When an extent of 2 MB is given to a block of the region whose pages have no memory, the block
//! becomes one huge page of the file at once, and so a reservation: it is zeroed, and promotion
//! maps it as one page in place. If part of it is freed, the kernel splits the huge page.
//!
//! The kernel treats pages that it has pinned (for a read by `O_DIRECT` in progress, `vmsplice`)
//! specially in two ways: a huge page that contains one is not split, so punching a hole frees
//! nothing until the pin goes, and the limit may be exceeded by that much; and what a device writes
//! to a page that is evicted meanwhile is lost.

use super::Error;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use superpage_pages::{Extent, Pfn};

/// Bytes of a base page.
pub(crate) const BASE: usize = 4096;
/// Base pages of a block: the largest page size.
pub(crate) const BLOCK: usize = 512;

/// No frame, or no page.
const NONE: u32 = u32::MAX;

/// The state of a page of the file.
#[derive(Clone, Copy)]
struct Page {
    /// The frame that backs it.
    frame: u32,
    /// Whether it has memory.
    present: bool,
    /// Whether that memory was never written, so that it is zero.
    zero: bool,
}

/// The state of 2 MB of the file.
#[derive(Clone, Copy, Default)]
struct Block {
    /// The number of its pages that have memory.
    present: u16,
    /// Whether it is one huge page, as far as known.
    huge: bool,
    /// Whether the kernel had no huge page when one was requested.
    refused: bool,
}

/// The memory file, the frame that backs each page and the page that each frame backs: at most one,
/// either way.
pub(crate) struct Memory {
    file: OwnedFd,
    window: *mut u8,
    bytes: usize,
    /// Where a block of the file is mapped to be collapsed into one page.
    anvil: *mut u8,
    pages: Vec<Page>,
    blocks: Vec<Block>,
    /// The page that each frame backs.
    backs: Vec<u32>,
    present: u64,
}

// SAFETY: the window and the anvil are mappings of the process, bound to no thread, and only
// reached through `self`.
unsafe impl Send for Memory {}

impl Memory {
    /// An empty memory file of so many pages, of which at most `frames` may have memory at once.
    ///
    /// # Errors
    /// The kernel cannot create the file or its mapping.
    pub(crate) fn new(pages: usize, frames: usize) -> Result<Memory, Error> {
        let bytes = pages * BASE;
        let map = Error::system("map the memory file");
        let file = memory_file().map_err(Error::system("make a memory file"))?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(Error::system("size the memory file"))?;
        let page = Page { frame: NONE, present: false, zero: false };
        let mut memory = Memory {
            file,
            window: std::ptr::null_mut(),
            bytes,
            anvil: std::ptr::null_mut(),
            pages: vec![page; pages],
            blocks: vec![Block::default(); pages.div_ceil(BLOCK)],
            backs: vec![NONE; frames],
            present: 0,
        };
        let made = reserve(BLOCK * BASE).and_then(|anvil| {
            memory.anvil = anvil;
            memory.window = reserve(bytes)?;
            memory.map_at(memory.window, 0, bytes)?;
            // Filling a page through the window allocates that page alone, whatever the system's
            // settings.
            advise(memory.window.cast(), bytes, libc::MADV_NOHUGEPAGE)
        });
        made.map_err(map)?;
        Ok(memory)
    }

    /// The file, for the mapping of the region.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Maps a part of the file over our own mapping at `at`.
    fn map_at(&self, at: *mut u8, page: usize, bytes: usize) -> io::Result<()> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: `at` is the start of the window or the anvil, reservations of ours of this
        // length, where nothing else lives.
        unsafe {
            rustix::mm::mmap(at.cast(), bytes, rights, flags, &self.file, (page * BASE) as u64)?;
            // A child process must not find pages here that the pager has reused.
            rustix::mm::madvise(at.cast(), bytes, Advice::LinuxDontFork)?;
        }
        Ok(())
    }

    /// Makes a frame back a page. The page that it backed before loses its memory; this page keeps
    /// what memory it has.
    ///
    /// # Errors
    /// The kernel cannot free the memory.
    pub(crate) fn give(&mut self, page: usize, frame: Pfn) -> io::Result<()> {
        if self.backs[frame.0 as usize] == page as u32 {
            return Ok(());
        }
        let before = self.strip(frame);
        self.join(page, frame);
        before.map_or(Ok(()), |before| self.punch(before, 1))
    }

    /// Like [`Memory::give`] for 2 MB, none of whose pages is in use: the block becomes one huge
    /// page if none of it has memory and the kernel has one. Contents of frames that are `cached`
    /// stay.
    ///
    /// # Errors
    /// As for [`Memory::give`].
    pub(crate) fn give_block(&mut self, block: usize, extent: Extent, cached: impl Fn(Pfn) -> bool) -> io::Result<()> {
        let first = block * BLOCK;
        let mut whole = true;
        // Pages that lose their memory, as ranges: usually a block that had this extent.
        let (mut from, mut lost) = (0, 0);
        for part in 0..BLOCK {
            let (page, frame) = (first + part, extent.start + part as u64);
            let held = self.pages[page].frame;
            if cached(frame) || held != NONE && cached(Pfn(u64::from(held))) {
                whole = false;
                continue;
            }
            if self.backs[frame.0 as usize] == page as u32 {
                continue;
            }
            let before = self.strip(frame);
            self.join(page, frame);
            if let Some(before) = before {
                if before != from + lost {
                    self.punch(from, lost)?;
                    (from, lost) = (before, 0);
                }
                lost += 1;
            }
        }
        self.punch(from, lost)?;
        if whole && self.blocks[block].present == 0 {
            self.populate(first, BLOCK)?;
            let huge = self.forge(block);
            self.blocks[block].refused = !huge;
        }
        Ok(())
    }

    /// Makes 2 MB of the file one huge page. All of its pages have memory: if a userfaultfd reports
    /// holes, the kernel makes no huge page around one. Returns `false` if the kernel has none.
    fn forge(&mut self, block: usize) -> bool {
        let bytes = BLOCK * BASE;
        let huge = self.map_at(self.anvil, block * BLOCK, bytes).and_then(|()| collapse(self.anvil, bytes)).is_ok();
        self.blocks[block].huge = huge;
        huge
    }

    /// Records that a block mapped by the region has become one huge page.
    pub(crate) fn collapsed(&mut self, block: usize) {
        let block = &mut self.blocks[block];
        (block.huge, block.refused) = (true, false);
    }

    /// Takes a frame from the page that it backs; returns the page if it thereby loses its right to
    /// memory.
    fn strip(&mut self, frame: Pfn) -> Option<usize> {
        let before = std::mem::replace(&mut self.backs[frame.0 as usize], NONE);
        let page = self.pages.get_mut(before as usize)?;
        page.frame = NONE;
        page.present.then_some(before as usize)
    }

    /// Makes a frame that backs nothing back this page, in place of its previous frame.
    fn join(&mut self, page: usize, frame: Pfn) {
        let other = std::mem::replace(&mut self.pages[page].frame, frame.0 as u32);
        if other != NONE {
            self.backs[other as usize] = NONE;
        }
        self.backs[frame.0 as usize] = page as u32;
    }

    fn set_present(&mut self, page: usize, present: bool) {
        if std::mem::replace(&mut self.pages[page].present, present) != present {
            let block = &mut self.blocks[page / BLOCK];
            if present {
                (block.present, self.present) = (block.present + 1, self.present + 1);
            } else {
                (block.present, self.present) = (block.present - 1, self.present - 1);
                block.huge = false;
            }
        }
        self.pages[page].zero = present;
    }

    /// Frees the memory of pages that are not in use.
    fn punch(&mut self, page: usize, pages: usize) -> io::Result<()> {
        if pages == 0 {
            return Ok(());
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, punch, (page * BASE) as u64, (pages * BASE) as u64)?;
        for page in page..page + pages {
            self.set_present(page, false);
        }
        Ok(())
    }

    /// Allocates memory for pages that have none, as base pages.
    fn populate(&mut self, first: usize, pages: usize) -> io::Result<()> {
        advise(self.at(first).cast(), pages * BASE, libc::MADV_POPULATE_WRITE)?;
        (first..first + pages).for_each(|page| self.set_present(page, true));
        Ok(())
    }

    /// Ensures that a page, which has a frame, has memory.
    ///
    /// # Errors
    /// The system is out of memory.
    pub(crate) fn provide(&mut self, page: usize) -> io::Result<()> {
        assert_ne!(self.pages[page].frame, NONE, "page {page} of the region has no frame");
        if self.pages[page].present { Ok(()) } else { self.populate(page, 1) }
    }

    /// Returns the memory of pages whose frames are not `wanted` to the system.
    pub(crate) fn trim(&mut self, wanted: impl Fn(Pfn) -> bool) -> io::Result<()> {
        let idle = |page: &Page| page.present && !wanted(Pfn(u64::from(page.frame)));
        let mut from = 0;
        while from < self.pages.len() {
            let pages = self.pages[from..].iter().take_while(|page| idle(page)).count();
            self.punch(from, pages)?;
            from += pages + 1;
        }
        Ok(())
    }

    /// The number of pages that have memory.
    pub(crate) fn held(&self) -> u64 {
        self.present
    }

    /// The number of blocks that are one huge page, and of those for which the kernel had none.
    pub(crate) fn count_blocks(&self) -> (u64, u64) {
        let count = |which: fn(&Block) -> bool| self.blocks.iter().filter(|block| which(block)).count() as u64;
        (count(|block| block.huge), count(|block| block.refused && block.present > 0))
    }

    /// Zeroes a page that has memory, unless it is known to be zero.
    pub(crate) fn zero(&mut self, page: usize) {
        if !std::mem::take(&mut self.pages[page].zero) {
            self.contents_mut(page).fill(0);
        }
    }

    /// The contents of the page that a frame backs, to be read while no thread of the program can
    /// write them.
    pub(crate) fn contents(&self, frame: Pfn) -> &[u8] {
        let page = self.backs[frame.0 as usize];
        assert_ne!(page, NONE, "{frame:?} holds no page of the region");
        assert!(self.pages[page as usize].present, "page {page} of the region has no memory");
        // SAFETY: the page lies in the window and has memory, and the caller has seen to it that
        // nobody writes it meanwhile.
        unsafe { std::slice::from_raw_parts(self.at(page as usize), BASE) }
    }

    /// The contents of a page that has memory, to be written while no thread of the program can see
    /// them.
    pub(crate) fn contents_mut(&mut self, page: usize) -> &mut [u8] {
        assert!(self.pages[page].present, "page {page} of the region has no memory");
        self.pages[page].zero = false;
        // SAFETY: as in `contents`; and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.at(page), BASE) }
    }

    fn at(&self, page: usize) -> *mut u8 {
        assert!(page < self.pages.len(), "page {page} is beyond the memory file");
        self.window.wrapping_add(page * BASE)
    }

    /// Checks that frames and pages correspond one to one, that every page with memory has a frame,
    /// that the file is within the limit, and the counts; and that each of the `mapped` pages,
    /// given with the manager's frame, has memory by that frame.
    pub(crate) fn validate(&self, mapped: impl Iterator<Item = (usize, Pfn)>) -> Result<(), String> {
        let mut present = vec![0; self.blocks.len()];
        for (index, page) in self.pages.iter().enumerate() {
            if page.frame == NONE && page.present {
                return Err(format!("page {index} of the region has memory but no frame"));
            }
            if page.frame != NONE && self.backs[page.frame as usize] != index as u32 {
                return Err(format!("frame {} does not back page {index}", page.frame));
            }
            present[index / BLOCK] += u16::from(page.present);
        }
        let joined = self.pages.iter().filter(|page| page.frame != NONE).count();
        if joined != self.backs.iter().filter(|page| **page != NONE).count() {
            return Err("a frame backs a page that has a different frame".into());
        }
        for (index, (block, present)) in self.blocks.iter().zip(&present).enumerate() {
            if block.present != *present || block.huge && usize::from(*present) != BLOCK {
                return Err(format!("block {index} counts {} pages with memory but has {present}", block.present));
            }
        }
        let file = rustix::fs::fstat(&self.file).map_err(|error| format!("the memory file has no state: {error}"))?;
        if file.st_blocks as u64 * 512 > (self.backs.len() * BASE) as u64 {
            return Err(format!(
                "the memory file has {} KB, but the limit is {} pages",
                file.st_blocks / 2,
                self.backs.len()
            ));
        }
        if self.present != present.iter().map(|count| u64::from(*count)).sum::<u64>() {
            return Err(format!("the count of pages with memory is {}, which is wrong", self.present));
        }
        for (index, frame) in mapped {
            let page = self.pages[index];
            if !page.present || u64::from(page.frame) != frame.0 {
                return Err(format!("page {index} is mapped by {frame:?} but has frame {}", page.frame));
            }
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (start, bytes) in [(self.window, self.bytes), (self.anvil, BLOCK * BASE)] {
            if !start.is_null() {
                // SAFETY: the mapping is ours, and nothing refers to it any more. A failure would
                // only leave it mapped.
                let _ = unsafe { rustix::mm::munmap(start.cast(), bytes) };
            }
        }
    }
}

fn memory_file() -> rustix::io::Result<OwnedFd> {
    const NAME: &str = "superpage region";
    // Kernels before 6.3 do not know that a file must never be executable.
    rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC))
}

/// Reserves an unused range of addresses, at a multiple of a block: without memory, and ours to map
/// over.
pub(crate) fn reserve(bytes: usize) -> io::Result<*mut u8> {
    let block = BLOCK * BASE;
    let room = bytes + block;
    // SAFETY: a new mapping where the kernel chooses touches nothing that exists.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            room,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?
    .cast::<u8>();
    let before = start.align_offset(block);
    let after = block - before;
    // SAFETY: both ends are parts of the mapping just made that nobody knows of.
    unsafe {
        if before > 0 {
            rustix::mm::munmap(start.cast(), before)?;
        }
        let end = bytes.next_multiple_of(BASE);
        if after > 0 {
            rustix::mm::munmap(start.wrapping_add(before + end).cast(), room.next_multiple_of(BASE) - before - end)?;
        }
    }
    Ok(start.wrapping_add(before))
}

/// Makes the pages of an aligned range one huge page, mapped as such: in place and without a copy
/// if the file already has a huge page there.
pub(crate) fn collapse(at: *mut u8, bytes: usize) -> io::Result<()> {
    advise(at.cast(), bytes, libc::MADV_COLLAPSE)
}

/// Unmaps the pages of a range; the file keeps them.
pub(crate) fn zap(at: *mut u8, bytes: usize) -> io::Result<()> {
    // Also where the program has locked the region.
    const MADV_DONTNEED_LOCKED: i32 = 24;
    advise(at.cast(), bytes, MADV_DONTNEED_LOCKED)
}

fn advise(at: *mut c_void, bytes: usize, advice: i32) -> io::Result<()> {
    // SAFETY: all advices asked for leave the contents of a shared mapping of a file as they are.
    match unsafe { libc::madvise(at, bytes, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
