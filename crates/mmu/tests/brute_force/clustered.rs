//! A clustered page table once more: what nodes there are follows from what is mapped, chains are
//! lists.

use crate::naive::Mapping;
use std::collections::BTreeMap;
use superpage_mmu::Machine;

/// A node: its block, its first word, and the number of its mappings.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Node {
    space: u32,
    block: u64,
    at: u64,
    mappings: u64,
}

#[derive(Debug)]
pub(crate) struct Clustered {
    pages: u64,
    partial: bool,
    /// Words of a base page.
    room: u64,
    buckets: Vec<Vec<Node>>,
    /// By number of mappings: places that were freed, and those of the last page that were not used
    /// yet.
    freed: BTreeMap<u64, Vec<u64>>,
    fresh: BTreeMap<u64, Vec<u64>>,
    /// The first word behind all pages.
    end: u64,
}

impl Clustered {
    /// That of a machine, if it has one.
    pub(crate) fn new(machine: &Machine) -> Option<Clustered> {
        let of = machine.clustered.as_ref()?;
        let room = machine.pages.sizes[0].bytes() / 8;
        let (freed, fresh) = (BTreeMap::new(), BTreeMap::new());
        let (buckets, end) = (vec![Vec::new(); of.buckets as usize], of.buckets.div_ceil(room) * room);
        Some(Clustered { pages: of.pages, partial: of.partial_subblock, room, buckets, freed, fresh, end })
    }

    fn bucket(&self, space: u32, block: u64) -> usize {
        let mut left = block.wrapping_add(u64::from(space).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let count = self.buckets.len() as u64;
        let mut bucket = 0;
        for _ in 0..3 {
            bucket ^= left % count;
            left /= count;
        }
        bucket as usize
    }

    pub(crate) fn bytes(&self) -> u64 {
        let nodes = self.buckets.iter().flatten().map(|node| 8 * (2 + node.mappings)).sum::<u64>();
        nodes + 8 * self.buckets.len() as u64
    }

    /// The numbers of the blocks of these pages.
    pub(crate) fn blocks(&self, first: u64, pages: u64) -> std::ops::Range<u64> {
        first / self.pages..(first + pages).div_ceil(self.pages)
    }

    /// The number of mappings of the node that a block needs.
    fn needed(&self, block: u64, mapping: impl Fn(u64) -> Option<(u64, u64, Mapping)>) -> Option<u64> {
        let all: Vec<(u64, (u64, u64, Mapping))> = (block * self.pages..(block + 1) * self.pages)
            .filter_map(|page| mapping(page).map(|mapping| (page, mapping)))
            .collect();
        let (page, (first, pages, one)) = *all.first()?;
        if pages >= self.pages {
            return Some(1);
        }
        let frame = |page: u64, (first, _, mapping): (u64, u64, Mapping)| mapping.frame + (page - first);
        let starts = frame(page, (first, pages, one)).wrapping_sub(page % self.pages);
        let placed = all.iter().all(|(page, of)| {
            let there = frame(*page, *of) == starts.wrapping_add(page % self.pages);
            of.1 == 1 && there && of.2.protection == one.protection
        });
        Some(if self.partial && placed && starts.is_multiple_of(self.pages) { 1 } else { self.pages })
    }

    /// Gives a block the node that it needs; `mapping` tells of a page the first page of its
    /// mapping, the number of pages, and the mapping.
    pub(crate) fn update(&mut self, space: u32, block: u64, mapping: impl Fn(u64) -> Option<(u64, u64, Mapping)>) {
        let needed = self.needed(block, mapping);
        let bucket = self.bucket(space, block);
        let old = self.buckets[bucket].iter().position(|node| (node.space, node.block) == (space, block));
        if old.map(|old| self.buckets[bucket][old].mappings) == needed {
            return;
        }
        if let Some(old) = old {
            let old = self.buckets[bucket].remove(old);
            self.freed.entry(old.mappings).or_default().push(old.at);
        }
        let Some(mappings) = needed else { return };
        let at = self.freed.get_mut(&mappings).and_then(Vec::pop).unwrap_or_else(|| {
            let fresh = self.fresh.entry(mappings).or_default();
            if fresh.is_empty() {
                let words = 2 + mappings;
                *fresh = (0..self.room / words).rev().map(|number| self.end + number * words).collect();
                self.end += self.room;
            }
            fresh.pop().unwrap()
        });
        self.buckets[bucket].insert(0, Node { space, block, at, mappings });
    }

    /// The mappings, each a word, that the nodes have for these pages.
    pub(crate) fn entries(&self, space: u32, first: u64, pages: u64) -> u64 {
        let of_block = |block: u64| {
            let node =
                self.buckets[self.bucket(space, block)].iter().find(|node| (node.space, node.block) == (space, block));
            let from = first.max(block * self.pages);
            let to = (first + pages).min((block + 1) * self.pages);
            node.unwrap().mappings.min(to - from)
        };
        self.blocks(first, pages).map(of_block).sum()
    }

    /// The lines that a search for this page reads.
    pub(crate) fn lines(&self, space: u32, page: u64, line_bytes: u64) -> Vec<u64> {
        let bucket = self.bucket(space, page / self.pages);
        let mut words = vec![bucket as u64];
        for node in &self.buckets[bucket] {
            words.push(node.at);
            if (node.space, node.block) == (space, page / self.pages) {
                words.push(node.at + 2 + page % self.pages % node.mappings);
                break;
            }
            words.push(node.at + 1);
        }
        let mut lines: Vec<u64> = words.iter().map(|word| word * 8 / line_bytes).collect();
        lines.dedup();
        lines
    }
}
