//! The files that a command has read, which none of its outputs may replace.

use rustix::fs::{AtFlags, Stat};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The device and number of each; `None` where nothing is kept.
static INPUTS: Mutex<Option<HashSet<(u64, u64)>>> = Mutex::new(None);

/// The text for a file that is read and would be written.
pub(crate) const ALSO: &str = "is also the input, and would be replaced; name another file to write";

fn with<T>(then: impl FnOnce(&mut Option<HashSet<(u64, u64)>>) -> T) -> T {
    then(&mut INPUTS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// From now on no output replaces a file that this process has read with [`crate::open_regular`] or
/// [`crate::read_text`]. For a command, which runs once: a longer program may well read a file and
/// write it later.
pub fn protect_inputs() {
    with(|inputs| inputs.get_or_insert_default().len());
}

/// A file was opened to read it.
pub(crate) fn note(file: &File) {
    with(|inputs| {
        if let (Some(inputs), Ok(file)) = (inputs, file.metadata()) {
            inputs.insert((file.dev(), file.ino()));
        }
    });
}

/// Refuses to replace what was read.
pub(crate) fn check(folder: impl AsFd, name: impl AsRef<Path>) -> io::Result<()> {
    let there = rustix::fs::statat(folder, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW);
    #[allow(clippy::unnecessary_cast, reason = "their types differ between systems")]
    let read = |file: Stat| {
        let file = (file.st_dev as u64, file.st_ino as u64);
        with(|inputs| inputs.as_ref().is_some_and(|inputs| inputs.contains(&file)))
    };
    if there.is_ok_and(read) { Err(io::Error::new(io::ErrorKind::InvalidInput, ALSO)) } else { Ok(()) }
}
