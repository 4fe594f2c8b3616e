//! Frames that have just arrived on the page lists, before their states and the journals of the
//! lists know.

use crate::queue::pages::List;

/// How many frames arrive before the lists take them: as many misses of the cache as a processor
/// has under way at once, a few times over, and few enough for a search.
pub(super) const ARRIVED: usize = 64;

/// The frames of pages that were just populated, in order: on lists, which count them, but not in
/// their journals yet. Their states say nothing of a list.
#[derive(Clone, Copy)]
pub(super) struct Arrived {
    frames: [u32; ARRIVED],
    /// A bit for each that is on the unswappable list; the others are on the active one.
    stranded: u64,
    count: usize,
}

impl Arrived {
    pub(super) const NONE: Arrived = Arrived { frames: [0; ARRIVED], stranded: 0, count: 0 };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count == ARRIVED
    }

    #[inline]
    pub(super) fn push(&mut self, frame: u32) {
        self.frames[self.count] = frame;
        self.count += 1;
    }

    /// The frame that arrived last.
    #[inline]
    pub(super) fn last(&self) -> Option<u32> {
        self.frames[..self.count].last().copied()
    }

    /// All, in order, with their lists.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, List)> + '_ {
        self.frames[..self.count].iter().enumerate().map(|(position, frame)| (*frame, self.list(position)))
    }

    /// The list of the frame at a position.
    fn list(&self, position: usize) -> List {
        if self.stranded >> position & 1 == 0 { List::Active } else { List::Unswappable }
    }

    /// The list of a frame, if it is one of them.
    pub(super) fn find(&self, frame: u32) -> Option<List> {
        let position = self.frames[..self.count].iter().position(|arrived| *arrived == frame)?;
        Some(self.list(position))
    }

    /// Marks the frame as unswappable if it is the last one. Returns whether it is.
    #[inline]
    pub(super) fn strand(&mut self, frame: u32) -> bool {
        let last = self.last() == Some(frame);
        if last {
            self.stranded |= 1 << (self.count - 1);
        }
        last
    }
}
