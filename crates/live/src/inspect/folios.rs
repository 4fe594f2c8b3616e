//! The sizes of folios: pages that the kernel allocated, and keeps, as one.

use std::collections::HashMap;
use superpage_linux::pagemap::{Entry, Frames};

/// The orders of the folios that frames belong to, from `/proc/kpageflags`, read and kept in blocks of a huge page: about
/// 70 us a block.
pub(super) struct Folios {
    frames: Frames,
    /// Frames of a block.
    block: u64,
    /// Block -> the order of each of its frames.
    orders: HashMap<u64, Box<[u8]>>,
}

impl Folios {
    /// In blocks of so many frames.
    pub(super) fn new(frames: Frames, block: u64) -> Folios {
        Folios { frames, block, orders: HashMap::new() }
    }

    /// The order of the folio that an entry's frame belongs to: 0 is a base page. A huge entry maps a folio of that size.
    pub(super) fn order(&mut self, entry: Entry) -> u8 {
        if entry.huge() {
            return self.block.trailing_zeros() as u8;
        }
        let (block, at) = (entry.frame() / self.block, entry.frame() % self.block);
        let read = || {
            let mut flags = vec![0; self.block as usize];
            self.frames.flags(block * self.block, &mut flags);
            orders(&flags)
        };
        self.orders.entry(block).or_insert_with(read)[at as usize]
    }
}

/// The order of each frame's folio, from the flags of a block. A folio that begins before the block fills it.
fn orders(flags: &[u64]) -> Box<[u8]> {
    let mut orders = vec![0_u8; flags.len()].into_boxed_slice();
    let mut at = 0;
    while at < flags.len() {
        let tails = flags[at + 1..].iter().take_while(|flags| *flags & Frames::TAIL != 0).count();
        let compound = flags[at] & (Frames::HEAD | Frames::TAIL) != 0;
        let frames = if compound { 1 + tails } else { 1 };
        orders[at..at + frames].fill(frames.ilog2() as u8);
        at += frames;
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_lie_one_behind_the_other() {
        let (head, tail) = (Frames::HEAD, Frames::TAIL);
        let flags = [0, 0, head, tail, head, tail, tail, tail, 0, 0, 0, 0, head, tail, tail, tail];
        assert_eq!(*orders(&flags), [0, 0, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2]);
        assert_eq!(*orders(&[tail; 8]), [3; 8]);
    }
}
