//! Which policy to use, and how certain that is.
//!
//! The rule: of the policies that are significantly faster than the reference (the system as it
//! is), the one with the lowest estimate is the best. Another that is also significantly faster,
//! and whose estimate lies within the interval of the best, is as good: the one of them that needs
//! the least memory is recommended. Less memory means at least 1 % less at the median peak. If no
//! policy is significantly faster, the reference is recommended. A policy that affected none of the
//! program's memory is never recommended, and its time is not mentioned; nor is one that was
//! measured while settings of the system differed, or whose runs ended with other statuses than the
//! reference's. Another that takes twice the reference's memory, and 64 MB more, is named with it.

use super::row::{Row, Verdict};
use super::statistics::{LEVEL, rounds_needed};
use serde::Serialize;
use superpage_report::bytes;

/// The recommendation that follows from the rows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The policy to use; none if there are too few runs to say.
    pub policy: Option<String>,
    /// The recommendation in one line.
    pub sentence: String,
}

/// The smallest difference of memory that counts.
const LESS: f64 = 0.99;
/// Memory that is clearly more: by this factor of the reference's, and by this many bytes.
const CLEARLY: (u64, u64) = (2, 64 << 20);

/// What `rows` advise: the reference first, at least one. The policies in `left_out` were not
/// compared, so that nothing is said of them but that.
pub(super) fn advise(rows: &[Row], left_out: &[String]) -> Advice {
    let mut advice = of_compared(rows, if left_out.is_empty() { Among::All } else { Among::Some });
    advice.sentence += &costly(rows, &advice);
    if !left_out.is_empty() {
        advice.sentence += &format!("; not compared, as said below: {}", left_out.join(", "));
    }
    advice
}

/// Whether all policies that were asked for are compared.
#[derive(Clone, Copy)]
enum Among {
    All,
    Some,
}

impl Among {
    /// The reference is best.
    fn stay(self, reference: &str) -> String {
        match self {
            Among::All => format!("stay with {reference}"),
            Among::Some => format!("of what was compared nothing is surely better than {reference}"),
        }
    }
}

fn of_compared(rows: &[Row], among: Among) -> Advice {
    let (reference, others) = rows.split_first().expect("the reference always runs");
    let ratio = |row: &Row| row.time_ratio.expect("every row but the first has one");
    let Some(level) = others.iter().map(|row| ratio(row).level).reduce(f64::min) else {
        let sentence = format!("only {} was run: there is nothing to compare", reference.policy);
        return Advice { policy: None, sentence };
    };
    let name = &reference.policy;
    let differs = |row: &&Row| matches!(row.verdict, Some(Verdict::SettingsDiffered | Verdict::StatusesDiffer));
    let comparable: Vec<&Row> = others.iter().filter(|row| !differs(row)).collect();
    if comparable.is_empty() && others.iter().any(|row| row.verdict == Some(Verdict::StatusesDiffer)) {
        let sentence =
            format!("no other policy's runs ended with the statuses of those of {name}: no advice; see what fails");
        return Advice { policy: None, sentence };
    }
    if comparable.is_empty() {
        let whose = if reference.settings_differed > 0 { name } else { "every other policy" };
        let sentence = format!(
            "settings of this system differed while {whose} was measured: no advice; compare once nobody changes them"
        );
        return Advice { policy: None, sentence };
    }
    let reached: Vec<&Row> = comparable.into_iter().filter(|row| row.reached != Some(false)).collect();
    if reached.is_empty() {
        let sentence = format!("{}: no policy reached anything of this program's memory", among.stay(name));
        return Advice { policy: Some(name.clone()), sentence };
    }
    if others.iter().any(|row| !ratio(row).sure) {
        let needed = rounds_needed(others.len());
        let (runs, least) = (reference.runs, percent(LEVEL));
        let sure = if level > 0.0 {
            format!("the intervals are {} sure together", percent(level))
        } else {
            "no interval is sure".to_string()
        };
        let sentence = format!("too few runs to advise: with {runs} {sure}; {needed} runs are the least for {least}");
        return Advice { policy: None, sentence };
    }
    let faster = reached.iter().copied().filter(|row| ratio(row).differs() && ratio(row).high < 1.0);
    let mut faster: Vec<&Row> = faster.collect();
    faster.sort_by(|a, b| ratio(a).estimate.total_cmp(&ratio(b).estimate));
    let Some(&best) = faster.first() else {
        return Advice { policy: Some(reference.policy.clone()), sentence: stay(reference, &reached, among) };
    };
    let mut chosen = best;
    for row in faster.iter().filter(|row| ratio(row).estimate <= ratio(best).high) {
        if (row.peak_rss_bytes as f64) < LESS * chosen.peak_rss_bytes as f64 {
            chosen = row;
        }
    }
    let found = ratio(chosen);
    let of = if reference.requests_per_second.is_some() { " per request" } else { "" };
    let mut sentence = format!(
        "{}: {} less time{of} than {} ({} sure: {} to {}), {}",
        chosen.policy,
        percent(1.0 - found.estimate),
        reference.policy,
        percent(LEVEL),
        digits(1.0 - found.high),
        percent(1.0 - found.low),
        memory(chosen, reference, "for")
    );
    if chosen.policy != best.policy {
        sentence += &format!("; {} is not surely faster than it, {}", best.policy, memory(best, chosen, "and needs"));
    }
    Advice { policy: Some(chosen.policy.clone()), sentence }
}

