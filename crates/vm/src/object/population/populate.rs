//! How pages become populated in a map, and cease to be.

use super::{Filled, Population, Walk};
use crate::object::PageOf;

impl Population {
    /// Populates the page of a walk, which is not populated yet, making the missing nodes of the
    /// path and completing `walk`. O(number of sizes) and the clearing of new nodes. The caller
    /// records its frame.
    pub(crate) fn populate(&mut self, walk: &mut Walk) -> Filled {
        if walk.lowest > 1 {
            self.extend_path(walk, 1);
        }
        let position = self.levels[0].position(walk.page.index);
        let (word, bit) = self.place(walk.slots[1], position);
        let word = &mut self.bits[word];
        *word ^= 1 << bit;
        let bits = *word >> (bit & !position);
        let mut filled = Filled { full: 0, saturated: 0 };
        let (mut first, mut complete, mut lowest) = (true, true, 1);
        if self.words == 0 {
            let count = (bits & self.few_mask()).count_ones();
            (first, complete, lowest) = (count == 1, count == self.ratio(1), 2);
            (filled.full, filled.saturated) = (u8::from(complete), u32::from(complete) << 1);
        }
        for level in lowest..=self.top {
            if !first && !complete {
                break;
            }
            let ratio = self.ratio(level);
            let node = self.node_mut(level, walk.slots[level as usize]);
            if first {
                node.some += 1;
                first = node.some == 1;
                filled.saturated |= u32::from(node.some == ratio) << level;
            }
            if complete {
                node.full += 1;
                complete = node.full == ratio;
                if complete {
                    filled.full = level;
                }
            }
        }
        walk.populated = true;
        filled
    }

    /// Makes the missing nodes of a path down to this level.
    fn extend_path(&mut self, walk: &mut Walk, to: u8) {
        let PageOf { object, index } = walk.page;
        if walk.lowest > self.top {
            walk.slots[self.top as usize] = self.add_root(object, index >> self.orders[self.top as usize]);
            walk.lowest = self.top;
        }
        while walk.lowest > to {
            let (level, parent) = (walk.lowest, walk.slots[walk.lowest as usize]);
            let slot = self.add_node(level - 1, parent);
            self.set_child(level, parent, self.position(level, index), slot);
            walk.slots[level as usize - 1] = slot;
            walk.lowest -= 1;
        }
    }

    /// Populates all pages of the region of this level around the page of a walk, which has no node
    /// yet, and completes `walk`. O(nodes of the region, and sizes). The caller records the frames.
    pub(crate) fn populate_region(&mut self, walk: &mut Walk, level: u8) {
        debug_assert!(walk.lowest > level);
        self.extend_path(walk, level);
        self.fill_node(level, walk.slots[level as usize]);
        let (mut first, mut full) = (true, true);
        for above in level + 1..=self.top {
            if !first && !full {
                break;
            }
            let ratio = self.ratio(above);
            let node = self.node_mut(above, walk.slots[above as usize]);
            node.some += u32::from(first);
            node.full += u32::from(full);
            (first, full) = (first && node.some == 1, full && node.full == ratio);
        }
        for below in (1..level).rev() {
            let position = self.position(below + 1, walk.page.index);
            walk.slots[below as usize] = self.child(below + 1, walk.slots[below as usize + 1], position);
        }
        (walk.lowest, walk.populated) = (1, true);
    }

    /// Populates all pages below a node that is empty.
    fn fill_node(&mut self, level: u8, slot: u32) {
        let ratio = self.ratio(level);
        if level > 1 || self.words > 0 {
            let node = self.node_mut(level, slot);
            (node.some, node.full) = (ratio, ratio);
        }
        if level > 1 {
            for position in 0..ratio {
                let child = self.add_node(level - 1, slot);
                self.set_child(level, slot, position, child);
                self.fill_node(level - 1, child);
            }
        } else if self.words == 0 {
            let ((word, bit), all) = (self.place(slot, 0), self.few_mask());
            self.bits[word] |= all << bit;
        } else {
            self.bits[slot as usize * self.words..][..self.words].fill(u64::MAX);
        }
    }

    /// Removes the base pages from `low` up to `high` from a lowest node. The caller updates the
    /// counts of the nodes above.
    pub(crate) fn clear_bits(&mut self, slot: u32, low: u32, high: u32) -> u32 {
        let mut cleared = 0;
        for position in low..high {
            if self.bit(slot, position) {
                self.flip_bit(slot, position);
                cleared += 1;
            }
        }
        self.count_pages(slot, -(cleared as i32));
        cleared
    }

    /// Adds one base page with its own frame to a lowest node. The caller updates the counts of the
    /// nodes above.
    pub(crate) fn put_single(&mut self, slot: u32, position: u32, frame: u32) {
        self.flip_bit(slot, position);
        self.set_single(slot, position, frame);
        self.count_pages(slot, 1);
    }

    /// Changes the counts of a lowest node whose bits were changed.
    fn count_pages(&mut self, slot: u32, change: i32) {
        if self.words > 0 {
            self.count_child(1, slot, change, change);
        }
    }
}
