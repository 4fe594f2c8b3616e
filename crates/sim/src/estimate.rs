//! What a sample says about the whole stream: estimates with their error.
//!
//! A sampled stream keeps all first touches, so that misses that end in a fault are known. Misses of other accesses are those
//! of the measured windows, scaled to all accesses: each access has the same chance to be in one, and the recorder cuts runs
//! at their edges, so that the ratio of misses to accesses in the windows is that of the whole but for chance.
//!
//! Errors are half the width of 95 % confidence intervals, all found in one way: leave out one window after the other, see
//! how far the value moves (the jackknife, which gives any smooth value its linearisation), and take the spread of that. Each
//! period of the stream holds one window, so a sum varies only as far as windows of neighbouring periods differ (Cochran,
//! Sampling Techniques, 3rd edition, sections 5A.12 and 8.10). Rows of one stream have the same windows; where two are compared,
//! a window is left out of both, and what it has in common with both cancels.

use crate::row::{Row, Sampled};
use superpage_mmu::{Counters, Machine};
use superpage_pages::Access;
use superpage_trace::Info;

/// What is counted in a window, or in all.
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

    /// Each count of this and of `other`, together.
    fn with(&self, other: &Tally, both: impl Fn(u64, u64) -> u64) -> Tally {
        Tally {
            accesses: both(self.accesses, other.accesses),
            data_misses: both(self.data_misses, other.data_misses),
            instruction_misses: both(self.instruction_misses, other.instruction_misses),
            first_misses: [0, 1].map(|stream| both(self.first_misses[stream], other.first_misses[stream])),
            second_hits: [0, 1].map(|stream| both(self.second_hits[stream], other.second_hits[stream])),
            walk_references: both(self.walk_references, other.walk_references),
            tlb_hit_cycles: both(self.tlb_hit_cycles, other.tlb_hit_cycles),
            walk_cycles: both(self.walk_cycles, other.walk_cycles),
            faulting: [0, 1].map(|stream| both(self.faulting[stream], other.faulting[stream])),
        }
    }

    fn misses(&self) -> u64 {
        self.data_misses + self.instruction_misses
    }
}

/// The windows of a stream that are over, and the one that goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    /// The number of the window that goes on, outside gaps and warming.
    window: Option<usize>,
    /// The counts when it began or went on.
    begun: Tally,
    windows: Vec<Tally>,
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

    /// What follows belongs to a window, new or one that goes on, or to none.
    pub(crate) fn turn(&mut self, window: Option<usize>, machine: &Machine, counters: &Counters) {
        let now = Tally::now(machine, counters, self.accesses, self.faulting);
        if let Some(window) = self.window {
            let more = now.with(&self.begun, |now, then| now - then);
            self.windows.resize(self.windows.len().max(window + 1), Tally::default());
            self.windows[window] = self.windows[window].with(&more, |a, b| a + b);
        }
        (self.begun, self.window) = (now, window);
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
        let Some(evidence) = self.evidence(info, machine, counters) else {
            return Whole {
                references,
                instructions,
                data_misses: all.data_misses,
                instruction_misses: all.instruction_misses,
                first_misses: all.first_misses,
                second_hits: all.second_hits,
                walk_references: all.walk_references,
                tlb_hit_cycles: all.tlb_hit_cycles,
                walk_cycles: all.walk_cycles,
                sampled: None,
            };
        };
        let sampling = info.sampling.expect("evidence comes from a sample");
        let counts = evidence.counts(None);
        Whole {
            references: references + self.skipped[0],
            instructions: instructions + self.skipped[1],
            data_misses: counts.data_misses.round() as u64,
            instruction_misses: counts.instruction_misses.round() as u64,
            walk_references: counts.walk_references.round() as u64,
            // What misses in the first level hits in a later one, or misses in all.
            first_misses: [0, 1].map(|stream| {
                let m = &evidence.measured;
                let last = [(m.data_misses, counts.data_misses), (m.instruction_misses, counts.instruction_misses)];
                let (measured, all) = last[stream];
                (evidence.scale(m.first_misses[stream] - measured) + all).round() as u64
            }),
            second_hits: evidence.measured.second_hits.map(|hits| evidence.scale(hits).round() as u64),
            tlb_hit_cycles: counts.tlb_hit_cycles.round() as u64,
            walk_cycles: counts.walk_cycles.round() as u64,
            sampled: Some(Sampled {
                on: sampling.on,
                period: sampling.period,
                share: self.accesses as f64 / evidence.accesses,
                windows: evidence.windows.len() as u64,
                recorded_references: references,
                recorded_tlb_misses: all.misses(),
                ..Sampled::default()
            }),
        }
    }

    /// What there is to estimate from; `None` if nothing was left out.
    pub(crate) fn evidence(&self, info: &Info, machine: &Machine, counters: &Counters) -> Option<Evidence> {
        if info.sampling.is_none() || self.skipped == [0; 2] {
            return None;
        }
        let mut windows = self.clone();
        windows.turn(None, machine, counters);
        let measured = windows.windows.iter().fold(Tally::default(), |sum, window| sum.with(window, |a, b| a + b));
        // Instructions are accesses only where their fetches are in the stream.
        let skipped = self.skipped[0] + if info.fetches { self.skipped[1] } else { 0 };
        Some(Evidence {
            windows: windows.windows,
            measured,
            recorded: Tally::now(machine, counters, self.accesses, self.faulting),
            accesses: (self.accesses + skipped) as f64,
            placed: info.sampling.is_some_and(|sampling| sampling.seed.is_some()),
        })
    }
}

