//! A radix tree whose superpages may have holes. Park et al., Perforated page: supporting
//! fragmented memory allocation for large pages, ISCA 2020.
//!
//! A perforated page is an entry of the second level, with a filter that has a bit for each eighth.
//! If the bit is set, the walk reads the line of the hole bitmap; bitmaps, one for each aligned
//! extent of frames, lie in a separate area. For a hole the walk goes on: the *shadow* entry, a
//! table's size behind the entry, points to a table of the lowest level, which has the hole's
//! entry. Walk caches hold shadow entries like others. So a walk to a page that is no hole is as
//! long as to a superpage, or one reference longer; a walk to a hole is two longer than to a base
//! page. TLBs may hold the entry, or a part of the bitmap, so that the walk reads less
//! ([`crate::tlb::reach`]).
//!
//! Tables of the second level take the room of two. The table of the lowest level is always there:
//! holes may be mapped at any time.

use super::radix::{Climb, Radix};
use super::{BITMAPS, SHADOWS, TableFormat, Walks};
use crate::counters::Counters;
use crate::machine::Machine;
use crate::machine::{MAX_WALK_LEVELS, perforated_size};
use crate::mappings::{MOST_PAGES, Mappings, Pointer, Region, Shape, SpacePage};
use crate::tlb::batch::Batch;
use crate::tlb::reach::PartialHits;
use crate::tlb::uses::{BATCH, each};
use crate::walk::lines::Reads;
use crate::walk::walk_caches::WalkCaches;
use superpage_pages::Ladder;

/// Walks as in a tree, and on from the entry of a perforated page.
#[derive(Clone, Debug)]
pub(crate) struct Perforated(Radix);

/// A walk into a perforated page.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    region: &'a Region,
    /// The page-table entry of the base page, or its absent one.
    entry: u32,
    /// Its index in the region.
    index: u32,
    /// Whether a TLB has the region's own entry.
    pub(super) region_hit: bool,
    /// Whether a TLB has the fragment of the bitmap.
    fragment_hit: bool,
}

impl TableFormat for Perforated {
    fn refuses(bits: &[u8], ladder: &Ladder) -> Option<String> {
        let least = 5..=MOST_PAGES.ilog2();
        if perforated_size(ladder, bits[0].into()).is_none() || !least.contains(&u32::from(bits[0])) {
            return Some(format!(
                "perforated pages are what a table of the lowest level maps: expected one of {} to {MOST_PAGES} entries, \
                 and a page of that size among {ladder}",
                1 << least.start()
            ));
        }
        Radix::refuses(bits, ladder)
    }

    fn shape(machine: &Machine) -> Shape {
        let mut shape = Radix::shape(machine);
        let pages = 1u32 << machine.page_table.bits[0];
        let holes = machine.perforated.as_ref().map_or(0, |perforated| pages * perforated.most_holes_percent / 100);
        shape.least_mapped = pages - holes;
        shape.bytes[1] *= 2;
        shape
    }

    fn new(machine: &Machine, shape: &Shape) -> Perforated {
        Perforated(Radix::new(machine, shape))
    }

    fn walk(&mut self, mappings: &Mappings, batch: &Batch, walks: Walks, mut reads: Reads<'_>) {
        for index in each(walks.requests) {
            let one = reads.reborrow();
            match Target::of(mappings, batch, index, walks.partial) {
                None => self.0.walk(mappings, batch, walks.only(index), one),
                Some(target) => self.walk_into(mappings, target, one),
            }
        }
    }

    fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, partial: PartialHits, reads: Reads<'_>) {
        match Target::absent(mappings, page, partial) {
            None => self.0.walk_absent(mappings, page, partial, reads),
            Some(target) => self.walk_into(mappings, target, reads),
        }
    }

    fn drop_pointer(&mut self, pointer: Pointer) {
        self.0.drop_pointer(pointer);
    }

    fn caches(&mut self) -> Option<&mut WalkCaches> {
        Some(&mut self.0.caches)
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.0.validate(mappings)
    }
}

impl Perforated {
    /// Walks to a page of a region, or to its absent entry.
    fn walk_into(&mut self, mappings: &Mappings, target: Target<'_>, mut reads: Reads<'_>) {
        if !target.region_hit {
            let (mut entries, mut levels) = ([0; BATCH], [0; MAX_WALK_LEVELS]);
            (entries[0], levels[1]) = (target.above(mappings), 1);
            let climb = Climb { entries: &entries, levels, pointer_hits: 0, absent: 0 };
            self.0.climb(mappings, climb, reads.reborrow());
        }
        let Reads { lines, counters, .. } = reads;
        let mut count = 0;
        for id in target.further(mappings, &mut self.0, counters).into_iter().flatten() {
            lines.want(count, id);
            count += 1;
        }
        lines.read(count, counters);
    }
}

impl<'a> Target<'a> {
    /// The walk of a request of a batch, if it is into a region: to a base page, or to a hole that
    /// is part of a larger page of the lowest table.
    pub(super) fn of(
        mappings: &'a Mappings,
        batch: &Batch,
        request: usize,
        partial: PartialHits,
    ) -> Option<Target<'a>> {
        let entry = batch.entries[request];
        let (region, index) = mappings.region(entry)?;
        let (region_hit, fragment_hit) = (partial.regions >> request & 1 != 0, partial.fragments >> request & 1 != 0);
        Some(Target { region, entry, index, region_hit, fragment_hit })
    }

    /// The walk to an absent page, if it is in a region.
    pub(super) fn absent(mappings: &'a Mappings, page: SpacePage, partial: PartialHits) -> Option<Target<'a>> {
        let entry = mappings.find(page.space, page.page, 1).filter(|found| found.level == 1)?.id;
        let (region, index) = mappings.region(entry)?;
        let (region_hit, fragment_hit) = (partial.regions & 1 != 0, partial.fragments & 1 != 0);
        Some(Target { region, entry, index, region_hit, fragment_hit })
    }

    /// The entry of the region.
    pub(super) fn above(&self, mappings: &Mappings) -> u32 {
        mappings.parents[(self.entry >> mappings.nodes.bits()) as usize]
    }

    /// The frame that the page has if it is no hole.
    pub(super) fn frame(&self) -> u64 {
        self.region.frame() + u64::from(self.index)
    }

    pub(super) fn is_hole(&self) -> bool {
        self.region.is_hole(self.index)
    }

    /// The entries that the walk reads behind the region's: of the bitmap, the shadow entry if no
    /// walk cache has it, and the hole's.
    pub(super) fn further(&self, mappings: &Mappings, radix: &mut Radix, counters: &mut Counters) -> [Option<u32>; 3] {
        let reads_bitmap = self.region.may_be_hole(self.index) && !self.fragment_hit;
        let bitmap = reads_bitmap.then(|| BITMAPS | ((self.frame() / 64) as u32 & !BITMAPS));
        if !self.is_hole() {
            return [bitmap, None, None];
        }
        let table = self.entry >> mappings.nodes.bits();
        let cached = radix.caches.hits(1, table);
        counters.walk_cache_hits[1] += u64::from(cached);
        [bitmap, (!cached).then(|| SHADOWS | self.above(mappings)), Some(self.entry)]
    }
}
