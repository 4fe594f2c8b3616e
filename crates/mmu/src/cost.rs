//! The cycles of translation, computed from counts and the machine's stated latencies.

use crate::counters::{Counters, LineCounts, Remaps, UseBits};
use crate::machine::Machine;
use superpage_pages::Access;

/// Cycles spent on translation: derived from the counters on request, never timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TranslationCycles {
    /// Hits in TLB levels behind the first.
    pub tlb_hits: u64,
    /// Walks or refills: the fixed part, and every memory reference by where it was served.
    pub walks: u64,
    /// Traps that only set use bits, with the page-table entries that they write, where the machine
    /// does that by a trap.
    pub use_traps: u64,
}

impl TranslationCycles {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.tlb_hits + self.walks + self.use_traps
    }
}

impl Machine {
    /// The cycles of these counts. A hit takes the `hit-cycles` of the TLB of that level that
    /// serves the access (the first in the file, if several do for different sizes), and none if
    /// there is no nearer level.
    pub fn translation_cycles(&self, counters: &Counters) -> TranslationCycles {
        let mut cycles = TranslationCycles::default();
        for level in 0..self.tlb_levels() {
            for access in [Access::Read, Access::Write, Access::Execute] {
                let serving: Vec<_> = self.tlb.iter().filter(|tlb| tlb.serves.covers(access as usize)).collect();
                let behind = serving.iter().any(|tlb| tlb.level < level + 1);
                if let Some(tlb) = serving.iter().find(|tlb| tlb.level == level + 1 && behind) {
                    cycles.tlb_hits += counters.hits(level, access) * tlb.hit_cycles;
                }
            }
        }
        cycles.walks =
            counters.tlb_misses() * self.walk.refill_cycles + counters.line_misses * self.memory.latency_cycles;
        if let Some(groups) = &self.groups {
            let done = &counters.groups;
            let by_software = done.looked_to_place + done.looked_to_flush;
            cycles.walks += done.entered * groups.enter_cycles
                + done.looked * groups.search_entry_cycles()
                + by_software * groups.software_entry_cycles;
        }
        for (cache, hits) in self.line_cache.iter().zip(counters.line_hits) {
            cycles.walks += hits * cache.hit_cycles;
        }
        cycles.use_traps = self.use_traps(counters.use_bits, counters.use_bit_entries);
        cycles
    }

    /// The cycles of the program's own misses in the first line caches, in a stream with lines,
    /// without prefetches: the sum of their latencies, with the controller's look-ups, divided by
    /// how many overlap ([`crate::machine::Memory::overlap`]).
    pub fn line_cycles(&self, counters: &Counters) -> u64 {
        let [data, fetches, _] = &counters.program_lines;
        let alone = |lines: &LineCounts| {
            let hits = self.line_cache.iter().zip(lines.hits).skip(1).map(|(cache, hits)| hits * cache.hit_cycles);
            hits.sum::<u64>() + lines.misses * self.memory.latency_cycles
        };
        let remapped = self.shadow.as_ref().map_or(0, |shadow| {
            let ([hits, _], [misses, _]) = (counters.remaps.hits, counters.remaps.misses);
            (hits + misses) * shadow.hit_cycles + misses * self.memory.latency_cycles
        });
        ((alone(data) + alone(fetches) + remapped) as f64 / self.memory.overlap) as u64
    }

    /// The cycles of making shadow superpages and splitting them, without page-table entries and
    /// shootdowns: promotions and demotions, entries of the controller's table, and lines flushed.
    pub fn remap_cycles(&self, remaps: &Remaps) -> u64 {
        self.shadow.as_ref().map_or(0, |shadow| {
            let flushed = (remaps.flushed_pages * self.pages.sizes[0].bytes()).div_ceil(1024);
            remaps.promotions * self.costs.promotion
                + remaps.demotions * self.costs.demotion
                + remaps.table_writes * shadow.table_write_cycles
                + flushed * shadow.flush_per_kb
        })
    }

    /// The cycles of traps for the use bits that accesses set: none where the hardware sets them. A
    /// trap writes all entries of the mapping, so its time is linear in the size of a superpage
    /// whose entries are replicated (Navarro et al., section 6.8).
    pub fn use_traps(&self, mappings: UseBits, entries: UseBits) -> u64 {
        let by_trap = |set: UseBits| set.by_trap(self.page_table.referenced, self.page_table.dirty);
        by_trap(mappings) * self.costs.use_trap + by_trap(entries) * self.costs.pte_write
    }
}
