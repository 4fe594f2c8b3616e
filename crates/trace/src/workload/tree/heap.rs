//! The `malloc` of the tree's process: sizes that are powers of two, each in its own pages, with
//! a free list each.

use super::access;
use crate::workload::process::{DATA, MALLOC_PAGE, Process};
use crate::workload::program::Out;
use superpage_pages::Access;

/// The free lists of all sizes.
///
/// The heads of the lists and the ends of the pages in use are words in the process's data; a free
/// chunk's first word is the next one. Chunks are given out again last in, first out.
pub(super) struct Heap {
    process: Process,
    /// For each power of two: its free chunks, the next to go out last.
    free: [Vec<u64>; SIZES],
    /// For each power of two: what is left of its newest page.
    fresh: [std::ops::Range<u64>; SIZES],
}

/// Sizes from 1 byte to half a page of `malloc`.
const SIZES: usize = MALLOC_PAGE.ilog2() as usize;

impl Heap {
    /// The heap of a process that has none yet.
    pub(super) fn new(process: Process) -> Heap {
        Heap { process, free: Default::default(), fresh: std::array::from_fn(|_| 0..0) }
    }

    /// Returns the address of a chunk of at least `size` bytes, at most 4 KB, aligned to the next
    /// power of two.
    pub(super) fn allocate(&mut self, out: &mut Out, size: u64) -> u64 {
        let class = class(size);
        access(out, head(class), Access::Read);
        if let Some(chunk) = self.free[class].pop() {
            access(out, chunk, Access::Read);
            access(out, head(class), Access::Write);
            return chunk;
        }
        access(out, fresh(class), Access::Read);
        if self.fresh[class].is_empty() {
            let page = self.process.grow_heap(out, MALLOC_PAGE);
            self.fresh[class] = page..page + MALLOC_PAGE;
        }
        let chunk = self.fresh[class].start;
        self.fresh[class].start += 1 << class;
        access(out, fresh(class), Access::Write);
        chunk
    }

    /// Takes back the chunk at `address` that was allocated with `size`.
    pub(super) fn free(&mut self, out: &mut Out, address: u64, size: u64) {
        let class = class(size);
        access(out, head(class), Access::Read);
        access(out, address, Access::Write);
        access(out, head(class), Access::Write);
        self.free[class].push(address);
    }
}

/// The logarithm of the power of two that holds `size` bytes.
fn class(size: u64) -> usize {
    size.next_power_of_two().ilog2() as usize
}

/// Where the head of a free list is.
fn head(class: usize) -> u64 {
    DATA + class as u64 * 16
}

/// Where the end of the newest page in use is.
fn fresh(class: usize) -> u64 {
    head(class) + 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::process::LEAST_HEAP;
    use std::collections::BTreeMap;
    use superpage_pages::Random;

    #[test]
    fn chunks_never_overlap_and_are_used_again() {
        let mut out = Out::default();
        let mut heap = Heap::new(Process::start(&mut out, 0, LEAST_HEAP, false));
        let (mut random, mut chunks, mut most) = (Random::new(3), BTreeMap::new(), 0);
        for _ in 0..20_000 {
            let size = [8, 48, 128, 4096][random.below(4) as usize];
            if chunks.len() < 100 || random.below(2) == 0 {
                let address = heap.allocate(&mut out, size);
                assert!(address.is_multiple_of(size.next_power_of_two()));
                let before = chunks.range(..address + size).next_back();
                assert!(before.is_none_or(|(start, length)| start + length <= address));
                chunks.insert(address, size);
            } else {
                let (address, size) = chunks.pop_first().unwrap();
                heap.free(&mut out, address, size);
            }
            most = most.max(chunks.len());
        }
        let span = chunks.keys().last().unwrap() - chunks.keys().next().unwrap();
        assert!(span < most as u64 * 3 * 4096, "{span} bytes for at most {most} chunks");
    }
}
