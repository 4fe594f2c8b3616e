//! Estimates of the whole stream from a sample, with their errors.
//!
//! A sampled stream keeps all first touches. So misses that end in a fault are known, and also what
//! their walks cost, except for the effect of the walks that were left out on the caches. All other
//! accesses are equally likely to be in a window, and the recorder cuts runs at window boundaries.
//! So their misses, hits and cycles in the windows, scaled to all such accesses, estimate those of
//! the whole stream without bias. At the beginning of a recording windows are closer together, each
//! with the weight of the accesses that it stands for, and the first is measured completely: its
//! counts are known too.
//!
//! Errors are half the width of 95 % confidence intervals, all found in one way: leave out one
//! window after the other, see how far the value moves (the jackknife, which linearizes any smooth
//! value), and take the spread of that. Each period of a thread contains one window, so a sum
//! varies only as far as windows of neighbouring periods differ (Cochran, Sampling Techniques, 3rd
//! edition, sections 5A.12 and 8.10). Threads on cores of their own are [`strata`]; without cores
//! all of a stream is one. Rows of one stream have the same windows; when two are compared, a
//! window is left out of both, and what they have in common cancels.
//!
//! Misses come in bursts, and few windows may hold most of them. A sample whose windows missed the
//! bursts then shows a low estimate and a small spread at once. Two things in the data say so: the
//! kurtosis of the differences, from which the degrees of freedom of Student's t come, and the
//! counts of everything that was recorded. A window begins with the pages that its gap used, and
//! one of them that misses there missed in the gap too, unless the gap found it in the TLB and used
//! it again later. So the whole stream has about the recorded counts at least, and an estimate
//! below them is too low by the difference.

mod errors;
mod sampled;
mod strata;
mod student;

use self::errors::Basis;
pub(crate) use self::errors::{Evidence, compared_errors, own_errors};
pub use self::sampled::Sampled;
use self::strata::Stratum;
use crate::stream::{Counted, Window};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use superpage_keys::Counts;
use superpage_mmu::{Counters, Machine, Mmu, Replacement, TlbSpec};
use superpage_pages::{Access, Counts as _};
use superpage_trace::{Info, Sampling};

/// Counts of walks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, Counts)]
struct Walks {
    data: u64,
    instructions: u64,
    references: u64,
    cycles: u64,
}

impl Walks {
    fn of(machine: &Machine, counters: &Counters) -> Walks {
        Walks {
            data: counters.data_misses(),
            instructions: counters.instruction_misses(),
            references: counters.walk_memory_references(),
            cycles: machine.translation_cycles(counters).walks,
        }
    }

    fn count(&self) -> u64 {
        self.data + self.instructions
    }
}

/// What the hardware of a machine has counted so far.
pub(crate) struct Translated<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) counters: Counters,
    /// The part due to walks that found no page.
    pub(crate) faulting: Counters,
}

impl<'a> Translated<'a> {
    /// The counts of machine `number` of `mmu`.
    pub(crate) fn new(machine: &'a Machine, mmu: &Mmu, number: usize) -> Translated<'a> {
        Translated { machine, counters: mmu.counters(number), faulting: mmu.faulting(number) }
    }
}

/// The counts of a window, or of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, Counts)]
struct WindowCounts {
    accesses: u64,
    /// Hits in the second TLB level, for data and instructions.
    second_hits: [u64; 2],
    /// Hits in it and those behind it.
    later_hits: [u64; 2],
    tlb_hit_cycles: u64,
    /// Walks that ended in a fault.
    faulting: Walks,
    /// All others.
    others: Walks,
}

/// A count of accesses, for data and instructions.
fn by_stream(count: impl Fn(Access) -> u64) -> [u64; 2] {
    [count(Access::Read) + count(Access::Write), count(Access::Execute)]
}

impl WindowCounts {
    fn now(Translated { machine, counters, faulting }: &Translated<'_>, accesses: u64) -> WindowCounts {
        let faulting = Walks::of(machine, faulting);
        WindowCounts {
            accesses,
            second_hits: by_stream(|access| counters.hits(1, access)),
            later_hits: by_stream(|access| counters.misses(0, access) - counters.walks[access as usize]),
            tlb_hit_cycles: machine.translation_cycles(counters).tlb_hits,
            faulting,
            others: Walks::of(machine, counters).since(&faulting),
        }
    }

