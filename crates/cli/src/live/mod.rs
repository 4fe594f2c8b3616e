//! The verbs that work on this system: what is running, and what runs now.

mod daemon;
mod run;

use crate::Failure;
use clap::Subcommand;
use std::process::ExitCode;

/// The verbs that work on this system.
#[derive(Subcommand)]
pub(crate) enum Live {
    /// Promote the memory of running programs to huge pages, where it is populated and settled
    Daemon(daemon::Daemon),
    /// Run a command under a policy for its pages
    Run(run::Run),
}

impl Live {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        recover();
        match self {
            Live::Daemon(verb) => verb.run(),
            Live::Run(verb) => verb.run(),
        }
    }
}

/// Puts back what a process that was killed had changed, and says so.
fn recover() {
    match superpage_linux::settings::recover() {
        Ok(None) => {}
        Ok(Some(recovered)) => eprintln!("superpage: {recovered}"),
        Err(error) => eprintln!("superpage: {error}"),
    }
}
