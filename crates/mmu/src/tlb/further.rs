//! The further TLB levels behind a first level, and the walkers of all machines that have them.

use crate::counters::Counters;
use crate::machine::Machine;
use crate::mappings::{Mapping, Mappings, Pointer, Shape, SpacePage, Stale};
use crate::tlb::batch::Batch;
use crate::tlb::noted::Noted;
use crate::tlb::{Served, Tlbs};
use crate::walk::{ProgramLines, Walker};
use std::ops::Range;
use superpage_pages::Vpn;

/// The TLBs of further levels, and a walker for each machine that has them.
#[derive(Clone, Debug)]
pub(crate) struct FurtherLevels {
    pub(crate) tlbs: Tlbs,
    /// The counts that these machines have in common: hits, walks, and entries dropped by
    /// shootdowns.
    pub(crate) counters: Counters,
    pub(crate) walkers: Vec<Walker>,
    /// Mappings that were walked for, if they are noted.
    pub(crate) noted: Option<Noted>,
}

impl FurtherLevels {
    /// These levels, empty, with no machine.
    pub(crate) fn new(tlbs: Tlbs) -> FurtherLevels {
        FurtherLevels { tlbs, counters: Counters::default(), walkers: Vec::new(), noted: None }
    }

    /// Adds a machine with these TLBs; returns the index of its walker.
    pub(crate) fn add(&mut self, machine: &Machine, shape: &Shape) -> usize {
        self.walkers.push(Walker::new(machine, shape));
        self.walkers.len() - 1
    }

    /// Takes a batch of requests that missed in the first level through all others, and walks for
    /// those that miss in all.
    #[inline(always)]
    pub(crate) fn translate(&mut self, mappings: &Mappings, batch: &Batch) {
        let mut served = self.tlbs.translate(mappings, batch);
        self.count(batch, &served);
        served.missed &= !batch.uncounted;
        if served.missed != 0 {
            self.noted.iter_mut().for_each(|noted| noted.note(batch, served.missed));
            self.walkers.iter_mut().for_each(|walker| walker.walk(mappings, batch, &served));
        }
    }

    /// As [`FurtherLevels::translate`], with lines ([`Walker::walk_lines`]).
    #[inline(never)]
    pub(crate) fn translate_lines(&mut self, mappings: &Mappings, batch: &Batch, data: &ProgramLines) {
        let served = self.tlbs.translate(mappings, batch);
        self.count(batch, &served);
        self.walkers.iter_mut().for_each(|walker| walker.walk_lines(mappings, batch, &served, data));
    }

    /// Counts where the requests of a batch were served.
    #[inline(always)]
    pub(crate) fn count(&mut self, batch: &Batch, served: &Served) {
        for group in batch.groups() {
            let (access, requests) = (group.access(), group.requests & !batch.uncounted);
            self.counters.walks[access] += (requests & served.missed).count_ones() as u64;
            for (counts, hits) in self.counters.lower_hits.iter_mut().zip(served.hits).take(self.tlbs.levels()).skip(1)
            {
                counts[access] += (requests & hits).count_ones() as u64;
            }
        }
    }

    /// Fills the TLBs for a batch of one request, uncounted.
    pub(crate) fn load(&mut self, mappings: &Mappings, batch: &Batch) {
        self.tlbs.translate(mappings, batch);
    }

    /// Counts a walk to an absent page, whose root exists.
    pub(crate) fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, access: usize) {
        let partial = self.tlbs.partial_hits(mappings, page, access);
        self.walkers.iter_mut().for_each(|walker| walker.walk_absent(mappings, page, partial, access));
    }

    /// Drops a mapping that changes.
    pub(crate) fn drop_leaf(&mut self, mapping: Mapping) {
        self.counters.shootdown_entries += self.tlbs.drop_leaf(mapping);
        self.walkers.iter_mut().for_each(|walker| walker.drop_leaf(mapping));
    }

    /// Drops ranges that have one of these pages, which change.
    pub(crate) fn forget_ranges(&mut self, space: u32, pages: &Range<u64>) {
        self.counters.shootdown_entries += self.tlbs.forget_ranges(space, pages);
    }

    /// Drops the stale parts of a perforated page. If they are fragments alone, the fault that
    /// fills a hole drops them, not a shootdown.
    pub(crate) fn drop_region(&mut self, first_id: u32, first: Vpn, stale: Stale) {
        let dropped = self.tlbs.drop_region(first_id, first, stale);
        self.counters.shootdown_entries += if stale.whole { dropped } else { 0 };
    }

    /// Drops a pointer to a table that is removed.
    pub(crate) fn drop_pointer(&mut self, pointer: Pointer) {
        self.tlbs.drop_pointer(pointer);
        self.walkers.iter_mut().for_each(|walker| walker.drop_pointer(pointer));
    }

    /// Switches to another space.
    pub(crate) fn switch(&mut self, mappings: &Mappings, space: u32) {
        self.tlbs.switch(mappings, space);
    }

    /// Empties TLBs and walk caches.
    pub(crate) fn flush(&mut self) {
        self.tlbs.flush();
        self.walkers.iter_mut().for_each(Walker::flush);
    }

    /// Empties TLBs and walk caches, and drops all that is held of the host's tables.
    pub(crate) fn flush_host(&mut self) {
        self.tlbs.flush();
        self.walkers.iter_mut().for_each(Walker::flush_host);
    }

    pub(crate) fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.tlbs.validate(mappings)?;
        self.walkers.iter().try_for_each(|walker| walker.validate(mappings))
    }
}
