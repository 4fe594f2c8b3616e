//! Figures as SVG: scatters with letters, lines, grouped bars. Series differ in colour, and in mark
//! or dash as well.

use crate::figure::{Axis, Figure, Kind, Point, Series};
use crate::page::escape;
use crate::scale::{Scale, tick};
use std::fmt::Write;

pub(crate) const WIDTH: f64 = 760.0;
pub(crate) const HEIGHT: f64 = 420.0;
pub(crate) const LEFT: f64 = 66.0;
pub(crate) const RIGHT: f64 = 742.0;
pub(crate) const BOTTOM: f64 = 362.0;
/// The height of a line of the legend.
const LINE: f64 = 20.0;
/// About the width of a letter.
pub(crate) const LETTER: f64 = 6.7;

/// The most letters of a name beside an axis.
const LETTERS: usize = 28;

/// A name that fits.
fn short(name: &str) -> String {
    if name.chars().count() > LETTERS { name.chars().take(LETTERS - 1).chain(['…']).collect() } else { name.into() }
}

/// The number of colours; further series have the first ones again, with other marks or dashes.
const COLOURS: usize = 12;

/// Dashes of lines, by the number of the series.
const DASHES: [&str; 6] = ["none", "7 4", "2 3", "9 3 2 3", "4 2", "12 4"];

/// One figure as SVG, with its title and a description for screen readers.
pub(crate) fn svg(figure: &Figure, id: &str) -> String {
    let (legend, lines) = legend(figure);
    let top = 14.0 + LINE * lines as f64;
    let height = HEIGHT + if turns(figure) { TURNED } else { 0.0 };
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\
         <title id=\"{id}-title\">{}</title><desc id=\"{id}-desc\">{}</desc>{legend}",
        escape(&figure.title),
        escape(&figure.alt)
    );
    match figure.kind {
        Kind::Bars => bars(figure, top, &mut out),
        Kind::Scatter | Kind::Lines => points(figure, top, &mut out),
        Kind::Areas => areas(figure, top, &mut out),
    }
    out + "</svg>"
}

/// The room that names of groups take below the axis where they are turned.
const TURNED: f64 = 76.0;

/// Whether the names of groups are longer than the room for them, and so are turned.
fn turns(figure: &Figure) -> bool {
    let room = (RIGHT - LEFT) / figure.groups.len().max(1) as f64;
    figure.kind == Kind::Bars && figure.groups.iter().any(|name| LETTER * name.chars().count() as f64 > room)
}

/// The line that values are read against.
fn baseline(figure: &Figure, y: &Scale, out: &mut String) {
    if let Some(value) = figure.baseline {
        let _ = write!(out, "<path class=\"baseline\" d=\"M{LEFT} {:.1}H{RIGHT}\"/>", y.at(value));
    }
}

/// The legend, and how many lines it takes.
fn legend(figure: &Figure) -> (String, usize) {
    let (mut out, mut x, mut line) = (String::new(), LEFT, 0);
    let mut entry = |name: &str, sample: &dyn Fn(f64, f64) -> String| {
        let width = 34.0 + LETTER * name.chars().count() as f64 + 16.0;
        if x > LEFT && x + width > RIGHT {
            (x, line) = (LEFT, line + 1);
        }
        let y = 16.0 + LINE * line as f64;
        let name = escape(name);
        let _ = write!(out, "{}<text x=\"{}\" y=\"{}\">{name}</text>", sample(x, y - 4.0), x + 32.0, y);
        x += width;
    };
    for (index, series) in figure.series.iter().enumerate() {
        let sample = |x: f64, y: f64| match figure.kind {
            Kind::Bars | Kind::Areas => rectangle(index, x + 8.0, y - 7.0, 14.0, 14.0),
            _ => {
                let line = if series.line { path(index, &[(x, y), (x + 26.0, y)]) } else { String::new() };
                let marked = !series.line || series.points.len() <= MARKED;
                let letters = series.points.first().is_some_and(|point| is_letter(&point.label));
                let mark = match (marked, letters) {
                    (true, true) => letter(index, x + 13.0, y, "A"),
                    (true, false) if !series.line || figure.kind == Kind::Lines => mark(index, x + 13.0, y),
                    _ => String::new(),
                };
                line + &mark
            }
        };
        entry(&series.name, &sample);
    }
    if figure.series.iter().any(|series| !series.paper.is_empty()) {
        entry("the paper's values", &|x, y| paper_mark(x + 2.0, x + 28.0, y));
    }
    (out, line + 1)
}

