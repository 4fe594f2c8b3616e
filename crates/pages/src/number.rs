//! Page numbers and extents as types of their own, so that a virtual page number cannot be passed
//! for a physical one.

use crate::{Ladder, Level};
use core::fmt;

macro_rules! page_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The first base page of the aligned extent of `pages` (a power of two) base pages
            /// that holds this one.
            pub const fn align_down(self, pages: u64) -> $name {
                $name(self.0 & !(pages - 1))
            }

            /// Whether this is the first base page of an aligned extent of `pages` (a power of two)
            /// base pages.
            pub const fn is_aligned(self, pages: u64) -> bool {
                self.0 & (pages - 1) == 0
            }
        }

        impl core::ops::Add<u64> for $name {
            type Output = $name;
            fn add(self, pages: u64) -> $name {
                $name(self.0 + pages)
            }
        }

        impl core::ops::Sub<$name> for $name {
            type Output = u64;
            fn sub(self, other: $name) -> u64 {
                self.0 - other.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

page_number! {
    /// A virtual page number, in units of the machine's base page.
    Vpn
}

impl Vpn {
    /// So many pages from this one on.
    pub const fn pages(self, pages: u64) -> PageRange {
        PageRange { start: self, pages }
    }
}

/// Consecutive pages of an address space. It may be empty, or too long to exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRange {
    /// The first page.
    pub start: Vpn,
    /// The number of base pages.
    pub pages: u64,
}

page_number! {
    /// A physical page number, that is, a frame number, in units of the machine's base page.
    Pfn
}

/// An aligned run of contiguous frames: as many as a page at `level` has, starting at a multiple of
/// that number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// The first frame.
    pub start: Pfn,
    /// The size, as a level of the ladder in use.
    pub level: Level,
}

impl Extent {
    /// The extent at `level` that holds `frame`.
    pub fn around(ladder: &Ladder, frame: Pfn, level: Level) -> Extent {
        Extent { start: frame.align_down(ladder.pages(level)), level }
    }

    /// Whether `frame` lies in the extent.
    pub fn contains(&self, ladder: &Ladder, frame: Pfn) -> bool {
        frame.align_down(ladder.pages(self.level)) == self.start
    }
}
