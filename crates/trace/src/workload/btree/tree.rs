//! A B+ tree of 64-bit keys in simulated memory.
//!
//! A node is a header of 16 bytes, which holds the number of keys, then `order` keys, then `order`
//! links: the addresses of children, or in a leaf the values. A child holds the keys from the one
//! before it on, below the one after it. An operation reads the header of each node on the way
//! down, the keys that a binary search compares with, and the link. Where an insertion meets a full
//! node, it first moves the upper half into a new one, so that the parent always has room. Keys and
//! links behind the place of a new one are moved by one: each is read and written.

use crate::workload::program::{Growing, Out, REGION};
use superpage_pages::Access;

/// Bytes of a header.
const HEADER: u64 = 16;

/// What the heap grows by: `M_TOP_PAD` of the GNU C library and a page.
const HEAP_STEP: u64 = 132 << 10;

const INSTRUCTIONS: u32 = 3;

/// What is known of a node apart from its keys.
#[derive(Clone, Copy)]
struct Node {
    keys: u32,
    /// The number of its row of children; none if it is a leaf.
    row: Option<std::num::NonZeroU32>,
}

pub(super) struct Tree {
    order: usize,
    heap: Growing,
    root: u32,
    nodes: Vec<Node>,
    /// `order` for each node, those in use first.
    keys: Vec<u64>,
    /// Rows of `order` for each node that is no leaf; row 0 is none's.
    children: Vec<u32>,
}

impl Tree {
    /// An empty tree.
    pub(super) fn new(out: &mut Out, order: u64) -> Tree {
        let (heap, order) = (Growing::new(REGION, HEAP_STEP), order as usize);
        let children = vec![0; order];
        let mut tree = Tree { order, heap, root: 0, nodes: Vec::new(), keys: Vec::new(), children };
        tree.root = tree.allocate(out, true);
        tree
    }

    /// About how many bytes of memory a tree of that many nodes takes here.
    pub(super) fn bytes(order: u64, nodes: u64) -> u64 {
        nodes * (8 + 8 * order) + nodes / (order / 2) * 4 * order
    }

    /// The bytes from a node to the next one.
    fn stride(&self) -> u64 {
        (HEADER + 16 * self.order as u64 + 8).next_multiple_of(16)
    }

    fn address(&self, node: u32) -> u64 {
        REGION + 16 + u64::from(node) * self.stride()
    }

    fn key_at(&self, node: u32, index: usize) -> u64 {
        self.address(node) + HEADER + 8 * index as u64
    }

    fn link_at(&self, node: u32, index: usize) -> u64 {
        self.key_at(node, self.order + index)
    }

    fn header(&self, out: &mut Out, node: u32, access: Access) {
        out.data(self.address(node), access, 1, INSTRUCTIONS);
    }

    fn keys(&self, node: u32) -> &[u64] {
        let first = node as usize * self.order;
        &self.keys[first..first + self.nodes[node as usize].keys as usize]
    }

    fn is_full(&self, node: u32) -> bool {
        let Node { keys, row } = self.nodes[node as usize];
        keys as usize == self.order - usize::from(row.is_some())
    }

    /// The place of a child in `children`; none of a leaf.
    fn child(&self, node: u32, index: usize) -> Option<usize> {
        Some(self.nodes[node as usize].row?.get() as usize * self.order + index)
    }

    fn allocate(&mut self, out: &mut Out, leaf: bool) -> u32 {
        let node = self.nodes.len() as u32;
        let first = if node == 0 { 16 } else { 0 };
        let stride = self.stride();
        self.heap.take(out, stride + first);
        let row = if leaf { None } else { std::num::NonZeroU32::new((self.children.len() / self.order) as u32) };
        if !leaf {
            self.children.resize(self.children.len() + self.order, 0);
        }
        self.nodes.push(Node { keys: 0, row });
        self.keys.resize(self.keys.len() + self.order, 0);
        self.header(out, node, Access::Write);
        node
    }

