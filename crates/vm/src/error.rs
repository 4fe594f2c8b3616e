//! Why an operation or a fault fails.

use crate::SpaceId;
use superpage_pages::{Access, Bytes, PageSize, Pfn, Vpn};

/// The end of virtual memory and of files: page numbers are below this.
pub const PAGES_LIMIT: u64 = 1 << 52;

/// Why an operation was refused. The state is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The number of frames is 0, or does not fit in 32 bits.
    #[error("memory needs from 1 to 2^32 - 1 frames of a base page, not {0}")]
    Frames(u64),
    /// The address space does not exist.
    #[error("address space {} does not exist; create it first", .0.0)]
    NoSpace(SpaceId),
    /// The range is empty, or does not end below [`PAGES_LIMIT`].
    #[error("a range of {pages} pages at page {start:#x} is empty or ends beyond page 2^52")]
    Range {
        /// The first page.
        start: u64,
        /// The number of pages.
        pages: u64,
    },
    /// Nothing that could grow or move is mapped there.
    #[error("nothing that could grow or move is mapped at page {:#x}", .0.0)]
    Unmapped(Vpn),
    /// The ranges before and after a move overlap.
    #[error("a mapping cannot move to page {:#x}: it would overlap itself", .0.0)]
    Overlap(Vpn),
    /// The frames to be wired do not lie in memory, or are not all free.
    #[error("only frames that lie in memory and are all free can be wired")]
    NotFree,
    /// No frame is left, not even in a reservation.
    #[error("no frame is left for the kernel; run the page daemon, and try again")]
    NoFrame,
    /// The frame was not allocated by [`crate::Vm::wire_page`].
    #[error("frame {} was not allocated by the kernel", .0.0)]
    NotWired(Pfn),
    /// A background has given more different preferences than there are numbers for them.
    #[error("there are 65536 different preferences already")]
    Preferences,
    /// The file is not open.
    #[error("file {0} is not open; open it first")]
    NotOpen(u32),
    /// A page that the operation would release is being read into this frame: wait for
    /// [`crate::Vm::read_done`] and try again.
    #[error("frame {} is being read into; try again when that is done", .0.0)]
    Busy(Pfn),
    /// Memory has no pages of this size that a static pool could be made of.
    #[error("a static pool cannot be made of pages of {0}: memory has no superpages of that size")]
    PoolSize(PageSize),
    /// So many pages of the static pool are wanted, and so many fit.
    #[error(
        "a pool of {} does not fit: {fits} free extents of {size} are left, {}; ask for at most that",
        Bytes(wanted * size.bytes()),
        Bytes(fits * size.bytes())
    )]
    PoolRoom {
        /// The size of its pages.
        size: PageSize,
        /// How many are to be set aside.
        wanted: u64,
        /// How many are free.
        fits: u64,
    },
    /// The static pool has too few pages left for a mapping, in bytes.
    #[error(
        "a mapping wants {} of the pool, and {} are left; give a larger pool, or surplus",
        Bytes(*wanted),
        Bytes(*left)
    )]
    PoolShort {
        /// What the mapping wants.
        wanted: u64,
        /// What is free and not reserved.
        left: u64,
    },
    /// What is asked for would cut a page of the static pool, move it to where it is not aligned,
    /// let it grow, or advise on it.
    #[error("page {:#x} is mapped from the pool, whose pages can only be changed whole", .0.0)]
    PoolPage(Vpn),
    /// No read into this frame is in progress.
    #[error("no read into frame {} is in progress", .0.0)]
    NotBusy(Pfn),
}

/// Why a fault cannot be resolved. No populated page is lost, but reservations may have been
/// preempted and cache pages dropped, and statistics count the attempt. After [`FaultError::Busy`]
/// the page is populated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// The address space does not exist.
    #[error("address space {} does not exist; create it first", .0.0)]
    NoSpace(SpaceId),
    /// Nothing is mapped at the page.
    #[error("page {:#x} is not mapped", .0.0)]
    Unmapped(Vpn),
    /// The mapping does not allow the access.
    #[error("the mapping of page {:#x} does not allow the access {:?}", .0.0, .1)]
    Protection(Vpn, Access),
    /// No frame is left, not even in a reservation. From [`crate::Vm::read`] and
    /// [`crate::Vm::write`] the number is of a page of the file, not of an address space.
    #[error("no frame is left for page {:#x} of the address space or file; give the machine more memory, or end a process", .0.0)]
    OutOfMemory(Vpn),
    /// The mapping is of the static pool, and no page of that is left: a SIGBUS.
    #[error("no page of the pool is left for page {:#x}, which is not reserved; give a larger pool, or surplus", .0.0)]
    NoPoolPage(Vpn),
    /// [`crate::Memory`] could not fill the page's frame. The number is as for
    /// [`FaultError::OutOfMemory`].
    #[error("the frame of page {:#x} of the address space or file could not be filled with its contents", .0.0)]
    Contents(Vpn),
    /// The page is being read into this frame: wait for [`crate::Vm::read_done`], without holding
    /// the manager, and retry the access.
    #[error("the page is being read into frame {}; try again when that is done", .0.0)]
    Busy(Pfn),
    /// The file to be read or written is not open.
    #[error("file {0} is not open; open it first")]
    NotOpen(u32),
}
