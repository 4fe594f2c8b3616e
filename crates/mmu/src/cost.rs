//! What translation cost, computed from counts by the machine's stated latencies.

use crate::counters::{Counters, LineCounts, Remaps};
use crate::machine::{Machine, SetBy};
use superpage_pages::Access;

/// Cycles spent on translation: derived from the counters on request, never timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TranslationCycles {
    /// Hits in TLB levels behind the first.
    pub tlb_hits: u64,
    /// Walks or refills: the fixed part, and every memory reference by where it was served.
    pub walks: u64,
    /// Traps that only set a use bit, where the machine does that by a trap.
    pub use_traps: u64,
}

impl TranslationCycles {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.tlb_hits + self.walks + self.use_traps
    }
}

impl Machine {
    /// The cycles that these counts amount to. A hit costs what the file says for the TLB of that level that serves the
    /// access (if several do, for different sizes, the first in the file), and nothing if there is no nearer level.
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
        cycles.use_traps = self.use_traps(counters.dirty_updates, counters.reference_updates);
        cycles
    }

    /// The cycles of the program's own misses in the first line caches, in a stream with lines, without those that were prefetched: what each would take alone, with the controller's look-ups, divided by
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

    /// The cycles of making shadow superpages and splitting them, without page-table entries and shootdowns: promotions and
    /// demotions, entries of the controller's table, and lines flushed.
    pub fn remap_cycles(&self, remaps: &Remaps) -> u64 {
        self.shadow.as_ref().map_or(0, |shadow| {
            let flushed = (remaps.flushed_pages * self.pages.sizes[0].bytes()).div_ceil(1024);
            remaps.promotions * self.costs.promotion
                + remaps.demotions * self.costs.demotion
                + remaps.table_writes * shadow.table_write_cycles
                + flushed * shadow.flush_per_kb
        })
    }

    /// The cycles of traps for so many dirty and reference bits that accesses set: none where the hardware sets them.
    pub fn use_traps(&self, dirty: u64, referenced: u64) -> u64 {
        let traps = |by: SetBy, count: u64| if by == SetBy::Trap { count * self.costs.use_trap } else { 0 };
        traps(self.page_table.dirty, dirty) + traps(self.page_table.referenced, referenced)
    }
}
