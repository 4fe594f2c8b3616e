//! The command `superpage`. It parses, calls and prints; what it prints is computed elsewhere.
#![deny(clippy::print_stdout)]

#[macro_use]
mod print;

mod advise;
mod export;
#[cfg(target_os = "linux")]
mod live;
#[cfg(not(target_os = "linux"))]
#[path = "live_elsewhere.rs"]
mod live;
mod pages;
mod progress;
mod record;
mod reproduce;
#[cfg(test)]
mod shown;
mod sim;
mod simpoint;
mod stop;
mod sweep;
mod trace;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use rustix::process::{Resource, getrlimit};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use superpage_report::foreign;

/// Superpages for programs that do not ask for them, and what they are worth.
#[derive(Parser)]
#[command(name = "superpage", version, arg_required_else_help = true, max_term_width = 120)]
#[command(
    after_help = "Exit status: 0 done, 1 a run or a check failed, 2 bad usage or bad input; `run`, `record` and `sim -- CMD` pass on \
    that of their program. A reader of standard output that goes away (`| head`) is no failure; a full disk is."
)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Simulate a workload, a trace or a program under policies and machines, and print exact
    /// counts
    Sim(Box<sim::Sim>),
    /// Find the regions of a program's memory that are worth huge pages
    Advise(advise::Advise),
    /// Run the combinations of workloads, machines, policies and more that a file names, and go on
    /// where an earlier run was ended
    Sweep(sweep::Sweep),
    /// Record what a program does to its memory, as a trace
    Record(record::Record),
    /// Inspect, import and export traces
    #[command(subcommand)]
    Trace(trace::Trace),
    /// Run the tables and figures of papers, and show the results beside the papers'
    Reproduce(reproduce::Reproduce),
    #[command(flatten)]
    Live(live::Live),
    /// Write manual pages and completions for shells
    #[command(hide = true)]
    Pages(pages::Pages),
}

/// How a verb failed: the message for the user, and the exit status.
pub(crate) enum Failure {
    /// Bad usage or bad input: status 2.
    Usage(String),
    /// A run or a check failed: status 1.
    Run(String),
}

impl From<superpage_trace::Error> for Failure {
    fn from(error: superpage_trace::Error) -> Failure {
        match error.status() {
            2 => Failure::Usage(error.to_string()),
            _ => Failure::Run(error.to_string()),
        }
    }
}

impl From<superpage_sim::Error> for Failure {
    fn from(error: superpage_sim::Error) -> Failure {
        match error {
            superpage_sim::Error::Trace(error) => error.into(),
            superpage_sim::Error::Usage(_) => Failure::Usage(error.to_string()),
            _ => Failure::Run(error.to_string()),
        }
    }
}

#[cfg(target_os = "linux")]
impl From<superpage_linux::Error> for Failure {
    fn from(error: superpage_linux::Error) -> Failure {
        match error.status() {
            2 => Failure::Usage(error.to_string()),
            _ => Failure::Run(error.to_string()),
        }
    }
}

fn main() -> ExitCode {
    stop::outlive_file_limit();
    superpage_sim::watch_memory(sim::limits);
    let done = with_stack(&parsed).map_or_else(explained, |command| {
        // Live verbs read and write the journal of settings that they change.
        if matches!(command.verb, Verb::Sim(_) | Verb::Sweep(_) | Verb::Record(_) | Verb::Trace(_)) {
            superpage_output::protect_inputs();
        }
        match command.verb {
            Verb::Sim(verb) => with_stack(&|| verb.run()),
            Verb::Advise(verb) => with_stack(&|| verb.run()),
            Verb::Sweep(verb) => with_stack(&|| verb.run()),
            Verb::Record(verb) => verb.run(),
            Verb::Trace(verb) => with_stack(&|| verb.run()),
            Verb::Reproduce(verb) => with_stack(&|| verb.run()),
            // `run` holds signals back in the one thread that this process has.
            Verb::Live(verb) => verb.run(),
            Verb::Pages(verb) => with_stack(&|| verb.run(&Command::command())),
        }
    });
    match done {
        Ok(code) => code,
        Err(failure) => {
            let (sentence, status) = match failure {
                Failure::Usage(sentence) => (sentence, 2),
                Failure::Run(sentence) => (sentence, 1),
            };
            // Of several, each on a line.
            sentence.lines().for_each(|line| eprintln!("superpage: {line}"));
            ExitCode::from(status)
        }
    }
}

/// The command line. A number below 0 is the value of an option or an argument, and refused as out
/// of its range, not an unknown option.
fn parsed() -> Result<Command, clap::Error> {
    let mut command = Command::command().mut_subcommands(|verb| verb.allow_negative_numbers(true));
    let words = asked(&command, std::env::args_os().collect());
    let matches = command.try_get_matches_from_mut(&words).or_else(|error| {
        // The message repeats words of the command line, without their control characters: such a
        // word is shown as what it is.
        let words = words.iter().map(|word| foreign(&word.to_string_lossy()).into_owned());
        command.try_get_matches_from_mut(words).and(Err(error))
    })?;
    Command::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The words of a command line. `help --help` is `help`: the parser refuses it.
fn asked(command: &clap::Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let group = words.get(1).and_then(|verb| command.find_subcommand(verb)).is_some_and(clap::Command::has_subcommands);
    if words.get(if group { 2 } else { 1 }).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    words
}

/// Calls `work` with the stack that a main thread has by default, on a thread where `ulimit -s`
/// leaves less: the parser's description of all verbs takes a quarter of a megabyte, and
/// simulations nearly as much. Where no thread can be had, `work` is called on this one.
fn with_stack<T: Send>(work: &(impl Fn() -> T + Sync)) -> T {
    const STACK: u64 = 8 << 20;
    if getrlimit(Resource::Stack).current.is_none_or(|limit| limit >= STACK) {
        return work();
    }
    std::thread::scope(|scope| match std::thread::Builder::new().stack_size(STACK as usize).spawn_scoped(scope, work) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(_) => work(),
    })
}

/// Prints the requested --help or --version on standard output, or a usage error on standard error.
fn explained(message: clap::Error) -> Result<ExitCode, Failure> {
    if message.use_stderr() {
        // Reasons repeat words as they are; if all are harmless the message may keep its colours.
        let harmful = |word: OsString| foreign(&word.to_string_lossy()) != *word.to_string_lossy();
        if std::env::args_os().any(harmful) {
            message.render().to_string().lines().for_each(|line| eprintln!("{}", foreign(line)))
        } else {
            drop(message.print())
        }
        return Ok(ExitCode::from(2));
    }
    let printed = message.print();
    print::done(printed.and_then(|()| print::stdout().flush()))?;
    Ok(ExitCode::SUCCESS)
}
