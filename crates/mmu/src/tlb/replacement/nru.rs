//! NRU: the lowest invalid way, if there is one; otherwise the lowest whose bit is clear. The use
//! that would set the last bit clears all others. At most 64 ways.

use super::{Replace, possible};
use crate::tlb::uses::Use;

/// The used bits of each set.
#[derive(Clone, Debug)]
pub(crate) struct Nru {
    all: u64,
    used: Vec<u64>,
}

impl Replace for Nru {
    fn vacant_first(&self) -> bool {
        true
    }

    fn refuses(ways: usize) -> Option<&'static str> {
        (ways > 64).then_some("nru supports at most 64 ways; use lru or fewer ways")
    }

    fn new(sets: usize, ways: usize) -> Option<Nru> {
        Some(Nru { all: u64::MAX >> (64 - ways), used: vec![0; sets] })
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize, _: Use) {
        self.used[set] |= 1 << way;
        if self.used[set] == self.all {
            self.used[set] = 1 << way;
        }
    }

    #[inline]
    fn victim(&mut self, set: usize, by: Use) -> usize {
        // With one way, the bit stays set.
        let way = (self.used[set] & self.all >> 1).trailing_ones() as usize;
        self.touch(set, way, by);
        way
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        self.used[set] &= !(1 << way);
    }

    fn flush(&mut self) {
        self.used.fill(0);
    }

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        let sound = |used: &u64| used & !self.all == 0 && (self.all == 1 || *used != self.all);
        possible(self.used.iter().position(|used| !sound(used)))
    }
}