/// The policies that take clearly more memory than the reference, without the one that is advised.
fn costly(rows: &[Row], advice: &Advice) -> String {
    let now = rows[0].peak_rss_bytes;
    let clearly = |row: &&Row| {
        let peak = row.peak_rss_bytes;
        let other = row.reached != Some(false) && row.is_comparable() && advice.policy.as_ref() != Some(&row.policy);
        other && peak >= CLEARLY.0 * now && peak >= now + CLEARLY.1
    };
    let takes = |row: &Row| format!("{} takes {} of memory", row.policy, bytes(row.peak_rss_bytes));
    let names: Vec<String> = rows[1..].iter().filter(clearly).map(takes).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("; {}, {} {}", names.join(", "), rows[0].policy, bytes(now))
}

/// A sentence if the time of a policy that did nothing differs by as much as one with a verdict.
pub(super) fn as_far(rows: &[Row]) -> Option<String> {
    let moved = |row: &Row| row.time_ratio.map_or(0.0, |ratio| ratio.estimate.ln().abs());
    let of = |verdicts: &'static [Verdict]| {
        rows.iter().filter(move |row| row.verdict.is_some_and(|verdict| verdicts.contains(&verdict)))
    };
    let idle = of(&[Verdict::NothingReached]).max_by(|a, b| moved(a).total_cmp(&moved(b)))?;
    let alike: Vec<&str> = of(&[Verdict::Faster, Verdict::Slower])
        .filter(|row| moved(row) <= moved(idle))
        .map(|row| row.policy.as_str())
        .collect();
    (!alike.is_empty()).then(|| {
        let by = percent((idle.time_ratio.map_or(1.0, |ratio| ratio.estimate) - 1.0).abs());
        format!(
            "{} did nothing, and its time differs by {by} all the same, as much as that of {}: trust that less, and \
             compare while this machine is quiet",
            idle.policy,
            alike.join(", ")
        )
    })
}

/// The reference, and why.
fn stay(reference: &Row, others: &[&Row], among: Among) -> String {
    let ratios = || others.iter().filter_map(|row| row.time_ratio.map(|ratio| (row, ratio)));
    let slower: Vec<String> = ratios()
        .filter(|(_, ratio)| ratio.differs())
        .map(|(row, ratio)| {
            let (low, high) = (digits(ratio.low - 1.0), percent(ratio.high - 1.0));
            format!("{} takes {} more time ({low} to {high})", row.policy, percent(ratio.estimate - 1.0))
        })
        .collect();
    let smallest = ratios().map(|(_, ratio)| ratio.resolution()).fold(0.0, f64::max);
    let stay = among.stay(&reference.policy);
    let seen = if smallest > 1.0 {
        let which = if slower.is_empty() { "any" } else { "another" };
        format!("this machine is too busy to see {which} effect: compare while it is quiet")
    } else {
        let (smallest, level) = (percent(smallest), percent(LEVEL));
        format!("the smallest effect that could have been seen is {smallest}, {level} sure")
    };
    if slower.is_empty() {
        return format!("no difference was found; {stay} ({seen})");
    }
    format!("{stay}: no policy is surely faster, {}; {seen}", slower.join(", "))
}

