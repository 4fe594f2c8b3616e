//! `superpage probe`.

use crate::print::{Width, print};
use crate::stop::Stop;
use crate::{Failure, export};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::process::ExitCode;
use superpage_live::probe::{Options, Probe};
use superpage_report::{Column, Screen, Table};

/// Determine by timing what this machine and its kernel do with pages of several sizes
#[derive(Args)]
#[command(after_long_help = "Examples:\n  superpage probe --quick\n  \
    superpage probe --export-html probe.html --write-machine here.toml\n  \
    superpage sim --machine here.toml --policy base --policy thp -- gzip -k FILE\n\n\
    No setting of the system is changed, unless by --folios. A churn takes memory for two seconds, more with a larger\n\
    share, but leaves a floor to others; beyond what is free it takes what files had in memory. It runs on one processor\n\
    and wants it for itself, and threads spin on others for up to two seconds: repeats that are disturbed are told by\n\
    how little they agree.")]
pub(crate) struct Measure {
    /// Fewer points and repeats, in less time
    #[arg(long)]
    quick: bool,

    /// Also measure folios between 4 KB and 2 MB, their faults and promotion: allows them for the
    /// whole system meanwhile
    #[arg(long)]
    folios: bool,

    /// Allocate this share of the available memory in base pages and free half of them at random,
    /// before contiguity is measured again; 0 for none
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    churn: f64,

    /// How to print findings
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    format: Format,

    #[command(flatten)]
    width: Width,

    /// Write a report with figures
    #[arg(long, value_name = "FILE")]
    export_html: Option<PathBuf>,

    /// Write a machine file for `superpage sim --machine`
    #[arg(long, value_name = "FILE")]
    write_machine: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

impl Measure {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let page = export::create(self.export_html.as_ref())?;
        let machine = export::create(self.write_machine.as_ref())?;
        let stop = Stop::catch();
        let bar = ProgressBar::new_spinner();
        let options = Options { quick: self.quick, folios: self.folios, churn: self.churn };
        let probe = Probe::measure(&options, stop.flag(), |question| bar.set_message(question.to_string()))?;
        bar.finish_and_clear();
        let findings = match self.format {
            Format::Table => table(&probe, self.width.screen()),
            Format::Json => serde_json::to_string_pretty(&probe.findings).expect("findings are plain values") + "\n",
        };
        if probe.stopped || stop.is_set() {
            print(findings)?;
            eprintln!(
                "superpage: interrupted; the findings above are those that were made by then, and no file was written"
            );
            return Ok(stop.status());
        }
        let page = page.map(|page| (page, probe.html()));
        let machine = machine.map(|machine| (machine, probe.machine_file()));
        export::write_and_print(page.into_iter().chain(machine), findings, &stop)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A share from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1, such as 0.1".into())
}

/// The findings as a table, and below it the evidence of each by its number.
fn table(probe: &Probe, screen: Screen) -> String {
    let columns = [Column::number(""), Column::prose("what"), Column::prose("found"), Column::number("repeats agree")];
    let mut table = Table::new(columns);
    for (index, finding) in probe.findings.iter().enumerate() {
        let agree = match finding.value {
            Some(_) => format!("{:.0} %", 100.0 * finding.confidence),
            None => String::new(),
        };
        table.row([format!("{}", index + 1), finding.what.clone(), finding.found(), agree]);
    }
    let mut text = format!("{}\n{}\n", screen.paragraph(&probe.processor.to_string()), screen.table(&table));
    for (index, finding) in probe.findings.iter().enumerate() {
        text += &screen.hanging(&format!("{:>3}  ", index + 1), &finding.evidence);
    }
    text
}
