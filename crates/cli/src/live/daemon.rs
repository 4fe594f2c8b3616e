//! `superpage daemon`.

use super::inspect::why;
use crate::stop::{Second, Stop, ending};
use crate::{Failure, print};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use serde::Serialize;
use signal_hook::consts::SIGHUP;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::rules::Rules;
use superpage_linux::scan::Kind;
use superpage_linux::why::shared_way_out;
use superpage_live::daemon::{Config, Daemon as Running, in_turns, raise_files};
use superpage_live::launch::Line;
use superpage_live::policy::{LINUX, OF_COMMAND};
use superpage_live::probe::{RegionCost, region_cost};
use superpage_live::promote::{Finding, Listing, Options, Promoter, Selected};
use superpage_output::quoted;
use superpage_report::{Column, Screen, Table, bytes, count, foreign, foreign_json, time};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// Promote the memory of running programs to huge pages: what is populated and settled, or what a
/// policy says
#[derive(Args)]
#[command(after_long_help = after_help())]
pub(crate) struct Daemon {
    /// Promote in this process (may be given several times)
    #[arg(long, value_name = "PID", value_parser = process)]
    pid: Vec<i32>,

    /// Promote in the processes of this name, as ps shows it, whenever they start
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: Vec<String>,

    /// Promote in the processes of this control group and of those below it: a folder, a path as in
    /// /proc/PID/cgroup, or a unit of systemd, whenever it runs
    #[arg(long, value_name = "PATH|UNIT")]
    cgroup: Vec<PathBuf>,

    /// But not in the processes of this name
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    except: Vec<String>,

    /// Promote in every process of the system except init
    #[arg(long)]
    all: bool,

    /// The policy, with its parameters: any that has background work, such as khugepaged or ingens;
    /// promote if none is given
    #[arg(long, value_name = "NAME:KEY=VALUE,...")]
    policy: Option<String>,

    /// Read processes, parameters and metrics from this file, where the command line does not give
    /// them; SIGHUP reads it again
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,

    /// Print what the policy would promote, and what not and why, and exit
    #[arg(long)]
    dry_run: bool,

    /// The format of --dry-run
    #[arg(long, value_name = "FORMAT", default_value = "table", requires = "dry_run")]
    format: Format,

    #[command(flatten)]
    width: print::Width,

    /// Serve metrics for Prometheus at this address and port, as /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,

    /// Write metrics to this file, for the textfile collector of the node exporter
    #[arg(long, value_name = "FILE.prom")]
    metrics_file: Option<PathBuf>,

    /// Log each promotion; twice, each scan. RUST_LOG selects in detail
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// A row of JSON.
#[derive(Serialize)]
struct Row<'a> {
    /// The service that the process belongs to; null where the configuration has none.
    service: Option<&'a str>,
    #[serde(flatten)]
    finding: &'a Finding,
}

fn after_help() -> String {
    let mut text = String::from(
        "Examples:\n  superpage daemon --dry-run --all\n  superpage daemon --name redis-server --policy promote:age=5s,cpu=2% -v\n  \
         superpage daemon --config /etc/superpage.toml\n\n\
         Needs root, or CAP_SYS_NICE and CAP_SYS_PTRACE. SIGINT, SIGTERM and SIGQUIT end it; what is huge stays huge.\n\n\
         Parameters of promote, and what they are if not given (other policies have cpu, burst, batch,\n\
         slowdown and shared too):\n",
    );
    let parameters = LINUX.accepted(Options::default().policy().definition());
    for parameter in parameters.filter(|parameter| parameter.name != OF_COMMAND) {
        text += &format!("  {:<9} {:<6} {}\n", parameter.name, parameter.default, parameter.help);
    }
    text
}

