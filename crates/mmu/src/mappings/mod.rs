//! The mappings of all address spaces, exactly, with their use bits.
//!
//! Mappings are found by an index, a tree of nodes whose page-table entries lie in one array; a
//! request makes one lookup, usually of two page-table entries (see `look_up`). A mapping is a
//! page-table entry, or several identical ones, of which the first is its *head*. The page-table
//! format defines how many bits each level of the index has and at which level a page of each size
//! is ([`Shape`]), so that it can derive the address of an entry from its number; nothing here
//! depends on that address (see [`crate::walk::formats`]). Addresses wider than the tree are no
//! error: each part of the address space that one tree spans has its root.

mod backing;
mod clusters;
mod frames;
mod look_up;
mod notifiers;
mod operations;
mod perforation;
pub(crate) mod pte;
mod ranges;
mod shadow;
mod validate;

use crate::counters::UseBits;
use crate::machine::ENTRY_BYTES;
use crate::machine::Machine;
use crate::mappings::pte::Pte;
use clusters::Clusters;
use frames::Frames;
use look_up::IndexCache;
use perforation::Perforation;
use ranges::Ranges;
use shadow::Shadow;
use std::ops::Range;
use superpage_pages::{Ladder, PageSize, Vpn};

pub(crate) use backing::Backing;
pub(crate) use clusters::ClusterShape;
pub(crate) use notifiers::{Change, Effects};
pub(crate) use operations::{MappingId, Work};
pub(crate) use perforation::{FRAGMENTS, MOST_PAGES, Region, Stale, fragment_order};

/// Caches of mappings, which drop entries just before the mappings change.
pub(crate) trait Invalidate {
    /// A mapping changes.
    fn drop_leaf(&mut self, mapping: Mapping);
    /// A pointer to a table is removed.
    fn drop_pointer(&mut self, pointer: Pointer);
    /// A perforated page changes: `stale` says which parts of it. `first_id` and `first` are its
    /// first page-table entry and page.
    fn drop_region(&mut self, first_id: u32, first: Vpn, stale: Stale);
    /// Pages move away from these frames: the lines of the frames are dropped.
    fn drop_lines(&mut self, frames: Range<u64>);
}

/// A mapping: a leaf of the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    /// Its first page-table entry, which has its rights and use bits.
    pub(crate) head: u32,
    /// The contents of that entry.
    pub(crate) pte: Pte,
    /// Its first page.
    pub(crate) first: Vpn,
}

/// A page-table entry that points to a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    pub(crate) id: u32,
    pub(crate) pte: Pte,
    pub(crate) level: usize,
    /// The number of what it spans, in units of that.
    pub(crate) number: u64,
}

/// A page of an address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpacePage {
    pub(crate) space: u32,
    pub(crate) page: Vpn,
}

/// Pages of an address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SpacePages {
    pub(crate) space: u32,
    pub(crate) pages: Range<u64>,
}

impl SpacePages {
    /// Whether it has one of these pages of a space.
    pub(crate) fn meets(&self, space: u32, pages: &Range<u64>) -> bool {
        self.space == space && self.pages.start < pages.end && pages.start < self.pages.end
    }
}

/// The most page-table entries for which room is made ahead, 64 MB: less than what simulations
/// leave free of a limit of memory, and more than the system takes long to move.
const MOST_GROWTH: usize = 8 << 20;

/// No node above: a root.
pub(crate) const NO_PARENT: u32 = u32::MAX;

/// Where pages of one size are in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// The level of their page-table entries (1 is the lowest).
    pub(crate) level: usize,
    /// The base-two logarithm of the number of entries of a page.
    pub(crate) replicas: u32,
}

/// The shape of the index.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The page-number bits that each level translates, from the lowest (index 0) up.
    pub(crate) bits: Vec<u32>,
    /// By level of the ladder.
    pub(crate) layouts: Vec<Layout>,
    /// The fewest pages that a perforated page maps; 0 without perforated pages.
    pub(crate) least_mapped: u32,
    /// The bytes that the page tables of the machine have for a node of each level, from the lowest
    /// up.
    pub(crate) bytes: Vec<u64>,
    /// The shape of a clustered table, if the machine has one: then nodes of the index take no
    /// bytes.
    pub(crate) clusters: Option<ClusterShape>,
}

