//! Each index function once more, bit by bit.

use superpage_mmu::Index;

/// The set that a number selects in a way.
pub(crate) fn set(index: Index, number: u64, way: usize, sets: usize) -> usize {
    let bit = |of: u64, at: usize| of / 2u64.pow(at as u32) % 2;
    match index {
        Index::Low => (number % sets as u64) as usize,
        Index::Xor => {
            let bits = (0..).find(|bits| 2usize.pow(*bits) == sets).unwrap() as usize;
            let differ = |at: &usize| bit(number, *at) != bit(number, *at + bits);
            (0..bits).filter(differ).map(|at| 2usize.pow(at as u32)).sum()
        }
        Index::Skewed => {
            let bits = (0..).find(|bits| 2usize.pow(*bits) == sets).unwrap() as usize;
            // The lowest first.
            let mut low: Vec<u64> = (0..bits).map(|at| bit(number, at)).collect();
            for _ in 0..way {
                let (first, last) = (low.remove(0), *low.last().unwrap());
                low.push((first + last) % 2);
            }
            let differ = |at: &usize| low[*at] != bit(number, *at + bits);
            (0..bits).filter(differ).map(|at| 2usize.pow(at as u32)).sum()
        }
    }
}
