//! Predicate trees: which of a row of things something holds for, a bit each, under a hierarchy
//! that says where it holds for none and for all.
//!
//! A tree is a slice of words: a bitmap of the leaves that are not empty, a bitmap of those that
//! are full, and the leaves, 64 bits each. Operations look at a leaf only where the bitmaps leave
//! its contents open.

/// Where the parts of a tree lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Words of 64 bits at the bottom.
    leaves: usize,
}

impl Shape {
    /// Trees over so many things, rounded up to whole leaves.
    pub(crate) fn over(things: usize) -> Shape {
        Shape { leaves: things.div_ceil(64).max(1) }
    }

    /// Things that a tree tells about.
    #[allow(dead_code, reason = "for tests")]
    pub(crate) fn things(self) -> usize {
        self.leaves * 64
    }

    /// Words of one bitmap over the leaves.
    fn nodes(self) -> usize {
        self.leaves.div_ceil(64)
    }

    /// Words of a whole tree.
    pub(crate) fn words(self) -> usize {
        2 * self.nodes() + self.leaves
    }

    /// The leaves below word `node` of a bitmap, a bit each.
    fn below(self, node: usize) -> u64 {
        match self.leaves - 64 * node {
            64.. => u64::MAX,
            left => (1 << left) - 1,
        }
    }
}

/// A tree to look at.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    shape: Shape,
    some: &'a [u64],
    full: &'a [u64],
    leaves: &'a [u64],
}

impl<'a> Tree<'a> {
    /// The tree in these words.
    pub(crate) fn new(shape: Shape, words: &'a [u64]) -> Tree<'a> {
        let (some, rest) = words.split_at(shape.nodes());
        let (full, leaves) = rest.split_at(shape.nodes());
        assert_eq!(leaves.len(), shape.leaves, "the words of a tree are those of its shape");
        Tree { shape, some, full, leaves }
    }

    /// Whether it holds for a thing.
    #[allow(dead_code, reason = "for tests")]
    pub(crate) fn get(&self, thing: usize) -> bool {
        self.leaves[thing / 64] >> (thing % 64) & 1 == 1
    }

    /// For how many things it holds.
    pub(crate) fn count(&self) -> u64 {
        count([*self])
    }

    /// Checks the hierarchy against the leaves.
    #[allow(dead_code, reason = "for tests")]
    pub(crate) fn validate(&self) -> Result<(), String> {
        for (index, leaf) in self.leaves.iter().enumerate() {
            let bit = |bitmap: &[u64]| bitmap[index / 64] >> (index % 64) & 1 == 1;
            if bit(self.some) != (*leaf != 0) || bit(self.full) != (*leaf == u64::MAX) {
                return Err(format!("leaf {index} is {leaf:x}, and the hierarchy says otherwise"));
            }
        }
        let beyond = |node: usize| (self.some[node] | self.full[node]) & !self.shape.below(node);
        match (0..self.shape.nodes()).find(|node| beyond(*node) != 0) {
            Some(node) => Err(format!("word {node} of the hierarchy tells about leaves that are not there")),
            None => Ok(()),
        }
    }
}

/// For how many things all of these trees hold: no new tree is made.
pub(crate) fn count<const N: usize>(trees: [Tree; N]) -> u64 {
    let mut sum = 0;
    visit(trees, |_, leaf| sum += u64::from(leaf.count_ones()));
    sum
}

/// Calls `see` with each leaf, and its index, in which all of these trees hold for something.
pub(crate) fn visit<const N: usize>(trees: [Tree; N], mut see: impl FnMut(usize, u64)) {
    for node in 0..trees[0].shape.nodes() {
        let (mut some, mut full) = (u64::MAX, u64::MAX);
        for tree in &trees {
            some &= tree.some[node];
            full &= tree.full[node];
        }
        while some != 0 {
            let bit = some.trailing_zeros();
            let leaf = 64 * node + bit as usize;
            if full >> bit & 1 == 1 {
                see(leaf, u64::MAX);
            } else {
                let value = trees.iter().fold(u64::MAX, |value, tree| value & tree.leaves[leaf]);
                if value != 0 {
                    see(leaf, value);
                }
            }
            some &= some - 1;
        }
    }
}

/// A tree to write.
pub(crate) struct TreeMut<'a> {
    shape: Shape,
    some: &'a mut [u64],
    full: &'a mut [u64],
    leaves: &'a mut [u64],
}

impl<'a> TreeMut<'a> {
    /// The tree in these words; zeroes are a tree that holds for nothing.
    pub(crate) fn new(shape: Shape, words: &'a mut [u64]) -> TreeMut<'a> {
        let (some, rest) = words.split_at_mut(shape.nodes());
        let (full, leaves) = rest.split_at_mut(shape.nodes());
        assert_eq!(leaves.len(), shape.leaves, "the words of a tree are those of its shape");
        TreeMut { shape, some, full, leaves }
    }

    /// Lets it hold for a thing, too.
    pub(crate) fn set(&mut self, thing: usize) {
        let leaf = thing / 64;
        self.leaves[leaf] |= 1 << (thing % 64);
        self.some[leaf / 64] |= 1 << (leaf % 64);
        if self.leaves[leaf] == u64::MAX {
            self.full[leaf / 64] |= 1 << (leaf % 64);
        }
    }

    /// Makes it hold where both do.
    pub(crate) fn and(&mut self, left: Tree, right: Tree) {
        self.combine(left, right, |a, b| a & b);
    }

    /// Makes it hold where at least one does.
    pub(crate) fn or(&mut self, left: Tree, right: Tree) {
        self.combine(left, right, |a, b| a | b);
    }

    /// Makes it hold where the other does not.
    #[allow(dead_code, reason = "the prediction of ratings has no use for it")]
    pub(crate) fn not(&mut self, other: Tree) {
        self.combine(other, other, |a, _| !a);
    }

    /// Works out the tree from both, node by node: a leaf that the hierarchy tells whole is not
    /// read.
    fn combine(&mut self, left: Tree, right: Tree, operation: impl Fn(u64, u64) -> u64) {
        for node in 0..self.shape.nodes() {
            let below = self.shape.below(node);
            // Leaves that are empty or full in both are so in the result: as the operation has it
            // for single bits.
            let uniform = |tree: &Tree| tree.full[node] | !tree.some[node];
            let known = uniform(&left) & uniform(&right) & below;
            let value = operation(left.full[node], right.full[node]) & known;
            (self.some[node], self.full[node]) = (value, value);
            let mut rest = known;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                let leaf = 64 * node + bit as usize;
                self.leaves[leaf] = if value >> bit & 1 == 1 { u64::MAX } else { 0 };
                rest &= rest - 1;
            }
            let mut rest = below & !known;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                let leaf = 64 * node + bit as usize;
                let value = operation(left.leaves[leaf], right.leaves[leaf]);
                self.leaves[leaf] = value;
                self.some[node] |= u64::from(value != 0) << bit;
                self.full[node] |= u64::from(value == u64::MAX) << bit;
                rest &= rest - 1;
            }
        }
    }
}
