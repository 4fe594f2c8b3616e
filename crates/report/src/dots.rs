//! Figures that show every run: a point for each, and beside them the median with its interval.

use crate::chart::{BOTTOM, HEIGHT, LEFT, LETTER, RIGHT, WIDTH, axes};
use crate::page::escape;
use crate::scale::{Scale, tick};
use std::fmt::Write;

/// The values of a group, in the order in which they were measured.
#[derive(Clone, PartialEq, Debug)]
pub struct DotsOf {
    name: String,
    values: Vec<f64>,
    interval: Option<(f64, f64)>,
}

impl DotsOf {
    /// A group of `values`, and the interval of their median, if there are enough for one.
    pub fn new(name: impl Into<String>, values: Vec<f64>, interval: Option<(f64, f64)>) -> DotsOf {
        DotsOf { name: name.into(), values, interval }
    }

    fn median(&self) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            odd if odd % 2 == 1 => Some(sorted[half]),
            _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
        }
    }
}

/// A figure of groups of points. Its axis ranges from the least value to the greatest, not from 0:
/// it shows differences.
#[derive(Clone, PartialEq, Debug)]
pub struct Dots {
    /// The title above it.
    pub title: String,
    /// The unit of the values.
    pub unit: String,
    /// The groups, from left to right.
    pub groups: Vec<DotsOf>,
}

impl Dots {
    /// The figure as an element of HTML with its caption. `id` is unique in its page.
    pub fn html(&self, id: &str) -> String {
        let title = escape(&self.title);
        format!("<figure><figcaption>{title}</figcaption>{}</figure>\n", self.svg(id))
    }

    fn svg(&self, id: &str) -> String {
        let top = 34.0;
        let ends = self.groups.iter().filter_map(|group| group.interval).flat_map(|(low, high)| [low, high]);
        let values = || self.groups.iter().flat_map(|group| group.values.iter().copied());
        let y = Scale::over(values().chain(ends), false, false, (BOTTOM, top));
        let said: Vec<String> = self.groups.iter().filter_map(said).collect();
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\
             <title id=\"{id}-title\">{}</title><desc id=\"{id}-desc\">{}</desc>",
            escape(&self.title),
            escape(&format!("{}, {}: {}", self.title, self.unit, said.join("; ")))
        );
        let _ = write!(
            out,
            "<circle class=\"run\" cx=\"{}\" cy=\"12\" r=\"3.2\"/><text x=\"{}\" y=\"16\">a run, the first one left</text>\
             <path class=\"median\" d=\"M{} 12h22\"/><path class=\"interval\" d=\"M{} 4v16\"/>\
             <text x=\"{}\" y=\"16\">the median and its 95 % interval</text>",
            LEFT + 6.0,
            LEFT + 16.0,
            LEFT + 196.0,
            LEFT + 207.0,
            LEFT + 226.0
        );
        axes(("policy", &self.unit), top, &y, &mut out);
        let width = (RIGHT - LEFT) / self.groups.len().max(1) as f64;
        for (number, group) in self.groups.iter().enumerate() {
            draw(group, LEFT + width * number as f64, width, &y, &mut out);
        }
        out + "</svg>"
    }
}

/// A description of a group for screen readers.
fn said(group: &DotsOf) -> Option<String> {
    let median = group.median()?;
    let interval = group.interval.map(|(low, high)| format!(", interval {low:.3} to {high:.3}")).unwrap_or_default();
    let (least, most) =
        (group.values.iter().copied().fold(f64::INFINITY, f64::min), group.values.iter().copied().fold(0.0, f64::max));
    Some(format!("{} median {median:.3}{interval}, runs from {least:.3} to {most:.3}", group.name))
}

/// Draws a group in the space from `left` on: the points over the first three fifths, then the
/// median.
fn draw(group: &DotsOf, left: f64, width: f64, y: &Scale, out: &mut String) {
    let letters = ((width / LETTER) as usize).max(4);
    let name = if group.name.chars().count() <= letters {
        escape(&group.name)
    } else {
        format!("{}…", escape(&group.name.chars().take(letters - 1).collect::<String>()))
    };
    let _ = write!(
        out,
        "<text class=\"number\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{name}<title>{}</title></text>",
        left + width / 2.0,
        BOTTOM + 20.0,
        escape(&group.name)
    );
    let step = 0.56 * width / group.values.len().max(1) as f64;
    for (run, value) in group.values.iter().enumerate() {
        let x = left + 0.06 * width + step * (run as f64 + 0.5);
        let _ = write!(out, "<circle class=\"run\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.2\"/>", y.at(*value));
    }
    let Some(median) = group.median() else { return };
    let (from, middle, to) = (left + 0.66 * width, left + 0.76 * width, left + 0.86 * width);
    if let Some((low, high)) = group.interval {
        let _ = write!(out, "<path class=\"interval\" d=\"M{middle:.1} {:.1}V{:.1}\"/>", y.at(low), y.at(high));
    }
    let place = y.at(median);
    let digits = if median.abs() < 100.0 { 1000.0 } else { 10.0 };
    let _ = write!(
        out,
        "<path class=\"median\" d=\"M{from:.1} {place:.1}H{to:.1}\"/>\
         <text class=\"value\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        group.interval.map_or(place, |(_, high)| y.at(high)) - 6.0,
        tick((median * digits).round() / digits)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_a_point() {
        let groups = vec![
            DotsOf::new("now", vec![1.0, 1.1, 1.2, 0.9], Some((0.9, 1.2))),
            DotsOf::new("a name that is far longer than its place <here> in the picture of two", vec![0.5, 0.6], None),
        ];
        let html = Dots { title: "Time".into(), unit: "seconds".into(), groups }.html("one");
        // There is one more in the legend.
        assert_eq!(html.matches("<circle").count(), 4 + 2 + 1);
        assert_eq!(html.matches("class=\"median\"").count(), 2 + 1);
        assert_eq!(html.matches("class=\"interval\"").count(), 1 + 1);
        assert!(html.contains("now median 1.050, interval 0.900 to 1.200, runs from 0.900 to 1.200"), "{html}");
        assert!(html.contains("…") && html.contains("&lt;here&gt;") && !html.contains("<here>"));
    }
}
