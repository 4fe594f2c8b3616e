//! `superpage compare`.

use crate::stop::{Second, Stop, ending};
use crate::{Failure, export as files, progress};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use superpage_linux::settings::System;
use superpage_live::Policy;
use superpage_live::compare::statistics::rounds_needed;
use superpage_live::compare::{
    Advice, At, Comparison, End, MemoryState, Options, Output, Reaches, Server, Watch, With, compare_with, did_table,
    export, html, settings, table,
};
use superpage_live::launch::Line;
use superpage_live::policy::Plan;
use superpage_report::{Export, Screen};

/// Run a command under several policies in turns, and recommend one of them
#[derive(Args)]
#[command(after_long_help = after_help())]
pub(crate) struct Compare {
    /// A policy to compare with the system as it is (now); repeat for several, even the same one
    /// [default: now, base, thp, mthp:size=64K, hugetlb, promote]
    #[arg(long = "policy", value_name = "POLICY", value_parser = super::run::policy)]
    policies: Vec<Policy>,

    #[arg(short, long, help = runs_help(), value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,

    /// Run policies that are surely slower than now and than the best no more, and end once every
    /// row has a verdict; intervals are wider, since they hold together at all looks
    #[arg(long)]
    adaptive: bool,

    /// End after this time (90s, 10m, 2h), counted from the first run; rounds that are complete
    /// count
    #[arg(long, value_name = "TIME", value_parser = time)]
    time_limit: Option<Duration>,

    /// The number of warm-up runs of each policy, which are not measured
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    warmup: u32,

    /// A command for `sh -c` before each run, outside its time
    #[arg(short, long, value_name = "CMD", value_parser = prepared)]
    prepare: Option<String>,

    /// A command for `sh -c` after each run, outside its time
    #[arg(short, long, value_name = "CMD")]
    conclude: Option<String>,

    /// Continue if the command exits with a status other than 0
    #[arg(short, long)]
    ignore_failure: bool,

    /// Pass the command to `sh -c`, its words joined by spaces
    #[arg(long)]
    shell: bool,

    /// Start the command itself, without a shell: the default; undoes an earlier --shell
    #[arg(short = 'N', long, overrides_with = "shell")]
    no_shell: bool,

    /// Compare this server instead: it is started under each policy, CMD is the load on it, and
    /// SIGTERM ends it
    #[arg(long, value_name = "CMD", value_parser = words, requires = "ready")]
    server: Option<Words>,

    /// A command for `sh -c` that succeeds once the server is ready
    #[arg(long, value_name = "CMD", requires = "server", value_parser = NonEmptyStringValueParser::new())]
    ready: Option<String>,

    /// How long the server may take to be ready, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    ready_within: u32,

    /// Hold the server under its load for this time (10m) in each run: the load is repeated until
    /// it is over, and the last time ends by itself
    #[arg(long = "for", value_name = "TIME", requires = "server", value_parser = time)]
    hold: Option<Duration>,

    /// What stands before the throughput in the load's output, where it is none of redis-benchmark,
    /// memtier_benchmark, pgbench, wrk and hey
    #[arg(long, value_name = "TEXT", requires = "server", value_parser = NonEmptyStringValueParser::new())]
    throughput: Option<String>,

    /// A row more: this command, or server, under a policy, as in 'thp=java
    /// -XX:+UseTransparentHugePages -jar a.jar' or 'now=GLIBC_TUNABLES=glibc.malloc.hugetlb=1
    /// ./service'; repeat for several. Other policies then run only if --policy names them
    #[arg(long, value_name = "POLICY=CMD", value_parser = with)]
    with: Vec<With>,

    /// Compare policies that set something for the whole system also while other programs with much
    /// memory run: such policies are left out then, unless --policy names them
    #[arg(long)]
    system_wide: bool,

    /// Leave out every policy that sets something for the whole system
    #[arg(long, conflicts_with = "system_wide")]
    only_mine: bool,

    /// Do not wait while another superpage has the settings of this kernel: fail, and say which
    #[arg(long)]
    no_wait: bool,

    /// Show what the command prints
    #[arg(long)]
    show_output: bool,

    /// The seed of the order of policies in each round
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Do not touch memory before each run, even if a host may have taken free memory
    #[arg(long)]
    cold_host: bool,

    /// What free memory is like when runs begin
    #[arg(long, value_name = "STATE", value_enum, default_value = "as-it-is", conflicts_with = "only_mine")]
    memory_state: State,

    /// Show every column, and wrap no line
    #[arg(long)]
    wide: bool,

