//! Estimates and their errors against figures worked out by hand.

use super::super::*;
use super::*;
use crate::Row;

/// Windows of 100 accesses that stand for 1000 each, after 5 first touches; `misses` are those of
/// each window, of 4 references and 100 cycles.
fn evidence(misses: &[u64]) -> Evidence {
    let walks = |count: u64| Walks { data: count, instructions: 0, references: 4 * count, cycles: 100 * count };
    let window = |count: &u64| (WindowCounts { accesses: 100, others: walks(*count), ..WindowCounts::default() }, 1.0);
    let windows: Vec<(WindowCounts, f64)> = misses.iter().map(window).collect();
    let measured = windows.iter().fold(WeightedSum::default(), |sum, (window, weight)| sum.and(window, *weight));
    Evidence {
        strata: vec![Stratum { threads: vec![0], measured, share: 1.0, windows: vec![misses.len()] }],
        known: WindowCounts::default(),
        recorded: WindowCounts { faulting: walks(5), ..WindowCounts::default() },
        accesses: (1000 * windows.len() + 5) as f64,
        windows,
        placed: true,
        forgets: true,
        stale: false,
        cold: false,
        threads: 1,
        turns: 8,
        core_turns: 8,
    }
}

#[track_caller]
fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 1e-4 * expected.abs(), "{value} for {expected}");
}

/// 10 and 14 misses in turn.
fn in_turn() -> Vec<u64> {
    (0..32).map(|window| 10 + 4 * (window % 2)).collect()
}

#[test]
fn quantiles_are_those_of_tables() {
    for (freedom, quantile) in [(1.0, 12.706), (1.5, 6.017), (5.0, 2.571), (30.0, 2.042), (1e12, 1.960)] {
        close(student(freedom), quantile);
    }
    // 2.0003 in truth.
    close(student(60.0), 2.000_57);
}

#[test]
fn a_count_is_what_is_known_and_the_windows_scaled_to_the_rest() {
    let evidence = evidence(&in_turn());
    assert_eq!(evidence.factor(), 10.0);
    let counts = evidence.counts(Basis::All);
    assert_eq!((counts.misses(), counts.walk_references, counts.walk_cycles), (3845.0, 15_380.0, 384_500.0));
    assert_eq!((counts.data_misses, counts.instruction_misses, counts.translation()), (3845.0, 0.0, 384_500.0));
    // Without one that has 14, and without one that has 10.
    close(evidence.counts(Basis::Without(1)).misses(), 5.0 + 370.0 * 32_000.0 / 3100.0);
    close(evidence.counts(Basis::Without(0)).misses(), 5.0 + 374.0 * 32_000.0 / 3100.0);
    assert_eq!(Evidence { strata: Vec::new(), ..evidence }.counts(Basis::All).misses(), 5.0, "nothing was measured");
}

#[test]
fn what_was_measured_completely_is_counted_as_it_is() {
    let plain = evidence(&in_turn());
    let others = Walks { data: 7, instructions: 3, references: 40, cycles: 1000 };
    let known = WindowCounts {
        accesses: 50,
        others,
        faulting: Walks { data: 2, ..Walks::default() },
        ..WindowCounts::default()
    };
    let evidence = Evidence { known, ..plain };
    // 48 accesses of it are no first touches.
    close(evidence.factor(), (32_000.0 - 48.0) / 3200.0);
    close(evidence.counts(Basis::All).misses(), 5.0 + 10.0 + 384.0 * (32_000.0 - 48.0) / 3200.0);
}

#[test]
fn an_error_is_students_times_the_spread_of_neighbours() {
    let evidence = evidence(&in_turn());
    // Each window alone says 5 + 320 times its misses, so neighbours differ by 1280; a tenth of the
    // accesses was measured.
    let spread = (1.0 - 3200.0 / 32_005.0_f64).sqrt() * 1280.0 / 64.0_f64.sqrt();
    let freedom = 2.0 * 31.0_f64.powi(2) / 92.0;
    close(evidence.spread(|basis| evidence.counts(basis).misses()).unwrap(), student(freedom) * spread);
    close(student(freedom) * spread, 315.85);
    assert_eq!(evidence.spread(|_| 7.0), Some(0.0), "what no window changes");
    // Of what was measured completely nothing was left out.
    let known = WindowCounts { accesses: 16_005, ..WindowCounts::default() };
    let half = Evidence { known, ..evidence.clone() };
    let ratio = half.spread(|basis| evidence.counts(basis).misses()).unwrap();
    close(ratio / (student(freedom) * spread), (0.8_f64 / (1.0 - 3200.0 / 32_005.0)).sqrt());
}

