//! Tree PLRU: the lowest invalid way, if there is one; otherwise the leaf that the bits of a binary
//! tree point to, away from the recent uses. Needs a power of two of ways, at most 64.

use super::{Replace, possible};
use crate::tlb::uses::Use;

/// The tree of each set: bit n is inner node n (root 1), set if the next victim is to the right.
#[derive(Clone, Debug)]
pub(crate) struct TreePlru {
    ways: usize,
    bits: Vec<u64>,
    /// For each way, the nodes above it, and those that point to the right after its use.
    paths: Vec<Path>,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    nodes: u64,
    right: u64,
}

/// The nodes above a way.
fn path(way: usize, ways: usize) -> Path {
    let (mut path, mut node) = (Path { nodes: 0, right: 0 }, way + ways);
    while node > 1 {
        path.nodes |= 1 << (node / 2);
        path.right |= u64::from(node.is_multiple_of(2)) << (node / 2);
        node /= 2;
    }
    path
}

impl Replace for TreePlru {
    fn vacant_first(&self) -> bool {
        true
    }

    fn refuses(ways: usize) -> Option<&'static str> {
        (!ways.is_power_of_two() || ways > 64)
            .then_some("tree-plru needs a power of two of ways, at most 64; use lru or another number of ways")
    }

    fn new(sets: usize, ways: usize) -> Option<TreePlru> {
        Some(TreePlru { ways, bits: vec![0; sets], paths: (0..ways).map(|way| path(way, ways)).collect() })
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize, _: Use) {
        let (bits, Path { nodes, right }) = (&mut self.bits[set], self.paths[way]);
        *bits = *bits & !nodes | right;
    }

    #[inline]
    fn victim(&mut self, set: usize, by: Use) -> usize {
        let (mut node, bits) = (1, self.bits[set]);
        while node < self.ways {
            node = node * 2 + (bits >> node & 1) as usize;
        }
        let way = node - self.ways;
        self.touch(set, way, by);
        way
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {
        self.bits.fill(0);
    }

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        possible(self.bits.iter().position(|bits| self.ways < 64 && bits >> self.ways != 0))
    }
}
