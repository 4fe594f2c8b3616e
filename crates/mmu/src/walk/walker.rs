//! The walker of one machine: its format of page tables, the line caches that it reads through, and
//! counters.
//!
//! It sees the requests that miss in all TLBs, and changes nothing in these.

use crate::counters::Counters;
use crate::machine::Machine;
use crate::mappings::{Mapping, Mappings, Pointer, Shape, SpacePage};
use crate::tlb::Served;
use crate::tlb::batch::Batch;
use crate::tlb::reach::PartialHits;
use crate::tlb::uses::{BATCH, each};
use crate::walk::formats::{Format, Groups, Reached, TableFormat, Walks, on_format};
use crate::walk::lines::{Lines, Reads};
use std::ops::Range;

/// The lines that a batch of requests accesses.
#[derive(Clone, Debug)]
pub(crate) struct ProgramLines {
    /// By request.
    pub(crate) lines: [u32; BATCH],
    /// The number of requests.
    pub(crate) len: usize,
    /// Which of them are fetches.
    pub(crate) fetches: u64,
    /// Which of them missed in the first level.
    pub(crate) missed: u64,
}

/// The parts of one machine behind all of its TLBs.
#[derive(Clone, Debug)]
pub(crate) struct Walker {
    format: Format,
    lines: Lines,
    /// The counts in which machines with equal TLBs may differ.
    pub(crate) counters: Counters,
    /// The part of them that walks to absent pages have counted.
    pub(crate) faulting: Counters,
}

impl Walker {
    /// The walker of this machine, with empty caches.
    pub(crate) fn new(machine: &Machine, shape: &Shape) -> Walker {
        Walker {
            format: Format::new(machine, shape),
            lines: Lines::new(machine),
            counters: Counters::default(),
            faulting: Counters::default(),
        }
    }

    /// Walks for the requests of a batch that missed in all TLBs.
    #[inline(always)]
    pub(crate) fn walk(&mut self, mappings: &Mappings, batch: &Batch, served: &Served) {
        if batch.absent != 0 {
            for group in batch.groups().iter().filter(|group| group.absent().is_some()) {
                let walks = group.requests.count_ones() as u64;
                self.faulting.references[group.access()] += walks;
                self.faulting.walks[group.access()] += walks;
            }
        }
        let reads = Reads { lines: &mut self.lines, counters: &mut self.counters, faulting: &mut self.faulting };
        on_format!(&mut self.format, format => {
            format.walk(mappings, batch, Walks { requests: served.missed, partial: served.partial }, reads)
        });
    }

    /// As [`Walker::walk`], where the program's lines, `data`, go through the caches too: the
    /// requests of `batch` are those of `data` that missed in the first level, in order.
    pub(crate) fn walk_lines(&mut self, mappings: &Mappings, batch: &Batch, served: &Served, data: &ProgramLines) {
        let mut done = 0;
        // The lines of a walk come right before the program's own.
        for (number, at) in each(data.missed).enumerate().filter(|(number, _)| served.missed >> number & 1 != 0) {
            self.lines.access(&data.lines[done..at], data.fetches >> done, &mut self.counters);
            done = at;
            self.walk(mappings, batch, &Served { missed: 1 << number, ..*served });
        }
        self.lines.access(&data.lines[done..data.len], data.fetches >> done, &mut self.counters);
    }

    /// Counts a walk to an absent page, whose root exists.
    pub(crate) fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, partial: PartialHits, access: usize) {
        let mut walk = Counters::default();
        walk.references[access] += 1;
        walk.walks[access] += 1;
        let reads = Reads { lines: &mut self.lines, counters: &mut walk, faulting: &mut Counters::default() };
        on_format!(&mut self.format, format => format.walk_absent(mappings, page, partial, reads));
        self.counters.add_walks(&walk);
        self.faulting.add_walks(&walk);
    }

    /// Makes room for so many hardware threads in the walk caches, when they are empty.
    pub(crate) fn share(&mut self, siblings: u32) {
        on_format!(&mut self.format, format => format.caches().into_iter().for_each(|caches| caches.share(siblings)));
    }

    /// Serves this hardware thread from now on.
    pub(crate) fn set_sibling(&mut self, sibling: u32) {
        on_format!(&mut self.format, format => {
            format.caches().into_iter().for_each(|caches| caches.set_sibling(sibling));
        });
    }

    /// Exchanges the line caches that so many cores share with those of another core.
    pub(crate) fn swap_shared(&mut self, other: &mut Walker, cores: u32) {
        self.lines.swap_shared(&mut other.lines, cores);
    }

    /// Whether loads and stores are preloaded from now on.
    pub(crate) fn preload(&mut self, preloading: bool) {
        self.lines.preloading = preloading;
    }

    /// The program's access to one line, whose page is in the TLBs.
    pub(crate) fn access_line(&mut self, line: u32, fetch: bool) {
        self.lines.access(&[line], u64::from(fetch), &mut self.counters);
    }

    /// The hash table of groups, if there is one, and the caches through which it is read.
    pub(crate) fn groups(&mut self) -> Option<(&mut Groups, Reads<'_>)> {
        match &mut self.format {
            Format::Groups(groups) => {
                let (lines, counters, faulting) = (&mut self.lines, &mut self.counters, &mut self.faulting);
                Some((groups, Reads { lines, counters, faulting }))
            }
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
    pub(crate) fn drop_pointer(&mut self, pointer: Pointer) {
        on_format!(&mut self.format, format => format.drop_pointer(pointer));
    }

    /// Drops what a format keeps of a mapping that changes.
    pub(crate) fn drop_leaf(&mut self, mapping: Mapping) {
        on_format!(&mut self.format, format => format.drop_leaf(mapping, &mut self.lines));
    }

    /// Empties the walk caches.
    pub(crate) fn flush(&mut self) {
        on_format!(&mut self.format, format => {
            format.flush();
            format.drop_kept(&mut self.lines);
        });
    }

    /// Empties the walk caches, and drops all that is held of the host's tables.
    pub(crate) fn flush_host(&mut self) {
        self.flush();
        if let Format::Nested(nested) = &mut self.format {
            nested.flush_host();
        }
    }

    /// Takes what walks have found in the host's tables since the last call.
    pub(crate) fn reached(&mut self) -> Reached {
        match &mut self.format {
            Format::Nested(nested) => nested.reached(),
            _ => Reached::default(),
        }
    }

    pub(crate) fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.lines.validate()?;
        on_format!(&self.format, format => {
            format.validate(mappings)?;
            format.validate_kept(mappings, &self.lines)
        })
    }
}
