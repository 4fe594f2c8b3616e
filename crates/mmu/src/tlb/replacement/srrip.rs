//! Static re-reference interval prediction with two bits and hit priority (Jaleel et al., ISCA
//! 2010, section 4.1): the lowest invalid way, if there is one; otherwise the lowest that is
//! predicted to be used last. What is filled is predicted to be used late, what is used to be used
//! soon; where nothing is predicted to be used last, all are moved one step towards that. At most
//! 64 ways.

use super::{Replace, possible};
use crate::tlb::uses::Use;

/// The prediction of each way, 0 (soon) to 3 (last): its low and its high bit, by set.
#[derive(Clone, Debug)]
pub(crate) struct Srrip {
    all: u64,
    bits: Vec<[u64; 2]>,
}

impl Replace for Srrip {
    fn vacant_first(&self) -> bool {
        true
    }
    const COUNTS_EACH_USE: bool = true;

    fn refuses(ways: usize) -> Option<&'static str> {
        (ways > 64).then_some("srrip supports at most 64 ways; use lru or fewer ways")
    }

    fn new(sets: usize, ways: usize) -> Option<Srrip> {
        let all = u64::MAX >> (64 - ways);
        Some(Srrip { all, bits: vec![[all; 2]; sets] })
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize, _: Use) {
        self.bits[set].iter_mut().for_each(|bits| *bits &= !(1 << way));
    }

    #[inline]
    fn fill(&mut self, set: usize, way: usize, _: Use) {
        let [low, high] = &mut self.bits[set];
        (*low, *high) = (*low & !(1 << way), *high | 1 << way);
    }

    #[inline]
    fn victim(&mut self, set: usize, by: Use) -> usize {
        loop {
            let [low, high] = &mut self.bits[set];
            if *low & *high != 0 {
                let way = (*low & *high).trailing_zeros() as usize;
                self.fill(set, way, by);
                return way;
            }
            (*low, *high) = (!*low & self.all, *high ^ *low);
        }
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {
        self.bits.fill([self.all; 2]);
    }

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        possible(self.bits.iter().position(|bits| bits.iter().any(|bits| bits & !self.all != 0)))
    }
}
