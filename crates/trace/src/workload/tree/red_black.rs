//! A red-black tree in simulated memory: every load and store of a field goes into the stream.
//!
//! Nodes have a key, two children, a parent, a colour and a record. A sentinel in the program's
//! zeroed data stands for every missing child, is black, and while a node is deleted also has a
//! parent (Guibas and Sedgewick 1978; the sentinel and the two ways to mend a tree are those of the
//! textbooks).

use super::access;
use crate::workload::process::{DATA, ZEROED};
use crate::workload::program::Out;
use superpage_pages::Access;

/// The sentinel's index.
pub(super) const NIL: u32 = 0;

/// The address of the pointer to the root, past what `malloc` keeps.
const ROOT: u64 = DATA + 1024;

/// What is in memory at a node's address. All fields are in one page, so that an access to any is
/// to that page.
#[derive(Clone, Copy)]
struct Node {
    address: u64,
    key: u64,
    record: u64,
    /// Left and right.
    children: [u32; 2],
    parent: u32,
    red: bool,
}

/// The tree. Nodes are named by their index, which is no part of the simulated program.
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Indices of deleted nodes.
    unused: Vec<u32>,
    root: u32,
}

impl Default for Tree {
    fn default() -> Tree {
        let sentinel = Node { address: ZEROED, key: 0, record: 0, children: [NIL; 2], parent: NIL, red: false };
        Tree { nodes: vec![sentinel], unused: Vec::new(), root: NIL }
    }
}

/// The fields, each a load or a store.
impl Tree {
    fn load(&self, out: &mut Out, node: u32) -> &Node {
        let node = &self.nodes[node as usize];
        access(out, node.address, Access::Read);
        node
    }

    fn store(&mut self, out: &mut Out, node: u32) -> &mut Node {
        let node = &mut self.nodes[node as usize];
        access(out, node.address, Access::Write);
        node
    }

    fn root(&self, out: &mut Out) -> u32 {
        access(out, ROOT, Access::Read);
        self.root
    }

    fn set_root(&mut self, out: &mut Out, node: u32) {
        access(out, ROOT, Access::Write);
        self.root = node;
    }

    fn key(&self, out: &mut Out, node: u32) -> u64 {
        self.load(out, node).key
    }

    fn child(&self, out: &mut Out, node: u32, side: usize) -> u32 {
        self.load(out, node).children[side]
    }

    fn set_child(&mut self, out: &mut Out, node: u32, side: usize, child: u32) {
        self.store(out, node).children[side] = child;
    }

    fn parent(&self, out: &mut Out, node: u32) -> u32 {
        self.load(out, node).parent
    }

    fn set_parent(&mut self, out: &mut Out, node: u32, parent: u32) {
        self.store(out, node).parent = parent;
    }

    fn red(&self, out: &mut Out, node: u32) -> bool {
        self.load(out, node).red
    }

    fn set_red(&mut self, out: &mut Out, node: u32, red: bool) {
        self.store(out, node).red = red;
    }

    /// The address of a node's record.
    pub(super) fn record(&self, out: &mut Out, node: u32) -> u64 {
        self.load(out, node).record
    }
}

/// The operations.
impl Tree {
    /// The node with `key`; [`NIL`] if there is none.
    pub(super) fn find(&self, out: &mut Out, key: u64) -> u32 {
        let mut node = self.root(out);
        while node != NIL {
            let found = self.key(out, node);
            if found == key {
                break;
            }
            node = self.child(out, node, usize::from(key > found));
        }
        node
    }

    /// The node with the least key; [`NIL`] if there is none.
    pub(super) fn first(&self, out: &mut Out) -> u32 {
        match self.root(out) {
            NIL => NIL,
            root => self.least(out, root),
        }
    }

    /// The node with the least key at or below `node`.
    fn least(&self, out: &mut Out, mut node: u32) -> u32 {
        loop {
            match self.child(out, node, 0) {
                NIL => return node,
                left => node = left,
            }
        }
    }