/// A sentence if the ratio of a row and the medians of its times are on different sides of the
/// reference, both as they are shown.
pub(super) fn other_side(rows: &[Row]) -> Option<String> {
    let reference = rows.first()?;
    let shown = |ratio: f64| (1e3 * (ratio - 1.0)).round();
    let differs = |row: &&Row| {
        let (Some(ratio), Some(verdict)) = (row.time_ratio, row.verdict) else { return false };
        let medians = row.wall_seconds.median / reference.wall_seconds.median;
        verdict != Verdict::NothingReached && row.is_comparable() && shown(medians) * shown(ratio.estimate) < 0.0
    };
    let names: Vec<&str> = rows.iter().filter(differs).map(|row| row.policy.as_str()).collect();
    let name = &reference.policy;
    (!names.is_empty()).then(|| {
        format!(
            "time / {name} of {} says otherwise than the medians: it compares the two runs of each round, so that it \
             depends less on how the machine changes between rounds",
            names.join(", ")
        )
    })
}

/// What `row` needs compared with `other`: "for 12 % more memory".
fn memory(row: &Row, other: &Row, word: &str) -> String {
    let ratio = row.peak_rss_bytes as f64 / other.peak_rss_bytes.max(1) as f64;
    match ratio {
        ratio if ratio < LESS => format!("{word} {} less memory", percent(1.0 - ratio)),
        ratio if ratio > 1.0 / LESS => format!("{word} {} more memory", percent(ratio - 1.0)),
        _ => format!("{word} the same memory"),
    }
}

/// A share as a percentage with two or three digits.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", digits(share))
}

