//! The seam between the memory manager and the backing store.

use superpage_pages::Pfn;

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

/// The backing store, as the memory manager sees it.
///
/// Pages are read by whoever resolves a fault, as [`crate::Fault::backed`] says; they are written when the manager calls
/// here. Calls cannot fail: a store that fails to write must keep the contents in some other way, or end the process.
pub trait Store {
    /// Writes the contents of the frame out; when it returns, the frame may be used for something else.
    fn write(&mut self, to: Backed, frame: Pfn);

    /// A digest of the contents of the frame. Two frames of equal digests are taken to be equal, so it must be wide and
    /// mix well. Asked for only under a policy that infers dirty pages from digests (Navarro et al., section 4.7).
    fn digest(&mut self, frame: Pfn) -> u128;
}

/// A store that loses what it is given: for worlds without backing store, such as a policy that reclaims nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoStore;

impl Store for NoStore {
    fn write(&mut self, _: Backed, _: Pfn) {}

    fn digest(&mut self, _: Pfn) -> u128 {
        0
    }
}
