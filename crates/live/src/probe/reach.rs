//! TLB levels, their entries, the cost of a hit in the second, and the cost of a walk: from curves
//! of latency.
//!
//! One line per page is touched, one cache line further in each page, so that lines spread over the
//! sets of the caches. The cost of as many adjacent lines is subtracted: the rest is translation.
//! Base pages are in scattered frames, so that a TLB that coalesces neighbours finds none. Pages of
//! 2 MB are one page of a memory file, mapped many times: a TLB cannot know.

use super::curve::{Curve, adjacent, base_pages, grid, huge_pages};
use super::memory::{Aliases, BASE, HUGE, Memory};
use super::steps::{Step, median, steps};
use super::{Finding, Options};
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_linux::Error;

/// Two data TLB levels are the most that any processor is known to have: later steps are of walks.
const LEVELS: usize = 2;

/// What the curves said, for the findings that build on it.
pub(crate) struct Reach {
    /// The steps that end the levels for base pages, as far as they could be seen.
    pub(crate) base: Vec<Step>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) curves: Vec<Curve>,
}

/// Stopped, it ends after the round in hand.
pub(crate) fn measure(options: &Options, stop: &AtomicBool, hertz: f64) -> Result<Reach, Error> {
    let most = if options.quick { 8192 } else { 16384 };
    let (in_octave, rounds) = if options.quick { (6, 2) } else { (10, 5) };
    let grid = grid(most, in_octave);
    let names = ["adjacent lines", "4K pages", "2M pages", "4K pages, 2M apart"];
    let mut best = names.map(|name| Curve::new(name, &grid));
    let mut seen: Vec<[Vec<Step>; 2]> = Vec::new();
    let aliases = Aliases::new(most);
    let mut round = 0;
    let stopped = |round| round > 0 && stop.load(Ordering::Relaxed);
    while (round < rounds || round < 2 * rounds && !agree(&seen)) && !stopped(round) {
        let scattered = Memory::scattered(most * BASE)?;
        let adjacent_lines = Memory::huge((64 * most).next_multiple_of(HUGE))?;
        let apart = Memory::new(most * HUGE)?;
        apart.advise(libc::MADV_NOHUGEPAGE)?;
        let mut now = names.map(|name| Curve::new(name, &grid));
        for (point, pages) in grid.iter().enumerate() {
            let mut all = vec![(0, &adjacent_lines, adjacent(*pages)), (1, &scattered, base_pages(*pages))];
            if let Ok(aliases) = &aliases {
                all.push((2, aliases.memory(), huge_pages(*pages)));
            }
            // Page tables for each page: bounded.
            if *pages <= 4096 {
                all.push((3, &apart, huge_pages(*pages)));
            }
            for (which, memory, lines) in all {
                let time = now[which].measure(point, memory, lines, round as u64);
                best[which].points[point][1] = best[which].points[point][1].min(time);
            }
        }
        seen.push([1, 2].map(|which| levels(&now[which], &now[0], hertz)));
        round += 1;
    }
    for curve in &mut best {
        curve.points.retain(|point| point[1].is_finite());
    }
    let mut findings = Vec::new();
    for (which, size) in [(1, "4K"), (2, "2M")] {
        if let (2, Err(error)) = (which, &aliases) {
            findings.push(Finding::unknown("tlb.levels.2M", "TLB levels for pages of 2M", error.to_string()));
            continue;
        }
        let found = levels(&best[which], &best[0], hertz);
        let rounds: Vec<&Vec<Step>> = seen.iter().map(|round| &round[which - 1]).collect();
        findings.extend(findings_of(size, &found, &rounds, most));
    }
    for (which, name, what) in [
        (1, "walk.near", "page walk beyond the last TLB level, pages side by side"),
        (3, "walk.far", "page walk beyond the last TLB level, pages 2 MB apart"),
    ] {
        findings.push(walk(name, what, &Best { curves: &best, hertz, rounds: seen.len() }, which));
    }
    let base = levels(&best[1], &best[0], hertz);
    Ok(Reach { base, findings, curves: best.into_iter().filter(|curve| !curve.points.is_empty()).collect() })
}

/// The steps that end TLB levels.
fn levels(curve: &Curve, data: &Curve, hertz: f64) -> Vec<Step> {
    if curve.points.iter().any(|point| !point[1].is_finite()) {
        return Vec::new();
    }
    let mut steps = steps(&curve.beyond(data, hertz));
    steps.truncate(LEVELS);
    steps
}

/// The entries of a level whose end the step is. In the first, where a set is all or much of it,
/// misses begin beyond the last entry, whatever the replacement. In the second some sets are full
/// early, and others late: half of the step.
pub(crate) fn entries(level: usize, step: &Step) -> f64 {
    if level == 0 { step.begins.floor() } else { step.at.round() }
}

