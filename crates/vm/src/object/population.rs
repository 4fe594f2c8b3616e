//! Population maps (Navarro et al., section 4.9): which base pages of each memory object are
//! populated, in which frames.
//!
//! A map is a radix tree with one level per page size. Its root stands for a region of the largest
//! size and is found by a hash of (memory object, index of the region); the lowest nodes stand for
//! regions of the smallest superpage size and hold a bit for each base page. Every node counts the
//! children with a population of at least one (*somepop*) and the fully populated ones (*fullpop*).
//! A count is propagated up the tree only when somepop leaves or reaches 0, or fullpop leaves or
//! reaches R. A node is absent if and only if both its counts are zero.
//!
//! Frames are recorded where they are contiguous: a node whose region has one aligned extent,
//! populated or not, holds its first frame, and nothing below it holds any. Only pages that were
//! placed singly have their frame in the lowest node, in an array that is allocated for the first
//! one. All nodes of a level lie in one arena; there are no pointers.
//!
//! A ladder of base pages alone has no superpage to give the lowest node its size: there that is
//! [`ORDER_WITHOUT_SUPERPAGES`], and nodes have no extent.

mod arrays;
mod populate;

use self::arrays::Arrays;
pub(crate) use self::arrays::{NONE, reserve_some};
use crate::object::{ObjectId, PageOf};
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Range;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use superpage_pages::{Ladder, MAX_LEVELS};

/// The lowest nodes hold this power of two of base pages where there are no superpages.
const ORDER_WITHOUT_SUPERPAGES: u32 = 9;

/// A node: its level, and its slot in the arena of that level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NodeId {
    pub(crate) level: u8,
    pub(crate) slot: u32,
}

/// A region of a memory object, of the size of its level.
#[derive(Clone, Copy)]
pub(crate) struct Node {
    /// The slot of the parent, one level up; `NONE` at the root. In an unused node, the next unused
    /// one.
    pub(crate) parent: u32,
    /// Children that are populated at all. In the lowest nodes both are the base pages; where they
    /// are of at most 64, these are counted in `bits` instead, and both are 0:
    /// [`Population::some`], [`Population::full`].
    some: u32,
    /// Children that are fully populated.
    full: u32,
    /// The first frame of the region's extent, if it has one.
    pub(crate) frame: u32,
    /// The reservation, if the region has an extent and is not fully populated.
    pub(crate) reservation: u32,
    /// Above the lowest level: children that are mapped by a superpage of their size. Kept for
    /// objects of one mapping only ([`crate::object::Object::sole`]). In the lowest nodes: the
    /// array of the frames of pages placed singly.
    pub(crate) extra: u32,
}

/// The region that a root stands for, and its neighbours in the list of the object's roots.
#[derive(Clone, Copy)]
pub(crate) struct Root {
    pub(crate) object: ObjectId,
    pub(crate) index: u64,
    prev: u32,
    next: u32,
}

/// The list of an object's roots.
#[derive(Clone, Copy)]
struct Roots {
    first: u32,
    count: u32,
}

/// The nodes of one level.
pub(crate) struct Nodes {
    /// R: the children of a node.
    pub(crate) ratio: u32,
    /// The base-two logarithm of the base pages of a region, and of those of a child.
    order: u32,
    below: u32,
    arena: Vec<Node>,
    /// The slots of the children, an array of R for each node. None at the lowest level.
    children: Arrays,
    vacant: u32,
}

impl Nodes {
    /// The position of the page of this index among the children of its node.
    #[inline]
    fn position(&self, index: u64) -> u32 {
        (index >> self.below) as u32 & (self.ratio - 1)
    }
}