impl Shape {
    /// With the bits of the machine's table, whose nodes take as much as their page-table entries;
    /// `layout` is called with the page-number bits below the page-table entries of each level and
    /// those of a page.
    pub(crate) fn new(machine: &Machine, layout: impl Fn(&[u32], u32) -> Layout) -> Shape {
        let bits: Vec<u32> = machine.page_table.bits.iter().map(|bits| *bits as u32).collect();
        let spans = Shape::spans(&bits);
        let base = machine.ladder().base().shift();
        let layouts = machine.pages.sizes.iter().map(|size| layout(&spans, size.shift() - base)).collect();
        let bytes = bits.iter().map(|bits| ENTRY_BYTES << bits).collect();
        Shape { bits, layouts, least_mapped: 0, bytes, clusters: None }
    }

    fn spans(bits: &[u32]) -> Vec<u32> {
        bits.iter().scan(0, |below, bits| Some(std::mem::replace(below, *below + bits))).collect()
    }

    /// Every node has this many bits of page-table entries, so that a page-table entry's node is a
    /// shift away.
    pub(crate) fn node_bits(&self) -> u32 {
        self.bits.iter().copied().max().unwrap_or(0)
    }
}

/// A node, apart from its page-table entries.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// 1 is the lowest; 0 marks a free node.
    level: u8,
    space: u32,
    /// The first page that its first entry spans.
    first: Vpn,
    /// Entries that are not absent.
    live: u32,
}

/// Which page-table entry belongs to which node.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    /// The page-number bits below an entry of each level (index 0: the lowest level, whose entries
    /// span one page).
    spans: Vec<u32>,
    /// Every node has this many bits of page-table entries, so that a page-table entry's node is a
    /// shift away.
    bits: u32,
    all: Vec<Node>,
}

impl Nodes {
    /// The level of the node that the page-table entry is in.
    #[inline(always)]
    pub(crate) fn level_of(&self, id: u32) -> usize {
        self.all[(id >> self.bits) as usize].level as usize
    }

    /// The first page that the page-table entry spans.
    pub(crate) fn first_page(&self, id: u32) -> Vpn {
        let node = &self.all[(id >> self.bits) as usize];
        let index = (id & ((1 << self.bits) - 1)) as u64;
        node.first + (index << self.spans[node.level as usize - 1])
    }

    /// The number of what the page-table entry spans, in units of that.
    pub(crate) fn number(&self, id: u32) -> u64 {
        self.first_page(id).0 >> self.spans[self.level_of(id) - 1]
    }

    /// The address space of the node that the page-table entry is in.
    pub(crate) fn space_of(&self, id: u32) -> u32 {
        self.all[(id >> self.bits) as usize].space
    }

    /// The base-two logarithm of the number of page-table entries of a node.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// How many nodes there are, free ones too.
    pub(crate) fn count(&self) -> u64 {
        self.all.len() as u64
    }

    /// The page-table entries of a node that are not absent.
    pub(crate) fn live_of(&self, id: u32) -> u32 {
        self.all[(id >> self.bits) as usize].live
    }

    fn of(&mut self, id: u32) -> &mut Node {
        &mut self.all[(id >> self.bits) as usize]
    }
}

/// Where a page is in the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// The page-table entry that the walk ends at: a leaf, or the absent entry that stopped it.
    pub(crate) id: u32,
    /// Its level.
    pub(crate) level: usize,
}

/// The bytes that the page tables of the machine take.
#[derive(Clone, Debug)]
struct Tables {
    /// By level, from the lowest up.
    bytes: Vec<u64>,
    now: u64,
    peak: u64,
}

impl Tables {
    fn made(&mut self, level: usize) {
        self.grow(self.bytes[level - 1]);
    }

    fn gone(&mut self, level: usize) {
        self.shrink(self.bytes[level - 1]);
    }

    fn grow(&mut self, bytes: u64) {
        self.now += bytes;
        self.peak = self.peak.max(self.now);
    }

    fn shrink(&mut self, bytes: u64) {
        self.now -= bytes;
    }
}

/// The mappings of all address spaces.
#[derive(Clone, Debug)]
pub(crate) struct Mappings {
    ladder: Ladder,
    /// The page-number bits that each level translates, from the lowest (index 0) up.
    bits: Vec<u32>,
    layouts: Vec<Layout>,
    pub(crate) nodes: Nodes,
    pub(crate) ptes: Vec<Pte>,
    /// The frame of each leaf's head.
    frames: Frames,
    /// For each node the page-table entry that points to it.
    pub(crate) parents: Vec<u32>,
    free: Vec<u32>,
    /// The roots of each space: page-number bits above the tree, first page-table entry.
    roots: Vec<Vec<(u64, u32)>>,
    /// Incremented at least when a table is made or freed: a cache of the upper levels may be out
    /// of date then.
    changes: u64,
    tables: Tables,
    index_cache: IndexCache,
    perforation: Perforation,
    /// The host's mappings of a guest's memory, where the host has a memory manager.
    pub(crate) backing: Option<Box<Backing>>,
    clusters: Option<Box<Clusters>>,
    ranges: Option<Box<Ranges>>,
    shadow: Option<Box<Shadow>>,
    /// Use bits that accesses set, counted by mapping and by page-table entry.
    pub(crate) use_bits: [UseBits; 2],
}

