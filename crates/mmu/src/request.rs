//! A memory access of a program, and the traps that it may cause.

use superpage_pages::{Access, Protection, Vpn};

/// One access to one base page, packed into a word.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Request(u64);

impl Request {
    /// An access to the page, whose number is below 2^62.
    #[inline(always)]
    pub const fn new(page: Vpn, access: Access) -> Request {
        Request(page.0 << 2 | access as u64)
    }

    /// The page.
    #[inline(always)]
    pub const fn page(self) -> Vpn {
        Vpn(self.0 >> 2)
    }

    /// The kind of access.
    #[inline(always)]
    pub const fn access(self) -> Access {
        match self.0 & 3 {
            0 => Access::Read,
            1 => Access::Write,
            _ => Access::Execute,
        }
    }

    /// The access as a number, as in `Access as u64`.
    #[inline(always)]
    pub(crate) const fn access_bits(self) -> u64 {
        self.0 & 3
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:#x}", self.access(), self.page().0)
    }
}

/// Why a request could not be translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trap {
    /// Nothing is mapped there: a page fault.
    Absent,
    /// Something is mapped, with rights that do not allow the access.
    Rights {
        /// The rights of the mapping.
        held: Protection,
    },
}
