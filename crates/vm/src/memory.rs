//! The seam between the memory manager and what is in memory: contents of frames, and the store that they come from and go to.

use crate::{Buddy, SpaceId};
use superpage_pages::{Extent, Pfn, Vpn};

/// Where the contents of a page are when they are in no frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Backed {
    /// In a file.
    File {
        /// The number of the file.
        file: u32,
        /// The page of it.
        page: u64,
    },
    /// In swap space.
    Swap {
        /// The number of the page-sized slot, below the number of slots of [`crate::Config`].
        slot: u32,
    },
}

/// What a frame is filled for: the name of its page, for those who keep books by page.
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
        /// The page of it.
        page: u64,
    },
}

/// The contents that a frame was to be filled with cannot be had: the device failed, or the system below is out of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoContents;

/// Whether a frame has what it was to be filled with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// It has.
    Now,
    /// It will: the read was begun, and [`crate::Vm::read_done`] is called when it is over.
    Later,
}

/// What frames hold, as the memory manager sees it: whoever implements this fills frames, and moves contents to and from the
/// backing store. The manager itself never touches contents.
///
/// A frame is filled before it is entered into a page table, so that no program sees what another one left in it.
pub trait Memory {
    /// Fills `frames` frames from `first` on with zeroes: one, or all of a superpage that is populated at once.
    ///
    /// # Errors
    /// It cannot be done. The page stays unpopulated, and the fault ends with [`crate::FaultError::Contents`].
    fn zero(&mut self, first: Pfn, frames: u64, page: Page) -> Result<(), NoContents>;

    /// Fills a frame from another one, which may count as free already, and stays as it is.
    fn copy(&mut self, from: Pfn, to: Pfn, page: Page);

    /// Fills a frame from the backing store. Where the store is slow this may begin the read and return [`Filled::Later`]:
    /// then the page is *busy*, and the manager free for others, until [`crate::Vm::read_done`]. A read that fails then is asked for
    /// again by whoever needs the page: return the error that time.
    ///
    /// # Errors
    /// As [`Memory::zero`]; what the store has stays there.
    fn read(&mut self, from: Backed, to: Pfn, page: Page) -> Result<Filled, NoContents>;

    /// Writes the contents of the frame out; when it returns, the frame may be used for something else. It cannot fail: a store
    /// that fails to write must keep the contents in some other way, or end the process.
    fn write(&mut self, to: Backed, frame: Pfn);

    /// A digest of the contents of the frame. Two frames of equal digests are taken to be equal, so it must be wide and
    /// mix well. Asked for only under a policy that infers dirty pages from digests (Navarro et al., section 4.7).
    fn digest(&mut self, frame: Pfn) -> u128;

    /// An extent was reserved for the pages around `page`, which is filled next. Whoever can make memory contiguous at once does it
    /// here; frames of it that `buddy` has as cached still hold what may be asked for again, and the others hold nothing.
    /// Nothing need be done.
    fn reserved(&mut self, _extent: Extent, _page: Page, _buddy: &Buddy) {}
}

/// A memory without contents: it fills nothing, and loses what it is given. For the study of policies and for benchmarks.
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