#[test]
fn degrees_of_freedom_are_those_of_the_differences() {
    let of = |values: &[f64]| freedom(&values.windows(2).map(|pair| (pair[0] - pair[1]).powi(2)).collect::<Vec<_>>());
    // Squares that are all equal, and no differences at all: no evidence against a normal
    // distribution.
    close(of(&[1.0, 2.0].repeat(50)), 2.0 * 99.0_f64.powi(2) / 296.0);
    close(of(&[7.0; 100]), 2.0 * 99.0_f64.powi(2) / 296.0);
    // One burst among n windows gives two equal squares of n - 1, four such bursts eight.
    let bursts =
        |count: usize| (0..1000).map(|window| f64::from(u8::from(window % (1000 / count) == 20))).collect::<Vec<_>>();
    for count in [1, 2, 4] {
        assert!((of(&bursts(count)) - 2.0 * count as f64).abs() < 0.1 * count as f64, "{}", of(&bursts(count)));
    }
}

#[test]
fn a_spread_that_few_windows_decide_has_few_degrees_of_freedom() {
    let misses = |window: u64| if window % 50 == 7 { 40 } else { 1 };
    let evidence = evidence(&(0..100).map(misses).collect::<Vec<_>>());
    let error = evidence.spread(|basis| evidence.counts(basis).misses()).unwrap();
    // Two bursts of 39 more in 100 windows that stand for ten times their accesses: four squares
    // of 39000.
    let spread = (1.0 - 10_000.0 / 100_005.0_f64).sqrt() * (4.0 * 39_000.0_f64.powi(2) / (2.0 * 100.0 * 99.0)).sqrt();
    assert!(error > 2.7 * spread && error < 2.9 * spread, "{error}: not {} times {spread}", student(4.0));
}

#[test]
fn an_estimate_below_what_was_recorded_is_too_low_by_the_difference() {
    let plain = evidence(&in_turn());
    let others = Walks { data: 4000, instructions: 0, references: 0, cycles: 900_000 };
    let evidence =
        Evidence { recorded: WindowCounts { others, tlb_hit_cycles: 70, ..plain.recorded }, ..plain.clone() };
    let most = |value: fn(&Estimated) -> f64| value(&evidence.counts(Basis::All)) + evidence.error(value, 0.0).unwrap();
    // The score interval of a count that the windows cannot see below `recorded`, without the 5
    // first touches.
    let score = |spread: f64, estimate: f64, recorded: f64| {
        let grows = spread.powi(2) / estimate;
        recorded + grows / 2.0 + (grows * recorded + grows.powi(2) / 4.0).sqrt()
    };
    let spread = evidence.spread(|basis| evidence.counts(basis).misses()).unwrap();
    close(most(Estimated::misses), 5.0 + score(spread, 3840.0, 4000.0));
    close(most(Estimated::translation), 500.0 + score(100.0 * spread, 384_000.0, 900_070.0));
    close(most(|counts| counts.walk_references), 20.0 + score(4.0 * spread, 15_360.0, 15_360.0));
    assert_eq!(evidence.counts(Basis::All).misses(), 3845.0, "the estimate stays without bias");
    // The least width is of the windows, and does not know of it.
    close(evidence.error(Estimated::misses, 1000.0).unwrap(), 1160.0);
    let same = |basis| evidence.counts(basis).misses() / 1000.0;
    close(evidence.ratio_error(same, 0.0).unwrap(), 0.16 + spread / 1000.0);
}

