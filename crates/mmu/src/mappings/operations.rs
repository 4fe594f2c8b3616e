//! The operations that the memory manager needs on page tables: enter, remove, protect, promote,
//! demote, and the use bits.

use super::{Invalidate, Layout, Mapping, Mappings};
use crate::mappings::pte::Pte;
use superpage_pages::{Access, Mapped, PageRange, PageSize, Pfn, Protection, Used, Vpn};

/// The cost of an operation in page-table entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Work {
    /// Entries written, leaves and pointers that replaced or were replaced by leaves.
    pub(crate) writes: u64,
    /// Entries of the extent that a promotion or demotion read (section 6.6).
    pub(crate) traversals: u64,
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, more: Work) {
        self.writes += more.writes;
        self.traversals += more.traversals;
    }
}

/// The name of a mapping: its space, its first page and its size.
#[derive(Clone, Copy)]
pub(crate) struct MappingId {
    pub(crate) space: u32,
    pub(crate) at: Vpn,
    pub(crate) size: PageSize,
}

impl Mappings {
    /// Adds a mapping where nothing is mapped. Cost: O(entries it takes).
    pub(crate) fn enter(&mut self, space: u32, at: Vpn, to: Mapped, access: Access) -> Work {
        let Mapped { frame, size, protection } = to;
        let size_level = self.size_level(size);
        assert!(at.is_aligned(1 << self.order(size_level)), "page {at:?} is not aligned to {size}");
        let Layout { level, replicas } = self.layout(size_level);
        let id = self.make(space, at, level);
        let used = Used { referenced: true, modified: access == Access::Write };
        let leaf = Pte::leaf(size_level, replicas, protection, used);
        self.write_leaf(id, leaf, frame.0);
        self.count_frames(frame.0, 1 << self.order(size_level));
        self.nodes.of(id).live += 1 << replicas;
        self.changes += (level > 1) as u64;
        if let Some(backing) = &mut self.backing {
            backing
                .touched
                .push(PageRange { start: Vpn(frame.0), pages: 1 << (size.shift() - self.ladder.base().shift()) });
        }
        Work { writes: 1 << replicas, traversals: 0 }
    }

    /// Takes the reference bit from the mapping that was just entered at `at`.
    pub(crate) fn never_used(&mut self, mapping: MappingId) {
        let Mapping { head, pte, .. } = self.expect(mapping);
        self.ptes[head as usize] = pte.without_referenced();
    }

    /// Writes the page-table entries of a mapping, which must be absent.
    pub(super) fn write_leaf(&mut self, head: u32, leaf: Pte, frame: u64) {
        let entries = &mut self.ptes[head as usize..][..1 << leaf.replicas()];
        assert!(entries.iter().all(|entry| entry.is_absent()), "there is something mapped where a page is entered");
        entries.fill(Pte::leaf(leaf.size_level(), leaf.replicas(), Protection::NONE, Used::default()));
        entries[0] = leaf;
        self.frames.set(head, frame);
    }

    /// The mapping of this name, which must be there.
    pub(super) fn expect(&self, MappingId { space, at, size }: MappingId) -> Mapping {
        match self.mapping(space, at) {
            Some(mapping) if mapping.first == at && mapping.pte.size_level() == self.size_level(size) => mapping,
            found => panic!("no mapping of {size} starts at {at:?} of space {space}, but {found:?} is there"),
        }
    }

    /// Removes a mapping; returns its last page-table entry.
    pub(crate) fn remove(&mut self, mapping: MappingId, caches: &mut impl Invalidate) -> (Pte, Work) {
        let mapping = self.expect(mapping);
        let Mapping { head, pte, .. } = mapping;
        caches.drop_leaf(mapping);
        self.forget_frames(head, pte, caches);
        let entries = 1 << pte.replicas();
        self.ptes[head as usize..][..entries].fill(Pte::ABSENT);
        self.changes += (self.nodes.level_of(head) > 1) as u64;
        self.release(head, entries as u32, caches);
        (pte, Work { writes: entries as u64, traversals: 0 })
    }

    /// Changes the rights of a mapping. All its entries are written.
    pub(crate) fn protect(&mut self, mapping: MappingId, protection: Protection, caches: &mut impl Invalidate) -> Work {
        let mapping = self.expect(mapping);
        caches.drop_leaf(mapping);
        self.ptes[mapping.head as usize] = mapping.pte.with_protection(protection);
        Work { writes: 1 << mapping.pte.replicas(), traversals: 0 }
    }

