//! The errors of estimates: half the widths of 95 % confidence intervals, and what they go by.

use super::student::{freedom, student};
use super::{Sampled, Stratum, Walks, WeightedSum, WindowCounts};
use crate::Row;
use serde::{Deserialize, Serialize};
use superpage_pages::Counts as _;

/// The basis of the estimates for the whole stream, and of their errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evidence {
    /// The windows that stand for more than they contain, with their weights: 1 for those that
    /// stand for a period of the sampling. Those of a thread are in order, and threads in that of
    /// the strata.
    pub(super) windows: Vec<(WindowCounts, f64)>,
    /// What is estimated from which of them.
    pub(super) strata: Vec<Stratum>,
    /// The sum of the windows that were measured completely.
    pub(super) known: WindowCounts,
    /// The counts of all that was recorded.
    pub(super) recorded: WindowCounts,
    /// The accesses of the whole stream.
    pub(super) accesses: f64,
    /// Whether the windows are at random positions.
    pub(super) placed: bool,
    /// Whether TLBs forget the state in which a window found them.
    pub(super) forgets: bool,
    /// Whether windows may begin with entries that the gap before them replaced.
    pub(super) stale: bool,
    /// Whether windows begin with whatever TLBs held before.
    pub(super) cold: bool,
    /// The most threads of a program that take turns as the stream has it.
    pub(super) threads: u64,
    /// How often a process went on so after another that has not ended.
    pub(super) turns: u64,
    /// How often a thread went on after another of its core.
    pub(super) core_turns: u64,
}

/// What the counts of the whole stream are estimated from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Basis {
    All,
    /// All windows but this one.
    Without(usize),
    /// All windows, and each count is at least what was recorded.
    Recorded,
    /// No window: only what is known.
    Known,
}

/// Estimated counts of the whole stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimated {
    pub(super) data_misses: f64,
    pub(super) instruction_misses: f64,
    pub(super) walk_references: f64,
    pub(super) tlb_hit_cycles: f64,
    pub(super) walk_cycles: f64,
}

impl Estimated {
    fn misses(&self) -> f64 {
        self.data_misses + self.instruction_misses
    }

    fn translation(&self) -> f64 {
        self.tlb_hit_cycles + self.walk_cycles
    }
}

impl Evidence {
    /// The accesses of the stream that are not known. First touches are, and what was measured
    /// completely.
    fn unknown(&self) -> f64 {
        let known = self.recorded.faulting.count() + self.known.accesses.saturating_sub(self.known.faulting.count());
        (self.accesses - known as f64).max(0.0)
    }

    /// The factor from a count in all windows to that of all of the stream that is not known.
    pub(super) fn factor(&self) -> f64 {
        ratio(self.unknown(), self.strata.iter().map(|stratum| stratum.measured.accesses).sum())
    }

    /// A count in windows, scaled in each stratum to all of it that is not known.
    pub(super) fn scaled(&self, basis: Basis, count: impl Fn(&WeightedSum) -> f64) -> f64 {
        let (unknown, mut first) = (self.unknown(), 0);
        let scaled = |stratum: &Stratum| {
            let end = first + stratum.windows.iter().sum::<usize>();
            let own = first..end;
            first = end;
            let sum = match basis {
                Basis::Without(window) if own.contains(&window) => {
                    stratum.measured.and(&self.windows[window].0, -self.windows[window].1)
                }
                Basis::Known => return 0.0,
                _ => stratum.measured,
            };
            count(&sum) * ratio(unknown * stratum.share, sum.accesses)
        };
        self.strata.iter().map(scaled).sum()
    }

    /// The estimated counts of the whole stream.
    pub(super) fn counts(&self, basis: Basis) -> Estimated {
        let known = self.recorded.faulting.plus(&self.known.others);
        let recorded = self.recorded.walks();
        let whole = |known: u64, count: fn(&WeightedSum) -> f64, recorded: u64| {
            let whole = known as f64 + self.scaled(basis, count);
            if basis == Basis::Recorded { whole.max(recorded as f64) } else { whole }
        };
        Estimated {
            data_misses: whole(known.data, |sum| sum.data, recorded.data),
            instruction_misses: whole(known.instructions, |sum| sum.instructions, recorded.instructions),
            walk_references: whole(known.references, |sum| sum.walk_references, recorded.references),
            tlb_hit_cycles: whole(self.known.tlb_hit_cycles, |sum| sum.tlb_hit_cycles, self.recorded.tlb_hit_cycles),
            walk_cycles: whole(known.cycles, |sum| sum.walk_cycles, recorded.cycles),
        }
    }

