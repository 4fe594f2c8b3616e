//! Infers what a kernel without `PAGEMAP_SCAN` does not report: which pages are the zero page, and
//! which ones huge pages map.
//!
//! If frames are visible, the zero page is known by its frame, and a block may be a huge page if it
//! is one folio. `smaps` shows whether such folios are mapped whole or page by page, though only
//! how many of a mapping are. It does not matter which of them are chosen: they are alike in
//! everything else.
//!
//! If frames are hidden, only the counts of `smaps` are available. The sums of a mapping are right;
//! which of its zero pages and pages shared since a fork are which, and which of its full blocks
//! are huge, can be wrong.

use super::{Entry, Frames, aligned_frames};
use procfs::process::MemoryMap;
use std::ops::Range;

/// The counts of `smaps` for a mapping, in base pages; what has been found is subtracted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Pages that huge pages map.
    pub huge: u64,
    /// Pages that other processes map too, without zero pages.
    pub shared: u64,
}

impl Counted {
    /// The counts for the mappings that overlap a range.
    pub fn of<'a>(smaps: impl IntoIterator<Item = &'a MemoryMap>, range: &Range<u64>) -> Counted {
        let base = rustix::param::page_size() as u64;
        let mut counted = Counted::default();
        for map in smaps.into_iter().filter(|map| map.address.0 < range.end && range.start < map.address.1) {
            let pages = |key: &str| map.extension.map.get(key).map_or(0, |bytes| bytes / base);
            counted.huge += pages("AnonHugePages") + pages("ShmemPmdMapped") + pages("FilePmdMapped");
            counted.shared += pages("Shared_Clean") + pages("Shared_Dirty");
        }
        counted
    }
}

/// Marks the entries of a block. Without `counted` any block that may be a huge page counts as one,
/// by its frames alone.
pub(super) fn conclude(block: &mut [Entry], frames: Option<&Frames>, counted: &mut Option<Counted>) {
    let whole = match (frames, counted.as_mut()) {
        (Some(frames), _) => {
            block.iter_mut().filter(|entry| entry.frame() == frames.zero()).for_each(|entry| entry.mark(true, false));
            aligned_frames(block).is_some_and(|first| one_folio(block, first, frames))
        }
        (None, Some(counted)) => {
            for entry in block.iter_mut().filter(|entry| entry.present() && entry.anonymous() && !entry.exclusive()) {
                match counted.shared.checked_sub(1) {
                    Some(left) => counted.shared = left,
                    None => entry.mark(true, false),
                }
            }
            let kind = |entry: &Entry| (entry.resident(), entry.anonymous(), entry.exclusive());
            block[0].resident() && block.iter().all(|entry| kind(entry) == kind(&block[0]))
        }
        (None, None) => false,
    };
    if !whole {
        return;
    }
    if let Some(counted) = counted {
        match counted.huge.checked_sub(block.len() as u64) {
            Some(left) => counted.huge = left,
            None => return,
        }
    }
    block.iter_mut().for_each(|entry| entry.mark(false, true));
}

/// Whether a block is a folio of its size; if that is the huge zero page, it is marked instead. A
/// folio smaller than the block would have another head in its middle.
fn one_folio(block: &mut [Entry], first: u64, frames: &Frames) -> bool {
    let head = frames.flag(first);
    if head & Frames::ZERO != 0 {
        block.iter_mut().for_each(|entry| entry.mark(true, false));
        return false;
    }
    head & Frames::HEAD != 0 && frames.flag(first + block.len() as u64 / 2) & Frames::TAIL != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;

    fn block(bits: u64) -> Vec<Entry> {
        vec![Entry::of(&bits.to_ne_bytes()); 512]
    }

    fn count(block: &[Entry], what: impl Fn(&Entry) -> bool) -> usize {
        block.iter().filter(|entry| what(entry)).count()
    }

    #[test]
    fn counts_tell_what_hidden_frames_do_not() {
        let mut counted = Some(Counted { huge: 512, shared: 100 });
        // Shared since a fork, or of zeroes.
        let mut common = block(PRESENT);
        conclude(&mut common, None, &mut counted);
        assert_eq!((count(&common, |entry| entry.zero()), count(&common, |entry| entry.huge())), (412, 0));
        let mut gap = block(PRESENT | EXCLUSIVE);
        gap[7] = Entry::default();
        conclude(&mut gap, None, &mut counted);
        assert_eq!((count(&gap, |entry| entry.resident()), count(&gap, |entry| entry.huge())), (511, 0));
        let mut full = [block(PRESENT | EXCLUSIVE), block(PRESENT | EXCLUSIVE)];
        full.iter_mut().for_each(|block| conclude(block, None, &mut counted));
        assert_eq!(full.map(|block| count(&block, |entry| entry.huge())), [512, 0]);
        assert_eq!(counted, Some(Counted::default()));
    }

    #[test]
    fn nothing_is_concluded_from_nothing() {
        for bits in [PRESENT, PRESENT | EXCLUSIVE] {
            let mut same = block(bits);
            conclude(&mut same, None, &mut None);
            assert_eq!(same, block(bits));
        }
    }
}
