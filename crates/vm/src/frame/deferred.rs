//! Huge pages that are split later, as in Linux (mm/huge_memory.c: `deferred_split_folio`). A huge
//! page of which a part is unmapped keeps all of its frames: those of the pages that are gone hold
//! nothing, and nobody gets them. When memory is short the oldest such huge pages are split, which
//! frees those frames; when the last page of one is gone it is free as a whole. A page that is
//! touched again gets a frame elsewhere, so that its huge page does not come back.
//!
//! Where the policy also splits underused huge pages (Linux 6.12: `thp_underused`), all of them
//! wait here from the moment they are made, and those whose turn comes are looked at once.
//!
//! The population map knows nothing of this: it has what is left of the extent in pieces, as it
//! would have without.

use crate::frame::Frames;
use crate::object::ObjectId;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::{Extent, Ladder, Level, Pfn};

/// The huge pages, disjoint.
#[derive(Default)]
pub(crate) struct Deferred {
    folios: BTreeMap<u32, Folio>,
    /// First frames, by when they came.
    order: BTreeMap<u64, u32>,
    /// Those of them that lost pages.
    parted: BTreeMap<u64, u32>,
    next: u64,
}

struct Folio {
    level: Level,
    came: u64,
    /// What of it is nobody's.
    held: Vec<Extent>,
    /// The frames of those.
    frames: u64,
}

impl Deferred {
    pub(crate) fn is_empty(&self) -> bool {
        self.folios.is_empty()
    }

    /// The first frame of the huge page that has this frame.
    fn find(&self, ladder: &Ladder, frame: u32) -> Option<u32> {
        let (first, folio) = self.folios.range(..=frame).next_back()?;
        (u64::from(frame - first) < ladder.pages(folio.level)).then_some(*first)
    }

    fn add(&mut self, first: u32, level: Level) {
        self.order.insert(self.next, first);
        self.folios.insert(first, Folio { level, came: self.next, held: Vec::new(), frames: 0 });
        self.next += 1;
    }

    fn remove(&mut self, first: u32) -> Option<Folio> {
        let folio = self.folios.remove(&first)?;
        self.order.remove(&folio.came);
        self.parted.remove(&folio.came);
        Some(folio)
    }

    /// All that they hold.
    pub(crate) fn held(&self) -> impl Iterator<Item = Extent> + '_ {
        self.folios.values().flat_map(|folio| folio.held.iter().copied())
    }

    /// Checks that they are disjoint, hold a part of themselves each or nothing, and are listed.
    pub(crate) fn validate(&self, ladder: &Ladder) -> Result<(), String> {
        let mut end = 0;
        for (first, folio) in &self.folios {
            let pages = ladder.pages(folio.level);
            let inside = |extent: &Extent| {
                (u64::from(*first)..u64::from(*first) + pages).contains(&extent.start.0) && extent.level < folio.level
            };
            let frames: u64 = folio.held.iter().map(|extent| ladder.pages(extent.level)).sum();
            let right = u64::from(*first) >= end && folio.held.iter().all(inside) && frames == folio.frames;
            let listed = |list: &BTreeMap<u64, u32>| list.get(&folio.came) == Some(first);
            if !right || frames >= pages || !listed(&self.order) || listed(&self.parted) != (frames > 0) {
                return Err(format!("the huge page at frame {first}, which is to be split, holds {frames} frames"));
            }
            end = u64::from(*first) + pages;
        }
        let parted = self.folios.values().filter(|folio| folio.frames > 0).count();
        let right = self.order.len() == self.folios.len() && self.parted.len() == parted;
        if right { Ok(()) } else { Err("huge pages to be split are lost".into()) }
    }

    /// Bytes held, about.
    pub(crate) fn metadata_bytes(&self) -> usize {
        let held: usize = self.folios.values().map(|folio| folio.held.capacity()).sum();
        self.folios.len() * (size_of::<(u32, Folio)>() + 2 * size_of::<(u64, u32)>()) + held * size_of::<Extent>()
    }
}

