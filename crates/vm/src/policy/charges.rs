//! Misses in the TLBs counted by region, for policies that promote once there were enough.

use super::promote::parameter;
use crate::{Parameter, SpaceId, Values};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use superpage_pages::{Ladder, Level, PageRange};

/// What counting costs the program: three times the refill of the machine `alpha-21264`, so that a
/// miss is four times as dear (Romer et al., as cited by Navarro et al., OSDI 2002, section 3.2).
/// That refill is assumed.
pub(super) const HANDLER: Parameter =
    parameter("handler", Values::Count(0, 1 << 20), "120", "cycles that counting adds to each miss");

/// A region: its space, level and number.
pub(super) type Region = (SpaceId, Level, u64);

/// The misses of each region, and the regions that had enough.
#[derive(Debug, Default)]
pub(super) struct Charges {
    /// Below the price of the region's level, and not 0.
    charges: BTreeMap<Region, u64>,
    pub(super) ready: BTreeSet<Region>,
}

impl Charges {
    /// Charges a region with a miss. It is ready once it had as many as the price, and begins at 0
    /// again.
    pub(super) fn charge(&mut self, region: Region, price: u64) {
        let charge = self.charges.entry(region).or_default();
        *charge += 1;
        if *charge >= price {
            self.charges.remove(&region);
            self.ready.insert(region);
        }
    }

    /// Takes the regions that are ready, by space, the largest first, so that its parts are not
    /// copied before.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Region> + use<> {
        core::mem::take(&mut self.ready).into_iter().rev()
    }

    /// These pages were unmapped. A superpage lies in one mapping, so no region with one of them
    /// can become one.
    pub(super) fn unmapped(&mut self, ladder: &Ladder, space: SpaceId, range: PageRange) {
        for level in ladder.levels().skip(1) {
            let (pages, end) = (ladder.pages(level), range.start.0.saturating_add(range.pages));
            let regions = (space, level, range.start.0 / pages)..(space, level, end.div_ceil(pages));
            let regions: Vec<Region> = self.charges.range(regions).map(|(region, _)| *region).collect();
            regions.iter().for_each(|region| _ = self.charges.remove(region));
        }
    }

    /// The space has ended.
    pub(super) fn gone(&mut self, space: SpaceId) {
        self.charges.retain(|region, _| region.0 != space);
        self.ready.retain(|region| region.0 != space);
    }

    /// Checks the charges against the prices by level.
    pub(super) fn validate(&self, prices: &[u64]) -> Result<(), String> {
        let price = |level: Level| prices.get(level.index()).copied().unwrap_or(0);
        let wrong = self.charges.iter().find(|((_, level, _), charge)| !(1..price(*level)).contains(*charge));
        wrong.map_or(Ok(()), |(region, charge)| Err(format!("{region:?} is charged with {charge} misses")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_pages::Vpn;

    #[test]
    fn a_region_begins_at_0_when_it_is_ready_unmapped_or_gone() {
        let ladder = Ladder::new(&["4K", "64K", "2M"].map(|size| size.parse().unwrap())).unwrap();
        let mut charges = Charges::default();
        let (a, b) = (SpaceId(1), SpaceId(2));
        for region in [(a, Level(1), 7), (a, Level(2), 0), (b, Level(1), 7), (a, Level(1), 7), (a, Level(1), 8)] {
            charges.charge(region, 2 * u64::from(region.1.0));
        }
        assert_eq!(charges.take().collect::<Vec<_>>(), [(a, Level(1), 7)]);
        charges.validate(&[0, 2, 4]).unwrap();
        assert!(charges.validate(&[0, 1, 4]).is_err());
        // The last page of one region, and the first of the next.
        charges.unmapped(&ladder, a, Vpn(7 * 16 + 15).pages(2));
        assert_eq!(charges.charges.keys().collect::<Vec<_>>(), [&(b, Level(1), 7)]);
        charges.ready.insert((b, Level(2), 1));
        charges.gone(b);
        assert!(charges.charges.is_empty() && charges.ready.is_empty());
    }

    #[test]
    fn the_largest_ready_region_comes_first() {
        let mut charges = Charges::default();
        [(1, 5), (2, 0), (1, 6)]
            .iter()
            .for_each(|(level, region)| charges.charge((SpaceId(3), Level(*level), *region), 1));
        assert_eq!(charges.take().map(|region| region.1.0).collect::<Vec<_>>(), [2, 1, 1]);
    }
}