/// What estimates for the whole stream, and their errors, come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evidence {
    windows: Vec<Tally>,
    /// The sum of the windows.
    measured: Tally,
    /// The counts of all that was recorded.
    recorded: Tally,
    /// The accesses of the whole stream.
    accesses: f64,
    /// Whether the windows lie at random places.
    placed: bool,
}

/// Estimated counts of the whole stream.
#[derive(Clone, Copy, Debug)]
struct Counts {
    data_misses: f64,
    instruction_misses: f64,
    walk_references: f64,
    tlb_hit_cycles: f64,
    walk_cycles: f64,
}

impl Counts {
    fn misses(&self) -> f64 {
        self.data_misses + self.instruction_misses
    }

    fn translation(&self) -> f64 {
        self.tlb_hit_cycles + self.walk_cycles
    }
}

impl Evidence {
    /// What a count of the windows comes to in the whole stream.
    fn scale(&self, count: u64) -> f64 {
        if self.measured.accesses == 0 { 0.0 } else { count as f64 * self.accesses / self.measured.accesses as f64 }
    }

    /// The counts of the whole stream as all windows show them, or all but one.
    fn counts(&self, without: Option<usize>) -> Counts {
        let Evidence { measured, recorded, .. } = self;
        let m = match without {
            None => *measured,
            Some(window) => measured.with(&self.windows[window], |all, one| all - one),
        };
        let factor = if m.accesses == 0 { 0.0 } else { self.accesses / m.accesses as f64 };
        let scaled = |count: u64| count as f64 * factor;
        let data_misses = recorded.faulting[0] as f64 + scaled(m.data_misses - m.faulting[0]);
        let instruction_misses = recorded.faulting[1] as f64 + scaled(m.instruction_misses - m.faulting[1]);
        // Walks cost the same on average in the windows as in the whole; without a miss there, as in all that is recorded.
        let walks = if m.misses() > 0 { m } else { *recorded };
        let misses = data_misses + instruction_misses;
        let each = |count: u64| if walks.misses() == 0 { 0.0 } else { misses * count as f64 / walks.misses() as f64 };
        Counts {
            data_misses,
            instruction_misses,
            walk_references: each(walks.walk_references),
            tlb_hit_cycles: scaled(m.tlb_hit_cycles),
            walk_cycles: each(walks.walk_cycles),
        }
    }

    /// Half the width of the 95 % interval of a value; it is given the window that is left out.
    fn error(&self, value: impl Fn(Option<usize>) -> f64) -> Option<f64> {
        let count = self.windows.len();
        if count < 2 || !self.placed {
            return None;
        }
        let (n, all) = (count as f64, value(None));
        let moved: Vec<f64> = (0..count).map(|window| n * all - (n - 1.0) * value(Some(window))).collect();
        let differences: f64 = moved.windows(2).map(|pair| (pair[0] - pair[1]).powi(2)).sum();
        let left_out = 1.0 - self.measured.accesses as f64 / self.accesses;
        let variance = left_out * differences / (2.0 * n * (n - 1.0));
        // The degrees of freedom that squared differences of neighbours have (von Neumann et al., 1941).
        let freedom = 2.0 * (n - 1.0).powi(2) / (3.0 * n - 4.0);
        Some(student(freedom) * variance.sqrt())
    }

