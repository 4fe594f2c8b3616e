//! Victima: a radix tree, and *blocks* of translations in the second line cache. Kanellopoulos et
//! al., Victima: Drastically Increasing Address Translation Reach by Leveraging Underutilized Cache
//! Resources, MICRO 2023, sections 5 and 6.
//!
//! A request that misses in all TLBs looks for a block, by its virtual address, in the second line
//! cache. A hit is one reference that this cache serves, in place of the walk. Otherwise the tree
//! is walked, and the line with the page's entry becomes a block there: the line leaves that cache,
//! and the block is in the set that its virtual number selects. A block translates what its entries
//! mapped at that time; a page that is mapped later is walked for, which makes the block once more.
//! When one of its mappings changes a block is dropped whole, and all are when the walk caches are
//! flushed.
//!
//! Where this differs from the paper: each walk makes a block, as there where the cache serves
//! little (no predictor of costs); what a TLB evicts is not put into the cache; and blocks are
//! replaced like other lines.

use super::radix::Radix;
use super::{TableFormat, Walks};
use crate::machine::{ENTRY_BYTES, Machine, SEARCHED_WAYS};
use crate::mappings::pte::SIZE_LEVELS;
use crate::mappings::{Mapping, Mappings, Pointer, Shape, SpacePage};
use crate::tlb::batch::Batch;
use crate::tlb::reach::{Entry, PartialHits};
use crate::tlb::uses::{EntryId, each};
use crate::walk::lines::{KEPT, Lines, Reads, is_kept, of_table};
use crate::walk::walk_caches::WalkCaches;
use superpage_pages::Ladder;

/// The line cache that has blocks, from 0.
const CACHE: usize = 1;
/// The most entries of a line: a block has a bit for each.
const MOST: u64 = 64;

/// The tree with its walk caches, and the entries that blocks translate.
#[derive(Clone, Debug)]
pub(crate) struct Victima {
    radix: Radix,
    /// By line of the tree: which of its entries its block translates; 0 if it has none. Of a block
    /// that has left the cache it says nothing.
    blocks: Vec<u64>,
    /// The base-two logarithm of the entries of a line.
    shift: u32,
    /// By level of the ladder: the page-number bits below an entry.
    spans: [u32; SIZE_LEVELS],
}

impl TableFormat for Victima {
    fn refuses(bits: &[u8], ladder: &Ladder) -> Option<String> {
        Radix::refuses(bits, ladder)
    }

    fn unsuited(machine: &Machine) -> Option<String> {
        let entries = machine.memory.line_bytes / ENTRY_BYTES;
        let most = MOST.min(1 << machine.page_table.bits.iter().copied().max().unwrap_or(0));
        let of_its_own = machine.host.is_none() && machine.shadow.is_none();
        match machine.line_cache.get(CACHE) {
            _ if !of_its_own => Some("\"victima\" is for machines without [host] and [shadow]".into()),
            None => Some("\"victima\" keeps translations in the second [[line-cache]], and there is none".into()),
            Some(cache) if cache.ways > SEARCHED_WAYS => {
                Some(format!("with \"victima\" line-cache \"{}\" has at most {SEARCHED_WAYS} ways", cache.name))
            }
            Some(_) if !(1..=most).contains(&entries) => {
                Some(format!("with \"victima\" a line holds 1 to {most} entries of the table, not {entries}"))
            }
            Some(_) => None,
        }
    }

    fn shape(machine: &Machine) -> Shape {
        Radix::shape(machine)
    }

    fn new(machine: &Machine, shape: &Shape) -> Victima {
        let mut spans = [0; SIZE_LEVELS];
        for (span, layout) in spans.iter_mut().zip(&shape.layouts) {
            *span = shape.bits[..layout.level - 1].iter().sum();
        }
        let shift = (machine.memory.line_bytes / ENTRY_BYTES).ilog2();
        Victima { radix: Radix::new(machine, shape), blocks: Vec::new(), shift, spans }
    }

