//! Rows over time, drawn.

use crate::{Row, Sample};
use superpage_report::{Axis, Figure, Kind, Point, Series, escape, page};

/// A page with a panel for each row that has a series: memory by page size, and below it the
/// misses.
pub fn series_page(rows: &[Row]) -> String {
    let panels = rows.iter().enumerate().filter_map(|(number, row)| Some((number, row, row.series.as_deref()?)));
    let panels: String = panels.map(|(number, row, series)| panel(number, row, series)).collect();
    page("Memory over modelled time", "", &panels)
}

fn panel(number: usize, row: &Row, series: &[Sample]) -> String {
    let name = format!("{}: {} on {}", row.workload, row.policies(), row.machine);
    let seconds = Axis { label: "seconds of modelled time".into(), ..Axis::default() };
    let figure = |what: &str, kind: Kind, unit: &str, series: Vec<Series>| Figure {
        title: format!("{name}: {what}"),
        alt: format!("{what} over modelled time"),
        kind,
        x: seconds.clone(),
        y: Axis { label: unit.into(), ..Axis::default() },
        groups: Vec::new(),
        series,
        baseline: None,
    };
    let of = |name: String, value: &dyn Fn(usize, &Sample) -> f64| Series {
        name,
        points: series
            .iter()
            .enumerate()
            .map(|(place, sample)| Point {
                x: sample.seconds,
                y: value(place, sample),
                label: sample.event.clone().unwrap_or_default(),
            })
            .collect(),
        line: true,
        paper: Vec::new(),
    };
    let sizes = series.first().map_or(&[][..], |sample| &sample.pages);
    let used = |size: &usize| series.iter().any(|sample| sample.pages[*size].1 > 0);
    let megabytes = |size: usize| {
        let (size, each) = (size, sizes[size].0.bytes() as f64 / f64::from(1 << 20));
        move |_: usize, sample: &Sample| each * sample.pages[size].1 as f64
    };
    let mapped: Vec<Series> =
        (0..sizes.len()).filter(used).map(|size| of(format!("{} pages", sizes[size].0), &megabytes(size))).collect();
    let mut panel = figure("memory by page size", Kind::Areas, "MB mapped", mapped).html(&format!("memory-{number}"));
    // Of a sampled stream nobody knows when they were.
    if series.iter().all(|sample| sample.tlb_misses.is_some()) {
        let rate = |place: usize, sample: &Sample| {
            let Some(before) = place.checked_sub(1).map(|place| &series[place]) else { return 0.0 };
            let misses = sample.tlb_misses.unwrap_or(0).saturating_sub(before.tlb_misses.unwrap_or(0));
            let seconds = sample.seconds - before.seconds;
            if seconds > 0.0 { misses as f64 / seconds } else { 0.0 }
        };
        let misses = vec![of("TLB misses".into(), &rate)];
        panel += &figure("TLB misses", Kind::Areas, "misses a second", misses).html(&format!("misses-{number}"));
    }
    format!("<section><h2>{}</h2>\n{panel}</section>\n", escape(&name))
}
