//! Named values that an experiment computes itself, without a stream: those of the kinds `coverage` and `operations`.

use crate::experiment::Item;
use crate::finding::Values;
use crate::measure::Value;
use crate::streams::Outcome;
use std::collections::BTreeMap;
use superpage_report::Point;

/// A value to be shown, for which the paper has no number.
pub(crate) struct Shown {
    pub(crate) item: String,
    pub(crate) quantity: String,
    pub(crate) value: f64,
    pub(crate) reason: String,
}

/// The computed values.
#[derive(Default)]
pub(crate) struct Computed {
    pub(crate) values: BTreeMap<String, f64>,
    pub(crate) curves: BTreeMap<String, Vec<Point>>,
    pub(crate) shown: Vec<Shown>,
}

impl Computed {
    /// Adds a point to the curve with this name.
    pub(crate) fn point(&mut self, curve: &str, x: f64, y: f64, label: &str) {
        self.curves.entry(curve.into()).or_default().push(Point { x, y, label: label.into() });
    }
}

impl Values for Computed {
    fn value(&self, _: Option<&Item>, name: &str) -> Option<Value> {
        self.values.get(name).copied().map(Value::Number)
    }

    fn problem(&self, _: Option<&Item>, _: &str) -> Option<&Outcome> {
        None
    }

    fn error(&self, _: Option<&Item>, _: &str) -> Option<&str> {
        None
    }

    fn curve(&self, name: &str) -> Vec<Point> {
        self.curves.get(name).cloned().unwrap_or_default()
    }
}