    /// The number of keys of a node that are at most `key`, found by a binary search.
    fn rank(&self, out: &mut Out, node: u32, key: u64) -> usize {
        let keys = self.keys(node);
        let (mut low, mut high) = (0, keys.len());
        while low < high {
            let middle = low.midpoint(high);
            out.data(self.key_at(node, middle), Access::Read, 1, INSTRUCTIONS);
            if keys[middle] <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Reads the value of a key; whether it is in the tree.
    pub(super) fn find(&self, out: &mut Out, key: u64) -> bool {
        let mut node = self.root;
        loop {
            self.header(out, node, Access::Read);
            let rank = self.rank(out, node, key);
            let Some(child) = self.child(node, rank) else {
                let found = rank > 0 && self.keys(node)[rank - 1] == key;
                if found {
                    out.data(self.link_at(node, rank - 1), Access::Read, 1, INSTRUCTIONS);
                }
                return found;
            };
            out.data(self.link_at(node, rank), Access::Read, 1, INSTRUCTIONS);
            node = self.children[child];
        }
    }

    /// Inserts a key that is not in the tree.
    pub(super) fn insert(&mut self, out: &mut Out, key: u64) {
        if self.is_full(self.root) {
            let root = self.allocate(out, false);
            self.set_child(out, root, 0, self.root);
            self.root = root;
            self.split(out, root, 0);
        }
        let mut node = self.root;
        loop {
            self.header(out, node, Access::Read);
            let rank = self.rank(out, node, key);
            let Some(child) = self.child(node, rank) else {
                self.shift(out, node, rank);
                self.set_key(out, node, rank, key);
                out.data(self.link_at(node, rank), Access::Write, 1, INSTRUCTIONS);
                self.header(out, node, Access::Write);
                return;
            };
            out.data(self.link_at(node, rank), Access::Read, 1, INSTRUCTIONS);
            let mut next = self.children[child];
            if self.is_full(next) {
                self.header(out, next, Access::Read);
                self.split(out, node, rank);
                if self.keys(node)[rank] <= key {
                    next = self.children[child + 1];
                }
            }
            node = next;
        }
    }

    /// Makes room for a key at `index` and for the link that goes with it: in a leaf the one at its
    /// place, else the one behind it.
    fn shift(&mut self, out: &mut Out, node: u32, index: usize) {
        let keys = self.nodes[node as usize].keys as usize;
        let first = node as usize * self.order;
        self.keys.copy_within(first + index..first + keys, first + index + 1);
        let mut link = index;
        if let Some(child) = self.child(node, index + 1) {
            link = index + 1;
            self.children.copy_within(child..child + keys - index, child + 1);
        }
        for (from, moved) in [(self.key_at(node, index), keys - index), (self.link_at(node, link), keys - index)] {
            out.words(from, Access::Read, moved as u64, INSTRUCTIONS);
            out.words(from + 8, Access::Write, moved as u64, INSTRUCTIONS);
        }
        self.nodes[node as usize].keys += 1;
    }

    fn set_key(&mut self, out: &mut Out, node: u32, index: usize, key: u64) {
        self.keys[node as usize * self.order + index] = key;
        out.data(self.key_at(node, index), Access::Write, 1, INSTRUCTIONS);
    }

    fn set_child(&mut self, out: &mut Out, node: u32, index: usize, child: u32) {
        let at = self.child(node, index).expect("a node with children");
        self.children[at] = child;
        out.data(self.link_at(node, index), Access::Write, 1, INSTRUCTIONS);
    }

    /// Moves the upper half of the child at `index` into a new one behind it. The child is full,
    /// its parent is not.
    fn split(&mut self, out: &mut Out, parent: u32, index: usize) {
        let lower = self.children[self.child(parent, index).expect("a node with children")];
        let leaf = self.nodes[lower as usize].row.is_none();
        let upper = self.allocate(out, leaf);
        let keys = self.nodes[lower as usize].keys as usize;
        let kept = keys / 2;
        // A leaf keeps all of its keys, of another the one in the middle goes up.
        let from = if leaf { kept } else { kept + 1 };
        let separator = self.keys(lower)[kept];
        let (source, target) = (lower as usize * self.order, upper as usize * self.order);
        self.keys.copy_within(source + from..source + keys, target);
        let links = if leaf { keys - from } else { keys + 1 - from };
        if let (Some(source), Some(target)) = (self.child(lower, from), self.child(upper, 0)) {
            self.children.copy_within(source..source + links, target);
        }
        for (source, target, count) in [
            (self.key_at(lower, from), self.key_at(upper, 0), keys - from),
            (self.link_at(lower, from), self.link_at(upper, 0), links),
        ] {
            out.words(source, Access::Read, count as u64, INSTRUCTIONS);
            out.words(target, Access::Write, count as u64, INSTRUCTIONS);
        }
        self.nodes[lower as usize].keys = kept as u32;
        self.nodes[upper as usize].keys = (keys - from) as u32;
        self.header(out, lower, Access::Write);
        out.data(self.key_at(lower, kept), Access::Read, 1, INSTRUCTIONS);
        self.shift(out, parent, index);
        self.set_key(out, parent, index, separator);
        self.set_child(out, parent, index + 1, upper);
        self.header(out, parent, Access::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use superpage_pages::Random;

    impl Tree {
        /// Panics unless the tree holds these keys, all leaves are at one depth, and each node's
        /// keys are within the bounds that its parents give, ascending, and enough.
        fn validate(&self, expected: &BTreeSet<u64>) {
            let (mut found, mut depths, mut seen) = (Vec::new(), BTreeSet::new(), 0);
            let mut next = vec![(self.root, 0, 0, None)];
            while let Some((node, depth, low, high)) = next.pop() {
                seen += 1;
                let keys = self.keys(node);
                assert!(keys.is_sorted_by(|a, b| a < b));
                assert!(keys.iter().all(|key| *key >= low && high.is_none_or(|high| *key < high)));
                assert!(node == self.root || keys.len() >= self.order / 2 - 1, "{} keys", keys.len());
                if self.child(node, 0).is_none() {
                    depths.insert(depth);
                    found.extend_from_slice(keys);
                    continue;
                }
                for index in 0..=keys.len() {
                    let child = self.children[self.child(node, index).unwrap()];
                    let low = if index == 0 { low } else { keys[index - 1] };
                    next.push((child, depth + 1, low, keys.get(index).copied().or(high)));
                }
            }
            assert_eq!((seen, depths.len()), (self.nodes.len(), 1));
            found.sort_unstable();
            assert!(found.iter().eq(expected), "{} of {} keys", found.len(), expected.len());
        }
    }

    #[test]
    fn a_tree_holds_what_was_inserted() {
        for order in [4, 5, 7, 16, 65] {
            for ascending in [true, false] {
                let (mut out, mut random, mut keys) = (Out::default(), Random::new(order), BTreeSet::new());
                let mut tree = Tree::new(&mut out, order);
                tree.validate(&keys);
                for number in 0..3000 {
                    let key = if ascending { number } else { random.next() };
                    tree.insert(&mut out, key);
                    keys.insert(key);
                    if number % 100 < 3 {
                        tree.validate(&keys);
                    }
                }
                tree.validate(&keys);
                assert!(keys.iter().all(|key| tree.find(&mut out, *key)));
                assert!(
                    !tree.find(&mut out, u64::MAX)
                        && keys.iter().all(|key| {
                            let other = key ^ 1 << 40;
                            keys.contains(&other) == tree.find(&mut out, other)
                        })
                );
            }
        }
    }

    #[test]
    fn a_look_up_reads_a_header_the_keys_compared_with_and_a_link_of_each_node() {
        let mut out = Out::default();
        let mut tree = Tree::new(&mut out, 8);
        (0..7).for_each(|key| tree.insert(&mut out, key));
        // One node of 7 keys: each binary search compares with 3 of them.
        for key in 0..7 {
            let before = out.runs().iter().map(|run| run.references).sum::<u32>();
            assert!(tree.find(&mut out, key));
            assert_eq!(out.runs().iter().map(|run| run.references).sum::<u32>() - before, 1 + 3 + 1);
        }
    }

    #[test]
    fn nodes_lie_one_after_another() {
        let mut out = Out::default();
        let mut tree = Tree::new(&mut out, 16);
        (0..1000).for_each(|key| tree.insert(&mut out, key));
        assert_eq!(tree.stride(), 288);
        let last = tree.address(tree.nodes.len() as u32 - 1);
        assert_eq!(last, REGION + 16 + 288 * (tree.nodes.len() as u64 - 1));
        let touched = out.runs().iter().map(|run| run.page()).collect::<BTreeSet<_>>();
        assert!(touched.iter().copied().eq(REGION / 4096..=(last + 288) / 4096));
    }
}
