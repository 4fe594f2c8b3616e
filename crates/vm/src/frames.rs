//! Frames and who has them: the buddy allocator, the reservations and the population maps together.
//!
//! Every frame is in exactly one of four places: free in the buddy allocator; in a reservation and unpopulated; populated,
//! by a page of a memory object; or wired. What is done here moves frames between them and keeps the three structures in
//! step; page tables are no concern of it.

use crate::object::ObjectId;
use crate::policy::{Pieces, Place, Policy, Scarce};
use crate::population::{NONE, NodeId, Population, Walk};
use crate::reservation::Reservations;
use crate::{Buddy, Stats};
use alloc::vec::Vec;
use superpage_pages::{Extent, Ladder, Level, Pfn};

/// See the module.
pub(crate) struct Frames {
    pub(crate) ladder: Ladder,
    pub(crate) buddy: Buddy,
    pub(crate) population: Population,
    pub(crate) reservations: Reservations,
    pub(crate) wired: Vec<Extent>,
    pub(crate) stats: Stats,
}

/// How a page came by its frame.
#[derive(Clone, Copy)]
pub(crate) struct Populated {
    /// The level of the largest region that is fully populated by it and lies in an extent.
    pub(crate) full: u8,
    /// Whether the frame was reserved.
    pub(crate) reserved: bool,
    /// The level of the extent that was allocated, if it was not.
    pub(crate) allocated: Level,
    /// Reservations preempted for it.
    pub(crate) preempted: u32,
}

impl Frames {
    /// Populates a page of an object that is not populated, in its reserved frame, or else in a new reservation of at
    /// most the `preferred` size. `None`, and nothing populated, if no frame is left.
    pub(crate) fn populate(
        &mut self,
        policy: &Policy,
        object: ObjectId,
        index: u64,
        walk: &mut Walk,
        preferred: Level,
    ) -> Option<Populated> {
        if walk.covered > 0 {
            let filled = self.population.populate(object, index, walk);
            let (level, slot) = (walk.covered, walk.slots[walk.covered as usize]);
            let reservation = self.population.node(level, slot).reservation;
            if self.population.is_full(level, slot) {
                self.reservations.remove(reservation);
                self.population.node_mut(level, slot).reservation = NONE;
            } else {
                // The largest free extent can only have gone when a node one level up from it has no empty child left.
                let mut list = self.reservations.list(reservation);
                if filled.saturated >> (list + 1) & 1 != 0 {
                    list = self.population.largest_free(level, slot, list).unwrap_or(0);
                }
                self.reservations.touch(reservation, list);
            }
            self.stats.reserved_found += 1;
            self.stats.populated();
            let full = filled.full.min(level);
            return Some(Populated { full, reserved: true, allocated: Level::BASE, preempted: 0 });
        }
        let (extent, preempted) = self.allocate(policy, preferred)?;
        let filled = self.population.populate(object, index, walk);
        let level = extent.level.0;
        walk.frame = extent.start.0 as u32 + (index & (self.population.pages(level) - 1)) as u32;
        if level == 0 {
            let position = (index & (self.population.pages(1) - 1)) as u32;
            self.population.set_single(walk.slots[1], position, walk.frame);
        } else {
            walk.covered = level;
            let slot = walk.slots[level as usize];
            let reservation = self.reservations.add_tail(NodeId { level, slot }, level - 1);
            let node = self.population.node_mut(level, slot);
            (node.frame, node.reservation) = (extent.start.0 as u32, reservation);
            self.stats.reservations_made += 1;
        }
        self.stats.allocations[level as usize] += 1;
        self.stats.populated();
        Some(Populated { full: filled.full.min(level), reserved: false, allocated: extent.level, preempted })
    }

    /// The order of section 4.8, for each size from the preferred one down: the buddy allocator; the reservation list of that
    /// size; those of larger sizes. Also says how many reservations were preempted.
    fn allocate(&mut self, policy: &Policy, preferred: Level) -> Option<(Extent, u32)> {
        let largest = self.ladder.largest().0;
        let mut preempted = 0;
        for level in (0..=preferred.0).rev() {
            loop {
                if let Some(extent) = self.buddy.allocate(Level(level)) {
                    return Some((extent, preempted));
                }
                if level > 0 && policy.scarce == Scarce::Smaller {
                    break;
                }
                // One piece of the reservation has the extent; where it is more than one level down, the pieces are at the
                // head of the same list now, and the next of them is broken in turn.
                let Some(node) = (level..largest).find_map(|list| self.reservations.head(list)) else { break };
                self.preempt(policy, node);
                preempted += 1;
            }
        }
        None
    }

