//! Processors on which making system calls in another process's name is not supported.

use crate::Error;

/// Never constructed: [`prepare`](super::prepare) refuses.
pub(super) enum Tracee {}

impl Tracee {
    pub(super) fn adopt(_: u32, _: Option<usize>) -> Result<Tracee, Error> {
        Err(Error::Unable("code is placed on x86-64 only so far".into()))
    }

    pub(super) fn run_to_entry(&mut self) -> Result<(), Error> {
        match *self {}
    }

    pub(super) fn follow(&mut self, _: std::time::Duration) -> Result<bool, Error> {
        match *self {}
    }

    pub(super) fn call(&mut self, _: &str, _: libc::c_long, _: [u64; 6]) -> Result<u64, Error> {
        match *self {}
    }

    pub(super) fn copy(&mut self, _: u64, _: u64, _: usize) -> Result<(), Error> {
        match *self {}
    }

    pub(super) fn step(&mut self, _: &str) -> Result<(), Error> {
        match *self {}
    }

    pub(super) fn calmly<T>(&mut self, _: impl FnOnce(&mut Tracee) -> T) -> T {
        match *self {}
    }

    pub(super) fn release(self) -> usize {
        match self {}
    }
}
