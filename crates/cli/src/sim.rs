//! `superpage sim`.

use crate::print::Width;
use crate::simpoint;
use crate::stop::Stop;
use crate::{Failure, progress};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use superpage_pages::{PageSize, parse_bytes, parse_count};
use superpage_sim::{
    BackgroundOn, Conditions, Digest, Every, Files, Format, Fragment, Limit, Progress, Row, Setup, TimeScale, Watch,
    check_memory, rows, run_parts,
};
use superpage_trace::{Cores, MEASURED, Source, Window, record, workload};

/// Simulate a workload, a trace or a program under policies and machines, and print exact counts
#[derive(Args)]
#[command(
    override_usage = "superpage sim [OPTIONS] <WORKLOAD[:key=value,...]>\n       superpage sim [OPTIONS] --trace <FILE>...\n       \
    superpage sim [OPTIONS] -- <CMD> [ARG]..."
)]
#[command(after_long_help = after_help())]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(false).args(["workload", "trace", "command"]))]
pub(crate) struct Sim {
    /// A machine, by name or as the path of a machine file, with overlays as in zen5+fractured;
    /// repeat for several
    #[arg(short, long = "machine", value_name = "M", default_value = "golden-cove")]
    machines: Vec<String>,

    /// Set a value of each machine, as in costs.fault=900 or 'tlb.L2 DTLB.entries=512'; repeat for
    /// several
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<String>,

    /// A policy, with parameters as in reservation:sizes=64K+512K; repeat for several. `base` is
    /// always run too
    #[arg(short, long = "policy", value_name = "P", default_value = "reservation")]
    policies: Vec<String>,

    /// A policy of the host of a guest (machines with +nested), which then maps the guest's memory
    /// by it; repeat for several, which are crossed with the policies. `base` is always run too
    #[arg(long = "host-policy", value_name = "P")]
    host_policies: Vec<String>,

    /// A model of what the kernel itself touches, with its switches after a colon, as in
    /// linux-ppc:flush=eager,blocks=off; repeat for several, which are crossed with the policies.
    /// Needs --lines
    #[arg(long = "kernel", value_name = "K", requires = "lines")]
    kernels: Vec<String>,

    /// Leave only these superpage sizes of each machine in use
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    sizes: Option<Vec<PageSize>>,

    /// Memory of the simulated machine, instead of what its file says
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,

    /// Swap space of the simulated machine, instead of twice its memory
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    swap: Option<u64>,

    /// Whether files have been read before the run (warm: the first read of a page of them takes no
    /// time) or not (cold)
    #[arg(long, value_name = "warm|cold", default_value = "warm", value_parser = str::parse::<Files>)]
    files: Files,

    /// The hash function whose cost is charged for digests, under policies that use them: fast or
    /// sha-1
    #[arg(long, value_name = "HASH", default_value = "fast", value_parser = str::parse::<Digest>)]
    digest: Digest,

    /// Whose time the policy's background and the page daemon take: core, that of another core, so
    /// that the program pays only for shootdowns and waits; or program. By default core, unless the
    /// machine has one core
    #[arg(long, value_name = "core|program", value_parser = str::parse::<BackgroundOn>)]
    background: Option<BackgroundOn>,

    /// Let the clock of policies with background work go N times as fast as modelled time: with
    /// 100, a khugepaged that wakes up every 10 s does so every 0.1 s. Budgets keep their share of
    /// a core
    #[arg(long, value_name = "N", default_value = "1", value_parser = str::parse::<TimeScale>)]
    time_scale: TimeScale,

    /// Put immovable pages into this share (0 to 1) of the extents of each superpage size of the
    /// machine before the run, or with 2M:0.5 one into half of those of 2 MB; with frag-50 64 KB
    /// that can be moved into half of those of 2 MB; or take memory as on a machine that has run
    /// for long (aged), or as a machine had it (FILE, of `superpage inspect --system
    /// --memory-state`), whose size it then has. All policies run in the same memory
    #[arg(long, value_name = "[SIZE:]SHARE|frag-N|aged|FILE", default_value = "0", value_parser = str::parse::<Fragment>)]
    fragment: Fragment,

