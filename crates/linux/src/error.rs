//! Errors of a live system.

use std::io;
use std::path::PathBuf;

/// Why something was not done on a live system. Each message is one sentence, written for users.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request makes no sense, or cannot be read.
    #[error("{0}")]
    Usage(String),
    /// The kernel, the machine or the rights of this process do not allow it; the message says what
    /// would.
    #[error("{0}")]
    Unable(String),
    /// What a killed process had changed cannot be put back; [`recover`](crate::settings::recover),
    /// with which every live verb begins, says why.
    #[error("settings that were changed before are not put back: superpage inspect says why")]
    NotPutBack,
    /// A file that could not be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read`, `write`, `create`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A program that could not be started.
    #[error("cannot run {program}: {source}")]
    Exec {
        /// Its name, as it was given.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: the error that the system could not do `what`.
    pub fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        move |source| Error::System { what: what.into(), source: source.into() }
    }

    /// For `map_err`: the error that `what` (read, write, create) failed with the file.
    pub fn file<E: Into<io::Error>>(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(E) -> Error {
        move |source| Error::File { what, path: path.into(), source: source.into() }
    }

    /// For `map_err`: the error that a thread could not be started.
    pub fn thread(source: io::Error) -> Error {
        let what = "start a thread (raise the limit of processes: ulimit -u, or pids.max of the control group)";
        Error::System { what: what.to_string(), source }
    }

    /// The exit status of a command that ends with this: 2 for bad usage or input, otherwise 1.
    pub fn status(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            _ => 1,
        }
    }
}
