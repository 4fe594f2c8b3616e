//! Digests of contents as they are in backing store, by frame: what has its digest still is not
//! dirty (Navarro et al., section 4.7).

use alloc::collections::VecDeque;
use core::ops::Range;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The digests that are known, and the frames that wait for theirs.
#[derive(Default)]
pub(crate) struct Digests {
    known: HashMap<u32, u128, FxBuildHasher>,
    waiting: VecDeque<u32>,
}

impl Digests {
    /// Whether no frame waits.
    #[inline]
    pub(crate) fn none_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// These frames wait, the last.
    pub(crate) fn wait(&mut self, frames: Range<u32>) {
        self.waiting.extend(frames);
    }

    /// The frame that has waited longest waits no longer.
    pub(crate) fn next_waiting(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }

    /// A frame waits no longer.
    pub(crate) fn cancel(&mut self, frame: u32) {
        self.waiting.retain(|waiting| *waiting != frame);
    }

    pub(crate) fn get(&self, frame: u32) -> Option<u128> {
        self.known.get(&frame).copied()
    }

    pub(crate) fn put(&mut self, frame: u32, digest: u128) {
        self.known.insert(frame, digest);
    }

    #[inline]
    pub(crate) fn forget(&mut self, frame: u32) {
        // Few policies keep digests.
        if !self.known.is_empty() {
            self.known.remove(&frame);
        }
    }

    /// The contents are in another frame now.
    pub(crate) fn moved(&mut self, from: u32, to: u32) {
        if let Some(digest) = self.known.remove(&from) {
            self.known.insert(to, digest);
        }
        self.waiting.iter_mut().filter(|waiting| **waiting == from).for_each(|waiting| *waiting = to);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.known.allocation_size()
    }
}
