//! Figures with their numbers, ready to be drawn.

use crate::computed::Point;
use crate::experiment::{Axis, Experiment, Figure, FigureKind, Series};
use crate::finding::Values;
use crate::measure::Value;

/// A figure, and the points of each of its series.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    pub(crate) title: String,
    pub(crate) alt: String,
    pub(crate) kind: FigureKind,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Kind `bars`: the groups; a point's x is the number of its group.
    pub(crate) groups: Vec<String>,
    pub(crate) series: Vec<Drawn>,
}

/// A series with its points.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    /// Whether its points are joined by a line.
    pub(crate) line: bool,
    /// The paper's values, one a group.
    pub(crate) paper: Vec<f64>,
}

/// All figures of an experiment. A series without points is left out.
pub(crate) fn drawings(experiment: &Experiment, values: &dyn Values) -> Vec<Drawing> {
    let drawing = |figure: &Figure| Drawing {
        title: figure.title.clone(),
        alt: figure.alt.clone(),
        kind: figure.kind,
        x: figure.x.clone(),
        y: figure.y.clone(),
        groups: figure.groups.clone(),
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
    let line = figure.kind == FigureKind::Lines || series.line;
    Drawn { name: series.name.clone(), points, line, paper: series.paper.clone() }
}