    /// Why the intervals of the estimates are not known; `None` if they are.
    fn why_no_interval(&self) -> Option<&'static str> {
        if !self.placed {
            Some("the trace does not say where its windows lie: record it again")
        } else if !self.forgets {
            Some(
                "a TLB is skewed, or its replacement is neither LRU nor random: the effect of a gap may outlast a \
                 window",
            )
        } else if self.cold {
            Some("the trace does not say what was used last before its windows: record it again")
        } else if self.stale {
            Some("its TLBs hold more than the 8192 pages with which windows of older traces begin: record again")
        } else if self.turns > TURNS {
            Some("several processes that take turns: how often is the recording's, and differs between two of them")
        } else if self.threads > 1 {
            Some(
                "several threads: how their accesses are interleaved is the recording's, and differs between two of them",
            )
        } else if self.core_turns > TURNS {
            Some("threads take turns on a core, and a window knows its own thread alone: give more --cores")
        } else if self.windows.len() < LEAST_WINDOWS {
            Some("fewer than 30 windows: record with a shorter period, or without --sample")
        } else {
            None
        }
    }

    /// Sets the errors of a row by itself.
    pub(crate) fn own_errors(&self, sampled: &mut Sampled) {
        sampled.why_no_interval = self.why_no_interval().map(Into::into);
        sampled.tlb_misses_error = self.error(Estimated::misses, self.rare());
        let rare = self.rare_cost(|walks| walks.references);
        sampled.walk_memory_references_error = self.error(|counts| counts.walk_references, rare);
        sampled.cycles_error = self.error(Estimated::translation, self.rare_cycles());
    }

    /// Whether rows of both can be compared: a run that ended early has different windows.
    pub(crate) fn has_windows_of(&self, theirs: &Evidence) -> bool {
        self.windows.len() == theirs.windows.len()
    }

    /// The error of the misses saved against `theirs`, in percent. What few windows show in both
    /// rows is equal only if both are the `same` row.
    pub(crate) fn reduction_error(&self, theirs: &Evidence, same: bool) -> Option<f64> {
        let ratio = |basis| self.counts(basis).misses() / theirs.counts(basis).misses();
        let few = self.rare() + theirs.rare() * ratio(Basis::All) + self.apart(theirs);
        let least = if same { 0.0 } else { few };
        self.ratio_error(|basis| 100.0 * ratio(basis), 100.0 * least / theirs.counts(Basis::All).misses())
    }

    /// The error of the speedup against `theirs`, where the two rows have these cycles.
    pub(crate) fn speedup_error(&self, theirs: &Evidence, cycles: [u64; 2], same: bool) -> Option<f64> {
        // All other cycles are known.
        let rest = |cycles: u64, evidence: &Evidence| cycles as f64 - evidence.counts(Basis::All).translation();
        let rests = (rest(cycles[0], self), rest(cycles[1], theirs));
        let own_time = |basis| rests.0 + self.counts(basis).translation();
        let their_time = |basis| rests.1 + theirs.counts(basis).translation();
        let speedup = |basis| their_time(basis) / own_time(basis);
        let few = theirs.rare_cycles() + self.rare_cycles() * speedup(Basis::All);
        self.ratio_error(speedup, if same { 0.0 } else { few } / own_time(Basis::All))
    }

    /// Half the width of the 95 % interval of a value of the estimated counts, by its spread over
    /// the windows.
    fn spread(&self, value: impl Fn(Basis) -> f64) -> Option<f64> {
        if self.why_no_interval().is_some() {
            return None;
        }
        let (all, mut first, mut squares, mut parts) = (value(Basis::All), 0, Vec::new(), None);
        for stratum in &self.strata {
            let end = first + stratum.windows.iter().sum::<usize>();
            let n = (end - first) as f64;
            let moved: Vec<f64> = (first..end).map(|at| n * all - (n - 1.0) * value(Basis::Without(at))).collect();
            first = end;
            // In parts of the variance in which those of the first stratum are.
            let own = 2.0 * n * (n - 1.0);
            let scale = *parts.get_or_insert(own) / own;
            let line = stratum.neighbours(&moved, all);
            squares.extend(line.windows(2).map(|pair| scale * (pair[0] - pair[1]).powi(2)));
        }
        let measured: u64 = self.windows.iter().map(|(window, _)| window.accesses).sum();
        let left_out = 1.0 - measured as f64 / (self.accesses - self.known.accesses as f64);
        let variance = left_out * squares.iter().sum::<f64>() / parts?;
        Some(student(freedom(&squares)) * variance.sqrt())
    }

    /// Half the width of the interval of a ratio of counts: at least `least`, and more by as much
    /// as the ratio moves where estimates are below what was recorded.
    fn ratio_error(&self, ratio: impl Fn(Basis) -> f64, least: f64) -> Option<f64> {
        Some(self.spread(&ratio)?.max(least) + (ratio(Basis::Recorded) - ratio(Basis::All)).abs())
    }

    /// Half the width of the interval of a count, in the same way. Where bursts decide a count, its
    /// variance grows with it, as that of a Poisson count of bursts does: then a sample that met
    /// few of them shows less of both. So the interval is the score interval, whose upper end has a
    /// variance of its own. It is wider than the spread only where that is not small against the
    /// count.
    fn error(&self, count: impl Fn(&Estimated) -> f64, least: f64) -> Option<f64> {
        let count = |basis| count(&self.counts(basis));
        let [known, all, recorded] = [Basis::Known, Basis::All, Basis::Recorded].map(count);
        let spread = self.spread(count)?;
        let grows = if all > known { spread.powi(2) / (all - known) } else { 0.0 };
        let score = grows / 2.0 + (grows * (recorded - known) + grows.powi(2) / 4.0).sqrt();
        Some(score.max(least) + recorded - all)
    }

    /// Misses that are still possible where few windows contain any, or none, so that they do not
    /// differ: the score interval of a Poisson count of such windows, times their average number of
    /// misses, scaled to the whole. Misses come in clusters, so it is not misses that are counted.
    /// 0 if more windows contain some: then their spread shows the error.
    fn rare(&self) -> f64 {
        self.rare_of(|window| window.others.count())
    }

    /// As `rare`, for any count of a window.
    fn rare_of(&self, count: impl Fn(&WindowCounts) -> u64) -> f64 {
        let counts = || self.windows.iter().map(|(window, _)| count(window));
        let holding = counts().filter(|count| *count > 0).count() as f64;
        if holding >= RARE {
            return 0.0;
        }
        // Without any, as many as a window finds while it warms up.
        let together = match holding {
            0.0 => count(&self.recorded) as f64 / self.windows.len().max(1) as f64,
            _ => counts().sum::<u64>() as f64 / holding,
        };
        (1.92 + 1.96 * (holding + 0.96).sqrt()) * together.max(1.0) * self.factor()
    }

    /// Misses by which two rows may differ where few windows differ, or none, so that leaving one
    /// out tells little: the score interval as in [`rare`](Evidence::rare), and the difference of
    /// all that was recorded, also while windows warmed up. 0 if more windows differ.
    fn apart(&self, theirs: &Evidence) -> f64 {
        let both = self.windows.iter().zip(&theirs.windows);
        let differences =
            || both.clone().map(|((own, _), (their, _))| own.others.count().abs_diff(their.others.count()));
        let differing = differences().filter(|difference| *difference > 0).count() as f64;
        if differing >= RARE {
            return 0.0;
        }
        let together = if differing > 0.0 { differences().sum::<u64>() as f64 / differing } else { 0.0 };
        let recorded = self.recorded.others.count().abs_diff(theirs.recorded.others.count());
        (1.92 + 1.96 * (differing + 0.96).sqrt()) * together * self.factor() + recorded as f64
    }

    /// As [`rare`](Evidence::rare), as a cost: misses times the mean cost of a walk.
    fn rare_cost(&self, cost: impl Fn(&Walks) -> u64) -> f64 {
        let WindowCounts { faulting, others, .. } = self.recorded;
        let walks = if others.count() > 0 { others } else { faulting };
        self.rare() * cost(&walks) as f64 / walks.count().max(1) as f64
    }

    /// As `rare_cost`, in cycles, with rare hits in later levels.
    fn rare_cycles(&self) -> f64 {
        let hits = |tally: &WindowCounts| tally.later_hits.iter().sum::<u64>();
        let all = hits(&self.recorded);
        let each = self.recorded.tlb_hit_cycles as f64 / all.max(1) as f64;
        let hits = if all > 0 { self.rare_of(hits) * each } else { 0.0 };
        hits + self.rare_cost(|walks| walks.cycles)
    }
}

