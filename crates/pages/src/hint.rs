//! What a program asks for.

use core::fmt;

/// What a program asks for a part of its memory: madvise(2), or mmap(2).
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
    /// Memory for a stack (`MAP_STACK`), when it is mapped: what that means is the policy's.
    Stack = 3,
}

impl Hint {
    /// The hint with this number, in the order of their declaration.
    pub const fn from_number(number: u64) -> Option<Hint> {
        match number {
            0 => Some(Hint::None),
            1 => Some(Hint::Huge),
            2 => Some(Hint::Base),
            3 => Some(Hint::Stack),
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
            Hint::Stack => "stack",
        })
    }
}
