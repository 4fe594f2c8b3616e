//! Errors of streams: what a source, a file or a recording can fail with.

use std::path::{Path, PathBuf};

/// An error of this crate. Its message is one sentence, written for users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is wrong, and the user can correct it.
    #[error("{what}: {problem}")]
    Input {
        /// The file and place, or the argument.
        what: String,
        /// What was found, what was expected, and what to do.
        problem: String,
    },
    /// Another program is needed, and is not installed.
    #[error("{what}: {problem}")]
    Missing {
        /// The program.
        what: String,
        /// What it is needed for, and how to install it.
        problem: String,
    },
    /// A run failed, although the request was valid.
    #[error("{what}: {problem}")]
    Run {
        /// What ran.
        what: String,
        /// What happened, and what can be done about it.
        problem: String,
    },
    /// A system call to read or write failed.
    #[error("{path}: {source}{}", way_out(path, source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Error {
    /// The exit status of the command: 2 for bad usage or input, or what is not installed; 1 for a
    /// run that failed.
    pub fn status(&self) -> u8 {
        use std::io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied};
        match self {
            Error::Input { .. } | Error::Missing { .. } => 2,
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

/// What the user can do about an error of the system.
fn way_out(path: &Path, source: &std::io::Error) -> String {
    // EMFILE, on all supported systems.
    const TOO_MANY_OPEN_FILES: i32 = 24;
    if source.raw_os_error() == Some(TOO_MANY_OPEN_FILES) {
        return "; raise this shell's limit of open files (ulimit -n)".into();
    }
    use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match source.kind() {
        NotADirectory => "; a part of this path is a file: check the path".into(),
        // A file to be written is also not found where its folder is not.
        NotFound => match folder.filter(|folder| !folder.is_dir()) {
            Some(folder) => format!("; there is no folder {}: check the path", folder.display()),
            None if path.extension() == Some("sp".as_ref()) => {
                format!("; to record it: superpage record -o {} -- CMD", path.display())
            }
            None => "; check its name: paths are those of the working directory".into(),
        },
        IsADirectory => "; it is a folder: name a file".into(),
        PermissionDenied => "; ask its owner for the right, or name another file".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn what_cannot_be_reached_says_what_to_do() {
        let said = |path: &str, kind: ErrorKind| Error::Io { path: path.into(), source: kind.into() }.to_string();
        for (path, kind, way_out) in [
            ("a.sp", ErrorKind::NotFound, "; to record it: superpage record -o a.sp -- CMD"),
            ("/no/such/a.sp", ErrorKind::NotFound, "; there is no folder /no/such: check the path"),
            ("a.csv", ErrorKind::NotFound, "; check its name: paths are those of the working directory"),
            ("/a.sp/b.sp", ErrorKind::NotADirectory, "; a part of this path is a file: check the path"),
            ("a.sp", ErrorKind::PermissionDenied, "; ask its owner for the right, or name another file"),
        ] {
            assert!(said(path, kind).ends_with(way_out), "{}", said(path, kind));
        }
    }
}
