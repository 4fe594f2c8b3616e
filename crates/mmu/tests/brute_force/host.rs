//! The host of a guest once more: its tables, by the guest's frames.

use crate::cache::Cache;
use crate::naive::{Mapping, Naive};
use std::collections::BTreeMap;
use superpage_mmu::{Index, Machine, Replacement, TableKind};
use superpage_pages::{Access, Mapped, PageSize};

/// A node of the host's tables: its level, and the bits of the frame above what it spans.
type Node = (usize, u64);

#[derive(Debug)]
pub(crate) struct Host {
    bits: Vec<u8>,
    /// The level of the entries of the host's pages, and the base-two logarithm of the base pages
    /// of each.
    last: usize,
    order: u32,
    /// By node, when it was made.
    nodes: BTreeMap<Node, u64>,
    nested_tlb: Option<Cache<u64>>,
    walk_caches: Vec<(usize, Cache<Node>)>,
    /// The tables of a host with a memory manager, by the guest's frames.
    pub(crate) tables: Option<Box<Naive>>,
    /// Everything was flushed, with no access since; how often; and whether an access has found a
    /// page that is not backed.
    pub(crate) shot: bool,
    pub(crate) shootdowns: u64,
    missed: bool,
}

impl Host {
    /// That of a machine whose walks are two-dimensional.
    pub(crate) fn new(machine: &Machine) -> Option<Host> {
        let host = machine.host.as_ref().filter(|host| !host.page_table_bits.is_empty())?;
        let base = machine.pages.sizes[0];
        let order = host.backs_by.unwrap_or(base).shift() - base.shift();
        let below = |level: usize| host.page_table_bits[..level - 1].iter().map(|bits| u32::from(*bits)).sum::<u32>();
        let last = (1..=host.page_table_bits.len()).rev().find(|level| below(*level) <= order).unwrap();
        let tables = host.managed.then(|| {
            let mut tables = machine.clone();
            (tables.page_table.kind, tables.page_table.bits) = (TableKind::Radix, host.page_table_bits.clone());
            (tables.host, tables.tlb, tables.walk_cache) = (None, Vec::new(), Vec::new());
            Box::new(Naive::new(&tables))
        });
        Some(Host {
            tables,
            shot: false,
            shootdowns: 0,
            missed: false,
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

    /// What a translation of this frame of the guest finds, in order: the level of the walk cache
    /// that hits, or the entries that are read.
    pub(crate) fn translate(&mut self, frame: u64) -> Vec<(u64, Option<usize>)> {
        let (last, page) = match &self.tables {
            None => {
                for level in (self.last..=self.bits.len()).rev() {
                    let (node, number) = (self.node(frame, level), self.nodes.len() as u64);
                    self.nodes.entry(node).or_insert(number);
                }
                (self.last, Some(frame >> self.order))
            }
            Some(tables) => match tables.last_level(frame) {
                Some(last) => (last, tables.mapping(0, frame).map(|(first, _)| first)),
                None => return Vec::new(),
            },
        };
        if let (Some(cache), Some(page)) = (&mut self.nested_tlb, page) {
            if cache.hit(0, |held| held == page).is_some() {
                return Vec::new();
            }
            cache.fill(0, page);
        }
        let (mut found, mut from) = (Vec::new(), self.bits.len());
        for level in last + 1..=self.bits.len() {
            let pointer = (level, frame >> self.below(level));
            let cache = self.walk_caches.iter_mut().find(|(of, _)| *of == level);
            if cache.is_some_and(|(_, cache)| cache.hit(0, |held| held == pointer).is_some()) {
                found.push((0, Some(level)));
                from = level - 1;
                break;
            }
        }
        for level in (last..=from).rev() {
            let widest = *self.bits.iter().max().unwrap();
            let index = (frame >> self.below(level)) & ((1 << self.bits[level - 1]) - 1);
            let entry = match &self.tables {
                None => (self.nodes[&self.node(frame, level)] << widest) + index,
                Some(tables) => tables.entry(frame, level),
            };
            found.push((entry, None));
            if level > last {
                let pointer = (level, frame >> self.below(level));
                for (_, cache) in self.walk_caches.iter_mut().filter(|(of, _)| *of == level) {
                    cache.fill(0, pointer);
                }
            }
        }
        found
    }

    /// A walk has come to this frame, of a page or of a table.
    pub(crate) fn note(&mut self, frame: u64, is_page: bool) {
        let Some(tables) = &mut self.tables else { return };
        match tables.mapping(0, frame) {
            Some((first, _)) => {
                let mapping = tables.mappings.get_mut(&(0, first)).unwrap();
                (mapping.referenced, mapping.dirty) = (true, true);
            }
            None => self.missed |= is_page,
        }
    }

    /// Drops all translations.
    fn flush(&mut self) {
        self.nested_tlb.iter_mut().for_each(Cache::flush);
        self.walk_caches.iter_mut().for_each(|(_, cache)| cache.flush());
    }
}

/// What the memory manager of a host does.
impl Naive {
    pub(crate) fn tables(&mut self) -> &mut Naive {
        self.host.as_mut().unwrap().tables.as_mut().unwrap()
    }

    fn flush_host(&mut self) {
        self.flush_all();
        self.host.as_mut().unwrap().flush();
    }

    fn shoot_host(&mut self) {
        let host = self.host.as_mut().unwrap();
        if !std::mem::replace(&mut host.shot, true) {
            host.shootdowns += 1;
            self.flush_host();
        }
    }

    pub(crate) fn host_enter(&mut self, at: u64, to: Mapped) {
        if std::mem::take(&mut self.host.as_mut().unwrap().missed) {
            self.flush_host();
        }
        self.tables().enter(0, at, to, Access::Write);
    }

    pub(crate) fn host_remove(&mut self, at: u64) -> Mapping {
        self.shoot_host();
        self.tables().remove(0, at)
    }

    pub(crate) fn host_promote(&mut self, at: u64, from: PageSize, to: PageSize) {
        self.shoot_host();
        self.tables().promote(0, at, from, to);
    }

    pub(crate) fn host_demote(&mut self, at: u64, from: PageSize, to: PageSize) {
        self.shoot_host();
        self.tables().demote(0, at, from, to);
    }

    pub(crate) fn host_clear(&mut self, at: u64, dirty: bool) -> bool {
        let cleared = self.tables().clear(0, at, dirty);
        if cleared {
            self.shoot_host();
        }
        cleared
    }
}
