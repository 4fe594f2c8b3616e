//! `superpage probe`.

use crate::Failure;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use superpage_linux::Error;
use superpage_linux::probe::{Options, Probe};
use superpage_report::grid;

/// Find out by timing what this machine and its kernel do with pages of several sizes
#[derive(Args)]
#[command(after_long_help = "Examples:\n  superpage probe --quick\n  \
    superpage probe --export-html probe.html --write-machine here.toml\n  \
    superpage sim --machine here.toml --policy base --policy thp -- gzip -k FILE\n\n\
    Nothing of the system is changed, unless by --folios. It runs on one processor and wants it for itself: repeats that\n\
    others disturb are told by how little they agree.")]
pub(crate) struct Measure {
    /// Fewer points and repeats: seconds instead of up to a minute
    #[arg(long)]
    quick: bool,

    /// Also measure faults of folios between 4 KB and 2 MB: allows them for the whole system meanwhile
    #[arg(long)]
    folios: bool,

    /// How to print findings
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    format: Format,

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
        let bar = ProgressBar::new_spinner();
        let options = Options { quick: self.quick, folios: self.folios };
        let probe = Probe::measure(&options, |question| bar.set_message(question.to_string()))?;
        bar.finish_and_clear();
        if let Some(file) = &self.export_html {
            write(file, &probe.html())?;
        }
        if let Some(file) = &self.write_machine {
            write(file, &probe.machine_file())?;
        }
        match self.format {
            Format::Table => print!("{}", table(&probe)),
            Format::Json => {
                let json = serde_json::to_string_pretty(&probe.findings).expect("findings are plain values");
                println!("{json}");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(Error::file("write", file)).map_err(Failure::from)
}

fn table(probe: &Probe) -> String {
    let rows = probe.findings.iter().map(|finding| {
        let agree = match finding.value {
            Some(_) => format!("{:.0} %", 100.0 * finding.confidence),
            None => String::new(),
        };
        vec![finding.what.clone(), finding.found(), agree, finding.evidence.clone()]
    });
    let head = ["what", "found", "repeats agree", "evidence"];
    format!("{}\n\n{}", probe.processor, grid(&head, rows, &["what", "found", "evidence"]))
}
