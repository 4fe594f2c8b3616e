//! The lookup of a request in the index, through a cache of its second level.

use super::{Mapping, Mappings};
use crate::request::{Request, Trap};
use superpage_pages::Used;
use superpage_pages::Vpn;

/// The nodes that are cached. Each spans 1 GB with pages of 4 KB; programs use few, but far apart.
const SLOTS: usize = 64;

/// The slot of the node that spans the pages of this number, in units of its span.
#[inline(always)]
fn slot(number: u64) -> usize {
    (number ^ number >> 7) as usize % SLOTS
}

/// A node of the second level of the index.
#[derive(Clone, Copy, Debug)]
struct CachedNode {
    /// The number of the pages that it spans, in units of its span.
    number: u64,
    /// Its first page-table entry.
    first: u32,
    /// The bits of the index within the node; 0 if one page is as large as its span.
    mask: u32,
}

const NO_NODE: CachedNode = CachedNode { number: u64::MAX, first: 0, mask: 0 };

/// A direct-mapped cache of the second level of the index, for the current space.
#[derive(Clone, Debug)]
pub(super) struct IndexCache {
    slots: [CachedNode; SLOTS],
    /// The value of [`Mappings::changes`] when they were cached.
    learned: u64,
    /// The page-number bits of the lowest level.
    lowest_bits: u32,
    /// The page-number bits of the two lowest levels together.
    node_bits: u32,
}

impl IndexCache {
    pub(super) fn new(bits: &[u32]) -> IndexCache {
        IndexCache { slots: [NO_NODE; SLOTS], learned: 0, lowest_bits: bits[0], node_bits: bits[0] + bits[1] }
    }
}

impl Mappings {
    /// Empties the cache of the index: for another space, or because it is out of date.
    pub(crate) fn clear_index_cache(&mut self) {
        self.index_cache.slots = [NO_NODE; SLOTS];
    }

    /// Brings the cache up to date, if the index has changed above the lowest level; call it before
    /// lookups.
    #[inline(always)]
    pub(crate) fn refresh(&mut self) {
        if self.index_cache.learned != self.changes {
            self.index_cache.learned = self.changes;
            self.clear_index_cache();
        }
    }

    /// The page-table entry of the page, of its mapping or absent; `None` if the index has no node
    /// for it.
    #[inline(always)]
    pub(crate) fn entry(&mut self, space: u32, page: Vpn) -> Option<u32> {
        let IndexCache { lowest_bits, node_bits, .. } = self.index_cache;
        let number = page.0 >> node_bits;
        let mut node = self.index_cache.slots[slot(number)];
        if node.number != number {
            node = self.learn(space, page)?;
        }
        let above = node.first + ((page.0 >> lowest_bits) as u32 & node.mask);
        let pte = self.ptes[above as usize];
        Some(if pte.is_table() { pte.child() + (page.0 as u32 & ((1 << lowest_bits) - 1)) } else { above })
    }

    /// The page-table entry of a request's page; `None` if the request would trap.
    pub(crate) fn ready_entry(&mut self, space: u32, request: Request) -> Option<u32> {
        let entry = self.entry(space, request.page())?;
        let head = Mappings::head(entry, self.ptes[entry as usize]);
        self.ptes[head as usize].allows(request.access_bits()).then_some(entry)
    }

    /// The head of the mapping that the page-table entry belongs to, with the use bits that the
    /// access sets; or the reason why it traps.
    #[inline(always)]
    pub(crate) fn make_ready(&mut self, entry: u32, page: Vpn, access: u64) -> Result<u32, Trap> {
        let head = Mappings::head(entry, self.ptes[entry as usize]);
        let pte = &mut self.ptes[head as usize];
        if pte.is_shadow() && pte.allows(access) {
            self.use_shadowed(head, page, access);
            return Ok(head);
        }
        if !pte.allows(access) {
            return Err(if pte.is_leaf() { Trap::Rights { held: pte.protection() } } else { Trap::Absent });
        }
        let used = pte.used_by(access);
        if used != *pte {
            let set = Used { referenced: !pte.referenced(), modified: used.dirty() && !pte.dirty() };
            *pte = used;
            self.note_use(head, set);
        }
        Ok(head)
    }

    /// Counts that an access `set` one or both use bits of a mapping.
    #[cold]
    fn note_use(&mut self, head: u32, set: Used) {
        let (Mapping { pte, first, .. }, space) = (self.mapping_of(head), self.nodes.space_of(head));
        let pages = first.0..first.0 + (1 << self.order(pte.size_level()));
        let entries = self.writes_of_bits(space, &pages, 1 << pte.replicas());
        for (bits, count) in self.use_bits.iter_mut().zip([1, entries]) {
            bits.dirty += count * u64::from(set.modified);
            bits.referenced += count * u64::from(set.referenced);
            bits.both += count * u64::from(set.modified && set.referenced);
        }
    }

    /// Whether this access will set one of these use bits of the mapping.
    pub(crate) fn changes(&self, entry: u32, access: u64, bits: u32) -> bool {
        let pte = self.ptes[Mappings::head(entry, self.ptes[entry as usize]) as usize];
        pte.allows(access) && pte.used_by(access).attributes(bits) != pte.attributes(bits)
    }

    #[cold]
    fn learn(&mut self, space: u32, page: Vpn) -> Option<CachedNode> {
        let IndexCache { lowest_bits, node_bits, .. } = self.index_cache;
        let number = page.0 >> node_bits;
        let found = self.find(space, page, 2)?;
        let mask = (1u32 << (node_bits - lowest_bits)) - 1;
        let node = match found.level {
            2 => CachedNode { number, first: found.id - ((page.0 >> lowest_bits) as u32 & mask), mask },
            _ if self.ptes[found.id as usize].is_leaf() => CachedNode { number, first: found.id, mask: 0 },
            _ => return None,
        };
        self.index_cache.slots[slot(number)] = node;
        Some(node)
    }
}