    /// How to print the results
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "table")]
    format: Format,

    /// Also write the times in the shape of hyperfine's JSON
    #[arg(long, value_name = "FILE")]
    export_json: Option<PathBuf>,

    /// Also write all medians as CSV
    #[arg(long, value_name = "FILE")]
    export_csv: Option<PathBuf>,

    /// Also write the table in Markdown
    #[arg(long, value_name = "FILE")]
    export_markdown: Option<PathBuf>,

    /// Also write a page with the table and charts of every run
    #[arg(long, value_name = "FILE")]
    export_html: Option<PathBuf>,

    /// Also write the files that set what is advised at each boot into this folder
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD ARG")]
    command: Vec<OsString>,
}

/// A command as a shell would split it.
#[derive(Clone)]
struct Words(Vec<OsString>);

fn words(text: &str) -> Result<Words, String> {
    let words = shlex::split(text).filter(|words| !words.is_empty());
    let words = words.ok_or("it is no command: give a program and its arguments, with quotes closed")?;
    Ok(Words(words.into_iter().map(Into::into).collect()))
}

/// A time with its unit.
fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let parts = units.iter().find_map(|(unit, of)| Some((text.strip_suffix(unit)?.parse::<f64>().ok()?, of)));
    let seconds = parts.map(|(number, of)| number * of).filter(|seconds| (1e-3..=1e7).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a time such as 90s, 10m or 2h".into())
}

/// A policy and a command: the first part before a `=` that is a policy.
fn with(text: &str) -> Result<With, String> {
    let places = text.match_indices('=').map(|(place, _)| place);
    let mut parts = places.map(|place| (&text[..place], &text[place + 1..]));
    let found = parts.find_map(|(policy, command)| Some((super::run::policy(policy).ok()?, command)));
    let (policy, command) = found.ok_or_else(|| {
        let what = "expected POLICY=CMD, as in thp=./service --fast".to_string();
        let before = text.split_once('=').map(|(before, _)| super::run::policy(before));
        before.and_then(Result::err).map_or(what.clone(), |why| format!("{what}: {why}"))
    })?;
    Ok(With { name: None, policy, command: words(command)?.0 })
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    /// Untouched, but for what a host may have taken
    AsItIs,
    /// Break up every free block of 2 MB of the whole system, as on a machine that has run for long
    Fragmented,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Table,
    /// One array with one object per policy
    Json,
}

fn runs_help() -> String {
    format!(
        "The number of measured rounds; in each, every policy runs once. Intervals, and so advice, need {} with one \
         policy besides now, {} with two, {} with five [default: 10, with --adaptive at most 50]",
        rounds_needed(1),
        rounds_needed(2),
        rounds_needed(5)
    )
}

fn after_help() -> String {
    format!(
        "Examples:\n  superpage compare -- ./service --benchmark\n  \
         superpage compare -r 20 --policy thp --policy mthp:size=64K --export-html page.html -- gcc -O2 -c big.c\n  \
         superpage compare --server 'redis-server --port 7001 --save \"\"' --ready 'redis-cli -p 7001 ping' \\\n      \
         -- redis-benchmark -p 7001 -t set -r 1000000 -n 1000000\n\n\
         The whole process tree is measured: the time until all of it has ended, its processor time, page faults and\n\
         memory. `time / now` is the ratio to the time of the system as it is, with an interval: all intervals hold\n\
         together in 95 of 100 comparisons, or in as many as the head of the column says. Of a server its own tree\n\
         is measured, and the time is 1 / throughput, as the load says. Each policy says what it really did; one that\n\
         reached nothing of the program's memory gets no verdict. Settings of the whole system are put back after\n\
         each run; where this process is killed, by the next call of any live verb.\n\nPolicies:\n{}",
        Policy::help()
    )
}

/// A command before each run: `-p` is `--policy` in other verbs.
fn prepared(text: &str) -> Result<String, String> {
    match text.parse::<Policy>() {
        Ok(_) => Err(format!("{text} is a policy, and -p is a command before each run: give it by --policy")),
        Err(_) => Ok(text.into()),
    }
}

