//! Whom a frame belongs to, as far as it matters to who wants contiguous memory.

/// Whether a frame is free, and whether it can become so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameUse {
    /// Nobody's.
    Free,
    /// In use, by what can be moved elsewhere: pages of programs and of files.
    Movable,
    /// In use, where it is for good: the kernel's own.
    Immovable,
}