    fn preempt(&mut self, policy: &Policy, node: NodeId) {
        self.stats.reservations_preempted += 1;
        self.break_extent(policy.pieces, node.level, node.slot);
    }

    /// Breaks the extent of a node into those of its children (section 4.8, "Preempting a chosen reservation"): what is
    /// unpopulated goes to the buddy allocator, what is partially populated is a reservation at the head of its list,
    /// what is fully populated is on no list.
    fn break_extent(&mut self, pieces: Pieces, level: u8, slot: u32) {
        let node = self.population.node_mut(level, slot);
        let first = core::mem::replace(&mut node.frame, NONE);
        let reservation = core::mem::replace(&mut node.reservation, NONE);
        if reservation != NONE {
            self.reservations.remove(reservation);
        }
        let size = self.population.pages(level - 1) as u32;
        for position in 0..self.population.ratio(level) {
            let frame = first + position * size;
            let free = Extent { start: Pfn(u64::from(frame)), level: Level(level - 1) };
            if level == 1 {
                if self.population.bit(slot, position) {
                    self.population.set_single(slot, position, frame);
                } else {
                    self.buddy.free(free);
                    self.stats.pieces_freed += 1;
                }
                continue;
            }
            let child = self.population.child(level, slot, position);
            if child == NONE {
                self.buddy.free(free);
                self.stats.pieces_freed += 1;
                continue;
            }
            self.population.node_mut(level - 1, child).frame = frame;
            if self.population.is_full(level - 1, child) {
                continue;
            }
            if pieces == Pieces::Free {
                self.break_extent(pieces, level - 1, child);
            } else if let Some(list) = self.population.largest_free(level - 1, child, level - 2) {
                let reservation = self.reservations.add_head(NodeId { level: level - 1, slot: child }, list);
                self.population.node_mut(level - 1, child).reservation = reservation;
                self.stats.pieces_kept += 1;
            }
        }
    }

    /// Gives up the pages of an object from `low` up to `high`. Frames in an extent of which something else stays populated
    /// stay reserved; an extent that is wholly unpopulated is freed. O(nodes in the range).
    pub(crate) fn release(&mut self, object: ObjectId, low: u64, high: u64) {
        for (slot, index) in self.population.roots_in(object, low, high) {
            let top = self.population.top;
            let size = self.population.pages(top);
            let start = index * size;
            self.clear(top, slot, low.saturating_sub(start), (high - start).min(size), false);
            if self.population.node(top, slot).some == 0 {
                self.population.remove_root(slot);
            }
        }
    }

    /// Gives up the pages from `low` up to `high`, counted within the region of a node, and says the level of the largest
    /// region that became empty, or 0. `covered`: an extent above the node holds the frames.
    fn clear(&mut self, level: u8, slot: u32, low: u64, high: u64, covered: bool) -> u8 {
        let first = self.population.node(level, slot).frame;
        let covered = covered || first != NONE;
        let was_full = self.population.is_full(level, slot);
        let before = self.stats.resident_pages;
        let mut emptied = 0;
        if level == 1 {
            let (low, high) = (low as u32, high as u32);
            if !covered {
                for position in low..high {
                    if self.population.bit(slot, position) {
                        let frame = self.population.single(slot, position);
                        self.buddy.free(Extent { start: Pfn(u64::from(frame)), level: Level::BASE });
                    }
                }
            }
            let cleared = self.population.clear_bits(slot, low, high);
            self.stats.released(u64::from(cleared));
        } else {
            let size = self.population.pages(level - 1);
            for position in low / size..high.div_ceil(size) {
                let child = self.population.child(level, slot, position as u32);
                if child == NONE {
                    continue;
                }
                let child_was_full = self.population.is_full(level - 1, child);
                let start = position * size;
                let within = (low.saturating_sub(start), (high - start).min(size));
                emptied = emptied.max(self.clear(level - 1, child, within.0, within.1, covered));
                let lost_full = child_was_full && !self.population.is_full(level - 1, child);
                let lost_some = self.population.node(level - 1, child).some == 0;
                if lost_some {
                    self.population.remove_node(level - 1, child);
                    self.population.set_child(level, slot, position as u32, NONE);
                    emptied = level - 1;
                }
                let node = self.population.node_mut(level, slot);
                node.full -= u32::from(lost_full);
                node.some -= u32::from(lost_some);
            }
        }
        if first != NONE && self.stats.resident_pages < before {
            self.settle_extent(level, slot, was_full, emptied);
        }
        emptied
    }