impl Compare {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let options = self.options();
        let exports = self.exports()?;
        let settings = settings(&options);
        // A signal does not end this process at once: the command is ended first, and settings are
        // put back.
        let stop = Stop::of(ending(), Second::Waits);
        let comparison = compare_with(settings, &options, stop.flag(), &mut Bar::new(self.time_limit))?;
        let wanted = exports.len();
        let limited = comparison.end == End::TimeLimit;
        let why = if limited { "the time limit came" } else { "interrupted" };
        if comparison.rounds == 0 {
            let written = if wanted > 0 { "; no file was written, and what was there is as it was" } else { "" };
            eprintln!("superpage: {why} before a round was complete{written}");
            return Ok(if limited { ExitCode::FAILURE } else { stop.status() });
        }
        if comparison.ended_early() {
            let written = if wanted > 0 { "; files have these too, marked as ended early" } else { "" };
            let Comparison { rounds, of, .. } = comparison;
            eprintln!("superpage: {why}; what is shown are the {rounds} of {of} rounds that were complete{written}");
        }
        let exports = exports.into_iter().map(|(file, write)| (file, write(&comparison)));
        files::write_and_print(exports, self.findings(&comparison), &stop)?;
        if let (Some(folder), Some(advice)) = (&self.write, &comparison.advice) {
            super::write_files(folder, &lines(advice, &comparison))?;
        }
        Ok(if comparison.end == End::Stopped { stop.status() } else { ExitCode::SUCCESS })
    }

    fn options(&self) -> Options {
        let mut options = Options::new(&self.command);
        if !self.policies.is_empty() || !self.with.is_empty() {
            options.policies = self.policies.clone();
        }
        Options {
            server: self.server.clone().zip(self.ready.clone()).map(|(Words(command), ready)| Server {
                command,
                ready,
                patience: Duration::from_secs(self.ready_within.into()),
                after: self.throughput.clone(),
                hold: self.hold.unwrap_or_default(),
            }),
            with: self.with.clone(),
            reach: match (self.only_mine, self.system_wide || !self.policies.is_empty() || !self.with.is_empty()) {
                (true, _) => Reaches::OnlyMine,
                (_, true) => Reaches::System,
                _ => Reaches::Considerate,
            },
            waits: !self.no_wait,
            shell: self.shell,
            runs: self.runs.unwrap_or(if self.adaptive { 50 } else { 10 }) as usize,
            adaptive: self.adaptive,
            time_limit: self.time_limit,
            warmup: self.warmup as usize,
            prepare: self.prepare.clone(),
            conclude: self.conclude.clone(),
            ignore_failure: self.ignore_failure,
            cold_host: self.cold_host,
            memory_state: match self.memory_state {
                State::AsItIs => MemoryState::AsItIs,
                State::Fragmented => MemoryState::Fragmented,
            },
            output: match (self.show_output, self.format) {
                (false, _) => Output::Null,
                (true, Format::Table) => Output::Inherit,
                (true, Format::Json) => Output::Stderr,
            },
            seed: self.seed,
            ..options
        }
    }

    /// The files to write, each checked before anything runs, with their contents.
    fn exports(&self) -> Result<Vec<(Export, Text)>, Failure> {
        let wanted: [(&Option<PathBuf>, Text); 4] = [
            (&self.export_json, export::json),
            (&self.export_csv, export::csv),
            (&self.export_markdown, export::markdown),
            (&self.export_html, html),
        ];
        let paths: Vec<&PathBuf> = wanted.iter().filter_map(|(path, _)| path.as_ref()).collect();
        if let Some((_, path)) = paths.iter().enumerate().find(|(place, path)| paths[..*place].contains(path)) {
            return Err(Failure::Usage(format!("two exports are to be {}: give each its own file", path.display())));
        }
        let wanted = wanted.into_iter().map(|(path, write)| Ok((files::create(path.as_ref())?, write)));
        let wanted: Vec<_> = wanted.collect::<Result<_, Failure>>()?;
        Ok(wanted.into_iter().filter_map(|(file, write)| Some((file?, write))).collect())
    }

    fn findings(&self, comparison: &Comparison) -> String {
        match self.format {
            Format::Json => {
                comparison.notes.iter().for_each(|note| eprintln!("superpage: {note}"));
                serde_json::to_string_pretty(&comparison.rows).expect("rows are plain values") + "\n"
            }
            Format::Table => shown(comparison, Screen::stdout(self.wide)),
        }
    }
}

/// The comparison for people: the answer first, then the evidence.
fn shown(comparison: &Comparison, screen: Screen) -> String {
    let Comparison { command, seed, .. } = comparison;
    let rounds = comparison.rounds_in_words();
    let mut text = screen.paragraph(&format!("{command}: {rounds}, order from seed {seed}"));
    text += &screen.table(&table(comparison));
    if let Some(advice) = &comparison.advice {
        text += &format!("\n{}", screen.paragraph(&advice.sentence));
        text += &super::typed("To have it:", &lines(advice, comparison), screen);
    }
    text += &format!("\n{}", screen.table(&did_table(comparison)));
    if !comparison.notes.is_empty() {
        text.push('\n');
        comparison.notes.iter().for_each(|note| text += &screen.note(note));
    }
    text
}

