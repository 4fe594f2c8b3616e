//! The comparison as a page: the tables, the rows to explore, and charts of every run with the
//! median and its interval. The quantities are those of Piehl's figures 4.1 to 4.9 (misses of the
//! data TLB, time elapsed, time in the kernel), with the page faults and the memory of his tables.

use super::advice::percent;
use super::columns::{did_table, table};
use super::statistics::{LEVEL, median_interval};
use super::{Comparison, Row};
use std::fmt::Write;
use superpage_report::{Axis, Dots, DotsOf, ExploredAxis, ExploredRow, Explorer, Figure};
use superpage_report::{Kind, Measure, Point, Series, escape, page};

/// The page: one self-contained file.
pub fn html(comparison: &Comparison) -> String {
    let mut lead = String::new();
    if let Some(advice) = &comparison.advice {
        let _ = writeln!(lead, "<p class=\"lead\">{}.</p>", escape(&advice.sentence));
    }
    let _ = writeln!(
        lead,
        "<p>{}; in each, every policy ran once, in an order drawn from the seed {}.</p>",
        comparison.rounds_in_words(),
        comparison.seed
    );
    let all = table(comparison);
    let mut main =
        all.html("Each policy's medians", false) + &did_table(comparison).html("What each policy did", false);
    let _ = writeln!(
        main,
        "<details><summary>All columns</summary>\n{}</details>",
        all.html("Each policy's medians, all columns", true)
    );
    if !comparison.notes.is_empty() {
        let notes: String = comparison.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
        let _ = write!(main, "<ul class=\"notes\">\n{notes}</ul>\n");
    }
    let below = format!("<p class=\"made\">{}.</p>", strokes(comparison));
    main += &explorer(comparison).map_or(String::new(), |explorer| explorer.html("The rows", &below));
    for (index, figure) in dots(&comparison.rows).iter().enumerate() {
        main += &figure.html(&format!("runs{index}"));
    }
    main += &over_time(&comparison.rows).map_or(String::new(), |figure| figure.html("over-time"));
    page(&format!("superpage compare {}", comparison.command), &lead, &main)
}

/// What the strokes of the explored rows are.
fn strokes(comparison: &Comparison) -> String {
    let level = comparison.level().map(|level| format!(", those of ratios together {} sure", percent(level)));
    let without =
        if comparison.rows.iter().all(Row::is_comparable) { "" } else { "; a row without a verdict has none" };
    format!("Medians; strokes are intervals{}, others each {} sure{without}", level.unwrap_or_default(), percent(LEVEL))
}

/// The interval of the median of a row's values, if the row can be compared.
fn interval_of(row: &Row, values: &[f64]) -> Option<(f64, f64)> {
    median_interval(values).filter(|_| row.is_comparable())
}

/// A chart for each quantity that is known of every run.
fn dots(rows: &[Row]) -> Vec<Dots> {
    type Values = fn(&Row) -> Vec<f64>;
    let served = rows.iter().any(|row| row.requests_per_second.is_some());
    let time: (&str, &str, Values) = if served {
        ("Time per request (1 / throughput)", "microseconds", |row| row.times.iter().map(|time| time * 1e6).collect())
    } else {
        ("Time elapsed", "seconds", |row| row.times.clone())
    };
    let charts: [(&str, &str, Values); 4] = [
        time,
        ("Time in the kernel", "seconds", |row| row.system_times.clone()),
        ("Page faults", "thousands", |row| row.faults.iter().map(|faults| *faults as f64 / 1e3).collect()),
        ("Memory at its peak", "MB", |row| row.peaks.iter().map(|peak| *peak as f64 / (1 << 20) as f64).collect()),
    ];
    let chart = |(title, unit, values): (&str, &str, Values)| Dots {
        title: title.into(),
        unit: unit.into(),
        groups: rows.iter().map(|row| DotsOf::new(&row.policy, values(row), interval_of(row, &values(row)))).collect(),
    };
    charts.into_iter().map(chart).collect()
}

