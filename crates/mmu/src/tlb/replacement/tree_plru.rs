//! Tree PLRU: the lowest invalid way, if there is one; otherwise the leaf that the bits of a binary
//! tree point to, away from the recent uses. Needs a power of two of ways, at most 64.

use super::{Replace, Use, possible};

/// The tree of each set: bit n is inner node n (root 1), set if the next victim is to the right.
#[derive(Clone, Debug)]
pub(crate) struct TreePlru {
    ways: usize,
    bits: Vec<u64>,
}

impl Replace for TreePlru {
    const VACANT_FIRST: bool = true;

    fn refuses(ways: usize) -> Option<&'static str> {
        (!ways.is_power_of_two() || ways > 64)
            .then_some("tree-plru needs a power of two of ways, at most 64; use lru or another number of ways")
    }

    fn new(sets: usize, ways: usize) -> Option<TreePlru> {
        Some(TreePlru { ways, bits: vec![0; sets] })
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize, _: Use) {
        let (mut node, levels) = (1, self.ways.trailing_zeros());
        for level in (0..levels).rev() {
            let right = way >> level & 1;
            self.bits[set] = self.bits[set] & !(1 << node) | ((1 - right) as u64) << node;
            node = node * 2 + right;
        }
    }

    #[inline]
    fn victim(&mut self, set: usize, by: Use) -> usize {
        let mut node = 1;
        while node < self.ways {
            node = node * 2 + (self.bits[set] >> node & 1) as usize;
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
