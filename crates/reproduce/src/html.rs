//! The report as a page: its values to explore, then each experiment with its figures, the values
//! that are judged, and the others. One self-contained file, for light and dark screens, for paper,
//! and for screen readers.

use crate::measure::slug;
use crate::rows::{list, parted, shown};
use crate::{Done, Finding, Report, Value, Verdict};
use std::fmt::Write;
use superpage_report::{ExploredAxis, ExploredRow, Explorer, Measure, escape, page, prose};

/// The report as one HTML file.
pub fn html(report: &Report) -> String {
    let papers: Vec<&str> = report.done.iter().map(|done| done.experiment.paper()).collect();
    let mut names = papers.clone();
    names.dedup();
    let mut lead = String::from(
        "<p class=\"lead\">The paper's value of each quantity next to the value measured here. A value that is \
         not judged is \
         shown with the reason. Times are modelled, from exact counts or, where a value begins with ≈, from estimates of a sampled \
         recording, unless it says that they are this machine's.</p>\n\
         <ul class=\"counts\">",
    );
    let counts = Verdict::counts(report.findings().map(|finding| finding.verdict));
    for ((verdict, count), word) in Verdict::ALL.into_iter().zip(counts).zip(["agree", "differ", "are only shown"]) {
        let sign = sign(verdict);
        let _ = write!(
            lead,
            "<li><span class=\"sign\" role=\"img\" aria-label=\"{verdict}\">{sign}</span> <b>{count}</b> {word}</li>"
        );
    }
    lead += "</ul>\n<nav aria-label=\"Experiments\"><ol>\n";
    for done in &report.done {
        let (id, title) = (id(done), escape(&done.experiment.title));
        let _ = writeln!(
            lead,
            "<li><a href=\"#{id}\">{title}</a> <span class=\"tally\">{}</span></li>",
            tally(&done.findings)
        );
    }
    lead += "</ol></nav>\n";
    if !report.notes.is_empty() {
        let notes: Vec<String> = report.notes.iter().map(|note| format!("<li>{}</li>", prose(note))).collect();
        let _ = writeln!(lead, "<ul>{}</ul>", notes.join("\n"));
    }
    let below = "<p class=\"made\">Each row is a number measured here, with the paper's where it has one. Means over \
                 what is not chosen: geometric of ratios, arithmetic of others.</p>";
    let mut main = explorer(report).map_or(String::new(), |explorer| explorer.html("The values", below));
    report.done.iter().for_each(|done| section(done, &mut main));
    page(&format!("superpage reproduce {}", names.join(" ")), &lead, &main)
}

