//! Figures with their numbers, ready to be drawn.

use crate::experiment::{Experiment, Figure, Series};
use crate::finding::Values;
use crate::measure::Value;
use superpage_report::{Figure as Drawing, Kind, Point, Series as Drawn};

/// All figures of an experiment. A series without points is left out.
pub(crate) fn drawings(experiment: &Experiment, values: &dyn Values) -> Vec<Drawing> {
    let drawing = |figure: &Figure| Drawing {
        title: figure.title.clone(),
        alt: figure.alt.clone(),
        kind: figure.kind,
        x: figure.x.clone(),
        y: figure.y.clone(),
        groups: figure.groups.clone(),
        baseline: None,
        series: figure
            .series
            .iter()
            .map(|series| drawn(figure, series, values))
            .filter(|series| !series.points.is_empty() || !series.paper.is_empty())
            .collect(),
    };
    experiment.figures.iter().map(drawing).collect()
}

fn drawn(figure: &Figure, series: &Series, values: &dyn Values) -> Drawn {
    let mut points = series.points.as_ref().map(|curve| values.curve(curve)).unwrap_or_default();
    for (index, measure) in series.values.iter().enumerate() {
        if let Some(Value::Number(y)) = measure.0.value(&|name| values.value(None, name)) {
            points.push(Point { x: index as f64, y, label: String::new() });
        }
    }
    points.retain(|point| (!figure.x.log || point.x > 0.0) && (!figure.y.log || point.y > 0.0));
    let line = figure.kind == Kind::Lines || series.line;
    Drawn { name: series.name.clone(), points, line, paper: series.paper.clone() }
}