/// How near values lie to one of them, within a sixth: a share.
fn share_near(values: &[Option<f64>], of: f64) -> f64 {
    let near = values.iter().filter(|value| value.is_some_and(|value| (value / of).log2().abs() < 0.25)).count();
    near as f64 / values.len() as f64
}

/// Whether most rounds say the same of base pages.
fn agree(seen: &[[Vec<Step>; 2]]) -> bool {
    (0..LEVELS).all(|level| {
        let values: Vec<Option<f64>> = seen.iter().map(|round| round[0].get(level).map(|step| step.at)).collect();
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        !known.is_empty() && share_near(&values, median(known.into_iter())) >= 0.75
    })
}

fn findings_of(size: &str, found: &[Step], rounds: &[&Vec<Step>], most: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let same = rounds.iter().filter(|round| round.len() == found.len()).count();
    let evidence = format!("{} of {} rounds show as many steps up to {most} pages", same, rounds.len());
    let (name, what) = (format!("tlb.levels.{size}"), format!("TLB levels for pages of {size}"));
    findings.push(Finding::number(&name, &what, found.len() as f64, same as f64 / rounds.len() as f64, evidence));
    for level in 0..LEVELS {
        let name = format!("tlb.l{}.entries.{size}", level + 1);
        let what = format!("entries of TLB level {} for pages of {size}", level + 1);
        let Some(step) = found.get(level) else {
            let because = format!("the latency has no step up to {most} pages");
            findings.push(Finding::unknown(&name, &what, because));
            continue;
        };
        let values: Vec<Option<f64>> = rounds.iter().map(|round| round.get(level).map(|step| step.at)).collect();
        let evidence = format!(
            "translation costs {:.1} cycles below and {:.1} above; misses begin at {:.0} pages, half of the step is at {:.0}",
            step.low, step.high, step.begins, step.at
        );
        findings.push(match share_near(&values, step.at) {
            0.0 => Finding::unknown(&name, &what, format!("no round alone shows that step: {evidence}")),
            share => Finding::number(&name, &what, entries(level, step), share, evidence).unit("entries"),
        });
    }
    if let [first, _, ..] = found {
        let costs: Vec<Option<f64>> =
            rounds.iter().map(|round| round.first().map(|step| step.high - step.low)).collect();
        let cost = first.high - first.low;
        let (name, what) = (format!("tlb.l2.hit.{size}"), format!("hit in TLB level 2, pages of {size}"));
        let evidence = format!("between {:.0} pages and the next step it costs that much more", first.at);
        findings.push(Finding::number(&name, &what, cost, share_near(&costs, cost), evidence).unit("cycles"));
    }
    findings
}

/// The best curves of all rounds.
struct Best<'a> {
    curves: &'a [Curve; 4],
    hertz: f64,
    rounds: usize,
}

/// What misses in the last level cost beyond hits there, by one of the curves: at twice the pages
/// that it holds, so that nearly all miss.
fn walk(name: &str, what: &str, best: &Best, which: usize) -> Finding {
    let Best { curves, hertz, rounds } = *best;
    let found = levels(&curves[1], &curves[0], hertz);
    let [.., last] = found.as_slice() else {
        return Finding::unknown(name, what, "no TLB level was found".into());
    };
    let beyond = curves[which].beyond(&curves[0], hertz);
    let far = 2.0 * last.at;
    let Some([pages, cost]) = beyond.iter().find(|point| point[0] >= far).or(beyond.last()).copied() else {
        return Finding::unknown(name, what, format!("nothing was measured at {far:.0} pages"));
    };
    if pages < 1.25 * last.at {
        return Finding::unknown(name, what, format!("{pages:.0} pages are too few to miss in {:.0} entries", last.at));
    }
    let cycles = cost - last.low;
    let near = beyond.iter().filter(|point| point[0] >= 0.8 * pages && point[0] <= 1.25 * pages);
    let around: Vec<Option<f64>> = near.map(|point| Some(point[1] - last.low)).collect();
    let evidence = format!(
        "at {pages:.0} pages a load costs {cost:.1} cycles of translation, {:.1} of them a hit in the last level; {:.1} ns; \
         least of {rounds} rounds",
        last.low,
        cycles * 1e9 / hertz
    );
    Finding::number(name, what, cycles, share_near(&around, cycles), evidence).unit("cycles")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_no_round_shows_is_no_answer() {
        let step = |at| Step { at, begins: at, low: 7.0, high: 8.5 };
        let of = |rounds: [f64; 2]| {
            let rounds = rounds.map(|at| vec![step(at)]);
            let findings = findings_of("2M", &[step(983.0)], &rounds.iter().collect::<Vec<_>>(), 4096);
            let entries = findings.into_iter().find(|finding| finding.name == "tlb.l1.entries.2M").unwrap();
            (entries.value.is_some(), entries.evidence)
        };
        assert!(of([983.0, 64.0]).0);
        let (known, why) = of([32.0, 64.0]);
        assert!(!known && why.starts_with("could not be determined, because no round alone shows that step"), "{why}");
    }
}