    fn walk(&mut self, mappings: &Mappings, batch: &Batch, walks: Walks, mut reads: Reads<'_>) {
        for index in each(walks.requests) {
            let entry = batch.entries[index];
            if self.translates(entry) && reads.lines.caches[CACHE].hit(self.block(mappings, entry)) {
                reads.counters.line_hits[CACHE] += 1;
                continue;
            }
            self.radix.walk(mappings, batch, walks.only(index), reads.reborrow());
            self.make(mappings, entry, reads.lines);
        }
    }

    fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, partial: PartialHits, reads: Reads<'_>) {
        self.radix.walk_absent(mappings, page, partial, reads);
    }

    fn drop_pointer(&mut self, pointer: Pointer) {
        self.radix.drop_pointer(pointer);
    }

    fn caches(&mut self) -> Option<&mut WalkCaches> {
        Some(&mut self.radix.caches)
    }

    fn flush(&mut self) {
        self.radix.flush();
    }

    fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.radix.validate(mappings)
    }

    fn drop_leaf(&mut self, Mapping { head, pte, first }: Mapping, lines: &mut Lines) {
        let number = first.0 >> self.spans[pte.size_level()] >> self.shift;
        let last = (head + (1 << pte.replicas()) - 1) >> self.shift;
        for (line, number) in (head >> self.shift..=last).zip(number..) {
            if self.blocks.get_mut(line as usize).is_some_and(|block| std::mem::take(block) != 0) {
                lines.caches[CACHE].forget(&(number..number + 1), of_block(line));
            }
        }
    }

    fn drop_kept(&mut self, lines: &mut Lines) {
        if !self.blocks.is_empty() {
            lines.caches[CACHE].drop_where(&is_kept);
            self.blocks.clear();
        }
    }

    /// Checks that each block translates something, all of which is mapped, and is in its set.
    fn validate_kept(&self, mappings: &Mappings, lines: &Lines) -> Result<(), String> {
        let cache = &lines.caches[CACHE];
        for Entry { set, way, key, .. } in cache.entries().into_iter().filter(|entry| is_kept(entry.key)) {
            let line = (key & !KEPT) >> 1;
            let block = self.blocks.get(line as usize).copied().unwrap_or(0);
            let stale = each(block).any(|place| !mappings.ptes[(line << self.shift) as usize + place].is_leaf());
            let entry = (line << self.shift) + block.trailing_zeros() % MOST as u32;
            let number = self.block(mappings, entry).number;
            if block == 0 || stale || !cache.selects(number, set) || cache.find(number, key) != Some(way) {
                return Err(format!("the block of line {line:#x} in set {set} way {way} translates {block:#x}"));
            }
        }
        Ok(())
    }
}

/// The key of the block of a line.
fn of_block(line: u32) -> u32 {
    KEPT | of_table(line)
}

impl Victima {
    /// Whether the block of this entry translates it, if it is in the cache.
    fn translates(&self, entry: u32) -> bool {
        let block = self.blocks.get((entry >> self.shift) as usize).copied().unwrap_or(0);
        block >> (entry & ((1 << self.shift) - 1)) & 1 != 0
    }

    /// The block of this page-table entry.
    fn block(&self, mappings: &Mappings, entry: u32) -> EntryId {
        EntryId { number: mappings.nodes.number(entry) >> self.shift, key: of_block(entry >> self.shift) }
    }

    /// The line of this entry, which was read, becomes a block.
    fn make(&mut self, mappings: &Mappings, entry: u32, lines: &mut Lines) {
        let (line, first) = (entry >> self.shift, entry >> self.shift << self.shift);
        if line as usize >= self.blocks.len() {
            self.blocks.resize((line as usize + 1).next_power_of_two(), 0);
        }
        let leaves = (0..1 << self.shift).filter(|place| mappings.ptes[(first + place) as usize].is_leaf());
        self.blocks[line as usize] = leaves.fold(0, |block, place| block | 1 << place);
        let cache = &mut lines.caches[CACHE];
        cache.forget(&(line.into()..u64::from(line) + 1), of_table(line));
        cache.access_one(self.block(mappings, entry));
    }
}
