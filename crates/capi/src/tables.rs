//! The page tables and the contents of memory as C provides them: the page tables of
//! `superpage-vm`, each change of which is passed on.
//!
//! A leaf is in both, and a bit is set if it is in either: in a simulator `superpage_access` sets
//! it here, under a kernel its hardware there.

use crate::border::Callbacks;
use crate::types::{MODIFIED, Mapping, REFERENCED};
use std::ops::Range;
use superpage_pages::{Access, Ladder, Mapped, PageSize, Pfn, Protection, Used, Vpn};
use superpage_vm::{Backed, Contiguity, Filled, Memory, NoContents, Page, Pmap, SoftPmap, SpaceId};

pub(crate) struct Tables {
    pub(crate) soft: SoftPmap,
    pub(crate) calls: Callbacks,
    /// The base page's size, as a power of two.
    shift: u32,
    /// The range of the change in progress, and whether anything is to be invalidated for it.
    gathering: Option<(Range<Vpn>, bool)>,
}

fn bits(used: Used) -> u32 {
    (if used.referenced { REFERENCED } else { 0 }) | (if used.modified { MODIFIED } else { 0 })
}

fn either(used: Used, bits: u32) -> Used {
    Used { referenced: used.referenced || bits & REFERENCED != 0, modified: used.modified || bits & MODIFIED != 0 }
}

impl Tables {
    pub(crate) fn new(hardware: Ladder, calls: Callbacks) -> Tables {
        Tables { soft: SoftPmap::new(hardware), calls, shift: hardware.base().shift(), gathering: None }
    }

    fn pages(&self, size: PageSize) -> u64 {
        1 << (size.shift() - self.shift)
    }

    /// The page that maps `at`, whichever of its base pages that is, with the bits here.
    fn here(&self, space: SpaceId, at: Vpn) -> Option<Mapping> {
        let Mapped { frame, size, protection } = self.soft.lookup(space, at)?;
        let start = at.align_down(self.pages(size));
        let (address, physical) = (start.0 << self.shift, (frame.0 - (at - start)) << self.shift);
        let bits = bits(self.soft.used(space, start, size));
        Some(Mapping { address, physical, bytes: size.bytes(), rights: protection.bits().into(), bits })
    }

    /// The page that maps `at`, with all its bits.
    pub(crate) fn mapping(&self, space: SpaceId, at: Vpn) -> Option<Mapping> {
        let here = self.here(space, at)?;
        Some(Mapping { bits: here.bits | self.calls.used(space, &here, 0), ..here })
    }

    /// The leaf that starts at `at`, with the bits here; panics if there is none.
    fn leaf(&self, space: SpaceId, at: Vpn) -> Mapping {
        self.here(space, at).expect("the manager names leaves that there are")
    }

    fn stale(&mut self, space: SpaceId, at: Vpn, size: PageSize) {
        match &mut self.gathering {
            Some((_, stale)) => *stale = true,
            None => self.calls.flush(space, at.0 << self.shift, size.bytes()),
        }
    }

    /// Replaces leaves by others, as `change` does in the page tables here. TLBs never hold both:
    /// the old leaves are flushed first, also within a gathered change, whose range may be smaller.
    fn replace(&mut self, space: SpaceId, at: Vpn, (from, to): (PageSize, PageSize), change: impl FnOnce(&mut Self)) {
        let whole = from.max(to);
        let starts = |size| (0..self.pages(whole)).step_by(self.pages(size) as usize).map(move |page| at + page);
        let (old, new): (Vec<Vpn>, Vec<Vpn>) = (starts(from).collect(), starts(to).collect());
        let kept = old.into_iter().fold(0, |kept, at| kept | self.calls.unmap(space, &self.leaf(space, at)));
        change(self);
        self.calls.flush(space, at.0 << self.shift, whole.bytes());
        for at in new {
            let leaf = self.leaf(space, at);
            self.calls.map(space, &Mapping { bits: leaf.bits | kept, ..leaf });
        }
    }
}

impl Pmap for Tables {
    fn enter(&mut self, space: SpaceId, at: Vpn, to: Mapped, access: Access) {
        self.soft.enter(space, at, to, access);
        self.calls.map(space, &self.leaf(space, at));
    }

    fn remove(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        let there = self.calls.unmap(space, &self.leaf(space, at));
        let used = either(self.soft.remove(space, at, size), there);
        self.stale(space, at, size);
        used
    }

    fn protect(&mut self, space: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        self.soft.protect(space, at, size, protection);
        let leaf = self.mapping(space, at).expect("the manager names leaves that there are");
        self.calls.map(space, &leaf);
        self.stale(space, at, size);
    }

    fn promote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.replace(space, at, (from, to), |tables| tables.soft.promote(space, at, from, to));
    }

    fn demote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        self.replace(space, at, (from, to), |tables| tables.soft.demote(space, at, from, to));
    }

    fn contiguity(&self, size: PageSize) -> Contiguity {
        self.soft.contiguity(size)
    }

    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped> {
        self.soft.lookup(space, at)
    }

    fn used(&self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        either(self.soft.used(space, at, size), self.calls.used(space, &self.leaf(space, at), 0))
    }

    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        let there = self.calls.used(space, &self.leaf(space, at), REFERENCED);
        let here = self.soft.clear_referenced(space, at, size);
        self.stale(space, at, size);
        here || there & REFERENCED != 0
    }

    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        let there = self.calls.used(space, &self.leaf(space, at), MODIFIED);
        let here = self.soft.clear_modified(space, at, size);
        self.stale(space, at, size);
        here || there & MODIFIED != 0
    }

    fn begin_gather(&mut self, space: SpaceId, pages: Range<Vpn>) {
        self.soft.begin_gather(space, pages.clone());
        self.gathering = Some((pages, false));
    }

    fn flush_gathered(&mut self, space: SpaceId) {
        self.soft.flush_gathered(space);
        if let Some((Range { start, end }, true)) = self.gathering.take() {
            // The whole of a space has one byte more than there are numbers.
            let bytes = (end - start).saturating_mul(1 << self.shift);
            self.calls.flush(space, start.0 << self.shift, bytes);
        }
    }

    fn destroy(&mut self, space: SpaceId) {
        self.soft.destroy(space);
    }
}

/// What frames hold: known to the callbacks alone. There are no files and no swap space.
pub(crate) struct Contents {
    pub(crate) calls: Callbacks,
    pub(crate) base: PageSize,
}

impl Memory for Contents {
    fn zero(&mut self, first: Pfn, frames: u64, _: Page) -> Result<(), NoContents> {
        self.calls.zero(first.0 << self.base.shift(), frames << self.base.shift());
        Ok(())
    }

    fn copy(&mut self, from: Pfn, to: Pfn, _: Page) {
        let shift = self.base.shift();
        self.calls.copy(from.0 << shift, to.0 << shift, self.base.bytes());
    }

    fn read(&mut self, _: Backed, _: Pfn, _: Page) -> Result<Filled, NoContents> {
        Err(NoContents)
    }

    fn write(&mut self, _: Backed, _: Pfn) {
        unreachable!("there is no swap space and no file");
    }

    fn digest(&mut self, frame: Pfn) -> u128 {
        frame.0.into()
    }
}