    fn walks(&self) -> Walks {
        self.faulting.plus(&self.others)
    }
}

/// The weighted sum of windows, without what ended in a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct WeightedSum {
    accesses: f64,
    second_hits: [f64; 2],
    later_hits: [f64; 2],
    tlb_hit_cycles: f64,
    data: f64,
    instructions: f64,
    walk_references: f64,
    walk_cycles: f64,
}

impl WeightedSum {
    /// The sum of this and a window with this weight, which may be negative, to remove a window.
    fn and(&self, window: &WindowCounts, weight: f64) -> WeightedSum {
        let add = |sum: f64, count: u64| sum + weight * count as f64;
        let WindowCounts { second_hits, later_hits, others, .. } = window;
        WeightedSum {
            // A process that was killed in a fault has not made the access.
            accesses: add(self.accesses, window.accesses.saturating_sub(window.faulting.count())),
            second_hits: [0, 1].map(|stream| add(self.second_hits[stream], second_hits[stream])),
            later_hits: [0, 1].map(|stream| add(self.later_hits[stream], later_hits[stream])),
            tlb_hit_cycles: add(self.tlb_hit_cycles, window.tlb_hit_cycles),
            data: add(self.data, others.data),
            instructions: add(self.instructions, others.instructions),
            walk_references: add(self.walk_references, others.references),
            walk_cycles: add(self.walk_cycles, others.cycles),
        }
    }

    /// The sum of both.
    fn plus(&self, other: &WeightedSum) -> WeightedSum {
        let pair = |own: [f64; 2], other: [f64; 2]| [own[0] + other[0], own[1] + other[1]];
        WeightedSum {
            accesses: self.accesses + other.accesses,
            second_hits: pair(self.second_hits, other.second_hits),
            later_hits: pair(self.later_hits, other.later_hits),
            tlb_hit_cycles: self.tlb_hit_cycles + other.tlb_hit_cycles,
            data: self.data + other.data,
            instructions: self.instructions + other.instructions,
            walk_references: self.walk_references + other.walk_references,
            walk_cycles: self.walk_cycles + other.walk_cycles,
        }
    }
}

/// A window that has begun.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    counts: WindowCounts,
    /// Its period, if that is its own.
    period: Option<u64>,
    thread: u32,
}

/// The sums of some windows, known and measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WindowSums {
    /// The sum of those that stand for no more than they contain, and so are known.
    known: WindowCounts,
    /// The sum of the others, and how many they are.
    measured: WeightedSum,
    others: u64,
}

impl WindowSums {
    fn add(&mut self, window: &Begun, sampling: Sampling) {
        match weight(window.period, sampling) {
            None => self.known.add(&window.counts),
            Some(weight) => {
                self.measured = self.measured.and(&window.counts, weight);
                self.others += 1;
            }
        }
    }
}

/// The weight of a window, given its period if that is not the stream's; `None` if it stands for no
/// more than it contains.
fn weight(period: Option<u64>, sampling: Sampling) -> Option<f64> {
    match period {
        Some(period) if period <= sampling.on => None,
        Some(period) => Some(period as f64 / sampling.period as f64),
        None => Some(1.0),
    }
}

/// The windows of a stream that are over, and the current one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    /// The current window, outside gaps and warming.
    window: Option<Window>,
    /// The counts when it began or resumed.
    begun: WindowCounts,
    /// The windows by number.
    windows: Vec<Begun>,
    /// How many of the first windows are over, and their sums by thread; a window that resumes
    /// shortens this.
    first: RefCell<(usize, BTreeMap<u32, WindowSums>)>,
    /// Whether TLBs may have held, when a window began, entries from before the gap that the gap
    /// replaced.
    stale: bool,
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
    /// The program's misses in line caches; 0 of a sampled stream, which has no lines.
    pub(crate) data_cycles: u64,
    pub(crate) sampled: Option<Sampled>,
}

impl Whole {
    /// Misses in the last TLB level, each of which is a walk or a refill.
    pub(crate) fn misses(&self) -> u64 {
        self.data_misses + self.instruction_misses
    }