/// The least width of a bar with its value above it.
const VALUE: f64 = 24.0;

/// The most points of a line that are marked one by one.
const MARKED: usize = 16;

fn is_letter(label: &str) -> bool {
    label.chars().count() == 1
}

fn points(figure: &Figure, top: f64, out: &mut String) {
    let all = || figure.series.iter().flat_map(|series| &series.points);
    let mut x = Scale::over(all().map(|point| point.x), figure.x.log, false, (LEFT, RIGHT));
    if figure.kind == Kind::Scatter {
        x = x.close(all().map(|point| point.x));
    }
    let mut exact: Vec<f64> = Vec::new();
    if figure.x.bytes || figure.x.exact {
        exact = all().map(|point| point.x).collect();
        exact.sort_by(f64::total_cmp);
        exact.dedup();
        if let (Some(first), Some(last)) = (exact.first(), exact.last()) {
            let margin = (last - first) / 12.0;
            x = if figure.x.log { x.tight(first / 2.0, last * 2.0) } else { x.tight(first - margin, last + margin) };
        }
    }
    let values = all().map(|point| point.y).chain(figure.baseline);
    let y = Scale::over(values, figure.y.log, figure.kind == Kind::Lines && figure.baseline.is_none(), (BOTTOM, top));
    let ticks = if exact.is_empty() { x.ticks() } else { exact };
    axes((&figure.x.label, &figure.y.label), top, &y, out);
    baseline(figure, &y, out);
    for value in ticks {
        let text = if figure.x.bytes {
            crate::bytes(value as u64).replace(".00", "").replace(".0 ", " ")
        } else {
            tick_of(&figure.x, value)
        };
        number_below(&x, value, &text, out);
    }
    let places = |series: &Series| -> Vec<(f64, f64)> {
        series.points.iter().map(|point| (x.at(point.x), y.at(point.y))).collect()
    };
    // First all marks, then labels where there is room.
    let mut taken: Vec<[f64; 4]> = Vec::new();
    for (index, series) in figure.series.iter().enumerate() {
        let places = places(series);
        if series.line {
            *out += &path(index, &places);
        }
        if !series.line || places.len() <= MARKED && figure.kind == Kind::Lines {
            marks(index, series, &places, &mut taken, out);
        }
    }
    for (index, series) in figure.series.iter().enumerate() {
        for (Point { label, .. }, (x, y)) in series.points.iter().zip(places(series)) {
            if label.chars().count() > 1 {
                name(index, label, (x, y), &mut taken, out);
            }
        }
    }
}

/// Areas one above the other.
fn areas(figure: &Figure, top: f64, out: &mut String) {
    let first = figure.series.first().map_or(&[][..], |series| &series.points);
    let mut tops: Vec<Vec<f64>> = vec![vec![0.0; first.len()]];
    for series in &figure.series {
        let below = tops.last().into_iter().flatten();
        tops.push(below.zip(&series.points).map(|(below, point)| below + point.y).collect());
    }
    let y = Scale::over(tops.iter().flatten().copied(), false, true, (BOTTOM, top));
    let xs = || first.iter().map(|point| point.x);
    let x = Scale::over(xs(), false, true, (LEFT, RIGHT));
    let x = x.tight(xs().fold(f64::INFINITY, f64::min).min(0.0), xs().fold(f64::MIN_POSITIVE, f64::max));
    axes((&figure.x.label, &figure.y.label), top, &y, out);
    for (index, pair) in tops.windows(2).enumerate() {
        let edge = |tops: &[f64]| -> Vec<String> {
            let place = |(x_value, top): (f64, &f64)| format!("{:.1} {:.1}", x.at(x_value), y.at(*top));
            xs().zip(tops).map(place).collect()
        };
        let (mut below, above) = (edge(&pair[0]), edge(&pair[1]));
        below.reverse();
        let outline = [above, below].concat().join("L");
        let _ = write!(out, "<path class=\"bar s{} h{}\" d=\"M{outline}z\"/>", index % COLOURS, index % 2);
    }
    for value in x.ticks() {
        number_below(&x, value, &tick_of(&figure.x, value), out);
    }
    for Point { x: at, label, .. } in first.iter().filter(|point| !point.label.is_empty()) {
        let (place, label) = (x.at(*at), escape(label));
        let _ = write!(out, "<path class=\"baseline\" d=\"M{place:.1} {top}V{BOTTOM}\"><title>{label}</title></path>");
    }
}