#[test]
fn few_windows_with_misses_leave_room_for_more() {
    let of = |holding: &[u64]| evidence(&[&[0; 29], holding].concat());
    close(of(&[6, 2, 4]).rare(), (1.92 + 1.96 * 3.96_f64.sqrt()) * 4.0 * 10.0);
    close(of(&[6, 2, 4]).rare_cost(|walks| walks.cycles), of(&[6, 2, 4]).rare() * 100.0);
    // Without any, as many as a window finds while it warms up, one at least.
    let most = (1.92 + 1.96 * 0.96_f64.sqrt()) * 10.0;
    close(of(&[0, 0, 0]).rare(), most);
    let warming = Walks { data: 60, instructions: 4, references: 0, cycles: 0 };
    let evidence = of(&[0, 0, 0]);
    let recorded = WindowCounts { others: warming, ..evidence.recorded };
    close(Evidence { recorded, ..evidence.clone() }.rare(), most * 2.0);
    // Their cost is that of the walks that there are: first touches, if there are no others.
    close(evidence.rare_cost(|walks| walks.cycles), most * 100.0);
    // Ten that hold some show it themselves.
    assert_eq!(self::evidence(&[[1; 10].as_slice(), &[0; 22]].concat()).rare(), 0.0);
    assert!(self::evidence(&[[1; 9].as_slice(), &[0; 23]].concat()).rare() > 0.0);
}

#[test]
fn few_windows_that_differ_leave_room_for_more() {
    let base = evidence(&in_turn());
    assert_eq!(base.apart(&base), 0.0);
    let with = |more: &[u64]| {
        let more = more.iter().chain(std::iter::repeat(&0));
        evidence(&in_turn().into_iter().zip(more).map(|(misses, more)| misses + more).collect::<Vec<u64>>())
    };
    close(with(&[3]).apart(&base), (1.92 + 1.96 * 1.96_f64.sqrt()) * 3.0 * 10.0);
    close(with(&[2, 0, 4]).apart(&base), (1.92 + 1.96 * 2.96_f64.sqrt()) * 3.0 * 10.0);
    assert_eq!(with(&[1; 10]).apart(&base), 0.0, "ten show it themselves");
    // No window differs, but what was recorded beside them does.
    let walks = Walks { data: 30, instructions: 0, references: 0, cycles: 0 };
    let recorded = WindowCounts { others: walks, ..base.recorded };
    let other = Evidence { recorded, ..base.clone() };
    assert_eq!(other.apart(&base), 30.0);
    let [mut one, mut theirs] = ["reservation", "base"].map(|policy| row(policy, &base));
    one.tlb_miss_reduction_percent = Some(0.0);
    own_errors(&mut one, Some(&other));
    own_errors(&mut theirs, Some(&base));
    compared_errors(&mut one, Some(&other), &theirs, Some(&base));
    let error = one.sampled.unwrap().tlb_miss_reduction_percent_error.unwrap();
    assert!(error >= 0.999 * 100.0 * 30.0 / 3845.0, "{error}");
}

#[test]
fn rare_hits_of_later_levels_count_in_cycles() {
    let evidence = evidence(&in_turn());
    assert_eq!(evidence.rare_cycles(), 0.0, "no level has any");
    let recorded = WindowCounts { later_hits: [6, 4], tlb_hit_cycles: 70, ..evidence.recorded };
    let hits = Evidence { recorded, ..evidence };
    // Ten hits in 32 windows' warming, of 7 cycles each: one at least is together.
    close(hits.rare_cycles(), (1.92 + 1.96 * 0.96_f64.sqrt()) * 10.0 * 7.0);
}

#[test]
fn each_reason_against_an_interval_is_told() {
    let good = evidence(&in_turn());
    assert_eq!(good.why_no_interval(), None);
    let cases: [(Evidence, &str); 8] = [
        (Evidence { placed: false, ..good.clone() }, "where its windows lie"),
        (Evidence { forgets: false, ..good.clone() }, "neither LRU nor random"),
        (Evidence { cold: true, ..good.clone() }, "used last before its windows"),
        (Evidence { stale: true, ..good.clone() }, "8192 pages"),
        (Evidence { threads: 2, ..good.clone() }, "several threads"),
        (Evidence { turns: 9, ..good.clone() }, "several processes that take turns"),
        (Evidence { core_turns: 9, ..good.clone() }, "threads take turns on a core"),
        (evidence(&in_turn()[..29]), "fewer than 30 windows"),
    ];
    for (evidence, why) in cases {
        assert!(
            evidence.why_no_interval().is_some_and(|said| said.contains(why)),
            "{why}: {:?}",
            evidence.why_no_interval()
        );
        assert_eq!(evidence.error(Estimated::misses, 0.0), None);
    }
    assert_eq!(evidence(&in_turn()[..30]).why_no_interval(), None);
}