    /// The program's own instructions in cycles, at the machine's rate without TLB misses.
    pub(crate) fn program_cycles(&self, machine: &Machine) -> u64 {
        // The only product with a fraction; below 2^53 it is exact to the cycle on every machine.
        (self.instructions as f64 * machine.costs.cycles_per_instruction) as u64
    }

    /// All cycles but the kernel's.
    pub(crate) fn cycles(&self, machine: &Machine) -> u64 {
        self.program_cycles(machine) + self.tlb_hit_cycles + self.walk_cycles + self.data_cycles
    }
}

impl Windows {
    /// What follows belongs to this window, new or resumed, or to none, after `accesses`.
    /// `superpages` says whether any are mapped.
    pub(crate) fn turn(
        &mut self,
        window: Option<Window>,
        translated: &Translated<'_>,
        accesses: u64,
        superpages: bool,
    ) {
        let now = WindowCounts::now(translated, accesses);
        self.stale |= window.is_some_and(|window| window.short) && (superpages || !fills(translated.machine));
        if let Some(window) = self.window {
            let windows = self.windows.len().max(window.number + 1);
            self.windows.resize(windows, Begun::default());
            self.windows[window.number] = self.with_current(&self.windows[window.number], window, &now);
        }
        if window.is_some_and(|window| window.number < self.first.borrow().0) {
            self.first.take();
        }
        (self.begun, self.window) = (now, window);
    }

    /// What the current window has, `before` it began or resumed and since.
    fn with_current(&self, before: &Begun, window: Window, now: &WindowCounts) -> Begun {
        let counts = before.counts.plus(&now.since(&self.begun));
        Begun { counts, period: window.period, thread: window.thread }
    }

    /// The windows from this one on, with what the current one has so far.
    fn from(&self, first: usize, now: &WindowCounts) -> Vec<Begun> {
        let mut windows = self.windows[first..].to_vec();
        if let Some(window) = self.window {
            let place = window.number - first;
            windows.resize(windows.len().max(place + 1), Begun::default());
            windows[place] = self.with_current(&windows[place], window, now);
        }
        windows
    }

    /// The sums of all of them, by thread.
    fn sums(&self, now: &WindowCounts, sampling: Sampling) -> BTreeMap<u32, WindowSums> {
        let (mut over, mut sums) = self.first.take();
        let add = |sums: &mut BTreeMap<u32, WindowSums>, window: &Begun| {
            sums.entry(window.thread).or_default().add(window, sampling);
        };
        let end = self.window.map_or(usize::MAX, |window| window.number).min(self.windows.len());
        while over < end {
            add(&mut sums, &self.windows[over]);
            over += 1;
        }
        self.first.replace((over, sums.clone()));
        self.from(over, now).iter().for_each(|window| add(&mut sums, window));
        sums
    }

    /// The counts for the whole stream, of which `counted` was recorded.
    pub(crate) fn whole(&self, info: &Info, translated: &Translated<'_>, counted: &Counted) -> Whole {
        let Counted { references, instructions, accesses, skipped, .. } = *counted;
        let all = WindowCounts::now(translated, accesses);
        let walks = all.walks();
        let Some(evidence) = self.basis(info, translated, counted) else {
            return Whole {
                references,
                instructions,
                data_misses: walks.data,
                instruction_misses: walks.instructions,
                first_misses: [walks.data + all.later_hits[0], walks.instructions + all.later_hits[1]],
                second_hits: all.second_hits,
                walk_references: walks.references,
                tlb_hit_cycles: all.tlb_hit_cycles,
                walk_cycles: walks.cycles,
                data_cycles: translated.machine.line_cycles(&translated.counters),
                sampled: None,
            };
        };
        let (sampling, others, evidence) = evidence;
        let counts = evidence.counts(Basis::All);
        let misses = [counts.data_misses, counts.instruction_misses].map(|misses| misses.round() as u64);
        let known = &evidence.known;
        let whole =
            |known: u64, count: &dyn Fn(&WeightedSum) -> f64| known + evidence.scaled(Basis::All, count).round() as u64;
        Whole {
            references: references + skipped[0],
            instructions: instructions + skipped[1],
            data_misses: misses[0],
            instruction_misses: misses[1],
            walk_references: counts.walk_references.round() as u64,
            // What misses in the first level hits in a later one, or misses in all; also as whole
            // numbers.
            first_misses: [0, 1]
                .map(|stream| misses[stream] + whole(known.later_hits[stream], &|sum| sum.later_hits[stream])),
            second_hits: [0, 1].map(|stream| whole(known.second_hits[stream], &|sum| sum.second_hits[stream])),
            tlb_hit_cycles: counts.tlb_hit_cycles.round() as u64,
            walk_cycles: counts.walk_cycles.round() as u64,
            data_cycles: 0,
            sampled: Some(Sampled {
                on: sampling.on,
                period: sampling.period,
                share: accesses as f64 / evidence.accesses,
                windows: others,
                recorded_references: references,
                recorded_tlb_misses: walks.count(),
                ..Sampled::default()
            }),
        }
    }

