//! All of physical memory: which frames are free, and which of the others can be moved.

use super::{Frames, base_page_bytes, huge_page_bytes};
use crate::Error;
use std::collections::BTreeSet;
use std::ops::Range;
use superpage_pages::{FrameUse, PageSize};

/// Unused memory: as many bytes in a row without a flag on any frame.
const UNUSED: u64 = 128 << 20;

/// The memory of this machine, for reading.
#[derive(Debug)]
pub struct Physical {
    frames: Frames,
    /// The frames that are memory, from `/proc/iomem`.
    spans: Vec<Range<u64>>,
}

impl Physical {
    /// Finds where memory is.
    ///
    /// # Errors
    /// The kernel does not show it; the sentence says what is needed.
    pub fn open() -> Result<Physical, Error> {
        let unable = || {
            let sentence = "the kernel does not show the frames of memory: that takes root outside of containers, and \
                            a kernel with CONFIG_PROC_PAGE_MONITOR (/proc/kpageflags and /proc/iomem)";
            Error::Unable(sentence.into())
        };
        let frames = Frames::open().ok_or_else(unable)?;
        let page = base_page_bytes();
        let memory = procfs::iomem().map_err(|_| unable())?;
        let spans: Vec<Range<u64>> = memory
            .iter()
            .filter(|(_, map)| map.name.starts_with("System RAM"))
            .map(|(_, map)| map.address.0.div_ceil(page)..(map.address.1 + 1) / page)
            .filter(|span| !span.is_empty())
            .collect();
        // To others than root every address is 0.
        if spans.is_empty() { Err(unable()) } else { Ok(Physical { frames, spans }) }
    }

    /// The size of a base page.
    pub fn base(&self) -> PageSize {
        PageSize::from_bytes(base_page_bytes()).expect("a power of two")
    }

    /// The size of a block: that of a huge page.
    pub fn block(&self) -> PageSize {
        PageSize::from_bytes(huge_page_bytes()).expect("a power of two")
    }

    /// Calls `each` with the frames of every block, ascending, about 0.1 us a frame. Blocks without
    /// memory are left out; a frame of another block that is none is immovable.
    ///
    /// Free is what the buddy allocator has, and memory that the kernel has not begun to use (128
    /// MB and more without a flag: accepted or initialised late). Movable is what is on the lists
    /// of pages to reclaim (LRU). All else is immovable, also the few free pages that processors
    /// keep for themselves, which have no flag. Memory changes while it is read.
    ///
    /// # Errors
    /// The flags of frames cannot be read.
    pub fn blocks(&self, mut each: impl FnMut(&[FrameUse])) -> Result<(), Error> {
        let block = self.block().bytes() / self.base().bytes();
        let piece = block.max(UNUSED / self.base().bytes());
        let end = self.spans.iter().map(|span| span.end).max().unwrap_or(0);
        let pieces: BTreeSet<u64> =
            self.spans.iter().flat_map(|span| span.start / piece..=(span.end - 1) / piece).collect();
        for first in pieces.into_iter().map(|number| number * piece) {
            let last = end.min(first + piece);
            let (mut flags, mut there) = (vec![0; (last - first) as usize], vec![false; piece as usize]);
            self.frames.exact(first, &mut flags).map_err(Error::file("read", "/proc/kpageflags"))?;
            for span in &self.spans {
                let within = |frame: u64| (frame.clamp(first, last) - first) as usize;
                there[within(span.start)..within(span.end)].fill(true);
            }
            flags.resize(piece as usize, 0);
            let uses = uses(&flags, &there);
            for block in uses.chunks(block as usize).filter(|block| block.iter().any(Option::is_some)) {
                each(&block.iter().map(|of| of.unwrap_or(FrameUse::Immovable)).collect::<Vec<_>>());
            }
        }
        Ok(())
    }
}

/// The uses of the frames of a piece of memory, from their flags and whether they are memory;
/// `None` where there is none.
fn uses(flags: &[u64], there: &[bool]) -> Vec<Option<FrameUse>> {
    let unused = there.iter().all(|there| *there) && flags.iter().all(|flags| *flags == 0);
    let mut before = if unused { FrameUse::Free } else { FrameUse::Immovable };
    let each = flags.iter().zip(there).map(|(flags, there)| {
        let has = |flag: u64| flags & flag != 0;
        if !there || has(Frames::NO_PAGE | Frames::OFFLINE | Frames::POISONED) {
            return None;
        }
        // Before Linux 6.10 a tail does not say that its folio is on a list.
        before = match () {
            () if unused || has(Frames::BUDDY) => FrameUse::Free,
            () if has(Frames::LRU) => FrameUse::Movable,
            () if has(Frames::TAIL) => before,
            () => FrameUse::Immovable,
        };
        Some(before)
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_tell_what_a_frame_is() {
        let (free, movable, immovable) = (Some(FrameUse::Free), Some(FrameUse::Movable), Some(FrameUse::Immovable));
        let slab = 1 << 7;
        let found = uses(
            &[
                Frames::BUDDY,
                0,
                Frames::LRU | Frames::HEAD,
                Frames::TAIL,
                Frames::LRU | Frames::TAIL,
                slab | Frames::HEAD,
                slab | Frames::TAIL,
                Frames::OFFLINE,
                Frames::BUDDY,
            ],
            &[true, true, true, true, true, true, true, true, false],
        );
        assert_eq!(found, [free, immovable, movable, movable, movable, immovable, immovable, None, None]);
        assert_eq!(uses(&[0; 4], &[true; 4]), [free; 4], "not in use yet");
        assert_eq!(uses(&[0; 3], &[true, false, true]), [immovable, None, immovable]);
    }
}