/// The rows to explore, a row for each policy: medians, with the intervals that are known.
fn explorer(comparison: &Comparison) -> Option<Explorer> {
    let rows = &comparison.rows;
    type Known = (f64, Option<(f64, f64)>);
    type Quantity<'a> = (&'static str, &'a str, &'static str, &'a dyn Fn(&Row) -> Option<Known>);
    let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let of_ratio =
        |row: &Row| row.time_ratio.map(|ratio| (ratio.estimate, row.shown_ratio().and_then(|shown| shown.interval())));
    let served = rows.iter().any(|row| row.requests_per_second.is_some());
    let (time, label, unit, scale) =
        if served { ("time_us", "time per request", " µs", 1e6) } else { ("time", "time", " s", 1.0) };
    let quantities: [Quantity; 8] = [
        ("ratio", "time, of the reference's", "", &|row| of_ratio(row).or(Some((1.0, None)))),
        (time, label, unit, &|row| {
            let interval = interval_of(row, &row.times).map(|(low, high)| (scale * low, scale * high));
            Some((scale * row.wall_seconds.median, interval))
        }),
        ("system", "time in the kernel", " s", &|row| {
            Some((row.system_seconds.median, interval_of(row, &row.system_times)))
        }),
        ("minor_faults", "page faults", "", &|row| Some((row.minor_faults as f64, None))),
        ("peak_rss", "memory at its peak", " MB", &|row| Some((megabytes(row.peak_rss_bytes), None))),
        ("dtlb_load_misses", "misses of loads in the data TLB", "", &|row| Some((row.dtlb_load_misses? as f64, None))),
        ("dtlb_store_misses", "misses of stores in the data TLB", "", &|row| {
            Some((row.dtlb_store_misses? as f64, None))
        }),
        ("itlb_misses", "misses in the instruction TLB", "", &|row| Some((row.itlb_misses? as f64, None))),
    ];
    let known: Vec<&Quantity> =
        quantities.iter().filter(|(.., value)| rows.iter().any(|row| value(row).is_some())).collect();
    let measures = known.iter().map(|(name, label, unit, _)| Measure {
        name,
        label: (*label).into(),
        unit,
        ratio: *name == "ratio",
        higher_is_better: Some(false),
    });
    let policies = rows.iter().map(|row| row.policy.clone()).collect();
    let policies = ExploredAxis { name: "policy".into(), values: policies, numbers: None };
    let explored = rows.iter().enumerate().map(|(number, row)| {
        let values = || known.iter().map(|(.., value)| value(row));
        ExploredRow {
            chosen: vec![number],
            complete: true,
            values: values().map(|known| known.map_or(f64::NAN, |(value, _)| value)).collect(),
            intervals: values().map(|known| known?.1).collect(),
        }
    });
    Explorer::new(vec![policies], measures.collect(), explored.collect(), 0)
}