    /// The evidence to estimate from, and for its errors; `None` if nothing was left out.
    pub(crate) fn evidence(&self, info: &Info, translated: &Translated<'_>, counted: &Counted) -> Option<Evidence> {
        let (sampling, _, evidence) = self.basis(info, translated, counted)?;
        let mut of: BTreeMap<u32, Vec<(WindowCounts, f64)>> = BTreeMap::new();
        for window in self.from(0, &evidence.recorded) {
            let weighted = weight(window.period, sampling).map(|weight| (window.counts, weight));
            of.entry(window.thread).or_default().extend(weighted);
        }
        let threads = evidence.strata.iter().flat_map(|stratum| &stratum.threads);
        let windows = threads.filter_map(|thread| of.remove(thread)).flatten().collect();
        Some(Evidence { windows, ..evidence })
    }

    /// The sampling, how many windows stand for more than they contain, and the evidence without
    /// these: enough for an estimate. Costs a look at the windows from the current one on.
    fn basis(&self, info: &Info, translated: &Translated<'_>, counted: &Counted) -> Option<(Sampling, u64, Evidence)> {
        let Counted { accesses, skipped, .. } = *counted;
        let sampling = info.sampling.filter(|_| skipped != [0; 2])?;
        let recorded = WindowCounts::now(translated, accesses);
        let sums = self.sums(&recorded, sampling);
        let mut known = WindowCounts::default();
        sums.values().for_each(|sums| known.add(&sums.known));
        let others = sums.values().map(|sums| sums.others).sum();
        // Instructions are accesses only if their fetches are in the stream.
        let skipped = skipped[0] + if info.fetches { skipped[1] } else { 0 };
        let evidence = Evidence {
            windows: Vec::new(),
            strata: Stratum::of(&sums, counted.cores.accesses()),
            known,
            recorded,
            accesses: (accesses + skipped) as f64,
            placed: sampling.seed.is_some(),
            forgets: forgets(translated.machine),
            stale: self.stale,
            cold: info.cold_windows,
            threads: if info.cores > 0 { 1 } else { counted.threads.most() },
            turns: if info.cores > 0 { 0 } else { counted.threads.turns() },
            core_turns: counted.cores.turns(),
        };
        Some((sampling, others, evidence))
    }
}

/// Whether the TLBs of a machine reach the state that they have in the whole stream, whatever state
/// a gap left. Under LRU they do once as many pages as they hold were used; under random
/// replacement no state lasts. Other replacements keep an order of ways that uses do not correct: a
/// loop over more pages than fit can stay for ever in one of several cycles, with more misses or
/// fewer, and a gap moves it from one to another. Where ways have sets of their own, an entry may
/// outlast any number of others.
fn forgets(machine: &Machine) -> bool {
    let forgets = |tlb: &TlbSpec| matches!(tlb.replacement, Replacement::Lru | Replacement::Random) && !tlb.is_skewed();
    machine.tlb.iter().all(forgets)
}

/// Whether the base pages with which a short window begins fill the TLBs of a machine, even if they
/// are spread over the sets by chance. They need not where an entry holds several pages.
fn fills(machine: &Machine) -> bool {
    let fills = |tlb: &TlbSpec| tlb.joins.is_none() && 2 * tlb.entries <= Sampling::SHORT;
    machine.range_tlb.is_none() && machine.perforated.is_none() && machine.tlb.iter().all(fills)
}
