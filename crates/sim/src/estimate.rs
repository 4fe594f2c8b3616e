//! What a sample says about the whole stream: estimates with their error.
//!
//! A sampled stream keeps all first touches, so that faults and all else that the kernel does are exact. Misses of
//! accesses that do not fault are measured in the second half of each recorded window and scaled to all accesses.

use crate::piece::Phase;
use crate::row::Sampled;
use superpage_mmu::{Counters, Machine};
use superpage_pages::Access;
use superpage_trace::Info;

/// What is counted in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    accesses: u64,
    data_misses: u64,
    instruction_misses: u64,
    first_misses: [u64; 2],
    second_hits: [u64; 2],
    walk_references: u64,
    tlb_hit_cycles: u64,
    walk_cycles: u64,
    /// Of the misses, those that ended in a fault, for data and instructions.
    faulting: [u64; 2],
}

/// A count of accesses, for data and instructions.
fn by_stream(count: impl Fn(Access) -> u64) -> [u64; 2] {
    [count(Access::Read) + count(Access::Write), count(Access::Execute)]
}

impl Tally {
    fn now(machine: &Machine, counters: &Counters, accesses: u64, faulting: [u64; 2]) -> Tally {
        let cycles = machine.translation_cycles(counters);
        Tally {
            accesses,
            data_misses: counters.data_misses(),
            instruction_misses: counters.instruction_misses(),
            first_misses: by_stream(|access| counters.misses(0, access)),
            second_hits: by_stream(|access| counters.hits(1, access)),
            walk_references: counters.walk_memory_references(),
            tlb_hit_cycles: cycles.tlb_hits,
            walk_cycles: cycles.walks,
            faulting,
        }
    }

    fn since(&self, before: &Tally) -> Tally {
        Tally {
            accesses: self.accesses - before.accesses,
            data_misses: self.data_misses - before.data_misses,
            instruction_misses: self.instruction_misses - before.instruction_misses,
            first_misses: [0, 1].map(|stream| self.first_misses[stream] - before.first_misses[stream]),
            second_hits: [0, 1].map(|stream| self.second_hits[stream] - before.second_hits[stream]),
            walk_references: self.walk_references - before.walk_references,
            tlb_hit_cycles: self.tlb_hit_cycles - before.tlb_hit_cycles,
            walk_cycles: self.walk_cycles - before.walk_cycles,
            faulting: [0, 1].map(|stream| self.faulting[stream] - before.faulting[stream]),
        }
    }

    fn plus(&self, other: &Tally) -> Tally {
        Tally {
            accesses: self.accesses + other.accesses,
            data_misses: self.data_misses + other.data_misses,
            instruction_misses: self.instruction_misses + other.instruction_misses,
            first_misses: [0, 1].map(|stream| self.first_misses[stream] + other.first_misses[stream]),
            second_hits: [0, 1].map(|stream| self.second_hits[stream] + other.second_hits[stream]),
            walk_references: self.walk_references + other.walk_references,
            tlb_hit_cycles: self.tlb_hit_cycles + other.tlb_hit_cycles,
            walk_cycles: self.walk_cycles + other.walk_cycles,
            faulting: [0, 1].map(|stream| self.faulting[stream] + other.faulting[stream]),
        }
    }

    fn misses(&self) -> u64 {
        self.data_misses + self.instruction_misses
    }

    /// Misses that did not end in a fault.
    fn plain(&self) -> u64 {
        self.misses() - self.faulting[0] - self.faulting[1]
    }
}

/// The phases of a stream that are over, and the one that runs.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    phase: Phase,
    /// The counts when the phase began.
    begun: Tally,
    /// Accesses, and misses that did not fault, of each measured phase.
    windows: Vec<(u64, u64)>,
    measured: Tally,
    /// All accesses, recorded and left out.
    accesses: u64,
    /// Data references and instructions left out.
    skipped: [u64; 2],
    /// Misses that ended in a fault, for data and instructions.
    faulting: [u64; 2],
}

/// Counts for the whole stream: exact, or estimated from a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Whole {
    pub(crate) references: u64,
    pub(crate) instructions: u64,
    pub(crate) data_misses: u64,
    pub(crate) instruction_misses: u64,
    pub(crate) walk_references: u64,
    /// Misses in the first TLB level, for data and instructions.
    pub(crate) first_misses: [u64; 2],
    /// Hits in the second.
    pub(crate) second_hits: [u64; 2],
    pub(crate) tlb_hit_cycles: u64,
    pub(crate) walk_cycles: u64,
    pub(crate) sampled: Option<Sampled>,
}

impl Windows {
    pub(crate) fn new(first: Phase) -> Windows {
        Windows {
            phase: first,
            begun: Tally::default(),
            windows: Vec::new(),
            measured: Tally::default(),
            accesses: 0,
            skipped: [0; 2],
            faulting: [0; 2],
        }
    }