    /// The node with the next larger key; [`NIL`] after the last.
    pub(super) fn successor(&self, out: &mut Out, mut node: u32) -> u32 {
        match self.child(out, node, 1) {
            NIL => loop {
                let parent = self.parent(out, node);
                if parent == NIL || self.child(out, parent, 0) == node {
                    return parent;
                }
                node = parent;
            },
            right => self.least(out, right),
        }
    }

    /// Puts a node with a new key at `address`, with its record.
    pub(super) fn insert(&mut self, out: &mut Out, key: u64, address: u64, record: u64) {
        let (mut parent, mut side, mut below) = (NIL, 0, self.root(out));
        while below != NIL {
            parent = below;
            side = usize::from(key > self.key(out, parent));
            below = self.child(out, parent, side);
        }
        let node = Node { address, key, record, children: [NIL; 2], parent, red: true };
        super::accesses(out, address, Access::Write, 6);
        let index = match self.unused.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        if parent == NIL {
            self.set_root(out, index);
        } else {
            self.set_child(out, parent, side, index);
        }
        self.mend_insertion(out, index);
    }

    /// Sees to it that the red `node` has no red parent.
    fn mend_insertion(&mut self, out: &mut Out, mut node: u32) {
        loop {
            let mut parent = self.parent(out, node);
            if !self.red(out, parent) {
                break;
            }
            let grandparent = self.parent(out, parent);
            let side = usize::from(self.child(out, grandparent, 1) == parent);
            let uncle = self.child(out, grandparent, 1 - side);
            if self.red(out, uncle) {
                self.set_red(out, parent, false);
                self.set_red(out, uncle, false);
                self.set_red(out, grandparent, true);
                node = grandparent;
                continue;
            }
            if self.child(out, parent, 1 - side) == node {
                self.rotate(out, parent, side);
                (node, parent) = (parent, node);
            }
            self.set_red(out, parent, false);
            self.set_red(out, grandparent, true);
            self.rotate(out, grandparent, 1 - side);
        }
        let root = self.root(out);
        self.set_red(out, root, false);
    }

    /// Removes `node` and returns its address.
    pub(super) fn delete(&mut self, out: &mut Out, node: u32) -> u64 {
        let (left, right) = (self.child(out, node, 0), self.child(out, node, 1));
        let (was_red, moved);
        if left == NIL || right == NIL {
            moved = if left == NIL { right } else { left };
            was_red = self.red(out, node);
            self.replace(out, node, moved);
        } else {
            let next = self.least(out, right);
            was_red = self.red(out, next);
            moved = self.child(out, next, 1);
            if next == right {
                // The sentinel too: the mending climbs from it.
                self.set_parent(out, moved, next);
            } else {
                self.replace(out, next, moved);
                self.set_child(out, next, 1, right);
                self.set_parent(out, right, next);
            }
            self.replace(out, node, next);
            self.set_child(out, next, 0, left);
            self.set_parent(out, left, next);
            let red = self.red(out, node);
            self.set_red(out, next, red);
        }
        if !was_red {
            self.mend_deletion(out, moved);
        }
        self.unused.push(node);
        self.nodes[node as usize].address
    }

    /// Makes up for a black node that is missing above `node`.
    fn mend_deletion(&mut self, out: &mut Out, mut node: u32) {
        while node != self.root(out) && !self.red(out, node) {
            let parent = self.parent(out, node);
            let side = usize::from(self.child(out, parent, 1) == node);
            let mut sibling = self.child(out, parent, 1 - side);
            if self.red(out, sibling) {
                self.set_red(out, sibling, false);
                self.set_red(out, parent, true);
                self.rotate(out, parent, side);
                sibling = self.child(out, parent, 1 - side);
            }
            let (near, far) = (self.child(out, sibling, side), self.child(out, sibling, 1 - side));
            let (near_red, far_red) = (self.red(out, near), self.red(out, far));
            if !near_red && !far_red {
                self.set_red(out, sibling, true);
                node = parent;
                continue;
            }
            if !far_red {
                self.set_red(out, near, false);
                self.set_red(out, sibling, true);
                self.rotate(out, sibling, 1 - side);
                sibling = near;
            }
            let red = self.red(out, parent);
            self.set_red(out, sibling, red);
            self.set_red(out, parent, false);
            let far = self.child(out, sibling, 1 - side);
            self.set_red(out, far, false);
            self.rotate(out, parent, side);
            node = self.root(out);
        }
        self.set_red(out, node, false);
    }

