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

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
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

pub(super) struct Folio {
    level: Level,
    came: u64,
    /// What of it is nobody's.
    pub(super) held: Vec<Extent>,
    /// The frames of those.
    pub(super) frames: u64,
}

impl Deferred {
    pub(crate) fn is_empty(&self) -> bool {
        self.folios.is_empty()
    }

    /// The first frame of the huge page that has this frame.
    pub(super) fn find(&self, ladder: &Ladder, frame: u32) -> Option<u32> {
        let (first, folio) = self.folios.range(..=frame).next_back()?;
        (u64::from(frame - first) < ladder.pages(folio.level)).then_some(*first)
    }

    /// Puts one on the list.
    pub(super) fn add(&mut self, first: u32, level: Level) {
        self.order.insert(self.next, first);
        self.folios.insert(first, Folio { level, came: self.next, held: Vec::new(), frames: 0 });
        self.next += 1;
    }

    /// Takes one off the list.
    pub(super) fn remove(&mut self, first: u32) -> Option<Folio> {
        let folio = self.folios.remove(&first)?;
        self.order.remove(&folio.came);
        self.parted.remove(&folio.came);
        Some(folio)
    }

    /// A part of the huge page with this first frame is nobody's from now on. Returns the level of
    /// the page if all of it is.
    pub(super) fn hold(&mut self, first: u32, part: Extent, ladder: &Ladder) -> Option<Level> {
        let folio = self.folios.get_mut(&first).expect("it was found");
        folio.held.push(part);
        folio.frames += ladder.pages(part.level);
        self.parted.insert(folio.came, first);
        (folio.frames == ladder.pages(folio.level)).then_some(folio.level)
    }

    /// Of those that lost pages, the one that has waited longest.
    pub(super) fn oldest_parted(&self) -> Option<u32> {
        self.parted.first_key_value().map(|(_, first)| *first)
    }

    /// The one that has waited longest.
    pub(super) fn oldest(&self) -> Option<Extent> {
        let first = *self.order.first_key_value()?.1;
        Some(Extent { start: Pfn(u64::from(first)), level: self.folios[&first].level })
    }

    /// Those that begin in these frames.
    pub(super) fn starts_in(&self, frames: Range<u32>) -> Vec<u32> {
        self.folios.range(frames).map(|(first, _)| *first).collect()
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