impl Mappings {
    /// No mappings yet.
    pub(crate) fn new(ladder: Ladder, shape: &Shape) -> Mappings {
        let bits = shape.bits.clone();
        let clusters = shape.clusters.map(|shape| Box::new(Clusters::new(shape)));
        let now = clusters.as_ref().map_or(0, |clusters| clusters.bucket_bytes());
        Mappings {
            ladder,
            nodes: Nodes { spans: Shape::spans(&bits), bits: shape.node_bits(), all: Vec::new() },
            index_cache: IndexCache::new(&bits),
            bits,
            layouts: shape.layouts.clone(),
            ptes: Vec::new(),
            frames: Frames::default(),
            parents: Vec::new(),
            free: Vec::new(),
            roots: Vec::new(),
            changes: 0,
            tables: Tables { bytes: shape.bytes.clone(), now, peak: now },
            perforation: Perforation::new(shape.least_mapped),
            backing: None,
            clusters,
            ranges: None,
            shadow: None,
            use_bits: Default::default(),
        }
    }

    pub(crate) fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// The number of levels.
    pub(crate) fn levels(&self) -> usize {
        self.bits.len()
    }

    /// The head of the mapping that the leaf `id` is part of.
    #[inline(always)]
    pub(crate) fn head(id: u32, pte: Pte) -> u32 {
        id & (u32::MAX << pte.replicas())
    }

    /// The level of `size` on the ladder.
    fn size_level(&self, size: PageSize) -> usize {
        match self.ladder.level(size) {
            Some(level) => level.index(),
            None => panic!("{size} is not a page size of this machine, whose ladder is {}", self.ladder),
        }
    }

    /// The layout of pages at this level of the ladder.
    fn layout(&self, size_level: usize) -> Layout {
        self.layouts[size_level]
    }

    /// The index of the page in its node at `level`.
    fn index(&self, at: Vpn, level: usize) -> u32 {
        (at.0 >> self.nodes.spans[level - 1]) as u32 & ((1 << self.bits[level - 1]) - 1)
    }

    /// The first page-table entry of the root for the page, if there is one yet.
    fn root(&self, space: u32, at: Vpn) -> Option<u32> {
        let prefix = self.prefix(at);
        let roots = self.roots.get(space as usize)?;
        roots.iter().find(|(above, _)| *above == prefix).map(|(_, first)| *first)
    }

    /// The most bytes of page tables, of all spaces together, since [`Mappings::restart_peak`].
    pub(crate) fn peak_table_bytes(&self) -> u64 {
        self.tables.peak
    }

    /// Restarts the peak at the bytes that tables take now.
    pub(crate) fn restart_peak(&mut self) {
        self.tables.peak = self.tables.now;
    }

    /// Whether the space has tables.
    pub(crate) fn has_root(&self, space: u32) -> bool {
        self.roots.get(space as usize).is_some_and(|roots| !roots.is_empty())
    }

    fn prefix(&self, at: Vpn) -> u64 {
        let top = self.levels() - 1;
        at.0.checked_shr(self.nodes.spans[top] + self.bits[top]).unwrap_or(0)
    }

    /// The root for the page, created if there is none. A machine has one root for a space; further
    /// roots, for addresses that the tree does not reach, do not count as its page tables.
    pub(crate) fn make_root(&mut self, space: u32, at: Vpn) -> u32 {
        if let Some(first) = self.root(space, at) {
            return first;
        }
        if !self.has_root(space) {
            self.tables.made(self.levels());
        }
        if self.roots.len() <= space as usize {
            self.roots.resize(space as usize + 1, Vec::new());
        }
        let first = self.make_node(self.levels(), space, at, NO_PARENT);
        let prefix = self.prefix(at);
        self.roots[space as usize].push((prefix, first));
        first
    }

    /// Follows the tree from the root towards the page, down to `lowest`.
    pub(crate) fn find(&self, space: u32, at: Vpn, lowest: usize) -> Option<Found> {
        let mut level = self.levels();
        let mut id = self.root(space, at)? + self.index(at, level);
        while level > lowest && self.ptes[id as usize].is_table() {
            level -= 1;
            id = self.ptes[id as usize].child() + self.index(at, level);
        }
        Some(Found { id, level })
    }

    /// The mapping of the page.
    pub(crate) fn mapping(&self, space: u32, at: Vpn) -> Option<Mapping> {
        let found = self.find(space, at, 1)?;
        let pte = self.ptes[found.id as usize];
        if !pte.is_leaf() {
            return None;
        }
        let head = Mappings::head(found.id, pte);
        Some(self.mapping_of(head))
    }

