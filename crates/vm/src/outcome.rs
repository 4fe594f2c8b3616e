//! What the manager is asked to do to a region, and what a fault, a promotion and a compaction did.

use crate::{SpaceId, Stats};
use superpage_pages::{Level, Pfn, Vpn};

/// How a fault was resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// A page of zeroes was populated.
    Zero,
    /// The zero page was mapped, without the right to write: the page takes no memory before it is
    /// written.
    ZeroPage,
    /// A page was populated from a file.
    File,
    /// A page was populated from swap space.
    Swap,
    /// The page was a cache page, and was populated again with its contents.
    Cached,
    /// The page was populated already, and is now mapped here as well.
    Resident,
    /// The page was copied, at its first write.
    Copy,
    /// The mapping was only given the right to write.
    Rights,
    /// The mapping was there, with enough rights: the fault was resolved meanwhile, as by another
    /// processor.
    Spurious,
}

/// What was done to resolve a fault, for callers that charge time for it. The access can be retried
/// at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a fault that failed must end somewhere, and one that was resolved be tried again"]
#[non_exhaustive]
pub struct Fault {
    /// How it was resolved.
    pub kind: FaultKind,
    /// The frame of the page, which holds its contents.
    pub frame: Pfn,
    /// The frame that the page was copied from: always if `kind` is [`FaultKind::Copy`], and if it
    /// is [`FaultKind::Cached`] and the page could not stay in its frame. That frame may hold
    /// another page by now.
    pub source: Option<Pfn>,
    /// Whether the page was populated and its frame was reserved.
    pub reserved: bool,
    /// The level of the extent that was asked for: a base page's if the frame was reserved, or
    /// nothing larger fits or is wanted.
    pub wanted: Level,
    /// The level of the extent that was allocated, if one was.
    pub allocated: Option<Level>,
    /// Reservations preempted for that allocation.
    pub preempted: u32,
    /// The level of the page that maps the address now: above the base page's after a promotion.
    pub mapped: Level,
    /// Bytes of zeroes written: to the page, and to whatever was populated around it.
    pub zeroed: u64,
    /// Bytes copied: of the page, and by compaction.
    pub copied: u64,
}

impl Fault {
    /// A fault that took no frame.
    pub(crate) fn new(kind: FaultKind, frame: Pfn, mapped: Level) -> Fault {
        let (source, wanted) = (None, Level::BASE);
        let (allocated, zeroed, copied) = (None, 0, 0);
        Fault { kind, frame, source, reserved: false, wanted, allocated, preempted: 0, mapped, zeroed, copied }
    }

    /// This fault, with what has been zeroed and copied since `before` ([`Stats::filled`]).
    pub(crate) fn since(self, [zeroed, copied]: [u64; 2], now: &Stats) -> Fault {
        Fault { zeroed: now.bytes_zeroed - zeroed, copied: now.bytes_copied - copied, ..self }
    }
}

/// A part of an address space that a page of one level may map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// The space.
    pub space: SpaceId,
    /// The first page.
    pub start: Vpn,
    /// The level of a page of the region's size.
    pub level: Level,
}

/// How a region may be promoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Only in place: if it lies in one extent already.
    InPlace,
    /// Only by copying it into another extent.
    ByCopying,
    /// In place if possible, otherwise by copying.
    Either,
}

/// A promotion that is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Promotion {
    pub(crate) region: Region,
    /// How many of its pages must be populated.
    pub(crate) least: u32,
    pub(crate) how: How,
}

/// What the promotion of a region did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Promoted {
    /// Base pages that were copied.
    pub copied: u64,
    /// Base pages that were populated with zeroes although nobody touched them.
    pub zeroed: u64,
}

/// What a compaction did ([`System::compact`](crate::System::compact)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compacted {
    /// Base pages that were copied elsewhere.
    pub moved: u64,
    /// Base pages that stayed: wired, being read, part of something as large as the extent, or
    /// without a free frame elsewhere.
    pub failed: u64,
    /// Whether all of the extent is free now.
    pub free: bool,
}
