//! Entries that hold several mappings: base pages of one aligned block.
//!
//! Such a TLB has two forms of entries. A plain one holds one mapping of any size, in the set that
//! its number selects. A joint one holds pages of one block, by a bit each, in the set that the
//! block's number selects, and is looked up first. A page with a plain entry keeps it, until it is
//! replaced, when its block gets a joint one.
//!
//! A fill decides from the page table which pages one entry holds, whichever level served the
//! request. If a joint entry of the block can hold the page, the page is added to it, with the
//! pages that other such entries hold; otherwise a new one is filled. So no two joint entries hold
//! the same page.
//!
//! Numbers of translations are *packed* here: the number that selects the set, and below it a
//! *part* of [`PART_BITS`], the index of the page in its block, or [`ALONE`].

use super::{Entry, Holds, Joining, Lookup, PartialHits, Reach};
use crate::machine::{self, ENTRY_BYTES, JOINED_PAGES, JoinKind, Machine, UseBit};
use crate::mappings::Mappings;
use crate::mappings::pte::{DIRTY, Pte, REFERENCED};
use crate::tlb::batch::Located;
use crate::tlb::storage::Cache;
use crate::tlb::uses::{EntryId, Use, each};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Range;

/// The bits of the part in a packed number.
pub(super) const PART_BITS: u32 = 6;
/// The part of an entry that holds one mapping.
pub(super) const ALONE: u64 = (1 << PART_BITS) - 1;

/// A rule that says which pages of a block one entry holds.
pub(crate) trait JoinRule: Clone + Debug {
    /// Whether an entry remains, for its other pages, when one of them changes.
    const HAS_VALID_BITS: bool;

    /// The pages that an entry can hold together with this page of the block, which is there, as a
    /// bit set; 0 if the page gets a plain entry. The relation is symmetric.
    fn together(block: &Block, asked: usize) -> u64;
}

/// A block as its page table has it.
pub(crate) struct Block {
    pages: [Option<Page>; JOINED_PAGES],
    len: usize,
}

/// A base page that is mapped.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    pub(crate) frame: u64,
    /// Its bits that must be alike.
    pub(crate) attributes: u32,
}

impl Block {
    /// The block of which this is the first entry.
    fn read(mappings: &Mappings, first: u32, joining: Joining) -> Block {
        let len = 1 << joining.order;
        let mut pages = [None; JOINED_PAGES];
        for (id, page) in (first..).zip(&mut pages[..len]) {
            let attributes = mappings.ptes[id as usize].attributes(joining.alike);
            *page = mappings.base_frame(id).map(|frame| Page { frame, attributes });
        }
        Block { pages, len }
    }

    /// The number of pages.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The pages that are mapped and of which this is true, as a bit set by their index.
    pub(crate) fn pages_where(&self, fits: impl Fn(usize, Page) -> bool) -> u64 {
        let fits = |index: &usize| self.pages[*index].is_some_and(|page| fits(*index, page));
        (0..self.len).filter(fits).fold(0, |pages, index| pages | 1 << index)
    }

    /// The page with this index, if it is mapped.
    pub(crate) fn page(&self, index: usize) -> Option<Page> {
        self.pages[..self.len].get(index).copied().flatten()
    }
}

/// Entries that are joined by a rule.
#[derive(Clone, Debug)]
pub(crate) struct Joint<J: JoinRule> {
    rule: PhantomData<J>,
}

/// The entry that holds this mapping alone.
#[inline(always)]
pub(super) fn alone(number: u64, head: u32) -> EntryId {
    EntryId { number: number << PART_BITS | ALONE, key: head }
}

/// The entry of the block of this base page; its key is that of the block's first page.
#[inline(always)]
fn in_block(number: u64, head: u32, joining: Joining) -> EntryId {
    let part = number & ((1 << joining.order) - 1);
    EntryId { number: number >> joining.order << PART_BITS | part, key: head - part as u32 }
}

impl<J: JoinRule> Reach for Joint<J> {
    /// The pages that it holds, by their index; the bit [`ALONE`] if it is one mapping.
    type Payload = u64;

    #[inline(always)]
    fn selector(packed: u64) -> u64 {
        packed >> PART_BITS
    }

    #[inline(always)]
    fn fill(packed: u64) -> u64 {
        1 << (packed & ALONE)
    }

    #[inline(always)]
    fn covers(pages: u64, packed: u64) -> bool {
        pages >> (packed & ALONE) & 1 != 0
    }

    fn covered(pages: u64, mapping: Range<u64>) -> Range<u64> {
        debug_assert!(pages >> ALONE & 1 != 0, "only entries of one mapping are asked for that");
        mapping
    }

    #[inline(always)]
    fn without(pages: u64, changed: &Range<u64>) -> Option<u64> {
        let gone = 1 << (changed.start & ALONE);
        match pages & gone {
            0 => Some(pages),
            _ => Some(pages & !gone).filter(|left| J::HAS_VALID_BITS && *left != 0),
        }
    }

    fn access(cache: &mut Cache<Self>, asking: u64, lookup: &Lookup<'_>, _: &mut PartialHits) -> u64 {
        let Lookup { batch, mappings, joining, .. } = *lookup;
        let mut missed = 0;
        for index in each(asking) {
            if Self::touch(cache, index, lookup) {
                continue;
            }
            missed |= 1 << index;
            let (joined, own) = Self::uses(&batch.located(index), joining);
            match joined {
                Some(joined) => Self::fill_block(cache, joined, own, mappings, joining),
                None => _ = cache.fill(own),
            }
        }
        missed
    }

