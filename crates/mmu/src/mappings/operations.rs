//! The operations that the memory manager needs on page tables: enter, remove, protect, promote,
//! demote, and the use bits.

use super::{Mappings, Watch};
use crate::mappings::pte::Pte;
use superpage_pages::{Access, Mapped, PageRange, PageSize, Pfn, Protection, Vpn};

/// What an operation cost in page-table entries.
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

/// What names a mapping: its space, its first page and its size.
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
        let (level, replicas) = self.layout(size_level);
        let id = self.make(space, at, level);
        let leaf = Pte::leaf(size_level, replicas, protection, (true, access == Access::Write));
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
        let (head, pte) = self.expect(mapping);
        self.ptes[head as usize] = pte.without_referenced();
    }

    /// Writes the page-table entries of a mapping, which must be absent.
    pub(super) fn write_leaf(&mut self, head: u32, leaf: Pte, frame: u64) {
        let entries = &mut self.ptes[head as usize..][..1 << leaf.replicas()];
        assert!(entries.iter().all(|entry| entry.is_absent()), "there is something mapped where a page is entered");
        entries.fill(Pte::leaf(leaf.size_level(), leaf.replicas(), Protection::NONE, (false, false)));
        entries[0] = leaf;
        self.frames.set(head, frame);
    }

    /// The head of a mapping, which must be there.
    pub(super) fn expect(&self, MappingId { space, at, size }: MappingId) -> (u32, Pte) {
        match self.mapping(space, at) {
            Some((head, pte, first)) if first == at && pte.size_level() == self.size_level(size) => (head, pte),
            found => panic!("no mapping of {size} starts at {at:?} of space {space}, but {found:?} is there"),
        }
    }

    /// Removes a mapping; returns its last page-table entry.
    pub(crate) fn remove(&mut self, mapping: MappingId, watch: &mut impl Watch) -> (Pte, Work) {
        let (head, pte) = self.expect(mapping);
        watch.leaf(head, mapping.at, pte);
        self.forget_frames(head, pte, watch);
        let entries = 1 << pte.replicas();
        self.ptes[head as usize..][..entries].fill(Pte::ABSENT);
        self.changes += (self.nodes.level_of(head) > 1) as u64;
        self.release(head, entries as u32, watch);
        (pte, Work { writes: entries as u64, traversals: 0 })
    }

    /// Changes the rights of a mapping. All its entries are written.
    pub(crate) fn protect(&mut self, mapping: MappingId, protection: Protection, watch: &mut impl Watch) -> Work {
        let (head, pte) = self.expect(mapping);
        watch.leaf(head, mapping.at, pte);
        self.ptes[head as usize] = pte.with_protection(protection);
        Work { writes: 1 << pte.replicas(), traversals: 0 }
    }

    /// Replaces all mappings of a region by one of `to`; `mapping` is the first of them. Cost:
    /// O(entries of the extent).
    pub(crate) fn promote(&mut self, mapping: MappingId, to: PageSize, watch: &mut impl Watch) -> Work {
        let MappingId { space, at, size: from } = mapping;
        assert!(from < to, "a promotion from {from} to {to}");
        let size_level = self.size_level(to);
        let (level, replicas) = self.layout(size_level);
        let (mut head, first) = self.expect(mapping);
        let frame = self.frames.get(head);
        // The node of the new leaf must not be freed with the old ones.
        let place = self.find(space, at, level).expect("the nodes above a mapping exist").id;
        let node = (place >> self.nodes.bits) as usize;
        self.nodes.all[node].live += 1;

        let (step, pages, entries) =
            (1 << self.order(first.size_level()), 1u64 << self.order(size_level), 1 << first.replicas());
        let from_level = self.nodes.level_of(head);
        let (mut used, mut traversals) = ((false, false), 0);
        for offset in (0..pages).step_by(step) {
            if offset > 0 {
                head = match self.beside(head + entries, from_level) {
                    true => head + entries,
                    false => self.expect(MappingId { at: at + offset, ..mapping }).0,
                };
            }
            let pte = self.ptes[head as usize];
            let alike = pte.protection() == first.protection() && pte.size_level() == first.size_level();
            assert!(pte.is_leaf() && alike, "page {:?} does not fit into one of {to}: {pte:?}", at + offset);
            assert_eq!(self.frames.get(head), frame + offset, "frames that are not contiguous become one of {to}");
            used = (used.0 | pte.referenced(), used.1 | pte.dirty());
            watch.leaf(head, at + offset, pte);
            traversals += entries as u64;
            self.ptes[head as usize..][..entries as usize].fill(Pte::ABSENT);
            self.release(head, entries, watch);
        }
        self.write_leaf(place, Pte::leaf(size_level, replicas, first.protection(), used), frame);
        self.nodes.all[node].live += (1 << replicas) - 1;
        self.changes += (level > 1) as u64;
        Work { writes: 1 << replicas, traversals }
    }

    /// Replaces one mapping by mappings of `to`. Cost: O(entries of the extent).
    pub(crate) fn demote(&mut self, mapping: MappingId, to: PageSize, watch: &mut impl Watch) -> Work {
        let MappingId { space, at, size: from } = mapping;
        assert!(from > to, "a demotion from {from} to {to}");
        let (old, pte) = self.expect(mapping);
        watch.leaf(old, at, pte);
        let frame = self.frames.get(old);
        self.ptes[old as usize..][..1 << pte.replicas()].fill(Pte::ABSENT);
        self.nodes.of(old).live -= 1 << pte.replicas();
        self.changes += (self.nodes.level_of(old) > 1) as u64;

        let size_level = self.size_level(to);
        let (level, replicas) = self.layout(size_level);
        let leaf = Pte::leaf(size_level, replicas, pte.protection(), (pte.referenced(), pte.dirty()));
        let (step, pages, entries) = (1 << self.order(size_level), 1u64 << self.order(pte.size_level()), 1 << replicas);
        let mut head = self.make(space, at, level);
        for offset in (0..pages).step_by(step) {
            if offset > 0 {
                head = match self.beside(head + entries, level) {
                    true => head + entries,
                    false => self.make(space, at + offset, level),
                };
            }
            self.write_leaf(head, leaf, frame + offset);
            self.nodes.of(head).live += entries;
        }
        let written = pages / step as u64 * entries as u64;
        self.changes += (level > 1) as u64;
        // If the extent had an entry of its own above, that is written too: it points to a table
        // now.
        Work { writes: written + (self.nodes.level_of(head) != self.nodes.level_of(old)) as u64, traversals: written }
    }

    /// Whether the page-table entry stands in the same node as the one before it.
    fn beside(&self, id: u32, level: usize) -> bool {
        id & ((1 << self.bits[level - 1]) - 1) != 0
    }

    /// The mapping of the page.
    pub(crate) fn lookup(&self, space: u32, at: Vpn) -> Option<Mapped> {
        let (head, pte, first) = self.mapping(space, at)?;
        Some(self.mapped(head, pte, at - first))
    }

    /// What the page at this place of the mapping with this head is mapped to, as far as the memory
    /// manager knows.
    fn mapped(&self, head: u32, pte: Pte, place: u64) -> Mapped {
        let (frame, size_level) = match pte.is_shadow() {
            true => (self.shadowed(pte, place).frame, 0),
            false => (self.frames.get(head) + place, pte.size_level()),
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
                (0..pages).map(move |place| (node.space, first + place, self.mapped(id, pte, place)))
            })
        })
    }

    /// The page-table entry of a mapping, for its use bits.
    pub(crate) fn used(&self, mapping: MappingId) -> Pte {
        self.shadowed_use(mapping).unwrap_or_else(|| self.expect(mapping).1)
    }

    /// Replaces the use bits of a mapping by the result of `change`; returns what they were.
    pub(crate) fn clear(&mut self, mapping: MappingId, change: fn(Pte) -> Pte, watch: &mut impl Watch) -> (Pte, Work) {
        if self.shadows()
            && let Some(before) = self.clear_shadowed(mapping, change)
        {
            return (before, Work::default());
        }
        let (head, pte) = self.expect(mapping);
        let cleared = change(pte);
        if cleared == pte {
            return (pte, Work::default());
        }
        watch.leaf(head, mapping.at, pte);
        self.ptes[head as usize] = cleared;
        (pte, Work { writes: 1 << pte.replicas(), traversals: 0 })
    }

    /// The mapping with this head was written to.
    pub(crate) fn write(&mut self, head: u32) {
        let pte = &mut self.ptes[head as usize];
        *pte = pte.used_by(Access::Write as u64);
    }

    /// Frees all tables of a space. Mappings that are left are removed.
    pub(crate) fn destroy(&mut self, space: u32, watch: &mut impl Watch) {
        let Some(roots) = self.roots.get_mut(space as usize) else { return };
        let roots = std::mem::take(roots);
        if !roots.is_empty() {
            self.tables.gone(self.levels());
        }
        for (_, first) in roots {
            self.destroy_node(first, watch);
        }
        self.ended(space);
        self.changes += 1;
    }

    fn destroy_node(&mut self, first: u32, watch: &mut impl Watch) {
        let number = (first >> self.nodes.bits) as usize;
        for id in first..first + (1 << self.nodes.bits) {
            if self.nodes.all[number].live == 0 {
                break;
            }
            let pte = self.ptes[id as usize];
            if pte.is_table() {
                self.destroy_node(pte.child(), watch);
                self.tables.gone(self.nodes.level_of(id) - 1);
                watch.pointer(self.nodes.level_of(id), (id, self.nodes.number(id)), pte);
                self.ptes[id as usize] = Pte::ABSENT;
                self.nodes.all[number].live -= 1;
            } else if pte.is_leaf() {
                watch.leaf(id, self.nodes.first_page(id), pte);
                self.forget_frames(id, pte, watch);
                self.ptes[id as usize..][..1 << pte.replicas()].fill(Pte::ABSENT);
                self.nodes.all[number].live -= 1 << pte.replicas();
            }
        }
        self.dissolve(number, watch);
        self.nodes.all[number].level = 0;
        self.free.push(number as u32);
    }
}