    /// Replaces all mappings of a region by one of `to`; `mapping` is the first of them. Cost:
    /// O(entries of the extent).
    pub(crate) fn promote(&mut self, mapping: MappingId, to: PageSize, caches: &mut impl Invalidate) -> Work {
        let MappingId { space, at, size: from } = mapping;
        assert!(from < to, "a promotion from {from} to {to}");
        let size_level = self.size_level(to);
        let Layout { level, replicas } = self.layout(size_level);
        let Mapping { mut head, pte: first, .. } = self.expect(mapping);
        let frame = self.frames.get(head);
        // The node of the new leaf must not be freed with the old ones.
        let place = self.find(space, at, level).expect("the nodes above a mapping exist").id;
        let node = (place >> self.nodes.bits) as usize;
        self.nodes.all[node].live += 1;

        let (step, pages, entries) =
            (1 << self.order(first.size_level()), 1u64 << self.order(size_level), 1 << first.replicas());
        let from_level = self.nodes.level_of(head);
        let (mut used, mut traversals) = (Used::default(), 0);
        for offset in (0..pages).step_by(step) {
            if offset > 0 {
                head = if self.beside(head + entries, from_level) {
                    head + entries
                } else {
                    self.expect(MappingId { at: at + offset, ..mapping }).head
                };
            }
            let pte = self.ptes[head as usize];
            let alike = pte.protection() == first.protection() && pte.size_level() == first.size_level();
            assert!(pte.is_leaf() && alike, "page {:?} does not fit into one of {to}: {pte:?}", at + offset);
            assert_eq!(self.frames.get(head), frame + offset, "frames that are not contiguous become one of {to}");
            used.referenced |= pte.referenced();
            used.modified |= pte.dirty();
            caches.drop_leaf(Mapping { head, pte, first: at + offset });
            traversals += entries as u64;
            self.ptes[head as usize..][..entries as usize].fill(Pte::ABSENT);
            self.release(head, entries, caches);
        }
        self.write_leaf(place, Pte::leaf(size_level, replicas, first.protection(), used), frame);
        self.nodes.all[node].live += (1 << replicas) - 1;
        self.changes += (level > 1) as u64;
        Work { writes: 1 << replicas, traversals }
    }

    /// Replaces one mapping by mappings of `to`. Cost: O(entries of the extent).
    pub(crate) fn demote(&mut self, mapping: MappingId, to: PageSize, caches: &mut impl Invalidate) -> Work {
        let MappingId { space, at, size: from } = mapping;
        assert!(from > to, "a demotion from {from} to {to}");
        let mapping = self.expect(mapping);
        let Mapping { head: old, pte, .. } = mapping;
        caches.drop_leaf(mapping);
        let frame = self.frames.get(old);
        self.ptes[old as usize..][..1 << pte.replicas()].fill(Pte::ABSENT);
        self.nodes.of(old).live -= 1 << pte.replicas();
        self.changes += (self.nodes.level_of(old) > 1) as u64;

        let size_level = self.size_level(to);
        let Layout { level, replicas } = self.layout(size_level);
        let leaf = Pte::leaf(size_level, replicas, pte.protection(), pte.used());
        let (step, pages, entries) = (1 << self.order(size_level), 1u64 << self.order(pte.size_level()), 1 << replicas);
        let mut head = self.make(space, at, level);
        for offset in (0..pages).step_by(step) {
            if offset > 0 {
                head = if self.beside(head + entries, level) {
                    head + entries
                } else {
                    self.make(space, at + offset, level)
                };
            }
            self.write_leaf(head, leaf, frame + offset);
            self.nodes.of(head).live += entries;
        }
        let written = pages / step as u64 * entries as u64;
        self.changes += (level > 1) as u64;
        // If the mapping was one entry at a higher level, that is written too: it points to a table
        // now.
        Work { writes: written + (self.nodes.level_of(head) != self.nodes.level_of(old)) as u64, traversals: written }
    }

    /// Whether the page-table entry stands in the same node as the one before it.
    fn beside(&self, id: u32, level: usize) -> bool {
        id & ((1 << self.bits[level - 1]) - 1) != 0
    }