    /// After pages of a node with an extent were given up: frees it, or puts it on the right list. A reservation that loses
    /// pages is not being filled, so it goes where the next to be preempted is taken.
    fn settle_extent(&mut self, level: u8, slot: u32, was_full: bool, emptied: u8) {
        let node = *self.population.node(level, slot);
        if node.some == 0 {
            if node.reservation != NONE {
                self.reservations.remove(node.reservation);
            }
            let node = self.population.node_mut(level, slot);
            let start = Pfn(u64::from(core::mem::replace(&mut node.frame, NONE)));
            node.reservation = NONE;
            self.buddy.free(Extent { start, level: Level(level) });
        } else if was_full {
            let reservation = self.reservations.add_head(NodeId { level, slot }, emptied);
            self.population.node_mut(level, slot).reservation = reservation;
        } else {
            let list = self.reservations.list(node.reservation).max(emptied);
            self.reservations.yield_more(node.reservation, list);
        }
    }

    /// Moves the pages of `from` to `into` where that has none, and frees those that it hides. O(nodes of `from` in regions
    /// that both populate), and one step for every other region of the largest size.
    pub(crate) fn absorb(&mut self, pieces: Pieces, from: ObjectId, into: ObjectId) {
        let roots: Vec<u32> = self.population.roots_of(from).collect();
        for slot in roots {
            match self.population.root(into, self.population.owner(slot).index) {
                None => self.population.move_root(slot, into),
                Some(other) => {
                    self.merge(pieces, self.population.top, slot, other);
                    self.population.remove_root(slot);
                }
            }
        }
    }

    /// Leaves the node `from` empty. Neither node is covered by an extent above it.
    fn merge(&mut self, pieces: Pieces, level: u8, from: u32, into: u32) {
        if self.population.is_full(level, into) {
            self.clear(level, from, 0, self.population.pages(level), false);
            return;
        }
        for slot in [from, into] {
            if self.population.node(level, slot).frame != NONE {
                self.break_extent(pieces, level, slot);
            }
        }
        for position in 0..self.population.ratio(level) {
            if level == 1 {
                if self.population.bit(from, position) {
                    let frame = self.population.single(from, position);
                    self.population.clear_bits(from, position, position + 1);
                    if self.population.bit(into, position) {
                        self.buddy.free(Extent { start: Pfn(u64::from(frame)), level: Level::BASE });
                        self.stats.released(1);
                    } else {
                        self.population.put_single(into, position, frame);
                    }
                }
                continue;
            }
            let (moved, kept) =
                (self.population.child(level, from, position), self.population.child(level, into, position));
            if moved == NONE {
                continue;
            }
            self.population.set_child(level, from, position, NONE);
            let (gained_some, gained_full) = if kept == NONE {
                self.population.set_child(level, into, position, moved);
                self.population.node_mut(level - 1, moved).parent = into;
                (true, self.population.is_full(level - 1, moved))
            } else {
                let was_full = self.population.is_full(level - 1, kept);
                self.merge(pieces, level - 1, moved, kept);
                self.population.remove_node(level - 1, moved);
                (false, !was_full && self.population.is_full(level - 1, kept))
            };
            let node = self.population.node_mut(level, into);
            node.some += u32::from(gained_some);
            node.full += u32::from(gained_full);
        }
        let node = self.population.node_mut(level, from);
        (node.some, node.full) = (0, 0);
    }

    /// The largest size for a new reservation around a page that overlaps no reservation and no page: that of the first
    /// node on the path from the root that has no population (section 4.9, "Overlap avoidance"); and the policy's answer.
    pub(crate) fn largest_without_overlap(&self, policy: &Policy, walk: &Walk) -> Level {
        match policy.place {
            Place::BasePage => Level::BASE,
            Place::Reservation => Level(walk.lowest - 1).min(self.ladder.largest()),
        }
    }

    /// Takes free frames away for ever.
    pub(crate) fn wire(&mut self, extent: Extent) -> bool {
        let taken = self.buddy.allocate_at(extent);
        if taken {
            self.wired.push(extent);
            self.stats.wired_frames += self.ladder.pages(extent.level);
        }
        taken
    }

    /// Bytes held for all of this.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.buddy.metadata_bytes()
            + self.population.metadata_bytes()
            + self.reservations.metadata_bytes()
            + self.wired.capacity() * size_of::<Extent>()
    }
}