/// The numbers measured here, to explore; `None` if there are fewer than two.
fn explorer(report: &Report) -> Option<Explorer> {
    type Differing = (&'static str, fn(&Finding) -> String);
    const AXES: [Differing; 4] = [
        ("experiment", |finding| format!("{}/{}", finding.paper, finding.experiment)),
        ("item", |finding| finding.item.clone()),
        ("quantity", |finding| finding.quantity.clone()),
        ("verdict", |finding| finding.verdict.to_string()),
    ];
    const QUANTITY: usize = 2;
    let mut axes = AXES.map(|(name, _)| ExploredAxis { name: name.into(), values: Vec::new(), numbers: None });
    let place = |(axis, (_, of)): (&mut ExploredAxis, Differing), finding: &Finding| {
        let value = of(finding);
        axis.values.iter().position(|known| *known == value).unwrap_or_else(|| {
            axis.values.push(value);
            axis.values.len() - 1
        })
    };
    let row = |finding: &Finding| {
        let Some(Value::Number(here)) = finding.measured else { return None };
        let paper = match finding.paper_value {
            Some(Value::Number(paper)) => paper,
            _ => f64::NAN,
        };
        let chosen = axes.iter_mut().zip(AXES).map(|axis| place(axis, finding)).collect();
        let values = vec![here / paper, paper, here];
        Some(ExploredRow { chosen, complete: true, values, intervals: vec![None; 3] })
    };
    let rows: Vec<ExploredRow> = report.findings().filter_map(row).collect();
    // Percentages, counts and cycles have no common mean: at first there is one quantity, that of
    // which the papers have the most values.
    let compared = |quantity: &usize| {
        rows.iter().filter(|row| row.chosen[QUANTITY] == *quantity && row.values[0].is_finite()).count()
    };
    let most = (0..axes[QUANTITY].values.len()).rev().max_by_key(compared);
    let measure =
        |name, label: &str, ratio| Measure { name, label: label.into(), unit: "", ratio, higher_is_better: None };
    let measures = vec![
        measure("ratio", "measured here, of the paper's value", true),
        measure("paper_value", "the paper's value", false),
        measure("measured", "measured here", false),
    ];
    let explorer = Explorer::new(axes.into(), measures, rows, 0)?;
    Some(Explorer { only: most.map(|quantity| (QUANTITY, quantity)), ..explorer })
}

/// The place of an experiment in the page: other papers have tables 1 too.
fn id(done: &Done) -> String {
    escape(&slug(&done.experiment.full_name()))
}

/// A verdict as one character.
fn sign(verdict: Verdict) -> char {
    match verdict {
        Verdict::Agrees => '✓',
        Verdict::Differs => '≠',
        Verdict::Shown => '·',
    }
}

fn tally(findings: &[Finding]) -> String {
    let counts = Verdict::counts(findings.iter().map(|finding| finding.verdict));
    let some = Verdict::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0);
    some.map(|(verdict, count)| format!("{}&#8239;{count}", sign(verdict))).collect::<Vec<_>>().join("&ensp;")
}

fn section(done: &Done, out: &mut String) {
    let experiment = &done.experiment;
    let (id, title) = (id(done), escape(&experiment.title));
    let _ = write!(
        out,
        "<section id=\"{id}\" aria-labelledby=\"{id}-h\">\n<h2 id=\"{id}-h\">{title}</h2>\n<dl><dt>In the paper</dt>\
         <dd>{} (section {})</dd><dt>Here</dt><dd>{}</dd></dl>\n",
        prose(&experiment.there),
        escape(&experiment.section),
        prose(&experiment.here)
    );
    for (index, drawing) in done.drawings.iter().enumerate() {
        *out += &drawing.html(&format!("{id}-figure{index}"));
    }
    let (judged, rest) = parted(&done.findings);
    if !judged.is_empty() {
        let (table, reasons) = list(judged);
        *out += &table.html(&experiment.title, true);
        let reasons: String = reasons.iter().map(|reason| format!("<li>{}</li>\n", prose(reason))).collect();
        let _ = write!(out, "<ol class=\"notes\">\n{reasons}</ol>\n");
    }
    if !rest.is_empty() {
        let _ = writeln!(out, "<details><summary>{} values are shown without a verdict</summary>", rest.len());
        *out += &shown(&rest).map_or(String::new(), |table| table.html("Values without a verdict", true));
        let reasons = crate::rows::reasons(&rest);
        let reasons = reasons.iter().map(|(reason, of)| format!("<li>{}: {}</li>\n", escape(of), prose(reason)));
        let _ = write!(out, "<ul class=\"notes\">\n{}</ul></details>\n", reasons.collect::<String>());
    }
    *out += "</section>\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_of_one_name_have_places_of_their_own() {
        let names = ["navarro02/table1", "dougan99/table1"];
        let experiments = crate::select_all(&names.map(String::from)).unwrap();
        let done = |experiment| Done { experiment, findings: Vec::new(), drawings: Vec::new() };
        let report =
            Report { done: experiments.into_iter().map(done).collect(), failures: Vec::new(), notes: Vec::new() };
        let page = html(&report);
        for name in names {
            let count = |text: String| page.matches(&text).count();
            assert_eq!((count(format!(" id=\"{name}\"")), count(format!("href=\"#{name}\""))), (1, 1), "{page}");
        }
    }
}
