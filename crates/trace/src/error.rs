//! What can go wrong with a stream.

use std::path::PathBuf;

/// An error of this crate: one sentence for a person each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is not what it should be: the user's to mend.
    #[error("{what}: {problem}")]
    Input {
        /// The file and place, or the argument.
        what: String,
        /// What was found, what was expected, and the way out.
        problem: String,
    },
    /// A run failed through no fault of what was asked for.
    #[error("{what}: {problem}")]
    Run {
        /// What ran.
        what: String,
        /// What happened, and what may be done about it.
        problem: String,
    },
    /// The system refused to read or write.
    #[error("{path}: {source}{}", way_out(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Error {
    /// The exit status that tells a script who is to mend it: 2 for bad usage or input, 1 for a run that failed.
    pub fn status(&self) -> u8 {
        use std::io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied};
        match self {
            Error::Input { .. } => 2,
            Error::Run { .. } => 1,
            Error::Io { source, .. } => match source.kind() {
                NotFound | PermissionDenied | IsADirectory | NotADirectory | InvalidInput => 2,
                _ => 1,
            },
        }
    }

    /// An [`Error::Input`].
    pub fn input(what: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Input { what: what.into(), problem: problem.into() }
    }
}

/// What may be done about a refusal of the system.
fn way_out(source: &std::io::Error) -> &'static str {
    // EMFILE, on all systems that are built for.
    const TOO_MANY_OPEN_FILES: i32 = 24;
    match source.raw_os_error() {
        Some(TOO_MANY_OPEN_FILES) => "; raise this shell's limit of open files (ulimit -n)",
        _ => "",
    }
}
