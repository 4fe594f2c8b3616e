//! The comparison as a page: the table, and bar charts of what Piehl's figures 4.1 to 4.9 show of each of his programs
//! (misses of the data TLB, time elapsed, time in the kernel), with the page faults and the memory that his tables have.

use super::columns::cells;
use super::{Comparison, Row};
use std::fmt::Write;
use superpage_report::{Axis, Figure, Kind, Point, Series, escape, page};

/// The page, one file that needs nothing else.
pub fn html(comparison: &Comparison) -> String {
    let mut lead = String::new();
    if let Some(advice) = &comparison.advice {
        let _ = writeln!(lead, "<p class=\"lead\">{}.</p>", escape(&advice.sentence));
    }
    let _ = writeln!(
        lead,
        "<p>{} rounds{}; in each, every policy ran once, in an order drawn from the seed {}.</p>",
        comparison.rounds,
        if comparison.stopped { ", then it was stopped" } else { "" },
        comparison.seed
    );
    let mut main = table(comparison);
    if !comparison.notes.is_empty() {
        let notes: String = comparison.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
        let _ = write!(main, "<ul class=\"notes\">\n{notes}</ul>\n");
    }
    for (index, figure) in figures(&comparison.rows).iter().enumerate() {
        main += &figure.html(&format!("figure{index}"));
    }
    page(&format!("superpage compare {}", comparison.command), &lead, &main)
}

fn table(comparison: &Comparison) -> String {
    let cells = cells(comparison);
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\"><table><caption class=\"heard\">Each policy's medians</caption>\n<thead><tr>",
    );
    for head in &cells.head {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(head));
    }
    out += "</tr></thead>\n<tbody>\n";
    for row in &cells.rows {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&row[0]));
        row[1..].iter().for_each(|cell| _ = write!(out, "<td>{}</td>", escape(cell)));
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

/// A chart for each quantity that was measured, a bar for each policy.
fn figures(rows: &[Row]) -> Vec<Figure> {
    type Value = fn(&Row) -> Option<f64>;
    let charts: [(&str, &str, Value); 7] = [
        ("Misses of loads in the data TLB", "millions", |row| row.dtlb_load_misses.map(|misses| misses as f64 / 1e6)),
        ("Misses of stores in the data TLB", "millions", |row| row.dtlb_store_misses.map(|misses| misses as f64 / 1e6)),
        ("Misses in the instruction TLB", "millions", |row| row.itlb_misses.map(|misses| misses as f64 / 1e6)),
        ("Time elapsed", "seconds, median", |row| Some(row.wall_seconds.median)),
        ("Time in the kernel", "seconds, median", |row| Some(row.system_seconds.median)),
        ("Page faults", "thousands", |row| Some((row.minor_faults + row.major_faults) as f64 / 1e3)),
        ("Memory at its peak", "MB", |row| Some(row.peak_rss_bytes as f64 / (1 << 20) as f64)),
    ];
    let figure = |(title, unit, value): (&str, &str, Value)| {
        let values: Vec<Option<f64>> = rows.iter().map(value).collect();
        values.iter().any(Option::is_some).then(|| chart(title, unit, rows, &values))
    };
    charts.into_iter().filter_map(figure).collect()
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
    }
}