/// What to type to have the policy that is advised.
fn lines(advice: &Advice, comparison: &Comparison) -> Vec<Line> {
    let (system, Some(name)) = (System::live(), &advice.policy) else { return Vec::new() };
    // A row of `--with` has a number.
    let own = name.split_once(" (");
    let policy = own.map_or(name.as_str(), |(policy, _)| policy).parse();
    let plan = policy.ok().and_then(|policy| Plan::new(&policy, &system).ok());
    let row = comparison.rows.iter().find(|row| row.policy == *name);
    let command = row.and_then(|row| row.own_command.as_deref());
    let mut lines = plan.map_or(Vec::new(), |plan| plan.lines(&system, command.unwrap_or("CMD")));
    let settings = lines.iter().any(|line| line.file.is_some());
    let does = if settings { "and, where that is set for all programs, this command" } else { "this command" };
    lines.extend(command.filter(|_| settings || lines.is_empty()).map(|command| Line::new(does, command)));
    lines
}

/// Produces the text of a file.
type Text = fn(&Comparison) -> String;

/// Progress on standard error: a bar on a terminal, which is not drawn during a run; else a line
/// each ten seconds.
pub(super) struct Bar {
    bar: ProgressBar,
    lines: Option<Lines>,
    /// When the first run began.
    begun: Option<Instant>,
    limit: Option<Duration>,
}

impl Bar {
    pub(super) fn new(limit: Option<Duration>) -> Bar {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(progress::style("{msg} {wide_bar} {pos} of {len} runs {left}"));
        let lines = || Lines::start(Duration::from_secs(10), |line| eprintln!("superpage: {line}"));
        Bar { bar, lines: if terminal { None } else { lines() }, begun: None, limit }
    }
}

impl Watch for Bar {
    fn run(&mut self, at: &At) {
        self.bar.set_length(at.of as u64);
        self.bar.set_message(at.policy.to_string());
        self.bar.set_position(at.index as u64 - 1);
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let done = (at.index - 1) as f64;
        let whole = (done > 0.0).then(|| begun.elapsed().mul_f64(at.of as f64 / done));
        let end = whole.into_iter().chain(self.limit).min().map(|whole| begun + whole);
        let round = at.round.map_or("warm-up".into(), |round| format!("round {round} of {}", at.rounds));
        self.lines.iter().for_each(|lines| lines.at(format!("{round}, under {}", at.policy), end));
    }

    fn say(&mut self, sentence: &str) {
        self.bar.suspend(|| eprintln!("superpage: {sentence}"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A thread that says now and then which run is at work, and how much time is left. It ends when
/// this is dropped.
struct Lines(Sender<(String, Option<Instant>)>);

impl Lines {
    /// Where no thread can be had there are no lines.
    fn start(every: Duration, mut say: impl FnMut(String) + Send + 'static) -> Option<Lines> {
        let (lines, told) = channel::<(String, Option<Instant>)>();
        let print = move || {
            let (begun, mut at, mut next) = (Instant::now(), None, every);
            loop {
                match told.recv_timeout(next.saturating_sub(begun.elapsed())) {
                    Ok(now) => at = Some((now, Instant::now())),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        if let Some(((run, end), since)) = &at {
                            let run = format!("{run} for {} s", since.elapsed().as_secs());
                            let left = end.map(|end: Instant| end.saturating_duration_since(Instant::now()));
                            let left = left.map(progress::left).filter(|left| !left.is_empty());
                            say(left.map_or(run.clone(), |left| format!("{run}, {left}")));
                        }
                        next += every;
                    }
                }
            }
        };
        std::thread::Builder::new().name("progress".into()).spawn(print).ok().map(|_| Lines(lines))
    }

    fn at(&self, run: String, end: Option<Instant>) {
        let _ = self.0.send((run, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_which_run_is_at_work_and_how_much_time_is_left() {
        let (said, lines) = channel();
        let at = Lines::start(Duration::from_millis(1), move |line| _ = said.send(line)).unwrap();
        at.at("warm-up, under now".into(), None);
        assert_eq!(lines.recv().unwrap(), "warm-up, under now for 0 s");
        at.at("round 2 of 10, under thp".into(), Some(Instant::now() + Duration::from_secs(36_000)));
        let line = lines.iter().find(|line| line.starts_with("round 2")).unwrap();
        assert!(line.starts_with("round 2 of 10, under thp for 0 s, ") && line.ends_with("h left"), "{line}");
    }

    #[test]
    fn a_time_has_a_unit() {
        let [minutes, short] = ["10m", "250ms"].map(|text| time(text).unwrap());
        assert_eq!((minutes, short), (Duration::from_secs(600), Duration::from_millis(250)));
        for text in ["", "10", "m", "-1s", "0s", "nans", "infs", "1d"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
