//! Estimates and their errors against figures worked out by hand.

use super::*;

/// Windows of 100 accesses that stand for 1000 each, with so many misses of 4 references and 100 cycles, after 5 first touches.
fn evidence(misses: &[u64]) -> Evidence {
    let walks = |count: u64| Walks { data: count, instructions: 0, references: 4 * count, cycles: 100 * count };
    let window = |count: &u64| (Tally { accesses: 100, others: walks(*count), ..Tally::default() }, 1.0);
    let windows: Vec<(Tally, f64)> = misses.iter().map(window).collect();
    let measured = windows.iter().fold(Sum::default(), |sum, (window, weight)| sum.and(window, *weight));
    Evidence {
        measured,
        known: Tally::default(),
        recorded: Tally { faulting: walks(5), ..Tally::default() },
        accesses: (1000 * windows.len() + 5) as f64,
        windows,
        placed: true,
        forgets: true,
        stale: false,
        cold: false,
        threads: 1,
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
    assert_eq!(evidence.factor(&evidence.measured), 10.0);
    let counts = evidence.counts(None);
    assert_eq!((counts.misses(), counts.walk_references, counts.walk_cycles), (3845.0, 15_380.0, 384_500.0));
    assert_eq!((counts.data_misses, counts.instruction_misses, counts.translation()), (3845.0, 0.0, 384_500.0));
    // Without one that has 14, and without one that has 10.
    close(evidence.counts(Some(1)).misses(), 5.0 + 370.0 * 32_000.0 / 3100.0);
    close(evidence.counts(Some(0)).misses(), 5.0 + 374.0 * 32_000.0 / 3100.0);
    assert_eq!(Evidence { measured: Sum::default(), ..evidence }.counts(None).misses(), 5.0, "nothing was measured");
}

#[test]
fn what_was_measured_completely_is_counted_as_it_is() {
    let plain = evidence(&in_turn());
    let others = Walks { data: 7, instructions: 3, references: 40, cycles: 1000 };
    let known = Tally { accesses: 50, others, faulting: Walks { data: 2, ..Walks::default() }, ..Tally::default() };
    let evidence = Evidence { known, ..plain };
    // 48 accesses of it are no first touches.
    close(evidence.factor(&evidence.measured), (32_000.0 - 48.0) / 3200.0);
    close(evidence.counts(None).misses(), 5.0 + 10.0 + 384.0 * (32_000.0 - 48.0) / 3200.0);
}

#[test]
fn an_error_is_students_times_the_spread_of_neighbours() {
    let evidence = evidence(&in_turn());
    // Each window alone says 5 + 320 times its misses, so neighbours differ by 1280; a tenth of the accesses was measured.
    let spread = (1.0 - 3200.0 / 32_005.0_f64).sqrt() * 1280.0 / 64.0_f64.sqrt();
    let freedom = 2.0 * 31.0_f64.powi(2) / 92.0;
    close(evidence.error(|without| evidence.counts(without).misses()).unwrap(), student(freedom) * spread);
    close(student(freedom) * spread, 315.85);
    assert_eq!(evidence.error(|_| 7.0), Some(0.0), "what no window changes");
    // Of what was measured completely nothing was left out.
    let known = Tally { accesses: 16_005, ..Tally::default() };
    let half = Evidence { known, ..evidence.clone() };
    let ratio = half.error(|without| evidence.counts(without).misses()).unwrap();
    close(ratio / (student(freedom) * spread), (0.8_f64 / (1.0 - 3200.0 / 32_005.0)).sqrt());
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
    let recorded = Tally { others: warming, ..evidence.recorded };
    close(Evidence { recorded, ..evidence.clone() }.rare(), most * 2.0);
    // Their cost is that of the walks that there are: first touches, if there are no others.
    close(evidence.rare_cost(|walks| walks.cycles), most * 100.0);
    // Ten that hold some show it themselves.
    assert_eq!(self::evidence(&[[1; 10].as_slice(), &[0; 22]].concat()).rare(), 0.0);
    assert!(self::evidence(&[[1; 9].as_slice(), &[0; 23]].concat()).rare() > 0.0);
}

#[test]
fn rare_hits_of_later_levels_count_in_cycles() {
    let evidence = evidence(&in_turn());
    assert_eq!(evidence.rare_cycles(), 0.0, "no level has any");
    let recorded = Tally { later_hits: [6, 4], tlb_hit_cycles: 70, ..evidence.recorded };
    let hits = Evidence { recorded, ..evidence };
    // Ten hits in 32 windows' warming, of 7 cycles each: one at least is together.
    close(hits.rare_cycles(), (1.92 + 1.96 * 0.96_f64.sqrt()) * 10.0 * 7.0);
}

#[test]
fn each_reason_against_an_interval_is_told() {
    let good = evidence(&in_turn());
    assert_eq!(good.no_errors(), None);
    let cases: [(Evidence, &str); 6] = [
        (Evidence { placed: false, ..good.clone() }, "where its windows lie"),
        (Evidence { forgets: false, ..good.clone() }, "neither LRU nor random"),
        (Evidence { cold: true, ..good.clone() }, "used last before its windows"),
        (Evidence { stale: true, ..good.clone() }, "8192 pages"),
        (Evidence { threads: 2, ..good.clone() }, "several threads"),
        (evidence(&in_turn()[..29]), "fewer than 30 windows"),
    ];
    for (evidence, why) in cases {
        assert!(evidence.no_errors().is_some_and(|said| said.contains(why)), "{why}: {:?}", evidence.no_errors());
        assert_eq!(evidence.error(|without| evidence.counts(without).misses()), None);
    }
    assert_eq!(evidence(&in_turn()[..30]).no_errors(), None);
}

fn row(policy: &str, evidence: &Evidence) -> Row {
    let counts = evidence.counts(None);
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
    let error = 315.85;
    let mut known = row("thp", &evidence);
    own_errors(&mut known, Some(&evidence));
    let sampled = known.sampled.unwrap();
    assert!(sampled.kernel_exact && sampled.no_errors.is_none());
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