    /// What the page is mapped to, as far as the memory manager knows.
    pub(crate) fn lookup(&self, space: u32, at: Vpn) -> Option<Mapped> {
        let mapping = self.mapping(space, at)?;
        Some(self.mapped(mapping.head, mapping.pte, at - mapping.first))
    }

    /// As [`Mappings::lookup`], of the page with this index in the mapping with this head.
    fn mapped(&self, head: u32, pte: Pte, index: u64) -> Mapped {
        let (frame, size_level) = if pte.is_shadow() {
            (self.shadowed(pte, index).frame, 0)
        } else {
            (self.frames.get(head) + index, pte.size_level())
        };
        Mapped { frame: Pfn(frame), size: self.ladder().sizes()[size_level], protection: pte.protection() }
    }

    /// All mappings, with their spaces and first pages, in no order. O(page-table entries).
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, Vpn, Mapped)> + '_ {
        let live = self.nodes.all.iter().enumerate().filter(|(_, node)| node.level > 0 && node.live > 0);
        live.flat_map(move |(number, node)| {
            let first = (number as u32) << self.nodes.bits;
            let ids = first..first + (1 << self.bits[node.level as usize - 1]);
            let heads = ids.map(|id| (id, self.ptes[id as usize]));
            let heads = heads.filter(|(id, pte)| pte.is_leaf() && Mappings::head(*id, *pte) == *id);
            heads.flat_map(move |(id, pte)| {
                let first = self.nodes.first_page(id);
                let pages = if pte.is_shadow() { 1 << self.order(pte.size_level()) } else { 1 };
                (0..pages).map(move |index| (node.space, first + index, self.mapped(id, pte, index)))
            })
        })
    }

    /// The page-table entry of a mapping, for its use bits.
    pub(crate) fn used(&self, mapping: MappingId) -> Pte {
        self.shadowed_use(mapping).unwrap_or_else(|| self.expect(mapping).pte)
    }

    /// Replaces the use bits of a mapping by the result of `change`; returns the entry as it was.
    pub(crate) fn clear(
        &mut self,
        mapping: MappingId,
        change: fn(Pte) -> Pte,
        caches: &mut impl Invalidate,
    ) -> (Pte, Work) {
        if self.shadows()
            && let Some(before) = self.clear_shadowed(mapping, change)
        {
            return (before, Work::default());
        }
        let mapping = self.expect(mapping);
        let Mapping { head, pte, .. } = mapping;
        let cleared = change(pte);
        if cleared == pte {
            return (pte, Work::default());
        }
        caches.drop_leaf(mapping);
        self.ptes[head as usize] = cleared;
        (pte, Work { writes: 1 << pte.replicas(), traversals: 0 })
    }

    /// The mapping with this head was written to.
    pub(crate) fn write(&mut self, head: u32) {
        let pte = &mut self.ptes[head as usize];
        *pte = pte.used_by(Access::Write as u64);
    }

    /// Frees all tables of a space. Mappings that are left are removed.
    pub(crate) fn destroy(&mut self, space: u32, caches: &mut impl Invalidate) {
        let Some(roots) = self.roots.get_mut(space as usize) else { return };
        let roots = std::mem::take(roots);
        if !roots.is_empty() {
            self.tables.gone(self.levels());
        }
        for (_, first) in roots {
            self.destroy_node(first, caches);
        }
        self.ended(space);
        self.changes += 1;
    }

    fn destroy_node(&mut self, first: u32, caches: &mut impl Invalidate) {
        let number = (first >> self.nodes.bits) as usize;
        for id in first..first + (1 << self.nodes.bits) {
            if self.nodes.all[number].live == 0 {
                break;
            }
            let pte = self.ptes[id as usize];
            if pte.is_table() {
                self.destroy_node(pte.child(), caches);
                self.tables.gone(self.nodes.level_of(id) - 1);
                caches.drop_pointer(self.pointer(id));
                self.ptes[id as usize] = Pte::ABSENT;
                self.nodes.all[number].live -= 1;
            } else if pte.is_leaf() {
                caches.drop_leaf(self.mapping_of(id));
                self.forget_frames(id, pte, caches);
                self.ptes[id as usize..][..1 << pte.replicas()].fill(Pte::ABSENT);
                self.nodes.all[number].live -= 1 << pte.replicas();
            }
        }
        self.dissolve(number, caches);
        self.nodes.all[number].level = 0;
        self.free.push(number as u32);
    }
}
