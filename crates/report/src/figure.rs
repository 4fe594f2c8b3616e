//! Figures with their numbers, ready to be drawn.

use serde::Deserialize;

/// How a figure is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Points, each with its mark.
    Scatter,
    /// A line for each series.
    Lines,
    /// Groups of bars, one bar for each series.
    Bars,
    /// Areas one above the other; all series have points at the same places. A point of the first
    /// with a name is marked by a line.
    Areas,
}

/// An axis of a figure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// Whether it is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Whether its numbers are bytes, those of the points.
    #[serde(default)]
    pub bytes: bool,
    /// Of a horizontal axis, whether the numbers beside it are those of the points.
    #[serde(default)]
    pub exact: bool,
}

/// A point of a series.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Along the x axis; of bars, the number of the group.
    pub x: f64,
    /// Along the y axis.
    pub y: f64,
    /// A letter that is its mark, or a name beside it; may be empty.
    pub label: String,
}

/// A series of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points.
    pub points: Vec<Point>,
    /// Whether they are joined by a line.
    pub line: bool,
    /// For bars: a paper's values, one per group.
    pub paper: Vec<f64>,
}

/// A figure with all its numbers.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The title above it.
    pub title: String,
    /// A description for screen readers.
    pub alt: String,
    /// How it is drawn.
    pub kind: Kind,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// For bars: the names of the groups.
    pub groups: Vec<String>,
    /// The series, in the order of the legend.
    pub series: Vec<Series>,
    /// A value of the y axis that others are read against, drawn as a line.
    pub baseline: Option<f64>,
}

impl Figure {
    /// The figure as an HTML element with its caption. `id` must be unique in its page.
    pub fn html(&self, id: &str) -> String {
        self.html_above(id, "")
    }

    /// The same above `below`, which is HTML.
    pub fn html_above(&self, id: &str, below: &str) -> String {
        let title = crate::page::escape(&self.title);
        format!("<figure><figcaption>{title}</figcaption>{}{below}</figure>\n", crate::chart::svg(self, id))
    }

    /// The figure as a file of its own, for light and dark screens.
    pub fn svg(&self) -> String {
        let svg = crate::chart::svg(self, "figure");
        let (head, rest) = svg.split_at(svg.find('>').expect("an element") + 1);
        let style = include_str!("style.css");
        format!("{} xmlns=\"http://www.w3.org/2000/svg\"><style>\n{style}</style>{rest}\n", head.trim_end_matches('>'))
    }
}
