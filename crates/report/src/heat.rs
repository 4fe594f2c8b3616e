//! Heat maps: a number for each pair of two lists, as a colour and in digits.

use crate::chart::{LETTER, WIDTH};
use crate::page::escape;
use crate::scale::tick;
use std::fmt::Write;

/// The height of a line of cells.
const ROW: f64 = 27.0;
/// How far a letter of a turned name goes to the right, and up.
const TURNED: (f64, f64) = (0.82 * LETTER, 0.6 * LETTER);
/// The most letters of a name.
const LETTERS: usize = 28;

/// A heat map. Colours say by what factor a number is more or less than 1: blue is more.
#[derive(Clone, PartialEq, Debug)]
pub struct Heat {
    /// The title above it.
    pub title: String,
    /// What the columns are, and their names from left to right.
    pub columns: (String, Vec<String>),
    /// What the rows are, and their names from top to bottom.
    pub rows: (String, Vec<String>),
    /// What the numbers are.
    pub unit: String,
    /// A number for each column of each row, greater than 0, where there is one.
    pub values: Vec<Vec<Option<f64>>>,
}

impl Heat {
    /// The map as an element of HTML with its caption; `below` is HTML that follows it. `id` is
    /// unique in its page.
    pub fn html(&self, id: &str, below: &str) -> String {
        format!("<figure><figcaption>{}</figcaption>{}{below}</figure>\n", escape(&self.title), self.svg(id))
    }

    fn svg(&self, id: &str) -> String {
        let longest = self.rows.1.iter().map(|name| short(name).chars().count()).max().unwrap_or(0);
        let (left, right) = ((1.08 * LETTER * longest as f64).max(40.0) + 38.0, WIDTH - 18.0);
        let letters = |name: &String| short(name).chars().count() as f64;
        let mut width = ((right - left) / self.columns.1.len().max(1) as f64).min(120.0);
        let most = self.columns.1.iter().map(letters).fold(0.0, f64::max);
        let turned = LETTER * most > width - 6.0;
        if turned {
            // The last names go beyond their columns.
            let beyond = self.columns.1.last().map_or(0.0, letters) * TURNED.0;
            width = width.min((right - left - beyond) / (self.columns.1.len() as f64 - 0.5));
        }
        let top = 34.0 + if turned { TURNED.1 * most + 8.0 } else { 16.0 };
        // What the rows are stands beside them, turned: few rows may be shorter than its words.
        let words = LETTER * self.rows.0.chars().count() as f64;
        let height = top + words.max(ROW * self.rows.1.len() as f64) + 34.0;
        let (columns, rows) = (escape(&self.columns.0), escape(&self.rows.0));
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\
             <title id=\"{id}-title\">{}</title><desc id=\"{id}-desc\">{}</desc>\
             <text x=\"{left}\" y=\"16\">{columns}</text>\
             <text transform=\"translate(15 {:.1}) rotate(-90)\" text-anchor=\"middle\">{rows}</text>",
            escape(&self.title),
            escape(&self.said()),
            (top + height - 34.0) / 2.0
        );
        for (number, name) in self.columns.1.iter().enumerate() {
            let (x, y, shown) = (left + width * (number as f64 + 0.5), top - 8.0, escape(&short(name)));
            let _ = if turned {
                write!(out, "<text class=\"number\" transform=\"translate({x:.1} {y}) rotate(-35)\">{shown}")
            } else {
                write!(out, "<text class=\"number\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{shown}")
            };
            let _ = write!(out, "<title>{}</title></text>", escape(name));
        }
        let most = self.all().map(|value| value.ln().abs()).fold(1e-9, f64::max);
        for (number, name) in self.rows.1.iter().enumerate() {
            let y = top + ROW * number as f64;
            let (x, base, shown, name) = (left - 8.0, y + ROW / 2.0 + 4.5, escape(&short(name)), escape(name));
            let _ = write!(
                out,
                "<text class=\"number\" x=\"{x:.1}\" y=\"{base:.1}\" text-anchor=\"end\">{shown}<title>{name}</title></text>"
            );
            for (column, value) in self.values[number].iter().enumerate() {
                let x = left + width * column as f64;
                let Some(value) = value else {
                    let middle = x + width / 2.0;
                    let _ = write!(
                        out,
                        "<text class=\"number\" x=\"{middle:.1}\" y=\"{base:.1}\" text-anchor=\"middle\">–</text>"
                    );
                    continue;
                };
                let series = if *value >= 1.0 { 0 } else { 1 };
                let strength = 0.06 + 0.64 * value.ln().abs() / most;
                let _ = write!(
                    out,
                    "<rect class=\"heat s{series}\" fill-opacity=\"{strength:.2}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                     height=\"{:.1}\"/><text x=\"{:.1}\" y=\"{base:.1}\" text-anchor=\"middle\">{}</text>",
                    x + 1.0,
                    y + 1.0,
                    width - 2.0,
                    ROW - 2.0,
                    x + width / 2.0,
                    digits(*value)
                );
            }
        }
        let _ =
            write!(out, "<text class=\"number\" x=\"{left}\" y=\"{:.1}\">{}</text>", height - 12.0, escape(&self.unit));
        out + "</svg>"
    }

    fn all(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().flatten().flatten().copied()
    }

    /// The greatest and the least number, for screen readers.
    fn said(&self) -> String {
        let pairs = self.values.iter().enumerate();
        let pairs =
            pairs.flat_map(|(row, values)| values.iter().enumerate().map(move |(column, value)| (row, column, value)));
        let known: Vec<(usize, usize, f64)> =
            pairs.filter_map(|(row, column, value)| Some((row, column, (*value)?))).collect();
        let say = |found: Option<&(usize, usize, f64)>| {
            let say = |(row, column, value): &(usize, usize, f64)| {
                format!("{} with {} and {}", digits(*value), self.rows.1[*row], self.columns.1[*column])
            };
            found.map_or("none".into(), say)
        };
        let by = |a: &&(usize, usize, f64), b: &&(usize, usize, f64)| a.2.total_cmp(&b.2);
        format!("{}: most {}, least {}", self.unit, say(known.iter().max_by(by)), say(known.iter().min_by(by)))
    }
}

/// A name that fits.
pub(crate) fn short(name: &str) -> String {
    if name.chars().count() > LETTERS { name.chars().take(LETTERS - 1).chain(['…']).collect() } else { name.into() }
}

fn digits(value: f64) -> String {
    let steps = if value < 10.0 { 100.0 } else { 10.0 };
    tick((value * steps).round() / steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_a_cell_and_what_is_not_known_is_none() {
        let heat = Heat {
            title: "Entries & ways".into(),
            columns: ("ways".into(), vec!["4".into(), "a long name that is turned, and cut as well".into()]),
            rows: ("entries".into(), vec!["64".into(), "<128>".into()]),
            unit: "speedup".into(),
            values: vec![vec![Some(1.0), Some(2.5)], vec![Some(0.5), None]],
        };
        let html = heat.html("one", "<p>below</p>");
        assert_eq!(html.matches("class=\"heat s0\"").count(), 2);
        assert_eq!(html.matches("class=\"heat s1\"").count(), 1);
        assert!(html.contains("most 2.5 with 64 and a long name") && html.contains("least 0.5 with &lt;128&gt; and 4"));
        assert!(
            html.contains("rotate(-35)")
                && html.contains("Entries &amp; ways")
                && html.ends_with("<p>below</p></figure>\n")
        );
    }
}