impl Daemon {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        self.log();
        let config = self.configuration()?;
        if self.dry_run {
            return self.survey(config, &Stop::catch());
        }
        // SIGHUP is for its configuration.
        let stop = Stop::of(ending().filter(|signal| *signal != SIGHUP), Second::Ends);
        let reload = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&reload)).map_err(Error::system("catch SIGHUP"))?;
        let mut daemon = Running::start(config)?;
        daemon.run(stop.flag(), &reload, || self.configuration())?;
        Ok(ExitCode::SUCCESS)
    }

    /// The file's configuration, changed by the command line.
    fn configuration(&self) -> Result<Config, Error> {
        let mut config = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        if self.all || !(self.pid.is_empty() && self.cgroup.is_empty() && self.name.is_empty()) {
            config.services.clear();
            config.processes.all = self.all;
            config.processes.pids.clone_from(&self.pid);
            config.processes.cgroups.clone_from(&self.cgroup);
            config.processes.names.clone_from(&self.name);
        }
        if !self.except.is_empty() {
            config.processes.except.clone_from(&self.except);
        }
        if let Some(policy) = &self.policy {
            let policy = superpage_sim::expand(policy).map_err(|error| Error::Usage(error.to_string()))?;
            config.options = config.options.changed(&policy)?;
        }
        if self.metrics_listen.is_some() {
            config.metrics.listen = self.metrics_listen;
        }
        if self.metrics_file.is_some() {
            config.metrics.file.clone_from(&self.metrics_file);
        }
        if let (Some(read), Some(written)) = (&self.config, &config.metrics.file) {
            superpage_report::apart(read, written)
                .map_err(|error| Error::Usage(format!("cannot write {}: {error}", written.display())))?;
        }
        config.validate()?;
        Ok(config)
    }

    /// Logs go to standard error, with times and colours only on a terminal: a journal has its own.
    fn log(&self) {
        let level = match self.verbose {
            0 => LevelFilter::INFO,
            1 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let selected = std::env::var("RUST_LOG").ok().and_then(|targets| targets.parse().ok());
        let filter = selected.unwrap_or_else(|| Targets::new().with_default(level));
        let to_person = std::io::stderr().is_terminal();
        let logs = fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(to_person);
        // It would tell of what it cannot write by `eprintln!`, which panics then: a full disk
        // under a log ends no daemon.
        let logs = logs.log_internal_errors(false);
        let registry = tracing_subscriber::registry().with(filter);
        // A test that calls this twice keeps the first.
        let _ = if to_person { registry.with(logs).try_init() } else { registry.with(logs.without_time()).try_init() };
    }

    fn survey(&self, mut config: Config, stop: &Stop) -> Result<ExitCode, Failure> {
        config.processes.leave_out_gone()?;
        let mut observers = config.observers()?;
        raise_files();
        let screen = self.width.screen();
        let (mut looks, mut taken) = (Vec::new(), BTreeSet::new());
        for (service, promoter) in &mut observers {
            if service.is_some() {
                promoter.list(&mut Listing::default(), &mut taken);
            }
            looks.push(look(promoter, stop));
        }
        let regions = |findings: &[Finding]| findings.iter().map(|finding| finding.promotable).sum();
        let waiting: Vec<u64> = looks.iter().map(|(findings, _)| regions(findings)).collect();
        let promotable: u64 = waiting.iter().sum();
        // Once, for all: memory that one measurement has used is warm in the next.
        let cost = (promotable > 0).then(region_cost).and_then(Result::ok);
        let (mut text, mut legends) = (String::new(), Vec::new());
        for (((service, promoter), (findings, looked)), own) in observers.iter().zip(&looks).zip(&waiting) {
            let options = promoter.options();
            if let Some(service) = service {
                text += &screen.paragraph(&format!("service {}, policy {options}:", foreign(service)));
            }
            text += &table(findings, promoter.region_bytes(), options, screen);
            let legend = legend(promoter.region_bytes(), (options, *looked), screen);
            if !findings.is_empty() && !legends.contains(&legend) {
                legends.push(legend);
            }
            let pace = cost.filter(|_| *own > 0).map(|cost| pace(*own, &waiting, cost, options));
            text += &pace.map(|pace| screen.paragraph(&pace)).unwrap_or_default();
            text += if service.is_some() { "\n" } else { "" };
        }
        legends.iter().for_each(|legend| text += legend);
        let line = Line::new("promotes what the column says, and what comes later, until SIGINT", begins());
        text += &super::typed("To begin:", if promotable > 0 { std::slice::from_ref(&line) } else { &[] }, screen);
        if let Format::Json = self.format {
            let rows = observers.iter().zip(&looks).flat_map(|((service, _), (findings, _))| {
                findings.iter().map(|finding| Row { service: service.as_deref(), finding })
            });
            let rows: Vec<Row> = rows.collect();
            text = foreign_json(&serde_json::to_string_pretty(&rows).expect("findings are plain")) + "\n";
        }
        print::print(text)?;
        Ok(if stop.is_set() { stop.status() } else { ExitCode::SUCCESS })
    }
}

/// What a promoter would promote, and for how long it has looked.
fn look(promoter: &mut Promoter, stop: &Stop) -> (Vec<Finding>, Duration) {
    let looks = promoter.options().looks();
    if std::io::stderr().is_terminal() || looks > Duration::from_secs(30) {
        eprintln!("superpage: looking for {looks:?}, promoting nothing");
    }
    let began = Instant::now();
    let findings = promoter.survey(stop.flag());
    let looked = began.elapsed();
    if stop.is_set() {
        eprintln!(
            "superpage: interrupted after {looked:.1?} of {looks:?}: what would be promoted later than that is not in what follows"
        );
    }
    (findings, looked)
}

