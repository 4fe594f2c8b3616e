//! `superpage trace`.

use crate::print::{self, Width, print};
use crate::sim::Bar;
use crate::stop::Stop;
use crate::{Failure, export as files};
use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use superpage_report::{Screen, bytes, count, foreign};
use superpage_sim::Progress;
use superpage_trace::file::{Reader, Writer};
use superpage_trace::import::{self, Imported};
use superpage_trace::{Batch, Error, Source, Summary, export, info};

/// Inspect, import and export traces
#[derive(Subcommand)]
pub(crate) enum Trace {
    /// Summarize a trace
    #[command(after_long_help = "Example:\n  superpage trace info corpus/gzip.sp")]
    Info {
        /// The trace
        file: PathBuf,
        /// Summarize the intact part of a damaged trace
        #[arg(long)]
        up_to_cut: bool,
        /// table or json
        #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = ["table", "json"])]
        format: String,
        #[command(flatten)]
        width: Width,
    },
    /// Convert a foreign trace into one of ours
    #[command(after_long_help = "Example:\n  valgrind --tool=lackey --trace-mem=yes --log-file=ls.lackey ls\n  \
        superpage trace import lackey ls.lackey -o ls.sp\n  \
        drrun -t drmemtrace -offline -- ls && drrun -t drmemtrace -indir drmemtrace.ls.*.dir\n  \
        superpage trace import drmemtrace drmemtrace.ls.*.dir -o ls.sp\n  \
        superpage trace import champsim core0.xz core1.xz -o two.sp")]
    Import {
        /// The format of the foreign trace
        #[arg(value_parser = PossibleValuesParser::new(import::formats()))]
        format: String,
        /// The foreign trace; of drmemtrace, a file or the folder with those of a process. Several
        /// are a thread each, in one memory
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The trace to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Keep lines of 64 bytes, not only pages, for `sim --lines`
        #[arg(long)]
        lines: bool,
        /// Tell how contiguous memory is in this page table of drmemtrace, not in the v2p.textproto
        /// beside the trace
        #[arg(long, value_name = "FILE")]
        v2p: Option<PathBuf>,
    },
    /// Convert a trace into a format for other programs
    #[command(after_long_help = "Example:\n  superpage trace export parquet corpus/gzip.sp -o gzip.parquet")]
    Export {
        /// The format to write
        #[arg(value_parser = PossibleValuesParser::new(export::formats()))]
        format: String,
        /// The trace
        file: PathBuf,
        /// The file to write, instead of standard output; compressed if its name ends in .gz, .xz
        /// or .zst
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Of champsim and drmemtrace, also write a table (CSV) of the events, such as mappings,
        /// each with the number of records before it
        #[arg(long, value_name = "FILE")]
        events: Option<PathBuf>,
        /// Export the intact part of a damaged trace
        #[arg(long)]
        up_to_cut: bool,
    },
}