    fn touch(cache: &mut Cache<Self>, index: usize, lookup: &Lookup<'_>) -> bool {
        let (joined, own) = Self::uses(&lookup.batch.located(index), lookup.joining);
        joined.is_some_and(|joined| cache.hit(joined)) || cache.hit(own)
    }

    fn forget(cache: &mut Cache<Self>, numbers: &Range<u64>, head: u32, pte: Pte, joining: Joining) -> u64 {
        let own = drop_entry(cache, alone(numbers.start, head));
        own + if pte.size_level() == 0 { drop_entry(cache, in_block(numbers.start, head, joining)) } else { 0 }
    }

    fn separate(cache: &mut Cache<Self>, number: u64, head: u32, joining: Joining) {
        drop_entry(cache, in_block(number, head, joining));
    }

    fn holds(key: u32, pages: u64, _: &Mappings) -> Holds {
        if pages >> ALONE & 1 != 0 { Holds::Mapping(key) } else { Holds::Pages(key, pages) }
    }

    fn validate(
        cache: &Cache<Self>,
        entry: Entry<Self>,
        number: u64,
        mappings: &Mappings,
        joining: Joining,
    ) -> Result<(), String> {
        let Entry { key, payload: pages, .. } = entry;
        if pages >> ALONE & 1 != 0 {
            return entry.is_at(cache, alone(number, key));
        }
        let (block, lowest) = (Block::read(mappings, key, joining), pages.trailing_zeros());
        let number = mappings.nodes.first_page(key + lowest).0;
        entry.is_at(cache, in_block(number, key + lowest, joining))?;
        match block.page(lowest as usize).map(|_| J::together(&block, lowest as usize)) {
            Some(together) if pages & !together == 0 => Ok(()),
            can => Err(format!("the entry holds the pages {pages:#b} of its block, of which {can:?} can be together")),
        }
    }
}

impl<J: JoinRule> Joint<J> {
    /// The entries that a request looks up: that of its block, if it is for a base page, and that
    /// of its mapping alone.
    #[inline(always)]
    fn uses(located: &Located, joining: Joining) -> (Option<Use>, Use) {
        let joined = is_base(located).then(|| located.using(in_block(located.number, located.head, joining)));
        (joined, located.using(alone(located.number, located.head)))
    }

    /// Loads a base page that no entry holds.
    fn fill_block(cache: &mut Cache<Self>, joined: Use, own: Use, mappings: &Mappings, joining: Joining) {
        let asked = joined.number & ALONE;
        let together = J::together(&Block::read(mappings, joined.key(), joining), asked as usize);
        if together == 0 {
            cache.fill(own);
            return;
        }
        let more = if joining.prefetches { together } else { 1 << asked };
        if !cache.extend(joined, |pages| (pages & together != 0).then_some(pages | more)) {
            cache.fill_with(joined, more);
        }
    }
}

/// Drops an entry; returns the number of entries dropped.
pub(super) fn drop_entry<C: Reach>(cache: &mut Cache<C>, EntryId { number, key }: EntryId) -> u64 {
    cache.forget(&(number..number + 1), key)
}

/// Whether the request is for a base page.
fn is_base(located: &Located) -> bool {
    located.kind >> 2 == 0
}

impl machine::Joins {
    pub(crate) fn joining(&self) -> Joining {
        let alike = self.alike.iter().fold(0, |bits, bit| {
            bits | match bit {
                UseBit::Referenced => REFERENCED,
                UseBit::Dirty => DIRTY,
            }
        });
        Joining { order: self.pages.ilog2(), alike, prefetches: self.prefetch }
    }

    /// What is wrong with it in a TLB of this machine, whose page table has been checked.
    pub(crate) fn refuses(&self, machine: &Machine, inclusive: bool) -> Option<String> {
        let machine::Joins { pages, kind, .. } = self;
        let line = (machine.memory.line_bytes / ENTRY_BYTES) as usize;
        let table = 1 << machine.page_table.bits.first().copied().unwrap_or_default();
        let gathered = *kind == JoinKind::Coalesced || *kind == JoinKind::Runs;
        let held = [(line, "one line of the page table holds"), (table, "a page table of the lowest level holds")];
        let most =
            held.into_iter().filter(|(most, _)| gathered || *most == table).chain([(JOINED_PAGES, "a block may have")]);
        let (most, what) = most.min_by_key(|(most, _)| *most).unwrap_or((JOINED_PAGES, ""));
        if !pages.is_power_of_two() || !(2..=most).contains(pages) {
            return Some(format!("joins.pages must be a power of two from 2 to {most}, which {what}; it is {pages}"));
        }
        if machine.host.is_some() {
            return Some("joins is for a machine without [host], whose pages decide what an entry holds".into());
        }
        if (*kind == JoinKind::Coalesced || *kind == JoinKind::Runs) && !self.prefetch {
            return Some(
                "joins.prefetch is for subblocks; coalesced entries and runs always hold all that they can".into(),
            );
        }
        if *kind == JoinKind::CompleteSubblock && !self.alike.is_empty() {
            return Some(
                "joins.alike has no meaning with complete-subblock, whose pages have bits of their own".into(),
            );
        }
        inclusive.then(|| "joins is for TLBs that neither include others nor are included".into())
    }
}

impl Machine {
    /// The use bits, as in a page-table entry, that pages in one entry of a TLB must have alike.
    pub(crate) fn compared_use_bits(&self) -> u32 {
        self.tlb.iter().filter_map(|tlb| tlb.joined(self)).fold(0, |bits, joins| bits | joins.joining().alike)
    }
}
