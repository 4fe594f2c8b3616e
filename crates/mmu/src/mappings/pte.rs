//! One entry of a modelled page table, in eight bytes.

use superpage_pages::{MAX_LEVELS, Protection, Used};

/// The levels of a ladder that an entry can tell apart. Arrays by level have this length, so no
/// index is out of bounds.
pub(crate) const SIZE_LEVELS: usize = 1 << 5;
const _: () = assert!(MAX_LEVELS <= SIZE_LEVELS);

/// A page-table entry (Pte) as the simulator keeps it: absent, a pointer to a table below, or a
/// leaf.
///
/// A page that is replicated over several entries (section 6.1) has its rights and use bits in the
/// first one, its *head*; the others only hold that they are leaves, and the number of entries.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct Pte {
    bits: u32,
    /// Of a pointer, the first page-table entry of the table; of the head of a shadow superpage,
    /// its number.
    child: u32,
}

const LEAF: u32 = 1 << 3;
/// The use bits.
pub(crate) const REFERENCED: u32 = 1 << 4;
pub(crate) const DIRTY: u32 = 1 << 5;
const TABLE: u32 = 1 << 6;
const SIZE_LEVEL: u32 = 7;
const REPLICAS: u32 = 12;
const REPLICAS_MASK: u32 = 31 << REPLICAS;
const SHADOW: u32 = 1 << 17;

/// By the number of an access (0 read, 1 write, 2 execute), the bits of a leaf of one entry that
/// such an access leaves unchanged: the right, and the use bits that it would set.
const READY: [u32; 4] =
    [LEAF | REFERENCED | 1, LEAF | REFERENCED | DIRTY | 2, LEAF | REFERENCED | 4, LEAF | REFERENCED | 8];

impl Pte {
    /// The absent entry.
    pub(crate) const ABSENT: Pte = Pte { bits: 0, child: 0 };

    /// A pointer to the table whose first page-table entry is `child`.
    pub(crate) fn table(child: u32) -> Pte {
        Pte { bits: TABLE, child }
    }

    /// A leaf for a page at this level of the ladder, replicated over `1 << replicas` entries.
    pub(crate) fn leaf(size_level: usize, replicas: u32, protection: Protection, used: Used) -> Pte {
        let used = if used.referenced { REFERENCED } else { 0 } | if used.modified { DIRTY } else { 0 };
        let bits = LEAF | used | protection.bits() as u32 | replicas << REPLICAS | (size_level as u32) << SIZE_LEVEL;
        Pte { bits, child: 0 }
    }

    /// The head of a shadow superpage with this number, whose base pages have separate use bits
    /// ([`crate::mappings`]): it is never ready, so that each access looks there.
    pub(crate) fn shadow(size_level: usize, replicas: u32, protection: Protection, number: u32) -> Pte {
        let leaf = Pte::leaf(size_level, replicas, protection, Used { referenced: true, modified: true });
        Pte { bits: leaf.bits | SHADOW, child: number }
    }

    /// Whether this is the head of a shadow superpage.
    #[inline(always)]
    pub(crate) fn is_shadow(self) -> bool {
        self.bits & SHADOW != 0
    }

    #[inline(always)]
    pub(crate) fn is_absent(self) -> bool {
        self.bits == 0
    }

    #[inline(always)]
    pub(crate) fn is_table(self) -> bool {
        self.bits & TABLE != 0
    }

    #[inline(always)]
    pub(crate) fn is_leaf(self) -> bool {
        self.bits & LEAF != 0
    }

    /// The first page-table entry of the table that this points to, or the number of the shadow
    /// superpage whose head it is.
    #[inline(always)]
    pub(crate) fn child(self) -> u32 {
        self.child
    }

    /// The base-two logarithm of the number of entries that repeat this one.
    #[inline(always)]
    pub(crate) fn replicas(self) -> u32 {
        (self.bits & REPLICAS_MASK) >> REPLICAS
    }

    /// The level of the page on the ladder.
    #[inline(always)]
    pub(crate) fn size_level(&self) -> usize {
        (self.bits >> SIZE_LEVEL) as usize % SIZE_LEVELS
    }

    /// This entry, for a page at another level of the ladder.
    pub(crate) fn with_size_level(self, size_level: usize) -> Pte {
        Pte { bits: self.bits & !((SIZE_LEVELS as u32 - 1) << SIZE_LEVEL) | (size_level as u32) << SIZE_LEVEL, ..self }
    }

    /// Whether this is a leaf and its own head that allows the access, and the access changes
    /// neither it nor anything else.
    #[inline(always)]
    pub(crate) fn is_ready(self, access: u64) -> bool {
        let ready = READY[access as usize & 3];
        self.bits & (ready | REPLICAS_MASK | SHADOW) == ready
    }

    /// Whether the entry is a leaf that allows the access of this number.
    #[inline(always)]
    pub(crate) fn allows(self, access: u64) -> bool {
        let needed = LEAF | 1 << access;
        self.bits & needed == needed
    }

    pub(crate) fn protection(self) -> Protection {
        Protection::from_bits(self.bits as u8)
    }

    pub(crate) fn with_protection(self, protection: Protection) -> Pte {
        Pte { bits: self.bits & !7 | protection.bits() as u32, ..self }
    }

    /// Its rights, and its use bits that are in the mask ([`REFERENCED`], [`DIRTY`]).
    pub(crate) fn attributes(self, use_bits: u32) -> u32 {
        self.bits & (7 | use_bits)
    }

    pub(crate) fn referenced(self) -> bool {
        self.bits & REFERENCED != 0
    }

    pub(crate) fn dirty(self) -> bool {
        self.bits & DIRTY != 0
    }

    /// Both use bits.
    pub(crate) fn used(self) -> Used {
        Used { referenced: self.referenced(), modified: self.dirty() }
    }

    /// The entry after an access of this number: referenced, and dirty if it was a write.
    #[inline(always)]
    pub(crate) fn used_by(self, access: u64) -> Pte {
        Pte { bits: self.bits | REFERENCED | ((access as u32 & 1) * DIRTY), ..self }
    }

    pub(crate) fn without_referenced(self) -> Pte {
        Pte { bits: self.bits & !REFERENCED, ..self }
    }

    pub(crate) fn without_dirty(self) -> Pte {
        Pte { bits: self.bits & !DIRTY, ..self }
    }
}

impl std::fmt::Debug for Pte {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_table() {
            write!(f, "table {:#x}", self.child())
        } else if self.is_leaf() {
            let (size_level, replicas) = (self.size_level(), 1u64 << self.replicas());
            write!(
                f,
                "leaf {} size_level {size_level} x{replicas} r={} d={}",
                self.protection(),
                self.referenced(),
                self.dirty()
            )
        } else {
            write!(f, "absent")
        }
    }
}
