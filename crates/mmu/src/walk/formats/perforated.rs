//! A radix tree whose superpages may have holes. Park et al., Perforated page: supporting
//! fragmented memory allocation for large pages, ISCA 2020.
//!
//! A perforated page is an entry of the second level, with a filter that has a bit for each eighth.
//! Where that is set, the walk reads the line of the hole bitmap, one for each aligned extent of
//! frames, in an area of its own. For a hole it goes on: the *shadow* entry, a table's size behind
//! the entry, points to a table of the lowest level, which has the hole's own entry. Walk caches
//! hold shadow entries like others. So a walk to a page of it is as long as to a superpage, or one
//! reference longer; one to a hole is two longer than to a base page. TLBs may know the entry, or a
//! part of the bitmap, so that less is read ([`crate::tlb::reach`]).
//!
//! Tables of the second level take the room of two. The table of the lowest level is always there:
//! holes may be mapped at any time.

use super::radix::Radix;
use super::{BITMAPS, SHADOWS, TableFormat};
use crate::counters::Counters;
use crate::machine::Machine;
use crate::machine::{MAX_WALK_LEVELS, perforated_size};
use crate::mappings::pte::Pte;
use crate::mappings::{MOST_PAGES, Mappings, Region, Shape};
use crate::tlb::batch::{BATCH, Batch, each};
use crate::tlb::reach::Known;
use crate::walk::lines::Reads;
use superpage_pages::{Ladder, Vpn};

/// Walks are those of a tree, and on from an entry that is perforated.
#[derive(Clone, Debug)]
pub(crate) struct Perforated(Radix);

/// A walk into a perforated page.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    region: &'a Region,
    /// The page-table entry of the base page, or its absent one.
    entry: u32,
    /// Its place in the region.
    place: u32,
    /// Whether a TLB has the region's own entry.
    pub(super) region_known: bool,
    /// The same of the fragment of the bitmap.
    fragment_known: bool,
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

    fn walk(&mut self, mappings: &Mappings, batch: &Batch, (walks, known): (u64, Known), mut reads: Reads<'_>) {
        for index in each(walks) {
            let one = reads.part();
            match Target::of(mappings, batch, index, known) {
                None => self.0.walk(mappings, batch, (1 << index, known), one),
                Some(target) => self.walk_into(mappings, target, one),
            }
        }
    }

    fn walk_absent(&mut self, mappings: &Mappings, page: (u32, Vpn), known: Known, reads: Reads<'_>) {
        match Target::absent(mappings, page, known) {
            None => self.0.walk_absent(mappings, page, known, reads),
            Some(target) => self.walk_into(mappings, target, reads),
        }
    }

    fn forget(&mut self, level: usize, pte: Pte) {
        self.0.forget(level, pte);
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
        if !target.region_known {
            let (mut entries, mut levels) = ([0; BATCH], [0; MAX_WALK_LEVELS]);
            (entries[0], levels[1]) = (target.above(mappings), 1);
            self.0.climb(mappings, &entries, (levels, 0, 0), reads.part());
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
    /// That of a request of a batch, if it is for a base page of a region.
    pub(super) fn of(mappings: &'a Mappings, batch: &Batch, index: usize, known: Known) -> Option<Target<'a>> {
        let entry = batch.entries[index];
        let (region, place) = mappings.region(entry).filter(|_| batch.is_base(index))?;
        let (region_known, fragment_known) = (known.regions >> index & 1 != 0, known.fragments >> index & 1 != 0);
        Some(Target { region, entry, place, region_known, fragment_known })
    }

    /// That of a page that is absent, if it is in a region.
    pub(super) fn absent(mappings: &'a Mappings, (space, page): (u32, Vpn), known: Known) -> Option<Target<'a>> {
        let entry = mappings.find(space, page, 1).filter(|found| found.level == 1)?.id;
        let (region, place) = mappings.region(entry)?;
        let (region_known, fragment_known) = (known.regions & 1 != 0, known.fragments & 1 != 0);
        Some(Target { region, entry, place, region_known, fragment_known })
    }

    /// The entry of the region.
    pub(super) fn above(&self, mappings: &Mappings) -> u32 {
        mappings.parents[(self.entry >> mappings.nodes.bits()) as usize]
    }

    /// The frame that the page has if it is no hole.
    pub(super) fn frame(&self) -> u64 {
        self.region.frame() + u64::from(self.place)
    }

    pub(super) fn is_hole(&self) -> bool {
        self.region.is_hole(self.place)
    }

    /// What the walk reads behind the entry of the region: the bitmap, the shadow entry if no walk
    /// cache has it, and a hole's own entry.
    pub(super) fn further(&self, mappings: &Mappings, radix: &mut Radix, counters: &mut Counters) -> [Option<u32>; 3] {
        let reads_bitmap = self.region.may_be_hole(self.place) && !self.fragment_known;
        let bitmap = reads_bitmap.then(|| BITMAPS | ((self.frame() / 64) as u32 & !BITMAPS));
        if !self.is_hole() {
            return [bitmap, None, None];
        }
        let table = self.entry >> mappings.nodes.bits();
        let cached = radix.caches[1].as_mut().is_some_and(|cache| cache.access(1, |_| (0, table)) == 0);
        counters.walk_cache_hits[1] += u64::from(cached);
        [bitmap, (!cached).then(|| SHADOWS | self.above(mappings)), Some(self.entry)]
    }
}
