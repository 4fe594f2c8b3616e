//! Why an operation or a fault fails.

use crate::SpaceId;
use core::fmt;
use superpage_pages::{Access, Pfn, Vpn};

/// The end of virtual memory and of files: page numbers are below this.
pub const PAGES_LIMIT: u64 = 1 << 52;

/// Why an operation was refused. The state is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The number of frames is 0, or does not fit in 32 bits.
    Frames(u64),
    /// The address space does not exist.
    NoSpace(SpaceId),
    /// The range is empty, or does not end below [`PAGES_LIMIT`].
    Range {
        /// The first page.
        start: u64,
        /// The number of pages.
        pages: u64,
    },
    /// Nothing that could grow or move is mapped there.
    Unmapped(Vpn),
    /// The ranges before and after a move overlap.
    Overlap(Vpn),
    /// The frames to be wired do not lie in memory, or are not all free.
    NotFree,
    /// No frame is left, not even in a reservation.
    NoFrame,
    /// The frame was not allocated by [`crate::Vm::wire_page`].
    NotWired(Pfn),
    /// The file is not open.
    NotOpen(u32),
    /// A page that the operation would release is being read into this frame: wait for [`crate::Vm::read_done`] and try
    /// again.
    Busy(Pfn),
    /// No read into this frame is in progress.
    NotBusy(Pfn),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Frames(frames) => write!(f, "memory needs from 1 to 2^32 - 1 frames of a base page, not {frames}"),
            Error::NoSpace(SpaceId(space)) => write!(f, "address space {space} does not exist; create it first"),
            Error::Range { start, pages } => {
                write!(f, "a range of {pages} pages at page {start:#x} is empty or ends beyond page 2^52")
            }
            Error::Unmapped(at) => write!(f, "nothing that could grow or move is mapped at page {:#x}", at.0),
            Error::Overlap(at) => write!(f, "a mapping cannot move to page {:#x}: it would overlap itself", at.0),
            Error::NoFrame => f.write_str("no frame is left for the kernel; run the page daemon, and try again"),
            Error::NotWired(frame) => write!(f, "frame {} was not allocated by the kernel", frame.0),
            Error::NotOpen(file) => write!(f, "file {file} is not open; open it first"),
            Error::Busy(frame) => write!(f, "frame {} is being read into; try again when that is done", frame.0),
            Error::NotBusy(frame) => write!(f, "no read into frame {} is in progress", frame.0),
            Error::NotFree => f.write_str("only frames that lie in memory and are all free can be wired"),
        }
    }
}

impl core::error::Error for Error {}

/// Why a fault cannot be resolved. No populated page is lost, but reservations may have been preempted and cache pages
/// dropped, and statistics count the attempt. After [`FaultError::Busy`] the page is populated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultError {
    /// The address space does not exist.
    NoSpace(SpaceId),
    /// Nothing is mapped at the page.
    Unmapped(Vpn),
    /// The mapping does not allow the access.
    Protection(Vpn, Access),
    /// No frame is left, not even in a reservation.
    OutOfMemory(Vpn),
    /// [`crate::Memory`] could not fill the page's frame.
    Contents(Vpn),
    /// The page is being read into this frame: wait for [`crate::Vm::read_done`], without holding the manager, and
    /// retry the access.
    Busy(Pfn),
    /// The file to be read or written is not open.
    NotOpen(u32),
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultError::NoSpace(SpaceId(space)) => write!(f, "address space {space} does not exist; create it first"),
            FaultError::Unmapped(at) => write!(f, "page {:#x} is not mapped", at.0),
            FaultError::Protection(at, access) => {
                write!(f, "the mapping of page {:#x} does not allow the access {access:?}", at.0)
            }
            FaultError::Busy(frame) => {
                write!(f, "the page is being read into frame {}; try again when that is done", frame.0)
            }
            FaultError::Contents(at) => {
                write!(f, "the frame of page {:#x} could not be filled with its contents", at.0)
            }
            FaultError::NotOpen(file) => write!(f, "file {file} is not open; open it first"),
            FaultError::OutOfMemory(at) => {
                write!(f, "no frame is left for page {:#x}; give the machine more memory, or end a process", at.0)
            }
        }
    }
}

impl core::error::Error for FaultError {}
