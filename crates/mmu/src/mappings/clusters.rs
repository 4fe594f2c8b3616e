//! A clustered page table: chains of nodes behind the buckets of a hash table. Talluri, Hill and
//! Khalidi, A new page table for 64-bit address spaces, SOSP 1995.
//!
//! A node has the tag of an aligned block of base pages, the next node of its chain, and either a
//! mapping for each page of the block (*long*), or one mapping (*short*): of a superpage that
//! covers the block, or, with *partial subblocks*, of all pages of the block that are mapped, where
//! these are in one aligned block of frames, each at its place there, with the same rights. A block
//! has one node if anything of it is mapped. A superpage of several blocks has a short node for
//! each; one that is smaller is repeated within a long node. All address spaces share the table:
//! the tag names the space.
//!
//! A new node is the first of its chain; a node that takes the other form is a new one. Addresses
//! are in words of eight bytes: first the buckets, a pointer each, then base pages full of nodes of
//! one form, in the order in which they are needed. The node freed last is reused first. So the
//! lines that a walk reads depend only on the sequence of operations.

use super::notifiers::{Change, Effects, Notifier};
use super::{Found, Invalidate, Mappings, Work};
use crate::machine::ENTRY_BYTES;
use crate::machine::Machine;
use std::ops::Range;
use superpage_pages::Vpn;

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// Words of a node besides its mappings: the tag, and the pointer to the next node.
const TAGGED: u32 = 2;

/// The sizes of a clustered page table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterShape {
    /// The base-two logarithms of the pages of a block, and of the number of buckets.
    order: u32,
    buckets: u32,
    /// Whether there are partial subblocks.
    partial: bool,
    /// The words of a base page.
    page: u32,
}

impl ClusterShape {
    /// The shape of a machine's table, if it has one.
    pub(crate) fn of(machine: &Machine) -> Option<ClusterShape> {
        machine.clustered.as_ref().map(|clustered| ClusterShape {
            order: clustered.pages.ilog2(),
            buckets: clustered.buckets.ilog2(),
            partial: clustered.partial_subblock,
            page: (machine.ladder().base().bytes() / ENTRY_BYTES) as u32,
        })
    }
}

/// The form of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Short,
    Long,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    space: u32,
    block: u64,
    /// The next of the chain; of a free node [`FREE`].
    next: u32,
}

/// The `next` of a node that is free.
const FREE: u32 = u32::MAX - 1;

/// All nodes of one form.
#[derive(Clone, Debug)]
struct Pool {
    /// Words of a node.
    words: u32,
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// The addresses of the base pages that have the nodes.
    pages: Vec<u32>,
}

/// The table. A node's number is that in its pool, and in the lowest bit its form.
#[derive(Clone, Debug)]
pub(crate) struct Clusters {
    shape: ClusterShape,
    heads: Vec<u32>,
    pools: [Pool; 2],
    /// Pages of both pools.
    pages: u32,
    /// Nodes of each space.
    live: Vec<u32>,
}

impl Clusters {
    /// An empty table.
    pub(super) fn new(shape: ClusterShape) -> Clusters {
        let pool = |mappings: u32| Pool { words: TAGGED + mappings, nodes: vec![], free: vec![], pages: vec![] };
        let heads = vec![NONE; 1 << shape.buckets];
        Clusters { shape, heads, pools: [pool(1), pool(1 << shape.order)], pages: 0, live: Vec::new() }
    }

    /// Bytes of the buckets.
    pub(super) fn bucket_bytes(&self) -> u64 {
        ENTRY_BYTES << self.shape.buckets
    }

    fn bytes(&self, form: Form) -> u64 {
        u64::from(self.pools[form as usize].words) * ENTRY_BYTES
    }