/// `all / part`, or 0 where nothing was measured.
fn ratio(all: f64, part: f64) -> f64 {
    if part <= 0.0 { 0.0 } else { all / part }
}

/// Estimates are ratios, and with fewer windows the errors of ratios are not those of large
/// samples: Cochran's working rule, section 6.4. Besides, each period is then so large a part of
/// the stream that a single unusual one, as the first may be, decides the result.
const LEAST_WINDOWS: usize = 30;

/// A shell and what it starts change places a few times; more is a program whose processes work
/// together.
const TURNS: u64 = 8;

/// Below this number, windows that contain misses say little about their spread.
const RARE: f64 = 10.0;

/// Sets the errors of a row of a sampled stream.
pub(crate) fn own_errors(row: &mut Row, evidence: Option<&Evidence>) {
    let (Some(sampled), Some(evidence)) = (&mut row.sampled, evidence) else { return };
    // The page daemon runs when memory is short, and a process is killed when there is none.
    sampled.kernel_exact = row.daemon_runs == 0 && row.error.is_none();
    if sampled.kernel_exact {
        evidence.own_errors(sampled);
    }
}

/// Sets the errors of the figures that compare a row of a sampled stream with `base`.
pub(crate) fn compared_errors(row: &mut Row, own: Option<&Evidence>, base: &Row, theirs: Option<&Evidence>) {
    let (Some(own), Some(theirs)) = (own, theirs) else { return };
    let same = row.is_base();
    let Some(sampled) = &mut row.sampled else { return };
    let base_exact = base.sampled.as_ref().is_some_and(|base| base.kernel_exact);
    if !sampled.kernel_exact || !base_exact || !own.has_windows_of(theirs) {
        return;
    }
    if row.tlb_miss_reduction_percent.is_some() {
        sampled.tlb_miss_reduction_percent_error = own.reduction_error(theirs, same);
    }
    if row.speedup.is_some() {
        sampled.speedup_error = own.speedup_error(theirs, [row.cycles, base.cycles], same);
    }
}

#[cfg(test)]
mod tests;
