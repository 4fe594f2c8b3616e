//! The sizes of folios: pages that the kernel allocated, and keeps, as one.

use std::collections::HashMap;
use superpage_linux::pagemap::{Entry, Frames};

/// Frames that are read at once: a call costs 1 us, a frame 0.1 us, and the folios of a program may
/// lie anywhere.
const GROUP: u64 = 16;

/// The orders of the folios that frames belong to, from `/proc/kpageflags`, which is read and kept
/// in groups of 16 frames: about 3 us a group.
pub(super) struct Folios {
    frames: Frames,
    /// The order of a huge page.
    most: u8,
    /// Group -> which of its frames are heads, which are tails, and which of anonymous memory were
    /// given back.
    groups: HashMap<u64, [u16; 3]>,
}

impl Folios {
    /// Of a machine whose huge pages have `block` frames.
    pub(super) fn new(frames: Frames, block: u64) -> Folios {
        Folios { frames, most: block.trailing_zeros() as u8, groups: HashMap::new() }
    }

    /// The order of the folio that an entry's frame belongs to: 0 is a base page. A huge entry maps
    /// a folio of that size.
    pub(super) fn order(&mut self, entry: Entry) -> u8 {
        if entry.huge() {
            return self.most;
        }
        order(entry.frame(), self.most, |frame| {
            let [head, tail, _] = self.of(frame);
            if head { Frames::HEAD } else { u64::from(tail) * Frames::TAIL }
        })
    }

    /// Whether an entry's page was given back by `MADV_FREE`.
    pub(super) fn given_back(&mut self, entry: Entry) -> bool {
        !entry.huge() && entry.anonymous() && self.of(entry.frame())[2]
    }

    /// Whether a frame is a head, a tail, and given back.
    fn of(&mut self, frame: u64) -> [bool; 3] {
        let read = || {
            let mut flags = [0; GROUP as usize];
            self.frames.flags(frame / GROUP * GROUP, &mut flags);
            let which = |is: &dyn Fn(u64) -> bool| (0..).zip(flags).map(|(at, flags)| u16::from(is(flags)) << at).sum();
            let given_back = |flags| flags & (Frames::ANONYMOUS | Frames::KEPT) == Frames::ANONYMOUS;
            [which(&|flags| flags & Frames::HEAD != 0), which(&|flags| flags & Frames::TAIL != 0), which(&given_back)]
        };
        let group = *self.groups.entry(frame / GROUP).or_insert_with(read);
        group.map(|frames| frames >> (frame % GROUP) & 1 != 0)
    }
}

/// The order of a frame's folio: folios lie at multiples of their size. A larger one than `most`
/// counts as one of `most`.
fn order(frame: u64, most: u8, mut flags: impl FnMut(u64) -> u64) -> u8 {
    if flags(frame) & (Frames::HEAD | Frames::TAIL) == 0 {
        return 0;
    }
    let start = |order: u8| frame >> order << order;
    let Some(head) = (0..=most).map(start).find(|frame| flags(*frame) & Frames::HEAD != 0) else { return most };
    // What lies half a folio behind its head is its tail; what lies a whole one behind, another's,
    // or no folio's.
    (1..most).find(|order| flags(head + (1 << order)) & Frames::TAIL == 0).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_lie_one_behind_the_other() {
        let (head, tail) = (Frames::HEAD, Frames::TAIL);
        let orders = |flags: &[u64]| -> Vec<u8> {
            let frames = 0..flags.len() as u64;
            frames
                .map(|frame| order(frame, flags.len().ilog2() as u8, |at| *flags.get(at as usize).unwrap_or(&0)))
                .collect()
        };
        let flags = [0, 0, head, tail, head, tail, tail, tail, 0, 0, 0, 0, head, tail, tail, tail];
        assert_eq!(orders(&flags), [0, 0, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2]);
        assert_eq!(orders(&[head, tail, tail, tail, tail, tail, tail, tail]), [3; 8]);
        assert_eq!(orders(&[tail; 8]), [3; 8]);
    }
}