/// What the walk from the root to a base page found.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    /// The base page.
    pub(crate) page: PageOf,
    /// The nodes on the path, by level.
    pub(crate) slots: [u32; MAX_LEVELS],
    /// The lowest level whose node exists; one more than the highest if there is no root.
    pub(crate) lowest: u8,
    /// The level of the extent that holds the page's frame; 0 if none does.
    pub(crate) covered: u8,
    /// The page's frame, if it is covered or populated.
    pub(crate) frame: u32,
    /// Whether the page is populated.
    pub(crate) populated: bool,
}

/// What populating a page changed.
#[derive(Clone, Copy)]
pub(crate) struct Filled {
    /// The level of the largest region that became fully populated; 0 for only the page itself.
    pub(crate) full: u8,
    /// A bit for each level whose node now has somepop = R.
    pub(crate) saturated: u32,
}

/// The population maps of all memory objects.
pub(crate) struct Population {
    /// The base-two logarithm of the base pages of a region, by level.
    orders: [u32; MAX_LEVELS],
    /// The level of the roots.
    pub(crate) top: u8,
    levels: Vec<Nodes>,
    /// Which base pages are populated, by lowest node. Beside the nodes: a fault in an extent
    /// larger than theirs needs no more of them, and a bit a page stays in the cache where the
    /// nodes do not.
    bits: Vec<u64>,
    /// Words for each of the lowest nodes; 0 if they share words.
    words: usize,
    /// Arrays of frames of pages placed singly.
    singles: Arrays,
    roots: HashMap<(ObjectId, u64), u32, FxBuildHasher>,
    /// The root found last, if it is still one: walks are local.
    recent: Cell<Option<(ObjectId, u64, u32)>>,
    /// By the slot of the root.
    owners: Vec<Root>,
    /// The roots of each object.
    objects: Vec<Roots>,
}

impl Population {
    pub(crate) fn new(ladder: &Ladder) -> Population {
        let mut orders = [0; MAX_LEVELS];
        for level in ladder.levels() {
            orders[level.index()] = ladder.order(level);
        }
        let top = ladder.largest().0.max(1);
        if ladder.len() == 1 {
            orders[1] = ORDER_WITHOUT_SUPERPAGES;
        }
        let nodes = |level: usize| Nodes {
            ratio: 1 << (orders[level] - orders[level - 1]),
            order: orders[level],
            below: orders[level - 1],
            arena: Vec::new(),
            children: Arrays::new(orders[level] - orders[level - 1]),
            vacant: NONE,
        };
        Population {
            orders,
            top,
            levels: (1..=top as usize).map(nodes).collect(),
            bits: Vec::new(),
            words: if orders[1] <= 6 { 0 } else { 1 << (orders[1] - 6) },
            singles: Arrays::new(orders[1]),
            roots: HashMap::default(),
            recent: Cell::new(None),
            owners: Vec::new(),
            objects: Vec::new(),
        }
    }

    /// The base pages of a region.
    pub(crate) fn pages(&self, level: u8) -> u64 {
        1 << self.orders[level as usize]
    }

    /// R of a level.
    pub(crate) fn ratio(&self, level: u8) -> u32 {
        self.levels[level as usize - 1].ratio
    }

    pub(crate) fn node(&self, level: u8, slot: u32) -> &Node {
        &self.levels[level as usize - 1].arena[slot as usize]
    }

    pub(crate) fn node_mut(&mut self, level: u8, slot: u32) -> &mut Node {
        &mut self.levels[level as usize - 1].arena[slot as usize]
    }

    /// Whether all base pages of the region are populated.
    #[inline]
    pub(crate) fn is_full(&self, level: u8, slot: u32) -> bool {
        self.full(level, slot) == self.ratio(level)
    }

    /// The children of a node that are populated at all; the base pages of one of the lowest.
    #[inline]
    pub(crate) fn some(&self, level: u8, slot: u32) -> u32 {
        if level == 1 && self.words == 0 { self.few_bits(slot).count_ones() } else { self.node(level, slot).some }
    }

