//! Random: the lowest invalid way, if there is one; otherwise any, by a generator with a fixed
//! seed.

use super::{Replace, possible};
use crate::tlb::uses::Use;

/// The state of the generator, xorshift of 64 bits.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    ways: u64,
    state: u64,
}

/// Any odd constant would do, but it must never change.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

impl Replace for Random {
    fn vacant_first(&self) -> bool {
        true
    }

    fn new(_: usize, ways: usize) -> Option<Random> {
        Some(Random { ways: ways as u64, state: SEED })
    }

    #[inline]
    fn touch(&mut self, _: usize, _: usize, _: Use) {}

    #[inline]
    fn victim(&mut self, _: usize, _: Use) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (((self.state >> 32) * self.ways) >> 32) as usize
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {}

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        possible((self.state == 0).then_some(0))
    }
}
