//! Regions that the operating system maps by one perforated page: base pages of one table of the
//! lowest level that lie at their places in one aligned extent of frames, with the same rights. All
//! others are *holes*: absent, elsewhere, or with other rights. Park et al., Perforated page:
//! supporting fragmented memory allocation for large pages, ISCA 2020.
//!
//! The operating system's rule is modelled here: a region is perforated as long as it has few
//! enough holes. That follows from the mappings, so no policy has to ask for it.
//!
//! A page that becomes a hole costs a shootdown, since TLBs would still translate it; so does a
//! region that ends or changes its extent. Filling a hole costs none: no TLB holds an absent entry.
//! A fragment of the bitmap that a TLB holds may still call the page a hole, and then its walk ends
//! at its own entry in the table of the lowest level, where it is mapped: longer, but not wrong.
//! The core that faulted drops that fragment, as an x86 processor drops all that it holds of an
//! address that faulted (Intel SDM, volume 3, 4.10.4.1).

use super::notifiers::{Change, Effects, Notifier};
use super::{Invalidate, Mappings, SpacePages};
use crate::machine::perforated_size;
use crate::mappings::Work;
use superpage_pages::{PageSize, Vpn};

/// The words of a region's bitmap.
const WORDS: usize = 8;
/// The most pages of a region.
pub(crate) const MOST_PAGES: usize = WORDS * 64;
/// The parts of a region that have a bit in the filter of its page-table entry.
const FILTERED: u32 = 8;
/// The fragments in which a TLB holds the bitmap.
pub(crate) const FRAGMENTS: u32 = 16;

/// The base-two logarithm of the pages of a fragment, in a region of `1 << order` pages.
pub(crate) fn fragment_order(order: u32) -> u32 {
    order - FRAGMENTS.ilog2()
}

/// The aligned extent of frames in which a base page lies at its place, and its rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placement {
    /// The first frame of the extent.
    frame: u64,
    rights: u32,
}

/// A perforated page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    placement: Placement,
    holes: [u64; WORDS],
    /// The base-two logarithm of the number of pages.
    order: u32,
}

impl Region {
    /// The first frame of the extent.
    pub(crate) fn frame(&self) -> u64 {
        self.placement.frame
    }

    /// The number of pages that are no holes.
    fn pages(&self) -> u32 {
        (1 << self.order) - self.holes.iter().map(|word| word.count_ones()).sum::<u32>()
    }

    /// Whether the page at this place is a hole.
    #[inline(always)]
    pub(crate) fn is_hole(&self, place: u32) -> bool {
        self.holes[place as usize / 64] >> (place % 64) & 1 != 0
    }

    /// Says whether the page at this place is a hole.
    fn set_hole(&mut self, place: u32, hole: bool) {
        let (word, bit) = (&mut self.holes[place as usize / 64], 1 << (place % 64));
        if hole { *word |= bit } else { *word &= !bit }
    }

    /// Whether the eighth of the region with this page has a hole; if not, the bitmap need not be
    /// read.
    #[inline(always)]
    pub(crate) fn may_be_hole(&self, place: u32) -> bool {
        // At most 64 pages, all in one word.
        let pages = (1 << self.order) / FILTERED;
        let first = place / pages * pages;
        self.holes[first as usize / 64] >> (first % 64) & u64::MAX >> (64 - pages) != 0
    }

    /// The fragment of the bitmap that has the bit of this place.
    pub(crate) fn fragment(&self, place: u32) -> u32 {
        place >> fragment_order(self.order)
    }

    /// The fragments that differ, as a bit set.
    fn differing(&self, other: &Region) -> u32 {
        let differs = |place: &u32| self.is_hole(*place) != other.is_hole(*place);
        (0..1 << self.order).filter(differs).fold(0, |set, place| set | 1 << self.fragment(place))
    }
}

/// What TLBs must drop of a region besides the pages that changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stale {
    /// The region's own entry.
    pub(crate) whole: bool,
    /// Fragments of its bitmap, as a bit set.
    pub(crate) fragments: u32,
}