    /// The children of a node that are fully populated; the base pages of one of the lowest.
    #[inline(always)]
    pub(crate) fn full(&self, level: u8, slot: u32) -> u32 {
        if level == 1 && self.words == 0 { self.few_bits(slot).count_ones() } else { self.node(level, slot).full }
    }

    /// Changes the counts of a node, which must be above the lowest level where its bits are its
    /// counts.
    pub(crate) fn count_child(&mut self, level: u8, slot: u32, some: i32, full: i32) {
        let node = self.node_mut(level, slot);
        node.some = node.some.wrapping_add_signed(some);
        node.full = node.full.wrapping_add_signed(full);
    }

    /// The child of a node above the lowest level; `NONE` if nothing in it is populated.
    pub(crate) fn child(&self, level: u8, slot: u32, position: u32) -> u32 {
        self.levels[level as usize - 1].children.get(slot, position)
    }

    pub(crate) fn set_child(&mut self, level: u8, slot: u32, position: u32, child: u32) {
        self.levels[level as usize - 1].children.set(slot, position, child);
    }

    /// Whether a base page of a lowest node is populated.
    pub(crate) fn bit(&self, slot: u32, position: u32) -> bool {
        let (word, bit) = self.place(slot, position);
        self.bits[word] >> bit & 1 != 0
    }

    /// The word of a base page's bit, and the bit in it.
    #[inline]
    fn place(&self, slot: u32, position: u32) -> (usize, u32) {
        let at = ((slot as usize) << self.orders[1]) + position as usize;
        (at / 64, at as u32 % 64)
    }

    /// All bits of a lowest node, where those share words.
    #[inline]
    fn few_bits(&self, slot: u32) -> u64 {
        let (word, bit) = self.place(slot, 0);
        self.bits[word] >> bit & self.few_mask()
    }

    fn few_mask(&self) -> u64 {
        u64::MAX >> (64 - (1 << self.orders[1]))
    }

    fn flip_bit(&mut self, slot: u32, position: u32) {
        let (word, bit) = self.place(slot, position);
        self.bits[word] ^= 1 << bit;
    }

    /// The frame of a page of a lowest node that was placed singly.
    pub(crate) fn single(&self, slot: u32, position: u32) -> u32 {
        self.singles.get(self.node(1, slot).extra, position)
    }

    /// Sets the frame of a page of a lowest node.
    pub(crate) fn set_single(&mut self, slot: u32, position: u32, frame: u32) {
        let mut array = self.node(1, slot).extra;
        if array == NONE {
            array = self.singles.add();
            self.node_mut(1, slot).extra = array;
        }
        self.singles.set(array, position, frame);
    }

    /// The page of a lowest node that was placed singly in this frame. O(R).
    pub(crate) fn position_of_single(&self, slot: u32, frame: u32) -> Option<u32> {
        let array = self.node(1, slot).extra;
        if array == NONE {
            return None;
        }
        self.singles.find(array, frame, |position| self.bit(slot, position))
    }

    /// The object and the first index of a node's region. O(R) for each level up to the root.
    pub(crate) fn start_of(&self, NodeId { mut level, mut slot }: NodeId) -> PageOf {
        let mut within = 0;
        while level < self.top {
            let parent = self.node(level, slot).parent;
            let position = self.levels[level as usize].children.find(parent, slot, |_| true);
            within += u64::from(position.expect("a node is a child of its parent")) << self.orders[level as usize];
            (level, slot) = (level + 1, parent);
        }
        let root = self.owner(slot);
        root.object.page((root.index << self.orders[self.top as usize]) + within)
    }