impl Trace {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match self {
            Trace::Info { file, up_to_cut, format, width } => {
                let summary = info(file, *up_to_cut)?;
                let text = match format.as_str() {
                    "json" => serde_json::to_string_pretty(&summary).map_err(|e| Failure::Run(e.to_string()))? + "\n",
                    _ => table(&summary, width.screen()),
                };
                print(text)?;
                Ok(ExitCode::SUCCESS)
            }
            Trace::Import { format, files, output, lines, v2p } => {
                files.iter().chain(v2p).try_for_each(|file| crate::export::apart(file, output))?;
                let mut source = match (&files[..], v2p) {
                    ([file], v2p) => import::import(format, file, *lines, v2p.as_deref())?,
                    (files, None) => import::import_threads(format, files, *lines)?,
                    _ => return Err(Failure::Usage("--v2p belongs to one trace, and there are several".into())),
                };
                convert(&mut source, output)
            }
            Trace::Export { format, file, output, events, up_to_cut } => {
                output.iter().chain(events).try_for_each(|output| crate::export::apart(file, output))?;
                if let (Some(output), Some(events)) = (output, events) {
                    files::distinct(output, events)?;
                }
                export::check_room(format, (file, *up_to_cut), output.as_deref())?;
                let mut reader = open(file, *up_to_cut)?;
                match export::export(format, &mut reader, output.as_deref(), events.as_deref()) {
                    Err(Error::Io { path, source }) if path == Path::new(export::STANDARD_OUTPUT) => {
                        print::done(Err(source))?;
                    }
                    exported => exported?,
                }
                if output.is_none() {
                    print::done(Ok(()))?;
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// A trace that reports what it lacks in the middle, once that has been reached.
pub(crate) struct Told(pub(crate) Reader);

impl Source for Told {
    fn info(&self) -> &superpage_trace::Info {
        self.0.info()
    }

    fn digest(&self) -> Option<String> {
        self.0.digest()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let known = self.0.lost().is_some();
        let more = self.0.fill(batch)?;
        if let Some(lost) = self.0.lost().filter(|_| !known) {
            eprintln!("superpage: {lost}");
        }
        Ok(more)
    }
}

/// Opens a trace; if requested only up to where it is intact, with a message about what is lost.
pub(crate) fn open(file: &Path, up_to_cut: bool) -> Result<Reader, superpage_trace::Error> {
    if !up_to_cut {
        return Reader::open(file);
    }
    let reader = Reader::open_up_to_cut(file)?;
    if let Some(lost) = reader.lost() {
        eprintln!(
            "superpage: {}: {} bytes from byte {} on are not used: {}",
            file.display(),
            lost.bytes,
            lost.byte,
            lost.problem
        );
    }
    Ok(reader)
}

/// Writes all of `source` to a trace. If interrupted, it leaves no file.
fn convert(source: &mut Imported, output: &Path) -> Result<ExitCode, Failure> {
    // Before signals are caught: a pipe that nobody reads is waited for.
    let mut writer = Writer::create(output, source.info(), source.notes())?;
    let stop = Stop::catch();
    let bar = Bar::new(String::new());
    let (mut batch, mut runs) = (Batch::default(), 0);
    while source.fill(&mut batch)? {
        if stop.is_set() {
            drop(bar);
            eprintln!("superpage: interrupted; no trace was written");
            return Ok(stop.status());
        }
        writer.write(&batch)?;
        runs += batch.runs.len() as u64;
        bar.show(Progress { runs, of: source.info().runs });
    }
    drop(bar);
    let totals = writer.finish()?;
    eprintln!(
        "superpage: {}: {} runs of {} references",
        output.display(),
        count(totals.runs),
        count(totals.references)
    );
    for (key, value) in source.notes() {
        eprintln!("superpage: {key}: {value}");
    }
    Ok(ExitCode::SUCCESS)
}

fn table(summary: &Summary, screen: Screen) -> String {
    let totals = &summary.totals;
    let mut lines: Vec<(&str, String)> = vec![
        ("file", format!("{} (version {})", summary.file.display(), summary.version)),
        ("ran", summary.workload.clone()),
        ("digest", summary.digest.clone()),
    ];
    lines.extend(summary.notes.iter().map(|(key, value)| (key.as_str(), value.clone())));
    lines.push(("runs", count(totals.runs)));
    lines.push(("references", count(totals.references)));
    if summary.loads_in_writes {
        let text = "loads after a store to the same page count as stores; record it again to tell them apart";
        lines.push(("old format", text.into()));
    }
    if summary.has_lines {
        lines.push(("runs are of", "lines of 64 bytes".into()));
    }
    lines.push(("instruction fetches", count(totals.fetches)));
    if let (Some(on), Some(period)) = (summary.sample_on, summary.sample_period) {
        let share = 100.0 * summary.sampled_share;
        let seed = summary.sample_seed.map_or(String::new(), |seed| format!("; seed {seed}"));
        let each = format!("{} of every {} accesses", count(on), count(period));
        lines.push(("sampled", format!("{each}; {share:.2} % recorded{seed}")));
    }
    lines.push(("pages touched", format!("{} ({})", count(totals.pages), bytes(totals.pages * 4096))));
    lines.push(("processes", count(totals.processes)));
    lines.extend(totals.threads.map(|threads| ("threads", count(threads))));
    let events: Vec<String> = totals.events.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
    lines.push(("events", events.join(", ")));
    let size = format!(
        "{} in {} blocks, {:.3} bytes a reference, compressed {:.1} x",
        bytes(summary.bytes),
        summary.blocks,
        summary.bytes_per_reference,
        summary.compression_ratio
    );
    lines.push(("size", size));
    let whole = match &summary.lost {
        None => "yes, by its checksums".to_string(),
        Some(lost) => format!("no: {} bytes from byte {} on are lost: {}", lost.bytes, lost.byte, lost.problem),
    };
    lines.push(("whole", whole));
    // Keys of notes are the trace's own.
    let line = |(key, value): (&str, String)| screen.hanging(&format!("{:>20}  ", foreign(key)), &value);
    lines.into_iter().map(line).collect()
}
