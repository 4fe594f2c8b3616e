//! The command to be recorded.

use crate::{Error, Info, Sampling};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use superpage_output::quoted;

/// A program with its arguments, and how to record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program, searched for in `PATH` if its name has no slash, and its arguments.
    pub words: Vec<OsString>,
    /// The sampling, if only some of the accesses of each thread are kept, with all events, first
    /// touches and first writes of pages.
    pub sampling: Option<Sampling>,
    /// Whether runs are of lines of 64 bytes, not only of pages. Such a recording is larger and
    /// takes longer, and cannot be sampled.
    pub lines: bool,
    /// Whether system calls are recorded that no other event stands for, as
    /// [`Event::Call`](crate::Event::Call).
    pub calls: bool,
    /// The folder that the program runs in, if it is not that of this process. A program named by a
    /// relative path is in it.
    pub folder: Option<PathBuf>,
    /// The file that the program's standard output goes to, which is replaced.
    pub output: Option<PathBuf>,
    /// Whether the program's standard output goes to standard error if no file is named, for a
    /// caller that prints only its own results on standard output.
    pub output_to_stderr: bool,
}

impl Command {
    /// A program and its arguments, recorded in full.
    pub fn new<I>(words: I) -> Command
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        Command {
            words: words.into_iter().map(|word| word.as_ref().to_owned()).collect(),
            sampling: None,
            lines: false,
            calls: false,
            folder: None,
            output: None,
            output_to_stderr: false,
        }
    }

    /// What is known before it runs: the command line, quoted where needed, and the sampling.
    pub fn info(&self) -> Info {
        let words: Vec<String> = self.words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        Info {
            workload: words.join(" "),
            sampling: self.sampling,
            fetches: true,
            lines: self.lines,
            calls: self.calls,
            ..Info::default()
        }
    }

    /// Checks whether it can be recorded here, without starting it.
    ///
    /// # Errors
    /// [`Error::Input`] if there is no such program or folder, if the program is for a machine that
    /// the recorder does not support, or if the sampling keeps nothing; [`Error::Missing`] if QEMU
    /// is not installed.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(Sampling { on, period, seed }) = self.sampling
            && (on == 0 || on > period || i64::try_from(period.max(seed.unwrap_or(0))).is_err())
        {
            let problem = "expected ON of at least 1 and at most PERIOD, and PERIOD and the seed below 2^63";
            return Err(Error::input(format!("sampling {on}/{period}"), problem));
        }
        if self.lines && self.sampling.is_some() {
            let problem =
                "cannot be sampled: what a cache of megabytes holds is not known after a gap; leave out one of the two";
            return Err(Error::input("a recording of lines", problem));
        }
        if let Some(folder) = &self.folder
            && !folder.is_dir()
        {
            return Err(Error::input(folder.display().to_string(), "expected a folder, for the program to run in"));
        }
        super::recording::check(self)
    }

    /// The file of the program: as it is named if that is a path, else where it is found in `PATH`.
    pub fn file(&self) -> Option<PathBuf> {
        super::recording::file(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_is_a_line_for_a_shell() {
        let command = Command::new(["sh", "-c", "echo it's", ""]);
        assert_eq!(command.info().workload, r"sh -c 'echo it'\''s' ''");
    }

    #[test]
    fn a_sampling_that_keeps_nothing_is_refused() {
        let mut command = Command::new(["true"]);
        command.sampling = Some(Sampling::drawn(0, 10));
        let message = command.check().expect_err("refused").to_string();
        assert!(message.contains("0/10"), "{message}");
    }
}