    /// The mapping with this head.
    pub(crate) fn mapping_of(&self, head: u32) -> Mapping {
        Mapping { head, pte: self.ptes[head as usize], first: self.nodes.first_page(head) }
    }

    /// This entry, which points to a table.
    fn pointer(&self, id: u32) -> Pointer {
        Pointer { id, pte: self.ptes[id as usize], level: self.nodes.level_of(id), number: self.nodes.number(id) }
    }

    /// The frame of the base page that this page-table entry maps, if it maps one.
    pub(crate) fn base_frame(&self, id: u32) -> Option<u64> {
        let pte = self.ptes[id as usize];
        (pte.is_leaf() && pte.size_level() == 0).then(|| self.frames.get(id))
    }

    /// The frame of a page of the mapping with this head.
    pub(crate) fn frame_of(&self, head: u32, page: Vpn) -> u64 {
        self.frames.get(head) + (page - self.nodes.first_page(head))
    }

    /// The base-two logarithm of the number of base pages in a page of this level.
    pub(crate) fn order(&self, size_level: usize) -> u32 {
        self.ladder.sizes()[size_level].shift() - self.ladder.base().shift()
    }

    fn make_node(&mut self, level: usize, space: u32, at: Vpn, parent: u32) -> u32 {
        let spanned = self.nodes.spans[level - 1] + self.bits[level - 1];
        let first = Vpn(at.0.checked_shr(spanned).unwrap_or(0).checked_shl(spanned).unwrap_or(0));
        let number = self.free.pop().unwrap_or_else(|| {
            let ptes = self.ptes.len() + (1 << self.nodes.bits);
            assert!(ptes < u32::MAX as usize, "more than 32 GB of page tables");
            if ptes > self.ptes.capacity() {
                self.ptes.reserve_exact((self.ptes.len() / 8).min(MOST_GROWTH) + (1 << self.nodes.bits));
            }
            self.ptes.resize(ptes, Pte::ABSENT);
            self.frames.resize(ptes);
            self.parents.push(NO_PARENT);
            self.nodes.all.push(Node { level: 0, space: 0, first: Vpn(0), live: 0 });
            self.nodes.all.len() as u32 - 1
        });
        self.nodes.all[number as usize] = Node { level: level as u8, space, first, live: 0 };
        self.parents[number as usize] = parent;
        number << self.nodes.bits
    }

    /// The page-table entry of the page at `level`; missing nodes above it are created.
    fn make(&mut self, space: u32, at: Vpn, lowest: usize) -> u32 {
        let mut id = self.make_root(space, at) + self.index(at, self.levels());
        for level in (lowest..self.levels()).rev() {
            let pte = self.ptes[id as usize];
            assert!(!pte.is_leaf(), "page {at:?} of space {space} is mapped by a larger page already");
            let child = if pte.is_table() {
                pte.child()
            } else {
                let child = self.make_node(level, space, at, id);
                self.ptes[id as usize] = Pte::table(child);
                self.nodes.all[(id >> self.nodes.bits) as usize].live += 1;
                self.tables.made(level);
                self.changes += 1;
                child
            };
            id = child + self.index(at, level);
        }
        id
    }

    /// Counts `gone` page-table entries of a node as absent, and frees it and those above that are
    /// empty now.
    fn release(&mut self, id: u32, gone: u32, caches: &mut impl Invalidate) {
        let (mut id, mut gone) = (id, gone);
        loop {
            let number = (id >> self.nodes.bits) as usize;
            self.nodes.all[number].live -= gone;
            let above = self.parents[number];
            if self.nodes.all[number].live > 0 || above == NO_PARENT {
                return;
            }
            self.tables.gone(self.nodes.all[number].level as usize);
            self.dissolve(number, caches);
            self.nodes.all[number].level = 0;
            self.free.push(number as u32);
            caches.drop_pointer(self.pointer(above));
            self.ptes[above as usize] = Pte::ABSENT;
            self.changes += 1;
            (id, gone) = (above, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_for_few_nodes_ahead() {
        let machine = Machine::builtin("zen5").unwrap();
        let shape = Shape::new(&machine, |_, _| Layout { level: 1, replicas: 0 });
        let mut mappings = Mappings::new(machine.ladder(), &shape);
        for node in 0..2000 {
            mappings.make(0, Vpn(node << 9), 1);
            let (used, room) = (mappings.ptes.len(), mappings.ptes.capacity());
            assert!(room <= used + used / 8 + 512, "{room} for {used}");
        }
    }
}
