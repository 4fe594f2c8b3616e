//! What a program asks for.

use core::fmt;

/// What a program asks for a part of its memory: madvise(2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Hint {
    /// Nothing.
    #[default]
    None = 0,
    /// Superpages (`MADV_HUGEPAGE`).
    Huge = 1,
    /// Base pages only (`MADV_NOHUGEPAGE`).
    Base = 2,
}

impl Hint {
    /// The hint with this number, in the order of their declaration.
    pub const fn from_number(number: u64) -> Option<Hint> {
        match number {
            0 => Some(Hint::None),
            1 => Some(Hint::Huge),
            2 => Some(Hint::Base),
            _ => None,
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hint::None => "none",
            Hint::Huge => "huge",
            Hint::Base => "base",
        })
    }
}
