//! The protocol between plugin and collector: chunks of 64-bit words on a stream socket, one
//! connection per process.
//!
//! A chunk is a header of two words and the words of one thread, in order: they follow, or they are
//! in a slot of the thread's file, of which the header has the number. A word is a run of accesses
//! or, between runs, the beginning of an event, whose payload is in the following words. A word of
//! 0 in place of either marks the end of what a process wrote before it was killed.
//!
//! A thread's file begins with [`FRONT_WORDS`] words, of which the first says how many of the
//! thread's chunks the collector has taken, in whichever way they came. Slots follow. Each begins
//! with [`SLOT_FRONT_WORDS`] words, of which the first is the number of the chunk that was last
//! written there, from 1, and then has room for a chunk and an end mark. So a slot is free when its
//! chunk was taken, and of a process that was killed those are to be salvaged that were not. In the
//! other direction goes one byte of any value: a farewell, when the collector releases a process
//! that may continue. This file is compiled into the plugin and into the collector.

/// The version of this protocol; both sides come from one build, so a difference is a mistake.
pub(crate) const VERSION: u64 = 8;
/// The first word of a chunk; the second is `thread << 32 | words`.
pub(crate) const CHUNK: u64 = 0x7375_7065_7270_6167;
/// The first word of a chunk in a slot, plus the slot; the second is the same.
pub(crate) const SWAPPED: u64 = 0x7375_7065_7273_0000;
/// The first word of a message that a thread has ended and its file is not needed any more; the
/// second is `thread << 32`.
pub(crate) const THREAD_ENDS: u64 = 0x7375_7065_7274_6865;
/// The token of the first process.
pub(crate) const FIRST: u64 = 1;
/// The most words in a chunk: 64 KB.
pub(crate) const CHUNK_WORDS: usize = 8192;
/// Chunks of more words go into slots.
pub(crate) const SHORT_WORDS: usize = 256;
/// The most slots of a thread.
pub(crate) const SLOTS: usize = 16;
/// The words before the first slot.
pub(crate) const FRONT_WORDS: usize = 8;
/// The words of a slot before its chunk.
pub(crate) const SLOT_FRONT_WORDS: usize = 8;
/// The words of a slot: with the end mark, in whole cache lines.
pub(crate) const SLOT_WORDS: usize = SLOT_FRONT_WORDS + CHUNK_WORDS + 8;

/// The position of the number of a run's page or line, or the code of an event, after kind and
/// flags.
pub(crate) const NUMBER_SHIFT: u32 = 4;
/// The position of the count of payload words of an event.
pub(crate) const PAYLOAD_SHIFT: u32 = 46;

/// What the accesses of a run are to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The bits of a byte's place in it.
    pub(crate) shift: u32,
    /// The position of the count of accesses in a run's word, after bits 0 to 47 of the address
    /// without those of the place.
    pub(crate) count_shift: u32,
}

/// Pages of 4 KB.
pub(crate) const PAGES: Unit = Unit { shift: 12, count_shift: 40 };
/// Lines of 64 bytes.
pub(crate) const LINES: Unit = Unit { shift: 6, count_shift: 46 };

impl Unit {
    /// Its bytes.
    pub(crate) const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// The bits of a run's word that hold its number.
    pub(crate) const fn number_bits(self) -> u64 {
        (1 << self.count_shift) - (1 << NUMBER_SHIFT)
    }

    /// The limit of the count in one word; a longer run continues in the next word.
    pub(crate) const fn count_limit(self) -> u64 {
        1 << (64 - self.count_shift)
    }

    /// The word of a run, without its count: an address in its page or line, a kind and flags.
    pub(crate) const fn run(self, address: u64, bits: u64) -> u64 {
        (address >> self.shift << NUMBER_SHIFT) & self.number_bits() | VALID | bits
    }
}

/// Set in every word that is not payload.
pub(crate) const VALID: u64 = 8;
/// The first access of this run of fetches is the second half of an instruction that began on the
/// previous page or line.
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
    /// `[start, pages] [protection | SHARED | GROWS_* | FILE, device] [inode, length in bytes]
    /// [offset in pages, 0]`.
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
    /// `[number of the phase, accesses that its window stands for, 0 for a period of the
    /// sampling]`: another phase of a sampled recording begins.
    pub(crate) const PHASE: u64 = 13;
    /// `[start, pages] [number of the hint, 0]`.
    pub(crate) const ADVISE: u64 = 14;
    /// `[place of the path in PATHS, address of the buffer] [bytes, 0]`: a system call has
    /// returned.
    pub(crate) const CALL: u64 = 15;
    /// `[milliseconds, when]`: a call that waits until a time has returned then, `when` by the
    /// system's monotonic clock in milliseconds. It took so long, less the processor time that its
    /// process used.
    pub(crate) const SLEPT: u64 = 16;
}

/// The paths of system calls that are told apart: what copies nothing, and what copies from or to a
/// file or a pipe.
pub(crate) const PATHS: [&str; 5] = ["null", "read", "write", "pipe-read", "pipe-write"];

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
    (payload as u64) << PAYLOAD_SHIFT | code << NUMBER_SHIFT | VALID | EVENT
}
