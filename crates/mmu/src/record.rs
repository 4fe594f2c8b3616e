//! One entry of a modelled page table, in one word.

use superpage_pages::Protection;

/// A page-table entry as the simulator keeps it: what the modelled entry says, and where TLBs or walk caches were last
/// given it (see [`crate::associative`]). Absent, a pointer to a table below, or a leaf.
///
/// A page that is replicated over several entries (section 6.1) has its rights, bits and places in the first one, its
/// *head*; the others only say that they are leaves and of how many entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record(pub(crate) u64);

const LEAF: u64 = 1 << 3;
const REFERENCED: u64 = 1 << 4;
const DIRTY: u64 = 1 << 5;
const REPLICAS: u32 = 6;
const RUNG: u32 = 12;
const TABLE: u64 = 1 << 15;
const CHILD: u32 = 32;

/// The first bit for places.
pub(crate) const PLACES: u32 = 16;
/// The bits for places in a leaf, shared by all TLBs that hold pages of its size.
pub(crate) const LEAF_PLACE_BITS: u32 = 48;
/// The bits for the place in a pointer, in one walk cache.
pub(crate) const TABLE_PLACE_BITS: u32 = 16;

impl Record {
    /// Nothing.
    pub(crate) const ABSENT: Record = Record(0);

    /// A pointer to the table whose first record is `child`.
    pub(crate) fn table(child: u32) -> Record {
        Record(TABLE | (child as u64) << CHILD)
    }

    /// A leaf for a page at this rung of the ladder, replicated over `1 << replicas` entries.
    pub(crate) fn leaf(rung: usize, replicas: u32, protection: Protection, used: (bool, bool)) -> Record {
        let used = if used.0 { REFERENCED } else { 0 } | if used.1 { DIRTY } else { 0 };
        Record(LEAF | used | protection.bits() as u64 | (replicas as u64) << REPLICAS | (rung as u64) << RUNG)
    }

    #[inline(always)]
    pub(crate) fn is_absent(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(crate) fn is_table(self) -> bool {
        self.0 & TABLE != 0
    }

    #[inline(always)]
    pub(crate) fn is_leaf(self) -> bool {
        self.0 & LEAF != 0
    }

    /// The first record of the table that this points to.
    #[inline(always)]
    pub(crate) fn child(self) -> u32 {
        (self.0 >> CHILD) as u32
    }

    /// The base-two logarithm of the number of entries that repeat this one.
    #[inline(always)]
    pub(crate) fn replicas(self) -> u32 {
        (self.0 >> REPLICAS) as u32 & 63
    }

    /// The level of the ladder that the page is of.
    #[inline(always)]
    pub(crate) fn rung(self) -> usize {
        (self.0 >> RUNG) as usize & 7
    }

    /// Whether the entry is a leaf that allows the access of this number (0 read, 1 write, 2 execute).
    #[inline(always)]
    pub(crate) fn allows(self, access: u64) -> bool {
        let needed = LEAF | 1 << access;
        self.0 & needed == needed
    }

    pub(crate) fn protection(self) -> Protection {
        Protection::from_bits(self.0 as u8)
    }

    pub(crate) fn with_protection(self, protection: Protection) -> Record {
        Record(self.0 & !7 | protection.bits() as u64)
    }

    pub(crate) fn referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    pub(crate) fn dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// The entry after an access of this number: referenced, and dirty if it was a write.
    #[inline(always)]
    pub(crate) fn used_by(self, access: u64) -> Record {
        Record(self.0 | REFERENCED | (access & 1) * DIRTY)
    }

    pub(crate) fn without_referenced(self) -> Record {
        Record(self.0 & !REFERENCED)
    }

    pub(crate) fn without_dirty(self) -> Record {
        Record(self.0 & !DIRTY)
    }

    /// The place that was noted in these bits.
    #[inline(always)]
    pub(crate) fn place(self, shift: u32, mask: u64) -> usize {
        (self.0 >> shift & mask) as usize
    }

    /// Notes a place.
    #[inline(always)]
    pub(crate) fn with_place(self, shift: u32, mask: u64, place: usize) -> Record {
        Record(self.0 & !(mask << shift) | (place as u64) << shift)
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_table() {
            write!(f, "table {:#x}", self.child())
        } else if self.is_leaf() {
            let (rung, replicas) = (self.rung(), 1u64 << self.replicas());
            write!(f, "leaf {} rung {rung} x{replicas} r={} d={}", self.protection(), self.referenced(), self.dirty())
        } else {
            write!(f, "absent")
        }
    }
}
