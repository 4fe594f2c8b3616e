//! Reports changes of mappings: each system call's effect, as an event.

use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::process;
use crate::runs::Runs;
use crate::wire::{FILE, GROWS_UP, code};

/// The size of a page in a trace.
pub(crate) const PAGE: u64 = 4096;
const READ_WRITE: u64 = 3;
/// The device number for System V shared memory, which no file system has.
const SHARED_MEMORY: u64 = u64::MAX;

/// The payload of [`code::MAP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    start: u64,
    pages: u64,
    /// Rights and flags in the wire's encoding.
    pub(crate) flags: u64,
    file: (u64, u64),
    length: u64,
    offset: u64,
}

impl Mapping {
    /// Zero-filled memory.
    pub(crate) fn anonymous(start: u64, pages: u64, rights: u64) -> Mapping {
        Mapping { start, pages, flags: rights & 7, file: (0, 0), length: 0, offset: 0 }
    }

    /// Makes it a mapping of a file: device and inode, length in bytes, offset in pages. If the
    /// length is not known, the mapping counts as the whole file.
    pub(crate) fn set_file(&mut self, file: (u64, u64), length: u64, offset: u64) {
        self.flags |= FILE;
        self.file = file;
        self.length = if length == 0 { (offset + self.pages) * PAGE } else { length };
        self.offset = offset;
    }

    /// Makes it a mapping of a segment of System V shared memory.
    pub(crate) fn set_segment(&mut self, identifier: u64) {
        self.set_file((SHARED_MEMORY, identifier), 0, 0);
    }

    /// Reports it.
    pub(crate) fn tell(&self, runs: &Runs) {
        process::forget(self.start, self.pages);
        runs.event(
            code::MAP,
            &[[self.start, self.pages], [self.flags, self.file.0], [self.file.1, self.length], [self.offset, 0]],
        );
    }
}

/// Forgets which pages of a range were touched; in bytes, as system calls have it.
pub(crate) fn forget(address: u64, length: u64) {
    process::forget(address / PAGE, length.div_ceil(PAGE));
}

/// Applies new rights to what is known of a range.
pub(crate) fn restrict(address: u64, length: u64, rights: u64) {
    process::restrict(address / PAGE, length.div_ceil(PAGE), rights & 1 != 0, rights & 4 != 0);
}

/// Reports that a range was unmapped or, with [`code::DISCARD`], has lost its contents.
pub(crate) fn tell_range(runs: &Runs, code: u64, address: u64, length: u64) {
    forget(address, length);
    runs.event(code, &[[address / PAGE, length.div_ceil(PAGE)]]);
}

/// Reports new rights.
pub(crate) fn tell_protect(runs: &Runs, address: u64, length: u64, rights: u64) {
    restrict(address, length, rights);
    runs.event(code::PROTECT, &[[address / PAGE, length.div_ceil(PAGE)], [rights & 7, 0]]);
}

/// Reports a program's hint for a range.
pub(crate) fn tell_advice(runs: &Runs, address: u64, length: u64, hint: u64) {
    runs.event(code::ADVISE, &[[address / PAGE, length.div_ceil(PAGE)], [hint, 0]]);
}

/// Reports that a mapping was moved or changed its length.
pub(crate) fn tell_remap(runs: &Runs, from: u64, from_length: u64, to: u64, to_length: u64) {
    let (from, from_pages) = (from / PAGE, from_length.div_ceil(PAGE));
    let (to, to_pages) = (to / PAGE, to_length.div_ceil(PAGE));
    process::forget(from, from_pages);
    process::forget(to, to_pages);
    runs.event(code::REMAP, &[[from, from_pages], [to, to_pages]]);
}

/// The file behind a descriptor: device, inode and length, or `None` for a source of zeroes such as
/// `/dev/zero`.
pub(crate) fn file_behind(number: RawFd) -> Option<(u64, u64, u64)> {
    if number < 0 {
        return None;
    }
    // SAFETY: only asked about; `ManuallyDrop` leaves it open. A number that is closed gives an
    // error.
    let file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(number) });
    let metadata = file.metadata().ok()?;
    let zero = metadata.file_type().is_char_device() && metadata.rdev() == file_device(1, 5);
    (!zero).then(|| (metadata.dev(), metadata.ino(), metadata.size()))
}

/// A device's number from its two parts, as file metadata has it.
pub(crate) fn file_device(major: u64, minor: u64) -> u64 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
}

/// The heap, whose end `brk` moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heap {
    start: u64,
    pages: u64,
}

impl Heap {
    /// A heap whose position is not known yet.
    pub(crate) const fn unknown() -> Heap {
        Heap { start: 0, pages: 0 }
    }

    /// An empty heap whose break is at `address`; what precedes the next page boundary belongs to
    /// the program's data.
    pub(crate) fn at(address: u64) -> Heap {
        Heap { start: address.div_ceil(PAGE), pages: 0 }
    }

    /// What moving the break to `address` would unmap: the first page and how many.
    pub(crate) fn lost(&self, address: u64) -> Option<(u64, u64)> {
        let (start, end) = (address.div_ceil(PAGE).max(self.start), self.start + self.pages);
        (address != 0 && start < end).then(|| (start, end - start))
    }

    /// Reports that the break is now at `address`.
    pub(crate) fn tell_break(&mut self, runs: &Runs, address: u64) {
        if self.start == 0 {
            *self = Heap::at(address);
        }
        let pages = address.div_ceil(PAGE).saturating_sub(self.start);
        if pages == self.pages {
            return;
        }
        process::forget(self.start + pages.min(self.pages), pages.abs_diff(self.pages));
        if self.pages == 0 {
            Mapping { flags: READ_WRITE | GROWS_UP, ..Mapping::anonymous(self.start, pages, 0) }.tell(runs);
        } else {
            runs.event(code::GROW, &[[self.start, pages]]);
        }
        self.pages = pages;
    }
}
