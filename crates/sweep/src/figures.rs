//! Figures of a sweep, found from its axes alone: bars, heat maps, curves, a scatter.
//!
//! Every number is the geometric mean over all that a figure does not name. Rows that have an error
//! are in none.

use crate::axis::{Point, SET};
use crate::file::Bundle;
use crate::merge::{Brief, Merged};
use crate::quantities;
use crate::{Plan, Sweep};
use std::collections::HashMap;
use superpage_report::{Axis, Figure, Heat, Kind, Point as Mark, Series};

/// The most values of an axis in a heat map.
const CELLS: usize = 24;
/// The most series of a figure.
const SERIES: usize = 24;

/// What the time of a row is compared with in a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Baseline {
    /// `base` on the same machine: its time divided by that of the row.
    Base,
    /// The row with the first value of each `set.` axis: its time divided by that of the row.
    FirstValues,
}

impl Baseline {
    /// Of one row.
    fn unit(self) -> &'static str {
        match self {
            Baseline::Base => "speedup over base",
            Baseline::FirstValues => "speedup over the first values",
        }
    }

    /// Of several rows together.
    fn mean_unit(self) -> String {
        format!("{}, geometric mean", self.unit())
    }
}

/// A figure, or a heat map, and a point that one of its numbers is from.
pub(crate) enum Drawn {
    Figure(Figure),
    Heat(Heat),
}

/// A figure of the page.
pub(crate) struct Shown {
    pub(crate) drawn: Drawn,
    /// What its numbers are means over, as a sentence; empty if each is one row.
    pub(crate) means: String,
    /// A point that it has.
    pub(crate) example: Point,
    /// Whether it is one of several that are alike, and not the first.
    pub(crate) folded: bool,
}

/// A point with its row.
struct Datum {
    /// The value of each bundle.
    chosen: Vec<usize>,
    row: Brief,
}

/// The rows by point, and the bundles.
struct Data<'a> {
    sweep: &'a Sweep,
    /// What stands before its numbers.
    sign: &'static str,
    bundles: Vec<Bundle>,
    data: Vec<Datum>,
    places: HashMap<Vec<usize>, usize>,
}

/// All figures, in the order of the page.
pub(crate) fn figures(plan: &Plan, merged: &Merged) -> Vec<Shown> {
    let data = Data::of(plan, merged);
    let mut shown = data.bars();
    shown.extend(data.heats());
    shown.extend(data.curves());
    shown.extend(data.scatter());
    shown
}

