//! Fragmented memory: no free block is as large as a huge page, and compaction makes none.
//!
//! Each free block is taken as a huge page and split, one page of it is pinned in a pipe, and the
//! others are freed. So all memory but one page in 512 stays free for everybody, and no more than
//! [`BATCH`] blocks are taken at once. A pinned page cannot be moved, so compaction cannot free its
//! block. The pipes, and with them the pages, go with this process, whatever ends it.

use crate::daemon::raise_files;
use crate::inspect::free_blocks;
use crate::probe::memory::{BASE, HUGE, Memory};
use rustix::io::Errno;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, vmsplice};
use std::os::fd::OwnedFd;
use superpage_linux::Error;
use superpage_linux::pagemap::huge_page_bytes;
use superpage_linux::rules::Rules;
use superpage_pages::PageSize;

/// Blocks that are taken at once: 128 MB.
const BATCH: usize = 64;

/// Why the kernel gives no huge page to be split, and what to do.
const GIVES_NONE: &str = "the kernel gives this process no huge pages; set \
    /sys/kernel/mm/transparent_hugepage/enabled to madvise (and hugepages-2048kB/enabled to inherit)";

/// Bytes of base pages that an unprivileged process may keep in one pipe.
const PIPE: usize = 1 << 20;

/// The blocks that are broken up; they can become whole again when this is dropped.
pub(super) struct Fragmented {
    pipes: Vec<(OwnedFd, OwnedFd)>,
    blocks: u64,
}

impl Fragmented {
    /// None yet.
    ///
    /// # Errors
    /// [`Error::Unable`]: this kernel has huge pages of another size, or gives none.
    pub(super) fn new() -> Result<Fragmented, Error> {
        let unable = |why: &str| Err(Error::Unable(format!("memory cannot be fragmented: {why}")));
        if huge_page_bytes() != HUGE as u64 {
            return unable("this is known for huge pages of 2 MB alone");
        }
        let size = PageSize::from_bytes(HUGE as u64).expect("a power of two");
        if Rules::read().anonymous(size).is_none_or(|word| word == "never") {
            return unable(GIVES_NONE);
        }
        // Two for each pipe.
        raise_files();
        Ok(Fragmented { pipes: Vec::new(), blocks: 0 })
    }

    /// How many blocks were broken up so far.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Breaks up the blocks that are free now, until the kernel gives none or `stop` says so: some
    /// 0.2 ms for each, and 5 ms in a guest whose host has taken the memory back.
    ///
    /// # Errors
    /// [`Error::Unable`]: this kernel does not split huge pages by advice; others of the system.
    pub(super) fn break_up(&mut self, stop: &dyn Fn() -> bool) -> Result<(), Error> {
        let memory = Memory::new(BATCH * HUGE)?;
        memory.advise(libc::MADV_HUGEPAGE)?;
        while !stop() && free_blocks(HUGE as u64).is_none_or(|blocks| blocks > 0) {
            memory.touch(0..BATCH * HUGE, HUGE);
            let whole = memory.huge_bytes()? / HUGE;
            let pinned = (0..BATCH).try_for_each(|block| {
                let start = block * HUGE;
                // Advice on a part of a huge page splits it.
                memory.advise_part(start..start + BASE, libc::MADV_COLD)?;
                if whole > 0 { self.pin(&memory, start) } else { Ok(()) }
            });
            let left = memory.huge_bytes()?;
            memory.advise(libc::MADV_DONTNEED)?;
            pinned?;
            if whole > 0 && left == whole * HUGE {
                return Err(Error::Unable(
                    "memory cannot be fragmented: this kernel does not split a huge page by MADV_COLD (Linux 5.4 does)"
                        .into(),
                ));
            }
            self.blocks += (whole - left / HUGE) as u64;
            if whole == 0 {
                break;
            }
        }
        // A few are left in any case: the kernel keeps them for itself.
        let none = self.blocks == 0 && !stop() && free_blocks(HUGE as u64).is_some_and(|free| free > 1024);
        if none { Err(Error::Unable(format!("memory cannot be fragmented: {GIVES_NONE}"))) } else { Ok(()) }
    }

    /// Pins the page at this offset.
    fn pin(&mut self, memory: &Memory, at: usize) -> Result<(), Error> {
        loop {
            if let Some((_, end)) = self.pipes.last() {
                let page = [IoSliceRaw::from_slice(memory.page(at))];
                // SAFETY: the page is only referenced: nobody reads the pipe.
                match unsafe { vmsplice(end, &page, SpliceFlags::NONBLOCK) } {
                    Err(Errno::AGAIN) => {}
                    other => return other.map(drop).map_err(Error::system("pin a page in a pipe")),
                }
            }
            let pipe = pipe_with(PipeFlags::CLOEXEC).map_err(Error::system("open a pipe that pins pages"))?;
            fcntl_setpipe_size(&pipe.1, PIPE).map_err(|error| match error {
                Errno::PERM => Error::Unable(
                    "not all free memory can be fragmented: without root a user may pin as many pages as \
                     /proc/sys/fs/pipe-user-pages-soft says, one for each 2 MB; run as root, or raise it"
                        .into(),
                ),
                error => Error::system("have a pipe that pins 256 pages")(error),
            })?;
            self.pipes.push(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_broken_up_has_one_page_pinned() {
        let _turn = superpage_testing::turn_of("free memory");
        let Ok(mut fragmented) = Fragmented::new() else {
            superpage_testing::skip!("huge-pages", "the kernel gives no huge pages");
            return;
        };
        // One batch: the memory of others stays as it is.
        let asked = std::cell::Cell::new(0);
        fragmented.break_up(&|| asked.replace(asked.get() + 1) > 0).unwrap();
        assert!(fragmented.blocks() <= BATCH as u64);
        assert_eq!(fragmented.pipes.is_empty(), fragmented.blocks == 0);
        for (end, _) in &fragmented.pipes {
            let pinned = rustix::io::ioctl_fionread(end).unwrap();
            assert!(pinned > 0 && pinned as usize <= PIPE, "{pinned}");
        }
    }
}
