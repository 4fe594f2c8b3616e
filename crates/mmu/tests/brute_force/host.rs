//! The host of a guest once more: its tables, by the guest's frames.

use crate::cache::Cache;
use std::collections::BTreeMap;
use superpage_mmu::{Index, Machine, Replacement};

/// A node of the host's tables: its level, and the bits of the frame above what it spans.
type Node = (usize, u64);

#[derive(Debug)]
pub(crate) struct Host {
    bits: Vec<u8>,
    /// The level of the entries of the host's pages, and the base-two logarithm of the base pages of each.
    last: usize,
    order: u32,
    /// By node, when it was made.
    nodes: BTreeMap<Node, u64>,
    nested_tlb: Option<Cache<u64>>,
    walk_caches: Vec<(usize, Cache<Node>)>,
}

impl Host {
    /// That of a machine whose walks are two-dimensional.
    pub(crate) fn new(machine: &Machine) -> Option<Host> {
        let host = machine.host.as_ref().filter(|host| !host.page_table_bits.is_empty())?;
        let base = machine.pages.sizes[0];
        let order = host.backs_by.unwrap_or(base).shift() - base.shift();
        let below = |level: usize| host.page_table_bits[..level - 1].iter().map(|bits| u32::from(*bits)).sum::<u32>();
        let last = (1..=host.page_table_bits.len()).rev().find(|level| below(*level) <= order).unwrap();
        Some(Host {
            bits: host.page_table_bits.clone(),
            last,
            order,
            nodes: BTreeMap::new(),
            nested_tlb: (host.nested_tlb > 0).then(|| Cache::new(1, host.nested_tlb, Index::Low, Replacement::Lru)),
            walk_caches: host
                .walk_cache
                .iter()
                .map(|spec| (spec.level, Cache::new(1, spec.entries, Index::Low, Replacement::Lru)))
                .collect(),
        })
    }

    fn below(&self, level: usize) -> u32 {
        self.bits[..level - 1].iter().map(|bits| u32::from(*bits)).sum()
    }

    fn node(&self, frame: u64, level: usize) -> Node {
        (level, frame >> (self.below(level) + u32::from(self.bits[level - 1])))
    }

    /// What a translation of this frame of the guest finds, in order: the level of the walk cache that hits, or the entries that are read.
    pub(crate) fn translate(&mut self, frame: u64) -> Vec<(u64, Option<usize>)> {
        for level in (self.last..=self.bits.len()).rev() {
            let (node, number) = (self.node(frame, level), self.nodes.len() as u64);
            self.nodes.entry(node).or_insert(number);
        }
        let page = frame >> self.order;
        if let Some(cache) = &mut self.nested_tlb {
            if cache.hit(0, |held| held == page).is_some() {
                return Vec::new();
            }
            cache.fill(0, page);
        }
        let (mut found, mut from) = (Vec::new(), self.bits.len());
        for level in self.last + 1..=self.bits.len() {
            let pointer = (level, frame >> self.below(level));
            let cache = self.walk_caches.iter_mut().find(|(of, _)| *of == level);
            if cache.is_some_and(|(_, cache)| cache.hit(0, |held| held == pointer).is_some()) {
                found.push((0, Some(level)));
                from = level - 1;
                break;
            }
        }
        for level in (self.last..=from).rev() {
            let widest = *self.bits.iter().max().unwrap();
            let index = (frame >> self.below(level)) & ((1 << self.bits[level - 1]) - 1);
            found.push(((self.nodes[&self.node(frame, level)] << widest) + index, None));
            if level > self.last {
                let pointer = (level, frame >> self.below(level));
                for (_, cache) in self.walk_caches.iter_mut().filter(|(of, _)| *of == level) {
                    cache.fill(0, pointer);
                }
            }
        }
        found
    }
}