/// The memory of a server during the last run's load, a line for each policy.
fn over_time(rows: &[Row]) -> Option<Figure> {
    let line = |row: &Row| {
        let looks = row.memory_over_time.as_ref()?.iter();
        let point = |&(x, bytes): &(f64, u64)| Point { x, y: bytes as f64 / (1 << 20) as f64, label: String::new() };
        let points: Vec<Point> = looks.map(point).collect();
        Some(Series { name: row.policy.clone(), points, line: true, paper: Vec::new() })
    };
    let series: Vec<Series> = rows.iter().filter_map(line).collect();
    let last = |series: &Series| series.points.last().map(|point| format!("{} {:.0}", series.name, point.y));
    let said: Vec<String> = series.iter().filter_map(last).collect();
    (!series.is_empty()).then(|| Figure {
        title: "Memory during the load of the last round".into(),
        alt: format!("Memory during the load of the last round (MB), at its end: {}", said.join(", ")),
        kind: Kind::Lines,
        x: Axis { label: "seconds".into(), ..Axis::default() },
        y: Axis { label: "MB".into(), ..Axis::default() },
        series,
        groups: Vec::new(),
        baseline: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::advice::tests::{comparison, row};

    #[test]
    fn the_rows_have_their_ratios_and_intervals() {
        let times: Vec<f64> = (0..10).map(|round| 0.7 + 0.02 * f64::from(round)).collect();
        let fast: Vec<f64> = times.iter().map(|time| time / 2.0).collect();
        let rows = vec![
            row("base", &times, 1 << 20, None::<(&[f64], usize)>),
            row("thp", &fast, 2 << 20, Some((&times[..], 2))),
        ];
        let comparison = comparison(rows);
        let explorer = explorer(&comparison).unwrap();
        // Nothing was counted, so that there are no measures of misses.
        let names: Vec<&str> = explorer.measures.iter().map(|measure| measure.name).collect();
        assert_eq!(names, ["ratio", "time", "system", "minor_faults", "peak_rss"]);
        let [base, thp] = &explorer.rows[..] else { panic!("two policies") };
        assert!((thp.values[0] - 0.5).abs() < 1e-9 && base.values[0] == 1.0 && base.intervals[0].is_none());
        let found = comparison.rows[1].time_ratio.unwrap();
        assert_eq!(thp.intervals[0], Some((found.low, found.high)));
        assert_eq!(base.intervals[1], median_interval(&times));
        assert!((base.values[1] - 0.79).abs() < 1e-9);
        assert_eq!((base.values[4], thp.values[4]), (1.0, 2.0));
        assert_eq!(explorer.measures[1].unit, " s");
        let page = html(&comparison);
        assert!(page.contains("class=\"explore\"") && page.matches("class=\"run\"").count() == 4 * (1 + 20), "{page}");
    }

    #[test]
    fn a_row_without_a_verdict_has_no_stroke_and_the_caption_has_the_level() {
        let times: Vec<f64> = (0..6).map(|round| 0.7 + 0.02 * f64::from(round)).collect();
        let more: Vec<f64> = times.iter().map(|time| time * 1.3).collect();
        let of = |policy, reached| {
            let mut row = row(policy, &more, 1 << 20, Some((&times[..], 3)));
            row.tell(String::new(), Some(reached), None);
            row
        };
        let rows = vec![
            row("now", &times, 1 << 20, None::<(&[f64], usize)>),
            of("promote", false),
            Row { settings_differed: 1, ..of("base", true) },
            of("thp", true),
        ];
        let comparison = comparison(rows);
        let explorer = explorer(&comparison).unwrap();
        let strokes: Vec<bool> = explorer.rows.iter().map(|row| row.intervals.iter().any(Option::is_some)).collect();
        assert_eq!(strokes, [true, false, false, true]);
        assert!((explorer.rows[1].values[0] - 1.3).abs() < 1e-9, "its point is drawn");
        let page = html(&comparison);
        let caption = "strokes are intervals, those of ratios together 91 % sure, others each 95 % sure; a row without";
        assert!(page.contains(caption) && page.contains("time / now (91 % sure)"), "{page}");
        assert_eq!(page.matches("class=\"interval\"").count(), 4 * (1 + 2));
    }

    #[test]
    fn time_per_request_has_one_unit_in_the_page() {
        let times: Vec<f64> = (0..10).map(|round| 1e-6 * f64::from(10 + round)).collect();
        let of =
            |policy| Row { requests_per_second: Some(7e4), ..row(policy, &times, 1 << 20, None::<(&[f64], usize)>) };
        let comparison = comparison(vec![of("base"), of("thp")]);
        let explorer = explorer(&comparison).unwrap();
        let (measure, row) = (&explorer.measures[1], &explorer.rows[0]);
        assert_eq!(
            (measure.name, measure.unit, dots(&comparison.rows)[0].unit.as_str()),
            ("time_us", " µs", "microseconds")
        );
        let (low, high) = median_interval(&times).unwrap();
        assert!((row.values[1] - 14.5).abs() < 1e-9);
        assert_eq!(row.intervals[1], Some((1e6 * low, 1e6 * high)));
    }
}
