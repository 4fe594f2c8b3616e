//! The replacement measured for the second-level TLB of Skylake (TLB;DR, USENIX Security 2022):
//! twelve ways in three groups of four. The lowest invalid way, if there is one; otherwise a way of
//! the group after the most recently used one, in turn, chosen within the group by a tree of four,
//! as in `tree_plru`.

use super::{Replace, Use, possible};

/// For each set, the most recently used group, and for each group the bits of its tree: of the
/// root, the left and the right node, set if the next victim is to the right.
#[derive(Clone, Debug)]
pub(crate) struct Mru3Plru4(Vec<(u8, [u8; 3])>);

const GROUPS: usize = 3;
const LEAVES: usize = 4;

impl Replace for Mru3Plru4 {
    const VACANT_FIRST: bool = true;

    fn refuses(ways: usize) -> Option<&'static str> {
        (ways != GROUPS * LEAVES).then_some("mru3-plru4 needs sets of 12 ways; use tree-plru or lru for others")
    }

    fn new(sets: usize, _: usize) -> Option<Mru3Plru4> {
        Some(Mru3Plru4(vec![(0, [0; GROUPS]); sets]))
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize, _: Use) {
        let (recent, trees) = &mut self.0[set];
        let (group, leaf) = (way / LEAVES, way % LEAVES);
        *recent = group as u8;
        let (right, low) = (leaf as u8 >> 1, leaf as u8 & 1);
        let below = 2 << right;
        trees[group] = trees[group] & !(1 | below) | (1 - right) | ((1 - low) * below);
    }

    #[inline]
    fn victim(&mut self, set: usize, by: Use) -> usize {
        let (recent, trees) = self.0[set];
        let group = (recent as usize + 1) % GROUPS;
        let tree = trees[group] as usize;
        let right = tree & 1;
        let way = group * LEAVES + 2 * right + (tree >> (1 + right) & 1);
        self.touch(set, way, by);
        way
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {
        self.0.fill((0, [0; GROUPS]));
    }

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        let sound = |(recent, trees): &(u8, [u8; 3])| *recent < 3 && trees.iter().all(|tree| *tree < 8);
        possible(self.0.iter().position(|set| !sound(set)))
    }
}
