//! Requests that are translated together.
//!
//! A TLB level, a walk cache or a line cache sees only the misses of the structures before it, and
//! does not depend on those behind it (except inclusive levels and range TLBs, which take requests
//! one by one: [`crate::tlb::Tlbs::translate`]). So a batch passes from structure to structure:
//! each handles all requests that reach it, in order, before the next one handles any. Counts equal
//! those of taking each request all the way, and the host's loads for different requests overlap.

use crate::mappings::pte::{Pte, SIZE_LEVELS};
use crate::request::Request;
use crate::tlb::uses::{BATCH, EntryId, Use, Uses};
use superpage_pages::MAX_LEVELS;

/// The kinds of request, each `size_level << 2 | access`, are below this number.
pub(crate) const KINDS: usize = SIZE_LEVELS * 4;

/// The bit of a kind in a set of kinds: there are three accesses.
#[inline(always)]
pub(crate) fn bit_of(kind: usize) -> usize {
    (kind >> 2) * 3 + (kind & 3)
}
const _: () = assert!(MAX_LEVELS * 3 <= ABSENT_BIT as usize);

/// Set in the kinds of walks to absent entries, which no TLB serves. These have the level of the
/// entry in place of the page's.
const ABSENT: u8 = 1 << 7;
const _: () = assert!(KINDS <= ABSENT as usize);
/// Their bit, which no set of kinds has.
const ABSENT_BIT: u8 = 63;

/// The kind of a walk by this access that ends at an absent entry of this level of the index.
pub(crate) fn absent_kind(level: usize, access: u64) -> usize {
    usize::from(ABSENT) | level << 2 | access as usize
}

/// The requests of a batch that are of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    kind: u8,
    bit: u8,
    /// Which requests, as a bit set.
    pub(crate) requests: u64,
}

impl Group {
    #[inline(always)]
    fn new(kind: u8, requests: u64) -> Group {
        let bit = if kind & ABSENT == 0 { bit_of(kind.into()) as u8 } else { ABSENT_BIT };
        Group { kind, bit, requests }
    }

    /// Whether a set of kinds has this one.
    #[inline(always)]
    pub(crate) fn is_in(&self, kinds: u64) -> bool {
        kinds >> (self.bit & 63) & 1 != 0
    }

    /// For walks to absent entries, the level of the entries in the index.
    #[inline(always)]
    pub(crate) fn absent(&self) -> Option<usize> {
        (self.kind & ABSENT != 0).then_some((self.kind & !ABSENT) as usize >> 2)
    }

    /// The level of the ladder; of walks to absent entries it means nothing.
    #[inline(always)]
    pub(crate) fn size_level(&self) -> usize {
        (self.kind >> 2) as usize
    }

    /// The access as a number.
    #[inline(always)]
    pub(crate) fn access(&self) -> usize {
        (self.kind as usize & 3) % 3
    }
}

/// Requests, and walks that end at absent entries, by column.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// How many there are.
    pub(crate) len: usize,
    /// The page-table entry with the rights of each mapping: its key.
    pub(crate) heads: [u32; BATCH],
    /// The page-table entry that a walk reads last: the entry of the page itself, where a mapping
    /// has several.
    pub(crate) entries: [u32; BATCH],
    /// The number of the translation ([`crate::tlb::Tlbs::number`]).
    pub(crate) numbers: [u64; BATCH],
    /// The base page of each request, where walks depend on it ([`Batch::ask`]).
    pub(crate) pages: [u64; BATCH],
    /// The kind of each.
    kinds: [u8; BATCH],
    /// The kinds that occur, and which requests are of each.
    groups: [Group; BATCH],
    group_count: usize,
    /// Walks that end at absent entries, as a bit set.
    pub(crate) absent: u64,
    /// Those that fill TLBs but are neither counted nor walked: retries of trapped requests, and
    /// what [`crate::recall`] takes to have stayed.
    pub(crate) uncounted: u64,
}