fn row(policy: &str, evidence: &Evidence) -> Row {
    let counts = evidence.counts(Basis::All);
    Row {
        policy: policy.into(),
        tlb_misses: counts.misses() as u64,
        cycles: 1_000_000 + counts.translation() as u64,
        sampled: Some(Sampled::default()),
        ..Row::default()
    }
}

#[test]
fn a_row_has_errors_where_its_kernel_is_known() {
    let evidence = evidence(&in_turn());
    // A spread of 315.85 about 3840 that grow.
    let error = 12.99 + (25.98_f64 * 3840.0 + 12.99_f64.powi(2)).sqrt();
    let mut known = row("thp", &evidence);
    own_errors(&mut known, Some(&evidence));
    let sampled = known.sampled.unwrap();
    assert!(sampled.kernel_exact && sampled.why_no_interval.is_none());
    close(sampled.tlb_misses_error.unwrap(), error);
    close(sampled.walk_memory_references_error.unwrap(), 4.0 * error);
    close(sampled.cycles_error.unwrap(), 100.0 * error);
    for change in [(|row: &mut Row| row.daemon_runs = 1) as fn(&mut Row), |row| row.error = Some("killed".into())] {
        let mut short = row("thp", &evidence);
        change(&mut short);
        own_errors(&mut short, Some(&evidence));
        assert_eq!(short.sampled, Some(Sampled::default()));
    }
    let mut exact = Row { sampled: None, ..row("thp", &evidence) };
    own_errors(&mut exact, Some(&evidence));
    assert_eq!(exact.sampled, None);
}

#[test]
fn a_comparison_leaves_out_the_same_window_on_both_sides() {
    let (theirs, own) =
        (evidence(&in_turn()), evidence(&in_turn().iter().map(|misses| misses / 2).collect::<Vec<_>>()));
    let compared = |own_row: &Row, own: &Evidence, base: &Row| {
        let (mut row, mut base) = (own_row.clone(), base.clone());
        own_errors(&mut base, Some(&theirs));
        own_errors(&mut row, Some(own));
        row.compare(&base);
        compared_errors(&mut row, Some(own), &base, Some(&theirs));
        let sampled = row.sampled.unwrap();
        (sampled.tlb_miss_reduction_percent_error, sampled.speedup_error)
    };
    let base = row("base", &theirs);
    let (fewer, speedup) = compared(&row("thp", &own), &own, &base);
    // Half as many everywhere: all but the first touches vary together.
    assert!(fewer.unwrap() < 0.01 && speedup.unwrap() > 0.0 && speedup.unwrap() < 0.1, "{fewer:?} {speedup:?}");
    assert_eq!(compared(&base, &theirs, &base), (Some(0.0), Some(0.0)));
    // Rows whose windows or kernels differ are not compared.
    let fewer_windows = evidence(&in_turn()[..31]);
    assert_eq!(compared(&row("thp", &fewer_windows), &fewer_windows, &base), (None, None));
    let short = Row { daemon_runs: 1, ..base };
    assert_eq!(compared(&row("thp", &own), &own, &short), (None, None));
}

/// Windows in their order, of which some go on later: the sums are those of all, window by window.
#[test]
fn sums_are_those_of_all_windows() {
    let machine = crate::machine("zen5").unwrap();
    let sampling = Sampling { on: 10, period: 100, seed: Some(1) };
    let (mut windows, mut accesses, mut luck) = (Windows::default(), 0, 7u64);
    let mut random = |below: u64| {
        luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (luck >> 33) % below
    };
    for at in 0..300 {
        let number = if random(5) == 0 { random(at / 3 + 1) } else { at / 3 } as usize;
        let period = [None, Some(5), Some(250)][random(3) as usize];
        let window = (random(4) > 0).then_some(Window { number, thread: number as u32 % 3, period, short: false });
        let translated = Translated { machine: &machine, counters: Counters::default(), faulting: Counters::default() };
        windows.turn(window, &translated, accesses, false);
        accesses += random(50);
        let now = WindowCounts::now(&translated, accesses);
        let mut all: BTreeMap<u32, WindowSums> = BTreeMap::new();
        let of_window = |window: &Begun| all.entry(window.thread).or_default().add(window, sampling);
        windows.from(0, &now).iter().for_each(of_window);
        assert_eq!(windows.sums(&now, sampling), all, "{at}");
    }
    assert!(windows.first.borrow().0 > 50);
}