    /// So many accesses were made.
    pub(crate) fn accesses(&mut self, accesses: u64) {
        self.accesses += accesses;
    }

    /// A miss turned out to be a fault.
    pub(crate) fn fault(&mut self, fetch: bool) {
        self.faulting[usize::from(fetch)] += 1;
    }

    /// Accesses were left out of the stream.
    pub(crate) fn skip(&mut self, references: u64, instructions: u64) {
        self.skipped[0] += references;
        self.skipped[1] += instructions;
    }

    /// Another phase begins.
    pub(crate) fn turn(&mut self, phase: Phase, machine: &Machine, counters: &Counters) {
        let now = Tally::now(machine, counters, self.accesses, self.faulting);
        if self.phase == Phase::Measured {
            let window = now.since(&self.begun);
            self.windows.push((window.accesses, window.plain()));
            self.measured = self.measured.plus(&window);
        }
        self.begun = now;
        self.phase = phase;
    }

    /// The counts for the whole stream, of which `references` and `instructions` were recorded.
    pub(crate) fn whole(
        &self,
        info: &Info,
        machine: &Machine,
        counters: &Counters,
        references: u64,
        instructions: u64,
    ) -> Whole {
        let all = Tally::now(machine, counters, self.accesses, self.faulting);
        let exact = Whole {
            references,
            instructions,
            data_misses: all.data_misses,
            instruction_misses: all.instruction_misses,
            walk_references: all.walk_references,
            first_misses: all.first_misses,
            second_hits: all.second_hits,
            tlb_hit_cycles: all.tlb_hit_cycles,
            walk_cycles: all.walk_cycles,
            sampled: None,
        };
        let Some(sampling) = info.sampling.filter(|_| self.skipped != [0; 2]) else { return exact };
        let mut windows = self.clone();
        windows.turn(Phase::Gap, machine, counters);
        let m = &windows.measured;
        // Instructions are accesses only where their fetches are in the stream.
        let total = self.accesses + self.skipped[0] + if info.fetches { self.skipped[1] } else { 0 };
        // What a count of the measured windows would be over the whole stream.
        let factor = if m.accesses == 0 { 0.0 } else { total as f64 / m.accesses as f64 };
        let scaled = |count: u64| count as f64 * factor;
        let data_misses = self.faulting[0] as f64 + scaled(m.data_misses - m.faulting[0]);
        let instruction_misses = self.faulting[1] as f64 + scaled(m.instruction_misses - m.faulting[1]);
        let misses = data_misses + instruction_misses;
        // Walks cost the same on average in the windows as in the whole; without a miss there, as in all that is recorded.
        let walks = if m.misses() > 0 { m } else { &all };
        let each = |count: u64| if walks.misses() == 0 { 0.0 } else { misses * count as f64 / walks.misses() as f64 };
        Whole {
            references: references + self.skipped[0],
            instructions: instructions + self.skipped[1],
            data_misses: data_misses.round() as u64,
            instruction_misses: instruction_misses.round() as u64,
            walk_references: each(walks.walk_references).round() as u64,
            // What misses in the first level hits in a later one, or misses in all.
            first_misses: [0, 1].map(|stream| {
                let last = [(m.data_misses, data_misses), (m.instruction_misses, instruction_misses)][stream];
                (scaled(m.first_misses[stream] - last.0) + last.1).round() as u64
            }),
            second_hits: m.second_hits.map(|hits| scaled(hits).round() as u64),
            tlb_hit_cycles: scaled(m.tlb_hit_cycles).round() as u64,
            walk_cycles: each(walks.walk_cycles).round() as u64,
            sampled: Some(Sampled {
                on: sampling.on,
                period: sampling.period,
                share: self.accesses as f64 / total as f64,
                windows: windows.windows.len() as u64,
                recorded_references: references,
                recorded_tlb_misses: all.misses(),
                tlb_misses_error: windows.error(total as f64),
            }),
        }
    }

    /// Half the width of the 95 % confidence interval of the misses, by the spread of the windows about their common
    /// ratio (the usual variance of a ratio estimate).
    fn error(&self, total: f64) -> Option<f64> {
        let n = self.windows.len() as f64;
        let (accesses, misses) = self.windows.iter().fold((0, 0), |sum, w| (sum.0 + w.0, sum.1 + w.1));
        if self.windows.len() < 2 || accesses == 0 {
            return None;
        }
        let ratio = misses as f64 / accesses as f64;
        let spread: f64 = self.windows.iter().map(|w| (w.1 as f64 - ratio * w.0 as f64).powi(2)).sum();
        let mean = accesses as f64 / n;
        let variance = (1.0 - accesses as f64 / total).max(0.0) * spread / (n - 1.0) / n / (mean * mean);
        Some(1.96 * variance.sqrt() * total)
    }
}
