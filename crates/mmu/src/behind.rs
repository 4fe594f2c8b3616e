//! What is behind a first level of TLBs: further levels, the walker with its caches, and counters.

use crate::batch::{BATCH, Batch, each};
use crate::counters::Counters;
use crate::lines::{Lines, Reads};
use crate::machine::Machine;
use crate::mappings::{Mappings, Shape};
use crate::record::Record;
use crate::table::{Format, Groups, Reached, TableFormat, on_format};
use crate::tlb::{Served, Tlbs};
use std::ops::Range;
use superpage_pages::Vpn;

/// The lines that a batch of requests is for.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    /// By request.
    pub(crate) lines: [u32; BATCH],
    pub(crate) len: usize,
    /// Which of them are fetches.
    pub(crate) fetches: u64,
}

/// What one machine has behind its first level.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    pub(crate) tlbs: Tlbs,
    format: Format,
    lines: Lines,
    pub(crate) counters: Counters,
    /// The part of it that was counted by walks to absent pages.
    pub(crate) faulting: Counters,
}

impl Behind {
    /// That of this machine, empty; `tlbs` are those of further levels.
    pub(crate) fn new(machine: &Machine, tlbs: Tlbs, shape: &Shape) -> Behind {
        Behind {
            tlbs,
            format: Format::new(machine, shape),
            lines: Lines::new(machine),
            counters: Counters::default(),
            faulting: Counters::default(),
        }
    }

    /// Takes a batch of requests that missed in the first level through all others, and walks for those that miss in all.
    #[inline(always)]
    pub(crate) fn translate(&mut self, mappings: &Mappings, batch: &Batch) {
        let served = self.tlbs.translate(mappings, batch);
        self.count(batch, &served);
        if served.missed != 0 {
            let reads = Reads { lines: &mut self.lines, counters: &mut self.counters };
            on_format!(&mut self.format, format => format.walk(mappings, batch, (served.missed, served.known), reads));
        }
    }

    /// The same for a batch with lines: `data` are the program's accesses, of which those whose bits are set missed in the
    /// first level and are the requests of `batch`, in order.
    #[inline(never)]
    pub(crate) fn translate_lines(&mut self, mappings: &Mappings, batch: &Batch, missed: u64, data: &Data) {
        let served = self.tlbs.translate(mappings, batch);
        self.count(batch, &served);
        let mut done = 0;
        // The lines of a walk come right before the program's own.
        for (number, at) in each(missed).enumerate().filter(|(number, _)| served.missed >> number & 1 != 0) {
            self.lines.access(&data.lines[done..at], data.fetches >> done, &mut self.counters);
            done = at;
            let reads = Reads { lines: &mut self.lines, counters: &mut self.counters };
            on_format!(&mut self.format, format => format.walk(mappings, batch, (1 << number, served.known), reads));
        }
        self.lines.access(&data.lines[done..data.len], data.fetches >> done, &mut self.counters);
    }

    /// Whether loads and stores are preloaded from now on.
    pub(crate) fn preload(&mut self, preloading: bool) {
        self.lines.preloading = preloading;
    }

    /// The program's access to one line, whose page is in the TLBs.
    pub(crate) fn access_line(&mut self, line: u32, fetch: bool) {
        self.lines.access(&[line], u64::from(fetch), &mut self.counters);
    }

    /// Counts where the requests of a batch were served.
    #[inline(always)]
    fn count(&mut self, batch: &Batch, served: &Served) {
        for group in batch.groups() {
            let (access, requests) = (group.access(), group.requests);
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
    pub(crate) fn walk_absent(&mut self, mappings: &Mappings, page: (u32, Vpn), access: usize) {
        let known = self.tlbs.known(mappings, page, access);
        let mut walk = Counters::default();
        walk.references[access] += 1;
        walk.walks[access] += 1;
        let reads = Reads { lines: &mut self.lines, counters: &mut walk };
        on_format!(&mut self.format, format => format.walk_absent(mappings, page, known, reads));
        self.counters.add_walks(&walk);
        self.faulting.add_walks(&walk);
    }

    /// Drops a mapping that changes.
    pub(crate) fn forget(&mut self, head: u32, first: Vpn, record: Record) {
        self.counters.shootdown_entries += self.tlbs.forget(head, first, record);
    }

    /// Drops ranges that have one of these pages, which change.
    pub(crate) fn forget_ranges(&mut self, space: u32, pages: &Range<u64>) {
        self.counters.shootdown_entries += self.tlbs.forget_ranges(space, pages);
    }

    /// The hash table of groups and what its lines are read through, if there is one.
    pub(crate) fn groups(&mut self) -> Option<(&mut Groups, Reads<'_>)> {
        match &mut self.format {
            Format::Groups(groups) => Some((groups, Reads { lines: &mut self.lines, counters: &mut self.counters })),
            _ => None,
        }
    }

    /// The hash table of groups, if there is one.
    pub(crate) fn groups_held(&self) -> Option<&Groups> {
        match &self.format {
            Format::Groups(groups) => Some(groups),
            _ => None,
        }
    }

    /// Drops lines of the program from the caches.
    pub(crate) fn flush_lines(&mut self, lines: Range<u32>) {
        self.counters.remaps.flushed_lines += self.lines.flush(lines);
    }

    /// Drops a pointer to a table that is removed.
    pub(crate) fn forget_pointer(&mut self, level: usize, at: (u32, u64), record: Record) {
        self.tlbs.forget_pointer(at);
        on_format!(&mut self.format, format => format.forget(level, record));
    }

    /// This space is current now.
    pub(crate) fn switch(&mut self, mappings: &Mappings, space: u32) {
        self.tlbs.switch(mappings, space);
    }

    /// Empties TLBs and walk caches.
    pub(crate) fn flush(&mut self) {
        self.tlbs.flush();
        on_format!(&mut self.format, format => format.flush());
    }

    /// The same, and all that is held of the host's tables.
    pub(crate) fn flush_host(&mut self) {
        self.flush();
        if let Format::Nested(nested) = &mut self.format {
            nested.flush_host();
        }
    }

    /// What the walks since the last call have found in the host's tables.
    pub(crate) fn reached(&mut self) -> Reached {
        match &mut self.format {
            Format::Nested(nested) => nested.reached(),
            _ => Reached::default(),
        }
    }

    pub(crate) fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.tlbs.validate(mappings)?;
        self.lines.validate()?;
        on_format!(&self.format, format => format.validate(mappings))
    }
}
