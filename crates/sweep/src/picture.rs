//! The map of a sweep in one picture: a point for each policy, its gain against its memory.

use crate::Plan;
use crate::explore::place;
use crate::merge::Merged;
use std::collections::HashMap;
use superpage_report::{Axis, ExploredRow, Figure, Kind, Point, Series};
use superpage_sim::quantities;

/// The most series of a figure.
const SERIES: usize = 24;

/// The picture; `None` if there is one policy alone. A line joins policies that no other beats in
/// both. Means are geometric, over the combinations that all policies have run whole.
pub(crate) fn picture(plan: &Plan, merged: &Merged, rows: &[ExploredRow]) -> Option<Figure> {
    let bundles = plan.sweep.bundles();
    let policies = place(&bundles, "policy");
    let others = |row: &ExploredRow| {
        let chosen = row.chosen.iter().enumerate().filter(|(place, _)| *place != policies);
        chosen.map(|(_, value)| *value).collect::<Vec<_>>()
    };
    let both = |row: &ExploredRow| {
        let [memory, gain] = [quantities::PEAK, quantities::SPEEDUP].map(|quantity| row.values[quantity].ln());
        (row.complete && memory.is_finite() && gain.is_finite()).then_some((memory, gain))
    };
    let mut known: HashMap<Vec<usize>, usize> = HashMap::new();
    rows.iter().filter(|row| both(row).is_some()).for_each(|row| *known.entry(others(row)).or_default() += 1);
    let names = &bundles[policies].values;
    let (mut points, mut least): (Vec<Point>, usize) = (Vec::new(), 0);
    for (policy, name) in names.iter().enumerate() {
        let of = |row: &&ExploredRow| row.chosen[policies] == policy && known.get(&others(row)) == Some(&names.len());
        let all: Vec<(f64, f64)> = rows.iter().filter(of).filter_map(both).collect();
        let mean = |sum: f64| (sum / all.len() as f64).exp();
        if !all.is_empty() {
            let (x, y) = (all.iter().map(|both| both.0).sum(), all.iter().map(|both| both.1).sum());
            points.push(Point { x: mean(x), y: mean(y), label: name.clone() });
            least = all.len();
        }
    }
    if points.len() < 2 {
        return None;
    }
    let beaten = |a: &Point| points.iter().any(|b| b.x <= a.x && b.y >= a.y && (b.x < a.x || b.y > a.y));
    let mut front: Vec<Point> = points.iter().filter(|point| !beaten(point)).cloned().collect();
    front.sort_by(|a, b| a.x.total_cmp(&b.x));
    let best = front.iter().map(|point| point.label.as_str()).collect::<Vec<_>>().join(", ");
    // The line has no marks, and needs no names.
    let unnamed = front.iter().map(|point| Point { label: String::new(), ..point.clone() }).collect();
    let series = |name: String, points, line| Series { name, points, line, paper: Vec::new() };
    let mut all: Vec<Series> =
        points.into_iter().map(|point| series(point.label.clone(), vec![point], false)).take(SERIES).collect();
    all.push(series("no other beats these in both".into(), unnamed, true));
    let of = if least == 1 { String::new() } else { format!(", means of {least} rows each") };
    let axis = |label: String| Axis { label, ..Axis::default() };
    Some(Figure {
        title: "Speed-up against memory".into(),
        alt: format!(
            "Speed-up over base against memory at its peak over that of base, a point for each policy{of}; no other \
             beats {best}"
        ),
        kind: Kind::Scatter,
        x: axis(format!("memory at its peak over that of base{of}")),
        y: axis(format!("{}speed-up over base", merged.certainty.sign())),
        groups: Vec::new(),
        series: all,
        baseline: Some(1.0),
    })
}
