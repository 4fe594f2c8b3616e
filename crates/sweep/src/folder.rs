//! The folder of a sweep: what it was made from, the cells that are done, and who works on it.
//!
//! `sweep.json` says what the folder is of; `cells/NAME.parquet` is a cell, whole; `rows.parquet`,
//! `index.html` and `map.svg` are made of all cells. A run without `--shard` locks the folder for
//! itself; shards lock it together, and each its number. Each process that opens the folder holds
//! one more lock, `entry`, until it has its locks and `sweep.json` is there, and writes its name
//! into it.
//!
//! The folder may have been prepared by somebody else: nothing in it that is a link is followed,
//! and locks are files of this user alone.

use crate::cells::{CELLS, Cells, Unread};
use crate::locks::{ENTRY, enter, lock};
use crate::plan::{BUILD, VERSION};
use crate::{Plan, Shard};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use superpage_output::{Directory, Output, explain, foreign};
use superpage_sim::Error;

const MANIFEST: &str = "sweep.json";
pub(crate) const LOCKS: &str = "locks";
/// What helps where nothing can be written.
const WAY_OUT: &str = "name a folder with -o where this user may write";

/// The folder of a sweep, which this process works on.
pub(crate) struct Folder {
    path: PathBuf,
    directory: Directory,
    cells: Cells,
    /// What its user should know, in words.
    note: Option<String>,
    /// Held until the process is done.
    _locks: Vec<File>,
}

/// What a folder was made from.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Manifest {
    version: String,
    /// Which build of it; empty if that is not known.
    #[serde(default)]
    build: String,
    title: String,
    cells: usize,
    /// The digest of all cells' names.
    digest: String,
    /// The axes with their values.
    axes: Vec<(String, Vec<String>)>,
    /// The digests of everything that was read from files.
    inputs: BTreeMap<String, String>,
}

impl Manifest {
    fn of(plan: &Plan) -> Manifest {
        Manifest {
            version: VERSION.into(),
            build: BUILD.into(),
            title: plan.sweep.name.clone(),
            cells: plan.cells.len(),
            digest: plan.digest(),
            axes: plan.sweep.axes.iter().map(|axis| (axis.name.clone(), axis.values.clone())).collect(),
            inputs: plan.inputs.clone(),
        }
    }

    /// The first input that has changed since the folder was made; `None` if nothing has.
    fn differs(&self, now: &Manifest) -> Option<String> {
        if self.version != now.version {
            return Some(format!("was made by superpage {}, and this is {}", self.version, now.version));
        }
        if self.digest == now.digest {
            return None;
        }
        if self.axes != now.axes {
            let text = |axes: &[(String, Vec<String>)], name: &str| {
                let axis = axes.iter().find(|(axis, _)| axis == name);
                axis.map_or("nothing".into(), |(_, values)| values.join(", "))
            };
            let names: BTreeSet<&String> = self.axes.iter().chain(&now.axes).map(|(name, _)| name).collect();
            let other = names.into_iter().find(|name| text(&self.axes, name) != text(&now.axes, name));
            let name = other.map_or("workload", String::as_str);
            let (then, now) = (text(&self.axes, name), text(&now.axes, name));
            return Some(format!("is of another sweep: there {name} is {then}, here {now}"));
        }
        let changed = self.inputs.iter().find(|(name, digest)| now.inputs.get(*name).is_some_and(|now| now != *digest));
        Some(match changed {
            Some((name, _)) => format!("was begun with another {name}: its contents have changed"),
            None => "is of a sweep whose axes go together otherwise, or with other options".into(),
        })
    }
}

