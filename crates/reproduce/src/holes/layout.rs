//! What is mapped where: regions of 2 MB of which some have holes.
//!
//! No kernel decides this. A draw that depends on the seed and on the region alone says whether the
//! region can be a plain superpage, and which of its pages are holes, so a layout is the same for
//! every machine and every stream.

use serde::Deserialize;
use superpage_mmu::{Machine, Mmu};
use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Random, Vpn};

/// Where the holes of a region are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Placed {
    /// One run of pages, from a random one on.
    #[default]
    Gathered,
    /// Random pages.
    Dispersed,
}

/// What regions are made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Made {
    /// All of base pages, in frames in a row.
    Base,
    /// All of one superpage.
    Superpage,
    /// A superpage, or base pages of which some are holes.
    #[default]
    Mixed,
}

/// How memory is mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Layout {
    pub(crate) made: Made,
    /// The share of the regions that cannot be one superpage, in percent.
    pub(crate) share: u32,
    /// The share of the pages of such a region that are holes, in percent.
    pub(crate) holes: u32,
    pub(crate) placed: Placed,
    pub(crate) seed: u64,
}

/// Regions are drawn in groups of this many, so that a group has as many that are not plain as the
/// share says.
const GROUP: u64 = 4;
/// The frames of a region: those in their places from `first` on, those of holes from `elsewhere`
/// on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frames {
    first: u64,
    elsewhere: u64,
}

impl Frames {
    /// The most pages of regions that are mapped in order. There are as many frames for holes, and
    /// caches can tell the lines of all of them apart.
    pub(crate) const MOST_PAGES: u64 = 1 << 23;

    /// Frames that have the numbers of their pages, which are below those of holes in all streams.
    pub(crate) fn by_page(first: u64) -> Frames {
        Frames { first, elsewhere: 1 << 36 }
    }

    /// Frames in the order in which regions are mapped: `first` is the first that none has, below
    /// [`Frames::MOST_PAGES`].
    pub(crate) fn in_order(first: u64) -> Frames {
        Frames { first, elsewhere: Frames::MOST_PAGES }
    }

    /// The frame of the hole at this place: far from those of its neighbours.
    fn of_hole(self, place: u64) -> u64 {
        let (frame, low) = (self.first + place, (1 << 20) - 1);
        self.elsewhere + (frame & !low) + ((frame * APART) & low)
    }
}

/// An odd number of 20 bits: times it, modulo 2^20, neighbours are far apart and no two numbers
/// become one.
const APART: u64 = 0x9_e377;

impl Layout {
    /// Whether the region with this number cannot be one superpage.
    pub(crate) fn is_broken(&self, region: u64) -> bool {
        match self.made {
            Made::Base => true,
            Made::Superpage => false,
            Made::Mixed => {
                // The place of the region in an order of its group that is drawn, and a draw of its
                // own within that place.
                let draw = |region: u64| Random::at(self.seed, region).next();
                let (first, own) = (region / GROUP * GROUP, draw(region));
                let before = (first..first + GROUP).filter(|other| draw(*other) < own).count() as f64;
                let within = Random::new(own).fraction();
                (before + within) / (GROUP as f64) < f64::from(self.share) / 100.0
            }
        }
    }

    /// Which pages of this region, one that is not plain, are holes.
    pub(crate) fn holes(&self, region: u64, pages: u64) -> Vec<bool> {
        let count = if self.made == Made::Mixed { pages * u64::from(self.holes) / 100 } else { 0 };
        let mut random = Random::new(Random::at(!self.seed, region).next());
        let mut order: Vec<u64> = (0..pages).collect();
        match self.placed {
            // The first pages of a shuffle.
            Placed::Dispersed => {
                (0..count).for_each(|i| order.swap(i as usize, (i + random.below(pages - i)) as usize))
            }
            Placed::Gathered => order.rotate_left(random.below(pages - count + 1) as usize),
        }
        let mut holes = vec![false; pages as usize];
        order[..count as usize].iter().for_each(|page| holes[*page as usize] = true);
        holes
    }

    /// Maps the region with this number of a space to these frames.
    pub(crate) fn map(&self, sizes: Sizes, mmu: &mut Mmu, (space, region): (u32, u64), frames: Frames) {
        let first = region * sizes.pages;
        let mut enter = |at: u64, frame: u64, size: PageSize| {
            mmu.enter(space, Vpn(at), Mapped { frame: Pfn(frame), size, protection: Protection::ALL }, Access::Read);
        };
        if !self.is_broken(region) {
            return enter(first, frames.first, sizes.superpage);
        }
        let holes = self.holes(region, sizes.pages);
        let those = |hole: bool| (0..sizes.pages).filter(move |place| holes[*place as usize] == hole);
        for place in those.clone()(false) {
            enter(first + place, frames.first + place, sizes.base);
        }
        for place in those(true) {
            enter(first + place, frames.of_hole(place), sizes.base);
        }
    }
}

/// The sizes of the pages of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    pub(crate) base: PageSize,
    pub(crate) superpage: PageSize,
    /// The base pages of a superpage.
    pub(crate) pages: u64,
}

impl Sizes {
    /// The base page, and the page that a table of the lowest level maps; `None` if the machine has
    /// none of that size.
    pub(crate) fn of(machine: &Machine) -> Option<Sizes> {
        let (base, order) = (machine.ladder().base(), *machine.page_table.bits.first()?);
        let shift = base.shift() + u32::from(order);
        let superpage = machine.pages.sizes.iter().copied().find(|size| size.shift() == shift)?;
        Some(Sizes { base, superpage, pages: 1 << order })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: Layout = Layout { made: Made::Mixed, share: 50, holes: 25, placed: Placed::Gathered, seed: 1 };

    #[test]
    fn of_each_four_regions_the_share_is_broken_and_more_with_a_larger_share() {
        for share in [0, 25, 50, 75, 100] {
            let layout = Layout { share, ..MIXED };
            for group in 0..100 {
                let broken = (4 * group..4 * group + 4).filter(|region| layout.is_broken(*region)).count();
                assert_eq!(broken, share as usize / 25);
            }
        }
        let less = Layout { share: 30, ..MIXED };
        assert!((0..1000).all(|region| !less.is_broken(region) || MIXED.is_broken(region)));
        let count = (0..1000).filter(|region| less.is_broken(*region)).count();
        assert!((280..320).contains(&count), "{count}");
    }

    #[test]
    fn holes_are_as_many_as_asked_for_and_in_one_run_or_not() {
        for holes in [0, 10, 25, 50] {
            for (placed, region) in [Placed::Gathered, Placed::Dispersed].into_iter().zip([3, 4]) {
                let found = Layout { holes, placed, ..MIXED }.holes(region, 512);
                assert_eq!(found.iter().filter(|hole| **hole).count(), 512 * holes as usize / 100);
                let runs = found.windows(2).filter(|pair| !pair[0] && pair[1]).count() + usize::from(found[0]);
                assert!(if placed == Placed::Gathered { runs <= 1 } else { holes == 0 || runs > 20 }, "{runs}");
            }
        }
    }

    #[test]
    fn holes_have_frames_of_their_own_that_are_not_contiguous() {
        let frames: Vec<u64> = (0..1 << 21).map(|page| Frames::by_page(page).of_hole(0)).collect();
        assert!(frames.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1000));
        let mut sorted = frames;
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 1 << 21);
    }
}