    /// The seed of the positions of immovable pages
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Leave out the accesses and sleeps of the first this many instructions (1G); what they map
    /// stays mapped, and untouched, and files that they read are read. Needs a stream that is not
    /// sampled
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "0",
          conflicts_with_all = ["parts", "every", "command"])]
    skip: u64,

    /// Run this many instructions first (10M): they fill memory, TLBs and caches, and no count
    /// includes them. Needs a stream that is not sampled
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "0",
          conflicts_with_all = ["parts", "every", "command"])]
    warmup: u64,

    /// End after this many instructions, not counting those of --skip and --warmup
    #[arg(long, value_name = "N", value_parser = count_from_1, conflicts_with_all = ["parts", "every", "command"])]
    max: Option<u64>,

    /// Also print a row for each named part of the workload, such as each member of 'A;B'. A
    /// sampled stream has none
    #[arg(long)]
    parts: bool,

    /// Also say how much of mapped memory is in aligned, contiguous groups of 16 KB and 32 KB at
    /// the peak, as TLBs with entries for several base pages need it
    #[arg(long)]
    contiguity: bool,

    /// Keep the program's data and instructions in the machine's caches, beside page tables: then
    /// walks cost what they find, and cache misses are counted. A workload is made with lines of 64
    /// bytes, a program recorded so; a trace must have them
    #[arg(long)]
    lines: bool,

    /// Keep the state of memory after each step of modelled time (100ms) or of N instructions
    /// (10M), at marks of the stream and at ends of processes, in the key `series` of
    /// each row, and drawn by --export-html. Some 5 KB a sample
    #[arg(long, value_name = "TIME|N", value_parser = str::parse::<Every>)]
    every: Option<Every>,

    /// Write a page where the rows can be explored; with --every also memory by page size and
    /// misses over time, a panel for each row
    #[arg(long, value_name = "FILE")]
    export_html: Option<PathBuf>,

    /// How to print the rows: table, json, csv or parquet
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = str::parse::<Format>)]
    format: Format,

    #[command(flatten)]
    width: Width,

    /// Run each thread of the stream on a core, N of them, in turn, each with its own TLBs; without
    /// it all take turns on one core in the order of the stream. 1 with --quantum is a machine with
    /// one processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(Cores::MOST)))]
    cores: Option<u32>,

    /// Instructions of a thread before another one of its core runs
    #[arg(long, value_name = "N", value_parser = count_from_1, default_value = "10M", requires = "cores")]
    quantum: u64,

    /// Let a core with nothing to run take a thread that waits for another core
    #[arg(long, requires = "cores")]
    migrate: bool,

    /// Threads to use, instead of one for each core; the rows are the same with any number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Use the intact part of a trace that is cut or damaged
    #[arg(long, requires = "trace")]
    up_to_cut: bool,

    /// Traces to simulate
    #[arg(long, value_name = "FILE", num_args = 1..)]
    trace: Vec<PathBuf>,

    /// Print the weighted means over the traces, in place of their rows: a file of SimPoint with a
    /// weight for each of them, in their order
    #[arg(long, value_name = "FILE", requires = "trace", conflicts_with_all = ["parts", "every"])]
    weights: Option<PathBuf>,

    /// A built-in workload with its parameters, or a mix of them; see the list below
    #[arg(value_name = "WORKLOAD[:key=value,...]")]
    workload: Option<String>,

    /// A program with its arguments, recorded and simulated at once (needs QEMU)
    #[arg(last = true, value_name = "CMD ARG")]
    command: Vec<std::ffi::OsString>,
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// What is left of this process's memory limits, where the system reports them.
#[cfg(not(target_os = "linux"))]
pub(crate) fn limits() -> Vec<Limit> {
    Vec::new()
}

/// What is left of this process's memory limits.
#[cfg(target_os = "linux")]
pub(crate) fn limits() -> Vec<Limit> {
    let left = superpage_linux::memory::left().into_iter();
    left.map(|left| Limit { bytes: left.bytes, of: left.of, counts_untouched: left.counts_untouched }).collect()
}

/// What `--set` takes, as it is.
fn key_and_value(text: &str) -> Result<String, String> {
    if text.contains('=') { Ok(text.into()) } else { Err("expected KEY=VALUE, as in costs.fault=900".into()) }
}

/// A count of at least 1.
fn count_from_1(text: &str) -> Result<u64, String> {
    let count = parse_count(text).map_err(|error| error.to_string())?;
    if count > 0 { Ok(count) } else { Err("expected at least 1".into()) }
}

