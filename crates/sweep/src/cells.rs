//! The files of a sweep's cells.

use crate::folder::{unusable, write};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use superpage_output::Directory;
use superpage_sim::Error;

/// The folder of cells in that of a sweep.
pub(crate) const CELLS: &str = "cells";
const END: &str = ".parquet";

/// The most bytes of a cell that is read: more than a thousand times what one of the largest sweep
/// here has.
pub(crate) const MOST: u64 = 64 << 20;

/// Why a cell cannot be read.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) problem: String,
    /// Whether this process or the system lacks what it takes to read any file: this says nothing
    /// of the cell.
    pub(crate) passing: bool,
}

impl Unread {
    pub(crate) fn of(error: &io::Error) -> Unread {
        // On all supported systems.
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        let passing =
            matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) || error.kind() == io::ErrorKind::OutOfMemory;
        Unread { problem: error.to_string(), passing }
    }
}

impl From<String> for Unread {
    fn from(problem: String) -> Unread {
        Unread { problem, passing: false }
    }
}

/// The files of a folder's cells.
pub(crate) struct Cells {
    path: PathBuf,
    /// None if there is no such folder.
    directory: Option<Directory>,
}

impl Cells {
    /// Those of the folder `path`, to read them; none, if there is no such folder.
    pub(crate) fn of(path: &Path) -> Result<Cells, Error> {
        let directory = match Directory::open(path).and_then(|folder| folder.sub(CELLS, false)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(path, &error)),
            directory => directory.ok(),
        };
        Ok(Cells { path: path.join(CELLS), directory })
    }

    /// Those of the folder `path`, open as `folder`; makes the folder of cells if there is none.
    pub(crate) fn make(path: &Path, folder: &Directory) -> io::Result<Cells> {
        Ok(Cells { path: path.join(CELLS), directory: Some(folder.sub(CELLS, true)?) })
    }

    /// Writes a cell, whole or not at all.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let directory = self.directory.as_ref().expect("it was made with the folder");
        write(directory, &format!("{name}{END}"), bytes)
            .map_err(|error| Error::output(self.path(name).display(), error))
    }

    /// Removes unfinished files that killed processes have left; `alone`: no other is at work.
    pub(crate) fn remove_leftovers(&self, alone: bool) {
        self.directory.iter().for_each(|cells| cells.remove_leftovers(alone));
    }

    /// Their names.
    pub(crate) fn names(&self) -> Result<BTreeSet<String>, Error> {
        let names = self.directory.as_ref().map_or(Ok(Vec::new()), Directory::names);
        let names = names.map_err(|error| unusable(&self.path, &error))?;
        Ok(names.into_iter().filter_map(|name| Some(name.to_str()?.strip_suffix(END)?.to_string())).collect())
    }

    /// The path of the file of a cell, for a message.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{END}"))
    }

    /// Opens the file of a cell: a regular one, and no link.
    pub(crate) fn open(&self, name: &str) -> Result<File, Unread> {
        let directory = self.directory.as_ref().ok_or_else(|| "there are no cells".to_string())?;
        let open = || {
            let file = directory.open_regular(&format!("{name}{END}"))?;
            Ok((file.metadata()?.len(), file))
        };
        match open().map_err(|error| Unread::of(&error))? {
            (bytes, _) if bytes > MOST => Err(format!("it has {bytes} bytes, and no cell has more than {MOST}").into()),
            (_, file) => Ok(file),
        }
    }

    /// Its contents.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, Unread> {
        let mut bytes = Vec::new();
        self.open(name)?.take(MOST).read_to_end(&mut bytes).map_err(|error| Unread::of(&error))?;
        Ok(bytes)
    }

    /// Whether a folder has the name of a cell's file.
    pub(crate) fn is_folder(&self, name: &str) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.is_folder(&format!("{name}{END}")))
    }

    /// Removes the file of a cell, or a link in its place.
    pub(crate) fn remove(&self, name: &str) -> Result<(), String> {
        let directory = self.directory.as_ref().ok_or("there are no cells")?;
        directory.remove(&format!("{name}{END}")).map_err(|error| error.to_string())
    }
}
