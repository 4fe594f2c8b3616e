//! Round-robin: a pointer goes round the ways and advances at each fill, whether the way that it
//! points to is valid or not.

use super::{Replace, possible};
use crate::tlb::uses::Use;

/// One pointer per set.
#[derive(Clone, Debug)]
pub(crate) struct RoundRobin {
    next: Vec<u32>,
    ways: u32,
}

impl Replace for RoundRobin {
    fn new(sets: usize, ways: usize) -> Option<RoundRobin> {
        Some(RoundRobin { next: vec![0; sets], ways: ways as u32 })
    }

    #[inline(always)]
    fn touch(&mut self, _: usize, _: usize, _: Use) {}

    #[inline(always)]
    fn victim(&mut self, set: usize, _: Use) -> usize {
        let way = self.next[set];
        self.next[set] = if way + 1 == self.ways { 0 } else { way + 1 };
        way as usize
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {}

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        possible(self.next.iter().position(|way| *way >= self.ways))
    }
}
