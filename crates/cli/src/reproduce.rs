//! `superpage reproduce`.

use crate::print::{Width, print};
use crate::sim::Bar;
use crate::stop::Stop;
use crate::{Failure, export};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use superpage_report::quoted;
use superpage_reproduce::{Experiment, Options, Watch};
use superpage_sim::{Format, Progress};

/// Run the tables and figures of papers, and show the results beside the papers'
#[derive(Args)]
#[command(after_long_help = "Examples:\n  superpage reproduce\n  superpage reproduce navarro02/table3\n  \
    superpage reproduce navarro02 --export-html navarro02.html --export-markdown navarro02.md\n  superpage reproduce my/experiment.toml --format json\n  \
    superpage reproduce navarro02/adversaries --set costs.pte-traversal=20\n\n\
    Without arguments, and with --list, the experiments are listed. Verdicts: agrees, differs, or shown where a value is\n\
    not judged, with the reason. A difference is a result: the exit status is 1 only if something could not be run.\n\n\
    --set and --lines test a reason: rows computed with them are shown, with the verdict that they would have.")]
pub(crate) struct Reproduce {
    /// A paper, one of its experiments, or the path of an experiment file (*.toml); repeat for
    /// several
    #[arg(value_name = "PAPER[/EXPERIMENT]")]
    names: Vec<String>,

    /// How to print the rows: table, json, csv or parquet
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = str::parse::<Format>)]
    format: Format,

    #[command(flatten)]
    width: Width,

    /// Also write a page with the tables beside the paper's, and its figures
    #[arg(long, value_name = "FILE")]
    export_html: Option<PathBuf>,

    /// Also write a page of Markdown: the verdicts, then each experiment's rows, those judged first
    #[arg(long, value_name = "FILE", alias = "export-md")]
    export_markdown: Option<PathBuf>,

    /// The folder of the corpus's traces
    #[arg(long, value_name = "DIR", default_value = "corpus")]
    corpus: PathBuf,

    /// The folder of this project's own programs that some experiments run: the examples of
    /// superpage-live [default: the folder examples beside this command]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,

    /// Use the longer parameters where an experiment has them
    #[arg(long)]
    long: bool,

    /// Threads to use, instead of one for each core; the rows are the same with any number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Set a value of each simulated machine that has it, as in costs.pte-traversal=20 or 'tlb.L2
    /// DTLB.entries=512'; repeat for several
    #[arg(long, value_name = "KEY=VALUE", requires = "names")]
    set: Vec<String>,

    /// Simulate with data caches, as sim --lines; recorded traces must have lines
    #[arg(long, requires = "names")]
    lines: bool,

    /// List what the names select, and run nothing
    #[arg(long, conflicts_with_all = ["set", "lines"])]
    list: bool,
}

impl Reproduce {
    /// The command that writes these rows into a page of Markdown.
    fn command(&self, page: &Path) -> String {
        let set = self.set.iter().flat_map(|value| ["--set", value]);
        let switches = [("--long", self.long), ("--lines", self.lines)];
        let switches = switches.into_iter().filter(|(_, on)| *on).map(|(name, _)| name);
        let words = ["superpage", "reproduce"].into_iter().chain(self.names.iter().map(String::as_str));
        let words: Vec<String> = words.chain(set).chain(switches).map(quoted).collect();
        format!("{} --export-markdown {}", words.join(" "), quoted(&page.to_string_lossy()))
    }

    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let experiments = superpage_reproduce::select_all(&self.names)?;
        if self.list || self.names.is_empty() {
            let all = if self.names.is_empty() { superpage_reproduce::experiments() } else { experiments };
            let screen = self.width.screen();
            let line = |experiment: &Experiment| {
                let text = format!("{} (section {})", experiment.title, experiment.section);
                screen.hanging(&format!("{:26} ", experiment.full_name()), &text)
            };
            print(all.iter().map(line).collect::<String>())?;
            return Ok(ExitCode::SUCCESS);
        }
        let (experiments, notes) = superpage_reproduce::with_settings(experiments, &self.set, self.lines)?;
        for note in &notes {
            eprintln!("superpage: {note}");
        }
        if let Some(threads) = self.threads {
            superpage_sim::use_threads(threads.into())?;
        }
        let files = [self.export_html.as_ref(), self.export_markdown.as_ref()];
        for file in files.into_iter().flatten() {
            self.names.iter().try_for_each(|name| export::apart(Path::new(name), file))?;
        }
        if let [Some(html), Some(markdown)] = files {
            export::distinct(html, markdown)?;
        }
        let [html, markdown] = files.map(export::create);
        let (html, markdown) = (html?, markdown?);
        let beside = || {
            let own = std::env::current_exe().unwrap_or_default();
            own.parent().map(|folder| folder.join("examples")).unwrap_or_default()
        };
        let programs = self.programs.clone().unwrap_or_else(beside);
        let options = Options { corpus: self.corpus.clone(), long: self.long, programs };
        if !experiments.iter().any(superpage_reproduce::Experiment::is_live) {
            superpage_output::protect_inputs();
        }
        let stop = Stop::catch();
        let report = superpage_reproduce::run(experiments, &options, stop.flag(), &Bars(Mutex::new(None)));
        let mut findings = Vec::new();
        superpage_reproduce::write(&report, self.format, self.width.screen(), &mut findings)?;
        let kept = if html.is_some() || markdown.is_some() {
            "; no file was written, and what was there is as it was"
        } else {
            ""
        };
        let html = html.map(|file| (file, superpage_reproduce::html(&report)));
        let markdown = markdown.zip(self.export_markdown.as_ref());
        let markdown = markdown.map(|(file, path)| (file, superpage_reproduce::markdown(&report, &self.command(path))));
        // An interrupted report is not what the files' names promise.
        let pages = html.into_iter().chain(markdown).filter(|_| !stop.is_set());
        export::write_and_print(pages, findings, &stop)?;
        for note in &report.notes {
            eprintln!("superpage: {note}");
        }
        for failure in &report.failures {
            eprintln!("superpage: {failure}");
        }
        if stop.is_set() {
            eprintln!("superpage: interrupted; the rows above are those that were done by then{kept}");
            return Ok(stop.status());
        }
        Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// A bar for each stream.
struct Bars(Mutex<Option<Bar>>);

impl Watch for Bars {
    fn stream(&self, name: &str, index: usize, of: usize) {
        *self.0.lock().expect("no holder panics") = Some(Bar::new(format!("{index} of {of}: {name}")));
    }

    fn progress(&self, progress: Progress) {
        if let Some(bar) = &*self.0.lock().expect("no holder panics") {
            bar.show(progress);
        }
    }
}
