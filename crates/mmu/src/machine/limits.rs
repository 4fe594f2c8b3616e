//! Limits of a machine: the models' data structures have room for this many.

/// The most TLB levels.
pub const MAX_TLB_LEVELS: usize = 8;
/// The most levels of caches for page-table lines.
pub const MAX_LINE_LEVELS: usize = 4;
/// The most levels of a page table, and so the highest level of a walk cache.
pub const MAX_WALK_LEVELS: usize = 5;

/// The most ways of a set: they are numbered in 16 bits.
pub(crate) const MAX_WAYS: usize = (1 << 16) - 1;

/// The most ways of a set whose tags are compared at once, so that its keys may be far apart.
pub(crate) const SEARCHED_WAYS: usize = 64;

/// Bytes of a page-table entry, the same on all machines.
pub(crate) const ENTRY_BYTES: u64 = 8;

/// Where some of these are shadow addresses, the lines of memory are below this number, and they
/// are not.
pub(crate) const SHADOW_LINES: u64 = 1 << 30;

/// The most pages of a block.
pub(crate) const JOINED_PAGES: usize = 32;

/// The bits of a byte's place in a line of the stream.
pub(crate) const STREAM_LINE_SHIFT: u32 = 6;
