//! Errors of experiments.

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
