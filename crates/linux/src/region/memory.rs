//! The physical memory of a region: a memory file, its blocks made real huge pages when first used, and the window through
//! which the pager reads and writes the contents of frames.
//!
//! Frame `n` is the base page at offset `n` of the file. The window maps all of the file, apart from where the program
//! uses it, so that contents can be put into a frame before anybody can see it there.

use super::Error;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use superpage_pages::Pfn;

/// Bytes of a base page.
pub(crate) const BASE: usize = 4096;
/// Base pages of a block: the largest page size.
pub(crate) const BLOCK: usize = 512;

/// How a block of the file is backed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    /// By nothing yet.
    Hole,
    /// By base pages: the kernel had no huge page for it.
    Small,
    /// By one huge page.
    Huge,
}

/// See the module.
pub(crate) struct Memory {
    file: OwnedFd,
    window: *mut u8,
    bytes: usize,
    blocks: Vec<Block>,
    /// Frames never written since their block was made: they are zero.
    zero: Vec<bool>,
}

// SAFETY: the window is a mapping of the process, bound to no thread, and only reached through `self`.
unsafe impl Send for Memory {}

impl Memory {
    /// A memory file of so many frames, with nothing in it.
    ///
    /// # Errors
    /// The kernel refuses the file or its mapping.
    pub(crate) fn new(frames: usize) -> Result<Memory, Error> {
        let bytes = frames * BASE;
        let file = memory_file().map_err(Error::system("make a memory file"))?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(Error::system("size the memory file"))?;
        // The file is mapped where a block may be one page: at a multiple of its size.
        let window = reserve(bytes).map_err(Error::system("map the memory file"))?;
        let map = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: `window` is a reservation of ours of this length, where nothing else lives.
        let mapped = unsafe {
            rustix::mm::mmap(window.cast(), bytes, map, MapFlags::SHARED | MapFlags::FIXED, &file, 0)
                // A child process must not find frames here that the pager has given another meaning.
                .and_then(|_| rustix::mm::madvise(window.cast(), bytes, Advice::LinuxDontFork))
        };
        let blocks = vec![Block::Hole; frames.div_ceil(BLOCK)];
        let memory = Memory { file, window, bytes, blocks, zero: vec![false; frames] };
        mapped.map_err(Error::system("map the memory file"))?;
        Ok(memory)
    }

    /// The file, for mappings of it.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The number of frames.
    pub(crate) fn frames(&self) -> usize {
        self.zero.len()
    }

    /// Sees to it that the frame's block has memory, as one huge page if the kernel has one. O(1) but for the first time.
    ///
    /// # Errors
    /// The system is out of memory.
    pub(crate) fn provide(&mut self, frame: Pfn) -> io::Result<()> {
        let block = frame.0 as usize / BLOCK;
        if self.blocks[block] != Block::Hole {
            return Ok(());
        }
        let first = block * BLOCK;
        let frames = BLOCK.min(self.frames() - first);
        let plain = FallocateFlags::empty();
        let (offset, bytes) = ((first * BASE) as u64, (frames * BASE) as u64);
        let at = self.at(first);
        let whole = || frames == BLOCK && collapse(at, BLOCK * BASE).is_ok();
        // Around one page, a hole collapses to a huge page of zeroes with nothing else to copy; but not where the region still
        // shows a block that was withdrawn, since a hole is something to tell of there.
        rustix::fs::fallocate(&self.file, plain, offset, BASE as u64)?;
        let mut huge = whole();
        if !huge {
            rustix::fs::fallocate(&self.file, plain, offset, bytes)?;
            huge = whole();
        }
        self.blocks[block] = if huge { Block::Huge } else { Block::Small };
        self.zero[first..first + frames].fill(true);
        Ok(())
    }

    /// Gives the memory of a block back to the system. None of its frames may be in use or mapped.
    pub(crate) fn withdraw(&mut self, block: usize) -> io::Result<()> {
        let first = block * BLOCK;
        let bytes = BLOCK.min(self.frames() - first) * BASE;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, punch, (first * BASE) as u64, bytes as u64)?;
        self.blocks[block] = Block::Hole;
        Ok(())
    }

    /// The blocks that have memory.
    pub(crate) fn provided(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.blocks.len()).filter(|block| self.blocks[*block] != Block::Hole)
    }

    /// The numbers of blocks made, of huge pages and of base pages.
    pub(crate) fn count_blocks(&self) -> (u64, u64) {
        let count = |kind| self.blocks.iter().filter(|block| **block == kind).count() as u64;
        (count(Block::Huge), count(Block::Small))
    }

    /// Fills a frame with zeroes, unless it is known to hold nothing else.
    pub(crate) fn zero(&mut self, frame: Pfn) {
        if !std::mem::take(&mut self.zero[frame.0 as usize]) {
            self.contents_mut(frame).fill(0);
        }
    }

    /// The contents of a frame whose block has memory, to be read while no thread of the program can write them.
    pub(crate) fn contents(&self, frame: Pfn) -> &[u8] {
        // SAFETY: the frame lies in the window, whose blocks have memory once provided, and the caller has seen to it that
        // nobody writes it meanwhile.
        unsafe { std::slice::from_raw_parts(self.at(frame.0 as usize), BASE) }
    }

    /// The contents of a frame whose block has memory, to be written while no thread of the program can see them.
    pub(crate) fn contents_mut(&mut self, frame: Pfn) -> &mut [u8] {
        self.zero[frame.0 as usize] = false;
        // SAFETY: as in `contents`; and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.at(frame.0 as usize), BASE) }
    }

    /// Copies one frame to another.
    pub(crate) fn copy(&mut self, from: Pfn, to: Pfn) {
        assert_ne!(from, to, "a frame is not copied to itself");
        self.zero[to.0 as usize] = false;
        // SAFETY: both frames lie in the window and are different; as in `contents`.
        unsafe { std::ptr::copy_nonoverlapping(self.at(from.0 as usize), self.at(to.0 as usize), BASE) };
    }

    fn at(&self, frame: usize) -> *mut u8 {
        assert!(frame < self.frames(), "frame {frame} is beyond the memory file");
        self.window.wrapping_add(frame * BASE)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the window is ours, and nothing refers to it any more. A failure would only leave it mapped.
        let _ = unsafe { rustix::mm::munmap(self.window.cast(), self.bytes) };
    }
}

fn memory_file() -> rustix::io::Result<OwnedFd> {
    const NAME: &str = "superpage region";
    // Kernels before 6.3 do not know that a file must never be executable.
    rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC))
}

/// A range of addresses of whole bytes, at a multiple of a block, that nothing uses: without memory, and ours to map over.
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

/// Makes the pages of an aligned range one huge page, mapped as such: in place and without a copy if the file has a huge
/// page there already.
pub(crate) fn collapse(at: *mut u8, bytes: usize) -> io::Result<()> {
    advise(at.cast(), bytes, libc::MADV_COLLAPSE)
}

/// Ends the mappings of the pages of a range; the file keeps them.
pub(crate) fn zap(at: *mut u8, bytes: usize) -> io::Result<()> {
    // Also where the program has locked the region.
    const MADV_DONTNEED_LOCKED: i32 = 24;
    advise(at.cast(), bytes, MADV_DONTNEED_LOCKED)
}

fn advise(at: *mut c_void, bytes: usize, advice: i32) -> io::Result<()> {
    // SAFETY: both advices leave the contents of a shared mapping of a file as they are.
    match unsafe { libc::madvise(at, bytes, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
