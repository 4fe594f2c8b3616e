//! The pointer chase: loads each of which depends on the one before, so that nothing overlaps, in
//! an order that no prefetcher can predict.

use super::memory::Memory;
use std::time::Instant;

/// One cycle through some words of a memory, each of which holds the address of the next.
pub(crate) struct Chase<'a> {
    first: *const usize,
    _memory: &'a Memory,
}

impl<'a> Chase<'a> {
    /// A random cycle through the words at these offsets, in bytes, all different and multiples of
    /// the size of a word, 8. O(nodes).
    pub(crate) fn new(memory: &'a Memory, mut offsets: Vec<usize>, seed: u64) -> Chase<'a> {
        fastrand::Rng::with_seed(seed).shuffle(&mut offsets);
        let word = |offset: usize| {
            assert!(offset.is_multiple_of(8) && offset + 8 <= memory.bytes(), "the word lies in the memory");
            (memory.start() + offset) as *mut usize
        };
        for (index, offset) in offsets.iter().enumerate() {
            let next = offsets[(index + 1) % offsets.len()];
            // SAFETY: the word is aligned and in the mapping, which holds plain numbers and is ours
            // alone.
            unsafe { word(*offset).write(word(next) as usize) };
        }
        Chase { first: word(offsets[0]), _memory: memory }
    }

    /// Nanoseconds a load, the mean of `loads`.
    pub(crate) fn time(&self, loads: usize) -> f64 {
        let (mut at, begun) = (self.first, Instant::now());
        for _ in 0..loads {
            // SAFETY: the cycle was written by `new` into a mapping that still stands, as it is
            // borrowed.
            at = unsafe { at.read_volatile() } as *const usize;
        }
        std::hint::black_box(at);
        begun.elapsed().as_nanos() as f64 / loads as f64
    }
}

/// The offsets of one word a page of `page` bytes, each one cache line after the last: no two in
/// the same place of their pages until all 64 places were used, so that they spread over the sets
/// of a cache.
pub(crate) fn spread(nodes: usize, page: usize) -> Vec<usize> {
    const LINE: usize = 64;
    (0..nodes).map(|node| node * page + node * LINE % super::memory::BASE).collect()
}
