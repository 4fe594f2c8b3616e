//! The live verbs on systems other than Linux: each says that it needs Linux.

use crate::Failure;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// The verbs that need Linux.
#[derive(Subcommand)]
pub(crate) enum Live {
    /// Run a command under several policies and compare (needs Linux)
    Compare(Anything),
    /// Run a command under a policy for its pages (needs Linux)
    Run(Anything),
    /// Promote pages of running programs (needs Linux)
    Daemon(Anything),
    /// Show the pages of a process or of the system (needs Linux)
    Inspect(Anything),
    /// Split the huge pages of running programs (needs Linux)
    Split(Anything),
    /// See what huge pages do to three small programs (needs Linux)
    Try(Anything),
    /// Measure what this machine's hardware and kernel do with pages (needs Linux)
    Probe(Anything),
}

/// Any arguments of a verb that cannot run.
#[derive(Args)]
pub(crate) struct Anything {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<OsString>,
}

impl Live {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let verb = match self {
            Live::Compare(_) => "compare",
            Live::Run(_) => "run",
            Live::Daemon(_) => "daemon",
            Live::Inspect(_) => "inspect",
            Live::Split(_) => "split",
            Live::Try(_) => "try",
            Live::Probe(_) => "probe",
        };
        Err(Failure::Run(format!("superpage {verb} works on a live Linux and cannot run here")))
    }
}
