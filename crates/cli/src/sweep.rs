//! `superpage sweep`.

use crate::print::print;
use crate::stop::Stop;
use crate::{Failure, progress};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::io::IsTerminal;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use superpage_report::{foreign, quoted};
use superpage_sweep::{Done, Estimate, Listener, Options, Plan, Shard};

/// Run the combinations of workloads, machines, policies and more that a file names, and go on
/// where an earlier run was ended
#[derive(Args)]
#[command(after_long_help = after_help())]
pub(crate) struct Sweep {
    /// The file that names the axes
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,

    /// The folder for cells, rows.parquet and index.html; made if it is not there
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// The most cells at a time, each on a processor [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,

    /// Run only part I of N parts of the cells, as for a job of a batch system; whichever part ends
    /// last writes rows.parquet
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = str::parse::<Shard>)]
    shard: Shard,

    /// Remove damaged cells and those with an error, and compute them again
    #[arg(long, conflicts_with = "dry_run")]
    repair: bool,

    /// Say how many cells there are, how many are done, and how long the others will take; run
    /// nothing
    #[arg(long)]
    dry_run: bool,
}

fn after_help() -> String {
    let mut help = String::from(
        "Example, where FILE.toml is\n\n  [sweep]\n  name = \"memory against fragmentation\"\n  [axes]\n  workload = [\"matrix:n=300\", \
         \"tree:nodes=20K\"]\n  machine = [\"zen5\", \"golden-cove\"]\n  policy = [\"thp\", \"reservation\"]\n  memory = [\"64M\", \
         \"256M\"]\n  fragment = [0, 0.5]\n\n  superpage sweep FILE.toml -o memory --dry-run\n  superpage sweep FILE.toml -o memory\n  \
         superpage sweep FILE.toml -o memory --shard 3/8     # one of eight jobs that share the folder\n\nA cell is machines on which the \
         same kernel does the same; it is kept as a file, whole or not at all. The same command again runs what is missing.\n\nAxes, which are \
         crossed unless sweep.zip names them together:\n",
    );
    help += &superpage_sweep::axes_help();
    help
}

impl Sweep {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let limits = crate::sim::limits();
        let plan = Plan::new(superpage_sweep::Sweep::read(&self.file)?, &limits)?;
        let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let jobs = self.jobs.map_or_else(processors, usize::from);
        let words = [&self.file, &self.output].map(|path| quoted(&path.to_string_lossy()));
        let command = format!("superpage sweep {} -o {}", words[0], words[1]);
        let options = Options { jobs, shard: self.shard, repair: self.repair, limits, command };
        let stop = Stop::catch_once_a_second()?;
        if self.dry_run {
            let estimate = superpage_sweep::estimate(&plan, &self.output, &options, stop.flag())?;
            print(said(&plan, &estimate, jobs))?;
            return Ok(ExitCode::SUCCESS);
        }
        let bar = Bar(OnceLock::new());
        let done = superpage_sweep::run(&plan, &self.output, &options, stop.flag(), &bar);
        drop(bar);
        let done = done?;
        self.tell(&plan, &done, &stop)
    }

    /// What was done, and what comes next.
    fn tell(&self, plan: &Plan, done: &Done, stop: &Stop) -> Result<ExitCode, Failure> {
        let (folder, all) = (self.output.to_string_lossy(), plan.cells());
        let folder = foreign(&folder);
        let cells = format!("{} of {all} cells are in {folder}, {} of them new", done.there, done.ran);
        match done.rows {
            Some(rows) => {
                print(format!("{cells}\n{rows} rows: {folder}/rows.parquet\nfigures: {folder}/index.html\n"))?;
            }
            None if stop.is_set() => {
                eprintln!("superpage: interrupted; {cells}; the same command again goes on from there");
                return Ok(stop.status());
            }
            None => print(format!("{cells}; rows.parquet is written when all are there\n"))?,
        }
        const SHOWN: usize = 10;
        for failed in done.failed.iter().take(SHOWN) {
            eprintln!("superpage: {failed}");
        }
        if done.failed.len() > SHOWN {
            eprintln!(
                "superpage: {} more rows have an error: the column error of rows.parquet",
                done.failed.len() - SHOWN
            );
        }
        Ok(if done.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// What `--dry-run` prints.
fn said(plan: &Plan, estimate: &Estimate, jobs: usize) -> String {
    let Estimate { cells, rows, shard_cells, there, seconds, measured, tried, overhead, differs } = estimate;
    let mut text = format!("{}: {rows} rows in {cells} cells", foreign(plan.title()));
    if shard_cells < cells {
        text += &format!(", {shard_cells} of them in this shard");
    }
    text += &format!("\n{there} are done, {} are missing\n", shard_cells - there);
    if shard_cells > there {
        let time = |seconds: f64| match seconds {
            s if s < 10.0 => format!("{s:.1} s"),
            s if s < 90.0 => format!("{s:.0} s"),
            s if s < 5400.0 => format!("{:.0} minutes", s / 60.0),
            s if s < 172_800.0 => format!("{:.1} hours", s / 3600.0),
            s => format!("{:.1} days", s / 86_400.0),
        };
        let source = match (measured, tried) {
            (measured, 0) => format!("{measured} cells, measured when they ran"),
            (0, tried) => format!("a trial of {tried} streams, half a second each"),
            (measured, tried) => {
                format!(
                    "{measured} cells, measured when they ran, and a trial of {tried} other streams, half a second each"
                )
            }
        };
        let overhead = overhead * 1e3;
        text += &match seconds {
            Some(seconds) => format!(
                "about {} with {jobs} at a time: from {source}, and {overhead:.1} ms a cell for its file\n",
                time(*seconds)
            ),
            None => "how long they take is not known: nothing could be tried\n".into(),
        };
    }
    if let Some(differs) = differs {
        text += &format!("the folder cannot be used for it: it {differs}\n");
    }
    text
}

/// Progress on standard error, if it is a terminal.
struct Bar(OnceLock<ProgressBar>);

impl Listener for Bar {
    fn note(&self, text: &str) {
        eprintln!("superpage: {text}");
    }

    fn begins(&self, cells: usize, there: usize) {
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(cells as u64), target);
        bar.set_style(progress::style("{msg}{wide_bar} {pos} of {len} cells {left}"));
        if there > 0 {
            bar.set_message(format!("{there} were done; "));
        }
        if std::io::stderr().is_terminal() {
            bar.enable_steady_tick(std::time::Duration::from_secs(1));
        }
        let _ = self.0.set(bar);
    }

    fn ended(&self) {
        self.0.get().into_iter().for_each(|bar| bar.inc(1));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.get().into_iter().for_each(ProgressBar::finish_and_clear);
    }
}
