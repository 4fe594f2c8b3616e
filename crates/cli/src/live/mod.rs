//! The verbs that work on this system: on running processes, and on commands that they start.

mod compare;
mod daemon;
mod inspect;
mod probe;
mod run;

use crate::Failure;
use clap::Subcommand;
use std::process::ExitCode;
use superpage_live::launch::Line;
use superpage_report::Screen;

/// The verbs that work on this system.
#[derive(Subcommand)]
pub(crate) enum Live {
    /// Run a command under several policies in turns, and recommend one of them
    Compare(compare::Compare),
    /// Promote the memory of running programs to huge pages, where it is populated and settled
    Daemon(daemon::Daemon),
    /// Show where the memory of a process is, in pages of which sizes, and why it is not huge; or what the system has
    /// free
    Inspect(inspect::Inspect),
    /// Run a command under a policy for its pages
    Run(Box<run::Run>),
    /// Determine by timing what this machine and its kernel do with pages of several sizes
    Probe(probe::Measure),
}

impl Live {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if !std::path::Path::new("/proc/self/stat").exists() {
            let sentence = "/proc is not mounted here, and all that is known of processes comes from there: mount it (mount -t \
                            proc proc /proc), or run superpage outside this container";
            return Err(Failure::Run(sentence.into()));
        }
        let told = recover();
        let done = match self {
            Live::Compare(verb) => verb.run(),
            Live::Daemon(verb) => verb.run(),
            Live::Inspect(verb) => verb.run(),
            Live::Run(verb) => verb.run(),
            Live::Probe(verb) => verb.run(),
        };
        done.map_err(|failure| match (failure, told) {
            // One long sentence, once.
            (Failure::Run(sentence), Some(told)) => Failure::Run(
                sentence.replace(&told, "settings that were changed before are not put back, as is said above"),
            ),
            (failure, _) => failure,
        })
    }
}

/// Lines to type under a title, each whole on a line of its own; nothing, if there are none.
fn typed(title: &str, lines: Vec<Line>, screen: Screen) -> String {
    let each = |Line { does, line }: Line| screen.note(&does) + "      " + &line + "\n";
    let text: String = lines.into_iter().map(each).collect();
    if text.is_empty() { text } else { format!("\n{title}\n{text}") }
}

/// Restores what a killed process had changed, and reports it. Returns the sentence that says why it cannot.
fn recover() -> Option<String> {
    match superpage_linux::settings::recover() {
        Ok(None) => None,
        Ok(Some(recovered)) => {
            eprintln!("superpage: {recovered}");
            None
        }
        Err(error) => {
            eprintln!("superpage: {error}");
            Some(error.to_string())
        }
    }
}