/// A number below the x axis, with its tick.
fn number_below(x: &Scale, value: f64, text: &str, out: &mut String) {
    let place = x.at(value);
    let _ = write!(
        out,
        "<path class=\"tick\" d=\"M{place:.1} {BOTTOM}v5\"/>\
         <text class=\"number\" x=\"{place:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
        BOTTOM + 20.0
    );
}

/// Whether two boxes overlap; a box is left, top, right, bottom.
fn meet(a: &[f64; 4], b: &[f64; 4]) -> bool {
    a[0] <= b[2] && b[0] <= a[2] && a[1] <= b[3] && b[1] <= a[3]
}

/// The marks of a series. A letter moves aside if another is in its place.
fn marks(index: usize, series: &Series, places: &[(f64, f64)], taken: &mut Vec<[f64; 4]>, out: &mut String) {
    for (Point { label, .. }, (x, y)) in series.points.iter().zip(places) {
        let around = |x: f64| [x - 5.0, y - 6.0, x + 5.0, y + 6.0];
        if !is_letter(label) {
            *out += &mark(index, *x, *y);
            taken.push(around(*x));
            continue;
        }
        let aside = [0.0, 11.0, -11.0, 22.0, -22.0].into_iter().map(|dx| x + dx);
        let free = aside.into_iter().find(|x| !taken.iter().any(|other| meet(&around(*x), other))).unwrap_or(*x);
        *out += &letter(index, free, *y, label);
        taken.push(around(free));
    }
}

/// The label of a mark, in the first free place around it; left out if there is none.
fn name(index: usize, label: &str, (x, y): (f64, f64), taken: &mut Vec<[f64; 4]>, out: &mut String) {
    let width = LETTER * label.chars().count() as f64;
    let offsets = [0.0, -12.0, 12.0, -24.0, 24.0, -36.0, 36.0];
    let sides = [x - 9.0 - width, x + 9.0];
    let spots = offsets.iter().flat_map(|dy| sides.map(|at| [at, y + dy - 5.0, at + width, y + dy + 5.0]));
    let free = |spot: &[f64; 4]| spot[0] > LEFT && spot[2] < WIDTH && !taken.iter().any(|other| meet(spot, other));
    if let Some(spot) = spots.into_iter().find(free) {
        taken.push(spot);
        let (left, base, label, index) = (spot[0], spot[3] - 1.0, escape(label), index % COLOURS);
        let _ = write!(out, "<text class=\"label s{index}\" x=\"{left:.1}\" y=\"{base:.1}\">{label}</text>");
    }
}

