//! TLB misses counted by region of the address space, and by mapping.

use crate::{Error, Hot, Progress, Row, Setup, Watch, run_parts};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use superpage_pages::{PageRange, PageSize, Vpn};
use superpage_trace::Source;

/// The TLB misses of a mapping, the last one that was made there. What several processes have at an
/// address is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingMisses {
    /// Its addresses; empty if what missed was in none.
    pub mapping: Range<u64>,
    /// Its misses.
    pub misses: u64,
    /// How many of its base pages missed.
    pub pages: u64,
}

/// Runs a setup and counts the misses of each mapping, those with most first. Takes some 50 bytes
/// for each base page that misses.
///
/// # Errors
/// As for [`run_parts`], or the stream is sampled ([`Error::Usage`]).
pub fn misses(
    setup: &Setup,
    source: &mut dyn Source,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
    watch: &Watch,
) -> Result<(Row, Vec<MappingMisses>), Error> {
    if source.info().sampling.is_some() {
        let name = &source.info().workload;
        return Err(Error::Usage(format!("{name} is sampled, and all accesses count: record it without --sample")));
    }
    let counted = Setup { miss_region: Some(1), ..setup.clone() };
    let run = run_parts(std::slice::from_ref(&counted), source, stop, progress, watch)?.remove(0);
    let mut mappings: BTreeMap<(u64, u64), MappingMisses> = BTreeMap::new();
    for Hot { misses, mapping, .. } in run.misses.iter().flat_map(|misses| misses.hot(setup.ladder.base())) {
        let key = (mapping.start, mapping.end);
        let of = mappings.entry(key).or_insert(MappingMisses { mapping, misses: 0, pages: 0 });
        (of.misses, of.pages) = (of.misses + misses, of.pages + 1);
    }
    let mut all: Vec<MappingMisses> = mappings.into_values().collect();
    all.sort_by_key(|of| std::cmp::Reverse(of.misses));
    Ok((run.row, all))
}

/// The misses of a simulation by region, and what was mapped there. What several processes have at
/// an address is one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MissesByRegion {
    /// Base pages of a region.
    pages: u64,
    /// Misses by the number of the region.
    misses: BTreeMap<u64, u64>,
    /// Mappings by their first page, with their ends, the last one made at a page.
    mappings: BTreeMap<u64, u64>,
}

impl MissesByRegion {
    /// None yet, by regions of `pages` base pages.
    pub(crate) fn new(pages: u64) -> MissesByRegion {
        MissesByRegion { pages, misses: BTreeMap::new(), mappings: BTreeMap::new() }
    }

    /// A request missed that is for a mapped page.
    pub(crate) fn missed(&mut self, page: Vpn) {
        *self.misses.entry(page.0 / self.pages).or_default() += 1;
    }

    /// A range was mapped.
    pub(crate) fn mapped(&mut self, PageRange { start, pages }: PageRange) {
        self.mappings.insert(start.0, start.0 + pages);
    }

    /// The regions that missed, those with most misses first.
    pub(crate) fn hot(&self, base: PageSize) -> Vec<Hot> {
        let hot = |(region, misses): (&u64, &u64)| {
            let first = region * self.pages;
            let holds = self.mappings.range(..first + self.pages).rev().find(|(_, end)| **end > first);
            let mapping = holds.map_or(0..0, |(start, end)| start * base.bytes()..end * base.bytes());
            Hot { address: first * base.bytes(), misses: *misses, mapping }
        };
        let mut all: Vec<Hot> = self.misses.iter().map(hot).collect();
        all.sort_by_key(|hot| (std::cmp::Reverse(hot.misses), hot.address));
        all
    }
}
