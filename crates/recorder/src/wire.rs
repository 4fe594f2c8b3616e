//! The protocol between plugin and collector: chunks of 64-bit words on a stream socket, one connection per process.
//!
//! A chunk is a header of two words and the words of one thread, in order. A word is a run of accesses or, between
//! runs, the beginning of an event, whose payload is in the following words. A word of 0 in place of either marks the
//! end of what a process wrote before it was killed. In the other direction goes one byte of any value: a farewell,
//! when the collector releases a process that may continue. This file is compiled into the plugin and into the
//! collector.

/// The version of this protocol; both sides come from one build, so a difference is a mistake.
pub(crate) const VERSION: u64 = 4;
/// The first word of a chunk; the second is `thread << 32 | words`.
pub(crate) const CHUNK: u64 = 0x7375_7065_7270_6167;
/// The token of the first process.
pub(crate) const FIRST: u64 = 1;
/// The most words in a chunk: 64 KB.
pub(crate) const CHUNK_WORDS: usize = 8192;

/// The position of the page number of a run or the code of an event, after kind and flags.
pub(crate) const PAGE_SHIFT: u32 = 4;
/// The position of the count: of accesses of a run, of payload words of an event.
pub(crate) const COUNT_SHIFT: u32 = 40;
/// The bits of a run's word that hold its page.
pub(crate) const PAGE_BITS: u64 = (1 << COUNT_SHIFT) - (1 << PAGE_SHIFT);
/// The limit of the count in one word; a longer run continues in the next word.
pub(crate) const COUNT_LIMIT: u64 = 1 << (64 - COUNT_SHIFT);
/// Set in every word that is not payload.
pub(crate) const VALID: u64 = 8;
/// The first access of this run of fetches is the second half of an instruction that began on the previous page.
pub(crate) const STRADDLE: u64 = 4;
/// Loads.
pub(crate) const READ: u64 = 0;
/// Stores.
pub(crate) const WRITE: u64 = 1;
/// Instruction fetches.
pub(crate) const EXECUTE: u64 = 2;
/// Not a run but an event.
pub(crate) const EVENT: u64 = 3;

/// Events by their codes.
pub(crate) mod code {
    /// The first of a connection: `[version, token of the process]`.
    pub(crate) const HELLO: u64 = 0;
    /// `[start, pages] [protection | SHARED | GROWS_* | FILE, device] [inode, length in bytes] [offset in pages, 0]`.
    pub(crate) const MAP: u64 = 1;
    /// `[start, pages]`.
    pub(crate) const UNMAP: u64 = 2;
    /// `[start, pages] [protection, 0]`.
    pub(crate) const PROTECT: u64 = 3;
    /// `[start, pages]`.
    pub(crate) const DISCARD: u64 = 4;
    /// `[start, pages]`.
    pub(crate) const GROW: u64 = 5;
    /// `[from, pages] [to, pages]`.
    pub(crate) const REMAP: u64 = 6;
    /// `[token of the child, 0]`.
    pub(crate) const FORK: u64 = 7;
    /// Another program begins in this process.
    pub(crate) const EXEC: u64 = 8;
    /// The process ends.
    pub(crate) const EXIT: u64 = 9;
    /// `[data references, instructions]`: left out.
    pub(crate) const SKIPPED: u64 = 10;
    /// `[bytes, 0]`, then the text.
    pub(crate) const NOTE: u64 = 11;
    /// The process is about to lose this connection and will open another with the same token.
    pub(crate) const RECONNECT: u64 = 12;
    /// `[number of the phase, accesses that its window stands for, 0 for a period of the sampling]`: another phase of a sampled recording begins.
    pub(crate) const PHASE: u64 = 13;
    /// `[start, pages] [number of the hint, 0]`.
    pub(crate) const ADVISE: u64 = 14;
}

/// In [`code::MAP`]: others see writes.
pub(crate) const SHARED: u64 = 1 << 3;
/// In [`code::MAP`]: a heap, whose end moves.
pub(crate) const GROWS_UP: u64 = 1 << 4;
/// In [`code::MAP`]: a stack.
pub(crate) const GROWS_DOWN: u64 = 1 << 5;
/// In [`code::MAP`]: a file backs it.
pub(crate) const FILE: u64 = 1 << 6;

/// The word that begins an event with so many payload words.
pub(crate) const fn event(code: u64, payload: usize) -> u64 {
    (payload as u64) << COUNT_SHIFT | code << PAGE_SHIFT | VALID | EVENT
}

/// The word of a run, without its count: bits 12 to 47 of an address on the page, a kind and flags.
pub(crate) const fn run(address: u64, bits: u64) -> u64 {
    (address >> (12 - PAGE_SHIFT)) & PAGE_BITS | VALID | bits
}
