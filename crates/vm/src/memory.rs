//! The interface between the memory manager and the contents of memory: what frames hold, and the
//! backing store.

use crate::{Buddy, SpaceId};
use superpage_pages::{Extent, Pfn, Vpn};

/// Where the contents of a page are when no frame holds them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Backed {
    /// In a file.
    File {
        /// The number of the file.
        file: u32,
        /// The page within the file.
        page: u64,
    },
    /// In swap space.
    Swap {
        /// The number of the page-sized slot, below the number of slots of [`crate::Config`].
        slot: u32,
    },
}

/// The page for which a frame is filled, for implementations that keep records by page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Page {
    /// A page of an address space, which will be mapped there.
    Mapped {
        /// The space.
        space: SpaceId,
        /// The page; of an extent, the page that was touched.
        at: Vpn,
    },
    /// A page of a file that is read without a mapping ([`crate::Vm::read`]).
    File {
        /// The number of the file.
        file: u32,
        /// The page within the file.
        page: u64,
    },
    /// None: a free frame is zeroed ahead of need ([`crate::Vm::zero_ahead`]), or to be the zero
    /// page ([`crate::ZeroPage`]), which many will map.
    Free,
}

/// A frame could not be filled: the device failed, or the system below is out of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoContents;

/// Whether a frame has been filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// It has been filled.
    Now,
    /// The read has been started; [`crate::Vm::read_done`] is called when it ends.
    Later,
}

/// What frames hold, as the memory manager sees it: an implementation fills frames, and moves
/// contents to and from the backing store. The manager itself never touches contents.
///
/// A frame is filled before it is entered into a page table, so that no program sees what another
/// one left there.
pub trait Memory {
    /// Fills `frames` frames from `first` on with zeroes: one, or all of a superpage that is
    /// populated at once.
    ///
    /// # Errors
    /// The frames could not be filled. The page stays unpopulated, and the fault ends with
    /// [`crate::FaultError::Contents`].
    fn zero(&mut self, first: Pfn, frames: u64, page: Page) -> Result<(), NoContents>;

    /// Fills a frame with the contents of another one, which may already count as free, and which
    /// is left unchanged.
    fn copy(&mut self, from: Pfn, to: Pfn, page: Page);

    /// Fills a frame from the backing store. If the store is slow this may start the read and
    /// return [`Filled::Later`]: then the page is *busy*, and the manager is free for others, until
    /// [`crate::Vm::read_done`]. If that read fails, this is called again by whoever needs the
    /// page: return the error that time.
    ///
    /// # Errors
    /// As for [`Memory::zero`]; the contents in the store stay there.
    fn read(&mut self, from: Backed, to: Pfn, page: Page) -> Result<Filled, NoContents>;

    /// As [`Memory::read`], of a private page that is first touched by a write: the frame gets a
    /// copy of what the file has, and the file's own page stays in no frame. Kernels with a page
    /// cache would bring that in too; the default reads.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn read_private(&mut self, from: Backed, to: Pfn, page: Page) -> Result<Filled, NoContents> {
        self.read(from, to, page)
    }

    /// Writes out the contents of the frame; when this returns, the frame may be reused. It cannot
    /// fail: if the store fails, the implementation must keep the contents in some other way, or
    /// end the process.
    fn write(&mut self, to: Backed, frame: Pfn);

    /// A digest of the contents of the frame. Two frames with equal digests are assumed to be
    /// equal, so it must be wide and mix well. Called only under a policy that infers dirty pages
    /// from digests (Navarro et al., section 4.7).
    fn digest(&mut self, frame: Pfn) -> u128;

    /// Whether the frame is known to hold zeroes and nothing else. Called only where a policy gives
    /// back pages of zeroes ([`System::shrink`](crate::System::shrink)).
    fn is_zero(&mut self, _frame: Pfn) -> bool {
        false
    }

    /// An extent was reserved for the pages around `page`, which is filled next. An implementation
    /// that can make memory contiguous in bulk does so here. Frames of it that `buddy` marks as
    /// cached still hold contents that may be needed again; the others hold nothing. The default
    /// does nothing.
    fn reserved(&mut self, _extent: Extent, _page: Page, _buddy: &Buddy) {}
}

/// A memory without contents: it fills nothing and keeps nothing. For the study of policies and for
/// benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoMemory;

impl Memory for NoMemory {
    #[inline]
    fn zero(&mut self, _: Pfn, _: u64, _: Page) -> Result<(), NoContents> {
        Ok(())
    }

    #[inline]
    fn copy(&mut self, _: Pfn, _: Pfn, _: Page) {}

    #[inline]
    fn read(&mut self, _: Backed, _: Pfn, _: Page) -> Result<Filled, NoContents> {
        Ok(Filled::Now)
    }

    #[inline]
    fn write(&mut self, _: Backed, _: Pfn) {}

    fn digest(&mut self, _: Pfn) -> u128 {
        0
    }
}