impl Frames {
    /// Frees an extent, unless it is a part of a huge page that is split later. O(log huge pages).
    pub(crate) fn free(&mut self, extent: Extent) {
        let first =
            if self.deferred.is_empty() { None } else { self.deferred.find(&self.ladder, extent.start.0 as u32) };
        let Some(first) = first else { return self.buddy.free(extent) };
        if !self.defers {
            self.split(first);
            return self.buddy.free(extent);
        }
        let pages = self.ladder.pages(extent.level);
        let folio = self.deferred.folios.get_mut(&first).expect("it was found");
        folio.held.push(extent);
        folio.frames += pages;
        self.deferred.parted.insert(folio.came, first);
        let whole = self.ladder.pages(folio.level);
        let level = folio.level;
        if folio.frames == whole {
            // Its last page is gone.
            self.deferred.remove(first);
            self.stats.deferred_pages -= whole - pages;
            self.buddy.free(Extent { start: Pfn(u64::from(first)), level });
        } else {
            self.stats.deferred_pages += pages;
            self.stats.peak_deferred_pages = self.stats.peak_deferred_pages.max(self.stats.deferred_pages);
        }
    }

    /// Before these pages of an object are released: the huge pages of which a part stays are split
    /// later.
    pub(super) fn defer(&mut self, object: ObjectId, low: u64, high: u64) {
        if !self.defers || low >= high {
            return;
        }
        for index in [low, high - 1] {
            let walk = self.population.walk(object, index);
            if walk.covered == 0 || !self.population.is_full(walk.covered, walk.slots[walk.covered as usize]) {
                continue;
            }
            let pages = self.population.pages(walk.covered);
            let start = index & !(pages - 1);
            let first = walk.frame & !(pages as u32 - 1);
            let parted = start < low || start + pages > high;
            if parted && self.deferred.find(&self.ladder, first).is_none() {
                self.deferred.add(first, Level(walk.covered));
            }
        }
    }

    /// A huge page was made: it is looked at when its turn comes.
    pub(super) fn await_look(&mut self, extent: Extent) {
        if self.looks_at_huge && extent.level > Level::BASE {
            self.deferred.add(extent.start.0 as u32, extent.level);
        }
    }

    /// Splits the huge page that has this frame, if it is one that was to be split later.
    pub(crate) fn split_at(&mut self, frame: u32) {
        if !self.deferred.is_empty()
            && let Some(first) = self.deferred.find(&self.ladder, frame)
        {
            self.split(first);
        }
    }

    /// Splits those that have a frame of this extent.
    pub(crate) fn split_in(&mut self, extent: Extent) {
        self.split_at(extent.start.0 as u32);
        let (first, end) = (extent.start.0 as u32, (extent.start.0 + self.ladder.pages(extent.level)) as u32);
        let inside: Vec<u32> = self.deferred.folios.range(first..end).map(|(first, _)| *first).collect();
        inside.into_iter().for_each(|first| self.split(first));
    }

    /// Of those that lost pages, splits the one that has waited longest. Returns whether there was
    /// one.
    pub(super) fn split_oldest(&mut self) -> bool {
        let oldest = self.deferred.parted.first_key_value().map(|(_, first)| *first);
        oldest.into_iter().for_each(|first| self.split(first));
        oldest.is_some()
    }

    /// Takes the one that has waited longest off the list, and splits it if it lost pages.
    /// Otherwise returns it, to be looked at.
    pub(crate) fn take_oldest(&mut self) -> Option<Result<(), Extent>> {
        let first = *self.deferred.order.first_key_value()?.1;
        let folio = &self.deferred.folios[&first];
        let (extent, parted) = (Extent { start: Pfn(u64::from(first)), level: folio.level }, folio.frames > 0);
        self.split(first);
        Some(if parted { Ok(()) } else { Err(extent) })
    }

    fn split(&mut self, first: u32) {
        let Some(folio) = self.deferred.remove(first) else { return };
        self.stats.deferred_splits += u64::from(folio.frames > 0);
        self.stats.deferred_pages -= folio.frames;
        folio.held.into_iter().for_each(|extent| self.buddy.free(extent));
    }
}