    /// Follows the path from the root to a base page. O(number of sizes).
    pub(crate) fn walk(&self, object: ObjectId, index: u64) -> Walk {
        let mut walk = Walk {
            page: object.page(index),
            slots: [NONE; MAX_LEVELS],
            lowest: self.top + 1,
            covered: 0,
            frame: NONE,
            populated: false,
        };
        let Some(mut slot) = self.root(object, index >> self.orders[self.top as usize]) else { return walk };
        for (below, nodes) in self.levels.iter().enumerate().rev() {
            let level = below + 1;
            walk.slots[level] = slot;
            walk.lowest = level as u8;
            // What lies in an extent has none below that: the lowest node is not needed then.
            if walk.covered == 0 {
                let frame = nodes.arena[slot as usize].frame;
                if frame != NONE {
                    (walk.covered, walk.frame) = (level as u8, frame + (index & ((1 << nodes.order) - 1)) as u32);
                }
            }
            let position = nodes.position(index);
            if level == 1 {
                walk.populated = self.bit(slot, position);
                if walk.populated && walk.covered == 0 {
                    walk.frame = self.single(slot, position);
                }
                return walk;
            }
            slot = nodes.children.get(slot, position);
            if slot == NONE {
                return walk;
            }
        }
        walk
    }

    /// The populated base pages of a region. O(nodes in it that are not full).
    pub(crate) fn count(&self, level: u8, slot: u32) -> u64 {
        if level == 1 || self.is_full(level, slot) {
            return u64::from(self.full(level, slot)) * self.pages(level - 1);
        }
        let children = (0..self.ratio(level)).map(|position| self.child(level, slot, position));
        children.filter(|child| *child != NONE).map(|child| self.count(level - 1, child)).sum()
    }

    /// Whether all of so many base pages from `low` on are populated: a power of two of them,
    /// aligned. O(number of sizes) for each region that is as large as they are or the next smaller
    /// size, up to the first that is not full.
    pub(crate) fn is_populated(&self, object: ObjectId, low: u64, pages: u64) -> bool {
        let Some(level) = (1..=self.top).rev().find(|level| self.pages(*level) <= pages) else {
            let walk = self.walk(object, low);
            let position = (low & (self.pages(1) - 1)) as u32;
            return walk.lowest == 1 && (position..position + pages as u32).all(|at| self.bit(walk.slots[1], at));
        };
        (low..low + pages).step_by(self.pages(level) as usize).all(|start| {
            let walk = self.walk(object, start);
            walk.lowest <= level && self.is_full(level, walk.slots[level as usize])
        })
    }

    /// The level of the largest region around the page that is fully populated and lies in an
    /// extent.
    pub(crate) fn full_level(&self, walk: &Walk) -> u8 {
        (walk.lowest..=walk.covered).rev().find(|&level| self.is_full(level, walk.slots[level as usize])).unwrap_or(0)
    }

    /// The position of the page of this index among the children of a node of this level.
    fn position(&self, level: u8, index: u64) -> u32 {
        self.levels[level as usize - 1].position(index)
    }

    /// The level of the largest free extent in a region that lies in an extent, if that is not
    /// above `at_most`, to which it is known to be limited; `None` if the region is full. Stops at
    /// the first extent of `at_most`; otherwise visits all nodes that are not full.
    pub(crate) fn largest_free(&self, level: u8, slot: u32, at_most: u8) -> Option<u8> {
        let ratio = self.ratio(level);
        if self.some(level, slot) < ratio {
            return Some(level - 1);
        }
        if self.full(level, slot) == ratio {
            return None;
        }
        let mut best = None;
        for position in 0..ratio {
            best = best.max(self.largest_free(level - 1, self.child(level, slot, position), at_most));
            if best >= Some(at_most.min(level - 2)) {
                break;
            }
        }
        best
    }

    /// Appends the populated pages of an object from `low` up to `high` as runs, ascending. O(nodes
    /// that are not full).
    pub(crate) fn runs(&self, object: ObjectId, low: u64, high: u64, out: &mut Vec<Range<u64>>) {
        for (slot, index) in self.roots_in(object, low, high) {
            let root = NodeId { level: self.top, slot };
            self.runs_below(root, index << self.orders[self.top as usize], low..high, out);
        }
    }