/// A request whose page is mapped: one row of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    /// The page-table entry with the rights of the mapping.
    pub(crate) head: u32,
    /// The page-table entry that a walk reads last.
    pub(crate) entry: u32,
    /// The number of the translation ([`crate::tlb::Tlbs::number`]).
    pub(crate) number: u64,
    pub(crate) kind: usize,
}

impl Located {
    /// Its use of this entry of a TLB.
    #[inline(always)]
    pub(crate) fn using(&self, entry: EntryId) -> Use {
        Use::by(self.kind as u8, entry)
    }
}

impl Batch {
    pub(crate) fn new() -> Batch {
        Batch {
            len: 0,
            heads: [0; BATCH],
            entries: [0; BATCH],
            numbers: [0; BATCH],
            pages: [0; BATCH],
            kinds: [0; BATCH],
            groups: [Group::default(); BATCH],
            group_count: 0,
            absent: 0,
            uncounted: 0,
        }
    }

    /// Sets the request with this index.
    #[inline(always)]
    pub(crate) fn set(&mut self, index: usize, located: Located) {
        let Located { head, entry, number, kind } = located;
        self.heads[index] = head;
        self.entries[index] = entry;
        self.numbers[index] = number;
        self.kinds[index] = kind as u8;
    }

    /// Sets the request after the first `waiting`, and increments that. The batch must be closed
    /// again.
    #[inline(always)]
    pub(crate) fn add(&mut self, waiting: &mut usize, located: Located) {
        self.set(*waiting, located);
        (*waiting, self.len) = (*waiting + 1, 0);
    }

    /// Sets the base pages of all requests.
    pub(crate) fn ask(&mut self, requests: &[Request]) {
        self.pages.iter_mut().zip(requests).for_each(|(page, request)| *page = request.page().0);
    }

    /// The request with this index.
    pub(crate) fn located(&self, index: usize) -> Located {
        let (head, entry) = (self.heads[index], self.entries[index]);
        Located { head, entry, number: self.numbers[index], kind: self.kinds[index] as usize }
    }

    /// The translations that the requests use.
    #[inline(always)]
    pub(crate) fn uses(&self) -> Uses<'_> {
        Uses { numbers: &self.numbers, keys: &self.heads, kinds: &self.kinds }
    }

    /// Completes the batch, whose first `len` requests were all set.
    #[inline(always)]
    pub(crate) fn close(&mut self, len: usize) {
        (self.len, self.group_count, self.absent) = (len, 0, 0);
        let mut left = self.all();
        let first = self.kinds[0];
        if self.kinds[..len].iter().fold(0, |differs, kind| differs | (kind ^ first)) == 0 {
            // Most batches are of one kind.
            self.groups[0] = Group::new(first, left);
            self.absent = if first & ABSENT == 0 { 0 } else { left };
            self.group_count = usize::from(len > 0);
            return;
        }
        while left != 0 {
            let kind = self.kinds[left.trailing_zeros() as usize % BATCH];
            let mut alike = 0;
            for (index, other) in self.kinds[..len].iter().enumerate() {
                alike |= ((*other == kind) as u64) << index;
            }
            self.groups[self.group_count % BATCH] = Group::new(kind, alike & left);
            self.absent |= if kind & ABSENT == 0 { 0 } else { alike & left };
            self.group_count += 1;
            left &= !alike;
        }
    }

    /// All requests, as a bit set.
    #[inline(always)]
    pub(crate) fn all(&self) -> u64 {
        if self.len == 0 { 0 } else { u64::MAX >> (BATCH - self.len) }
    }

    /// The kinds that occur, and which requests are of each.
    #[inline(always)]
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups[..self.group_count.min(BATCH)]
    }
}

/// The kind of a request for this access to a page with this page-table entry.
#[inline(always)]
pub(crate) fn kind(pte: Pte, access: u64) -> usize {
    pte.size_level() << 2 | access as usize
}
