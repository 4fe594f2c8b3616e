//! The replacement measured for the second-level TLB of Skylake (TLB;DR, USENIX Security 2022):
//! twelve ways in three groups of four. The lowest invalid way, if there is one; otherwise a way of
//! the group after the most recently used one, in turn, chosen within the group by a tree of four,
//! as in `tree_plru`.

use super::{Replace, possible};
use crate::tlb::uses::Use;

/// For each set, a byte with the most recently used group, and above it one for each group with the
/// bits of its tree: of the root, the left and the right node, set if the next victim is to the
/// right.
#[derive(Clone, Debug)]
pub(crate) struct Mru3Plru4(Vec<u32>);

const GROUPS: usize = 3;
const LEAVES: usize = 4;

/// What the use of each way does to the word of its set: which bits are kept, and which are set.
const USES: [[u32; 2]; GROUPS * LEAVES] = {
    let (mut uses, mut way) = ([[0; 2]; GROUPS * LEAVES], 0);
    while way < uses.len() {
        let (group, leaf) = (way / LEAVES, way as u32 % LEAVES as u32);
        let (right, low) = (leaf >> 1, leaf & 1);
        let below = 2 << right;
        let tree = 8 + 8 * group;
        let bits = (1 - right) | ((1 - low) * below);
        uses[way] = [!(0xff | (1 | below) << tree), group as u32 | bits << tree];
        way += 1;
    }
    uses
};

impl Replace for Mru3Plru4 {
    fn vacant_first(&self) -> bool {
        true
    }

    fn refuses(ways: usize) -> Option<&'static str> {
        (ways != GROUPS * LEAVES).then_some("mru3-plru4 needs sets of 12 ways; use tree-plru or lru for others")
    }

    fn new(sets: usize, _: usize) -> Option<Mru3Plru4> {
        Some(Mru3Plru4(vec![0; sets]))
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize, _: Use) {
        let [kept, bits] = USES[way % USES.len()];
        self.0[set] = self.0[set] & kept | bits;
    }

    #[inline]
    fn victim(&mut self, set: usize, by: Use) -> usize {
        let word = self.0[set];
        let group = [1, 2, 0, 0][word as usize & 3];
        let tree = word as usize >> (8 + 8 * group);
        let right = tree & 1;
        let way = group * LEAVES + 2 * right + (tree >> (1 + right) & 1);
        self.touch(set, way, by);
        way
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {
        self.0.fill(0);
    }

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        let sound = |word: &u32| {
            let [recent, trees @ ..] = word.to_le_bytes();
            recent < 3 && trees.iter().all(|tree| *tree < 8)
        };
        possible(self.0.iter().position(|word| !sound(word)))
    }
}
