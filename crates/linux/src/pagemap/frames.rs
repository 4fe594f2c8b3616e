//! What the kernel shows of physical memory, to root only.

use super::Entry;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The flags of frames, `/proc/kpageflags`, and the frame of the zero page.
#[derive(Debug)]
pub struct Frames {
    flags: File,
    zero: u64,
}

impl Frames {
    /// The first page of a folio of several.
    pub const HEAD: u64 = 1 << 15;
    /// Another page of it.
    pub const TAIL: u64 = 1 << 16;
    /// The zero page, huge or not.
    pub const ZERO: u64 = 1 << 24;
    /// A page of a program or a file that the kernel may reclaim or move.
    pub const LRU: u64 = 1 << 5;
    /// A page of anonymous memory.
    pub const ANONYMOUS: u64 = 1 << 12;
    /// A page whose contents the kernel must keep, in swap space if need be: anonymous memory that
    /// was not given back by `MADV_FREE`.
    pub const KEPT: u64 = 1 << 14;
    /// A free page: since Linux 4.6 each of a block has it.
    pub const BUDDY: u64 = 1 << 10;
    /// A page with an error that the hardware reported.
    pub const POISONED: u64 = 1 << 19;
    /// No memory.
    pub const NO_PAGE: u64 = 1 << 20;
    /// Memory that was given back to a hypervisor.
    pub const OFFLINE: u64 = 1 << 23;

    /// `None` without the right to see frames and their flags.
    pub fn open() -> Option<Frames> {
        let flags = File::open("/proc/kpageflags").ok()?;
        let zero = zero_frame().ok().filter(|frame| *frame != 0)?;
        Some(Frames { flags, zero })
    }

    /// The frame of the zero page, as a base page.
    pub fn zero(&self) -> u64 {
        self.zero
    }

    /// The flags of consecutive frames: about 0.1 us each. Those that cannot be read are 0: memory
    /// ends there, or belongs to a device.
    pub fn flags(&self, first: u64, flags: &mut [u64]) {
        let mut bytes = vec![0; flags.len() * 8];
        let read = self.flags.read_at(&mut bytes, first * 8).unwrap_or(0);
        bytes[read..].fill(0);
        unpack(&bytes, flags);
    }

    /// The flags of consecutive frames that all exist.
    ///
    /// # Errors
    /// Those of reading `/proc/kpageflags`, one that ends before among them.
    pub fn exact(&self, first: u64, flags: &mut [u64]) -> io::Result<()> {
        let mut bytes = vec![0; flags.len() * 8];
        self.flags.read_exact_at(&mut bytes, first * 8)?;
        unpack(&bytes, flags);
        Ok(())
    }

    /// The flags of one frame.
    pub fn flag(&self, frame: u64) -> u64 {
        let mut flag = [0];
        self.flags(frame, &mut flag);
        flag[0]
    }
}

fn unpack(bytes: &[u8], flags: &mut [u64]) {
    for (flags, bytes) in flags.iter_mut().zip(bytes.chunks_exact(8)) {
        *flags = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
}

/// The frame mapped by memory that was read and never written; 0 if the kernel hides it.
fn zero_frame() -> io::Result<u64> {
    let page = rustix::param::page_size();
    let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping where the kernel chooses touches nothing that exists.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), page, rights, flags) }?;
    // SAFETY: the page is ours. A kernel without huge pages, which does not know the advice, has no
    // huge page of zeroes either.
    let _ = unsafe { madvise(start, page, Advice::LinuxNoHugepage) };
    // SAFETY: the byte is in the mapping, which is ours alone.
    unsafe { start.cast::<u8>().read_volatile() };
    let mut word = [0; 8];
    let read = File::open("/proc/self/pagemap")
        .and_then(|pagemap| pagemap.read_exact_at(&mut word, (start as usize / page * 8) as u64));
    // SAFETY: the mapping is ours, and nothing refers to it any more.
    unsafe { munmap(start, page) }?;
    read?;
    Ok(Entry::of(&word).frame())
}
