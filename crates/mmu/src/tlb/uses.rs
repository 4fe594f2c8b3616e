//! What names an entry of a TLB, walk cache or line cache, and uses of entries: the words that
//! [`crate::tlb::storage`], [`crate::tlb::replacement`] and [`crate::tlb::batch`] share.

use superpage_pages::Access;

/// The most requests of a batch: one bit each in a word.
pub(crate) const BATCH: usize = 64;

/// What names an entry of a set-associative structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryId {
    /// Selects the set: of a TLB the number of a translation, of a line cache that of a line, 0 in
    /// a walk cache, which has one set.
    pub(crate) number: u64,
    /// The tag: the number of a page-table entry, a table or a line.
    pub(crate) key: u32,
}

/// The tag of an entry that is not in use: no page-table entry, table or line has this number.
pub(crate) const EMPTY: u32 = u32::MAX;

/// A use of an entry, or a fill. Two words, which a call passes in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// The number of the page in units of its size, which selects the set; of a line, its number.
    /// Where a [`crate::tlb::reach`] packs more into numbers, a replacement sees this part.
    pub(crate) number: u64,
    /// The key, and above it the kind of request, as a batch has it.
    word: u64,
}

/// The kind of uses that are not a program's: in walk caches and line caches.
pub(crate) const UNASKED: u8 = 3;

impl Use {
    /// The use of an entry by a request of this kind: its access is in the lowest two bits.
    #[inline(always)]
    pub(crate) fn by(kind: u8, EntryId { number, key }: EntryId) -> Use {
        Use { number, word: u64::from(kind) << u32::BITS | u64::from(key) }
    }

    /// The page-table entry of the mapping, or the key of a table or line.
    #[inline(always)]
    pub(crate) fn key(self) -> u32 {
        self.word as u32
    }

    /// The kind of access; `None` in walk caches and line caches.
    pub(crate) fn access(self) -> Option<Access> {
        let kind = (self.word >> u32::BITS) as u8;
        [Access::Read, Access::Write, Access::Execute].get(usize::from(kind & UNASKED)).copied()
    }

    /// This use with another key.
    #[inline(always)]
    pub(crate) fn of(self, key: u32) -> Use {
        Use { word: self.word & !u64::from(u32::MAX) | u64::from(key), ..self }
    }

    /// This use with another number.
    #[inline(always)]
    pub(crate) fn at(self, number: u64) -> Use {
        Use { number, ..self }
    }

    /// The entry that is used.
    #[inline(always)]
    pub(crate) fn id(self) -> EntryId {
        EntryId { number: self.number, key: self.key() }
    }
}

/// Not by a program: in walk caches and line caches.
impl From<EntryId> for Use {
    #[inline(always)]
    fn from(id: EntryId) -> Use {
        Use::by(UNASKED, id)
    }
}

/// Uses of the entries of one structure, by column.
#[derive(Clone, Copy)]
pub(crate) struct Uses<'a> {
    pub(crate) numbers: &'a [u64; BATCH],
    pub(crate) keys: &'a [u32; BATCH],
    /// The kind of request of each.
    pub(crate) kinds: &'a [u8; BATCH],
}

impl<'a> Uses<'a> {
    /// Of walk caches and line caches: not by a program.
    #[inline(always)]
    pub(crate) fn unasked(numbers: &'a [u64; BATCH], keys: &'a [u32; BATCH]) -> Uses<'a> {
        Uses { numbers, keys, kinds: &[UNASKED; BATCH] }
    }

    /// The one with this index.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> Use {
        let (number, key) = (self.numbers[index % BATCH], self.keys[index % BATCH]);
        Use::by(self.kinds[index % BATCH], EntryId { number, key })
    }

    /// These, with other numbers.
    #[inline(always)]
    pub(crate) fn by_numbers<'b>(&self, numbers: &'b [u64; BATCH]) -> Uses<'b>
    where
        'a: 'b,
    {
        Uses { numbers, ..*self }
    }
}

/// The indices of the bits that are set, from the lowest.
#[inline(always)]
pub(crate) fn each(bits: u64) -> impl Iterator<Item = usize> {
    let mut left = bits;
    std::iter::from_fn(move || {
        let next = (left != 0).then(|| left.trailing_zeros() as usize % BATCH);
        left &= left.wrapping_sub(1);
        next
    })
}