const ALL: Stale = Stale { whole: true, fragments: (1 << FRAGMENTS) - 1 };

/// The perforated regions of all spaces.
#[derive(Clone, Debug)]
pub(super) struct Perforation {
    /// The pages that are not holes which a region has at least; 0 if there are no regions.
    least: u32,
    /// By node of the lowest level.
    regions: Vec<Option<Box<Region>>>,
}

impl Perforation {
    /// None yet.
    pub(super) fn new(least: u32) -> Perforation {
        Perforation { least, regions: Vec::new() }
    }
}

impl Mappings {
    /// The size of a perforated page.
    pub(crate) fn perforated_size(&self) -> PageSize {
        perforated_size(&self.ladder, self.bits[0]).expect("where pages are perforated, there are pages of that size")
    }

    /// Whether there may be perforated pages.
    #[inline(always)]
    pub(crate) fn perforates(&self) -> bool {
        self.perforation.least > 0
    }

    /// The perforated page that this page-table entry of a base page, or of an absent one, is part
    /// of; and its place there.
    #[inline(always)]
    pub(crate) fn region(&self, id: u32) -> Option<(&Region, u32)> {
        let region = self.perforation.regions.get((id >> self.nodes.bits) as usize)?.as_deref()?;
        Some((region, id & ((1 << self.nodes.bits) - 1)))
    }

    /// Updates the region with this first page and page-table entry, in which these pages, by
    /// index, have changed. Returns the work, and whether a shootdown is due: the region has ended
    /// or changed its extent.
    fn update(
        &mut self,
        first_id: u32,
        first: Vpn,
        changed: &std::ops::Range<u64>,
        caches: &mut impl Invalidate,
    ) -> (Work, bool) {
        let node = (first_id >> self.nodes.bits) as usize;
        if self.perforation.regions.len() <= node {
            self.perforation.regions.resize(node + 1, None);
        }
        let old = self.perforation.regions[node].take();
        let new = old.as_deref().and_then(|old| self.still_region(first_id, old, changed));
        let new = new.or_else(|| self.find_region(first_id)).map(Box::new);
        let bitmap = (1u64 << self.bits[0]).div_ceil(64);
        let (stale, work) = match (&old, &new) {
            // The entry above, its shadow and the bitmap are written once all entries were read.
            (None, Some(_)) => (None, Work { writes: 2 + bitmap, traversals: 1 << self.bits[0] }),
            (Some(_), None) => (Some(ALL), Work { writes: 1, traversals: 0 }),
            (Some(a), Some(b)) if a.placement != b.placement => {
                (Some(ALL), Work { writes: 2 + bitmap, traversals: 1 << self.bits[0] })
            }
            (Some(a), Some(b)) if a != b => {
                // A page that became a hole has been shot down, with all that was known of it.
                let filled = Stale { whole: false, fragments: a.differing(b) };
                (Some(filled), Work { writes: 1, traversals: 0 })
            }
            _ => (None, Work::default()),
        };
        self.perforation.regions[node] = new;
        if let Some(stale) = stale {
            caches.drop_region(first_id, first, stale);
        }
        (work, stale.is_some_and(|stale| stale.whole))
    }

    /// A node of the lowest level is no more.
    pub(super) fn dissolve(&mut self, node: usize, caches: &mut impl Invalidate) {
        if let Some(region) = self.perforation.regions.get_mut(node)
            && region.take().is_some()
        {
            let first_id = (node as u32) << self.nodes.bits;
            caches.drop_region(first_id, self.nodes.first_page(first_id), ALL);
        }
    }

    /// The placement of the base page of this entry, if it is mapped and at its place in an aligned
    /// extent of this many `frames`, a power of two.
    pub(super) fn placement(&self, id: u32, frames: u64) -> Option<Placement> {
        let index = u64::from(id) & (frames - 1);
        let first = self.base_frame(id)?.checked_sub(index).filter(|first| first.is_multiple_of(frames))?;
        Some(Placement { frame: first, rights: self.ptes[id as usize].attributes(0) })
    }

