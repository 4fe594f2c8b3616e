//! The comparison as a page: the tables, and charts of the quantities in Piehl's figures 4.1 to 4.9
//! (misses of the data TLB, time elapsed, time in the kernel), with the page faults and the memory
//! of his tables. Each run is shown, with the median and its interval.

use super::columns::{did_table, table};
use super::statistics::median_interval;
use super::{Comparison, Row};
use std::fmt::Write;
use superpage_report::{Axis, Dots, DotsOf, Figure, Kind, Point, Series, escape, page};

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
    for (index, figure) in dots(&comparison.rows).iter().enumerate() {
        main += &figure.html(&format!("runs{index}"));
    }
    for (index, figure) in figures(&comparison.rows).iter().enumerate() {
        main += &figure.html(&format!("figure{index}"));
    }
    page(&format!("superpage compare {}", comparison.command), &lead, &main)
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
        groups: rows.iter().map(|row| DotsOf::new(&row.policy, values(row), median_interval(&values(row)))).collect(),
    };
    charts.into_iter().map(chart).collect()
}

/// A chart for each quantity of which the medians alone are kept, a bar for each policy.
fn figures(rows: &[Row]) -> Vec<Figure> {
    type Value = fn(&Row) -> Option<f64>;
    let charts: [(&str, &str, Value); 3] = [
        ("Misses of loads in the data TLB", "millions", |row| row.dtlb_load_misses.map(|misses| misses as f64 / 1e6)),
        ("Misses of stores in the data TLB", "millions", |row| row.dtlb_store_misses.map(|misses| misses as f64 / 1e6)),
        ("Misses in the instruction TLB", "millions", |row| row.itlb_misses.map(|misses| misses as f64 / 1e6)),
    ];
    let figure = |(title, unit, value): (&str, &str, Value)| {
        let values: Vec<Option<f64>> = rows.iter().map(value).collect();
        values.iter().any(Option::is_some).then(|| chart(title, unit, rows, &values))
    };
    charts.into_iter().filter_map(figure).chain(over_time(rows)).collect()
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

fn chart(title: &str, unit: &str, rows: &[Row], values: &[Option<f64>]) -> Figure {
    let groups: Vec<String> = rows.iter().map(|row| row.policy.clone()).collect();
    let said = groups.iter().zip(values).filter_map(|(name, value)| value.map(|value| format!("{name} {value:.3}")));
    let points = values
        .iter()
        .enumerate()
        .filter_map(|(group, value)| value.map(|y| Point { x: group as f64, y, label: String::new() }));
    Figure {
        title: title.into(),
        alt: format!("{title} ({unit}): {}", said.collect::<Vec<_>>().join(", ")),
        kind: Kind::Bars,
        x: Axis { label: "policy".into(), ..Axis::default() },
        y: Axis { label: unit.into(), ..Axis::default() },
        series: vec![Series { name: title.into(), points: points.collect(), line: false, paper: Vec::new() }],
        groups,
        baseline: None,
    }
}
