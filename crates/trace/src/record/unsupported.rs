//! Recording where QEMU's user-mode emulator does not exist.

use super::Command;
use crate::{Batch, Error, Info, Source};
use std::convert::Infallible;
use std::process::ExitStatus;

/// A running program: there is none on this system.
#[derive(Debug)]
pub struct Recording(Infallible);

/// A handle that stops a recording from any thread.
#[derive(Clone, Debug)]
pub struct Stop(Infallible);

/// How a recording ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The exit status of the program.
    pub status: ExitStatus,
    /// What the user should know.
    pub notes: Vec<String>,
}

pub(super) fn check(_: &Command) -> Result<(), Error> {
    Err(Error::input(
        "record",
        "programs can be recorded on Linux only, as QEMU's user-mode emulator is found only there",
    ))
}

pub(super) fn file(_: &Command) -> Option<std::path::PathBuf> {
    None
}

/// Starts a program.
///
/// # Errors
/// Always, as this system is not supported.
pub fn start(command: &Command) -> Result<Recording, Error> {
    command.check()?;
    Err(Error::input("record", "this system is not supported"))
}

impl Recording {
    /// A handle that stops the recording.
    pub fn stopper(&self) -> Stop {
        match self.0 {}
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// None here.
    pub fn finish(self) -> Result<Outcome, Error> {
        match self.0 {}
    }
}

impl Stop {
    /// Ends the program.
    pub fn stop(&self) {
        match self.0 {}
    }
}

impl Source for Recording {
    fn info(&self) -> &Info {
        match self.0 {}
    }

    fn fill(&mut self, _: &mut Batch) -> Result<bool, Error> {
        match self.0 {}
    }
}