    /// The bucket of a block. The paper leaves the hash function open: the bits of its number are
    /// folded, and spaces are spread.
    fn bucket(&self, space: u32, block: u64) -> u32 {
        let number = block.wrapping_add(u64::from(space).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bits = self.shape.buckets;
        (number ^ number >> bits ^ number >> (2 * bits)) as u32 & ((1 << bits) - 1)
    }

    fn node(&self, id: u32) -> &Node {
        &self.pools[id as usize & 1].nodes[id as usize >> 1]
    }

    /// The first word of a node.
    fn place(&self, id: u32) -> u32 {
        let pool = &self.pools[id as usize & 1];
        let in_page = self.shape.page / pool.words;
        pool.pages[(id >> 1) as usize / in_page as usize] + (id >> 1) % in_page * pool.words
    }

    fn form(id: u32) -> Form {
        if id & 1 == 0 { Form::Short } else { Form::Long }
    }

    /// Searches for the mapping of a page, which need not be there; calls `read` with each word
    /// that is read.
    pub(crate) fn search(&self, space: u32, page: Vpn, mut read: impl FnMut(u32)) {
        let block = page.0 >> self.shape.order;
        let bucket = self.bucket(space, block);
        read(bucket);
        let mut id = self.heads[bucket as usize];
        while id != NONE {
            let (node, place) = (self.node(id), self.place(id));
            read(place);
            if (node.space, node.block) == (space, block) {
                let mapping = match Clusters::form(id) {
                    Form::Short => 0,
                    Form::Long => page.0 as u32 & ((1 << self.shape.order) - 1),
                };
                return read(place + TAGGED + mapping);
            }
            read(place + 1);
            id = node.next;
        }
    }

    /// The node of a block.
    fn find(&self, space: u32, block: u64) -> Option<u32> {
        let mut id = self.heads[self.bucket(space, block) as usize];
        while id != NONE {
            let node = self.node(id);
            if (node.space, node.block) == (space, block) {
                return Some(id);
            }
            id = node.next;
        }
        None
    }

    /// Makes the node of a block the first of its chain.
    fn insert(&mut self, space: u32, block: u64, form: Form) {
        let bucket = self.bucket(space, block) as usize;
        let node = Node { space, block, next: self.heads[bucket] };
        let pool = &mut self.pools[form as usize];
        let number = match pool.free.pop() {
            Some(number) => {
                pool.nodes[number as usize] = node;
                number
            }
            None => {
                if pool.nodes.len().is_multiple_of((self.shape.page / pool.words) as usize) {
                    let first = (1u64 << self.shape.buckets).next_multiple_of(self.shape.page.into());
                    let page = first + u64::from(self.pages) * u64::from(self.shape.page);
                    assert!(page < u64::from(NONE >> 1), "more than 16 GB of page tables");
                    pool.pages.push(page as u32);
                    self.pages += 1;
                }
                pool.nodes.push(node);
                pool.nodes.len() as u32 - 1
            }
        };
        self.heads[bucket] = number << 1 | form as u32;
        if self.live.len() <= space as usize {
            self.live.resize(space as usize + 1, 0);
        }
        self.live[space as usize] += 1;
    }

    /// Takes a node out of its chain, and frees it.
    fn remove(&mut self, id: u32) {
        let Node { space, block, next } = *self.node(id);
        let bucket = self.bucket(space, block) as usize;
        let mut before = self.heads[bucket];
        if before == id {
            self.heads[bucket] = next;
        } else {
            while self.node(before).next != id {
                before = self.node(before).next;
            }
            self.pools[before as usize & 1].nodes[before as usize >> 1].next = next;
        }
        let pool = &mut self.pools[id as usize & 1];
        pool.nodes[id as usize >> 1].next = FREE;
        pool.free.push(id >> 1);
        self.live[space as usize] -= 1;
    }

    /// The nodes that are in chains.
    fn ids(&self) -> impl Iterator<Item = u32> {
        self.pools.iter().enumerate().flat_map(|(form, pool)| {
            let used = pool.nodes.iter().enumerate().filter(|(_, node)| node.next != FREE);
            used.map(move |(number, _)| (number as u32) << 1 | form as u32)
        })
    }

    /// The blocks that these pages are in, each with how many of the pages.
    fn blocks(&self, pages: &Range<u64>) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (order, pages) = (self.shape.order, pages.clone());
        (pages.start >> order..=(pages.end - 1) >> order).map(move |block| {
            let (first, last) =
                (pages.start.max(block << order), (pages.end - 1).min(block << order | ((1 << order) - 1)));
            (block, last - first + 1)
        })
    }
}

impl Mappings {
    /// The clustered table, if these mappings have one.
    #[inline(always)]
    pub(crate) fn clusters(&self) -> Option<&Clusters> {
        self.clusters.as_deref()
    }

    /// The form of a block's node as it is mapped now, and how many pages are.
    fn form(&self, shape: ClusterShape, space: u32, block: u64) -> Option<(Form, u64)> {
        let first = Vpn(block << shape.order);
        let Found { id, level } = self.find(space, first, 1)?;
        let pte = self.ptes[id as usize];
        let pages = 1 << shape.order;
        if pte.is_leaf() && self.order(pte.size_level()) >= shape.order {
            return Some((Form::Short, pages));
        }
        if level > 1 {
            return None;
        }
        let ids = id..id + pages as u32;
        let mapped = ids.clone().filter(|id| self.ptes[*id as usize].is_leaf()).count() as u64;
        let leaves = ids.filter(|id| self.ptes[*id as usize].is_leaf());
        let mut placements = leaves.map(|id| self.placement(id, pages));
        let one = placements.next().flatten();
        let together = shape.partial && one.is_some() && placements.all(|placement| placement == one);
        (mapped > 0).then_some((if together { Form::Short } else { Form::Long }, mapped))
    }

