//! The contents of pages, as far as digests can tell: a version number that each write changes
//! (Navarro et al., section 4.7).

use std::collections::HashMap;
use superpage_pages::{Pfn, Vpn};
use superpage_trace::ProcessId;
use superpage_vm::Backed;

/// The versions of the contents of frames and backing store. Kept only under policies that use
/// digests.
#[derive(Default)]
pub(crate) struct Contents {
    /// The newest version. Zeroes, and the original contents of files, have version 0.
    newest: u64,
    frames: HashMap<Pfn, u64>,
    stored: HashMap<Backed, u64>,
    /// Pages to which a process writes what they already hold: the first one, and the one after the
    /// last.
    rewritten: HashMap<ProcessId, (Vpn, Vpn)>,
}

impl Contents {
    /// Records that the process writes to a page of this frame.
    pub(crate) fn write(&mut self, process: Option<ProcessId>, page: Vpn, frame: Pfn) {
        let range = process.and_then(|process| self.rewritten.get(&process));
        if range.is_none_or(|(start, end)| page < *start || page >= *end) {
            self.change(frame);
        }
    }

    /// Records that the contents of the frame change.
    pub(crate) fn change(&mut self, frame: Pfn) {
        self.newest += 1;
        self.frames.insert(frame, self.newest);
    }

    /// From here on the process writes to these pages, if any, what they already hold.
    pub(crate) fn rewrite(&mut self, process: ProcessId, start: Vpn, pages: u64) {
        self.rewritten.remove(&process);
        if pages > 0 {
            self.rewritten.insert(process, (start, start + pages));
        }
    }

    /// The process ends.
    pub(crate) fn end(&mut self, process: ProcessId) {
        self.rewritten.remove(&process);
    }

    pub(crate) fn zero(&mut self, frame: Pfn) {
        self.frames.remove(&frame);
    }

    pub(crate) fn copy(&mut self, from: Pfn, to: Pfn) {
        let version = self.version(from);
        self.frames.insert(to, version);
    }

    pub(crate) fn load(&mut self, from: Backed, to: Pfn) {
        let version = self.stored.get(&from).copied().unwrap_or(0);
        self.frames.insert(to, version);
    }

    pub(crate) fn save(&mut self, to: Backed, from: Pfn) {
        let version = self.version(from);
        self.stored.insert(to, version);
    }

    /// Forgets a deleted file; another one may get its number.
    pub(crate) fn forget(&mut self, deleted: u32) {
        self.stored.retain(|place, _| !matches!(place, Backed::File { file, .. } if *file == deleted));
    }

    pub(crate) fn digest(&self, frame: Pfn) -> u128 {
        u128::from(self.version(frame))
    }

    fn version(&self, frame: Pfn) -> u64 {
        self.frames.get(&frame).copied().unwrap_or(0)
    }
}