fn digits(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.abs() {
        size if size < 9.95 && (percent - percent.round()).abs() > 1e-9 => format!("{percent:.1}"),
        _ => format!("{percent:.0}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::compare::row::{Labels, Run};
    use crate::compare::statistics::Family;
    use crate::compare::{Comparison, End};
    use crate::sample::Memory;

    /// A whole comparison of ten rounds.
    pub(in crate::compare) fn comparison(rows: Vec<Row>) -> Comparison {
        let (command, notes) = ("x".into(), Vec::new());
        Comparison { command, seed: 1, rounds: 10, of: 10, end: End::Whole, rows, advice: None, notes }
    }

    /// A row whose time in round r is `times[r]`.
    pub(in crate::compare) fn row(
        policy: &str,
        times: &[f64],
        memory: u64,
        base: Option<(&[f64], impl Into<Family>)>,
    ) -> Row {
        let run = |wall: &f64| Run {
            wall: *wall,
            user: *wall,
            system: 0.0,
            minor_faults: 1,
            major_faults: 0,
            memory: Memory { peak: memory, ..Memory::default() },
            counts: Vec::new(),
            code: 0,
            warmed: 0,
            free_blocks: None,
            differed: None,
            load: None,
        };
        let runs: Vec<Run> = times.iter().map(run).collect();
        let base = base.map(|(times, family)| (times, family.into()));
        let labels = Labels { command: "cmd", policy, memory_before: "metal" };
        Row::of(labels, &runs.iter().collect::<Vec<_>>(), &[], base)
    }

    /// Ten rounds; each policy has a factor, and how much it varies about it, and its memory.
    fn advice(rounds: usize, policies: &[(&str, f64, f64, u64)]) -> Advice {
        let base: Vec<f64> = (0..rounds).map(|round| 1.0 + 0.01 * round as f64).collect();
        let mut rows = vec![row("now", &base, 100 << 20, None::<(&[f64], usize)>)];
        for (name, factor, noise, memory) in policies {
            let vary = |round: usize| 1.0 + noise * ((round * 7 % 10) as f64 - 4.5);
            let times: Vec<f64> = base.iter().enumerate().map(|(round, time)| time * factor * vary(round)).collect();
            rows.push(row(name, &times, *memory, Some((&base, policies.len()))));
        }
        advise(&rows, &[])
    }

    #[test]
    fn the_fastest_is_advised_with_its_cost() {
        let advice = advice(10, &[("thp", 0.9, 0.001, 112 << 20), ("hugetlb", 1.0, 0.001, 100 << 20)]);
        assert_eq!(advice.policy.as_deref(), Some("thp"));
        assert!(advice.sentence.starts_with("thp: 10 % less time than now (95 % sure: "), "{}", advice.sentence);
        assert!(advice.sentence.ends_with("for 12 % more memory"), "{}", advice.sentence);
    }

    #[test]
    fn what_is_as_good_for_less_memory_is_preferred() {
        let advice = advice(10, &[("thp", 0.9, 0.004, 150 << 20), ("promote", 0.901, 0.004, 100 << 20)]);
        assert_eq!(advice.policy.as_deref(), Some("promote"));
        assert!(
            advice.sentence.contains("thp is not surely faster than it, and needs 50 % more"),
            "{}",
            advice.sentence
        );
    }

    #[test]
    fn what_is_surely_slower_than_the_best_is_not_preferred_for_its_memory() {
        let advice = advice(10, &[("thp", 0.9, 0.001, 150 << 20), ("promote", 0.95, 0.001, 100 << 20)]);
        assert_eq!(advice.policy.as_deref(), Some("thp"));
    }

    #[test]
    fn without_a_difference_all_stays() {
        let none = advice(10, &[("thp", 1.0, 0.004, 150 << 20)]);
        assert_eq!(none.policy.as_deref(), Some("now"));
        assert!(none.sentence.starts_with("no difference was found; stay with now (the smallest"), "{}", none.sentence);
        let slower = advice(10, &[("thp", 1.1, 0.004, 150 << 20)]);
        assert_eq!(slower.policy.as_deref(), Some("now"));
        assert!(slower.sentence.contains("thp takes 10 % more time"), "{}", slower.sentence);
    }

    #[test]
    fn what_takes_clearly_more_memory_is_named() {
        let said = |factor, memory| advice(10, &[("thp", factor, 0.004, memory)]).sentence;
        let same = said(1.0, 520 << 20);
        assert!(same.starts_with("no difference was found; stay with now ("), "{same}");
        assert!(same.ends_with("; thp takes 520 MB of memory, now 100 MB"), "{same}");
        assert!(!said(1.0, 199 << 20).contains("of memory"));
        assert!(said(0.5, 520 << 20).ends_with("for 420 % more memory"), "it is said of what is advised already");
    }

    #[test]
    fn what_reached_nothing_has_no_verdict_whatever_its_time() {
        let base: Vec<f64> = (0..10).map(|round| 1.0 + 0.01 * round as f64).collect();
        let less: Vec<f64> = base.iter().map(|time| 0.79 * time).collect();
        let more: Vec<f64> = base.iter().map(|time| 1.2 * time).collect();
        let mut rows = vec![
            row("now", &base, 620 << 20, None::<(&[f64], usize)>),
            row("promote", &less, 620 << 20, Some((&base, 2))),
            row("thp", &more, 620 << 20, Some((&base, 2))),
        ];
        rows[1].tell("promoted 0 of 12 candidate regions".into(), Some(false), None);
        rows[2].tell("nothing".into(), Some(false), None);
        assert_eq!(rows[1].verdict, Some(Verdict::NothingReached));
        assert_eq!(as_far(&rows), None, "nothing has a verdict");
        rows[2].tell("all of it huge".into(), Some(true), None);
        let said = as_far(&rows).unwrap();
        assert!(
            said.starts_with("promote did nothing, and its time differs by 21 %") && said.contains("of thp:"),
            "{said}"
        );
        rows[2].tell("nothing".into(), Some(false), None);
        let advice = advise(&rows, &[]);
        assert_eq!(advice.policy.as_deref(), Some("now"));
        assert_eq!(advice.sentence, "stay with now: no policy reached anything of this program's memory");
        // Where it is not known whether it reached anything, the time counts; and the others are
        // not forgotten.
        rows[1].tell(String::new(), None, None);
        assert_eq!(rows[1].verdict, Some(Verdict::Faster));
        assert_eq!(advise(&rows, &[]).policy.as_deref(), Some("promote"));
        rows[1].tell(String::new(), Some(false), None);
        rows[2].tell(String::new(), Some(true), None);
        let advice = advise(&rows, &[]);
        assert_eq!((advice.policy.as_deref(), rows[2].verdict), (Some("now"), Some(Verdict::Slower)));
        assert!(advice.sentence.contains("thp takes 20 % more time") && !advice.sentence.contains("promote"));
    }

    #[test]
    fn what_was_measured_under_other_settings_has_no_verdict() {
        let base: Vec<f64> = (0..10).map(|round| 1.0 + 0.01 * round as f64).collect();
        let less: Vec<f64> = base.iter().map(|time| 0.79 * time).collect();
        let mut rows = vec![
            row("now", &base, 620 << 20, None::<(&[f64], usize)>),
            row("promote", &less, 620 << 20, Some((&base, 2))),
            row("base", &less, 620 << 20, Some((&base, 2))),
        ];
        rows[1].settings_differed = 1;
        rows[1].tell(String::new(), Some(true), None);
        rows[2].tell(String::new(), Some(true), None);
        assert_eq!((rows[1].verdict, rows[2].verdict), (Some(Verdict::SettingsDiffered), Some(Verdict::Faster)));
        assert_eq!(advise(&rows, &[]).policy.as_deref(), Some("base"));
        // Without a reference nothing can be compared.
        rows[0].settings_differed = 1;
        rows[2].tell(String::new(), Some(true), Some(Verdict::SettingsDiffered));
        let advice = advise(&rows, &[]);
        assert_eq!((advice.policy.as_deref(), rows[2].verdict), (None, Some(Verdict::SettingsDiffered)));
        assert!(advice.sentence.starts_with("settings of this system differed while now was measured"), "{advice:?}");
    }

    #[test]
    fn what_fails_otherwise_is_not_advised() {
        let base: Vec<f64> = (0..10).map(|round| 1.0 + 0.01 * round as f64).collect();
        let less: Vec<f64> = base.iter().map(|time| 0.4 * time).collect();
        let mut rows =
            vec![row("now", &base, 1 << 20, None::<(&[f64], usize)>), row("thp", &less, 1 << 20, Some((&base, 1)))];
        rows[1].tell(String::new(), Some(true), Some(Verdict::StatusesDiffer));
        let advice = advise(&rows, &[]);
        assert_eq!(advice.policy, None);
        assert!(advice.sentence.ends_with("no advice; see what fails"), "{advice:?}");
    }

    #[test]
    fn too_few_runs_advise_nothing() {
        let advice = advice(3, &[("thp", 0.5, 0.001, 100 << 20)]);
        assert_eq!(advice.policy, None);
        assert!(advice.sentence.ends_with("75 % sure together; 6 runs are the least for 95 %"), "{}", advice.sentence);
        assert_eq!(advise(&[row("now", &[1.0], 1, None::<(&[f64], usize)>)], &[]).policy, None);
    }

    #[test]
    fn what_was_left_out_is_not_compared() {
        let base: Vec<f64> = (0..10).map(|round| 1.0 + 0.01 * f64::from(round)).collect();
        let of = |factor: f64| {
            let times: Vec<f64> = base.iter().map(|time| factor * time).collect();
            let mut rows = vec![row("now", &base, 1 << 20, None::<(&[f64], usize)>)];
            rows.push(row("base", &times, 1 << 20, Some((&base, 1))));
            rows[1].tell(String::new(), Some(true), None);
            rows
        };
        let left_out = ["thp", "hugetlb"].map(String::from);
        for factor in [1.0, 1.2] {
            let said = advise(&of(factor), &left_out).sentence;
            assert!(!said.contains("stay with"), "{said}");
            assert!(said.contains("of what was compared nothing is surely better than now"), "{said}");
            assert!(said.ends_with("; not compared, as said below: thp, hugetlb"), "{said}");
        }
        let mut rows = of(1.0);
        rows[1].tell(String::new(), Some(false), None);
        let said = advise(&rows, &left_out).sentence;
        assert!(
            said.starts_with("of what was compared nothing is surely better than now: no policy reached"),
            "{said}"
        );
    }

    #[test]
    fn an_effect_of_more_than_all_time_is_no_resolution() {
        let said = advice(10, &[("thp", 1.0, 0.215, 1 << 20)]).sentence;
        assert!(
            said.contains("stay with now (this machine is too busy to see any effect") && !said.contains('%'),
            "{said}"
        );
        let said = advice(10, &[("thp", 1.0, 0.215, 1 << 20), ("base", 1.5, 0.001, 1 << 20)]).sentence;
        assert!(said.contains("base takes 50 % more time") && said.contains("to see another effect"), "{said}");
    }

    #[test]
    fn a_ratio_that_contradicts_the_medians_is_explained() {
        // Slower in seven of nine rounds, and the median is less.
        let now = [1.0, 1.1, 1.2, 1.3, 2.0, 2.1, 2.2, 2.3, 2.4];
        let thp = [1.05, 1.15, 1.25, 1.35, 1.4, 2.2, 2.3, 2.4, 2.5];
        let of = |thp: &[f64]| {
            let mut rows = vec![row("now", &now, 1, None::<(&[f64], usize)>), row("thp", thp, 1, Some((&now, 1)))];
            rows[1].tell(String::new(), Some(true), None);
            rows
        };
        let mut rows = of(&thp);
        assert!(rows[1].wall_seconds.median < 2.0 && rows[1].time_ratio.unwrap().estimate > 1.0);
        assert!(other_side(&rows).unwrap().starts_with("time / now of thp says otherwise than the medians: it "));
        rows[1].tell(String::new(), Some(false), None);
        assert_eq!(other_side(&rows), None, "a row that did nothing has no ratio to explain");
        assert_eq!(other_side(&of(&now.map(|time| 1.1 * time))), None);
        assert_eq!(other_side(&of(&now)), None);
    }
}
