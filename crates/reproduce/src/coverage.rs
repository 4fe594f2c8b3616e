//! Kind `coverage`: how much of main memory the entries of a TLB reach, over the years (figure 1).

use serde::Deserialize;

/// A computer of the figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Workstation {
    pub(crate) letter: String,
    pub(crate) name: String,
    pub(crate) year: f64,
}