    /// As [`Mappings::placement`], in an extent of a region.
    fn placement_in_region(&self, id: u32) -> Option<Placement> {
        self.placement(id, 1 << self.bits[0])
    }

    /// The region after the pages at these places have changed, without a look at the others: while
    /// more than half of what is mapped there lies in its extent, no other extent has more.
    fn still_region(&self, first_id: u32, old: &Region, changed: &std::ops::Range<u64>) -> Option<Region> {
        let mut region = old.clone();
        for place in changed.start as u32..changed.end as u32 {
            region.set_hole(place, self.placement_in_region(first_id + place) != Some(region.placement));
        }
        let pages = region.pages();
        (pages >= self.perforation.least && 2 * pages > self.nodes.live_of(first_id)).then_some(region)
    }

    /// The region of this node as it is mapped now: of the extents that hold enough of its pages,
    /// the one that holds most; of several, the one with the first page.
    fn find_region(&self, first_id: u32) -> Option<Region> {
        let least = self.perforation.least;
        if self.nodes.live_of(first_id) < least {
            return None;
        }
        let ids = first_id..first_id + (1 << self.bits[0]);
        // At least a third of all are needed: two counters find every placement that a third has.
        let mut common: [(Option<Placement>, u32); 2] = [(None, 0); 2];
        for placement in ids.clone().filter_map(|id| self.placement_in_region(id)) {
            match common.iter_mut().find(|(held, _)| *held == Some(placement)) {
                Some((_, count)) => *count += 1,
                None => match common.iter_mut().find(|(_, count)| *count == 0) {
                    Some(free) => *free = (Some(placement), 1),
                    None => common.iter_mut().for_each(|(_, count)| *count -= 1),
                },
            }
        }
        let region = |placement: Placement| {
            let mut region = Region { placement, holes: [0; WORDS], order: self.bits[0] };
            for (place, id) in (0..).zip(ids.clone()) {
                region.set_hole(place, self.placement_in_region(id) != Some(placement));
            }
            region
        };
        let first = |region: &Region| (0..1 << self.bits[0]).find(|place| !region.is_hole(*place));
        let found =
            common.iter().filter_map(|(placement, _)| placement.map(region)).filter(|region| region.pages() >= least);
        found.max_by_key(|region| (region.pages(), std::cmp::Reverse(first(region))))
    }
}

impl Notifier for Perforation {
    #[inline(always)]
    fn is_kept(mappings: &Mappings) -> bool {
        mappings.perforates()
    }

    fn after(mappings: &mut Mappings, change: &Change, work: Work, caches: &mut impl Invalidate) -> Effects {
        let mut effects = Effects { work, shot: Vec::new() };
        let (Change { space, pages, .. }, mut shot, span) = (change, false, 1 << mappings.bits[0]);
        for first in (pages.start / span * span..pages.end).step_by(span as usize) {
            if let Some(found) = mappings.find(*space, Vpn(first), 1).filter(|found| found.level == 1) {
                let changed = pages.start.max(first) - first..pages.end.min(first + span) - first;
                let (more, ends) = mappings.update(found.id, Vpn(first), &changed, caches);
                shot |= ends;
                effects.work += more;
            }
        }
        effects.shot.extend(shot.then(|| SpacePages { space: *space, pages: pages.clone() }));
        effects
    }

    /// Checks that regions are what is mapped.
    fn validate(mappings: &Mappings) -> Result<(), String> {
        for (node, region) in mappings.perforation.regions.iter().enumerate() {
            let id = (node as u32) << mappings.nodes.bits;
            let expected = if mappings.nodes.level_of(id) == 1 { mappings.find_region(id) } else { None };
            if region.as_deref() != expected.as_ref() {
                return Err(format!("node {node}: the perforated page is {region:?}, but {expected:?} is mapped"));
            }
        }
        Ok(())
    }
}
