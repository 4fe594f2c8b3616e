//! How frames become free again: extents that are broken into pieces, pages that are released, and
//! objects that are merged into one.

use crate::frame::Frames;
use crate::object::ObjectId;
use crate::object::population::{NONE, NodeId};
use crate::policy::Pieces;
use crate::queue::swap_and_cache::PagesIn;
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Extent, Level, Pfn};

impl Frames {
    /// Breaks the extent of a node into those of its children (section 4.8, "Preempting a chosen
    /// reservation"): unpopulated ones are freed to the buddy allocator, partially populated ones
    /// are reservations at the head of their list, fully populated ones are on no list.
    pub(crate) fn break_extent(&mut self, pieces: Pieces, level: u8, slot: u32) {
        let first = self.take_extent(level, slot);
        let reservation = core::mem::replace(&mut self.population.node_mut(level, slot).reservation, NONE);
        if reservation != NONE {
            self.reservations.remove(reservation);
        }
        let size = self.population.pages(level - 1) as u32;
        for position in 0..self.population.ratio(level) {
            let frame = first + position * size;
            let free = Extent { start: Pfn(u64::from(frame)), level: Level(level - 1) };
            if level == 1 {
                if self.population.bit(slot, position) {
                    self.set_single(slot, position, frame);
                } else {
                    self.free(free);
                    self.stats.pieces_freed += 1;
                }
                continue;
            }
            let child = self.population.child(level, slot, position);
            if child == NONE {
                self.free(free);
                self.stats.pieces_freed += 1;
                continue;
            }
            self.set_extent(level - 1, child, frame);
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

    /// Frees the pages of an object from `low` up to `high`. Frames in an extent of which something
    /// else stays populated stay reserved, if the policy reserves, or are freed later, if it splits
    /// huge pages later; an extent that becomes wholly unpopulated is freed. O(nodes in the range).
    pub(crate) fn release(&mut self, object: ObjectId, low: u64, high: u64) {
        let PagesIn { cached, swapped } = self.swap_and_cache.pages_in(object, low, high);
        cached.into_iter().for_each(|page| self.drop_cached(page.frame));
        swapped.into_iter().for_each(|index| self.swap_and_cache.free_slot(object.page(index)));
        self.defer(object, low, high);
        self.unpopulate(object, low, high);
    }

    /// As [`Frames::release`], but swap and cache pages keep their contents.
    pub(crate) fn unpopulate(&mut self, object: ObjectId, low: u64, high: u64) {
        for (slot, index) in self.population.roots_in(object, low, high) {
            let top = self.population.top;
            let size = self.population.pages(top);
            let start = index * size;
            self.clear(NodeId { level: top, slot }, low.saturating_sub(start)..(high - start).min(size), NONE);
            if self.population.some(top, slot) == 0 {
                self.population.remove_root(slot);
            }
        }
    }

    /// Frees some pages of a node, counted within its region. Returns the level of the largest
    /// region that became empty, or 0. `above`: the first frame of the region, if an extent above
    /// the node holds it.
    pub(super) fn clear(&mut self, NodeId { level, slot }: NodeId, pages: Range<u64>, above: u32) -> u8 {
        let Range { start: low, end: high } = pages;
        let first = self.population.node(level, slot).frame;
        let start_frame = if first != NONE { first } else { above };
        let was_full = self.population.is_full(level, slot);
        let before = self.stats.resident_pages;
        let mut emptied = 0;
        if level == 1 {
            let (low, high) = (low as u32, high as u32);
            if start_frame == NONE {
                for position in low..high {
                    if self.population.bit(slot, position) {
                        let frame = self.population.single(slot, position);
                        self.frame_freed(frame);
                        self.free(Extent { start: Pfn(u64::from(frame)), level: Level::BASE });
                    }
                }
            } else if self.keeps_by_frame() {
                let populated = (low..high).filter(|position| self.population.bit(slot, *position));
                let populated: Vec<u32> = populated.collect();
                populated.into_iter().for_each(|position| self.frame_freed(start_frame + position));
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
                let within = low.saturating_sub(start)..(high - start).min(size);
                let above = if start_frame == NONE { NONE } else { start_frame + start as u32 };
                emptied = emptied.max(self.clear(NodeId { level: level - 1, slot: child }, within, above));
                let lost_full = child_was_full && !self.population.is_full(level - 1, child);
                let lost_some = self.population.some(level - 1, child) == 0;
                if lost_some {
                    self.population.remove_node(level - 1, child);
                    self.population.set_child(level, slot, position as u32, NONE);
                    emptied = level - 1;
                }
                self.population.count_child(level, slot, -i32::from(lost_some), -i32::from(lost_full));
            }
        }
        if first != NONE && self.stats.resident_pages < before {
            self.settle_extent(level, slot, was_full, emptied);
        }
        emptied
    }

    /// After pages of a node with an extent were freed: frees the extent, or its unpopulated pieces
    /// if nothing is reserved, or puts it on the right list. A reservation that loses pages is not
    /// being populated, so it goes to the end where preemption takes.
    fn settle_extent(&mut self, level: u8, slot: u32, was_full: bool, emptied: u8) {
        let node = *self.population.node(level, slot);
        if self.population.some(level, slot) == 0 {
            if node.reservation != NONE {
                self.reservations.remove(node.reservation);
            }
            self.population.node_mut(level, slot).reservation = NONE;
            let start = Pfn(u64::from(self.take_extent(level, slot)));
            self.free_extent(Extent { start, level: Level(level) });
        } else if !self.reserves {
            self.break_extent(Pieces::Free, level, slot);
        } else if was_full {
            let reservation = self.reservations.add_head(NodeId { level, slot }, emptied);
            self.population.node_mut(level, slot).reservation = reservation;
        } else {
            let list = self.reservations.list(node.reservation).max(emptied);
            self.reservations.yield_more(node.reservation, list);
        }
    }

    /// Moves the pages of `from` to `into` where `into` has none, and frees those that it hides.
    /// O(nodes of `from` in regions that both populate), and one step for every other region of the
    /// largest size.
    pub(crate) fn absorb(&mut self, pieces: Pieces, from: ObjectId, into: ObjectId) {
        self.absorb_swap_and_cache(from, into);
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

    /// Absorbs swap and cache pages, and frees populated pages that these hide.
    fn absorb_swap_and_cache(&mut self, from: ObjectId, into: ObjectId) {
        for index in self.swap_and_cache.pages_in(into, 0, crate::PAGES_LIMIT).indices() {
            self.release(from, index, index + 1);
        }
        for index in self.swap_and_cache.pages_in(from, 0, crate::PAGES_LIMIT).indices() {
            if self.population.walk(into, index).populated {
                // The slot of a populated page is freed as well: the page itself is hidden.
                let cached = self.swap_and_cache.cached(from.page(index));
                cached.into_iter().for_each(|frame| self.drop_cached(frame));
                self.swap_and_cache.free_slot(from.page(index));
            } else {
                self.swap_and_cache.move_page(from.page(index), into.page(index));
            }
        }
    }

    /// Merges the node `from` into `into` and leaves it empty. Neither node is covered by an extent
    /// above it.
    fn merge(&mut self, pieces: Pieces, level: u8, from: u32, into: u32) {
        if self.population.is_full(level, into) {
            self.clear(NodeId { level, slot: from }, 0..self.population.pages(level), NONE);
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
                        self.frame_freed(frame);
                        self.free(Extent { start: Pfn(u64::from(frame)), level: Level::BASE });
                        self.stats.released(1);
                    } else {
                        self.population.put_single(into, position, frame);
                        if let Some(pages) = &mut self.pages {
                            pages.set_single(frame, into);
                        }
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
            self.population.count_child(level, into, i32::from(gained_some), i32::from(gained_full));
        }
        let (some, full) = (self.population.some(level, from), self.population.full(level, from));
        if level > 1 {
            self.population.count_child(level, from, -(some as i32), -(full as i32));
        }
    }
}
