//! The records of a final trace of drmemtrace, 12 bytes each: kind, size, and an address or a
//! value, little-endian.
//!
//! Numbers are those of DynamoRIO's `clients/drcachesim/common/trace_entry.h` (`trace_type_t`,
//! `trace_marker_type_t`, `offline_file_type_t`). Versions differ in markers and kinds that were
//! added, not in what a number means.

/// Bytes of a record.
pub(super) const BYTES: usize = 12;

/// The versions that are read: up to `TRACE_ENTRY_VERSION_RETIRED_INSTRUCTIONS_ONLY`, which is of
/// DynamoRIO 11.
pub(super) const VERSIONS: std::ops::RangeInclusive<u64> = 1..=7;

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    Write,
    Prefetch,
    /// An instruction that was fetched; of size 0, only the address of what follows.
    Fetch,
    /// An instruction that was fetched unless it is the previous one again.
    MaybeFetch,
    /// An iteration of a string instruction: executed, and not fetched again.
    NoFetch,
    /// Up to eight more instructions, one after the other: their number is the size, their lengths
    /// are the value.
    Bundle,
    Flush,
    /// The end of a flush that was counted at its beginning, an instruction's encoding, or the end
    /// of a thread: not needed.
    Ignored,
    Thread,
    Process,
    Header,
    Footer,
    Marker,
}

impl Kind {
    pub(super) fn of(number: u16) -> Option<Kind> {
        Some(match number {
            0 => Kind::Read,
            1 => Kind::Write,
            2..=9 | 27 | 32..=46 => Kind::Prefetch,
            10..=16 | 31 | 48 | 49 => Kind::Fetch,
            17 => Kind::Bundle,
            18 | 20 => Kind::Flush,
            19 | 21 | 23 | 47 => Kind::Ignored,
            22 => Kind::Thread,
            24 => Kind::Process,
            25 => Kind::Header,
            26 => Kind::Footer,
            28 => Kind::Marker,
            29 => Kind::NoFetch,
            30 => Kind::MaybeFetch,
            _ => return None,
        })
    }
}

/// Kinds of markers, which are the sizes of their records.
pub(super) mod marker {
    pub(in super::super) const TIMESTAMP: u16 = 2;
    pub(in super::super) const CPU: u16 = 3;
    pub(in super::super) const FILE_TYPE: u16 = 9;
    pub(in super::super) const WINDOW: u16 = 14;
    pub(in super::super) const PHYSICAL_ADDRESS: u16 = 15;
    pub(in super::super) const VIRTUAL_ADDRESS: u16 = 17;
    pub(in super::super) const PAGE_SIZE: u16 = 18;
    pub(in super::super) const CHUNK_INSTRUCTIONS: u16 = 20;
    pub(in super::super) const CHUNK_FOOTER: u16 = 21;
    pub(in super::super) const SYSTEM_CALL_BEGINS: u16 = 27;
    pub(in super::super) const SYSTEM_CALL_ENDS: u16 = 28;
    pub(in super::super) const CONTEXT_SWITCH_BEGINS: u16 = 34;
    pub(in super::super) const CONTEXT_SWITCH_ENDS: u16 = 35;
}

/// The bits of a file type that say that a cache filtered addresses while they were recorded: all,
/// fetches, data.
pub(super) const FILTERED: u64 = 0x1 | 0x80 | 0x100;