impl Folder {
    /// Makes the folder, or opens one that was made for the same sweep, and locks it; `None` if
    /// `stop` was set while this process waited for another one, whose name `note` gets.
    ///
    /// # Errors
    /// [`Error::Usage`]: it cannot be written, is of another sweep or version, or another process
    /// works on the same cells.
    pub(crate) fn open(
        path: &Path,
        plan: &Plan,
        shard: Shard,
        stop: &AtomicBool,
        note: &dyn Fn(&str),
    ) -> Result<Option<Folder>, Error> {
        let wrong = |problem: &dyn std::fmt::Display| unusable(path, problem);
        let unable = |error: io::Error| unable(path, error, WAY_OUT);
        let new = !path.exists();
        let directory = Directory::make(path).map_err(unable)?;
        // If this call fails, the folder that it created is removed, unless it contains a file.
        let made = Made(new.then_some(path));
        refuse_others(&directory).map_err(|error| wrong(&error))?;
        let cells = Cells::make(path, &directory).map_err(unable)?;
        let locks = directory.sub(LOCKS, true).map_err(unable)?;
        // Until what the folder is of and who works on it are settled, no other process looks:
        // shards are started together.
        let waits = |by: &str| note(&format!("{} waits for {by}, which holds {LOCKS}/{ENTRY}", path.display()));
        let Some(entry) = enter(&locks, stop, &waits).map_err(|error| error.of(path))? else { return Ok(None) };
        let locks = lock(&locks, shard).map_err(|error| error.of(path))?;
        let now = Manifest::of(plan);
        let mut note = None;
        match manifest(&directory).map_err(|error| wrong(&error))? {
            Some(then) => {
                if let Some(difference) = then.differs(&now) {
                    let way_out = "give a new folder with -o, or remove this one; rows of both are not mixed";
                    return Err(wrong(&format_args!("it {difference}; {way_out}")));
                }
                if !then.build.is_empty() && !now.build.is_empty() && then.build != now.build {
                    note = Some(format!(
                        "{} was begun by another build of superpage {VERSION}, and its cells are reused: if the two builds \
                         simulate differently, give a new folder with -o",
                        path.display()
                    ));
                }
            }
            None => {
                let text = serde_json::to_string_pretty(&now).map_err(|error| wrong(&error))? + "\n";
                write(&directory, MANIFEST, text.as_bytes()).map_err(unable)?;
            }
        }
        made.stays();
        // Clears the holder's name before the lock is released.
        entry.set_len(0).map_err(|error| wrong(&error))?;
        drop(entry);
        // What runs without shards has the folder to itself.
        let alone = shard.of == 1;
        directory.remove_leftovers(alone);
        cells.remove_leftovers(alone);
        Ok(Some(Folder { path: path.into(), directory, cells, note, _locks: locks }))
    }

    /// Its cells.
    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// What its user should know before cells run, in words.
    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Begins a file in it.
    pub(crate) fn create(&self, name: &str) -> io::Result<Output> {
        self.directory.create(name)
    }

    /// Writes a file, whole or not at all.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        write(&self.directory, name, bytes).map_err(|error| Error::output(self.file(name).display(), error))
    }
}

/// A folder cannot be used.
pub(crate) fn unusable(path: &Path, problem: &dyn std::fmt::Display) -> Error {
    Error::Usage(format!("cannot use {}: {problem}", path.display()))
}

/// A file or folder in `path` cannot be made or opened. Another folder is a way out, unless a disk
/// is full or a limit reached.
pub(crate) fn unable(path: &Path, error: io::Error, way_out: &str) -> Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let full = matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge);
    if full || Unread::of(&error).passing {
        return Error::output(path.display(), explain(error));
    }
    unusable(path, &format_args!("{error}; {way_out}"))
}

/// A folder that this process has made, which is removed again when this is dropped, if it has no
/// file.
struct Made<'a>(Option<&'a Path>);

impl Made<'_> {
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let Some(path) = self.0 else { return };
        // Up to the first that is not empty: where there is a lock, another process may be about to
        // write a cell.
        for name in [LOCKS, CELLS, ""] {
            match std::fs::remove_dir(path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => break,
                _ => {}
            }
        }
    }
}

/// Whether a folder was made for another sweep, in words; a folder that is not there yet is for
/// any.
pub(crate) fn differs(folder: &Path, plan: &Plan) -> Option<String> {
    let then = manifest(&Directory::open(folder).ok()?).ok().flatten();
    then.and_then(|then| then.differs(&Manifest::of(plan)))
}

fn manifest(folder: &Directory) -> Result<Option<Manifest>, String> {
    // It has a line for each value of an axis and each machine with values set: some 100 bytes
    // each.
    match folder.read_text(MANIFEST, 64) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{MANIFEST}: {error}")),
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| {
            format!("{MANIFEST} is not of this version of superpage ({error}); give a new folder with -o")
        }),
    }
}

/// Refuses a folder with files that no sweep wrote.
fn refuse_others(directory: &Directory) -> Result<(), String> {
    let text = |name: std::ffi::OsString| name.to_string_lossy().into_owned();
    let names: Vec<String> = directory.names().map_err(|error| error.to_string())?.into_iter().map(text).collect();
    // Results come after the manifest, which another process may have written since: so this is
    // asked after the names.
    let made = directory.open_regular(MANIFEST).is_ok();
    let ours: &[&str] =
        if made { &[MANIFEST, CELLS, LOCKS, "rows.parquet", "index.html", "map.svg"] } else { &[CELLS, LOCKS] };
    match names.iter().find(|name| !ours.contains(&name.as_str()) && !name.starts_with('.')) {
        Some(name) => Err(format!("it holds {}, which no sweep wrote; give a new folder with -o", foreign(name))),
        None => Ok(()),
    }
}

/// Writes a file of a folder, whole or not at all.
pub(crate) fn write(folder: &Directory, name: &str, bytes: &[u8]) -> io::Result<()> {
    let written = folder.create(name).and_then(|mut output| {
        output.write_all(bytes)?;
        output.commit()
    });
    written.map_err(explain)
}

#[cfg(test)]
mod tests;
