//! Kinds of access, and sets of the rights that allow them.

use core::fmt;
use core::ops::{BitAnd, BitOr, Not};

/// One kind of access to memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Access {
    /// A load.
    Read = 0,
    /// A store.
    Write = 1,
    /// An instruction fetch.
    Execute = 2,
}

/// A set of rights to a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Protection(u8);

impl Protection {
    /// No access.
    pub const NONE: Protection = Protection(0);
    /// The right to load.
    pub const READ: Protection = Protection(1);
    /// The right to store.
    pub const WRITE: Protection = Protection(2);
    /// The right to fetch instructions.
    pub const EXECUTE: Protection = Protection(4);
    /// To load and to store.
    pub const READ_WRITE: Protection = Protection(3);
    /// To load and to execute.
    pub const READ_EXECUTE: Protection = Protection(5);
    /// Everything.
    pub const ALL: Protection = Protection(7);

    /// The set whose bits 0, 1, 2 stand for read, write, execute; other bits are dropped.
    pub const fn from_bits(bits: u8) -> Protection {
        Protection(bits & 7)
    }

    /// Bits 0, 1, 2 for read, write, execute.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether every right of `other` is in this set.
    pub const fn contains(self, other: Protection) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the set allows `access`.
    pub const fn allows(self, access: Access) -> bool {
        self.0 & (1 << access as u8) != 0
    }
}

impl BitOr for Protection {
    type Output = Protection;
    fn bitor(self, other: Protection) -> Protection {
        Protection(self.0 | other.0)
    }
}

impl BitAnd for Protection {
    type Output = Protection;
    fn bitand(self, other: Protection) -> Protection {
        Protection(self.0 & other.0)
    }
}

impl Not for Protection {
    type Output = Protection;
    fn not(self) -> Protection {
        Protection(!self.0 & 7)
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in ['r', 'w', 'x'].into_iter().enumerate() {
            let shown = if self.0 & (1 << bit) != 0 { letter } else { '-' };
            write!(f, "{shown}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