    /// The runs below a node, whose region starts at `start`.
    fn runs_below(&self, node: NodeId, start: u64, pages: Range<u64>, out: &mut Vec<Range<u64>>) {
        let NodeId { level, slot } = node;
        let (from, to) = (start.max(pages.start), (start + self.pages(level)).min(pages.end));
        if from >= to {
            return;
        }
        let mut push = |from: u64, to: u64| match out.last_mut() {
            Some(last) if last.end == from => last.end = to,
            _ => out.push(from..to),
        };
        if self.is_full(level, slot) {
            push(from, to);
        } else if level == 1 {
            (from..to).filter(|page| self.bit(slot, (page - start) as u32)).for_each(|page| push(page, page + 1));
        } else {
            let order = self.orders[level as usize - 1];
            for position in (from - start) >> order..=(to - 1 - start) >> order {
                let child = self.child(level, slot, position as u32);
                if child != NONE {
                    let child = NodeId { level: level - 1, slot: child };
                    self.runs_below(child, start + (position << order), pages.clone(), out);
                }
            }
        }
    }

    /// The roots of an object whose regions overlap the pages from `low` up to `high`, with their
    /// indices, ascending. By lookup or through the object's own list, whichever is shorter, so
    /// that a sparse object costs what it holds.
    pub(crate) fn roots_in(&self, object: ObjectId, low: u64, high: u64) -> Vec<(u32, u64)> {
        if low >= high {
            return Vec::new();
        }
        let order = self.orders[self.top as usize];
        let (first, last) = (low >> order, (high - 1) >> order);
        let listed = self.objects.get(object.0 as usize).map_or(0, |roots| roots.count);
        if last - first < u64::from(listed) {
            let found = |index| self.roots.get(&(object, index)).map(|&slot| (slot, index));
            return (first..=last).filter_map(found).collect();
        }
        let mut roots: Vec<(u32, u64)> = self
            .roots_of(object)
            .map(|slot| (slot, self.owners[slot as usize].index))
            .filter(|(_, index)| (first..=last).contains(index))
            .collect();
        roots.sort_unstable_by_key(|&(_, index)| index);
        roots
    }