/// The part of `--help` after the flags: examples, and the available names.
fn after_help() -> String {
    let mut help = String::from(
        "Examples:\n  superpage sim matrix:n=1000 --machine alpha-21264 --policy reservation\n  \
         superpage sim --trace corpus/bzip2.sp --machine zen5 --format json\n  \
         superpage sim -m golden-cove -p reservation:sizes=2M -- gzip -k file\n  \
         superpage sim -m zen5+nested -p thp --host-policy thp random:bytes=64M,references=2M\n\nMachines:\n ",
    );
    for name in superpage_sim::machines() {
        help += &format!(" {name}");
    }
    help += "\n  FILE.toml: your own\n\nOverlays, on any of them, as in zen5+fractured:\n ";
    for name in superpage_sim::overlays() {
        help += &format!(" {name}");
    }
    help += "\n  FILE.toml: your own, as in zen5+./mine.toml (docs/machines.md)\n\nModels of kernels (--kernel; docs/sim-kernel.md has their switches):\n ";
    for name in superpage_sim::kernels() {
        help += &format!(" {name}");
    }
    help += "\n  FILE.toml: your own\n\nPolicies:\n";
    help += &superpage_sim::policy_help();
    help += "\nWorkloads:\n";
    for kind in workload::all() {
        let parameters: Vec<String> =
            kind.parameters.iter().map(|parameter| format!("{}={}", parameter.name, parameter.default)).collect();
        help += &format!("  {:14} {}\n                 {}\n", kind.name, kind.help, parameters.join(","));
    }
    help += "  A+B runs two at once, in turns (@slice=10K: of 10 000 references each); 'A;B' one after the other";
    help + "\n\nOf `-- CMD` the exit status is passed on, unless the simulation itself fails."
}

impl Sim {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let conditions = Conditions {
            sizes: self.sizes.clone(),
            memory: self.memory,
            swap: self.swap,
            fragment: self.fragment.clone(),
            seed: self.seed,
            files: self.files,
            digest: self.digest,
            background: self.background,
            time_scale: self.time_scale,
            host_policies: self.host_policies.clone(),
            kernels: self.kernels.clone(),
        };
        let set = |name: &String| superpage_sim::with_values(name, &self.set);
        let machines: Vec<String> = self.machines.iter().map(set).collect();
        let setups = superpage_sim::plan(&machines, &self.policies, &conditions)?;
        check_memory(&setups, &self.watch(), &limits())?;
        if let Some(page) = &self.export_html {
            // Parts of machines and policies may be files; what is none is no file of that name
            // either.
            let named = self.machines.iter().chain(&self.policies).chain(&self.host_policies).chain(&self.kernels);
            let parts = named.flat_map(|name| name.split(['+', ':'])).map(std::path::Path::new);
            parts
                .chain(self.trace.iter().map(PathBuf::as_path))
                .chain(self.weights.as_deref())
                .chain(self.fragment.file().map(|file| std::path::Path::new(file.path())))
                .try_for_each(|input| crate::export::apart(input, page))?;
        }
        let weights = self.weights.as_ref().map(|file| simpoint::weights(file, self.trace.len())).transpose()?;
        if weights.is_some() && self.format == Format::Parquet {
            return Err(Failure::Usage("--weights: means are printed as a table, JSON or CSV".into()));
        }
        let export = crate::export::create(self.export_html.as_ref())?;
        if let Some(threads) = self.threads {
            superpage_sim::use_threads(threads.into())?;
        }
        // Everything named is opened before anything runs.
        let mut sources = match &self.workload {
            Some(text) if self.lines => vec![workload::parse_lines(text)?],
            Some(text) => vec![workload::parse(text)?],
            None => Vec::new(),
        };
        for path in &self.trace {
            let reader = crate::trace::open(path, self.up_to_cut)?;
            if self.lines && !self.kernels.is_empty() && !superpage_trace::Source::info(&reader).calls {
                eprintln!(
                    "superpage: {} was recorded without its system calls: the kernel's model runs at other events alone; \
                     record it with --lines --calls",
                    path.display()
                );
            }
            sources.push(Box::new(crate::trace::Told(reader)));
        }
        if self.skip > 0 || self.warmup > 0 || self.max.is_some() {
            // A workload is never sampled.
            let mut files = sources.iter().zip(&self.trace);
            if let Some((_, path)) = files.find(|(source, _)| source.info().sampling.is_some()) {
                let problem =
                    "is sampled, and --skip, --warmup and --max need all accesses; record it without --sample";
                return Err(Failure::Usage(format!("{} {problem}", path.display())));
            }
            let window = |source| Box::new(Window::new(source, self.skip, self.warmup, self.max)) as Box<dyn Source>;
            sources = sources.into_iter().map(window).collect();
        }
        let stop = if self.command.is_empty() { Stop::catch() } else { Stop::catch_for_recording() };
        let (all, status) = if self.command.is_empty() {
            (self.grid(&setups, sources, stop.flag())?, ExitCode::SUCCESS)
        } else {
            self.program(&setups, &stop)?
        };
        let mut findings = Vec::new();
        match &weights {
            Some(weights) => {
                findings = simpoint::written(&simpoint::means(&all, weights)?, self.format, self.width.screen())?
            }
            None => superpage_sim::write(&all, self.format, self.width.screen(), &mut findings)?,
        }
        let page = export.map(|export| (export, superpage_sim::rows_page(&all)));
        crate::export::write_and_print(page, findings, &stop)?;
        if self.every.is_some() && self.export_html.is_none() && self.format == Format::Table {
            eprintln!("superpage: --every: the samples are in --format json, key `series`, and drawn by --export-html");
        }
        if stop.is_set() {
            eprintln!("superpage: interrupted; the rows above count what had run by then");
            return Ok(stop.status());
        }
        if all.iter().any(|row| row.error.is_some() || row.frames_leaked + row.host_frames_leaked > 0) {
            return Ok(ExitCode::from(1));
        }
        Ok(status)
    }

    fn watch(&self) -> Watch {
        let cores = self.cores.map(|number| Cores { number, quantum: self.quantum, migrate: self.migrate });
        Watch { contiguity: self.contiguity, lines: self.lines, every: self.every, cores }
    }

    /// Records and simulates at once. Standard output is for the rows; the program's goes to
    /// standard error.
    fn program(&self, setups: &[Setup], stop: &Stop) -> Result<(Vec<Row>, ExitCode), Failure> {
        let calls = self.lines && !self.kernels.is_empty();
        let command =
            record::Command { output_to_stderr: true, lines: self.lines, calls, ..record::Command::new(&self.command) };
        let mut recording = stop.recording(&command)?;
        let bar = Bar::new(String::new());
        // Only the program is stopped: what it did until then is simulated completely.
        let whole = AtomicBool::new(false);
        let runs = run_parts(setups, &mut recording, &whole, &|progress| bar.show(progress), &self.watch());
        drop(bar);
        let outcome = recording.finish()?;
        let mut rows = rows(runs?, self.parts);
        // The stream was complete, but the program had not ended.
        let stopped = stop.is_set();
        rows.iter_mut().for_each(|row| row.complete &= !stopped);
        for note in &outcome.notes {
            eprintln!("superpage: {note}");
        }
        if !outcome.status.success() {
            eprintln!("superpage: the program ended with {}", outcome.status);
        }
        Ok((rows, ExitCode::from(record::exit_status(outcome.status))))
    }

    /// One stream after the other, each in one pass over all simulations.
    fn grid(&self, setups: &[Setup], sources: Vec<Box<dyn Source>>, stop: &AtomicBool) -> Result<Vec<Row>, Failure> {
        let mut all = Vec::new();
        let many = sources.len();
        for (i, mut source) in sources.into_iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let bar = Bar::new(if many > 1 { format!("{} of {many}", i + 1) } else { String::new() });
            let progress = |progress| bar.show(progress);
            let name = source.info().workload.clone();
            if self.parts && source.info().sampling.is_some() {
                eprintln!("superpage: {name} is sampled: its parts have no rows");
            }
            let mut runs = run_parts(setups, source.as_mut(), stop, &progress, &self.watch())?;
            if self.skip > 0 && runs.iter().any(|run| run.row.complete && run.row.instructions == 0) {
                return Err(Failure::Usage(format!("{name} has no instruction after --skip {}", self.skip)));
            }
            if self.warmup > 0 && !stop.load(Ordering::Relaxed) {
                for run in &mut runs {
                    match run.parts.iter().position(|part| part.name == MEASURED) {
                        Some(part) => run.row = run.parts.swap_remove(part).row,
                        None if run.row.error.is_some() => {}
                        None => {
                            let all = run.row.instructions;
                            let problem =
                                format!("{name} has {all} instructions: --warmup {} leaves none", self.warmup);
                            return Err(Failure::Usage(problem));
                        }
                    }
                }
            }
            all.extend(rows(runs, self.parts));
        }
        Ok(all)
    }
}

