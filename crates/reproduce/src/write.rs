//! Findings as people and programs read them: a table, JSON, CSV, Parquet.

use crate::rows::list;
use crate::{Finding, Report, Value, Verdict};
use std::io::Write;
use superpage_report::{Keys, Screen, foreign};
use superpage_sim::columns;
use superpage_sim::{Error, Format, parquet};

/// Writes the findings to `out`; a table is formatted for `screen`.
///
/// # Errors
/// The output cannot be written.
pub fn write(report: &Report, format: Format, screen: Screen, out: &mut (impl Write + Send)) -> Result<(), Error> {
    let failed = |problem: String| Error::output("the findings", problem);
    let rows: Vec<&Finding> = report.findings().collect();
    match format {
        Format::Table => out.write_all(table(report, screen).as_bytes()).map_err(|e| failed(e.to_string()))?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &rows).map_err(|e| failed(e.to_string()))?;
            out.write_all(b"\n").map_err(|e| failed(e.to_string()))?;
        }
        Format::Csv => csv(&rows, out).map_err(|e| failed(e.to_string()))?,
        Format::Parquet => {
            let bytes = parquet(&columns(report)).map_err(failed)?;
            out.write_all(&bytes).map_err(|e| failed(e.to_string()))?;
        }
    }
    out.flush().map_err(|e| failed(e.to_string()))
}

/// A value for people: whole numbers whole, others with four digits and at least two decimals.
pub(crate) fn number(value: Value) -> String {
    match value {
        Value::Truth(truth) => if truth { "yes" } else { "no" }.into(),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => format!("{number}"),
        Value::Number(number) if number.abs() >= 1000.0 => format!("{number:.0}"),
        Value::Number(number) if number.abs() >= 10.0 => format!("{number:.2}"),
        Value::Number(number) if number.abs() >= 0.01 => format!("{number:.3}"),
        Value::Number(number) => format!("{number:.2e}"),
    }
}

/// What was measured, for people.
pub(crate) fn measured(finding: &Finding, none: &str) -> String {
    let sign = if finding.estimate.is_some() { "≈ " } else { "" };
    finding.measured.map_or(none.into(), |value| format!("{sign}{}", number(value)))
}

fn table(report: &Report, screen: Screen) -> String {
    let mut out = String::new();
    for done in &report.done {
        let experiment = &done.experiment;
        let (title, section) = (&experiment.title, &experiment.section);
        let with = experiment.settings_of_all().map(|settings| format!(", with {settings}")).unwrap_or_default();
        out += &screen.paragraph(&format!("{}: {title} (section {section}){with}", experiment.full_name()));
        let (table, reasons) = list(&done.findings);
        out += &screen.table(&table);
        for (index, reason) in reasons.iter().enumerate() {
            out += &screen.hanging(&format!("[{}] ", index + 1), reason);
        }
        out.push('\n');
    }
    out + &format!("{}\n", summary(report.findings()))
}

/// The number of findings of each verdict, in words.
pub(crate) fn summary<'a>(findings: impl Iterator<Item = &'a Finding>) -> String {
    let findings: Vec<&Finding> = findings.collect();
    let [agrees, differs, shown] = Verdict::counts(findings.iter().map(|finding| finding.verdict));
    let changed = Verdict::counts(findings.iter().filter_map(|finding| finding.settings_verdict));
    let all = format!("{} findings: {agrees} agree, {differs} differ, {shown} are shown", agrees + differs + shown);
    match changed {
        [0, 0, _] => all,
        [agree, differ, _] => format!("{all}; with the changed values {agree} would agree, {differ} would differ"),
    }
}

fn csv(rows: &[&Finding], out: &mut impl Write) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(Finding::KEYS.iter().map(|key| key.name))?;
    let text =
        |value: &serde_json::Value| value.as_f64().map(|number| number.to_string()).or_else(|| columns::text(value));
    for row in rows {
        let fields = columns::fields(row);
        writer.write_record(fields.values().map(|value| foreign(&text(value).unwrap_or_default()).into_owned()))?;
    }
    writer.flush()?;
    Ok(())
}

/// One column per key; the values are numbers, with 1 and 0 for true and false.
pub fn columns(report: &Report) -> Vec<columns::Column> {
    columns::columns(report.findings())
}
