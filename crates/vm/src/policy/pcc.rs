//! The promotion candidate cache of Manocha et al. (MICRO 2023): hardware counts page walks of
//! regions of 2 MB (the largest size up to that) in a small cache; every `interval` the operating
//! system promotes those with the most.
//!
//! Only the abstract was at hand: the cache, and that the most frequent are promoted in each
//! interval. Assumed: all `entries`, `interval`, `most` (khugepaged's eight regions) and `bits`; a
//! full cache drops the entry with the fewest walks, of these the one walked least recently; when a
//! counter is at its largest value all are halved; a region leaves the cache when it is promoted or
//! cannot be, the others keep their counts. Counting costs the program nothing.
//!
//! Not modelled: a cache for each core, one for 1 GB, demotion, compaction for an extent where none
//! is free.

use super::promote::{MS, huge, parameter};
use crate::{
    Answers, Background, Candidate, Definition, Events, How, Made, Need, Sample, SpaceId, System, Time, Values, Why,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use superpage_pages::{Level, Vpn};

pub(super) static POLICY: Definition = Definition {
    name: "pcc",
    paper: "Manocha et al., Architectural support for optimizing huge page selection within the OS, MICRO 2023",
    help: "base pages, and superpages of the regions that a small cache has seen the most page walks of",
    parameters: &[
        parameter("entries", Values::Count(1, 1 << 16), "128", "regions that the cache counts"),
        parameter("bits", Values::Count(1, 32), "8", "of a counter"),
        parameter("interval", Values::TimeFrom(MS), "1s", "between two promotions"),
        parameter("most", Values::Count(1, 1 << 16), "8", "regions promoted in an interval"),
    ],
    needs: &[Need::Misses, Need::Copying],
    make: |given| {
        let number = |name| given.number(name).expect("it has a default");
        let (entries, most, largest) = (number("entries") as usize, number("most") as usize, (1 << number("bits")) - 1);
        let interval = given.time("interval").as_nanos() as Time;
        Made::with(Answers::BASE, Pcc { entries, most, largest, interval, ..Pcc::default() })
    },
};

#[derive(Debug, Default)]
struct Pcc {
    entries: usize,
    most: usize,
    largest: u64,
    interval: Time,
    next: Time,
    /// The size that is counted, and its base pages. Not known before the first call.
    level: Option<(Level, u64)>,
    /// By region: its walks, and the number of the last one.
    cache: BTreeMap<(SpaceId, u64), (u64, u64)>,
    walks: u64,
}

impl Background for Pcc {
    fn next(&self) -> Option<Time> {
        Some(self.next)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        self.next = now.saturating_add(self.interval);
        let level = huge(system.ladder());
        self.level = Some((level, system.ladder().pages(level)));
        let mut regions: Vec<(SpaceId, u64)> = self.cache.keys().copied().collect();
        regions.sort_by_key(|region| Reverse(self.cache[region]));
        for (space, region) in regions.into_iter().take(self.most) {
            let sample = Sample { region, populated: 1, superpage: false };
            match system.promote(space, level, &[Candidate::from(sample)], How::Either).remove(0) {
                Err(refusal) if refusal.why == Why::NoExtent => break,
                _ => _ = self.cache.remove(&(space, region)),
            }
        }
    }

    fn events(&self) -> Events {
        Events { missed: true, gone: true, ..Events::default() }
    }

    fn missed(&mut self, space: SpaceId, at: Vpn, mapped: Level) {
        let Some((_, pages)) = self.level.filter(|(level, _)| mapped < *level) else { return };
        let region = (space, at.0 / pages);
        if self.cache.len() == self.entries && !self.cache.contains_key(&region) {
            let least = self.cache.iter().min_by_key(|(_, counted)| **counted).map(|(region, _)| *region);
            least.map(|least| self.cache.remove(&least));
        }
        self.walks += 1;
        let counted = self.cache.entry(region).or_default();
        *counted = (counted.0 + 1, self.walks);
        if counted.0 == self.largest {
            self.cache.values_mut().for_each(|counted| counted.0 /= 2);
        }
    }

    fn gone(&mut self, space: SpaceId) {
        self.cache.retain(|region, _| region.0 != space);
    }

    fn validate(&self) -> Result<(), String> {
        let fits = self.cache.len() <= self.entries && self.cache.values().all(|counted| counted.0 < self.largest);
        if fits { Ok(()) } else { Err(format!("more than {} entries, or a count of {}", self.entries, self.largest)) }
    }
}
