//! Rows that a reader explores on a page: which quantity, for which values of which axes, against
//! what. Drawn by Observable Plot, which the page contains (`vendor/`): it makes plain SVG from
//! data, has facets, tips and logarithmic scales, and needs half a megabyte and no network.

use crate::page::escape;
use serde::Serialize;
use serde_json::{Value, json};

/// A set of rows to explore. A page has at most one, whose choices its address keeps
/// ([`crate::page`]).
pub struct Explorer {
    /// What rows differ in.
    pub axes: Vec<ExploredAxis>,
    /// The quantities, in the order of each row's values.
    pub measures: Vec<Measure>,
    /// The rows.
    pub rows: Vec<ExploredRow>,
    /// The axis whose values have colours at first: one with several values.
    pub colours: usize,
    /// The axis that lines go along at first.
    pub over: Option<usize>,
    /// The axis and its value whose rows alone are shown at first; `None`: all rows.
    pub only: Option<(usize, usize)>,
}

/// An axis: what rows differ in.
#[derive(Serialize)]
pub struct ExploredAxis {
    /// Its name.
    pub name: String,
    /// The names of its values.
    pub values: Vec<String>,
    /// The same as numbers, if they are numbers.
    pub numbers: Option<Vec<f64>>,
}

/// A quantity of rows.
#[derive(Serialize)]
pub struct Measure {
    /// Its name in files.
    pub name: &'static str,
    /// Its name for readers.
    pub label: String,
    /// Its unit, written after a number.
    pub unit: &'static str,
    /// Whether it is a ratio to a baseline, so that means are geometric and 1 is no difference.
    pub ratio: bool,
    /// Whether larger values are better; `None` if neither larger nor smaller ones are.
    pub higher_is_better: Option<bool>,
}

/// One row.
pub struct ExploredRow {
    /// The value of each axis, by number.
    pub chosen: Vec<usize>,
    /// Whether all of it is known: a mean over rows that are not gets a mark.
    pub complete: bool,
    /// The value of each measure; `NaN` where there is none.
    pub values: Vec<f64>,
    /// The 95 % interval of each, from low to high; none where it is exact or unknown.
    pub intervals: Vec<Option<(f64, f64)>>,
}

/// Below this a whole `f64` is exact: 2^53.
const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

impl ExploredRow {
    fn json(&self) -> Value {
        // All digits: the page saves them as CSV. Whole numbers have no fraction.
        let number = |value: &f64| match *value {
            value if !value.is_finite() => Value::Null,
            value if value.fract() == 0.0 && value.abs() < EXACT => json!(value as i64),
            value => json!(value),
        };
        let chosen = self.chosen.iter().map(|value| json!(value));
        let head = chosen.chain([json!(u8::from(self.complete))]);
        let interval = |interval: &Option<(f64, f64)>| match interval {
            Some((low, high)) => json!([number(low), number(high)]),
            None => Value::Null,
        };
        Value::from_iter(head.chain(self.values.iter().map(number)).chain(self.intervals.iter().map(interval)))
    }
}

/// How a page is known to need the scripts.
const CLASS: &str = "<section class=\"explore\">";

impl Explorer {
    /// These rows; `None` if they differ in nothing. Colours are those of the axis with number
    /// `preferred`, if it has several values.
    pub fn new(
        axes: Vec<ExploredAxis>,
        measures: Vec<Measure>,
        rows: Vec<ExploredRow>,
        preferred: usize,
    ) -> Option<Explorer> {
        let several = |at: &usize| axes[*at].values.len() > 1;
        let colours = Some(preferred).filter(several).or_else(|| (0..axes.len()).find(several))?;
        let others = || (0..axes.len()).filter(|at| several(at) && *at != colours);
        let over = others().find(|at| axes[*at].numbers.is_some()).or_else(|| others().next());
        Some(Explorer { axes, measures, rows, colours, over, only: None })
    }

    /// The section of a page, under this title; `below` is HTML. Cost: as many bytes for each
    /// number as its digits, at most some 20.
    pub fn html(&self, title: &str, below: &str) -> String {
        let data = json!({
            "dims": self.axes,
            "measures": self.measures,
            "rows": self.rows.iter().map(ExploredRow::json).collect::<Vec<_>>(),
            "colour": self.colours,
            "over": self.over,
            "only": self.only,
            "show": 0,
            "against": usize::from(self.measures.len() > 1),
        });
        format!(
            "{CLASS}<h2>{}</h2>\n<noscript><p>Enable JavaScript to explore the rows.</p></noscript>\n<form></form>\n\
             <div class=\"panels\"></div>\n{below}\n<script type=\"application/json\">{}</script></section>\n",
            escape(title),
            data.to_string().replace('<', "\\u003c"),
        )
    }
}

/// The scripts that a page with this content needs.
pub(crate) fn scripts(main: &str) -> String {
    if !main.contains(CLASS) {
        return String::new();
    }
    let all =
        [include_str!("../vendor/d3.min.js"), include_str!("../vendor/plot.umd.min.js"), include_str!("explore.js")];
    all.iter().map(|script| format!("<script>{script}</script>\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_and_text_cannot_leave_the_data() {
        let values = vec!["</script>".into(), "base".into()];
        let gain = |name| Measure { name, label: name.into(), unit: "", ratio: true, higher_is_better: Some(true) };
        let explorer = Explorer::new(
            vec![ExploredAxis { name: "policy".into(), values, numbers: None }],
            ["a", "b", "c"].map(gain).into(),
            vec![ExploredRow {
                chosen: vec![0],
                complete: true,
                values: vec![123456.0, 0.1 + 0.2, 9e15],
                intervals: vec![None, Some((0.1, 0.75)), None],
            }],
            0,
        );
        let explorer = explorer.unwrap();
        let html = explorer.html("Rows", "");
        assert!(
            html.contains("[[0,1,123456,0.30000000000000004,9000000000000000,null,[0.1,0.75],null]]")
                && html.matches("</script>").count() == 1,
            "{html}"
        );
        assert!(crate::page("t", "", &html).contains("Plot") && !crate::page("t", "", "").contains("<script"));
    }
}