/// Progress on standard error: only on a terminal, and only after a second.
pub(crate) struct Bar {
    bar: ProgressBar,
    since: std::time::Instant,
}

impl Bar {
    pub(crate) fn new(name: String) -> Bar {
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target).with_message(name);
        Bar { bar, since: std::time::Instant::now() }
    }

    /// Shows that something goes on of which no progress is known, until this is dropped.
    pub(crate) fn spin(name: &str) -> Bar {
        let bar = Bar::new(name.to_string());
        bar.bar.set_style(progress::style("{msg} {spinner} {elapsed}"));
        bar.bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    /// What follows begins again, under this name.
    pub(crate) fn begin(&self, name: String) {
        self.bar.set_message(name);
        self.bar.reset();
    }

    pub(crate) fn show(&self, progress: Progress) {
        if self.since.elapsed() < Duration::from_secs(1) {
            return;
        }
        match progress.of {
            Some(of) if self.bar.length() != Some(of) => {
                self.bar.set_style(progress::style("{msg} {wide_bar} {percent} % {left}"));
                self.bar.set_length(of);
            }
            None => {
                self.bar.set_style(progress::style("{msg} {spinner} {human_pos} runs, {elapsed}"));
            }
            _ => {}
        }
        self.bar.set_position(progress.runs);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