    /// The page-table entries that are written when the use bits of these pages change, `entries`
    /// of them in the index.
    pub(crate) fn writes_of_bits(&self, space: u32, pages: &Range<u64>, entries: u64) -> u64 {
        let Some(clusters) = &self.clusters else { return entries };
        let words = |(block, pages)| match clusters.find(space, block).map(Clusters::form) {
            Some(Form::Long) => pages,
            _ => 1,
        };
        clusters.blocks(pages).map(words).sum()
    }
}

impl Notifier for Clusters {
    #[inline(always)]
    fn is_kept(mappings: &Mappings) -> bool {
        mappings.clusters.is_some()
    }

    /// Brings the nodes of the blocks that these pages are in up to date. The change costs the
    /// mappings that are written, and, if it joins or splits pages, those that are read.
    fn after(mappings: &mut Mappings, change: &Change, work: Work, _: &mut impl Invalidate) -> Effects {
        let none = |work| Effects { work, shot: Vec::new() };
        let Some(mut clusters) = mappings.clusters.take() else { return none(work) };
        let Change { space, pages, .. } = change.clone();
        let (mut writes, mut reads) = (0, 0);
        for (block, changed) in clusters.blocks(&pages) {
            let (old, new) = (clusters.find(space, block), mappings.form(clusters.shape, space, block));
            let words = |form: Form, several: u64| if form == Form::Short { 1 } else { several };
            reads += old.map_or(0, |old| words(Clusters::form(old), changed));
            writes += match (old.map(Clusters::form), new) {
                (Some(old), Some((new, mapped))) if old != new => words(new, mapped),
                (_, Some((new, _))) => words(new, changed),
                (Some(old), None) => words(old, changed),
                (None, None) => 0,
            };
            let new = new.map(|(form, _)| form);
            if old.map(Clusters::form) == new {
                continue;
            }
            if let Some(old) = old {
                mappings.tables.shrink(clusters.bytes(Clusters::form(old)));
                clusters.remove(old);
            }
            if let Some(new) = new {
                clusters.insert(space, block, new);
                mappings.tables.grow(clusters.bytes(new));
            }
        }
        mappings.clusters = Some(clusters);
        none(Work { writes, traversals: if work.traversals == 0 { 0 } else { writes.max(reads) } })
    }

    fn ended(mappings: &mut Mappings, space: u32) {
        let Some(clusters) = &mut mappings.clusters else { return };
        if clusters.live.get(space as usize).is_none_or(|live| *live == 0) {
            return;
        }
        let those: Vec<u32> = clusters.ids().filter(|id| clusters.node(*id).space == space).collect();
        for id in those {
            mappings.tables.shrink(clusters.bytes(Clusters::form(id)));
            clusters.remove(id);
        }
    }

    /// Checks that each block has a node of the form that its mappings need, in the chain where it
    /// is looked for.
    fn validate(mappings: &Mappings) -> Result<(), String> {
        let Some(clusters) = &mappings.clusters else { return Ok(()) };
        let (mut bytes, mut live) = (clusters.bucket_bytes(), vec![0; clusters.live.len()]);
        for id in clusters.ids() {
            let Node { space, block, .. } = *clusters.node(id);
            let form = mappings.form(clusters.shape, space, block).map(|(form, _)| form);
            if form != Some(Clusters::form(id)) || clusters.find(space, block) != Some(id) {
                return Err(format!(
                    "block {block:#x} of space {space} has the node {id:#x}, but should have {form:?}"
                ));
            }
            bytes += clusters.bytes(Clusters::form(id));
            live[space as usize] += 1;
        }
        let used = clusters.pools.iter().map(|pool| (pool.nodes.len() - pool.free.len()) as u32).sum::<u32>();
        if live != clusters.live || bytes != mappings.tables.now || used != live.iter().sum() {
            return Err(format!("nodes take {bytes} bytes, {live:?} by space, but {:?} is counted", mappings.tables));
        }
        for (space, first, mapped) in mappings.all() {
            let pages = mapped.size.bytes() >> mappings.ladder.base().shift();
            for (block, _) in clusters.blocks(&(first.0..first.0 + pages)) {
                if clusters.find(space, block).is_none() {
                    return Err(format!("block {block:#x} of space {space} has no node, but {mapped:?} is there"));
                }
            }
        }
        Ok(())
    }
}