    /// Puts `other` where `node` is, as its parent's child.
    fn replace(&mut self, out: &mut Out, node: u32, other: u32) {
        let parent = self.parent(out, node);
        if parent == NIL {
            self.set_root(out, other);
        } else {
            let side = usize::from(self.child(out, parent, 1) == node);
            self.set_child(out, parent, side, other);
        }
        self.set_parent(out, other, parent);
    }

    /// Rotates towards `side`: the child on the other side takes the place of `node`.
    fn rotate(&mut self, out: &mut Out, node: u32, side: usize) {
        let up = self.child(out, node, 1 - side);
        let across = self.child(out, up, side);
        self.set_child(out, node, 1 - side, across);
        if across != NIL {
            self.set_parent(out, across, node);
        }
        self.replace(out, node, up);
        self.set_child(out, up, side, node);
        self.set_parent(out, node, up);
    }

    /// Checks order, colours, black heights and parents, and returns the keys in order.
    #[cfg(test)]
    fn validate(&self) -> Vec<u64> {
        assert!(!self.nodes[NIL as usize].red && !self.nodes[self.root as usize].red);
        let mut keys = Vec::new();
        self.validate_below(self.root, NIL, &mut keys);
        assert!(keys.is_sorted() && keys.len() + self.unused.len() + 1 == self.nodes.len());
        keys
    }

    /// The black height of a subtree.
    #[cfg(test)]
    fn validate_below(&self, node: u32, parent: u32, keys: &mut Vec<u64>) -> u32 {
        if node == NIL {
            return 1;
        }
        let Node { key, children: [left, right], parent: above, red, .. } = self.nodes[node as usize];
        assert!(above == parent && !(red && self.nodes[parent as usize].red));
        let height = self.validate_below(left, node, keys);
        keys.push(key);
        assert_eq!(height, self.validate_below(right, node, keys));
        height + u32::from(!red)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::PAGE;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_map_and_stays_balanced(operations in prop::collection::vec((0..60_u64, any::<bool>()), 1..400)) {
            let (mut tree, mut map) = (Tree::default(), BTreeMap::new());
            let mut out = Out::default();
            out.begin();
            for (i, (key, insert)) in operations.into_iter().enumerate() {
                let node = tree.find(&mut out, key);
                prop_assert_eq!(map.get(&key).copied(), (node != NIL).then(|| tree.record(&mut out, node)));
                if insert && node == NIL {
                    tree.insert(&mut out, key, (i as u64 + 1) << 32, i as u64);
                    map.insert(key, i as u64);
                } else if !insert && node != NIL {
                    prop_assert_eq!(tree.delete(&mut out, node) >> 32, map.remove(&key).unwrap() + 1);
                }
                prop_assert!(tree.validate().iter().eq(map.keys()));
            }
            let mut node = tree.first(&mut out);
            for key in map.keys() {
                prop_assert_eq!(tree.nodes[node as usize].key, *key);
                node = tree.successor(&mut out, node);
            }
            prop_assert_eq!(node, NIL);
        }
    }

    #[test]
    fn a_lookup_loads_the_path() {
        let mut tree = Tree::default();
        let mut out = Out::default();
        for key in 1..=1000 {
            tree.insert(&mut out, key, key << 12, 0);
        }
        for key in 1..=1000 {
            let mut out = Out::default();
            tree.find(&mut out, key);
            let mut path = vec![(ROOT / PAGE, 1)];
            let mut at = tree.root;
            while tree.nodes[at as usize].key != key {
                path.push((tree.nodes[at as usize].address / PAGE, 2));
                at = tree.nodes[at as usize].children[usize::from(key > tree.nodes[at as usize].key)];
            }
            path.push((key, 1));
            assert_eq!(out.runs().iter().map(|run| (run.page(), run.references)).collect::<Vec<_>>(), path);
        }
    }
}
