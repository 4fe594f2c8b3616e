//! Named values that an experiment computes itself, without a stream: those of the kinds
//! `coverage`, `operations`, `holes` and `filling`.

use crate::running::Outcome;
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
    /// Why items have no values, by their names.
    pub(crate) problems: BTreeMap<String, Outcome>,
    /// What could not be run, one sentence each.
    pub(crate) failures: Vec<String>,
}

impl Computed {
    /// Adds a point to the curve with this name.
    pub(crate) fn point(&mut self, curve: &str, x: f64, y: f64, label: &str) {
        self.curves.entry(curve.into()).or_default().push(Point { x, y, label: label.into() });
    }
}
