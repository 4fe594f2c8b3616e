//! Errors of experiments, and of what programs do in them.

use superpage_pages::Vpn;

/// An error of this crate. Its message is one sentence, written for users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request makes no sense: an unknown name, too little memory. Exit status 2.
    #[error("{0}")]
    Usage(String),
    /// The stream of events failed: a damaged trace, a program that does not start.
    #[error(transparent)]
    Trace(#[from] superpage_trace::Error),
    /// Memory ran short while simulations ran. Exit status 1.
    #[error("{0}")]
    Memory(String),
    /// The threads that were asked for cannot be started.
    #[error("{0}")]
    Threads(String),
    /// The result could not be written.
    #[error("cannot write {what}: {problem}")]
    Output {
        /// What was being written.
        what: String,
        /// The reason.
        problem: String,
    },
}

impl Error {
    /// `what` could not be written, because of this problem.
    pub fn output(what: impl ToString, problem: impl ToString) -> Error {
        Error::Output { what: what.to_string(), problem: problem.to_string() }
    }
}

/// Why something could not be done.
pub(crate) enum Problem {
    /// The process cannot continue.
    Process(String),
    /// The run cannot continue.
    Run(String),
}

impl Problem {
    pub(crate) fn run(error: superpage_vm::Error) -> Problem {
        Problem::Run(error.to_string())
    }

    /// No fault ends the traps of this page.
    pub(crate) fn traps_again(page: Vpn) -> Problem {
        Problem::Run(format!("page {:#x} traps again and again: this is a bug in superpage", page.0))
    }
}
