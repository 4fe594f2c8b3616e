//! The report as a page of HTML: the findings as a table, and the measured points as figures.

use super::{Finding, Probe, Series, Value};
use std::fmt::Write;
use superpage_report::{Axis, Figure, Kind, Point, escape, page};

pub(crate) fn html(probe: &Probe) -> String {
    let lead = format!(
        "<p class=\"lead\">What this machine and its kernel do with pages of several sizes, found out by timing alone: {}. \
         Times are the shortest of many short repeats on one processor.</p>\n",
        escape(&probe.processor)
    );
    let mut main = String::from(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th class=\"text\">What</th><th class=\"text\">Found</th>\
         <th>Repeats agree</th><th class=\"text\">Evidence</th></tr></thead>\n<tbody>\n",
    );
    for finding in &probe.findings {
        let agree =
            if finding.value.is_some() { format!("{:.0} %", 100.0 * finding.confidence) } else { String::new() };
        let cells = [&finding.what, &finding.found(), &agree, &finding.evidence].map(|cell| escape(cell));
        let _ = writeln!(
            main,
            "<tr><th scope=\"row\">{}</th><td class=\"text\">{}</td><td>{}</td><td class=\"text\">{}</td></tr>",
            cells[0], cells[1], cells[2], cells[3]
        );
    }
    main += "</tbody>\n</table></div>\n";
    let title = "Latency of a dependent load against the pages touched";
    main += &figure(title, &probe.latency, true).html("latency");
    for (number, finding) in probe.findings.iter().filter(|finding| !finding.series.is_empty()).enumerate() {
        let shares = finding.series.iter().all(|series| series.axes[1].starts_with("share"));
        main += &figure(&finding.what, &finding.series, !shares).html(&format!("figure{number}"));
    }
    page("superpage probe", &lead, &main)
}

fn figure(title: &str, series: &[Series], log: bool) -> Figure {
    let [x, y] = series.first().map_or(["", ""], |first| first.axes);
    // A logarithmic axis has no place for 0.
    let drawn = |point: &&[f64; 2]| point[0] > 0.0 && (!log || point[1] > 0.0);
    Figure {
        title: title.into(),
        alt: format!(
            "{title}: {y} against {x}, a line each for {}",
            series.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ")
        ),
        kind: Kind::Lines,
        x: Axis { label: x.into(), log: true, bytes: x.starts_with("bytes"), ..Axis::default() },
        y: Axis { label: y.into(), log, ..Axis::default() },
        groups: Vec::new(),
        baseline: None,
        series: series
            .iter()
            .map(|series| superpage_report::Series {
                name: series.name.clone(),
                points: series
                    .points
                    .iter()
                    .filter(drawn)
                    .map(|[x, y]| Point { x: *x, y: *y, label: String::new() })
                    .collect(),
                line: true,
                paper: Vec::new(),
            })
            .collect(),
    }
}

impl Finding {
    /// The value with its unit, for people.
    pub fn found(&self) -> String {
        match &self.value {
            None if self.is_unmeasured() => "not measured".into(),
            None => "could not be determined".into(),
            Some(Value::Yes(true)) => "yes".into(),
            Some(Value::Yes(false)) => "no".into(),
            Some(Value::Text(text)) => text.clone(),
            Some(Value::Number(number)) if self.unit == "Hz" => format!("{:.2} GHz", number / 1e9),
            Some(Value::Number(number)) if number.fract() == 0.0 => format!("{number} {}", self.unit).trim_end().into(),
            Some(Value::Number(number)) if *number < 10.0 => format!("{number:.2} {}", self.unit),
            Some(Value::Number(number)) => format!("{number:.1} {}", self.unit),
        }
    }
}
