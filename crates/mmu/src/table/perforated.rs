//! A radix tree whose superpages may have holes. Park et al., Perforated page: supporting fragmented memory allocation for large
//! pages, ISCA 2020.
//!
//! A perforated page is an entry of the second level, with a filter that has a bit for each eighth. Where that is set, the walk reads the line of
//! the hole bitmap, one for each aligned extent of frames, in an area of its own. For a hole it goes on: the *shadow* entry, a table's
//! size behind the entry, points to a table of the lowest level, which has the hole's own entry. Walk caches hold shadow
//! entries like others. So a walk to a page of it is as long as to a superpage, or one reference longer; one to a hole
//! is two longer than to a base page. TLBs may know the entry, or a part of the bitmap, so that less is read
//! ([`crate::reach`]).
//!
//! Tables of the second level take the room of two. The table of the lowest level is always there: holes may be mapped at any
//! time.

use super::TableFormat;
use super::radix::Radix;
use crate::batch::{BATCH, Batch, each};
use crate::counters::MAX_WALK_LEVELS;
use crate::lines::Reads;
use crate::machine::Machine;
use crate::mappings::{MOST_PAGES, Mappings, Region, Shape, perforated_size};
use crate::reach::Known;
use crate::record::Record;
use superpage_pages::{Ladder, Vpn};

/// Where the shadow entries are among the entries of page tables, and where the bitmaps, which take the other half.
const SHADOWS: u32 = 1 << 30;
const BITMAPS: u32 = 1 << 31;

/// Walks are those of a tree, and on from an entry that is perforated.
#[derive(Clone, Debug)]
pub(crate) struct Perforated(Radix);

/// A walk into a perforated page: the page-table entry of the base page, its place in the region, and what is known.
#[derive(Clone, Copy)]
struct Target {
    entry: u32,
    place: u32,
    region_known: bool,
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

    fn walk(&mut self, mappings: &Mappings, batch: &Batch, (walks, known): (u64, Known), reads: Reads<'_>) {
        for index in each(walks) {
            let one = Reads { lines: &mut *reads.lines, counters: &mut *reads.counters };
            match mappings.region(batch.entries[index]).filter(|_| batch.is_base(index)) {
                None => self.0.walk(mappings, batch, (1 << index, known), one),
                Some((region, place)) => {
                    let (region_known, fragment_known) =
                        (known.regions >> index & 1 != 0, known.fragments >> index & 1 != 0);
                    let target = Target { entry: batch.entries[index], place, region_known, fragment_known };
                    self.walk_into(mappings, region, target, one);
                }
            }
        }
    }

    fn walk_absent(&mut self, mappings: &Mappings, page: (u32, Vpn), known: Known, reads: Reads<'_>) {
        let found = mappings.find(page.0, page.1, 1).filter(|found| found.level == 1);
        match found.and_then(|found| Some((found.id, mappings.region(found.id)?))) {
            None => self.0.walk_absent(mappings, page, known, reads),
            Some((entry, (region, place))) => {
                let (region_known, fragment_known) = (known.regions & 1 != 0, known.fragments & 1 != 0);
                let target = Target { entry, place, region_known, fragment_known };
                self.walk_into(mappings, region, target, reads);
            }
        }
    }

    fn forget(&mut self, level: usize, record: Record) {
        self.0.forget(level, record);
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
    fn walk_into(&mut self, mappings: &Mappings, region: &Region, target: Target, reads: Reads<'_>) {
        let Reads { lines, counters } = reads;
        let Target { entry, place, region_known, fragment_known } = target;
        let table = entry >> mappings.nodes.bits();
        let above = mappings.parents[table as usize];
        if !region_known {
            let (mut entries, mut levels) = ([0; BATCH], [0; MAX_WALK_LEVELS]);
            (entries[0], levels[1]) = (above, 1);
            let reads = Reads { lines: &mut *lines, counters: &mut *counters };
            self.0.climb(mappings, &entries, levels, reads);
        }
        let mut count = 0;
        let mut want = |id: u32| {
            lines.want(count, id);
            count += 1;
        };
        if region.may_be_hole(place) && !fragment_known {
            want(bitmap(region, place));
        }
        if region.is_hole(place) {
            let cached = self.0.caches[1].as_mut().is_some_and(|cache| cache.access(1, |_| (0, table)) == 0);
            match cached {
                true => counters.walk_cache_hits[1] += 1,
                false => want(SHADOWS | above),
            }
            want(entry);
        }
        lines.read(count, counters);
    }
}

/// The place of the word of the bitmap that has this page's bit.
fn bitmap(region: &Region, place: u32) -> u32 {
    BITMAPS | (((region.frame() + u64::from(place)) / 64) as u32 & (BITMAPS - 1))
}
