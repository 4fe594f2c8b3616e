//! The report as a page: each table with the paper's columns next to ours, verdicts by sign and
//! colour, and the figures. One self-contained file, for light and dark screens, for paper, and for
//! screen readers.

use crate::experiment::{Column, Item};
use crate::write::{measured, number};
use crate::{Done, Finding, Report, Value, Verdict};
use std::fmt::Write;
use superpage_report::{escape, page, prose};

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
    for (verdict, word) in
        [(Verdict::Agrees, "agree"), (Verdict::Differs, "differ"), (Verdict::Shown, "are only shown")]
    {
        let count = report.findings().filter(|finding| finding.verdict == verdict).count();
        let _ = write!(lead, "<li>{} <b>{count}</b> {word}</li>", sign(verdict));
    }
    lead += "</ul>\n<nav aria-label=\"Experiments\"><ol>\n";
    for done in &report.done {
        let (id, title) = (&done.experiment.name, escape(&done.experiment.title));
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
    let mut main = String::new();
    report.done.iter().for_each(|done| section(done, &mut main));
    page(&format!("superpage reproduce {}", names.join(" ")), &lead, &main)
}

/// A verdict as one character, with a word for screen readers.
fn sign(verdict: Verdict) -> String {
    let sign = match verdict {
        Verdict::Agrees => '✓',
        Verdict::Differs => '≠',
        Verdict::Shown => '·',
    };
    format!("<span class=\"sign\" role=\"img\" aria-label=\"{verdict}\">{sign}</span>")
}

fn tally(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let all = [(Verdict::Agrees, "✓"), (Verdict::Differs, "≠"), (Verdict::Shown, "·")];
    let some = all.into_iter().filter(|(verdict, _)| count(*verdict) > 0);
    some.map(|(verdict, sign)| format!("{sign}&#8239;{}", count(verdict))).collect::<Vec<_>>().join("&ensp;")
}

/// The reasons of an experiment, numbered in the order in which they first occur.
struct Notes<'a> {
    id: &'a str,
    reasons: Vec<&'a str>,
}

impl<'a> Notes<'a> {
    /// A link to the reason, if there is one.
    fn link(&mut self, reason: Option<&'a str>) -> String {
        let Some(reason) = reason else { return String::new() };
        let index = self.reasons.iter().position(|known| *known == reason).unwrap_or_else(|| {
            self.reasons.push(reason);
            self.reasons.len() - 1
        }) + 1;
        format!("<sup><a href=\"#{}-{index}\" aria-label=\"note {index}\">{index}</a></sup>", self.id)
    }
}

fn section(done: &Done, out: &mut String) {
    let experiment = &done.experiment;
    let id = &experiment.name;
    let _ = write!(
        out,
        "<section id=\"{id}\" aria-labelledby=\"{id}-h\">\n<h2 id=\"{id}-h\">{}</h2>\n<dl><dt>In the paper</dt><dd>{} (section \
         {})</dd><dt>Here</dt><dd>{}</dd></dl>\n",
        escape(&experiment.title),
        prose(&experiment.there),
        escape(&experiment.section),
        prose(&experiment.here)
    );
    for (index, drawing) in done.drawings.iter().enumerate() {
        *out += &drawing.html(&format!("{id}-figure{index}"));
    }
    let mut notes = Notes { id, reasons: Vec::new() };
    let (cells, rest): (Vec<&Finding>, Vec<&Finding>) =
        done.findings.iter().partition(|finding| in_grid(done, finding));
    if !cells.is_empty() {
        grid(done, &cells, &mut notes, out);
    }
    let (judged, shown): (Vec<&Finding>, Vec<&Finding>) = rest.into_iter().partition(|f| f.paper_value.is_some());
    if !judged.is_empty() {
        list(&judged, &mut notes, out);
    }
    if !shown.is_empty() {
        let _ = writeln!(out, "<details><summary>{} values that the paper has no number for</summary>", shown.len());
        values(&shown, out);
        *out += "</details>\n";
    }
    if !notes.reasons.is_empty() {
        *out += "<ol class=\"notes\">\n";
        for (index, reason) in notes.reasons.iter().enumerate() {
            let _ = writeln!(out, "<li id=\"{id}-{}\">{}</li>", index + 1, prose(reason));
        }
        *out += "</ol>\n";
    }
    *out += "</section>\n";
}

fn in_grid(done: &Done, finding: &Finding) -> bool {
    done.experiment.items.iter().any(|item| item.name == finding.item)
        && done.experiment.columns.iter().any(|column| column.quantity == finding.quantity)
}