/// The command line of this process, without what is for looking alone.
fn begins() -> String {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let alone = ["--dry-run", "--wide"];
    let words = words.iter().filter(|word| !alone.contains(&word.as_str()));
    std::iter::once("superpage".to_string()).chain(words.map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
}

fn process(text: &str) -> Result<i32, String> {
    match text.parse()? {
        Selected::Process(pid) => Ok(pid),
        _ => Err("expected the number of a process, as pidof and ps tell it".into()),
    }
}

/// How long the promotion of `own` regions takes beside those of the other services; `waiting` has
/// the regions of each.
fn pace(own: u64, waiting: &[u64], cost: RegionCost, options: &Options) -> String {
    let time = |each: Duration| time(each.as_secs_f64());
    let takes = |each| format!("{:.0?}", options.takes(in_turns(own, waiting.iter().copied()), each));
    let (warm, most, cold) = if cost.met_cold() {
        ("where memory was just used", "where the host has taken it back", "")
    } else {
        (
            "at the fastest",
            "at the slowest",
            "; longer where a host has taken free memory back, and all that was met cost about the same",
        )
    };
    let shared = match waiting.iter().filter(|regions| **regions > 0).count() {
        0 | 1 => String::new(),
        sharing => format!(", which {sharing} services share"),
    };
    format!(
        "{} {} {} to {} at cpu={}{shared}, without scans: each {} of CPU time {warm} to {} {most}, \
         measured here now{cold}",
        count(own),
        if own == 1 { "region takes" } else { "regions take" },
        takes(cost.warm),
        takes(cost.most),
        options.cpu,
        time(cost.warm),
        time(cost.most),
    )
}

/// One row for each process with relevant memory, and a line for the rest.
fn table(findings: &[Finding], region: u64, options: &Options, screen: Screen) -> String {
    let by_age = options.goes_by_age();
    // What goes by age has regions that are too sparse for it; another policy leaves what it
    // leaves.
    let (left, sparse) = match (Column::number("too young"), Column::number("not chosen"), Column::number("too sparse"))
    {
        (young, _, sparse) if by_age => (young.only_wide(), sparse),
        (_, left, sparse) => (left, sparse.only_wide()),
    };
    let matters = |finding: &&Finding| {
        finding.promotable + finding.young + finding.sparse + finding.huge + finding.unsuitable_bytes > 0
            || finding.reasons.iter().map(|reason| reason.bytes).sum::<u64>() >= region
            || finding.excluded.is_some_and(|why| why != "kernel")
    };
    let or_none = |sum: u64| if sum == 0 { "-".to_string() } else { bytes(sum) };
    let size = |regions: u64| or_none(regions * region);
    let grows = Column::number("grows by");
    let grows = if findings.iter().any(|finding| finding.grown_bytes > 0) { grows } else { grows.only_wide() };
    let mut table = Table::new([
        Column::number("pid"),
        Column::prose("name"),
        Column::number("promote"),
        grows,
        left,
        sparse,
        Column::number("huge"),
        Column::number("excluded").only_wide(),
        Column::prose("why not"),
    ]);
    for finding in findings.iter().filter(matters) {
        table.row([
            finding.pid.to_string(),
            finding.name.clone(),
            size(finding.promotable),
            or_none(finding.grown_bytes),
            size(finding.young),
            size(finding.sparse),
            size(finding.huge),
            or_none(finding.unsuitable_bytes),
            match finding.excluded {
                Some("rights") => "this user may not look into it".to_string(),
                _ => why(&finding.reasons, screen.is_wide()),
            },
        ]);
    }
    let rest = findings.len() - findings.iter().filter(matters).count();
    let size = bytes(region);
    let rest = match rest {
        0 if findings.is_empty() => "no process was there to the end of the look".to_string(),
        0 => String::new(),
        1 => format!("1 process is not shown: it has no {size} that could be huge yet (--wide says why)"),
        rest => format!("{rest} processes are not shown: they have no {size} that could be huge yet (--wide says why)"),
    };
    let stuck: Vec<Kind> = findings.iter().flat_map(|finding| finding.stuck.iter().copied()).collect();
    let note = shared_way_out(&stuck, &Rules::read()).map(|note| screen.note(&note)).unwrap_or_default();
    let table = if findings.is_empty() { String::new() } else { format!("{}\n", screen.table(&table)) };
    let rest = if rest.is_empty() { rest } else { screen.paragraph(&rest) };
    format!("{table}{rest}{note}")
}

/// What the columns of the tables count.
fn legend(region: u64, (options, looked): (&Options, Duration), screen: Screen) -> String {
    let by_age = options.goes_by_age();
    let words = if by_age {
        "\"too sparse\" is below the policy's share by the process's own page table".to_string()
    } else {
        format!(
            "\"not chosen\" is what policy {options} left in {:.1} s: it may come to it later, or never",
            looked.as_secs_f64()
        )
    };
    let region = superpage_report::bytes(region);
    let words = format!("{words}; these columns count whole regions of {region}, \"why not\" resident memory");
    let more = match (screen.is_wide(), by_age) {
        (true, _) => "",
        (false, true) => "; --wide shows what is too young and what is excluded, too",
        (false, false) => "; --wide shows what is excluded, too",
    };
    screen.paragraph(&format!("{words}{more}"))
}
