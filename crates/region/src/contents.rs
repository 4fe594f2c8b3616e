//! The contents of a region's pages, as the manager sees them: [`Memory`](superpage_vm::Memory) on
//! the memory file and the swap file.

use super::memory::{BLOCK, Memory};
use super::swap::Swap;
use std::io;
use std::time::Instant;
use superpage_pages::{Extent, Ladder, Pfn, Vpn};
use superpage_vm::{Backed, Buddy, Filled, NoContents, Page};

/// The memory of a region, and the swap file.
pub(crate) struct Contents {
    pub(crate) memory: Memory,
    pub(crate) swap: Swap,
    ladder: Ladder,
    /// The first page of the region.
    first: Vpn,
    /// Why a page of the current fault could not be filled.
    pub(crate) failed: Option<io::Error>,
    pub(crate) reservations: u64,
    pub(crate) reservation_nanoseconds: u64,
}

impl Contents {
    pub(crate) fn new(memory: Memory, swap: Swap, ladder: Ladder, first: Vpn) -> Contents {
        Contents { memory, swap, ladder, first, failed: None, reservations: 0, reservation_nanoseconds: 0 }
    }

    /// The number of a page in the region.
    fn index(&self, page: Page) -> usize {
        match page {
            Page::Mapped { at, .. } => (at - self.first) as usize,
            Page::File { file, .. } => panic!("a region has no file {file}"),
            Page::Free => panic!("a region zeroes no free frames"),
        }
    }

    /// Records why something failed; later steps of the same fault fail too.
    fn done(&mut self, result: io::Result<()>) -> Result<(), NoContents> {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
        if self.failed.is_some() { Err(NoContents) } else { Ok(()) }
    }

    /// Makes a frame back a page, and provides its memory.
    fn back(&mut self, index: usize, frame: Pfn) -> io::Result<()> {
        self.memory.give(index, frame)?;
        self.memory.provide(index)
    }
}

impl superpage_vm::Memory for Contents {
    fn zero(&mut self, first: Pfn, frames: u64, page: Page) -> Result<(), NoContents> {
        let index = self.index(page) & !(frames as usize - 1);
        let result = (0..frames).try_for_each(|part| {
            self.back(index + part as usize, first + part)?;
            self.memory.zero(index + part as usize);
            Ok(())
        });
        self.done(result)
    }

    fn copy(&mut self, _: Pfn, to: Pfn, page: Page) {
        // Contents are stored by page, whichever frame backs it.
        let given = self.memory.give(self.index(page), to);
        let _ = self.done(given);
    }

    fn read(&mut self, from: Backed, to: Pfn, page: Page) -> Result<Filled, NoContents> {
        let Backed::Swap { slot } = from else { panic!("a region has no page in {from:?}") };
        let index = self.index(page);
        let backed = self.back(index, to);
        let read = backed.and_then(|()| self.swap.read(slot, self.memory.contents_mut(index)));
        self.done(read).map(|()| Filled::Now)
    }

    fn write(&mut self, to: Backed, frame: Pfn) {
        let Backed::Swap { slot } = to else { panic!("a region has no page in {to:?}") };
        self.swap.write(slot, self.memory.contents(frame));
    }

    fn digest(&mut self, frame: Pfn) -> u128 {
        xxhash_rust::xxh3::xxh3_128(self.memory.contents(frame))
    }

    fn reserved(&mut self, extent: Extent, page: Page, buddy: &Buddy) {
        if extent.level != self.ladder.largest() {
            return;
        }
        let begun = Instant::now();
        let block = self.index(page) / BLOCK;
        let given = self.memory.give_block(block, extent, |frame| buddy.is_cached(frame));
        let _ = self.done(given);
        self.reservations += 1;
        self.reservation_nanoseconds += begun.elapsed().as_nanos() as u64;
    }
}