/// A table of items and quantities, each with the paper's value and ours.
fn grid<'a>(done: &Done, findings: &[&'a Finding], notes: &mut Notes<'a>, out: &mut String) {
    let columns: Vec<&Column> = done.experiment.columns.iter().collect();
    let _ = write!(
        out,
        "<div class=\"scroll\" tabindex=\"0\"><table><caption class=\"heard\">{}</caption>\n<thead><tr><th rowspan=\"2\" scope=\"col\">",
        escape(&done.experiment.title)
    );
    for column in &columns {
        let _ = write!(out, "</th><th class=\"wide\" colspan=\"2\" scope=\"colgroup\">{}", escape(&column.quantity));
    }
    *out += "</th></tr>\n<tr>";
    for _ in &columns {
        *out += "<th class=\"sub\" scope=\"col\">paper</th><th class=\"sub\" scope=\"col\">here</th>";
    }
    *out += "</tr></thead>\n<tbody>\n";
    for item in &done.experiment.items {
        let row: Vec<&Finding> = findings.iter().copied().filter(|finding| finding.item == item.name).collect();
        if !row.is_empty() {
            line(item, &columns, &row, notes, out);
        }
    }
    *out += "</tbody></table></div>\n";
}

fn line<'a>(item: &Item, columns: &[&Column], row: &[&'a Finding], notes: &mut Notes<'a>, out: &mut String) {
    let idle = row.iter().all(|finding| finding.measured.is_none());
    let common = item.shown.as_deref();
    // A reason of the whole row is put at its name.
    let has = |finding: &&&'a Finding| finding.reason.is_some() && (idle || finding.reason.as_deref() == common);
    let whole = row.iter().find(has).map(|finding| notes.link(finding.reason.as_deref()));
    let link = whole.unwrap_or_default();
    let class = if idle { " class=\"idle\"" } else { "" };
    let _ = write!(out, "<tr{class}><th scope=\"row\">{}{link}</th>", escape(&item.name));
    for column in columns {
        let Some(finding) = row.iter().find(|finding| finding.quantity == column.quantity) else {
            *out += "<td class=\"paper\">–</td><td>–</td>";
            continue;
        };
        let own = finding.reason.as_deref().filter(|reason| Some(*reason) != common && !idle);
        let own = own.map(|_| notes.link(finding.reason.as_deref())).unwrap_or_default();
        cells(finding, &own, out);
    }
    *out += "</tr>\n";
}

/// The paper's value and ours, with the verdict.
fn cells(finding: &Finding, note: &str, out: &mut String) {
    let value = |value: Option<Value>| value.map_or("–".into(), |value| escape(&number(value)));
    let _ = write!(out, "<td class=\"paper\">{}</td>", value(finding.paper_value));
    let said = [("tolerance", &finding.tolerance), ("estimate", &finding.estimate)];
    let said = said.into_iter().filter_map(|(what, text)| Some(format!("{what}: {}", text.as_deref()?)));
    let said = said.collect::<Vec<_>>().join("; ");
    let title = if said.is_empty() { String::new() } else { format!(" title=\"{}\"", escape(&said)) };
    let mark = if finding.measured.is_some() { sign(finding.verdict) } else { String::new() };
    let _ =
        write!(out, "<td class=\"{}\"{title}>{}{mark}{note}</td>", finding.verdict, escape(&measured(finding, "–")));
}

/// One line per quantity.
fn list<'a>(findings: &[&'a Finding], notes: &mut Notes<'a>, out: &mut String) {
    *out += "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\" class=\"text\">item</th>\
             <th scope=\"col\" class=\"text\">quantity</th><th scope=\"col\">paper</th><th scope=\"col\">here</th><th scope=\"col\">tolerance</th>\
             </tr></thead>\n<tbody>\n";
    for finding in findings {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"text\">{}</td>",
            escape(&finding.item),
            escape(&finding.quantity)
        );
        let link = notes.link(finding.reason.as_deref());
        cells(finding, &link, out);
        let _ = writeln!(out, "<td>{}</td></tr>", finding.tolerance.as_deref().map(escape).unwrap_or_default());
    }
    *out += "</tbody></table></div>\n";
}

/// Values for which the paper has no number, with their sources.
fn values(findings: &[&Finding], out: &mut String) {
    *out += "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\" class=\"text\">item</th>\
             <th scope=\"col\" class=\"text\">quantity</th><th scope=\"col\">here</th><th scope=\"col\" class=\"text\">from</th>\
             </tr></thead>\n<tbody>\n";
    for finding in findings {
        let (item, quantity) = (escape(&finding.item), escape(&finding.quantity));
        let value = measured(finding, "–");
        let reason = finding.reason.as_deref().map(escape).unwrap_or_default();
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{item}</th><td class=\"text\">{quantity}</td><td>{value}</td><td class=\"text\">{reason}</td></tr>"
        );
    }
    *out += "</tbody></table></div>\n";
}