    /// What is still possible where the windows hold few misses, or none, so that they do not differ: the score interval of a
    /// Poisson count, scaled to the whole. 0 where there are more, which show their spread themselves.
    fn rare(&self) -> f64 {
        let seen = (self.measured.misses() - self.measured.faulting.iter().sum::<u64>()) as f64;
        let accesses = self.measured.accesses.max(1) as f64;
        if seen < RARE { (1.92 + 1.96 * (seen + 0.96).sqrt()) * self.accesses / accesses } else { 0.0 }
    }

    /// The same in cycles.
    fn rare_cycles(&self) -> f64 {
        self.rare() * self.recorded.walk_cycles as f64 / self.recorded.misses().max(1) as f64
    }
}

/// So few misses say little about their own spread.
const RARE: f64 = 10.0;

/// Gives a row of a sampled stream its own errors.
pub(crate) fn own_errors(row: &mut Row, evidence: Option<&Evidence>) {
    let (Some(sampled), Some(evidence)) = (&mut row.sampled, evidence) else { return };
    // The page daemon runs when memory is short, and a process is ended when there is none.
    sampled.kernel_exact = row.daemon_runs == 0 && row.error.is_none();
    if !sampled.kernel_exact {
        return;
    }
    let at_least = |error: Option<f64>, least: f64| error.map(|error| error.max(least));
    let error = evidence.error(|without| evidence.counts(without).misses());
    sampled.tlb_misses_error = at_least(error, evidence.rare());
    sampled.walk_memory_references_error = evidence.error(|without| evidence.counts(without).walk_references);
    let error = evidence.error(|without| evidence.counts(without).translation());
    sampled.cycles_error = at_least(error, evidence.rare_cycles());
}

/// Gives a row of a sampled stream the errors of what compares it with `base`.
pub(crate) fn compared_errors(row: &mut Row, own: Option<&Evidence>, base: &Row, theirs: Option<&Evidence>) {
    let (Some(own), Some(theirs)) = (own, theirs) else { return };
    let same = row.policy == base.policy;
    let Some(sampled) = &mut row.sampled else { return };
    let base_exact = base.sampled.as_ref().is_some_and(|base| base.kernel_exact);
    // A run that ended early has other windows.
    if !sampled.kernel_exact || !base_exact || own.windows.len() != theirs.windows.len() {
        return;
    }
    // What few windows show in both alike is the same in both only where both are one row.
    let rare = |error: f64| if same { 0.0 } else { error };
    if row.tlb_miss_reduction_percent.is_some() {
        let ratio = |without| own.counts(without).misses() / theirs.counts(without).misses();
        let error = own.error(|without| 100.0 * ratio(without));
        let least = 100.0 * rare(own.rare() + theirs.rare() * ratio(None)) / theirs.counts(None).misses();
        sampled.tlb_miss_reduction_percent_error = error.map(|error| error.max(least));
    }
    if row.speedup.is_some() {
        // All other cycles are known.
        let rest = |cycles: u64, evidence: &Evidence| cycles as f64 - evidence.counts(None).translation();
        let rests = (rest(row.cycles, own), rest(base.cycles, theirs));
        let own_time = |without| rests.0 + own.counts(without).translation();
        let their_time = |without| rests.1 + theirs.counts(without).translation();
        let speedup = |without| their_time(without) / own_time(without);
        let least = rare(theirs.rare_cycles() + own.rare_cycles() * speedup(None)) / own_time(None);
        sampled.speedup_error = own.error(speedup).map(|error| error.max(least));
    }
}

/// The 97.5 % quantile of Student's t with so many degrees of freedom, at least 1: from tables, between them linear in the
/// inverse, which is right to 1 %.
fn student(freedom: f64) -> f64 {
    const TABLE: [(f64, f64); 12] = [
        (1.0, 12.706),
        (1.5, 6.017),
        (2.0, 4.303),
        (3.0, 3.182),
        (4.0, 2.776),
        (5.0, 2.571),
        (7.0, 2.365),
        (10.0, 2.228),
        (15.0, 2.131),
        (30.0, 2.042),
        (100.0, 1.984),
        (f64::INFINITY, 1.960),
    ];
    let at = TABLE.iter().rposition(|(freedom_of, _)| *freedom_of <= freedom).unwrap_or(0);
    let (Some(low), Some(high)) = (TABLE.get(at), TABLE.get(at + 1)) else { return 1.960 };
    let part = (1.0 / low.0 - 1.0 / freedom) / (1.0 / low.0 - 1.0 / high.0);
    low.1 + part * (high.1 - low.1)
}
