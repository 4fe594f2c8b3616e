//! The report as a page of Markdown, for a repository: the counts of verdicts, then for each
//! experiment the judged values one by one and the others in little room.

use crate::rows::{list, parted, reasons, shown};
use crate::write::summary;
use crate::{Done, Report, Verdict, experiments};
use superpage_report::{Column, Screen, Table};

/// The report as a page that `command` writes. Prose is wrapped; tables are as wide as they are.
pub fn markdown(report: &Report, command: &str) -> String {
    let screen = Screen::of(100);
    let mut papers: Vec<&str> = report.done.iter().map(|done| done.experiment.paper()).collect();
    papers.dedup();
    let mut out = format!(
        "<!-- Written by the command below: do not edit. -->\n\n# {}: the rows\n\n```sh\n{command}\n```\n\n{}\n",
        papers.join(", "),
        screen.paragraph(&format!("{}.", summary(report.findings())))
    );
    out += &format!("{}\n", counts(report).markdown());
    let known = experiments();
    let left_out = known.iter().filter(|known| {
        let run = |done: &Done| done.experiment.full_name() == known.full_name();
        papers.contains(&known.paper()) && !report.done.iter().any(run)
    });
    let left_out: Vec<String> = left_out.map(|experiment| format!("`{}`", experiment.full_name())).collect();
    if !left_out.is_empty() {
        out += &format!("{}\n", screen.paragraph(&format!("Not run for this page: {}.", left_out.join(", "))));
    }
    report.done.iter().for_each(|done| section(done, &screen, &mut out));
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// The number of findings of each verdict, by experiment.
fn counts(report: &Report) -> Table {
    let head = Verdict::ALL.map(|verdict| Column::number(verdict.to_string()));
    let mut table = Table::new([Column::prose("experiment")].into_iter().chain(head));
    for done in &report.done {
        let counts = Verdict::counts(done.findings.iter().map(|finding| finding.verdict));
        table.row([done.experiment.full_name()].into_iter().chain(counts.map(|count| count.to_string())));
    }
    table
}

fn section(done: &Done, screen: &Screen, out: &mut String) {
    let experiment = &done.experiment;
    let with = experiment.settings_of_all().map(|settings| format!(", with {settings}")).unwrap_or_default();
    *out += &format!("## {}\n\n", experiment.full_name());
    *out += &screen.markdown(
        "",
        &format!(
            "{} (section {}){with}. There: {}. Here: {}.",
            experiment.title, experiment.section, experiment.there, experiment.here
        ),
    );
    let (judged, rest) = parted(&done.findings);
    if !judged.is_empty() {
        let (table, reasons) = list(judged);
        *out += &format!("\n{}\n", table.markdown());
        for (index, reason) in reasons.iter().enumerate() {
            *out += &screen.markdown(&format!("{}. ", index + 1), reason);
        }
    }
    if !rest.is_empty() {
        out.truncate(out.trim_end().len());
        let without = rest.iter().filter(|finding| finding.measured.is_none()).count();
        let without = if without == 0 { String::new() } else { format!(", {without} of them without a value") };
        *out += &format!("\n\n{}", screen.paragraph(&format!("Shown without a verdict: {}{without}.", rest.len())));
        if let Some(table) = shown(&rest) {
            *out += &format!("\n{}", table.markdown());
        }
        let whys = reasons(&rest);
        if !whys.is_empty() {
            *out += "\n";
        }
        for (reason, of) in whys {
            *out += &screen.markdown("- ", &format!("{of}: {reason}"));
        }
    }
    *out += "\n";
}
