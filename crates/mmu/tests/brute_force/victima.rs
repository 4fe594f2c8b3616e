//! Blocks of translations in the second line cache once more: what each knew when it was made,
//! found page by page.

use crate::machines::victima;
use crate::naive::Naive;
use crate::{check, lines};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use superpage_mmu::{Machine, TableKind};
use superpage_pages::PageSize;

/// Space, level, and the first of the entries of the level that are in one line.
type Block = (u32, usize, u64);

/// By block, the entries that were mappings when it was made.
#[derive(Debug)]
pub(crate) struct Victima(BTreeMap<Block, BTreeSet<u64>>);

impl Victima {
    pub(crate) fn new(machine: &Machine) -> Option<Victima> {
        (machine.page_table.kind == TableKind::Victima).then(|| Victima(BTreeMap::new()))
    }
}

/// What the line cache has of a block: no line of a table has such a number.
fn held((space, level, first): Block) -> (bool, u64) {
    (true, 1 << 63 | u64::from(space) << 56 | (level as u64) << 53 | first)
}

impl Naive {
    /// The entries of a line, or of a table that has fewer, with this one.
    fn entries_of_block(&self, level: usize, entry: u64) -> std::ops::Range<u64> {
        let entries = (self.machine.memory.line_bytes / 8).min(1 << self.machine.page_table.bits[level - 1]);
        entry / entries * entries..(entry / entries + 1) * entries
    }

    /// The number by which a block selects its set.
    fn selector(&self, block: Block) -> u64 {
        block.2 / (self.machine.memory.line_bytes / 8)
    }

    /// Whether a block translates this page, whose entry is of this level; that is a reference.
    pub(crate) fn use_block(&mut self, page: u64, level: usize) -> bool {
        let entry = page >> self.below(level);
        let block = (self.space, level, self.entries_of_block(level, entry).start);
        let number = self.selector(block);
        let Some(victima) = &self.victima else { return false };
        let knows = victima.0.get(&block).is_some_and(|entries| entries.contains(&entry));
        let served = knows && self.line_caches[1].1.hit(number, |line| line == held(block)).is_some();
        self.counts.walk_references += u64::from(served);
        self.counts.line_hits[1] += u64::from(served);
        served
    }

    /// The line with this page's entry, which was read last, becomes a block.
    pub(crate) fn make_block(&mut self, page: u64, level: usize) {
        if self.victima.is_none() {
            return;
        }
        let entries = self.entries_of_block(level, page >> self.below(level));
        let (block, below) = ((self.space, level, entries.start), self.below(level));
        let line = self.entry(page, level) * 8 / self.machine.memory.line_bytes;
        let maps = |entry: &u64| {
            let mapping = self.mapping(self.space, entry << below);
            mapping.is_some_and(|(_, mapping)| self.leaf_level(mapping.size) == level)
        };
        let known = entries.filter(maps).collect();
        let number = self.selector(block);
        let (_, cache) = &mut self.line_caches[1];
        cache.drop(|other| other == (true, line));
        if cache.hit(number, |line| line == held(block)).is_none() {
            cache.fill(number, held(block));
        }
        self.victima.as_mut().unwrap().0.insert(block, known);
    }

    /// A mapping changes.
    pub(crate) fn drop_blocks(&mut self, space: u32, first: u64, size: PageSize) {
        if self.victima.is_none() {
            return;
        }
        let level = self.leaf_level(size);
        let entry = first >> self.below(level);
        let count = 1 << (self.order(size) - self.below(level));
        let blocks: BTreeSet<Block> =
            (entry..entry + count).map(|entry| (space, level, self.entries_of_block(level, entry).start)).collect();
        for block in blocks {
            self.line_caches[1].1.drop(|line| line == held(block));
            self.victima.as_mut().unwrap().0.remove(&block);
        }
    }

    /// Nothing that depends on spaces is left.
    pub(crate) fn drop_all_blocks(&mut self) {
        if let Some(victima) = &mut self.victima {
            victima.0.clear();
            self.line_caches[1].1.drop(|(of_table, line)| of_table && line >> 63 != 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn blocks_are_those_of_the_naive_model(
        which in any::<prop::sample::Index>(),
        seed: u64,
        steps in prop::collection::vec(0u8..20, 1..120),
    ) {
        let machines = victima();
        check(&machines[which.index(machines.len())..][..1], seed, &steps);
    }

    /// Blocks, page-table lines and the program's lines push each other out.
    #[test]
    fn blocks_and_lines_are_those_of_the_naive_model(which in any::<prop::sample::Index>(), seed: u64) {
        let machines = victima();
        lines::check_with(&machines[which.index(machines.len())], None, seed, 30);
    }
}
