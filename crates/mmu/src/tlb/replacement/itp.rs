//! iTP, instruction translation prioritization, for a second level that code and data share
//! (Chasapis et al., Instruction-Aware Cooperative TLB and Cache Replacement Policies, ASPLOS 2025,
//! section 4.1): the lowest invalid way, if there is one; otherwise the last of a stack of all
//! ways, as in LRU. Where a way goes in the stack depends on what it holds:
//!
//! | what it holds | filled | used |
//! | --- | --- | --- |
//! | a translation that a fetch loaded | N below the top | N below the top; at the top, once it was used 7 times |
//! | any other | last | M above the last |
//!
//! With 12 ways N is 4 and M is 8, as in the paper; they scale with the ways, which is assumed. The
//! paper's text was not at hand beyond a summary: that a use also moves a way down is assumed too.
//! The other half of the proposal, xPTP for a cache of lines, is not here.

use super::{Replace, is_permutation, possible};
use crate::tlb::uses::Use;
use superpage_pages::Access;

/// As many uses of a translation of code bring it to the top: a counter of three bits is full.
const OFTEN: u8 = 7;

/// For each set the ways, top first; for each way how often it was used if a fetch loaded it, else
/// `None`.
#[derive(Clone, Debug)]
pub(crate) struct Itp {
    ways: usize,
    stack: Vec<u16>,
    code: Vec<Option<u8>>,
}

impl Itp {
    /// Puts a way at a depth of the stack.
    fn put(&mut self, set: usize, way: usize, depth: usize) {
        let stack = &mut self.stack[set * self.ways..][..self.ways];
        let at = stack.iter().position(|other| *other as usize == way).expect("a stack has every way");
        if at < depth {
            stack[at..=depth].rotate_left(1);
        } else {
            stack[depth..=at].rotate_right(1);
        }
    }
}

impl Replace for Itp {
    fn vacant_first(&self) -> bool {
        true
    }
    const COUNTS_EACH_USE: bool = true;

    fn new(sets: usize, ways: usize) -> Option<Itp> {
        let stack = (0..sets).flat_map(|_| 0..ways as u16).collect();
        Some(Itp { ways, stack, code: vec![None; sets * ways] })
    }

    fn touch(&mut self, set: usize, way: usize, _: Use) {
        let ways = self.ways;
        let depth = match &mut self.code[set * ways + way] {
            Some(OFTEN) => 0,
            Some(uses) => {
                *uses += 1;
                ways / 3
            }
            None => ways - 1 - 2 * ways / 3,
        };
        self.put(set, way, depth);
    }

    fn fill(&mut self, set: usize, way: usize, by: Use) {
        let fetched = by.access() == Some(Access::Execute);
        self.code[set * self.ways + way] = fetched.then_some(0);
        self.put(set, way, if fetched { self.ways / 3 } else { self.ways - 1 });
    }

    fn victim(&mut self, set: usize, by: Use) -> usize {
        let way = self.stack[(set + 1) * self.ways - 1] as usize;
        self.fill(set, way, by);
        way
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {
        let ways = self.ways;
        self.stack.iter_mut().enumerate().for_each(|(at, way)| *way = (at % ways) as u16);
        self.code.fill(None);
    }

    fn validate(&self, _: &[u32]) -> Result<(), String> {
        let sound = |set: usize| {
            let of_set = set * self.ways..(set + 1) * self.ways;
            let counted = self.code[of_set.clone()].iter().all(|uses| uses.is_none_or(|uses| uses <= OFTEN));
            counted && is_permutation(self.stack[of_set].iter().map(|way| *way as usize), self.ways)
        };
        possible((0..self.stack.len() / self.ways).find(|set| !sound(*set)))
    }
}