    /// The roots of an object, in no order.
    pub(crate) fn roots_of(&self, object: ObjectId) -> impl Iterator<Item = u32> + '_ {
        let link = |slot: u32| (slot != NONE).then_some(slot);
        let first = self.objects.get(object.0 as usize).map_or(NONE, |roots| roots.first);
        core::iter::successors(link(first), move |slot| link(self.owners[*slot as usize].next))
    }

    /// All roots, in no order.
    pub(crate) fn all_roots(&self) -> impl Iterator<Item = (ObjectId, u64, u32)> + '_ {
        self.roots.iter().map(|(&(object, index), &slot)| (object, index, slot))
    }

    /// The region that a root stands for.
    pub(crate) fn owner(&self, root: u32) -> Root {
        self.owners[root as usize]
    }

    /// The root of a region of the largest size, if any of it is populated.
    #[inline]
    pub(crate) fn root(&self, object: ObjectId, index: u64) -> Option<u32> {
        if let Some((of, at, slot)) = self.recent.get()
            && (of, at) == (object, index)
        {
            return Some(slot);
        }
        let slot = self.roots.get(&(object, index)).copied()?;
        self.recent.set(Some((object, index, slot)));
        Some(slot)
    }

    fn add_root(&mut self, object: ObjectId, index: u64) -> u32 {
        let slot = self.add_node(self.top, NONE);
        if self.owners.len() <= slot as usize {
            reserve_some(&mut self.owners, 1);
            self.owners.push(Root { object, index, prev: NONE, next: NONE });
        }
        self.own_root(slot, object, index);
        slot
    }

    fn own_root(&mut self, slot: u32, object: ObjectId, index: u64) {
        if self.objects.len() <= object.0 as usize {
            self.objects.resize(object.0 as usize + 1, Roots { first: NONE, count: 0 });
        }
        let roots = &mut self.objects[object.0 as usize];
        roots.count += 1;
        let next = core::mem::replace(&mut roots.first, slot);
        if next != NONE {
            self.owners[next as usize].prev = slot;
        }
        self.owners[slot as usize] = Root { object, index, prev: NONE, next };
        self.roots.insert((object, index), slot);
    }

    fn disown_root(&mut self, slot: u32) {
        let Root { object, index, prev, next } = self.owners[slot as usize];
        let roots = &mut self.objects[object.0 as usize];
        roots.count -= 1;
        match prev {
            NONE => roots.first = next,
            prev => self.owners[prev as usize].next = next,
        }
        if next != NONE {
            self.owners[next as usize].prev = prev;
        }
        self.roots.remove(&(object, index));
        self.recent.set(None);
    }

    /// Moves a root, with all below it, to another object that has none there.
    pub(crate) fn move_root(&mut self, slot: u32, to: ObjectId) {
        let index = self.owners[slot as usize].index;
        self.disown_root(slot);
        self.own_root(slot, to, index);
    }

    /// Removes a root that is empty.
    pub(crate) fn remove_root(&mut self, slot: u32) {
        self.disown_root(slot);
        self.remove_node(self.top, slot);
    }

    fn add_node(&mut self, level: u8, parent: u32) -> u32 {
        let extra = if level > 1 { 0 } else { NONE };
        let fresh = Node { parent, some: 0, full: 0, frame: NONE, reservation: NONE, extra };
        let nodes = &mut self.levels[level as usize - 1];
        if nodes.vacant != NONE {
            let slot = nodes.vacant;
            nodes.vacant = nodes.arena[slot as usize].parent;
            nodes.arena[slot as usize] = fresh;
            if level > 1 {
                let array = nodes.children.add();
                debug_assert_eq!(array, slot, "both are given back and used again together");
            }
            return slot;
        }
        let slot = nodes.arena.len();
        reserve_some(&mut nodes.arena, 1);
        nodes.arena.push(fresh);
        if level == 1 {
            let words = ((slot + 1) << self.orders[1]).div_ceil(64);
            if self.bits.len() < words {
                let more = words - self.bits.len();
                reserve_some(&mut self.bits, more);
                self.bits.resize(words, 0);
            }
        } else {
            let array = nodes.children.add();
            debug_assert_eq!(array as usize, slot);
        }
        slot as u32
    }

    /// Frees a node that is empty: no bit, no child.
    pub(crate) fn remove_node(&mut self, level: u8, slot: u32) {
        let extra = self.node(level, slot).extra;
        if level == 1 && extra != NONE {
            self.singles.remove(extra);
        }
        let nodes = &mut self.levels[level as usize - 1];
        if level > 1 {
            nodes.children.remove(slot);
        }
        nodes.arena[slot as usize].parent = nodes.vacant;
        nodes.vacant = slot;
    }

    /// The nodes of a level that are in maps.
    pub(crate) fn nodes_in_use(&self, level: u8) -> usize {
        let nodes = &self.levels[level as usize - 1];
        let link = |slot: u32| (slot != NONE).then_some(slot);
        let vacant = core::iter::successors(link(nodes.vacant), |slot| link(nodes.arena[*slot as usize].parent));
        nodes.arena.len() - vacant.count()
    }

    /// Bytes held.
    pub(crate) fn metadata_bytes(&self) -> usize {
        let node = |nodes: &Nodes| nodes.arena.capacity() * size_of::<Node>() + nodes.children.metadata_bytes();
        self.levels.capacity() * size_of::<Nodes>()
            + self.levels.iter().map(node).sum::<usize>()
            + self.bits.capacity() * 8
            + self.singles.metadata_bytes()
            + self.roots.allocation_size()
            + self.owners.capacity() * size_of::<Root>()
            + self.objects.capacity() * size_of::<Roots>()
    }
}

#[cfg(test)]
mod tests;