fn bars(figure: &Figure, top: f64, out: &mut String) {
    let values = || figure.series.iter().flat_map(|s| s.points.iter().map(|p| p.y).chain(s.paper.iter().copied()));
    let y = Scale::over(values().chain(figure.baseline), figure.y.log, true, (BOTTOM, top));
    let turned = turns(figure);
    axes((if turned { "" } else { &figure.x.label }, &figure.y.label), top, &y, out);
    let group = (RIGHT - LEFT) / figure.groups.len().max(1) as f64;
    let width = (group * 0.76 / figure.series.len().max(1) as f64).min(58.0);
    for (number, name) in figure.groups.iter().enumerate() {
        let middle = LEFT + group * (number as f64 + 0.5);
        let (shown, name) = (escape(&short(name)), escape(name));
        let _ = if turned {
            write!(
                out,
                "<text class=\"number\" transform=\"translate({:.1} {}) rotate(-35)\" text-anchor=\"end\">{shown}\
             <title>{name}</title></text>",
                middle + 5.0,
                BOTTOM + 16.0
            )
        } else {
            write!(
                out,
                "<text class=\"number\" x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
                BOTTOM + 20.0
            )
        };
        for (index, series) in figure.series.iter().enumerate() {
            let left = middle + width * (index as f64 - figure.series.len() as f64 / 2.0);
            if let Some(point) = series.points.iter().find(|point| point.x == number as f64) {
                let height = BOTTOM - y.at(point.y);
                let gap = (width * 0.08).min(2.0);
                *out += &rectangle(index, left + gap, BOTTOM - height, width - 2.0 * gap, height);
                let text = tick((point.y * 100.0).round() / 100.0);
                let above = BOTTOM - height - 5.0;
                if width < VALUE {
                    continue;
                }
                let _ = write!(
                    out,
                    "<text class=\"value\" x=\"{:.1}\" y=\"{above:.1}\" text-anchor=\"middle\">{text}</text>",
                    left + width / 2.0
                );
            }
            if let Some(paper) = series.paper.get(number) {
                *out += &paper_mark(left, left + width, y.at(*paper));
            }
        }
    }
    baseline(figure, &y, out);
}

/// The frame, the lines of the y axis with their numbers, and the names of both axes.
pub(crate) fn axes((x, unit): (&str, &str), top: f64, y: &Scale, out: &mut String) {
    for value in y.ticks() {
        let place = y.at(value);
        let _ = write!(out, "<path class=\"grid\" d=\"M{LEFT} {place:.1}H{RIGHT}\"/>");
        let _ = write!(
            out,
            "<text class=\"number\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            place + 4.0,
            tick(value)
        );
    }
    let _ = write!(out, "<path class=\"axis\" d=\"M{LEFT} {top}V{BOTTOM}H{RIGHT}\"/>");
    let (x, y) = (escape(x), escape(unit));
    let (middle, half) = ((LEFT + RIGHT) / 2.0, (top + BOTTOM) / 2.0);
    let _ = write!(out, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{x}</text>", BOTTOM + 44.0);
    let _ = write!(out, "<text transform=\"translate(15 {half}) rotate(-90)\" text-anchor=\"middle\">{y}</text>");
}

/// A number on the x axis; years have no thousands separator.
fn tick_of(axis: &Axis, value: f64) -> String {
    if axis.log { tick(value) } else { format!("{}", (value * 1e5).round() / 1e5) }
}

fn path(index: usize, places: &[(f64, f64)]) -> String {
    let mut d = String::new();
    for (number, (x, y)) in places.iter().enumerate() {
        let _ = write!(d, "{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' });
    }
    format!(
        "<path class=\"line s{}\" stroke-dasharray=\"{}\" d=\"{d}\"/>",
        index % COLOURS,
        DASHES[index % DASHES.len()]
    )
}

/// A mark, with a shape of its own for each series.
fn mark(index: usize, x: f64, y: f64) -> String {
    let shape = match index % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\""),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"", x - 4.0, y - 4.0),
        2 => format!("<path d=\"M{x:.1} {:.1}l5 9h-10z\"", y - 6.0),
        _ => format!("<path d=\"M{x:.1} {:.1}l6 6-6 6-6-6z\"", y - 6.0),
    };
    format!("{shape} class=\"mark s{}\"/>", index % COLOURS)
}

fn letter(index: usize, x: f64, y: f64, label: &str) -> String {
    let (label, index) = (escape(label), index % COLOURS);
    format!("<text class=\"letter s{index}\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", y + 5.0)
}

fn rectangle(index: usize, x: f64, y: f64, width: f64, height: f64) -> String {
    let class = format!("class=\"bar s{} h{}\"", index % COLOURS, index % 2);
    format!("<rect {class} x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>")
}

/// The paper's value: a line across a bar.
fn paper_mark(left: f64, right: f64, y: f64) -> String {
    format!("<path class=\"paper\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>")
}