impl<'a> Data<'a> {
    fn of(plan: &'a Plan, merged: &'a Merged) -> Data<'a> {
        let sweep = &plan.sweep;
        let (mut data, mut places) = (Vec::new(), HashMap::new());
        for (number, point) in sweep.points().enumerate() {
            let row = merged.rows[merged.place(plan, &point)];
            if row.whole {
                let chosen = sweep.chosen(number);
                places.insert(chosen.clone(), data.len());
                data.push(Datum { chosen, row });
            }
        }
        Data { sweep, sign: merged.certainty.sign(), bundles: sweep.bundles(), data, places }
    }

    fn place(&self, axis: &str) -> usize {
        self.bundles.iter().position(|bundle| bundle.has(axis)).expect("every sweep has these axes")
    }

    /// The value of a row; `None` for `base` where it is the baseline, and where there is none.
    fn value(&self, datum: &Datum, baseline: Baseline) -> Option<f64> {
        match baseline {
            Baseline::Base if datum.row.base => None,
            Baseline::Base => datum.row.speedup,
            Baseline::FirstValues => {
                let first = datum.chosen.iter().zip(&self.bundles);
                let first: Vec<usize> = first.map(|(value, bundle)| if bundle.sets() { 0 } else { *value }).collect();
                let first = self.data[*self.places.get(&first)?].row;
                (datum.row.seconds > 0.0).then(|| first.seconds / datum.row.seconds)
            }
        }
        .filter(|value| value.is_finite() && *value > 0.0)
    }

    /// Means for each value of some bundles at once, in one pass over the rows.
    fn means(&self, baseline: Baseline, by: &[usize]) -> HashMap<Vec<usize>, f64> {
        self.means_of(baseline, by, |_| true)
    }

    /// The same of those for which `which` holds.
    fn means_of(&self, baseline: Baseline, by: &[usize], which: impl Fn(&[usize]) -> bool) -> HashMap<Vec<usize>, f64> {
        let mut sums: HashMap<Vec<usize>, (f64, usize)> = HashMap::new();
        for datum in self.data.iter().filter(|datum| which(&datum.chosen)) {
            if let Some(value) = self.value(datum, baseline) {
                let sum = sums.entry(by.iter().map(|bundle| datum.chosen[*bundle]).collect()).or_default();
                *sum = (sum.0 + value.ln(), sum.1 + 1);
            }
        }
        sums.into_iter().map(|(key, (sum, number))| (key, (sum / number as f64).exp())).collect()
    }

    /// What a mean over all bundles but these is over.
    fn over(&self, named: &[usize]) -> String {
        let others = self.bundles.iter().enumerate().filter(|(place, _)| !named.contains(place));
        let others: Vec<String> = others
            .filter(|(_, bundle)| bundle.values.len() > 1)
            .map(|(_, bundle)| format!("{} of {}", bundle.values.len(), bundle.name))
            .collect();
        if others.is_empty() {
            String::new()
        } else {
            format!("Each number is the geometric mean over {}.", others.join(", "))
        }
    }

    /// Adds a figure whose numbers are of these bundles.
    fn shown(&self, drawn: Drawn, named: &[usize]) -> Shown {
        let chosen = self.data.iter().find(|datum| !datum.row.base).or(self.data.first());
        let example = chosen.map_or_else(Point::default, |datum| self.sweep.point(&datum.chosen));
        Shown { drawn, means: self.over(named), example, folded: false }
    }

    /// The bundle whose values are the series, and what is measured: policies, or else what is set.
    fn series(&self) -> Option<(usize, Baseline)> {
        let policies = self.place("policy");
        if self.data.iter().any(|datum| !datum.row.base) {
            return Some((policies, Baseline::Base));
        }
        self.bundles.iter().position(Bundle::sets).map(|place| (place, Baseline::FirstValues))
    }

    /// Bars for each stream and their mean: of all machines together, then of each.
    fn bars(&self) -> Vec<Shown> {
        let Some((series, baseline)) = self.series() else { return Vec::new() };
        let (streams, machines) = (self.place("workload"), self.place("machine"));
        if series == streams {
            return Vec::new();
        }
        let mut all = vec![self.bars_of(baseline, [streams, series], None)];
        let machine = &self.bundles[machines];
        if machine.values.len() > 1 && machines != series && machines != streams {
            for value in 0..machine.values.len() {
                all.push(Shown { folded: true, ..self.bars_of(baseline, [streams, series], Some((machines, value))) });
            }
        }
        all
    }

    fn bars_of(&self, baseline: Baseline, [groups, series]: [usize; 2], only: Option<(usize, usize)>) -> Shown {
        let is_in = |chosen: &[usize]| only.is_none_or(|(bundle, value)| chosen[bundle] == value);
        let bundle = &self.bundles[series];
        let mut names = self.bundles[groups].values.clone();
        let several = names.len() > 1;
        let (means, of_all) =
            (self.means_of(baseline, &[groups, series], is_in), self.means_of(baseline, &[series], is_in));
        let series_of = |value: usize| {
            let mark = |x: usize, y: Option<&f64>| y.map(|y| Mark { x: x as f64, y: *y, label: String::new() });
            let mut points: Vec<Mark> = (0..names.len()).filter_map(|x| mark(x, means.get(&vec![x, value]))).collect();
            if several {
                points.extend(mark(names.len(), of_all.get(&vec![value])));
            }
            Series { name: bundle.values[value].clone(), points, line: false, paper: Vec::new() }
        };
        let all = (0..bundle.values.len()).map(series_of).filter(|series| !series.points.is_empty()).take(SERIES);
        let series_list: Vec<Series> = all.collect();
        if several {
            names.push("geometric mean".into());
        }
        let of = only.map_or(String::new(), |(bundle, value)| format!(", {}", self.bundles[bundle].values[value]));
        let title = format!("Each {} under each {}{of}", self.bundles[groups].name, bundle.name);
        let figure = Figure {
            alt: format!("{title}: {} for each of {}", baseline.mean_unit(), names.join(", ")),
            title,
            kind: Kind::Bars,
            x: Axis { label: self.bundles[groups].name.clone(), ..Axis::default() },
            y: Axis { label: format!("{}{}", self.sign, baseline.unit()), ..Axis::default() },
            groups: names,
            series: series_list,
            baseline: Some(1.0),
        };
        let mut named = vec![groups, series];
        named.extend(only.map(|(bundle, _)| bundle));
        let mut shown = self.shown(Drawn::Figure(figure), &named);
        let example = self.data.iter().find(|datum| is_in(&datum.chosen) && !datum.row.base);
        shown.example = example.map_or(shown.example, |datum| self.sweep.point(&datum.chosen));
        shown
    }

    /// A heat map for each two axes with several values.
    fn heats(&self) -> Vec<Shown> {
        let fits = |bundle: &Bundle| (2..=CELLS).contains(&bundle.values.len());
        let places: Vec<usize> = (0..self.bundles.len()).filter(|place| fits(&self.bundles[*place])).collect();
        let mut shown = Vec::new();
        for (index, rows) in places.iter().enumerate() {
            for columns in &places[index + 1..] {
                // The longer list goes down: there is more room.
                let wide = self.bundles[*columns].values.len() > self.bundles[*rows].values.len();
                let (rows, columns) = if wide { (columns, rows) } else { (rows, columns) };
                let (row, column) = (&self.bundles[*rows], &self.bundles[*columns]);
                let baseline = if row.sets() || column.sets() { Baseline::FirstValues } else { Baseline::Base };
                let means = self.means(baseline, &[*rows, *columns]);
                let line = |r: usize| (0..column.values.len()).map(|c| means.get(&vec![r, c]).copied()).collect();
                let values: Vec<Vec<Option<f64>>> = (0..row.values.len()).map(line).collect();
                // `base` has no number where it is the baseline.
                let rows_kept: Vec<usize> =
                    (0..row.values.len()).filter(|r| values[*r].iter().any(Option::is_some)).collect();
                let columns_kept: Vec<usize> =
                    (0..column.values.len()).filter(|c| values.iter().any(|line| line[*c].is_some())).collect();
                if rows_kept.len() < 2 || columns_kept.len() < 2 {
                    continue;
                }
                let heat = Heat {
                    title: format!("{} and {}", row.name, column.name),
                    rows: (row.name.clone(), rows_kept.iter().map(|r| row.values[*r].clone()).collect()),
                    columns: (column.name.clone(), columns_kept.iter().map(|c| column.values[*c].clone()).collect()),
                    unit: format!("{}{}", self.sign, baseline.mean_unit()),
                    values: rows_kept.iter().map(|r| columns_kept.iter().map(|c| values[*r][*c]).collect()).collect(),
                };
                shown.push(self.shown(Drawn::Heat(heat), &[*rows, *columns]));
            }
        }
        // What is set and policies by machine first: streams are in the bars too.
        let streams = &self.bundles[self.place("workload")].name;
        let names = |shown: &Shown| matches!(&shown.drawn, Drawn::Heat(heat) if [&heat.rows.0, &heat.columns.0].contains(&streams));
        shown.sort_by_key(names);
        shown
    }

    /// A curve for each policy over each axis of numbers.
    fn curves(&self) -> Vec<Shown> {
        let policies = self.place("policy");
        let mut shown = Vec::new();
        for (place, bundle) in self.bundles.iter().enumerate() {
            let Some((axis, numbers)) = bundle.numbers.as_ref().filter(|(_, numbers)| numbers.len() > 1) else {
                continue;
            };
            let baseline = if bundle.sets() { Baseline::FirstValues } else { Baseline::Base };
            let means = self.means(baseline, &[place, policies]);
            let series = |policy: usize| {
                let marks = numbers.iter().enumerate().filter_map(|(value, x)| {
                    let y = *means.get(&vec![value, policy])?;
                    Some(Mark { x: *x, y, label: String::new() })
                });
                let mut points: Vec<Mark> = marks.collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                let name = self.bundles[policies].values[policy].clone();
                Series { name, points, line: true, paper: Vec::new() }
            };
            let all = (0..self.bundles[policies].values.len()).map(series);
            let series: Vec<Series> = all.filter(|series| series.points.len() > 1).take(SERIES).collect();
            let (least, most) =
                numbers.iter().fold((f64::INFINITY, 0.0f64), |(least, most), x| (least.min(*x), most.max(*x)));
            if series.is_empty() || place == policies {
                continue;
            }
            let title = format!("Over {}", bundle.name);
            let figure = Figure {
                alt: format!("{title}: {}, a line for each policy", baseline.mean_unit()),
                title,
                kind: Kind::Lines,
                x: Axis {
                    label: axis.trim_start_matches(SET).into(),
                    log: least > 0.0 && most / least >= 8.0,
                    bytes: ["memory", "swap"].contains(&axis.as_str()),
                    exact: true,
                },
                y: Axis { label: format!("{}{}", self.sign, baseline.unit()), ..Axis::default() },
                groups: Vec::new(),
                series,
                baseline: Some(1.0),
            };
            shown.push(self.shown(Drawn::Figure(figure), &[place, policies]));
        }
        shown
    }

    /// A point for each policy: its gain against its memory, and a line of the policies that no
    /// other beats in both. Means are over the combinations that all policies have run.
    fn scatter(&self) -> Option<Shown> {
        let policies = self.place("policy");
        let others = |datum: &Datum| {
            let chosen = datum.chosen.iter().enumerate().filter(|(place, _)| *place != policies);
            chosen.map(|(_, value)| *value).collect::<Vec<_>>()
        };
        let both = |datum: &Datum| {
            let [memory, gain] =
                [quantities::PEAK, quantities::SPEEDUP].map(|quantity| f64::from(datum.row.values[quantity]).ln());
            (memory.is_finite() && gain.is_finite()).then_some((memory, gain))
        };
        let mut known: HashMap<Vec<usize>, usize> = HashMap::new();
        self.data
            .iter()
            .filter(|datum| both(datum).is_some())
            .for_each(|datum| *known.entry(others(datum)).or_default() += 1);
        let names = &self.bundles[policies].values;
        let (mut points, mut least): (Vec<Mark>, usize) = (Vec::new(), 0);
        for (policy, name) in names.iter().enumerate() {
            let of =
                |datum: &&Datum| datum.chosen[policies] == policy && known.get(&others(datum)) == Some(&names.len());
            let all: Vec<(f64, f64)> = self.data.iter().filter(of).filter_map(both).collect();
            let mean = |sum: f64| (sum / all.len() as f64).exp();
            if !all.is_empty() {
                let (x, y) = (all.iter().map(|both| both.0).sum(), all.iter().map(|both| both.1).sum());
                points.push(Mark { x: mean(x), y: mean(y), label: name.clone() });
                least = all.len();
            }
        }
        let beaten = |a: &Mark| points.iter().any(|b| b.x <= a.x && b.y >= a.y && (b.x < a.x || b.y > a.y));
        let mut front: Vec<Mark> = points.iter().filter(|mark| !beaten(mark)).cloned().collect();
        front.sort_by(|a, b| a.x.total_cmp(&b.x));
        let several = points.len() > 1;
        let series = |name: String, points, line| Series { name, points, line, paper: Vec::new() };
        // The line has no marks, and needs no names.
        let unnamed = front.iter().map(|mark| Mark { label: String::new(), ..mark.clone() }).collect();
        let mut all: Vec<Series> =
            points.into_iter().map(|mark| series(mark.label.clone(), vec![mark], false)).take(SERIES).collect();
        all.push(series("no other beats these in both".into(), unnamed, true));
        let of = means_of(least);
        let figure = Figure {
            title: "Speed-up against memory".into(),
            alt: format!(
                "Speed-up over base against memory at its peak over that of base, a point for each policy{of}; no other beats {}",
                front.iter().map(|mark| mark.label.as_str()).collect::<Vec<_>>().join(", ")
            ),
            kind: Kind::Scatter,
            x: Axis { label: format!("memory at its peak over that of base{of}"), ..Axis::default() },
            y: Axis { label: format!("{}speed-up over base", self.sign), ..Axis::default() },
            groups: Vec::new(),
            series: all,
            baseline: Some(1.0),
        };
        several.then(|| self.shown(Drawn::Figure(figure), &[policies]))
    }
}

/// What the numbers of a policy are means of.
fn means_of(rows: usize) -> String {
    if rows == 1 { String::new() } else { format!(", means of {rows} rows each") }
}

/// The map in one picture: the scatter plot among these figures, as the text of an SVG file.
pub(crate) fn picture(all: &[Shown]) -> Option<String> {
    all.iter().find_map(|shown| match &shown.drawn {
        Drawn::Figure(figure) if figure.kind == Kind::Scatter => Some(figure.svg()),
        _ => None,
    })
}
