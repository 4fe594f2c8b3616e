//! The folder of a sweep: what it was made from, the cells that are done, and who works on it.
//!
//! `sweep.json` says what the folder is of; `cells/NAME.parquet` is a cell, whole; `rows.parquet`,
//! `index.html` and `map.svg` are made of all cells. A run without `--shard` locks the folder for
//! itself; shards lock it together, and each its own number. Whoever comes holds one more lock,
//! `entry`, until that is done and `sweep.json` is there, and writes into it who that is.
//!
//! The folder may have been prepared by somebody else: nothing in it that is a link is followed,
//! and locks are files of this user alone.

use crate::plan::{BUILD, VERSION};
use crate::{Plan, Shard};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_output::foreign;
use superpage_output::{Directory, Output, explain};
use superpage_sim::Error;

const MANIFEST: &str = "sweep.json";
pub(crate) const CELLS: &str = "cells";
const LOCKS: &str = "locks";
const END: &str = ".parquet";

/// The most bytes of a cell that is read: more than a thousand times what one of the largest sweep
/// here has.
pub(crate) const MOST: u64 = 64 << 20;

/// How often a lock that another process holds is tried, and how long nothing is said about it.
const AGAIN: Duration = Duration::from_millis(20);
const SILENT: Duration = Duration::from_secs(1);

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
        let cells = Cells { path: path.join(CELLS), directory: Some(directory.sub(CELLS, true).map_err(unable)?) };
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
        cells.directory.iter().for_each(|cells| cells.remove_leftovers(alone));
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
        let what = || self.file(name).display().to_string();
        write(&self.directory, name, bytes).map_err(|error| Error::Output { what: what(), problem: error.to_string() })
    }

    /// Writes a cell.
    pub(crate) fn write_cell(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let directory = self.cells.directory.as_ref().expect("it was made with the folder");
        let failed = |error: io::Error| Error::Output {
            what: self.cells.path(name).display().to_string(),
            problem: error.to_string(),
        };
        write(directory, &format!("{name}{END}"), bytes).map_err(failed)
    }
}

fn unusable(path: &Path, problem: &dyn std::fmt::Display) -> Error {
    Error::Usage(format!("cannot use {}: {problem}", path.display()))
}

/// A file or folder in `path` cannot be made or opened. Another folder is a way out, unless a disk
/// is full or a limit reached.
fn unable(path: &Path, error: io::Error, way_out: &str) -> Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let full = matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge);
    if full || Unread::of(&error).passing {
        return Error::Output { what: path.display().to_string(), problem: explain(error).to_string() };
    }
    unusable(path, &format_args!("{error}; {way_out}"))
}

/// Why a lock cannot be had.
#[derive(Debug)]
enum NoLock {
    /// Its file cannot be made or opened.
    File(String, io::Error),
    /// Another has it, or there are none; a sentence.
    Held(String),
}

impl NoLock {
    fn of(self, path: &Path) -> Error {
        match self {
            NoLock::File(name, error) => unable(&path.join(name), error, "give a new folder with -o"),
            NoLock::Held(sentence) => unusable(path, &sentence),
        }
    }
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

/// A folder with files of somebody else's is none for a sweep.
fn refuse_others(directory: &Directory) -> Result<(), String> {
    let text = |name: std::ffi::OsString| name.to_string_lossy().into_owned();
    let names: Vec<String> = directory.names().map_err(|error| error.to_string())?.into_iter().map(text).collect();
    // Results come after the manifest, which another process may have written since: so this is
    // asked after the names.
    let made = directory.open_regular(MANIFEST).is_ok();
    let ours: &[&str] =
        if made { &[MANIFEST, CELLS, LOCKS, "rows.parquet", "index.html", "map.svg"] } else { &[CELLS, LOCKS] };
    match names.iter().find(|name| !ours.contains(&name.as_str()) && !name.starts_with('.')) {
        Some(name) => Err(format!("it has {}, which is no sweep's; give a new folder with -o", foreign(name))),
        None => Ok(()),
    }
}

fn write(folder: &Directory, name: &str, bytes: &[u8]) -> io::Result<()> {
    let written = folder.create(name).and_then(|mut output| {
        output.write_all(bytes)?;
        output.commit()
    });
    written.map_err(explain)
}

/// The file of a lock, made if it is not there.
fn lock_file(folder: &Directory, name: &str) -> Result<File, NoLock> {
    folder.open_lock(name).map_err(|error| NoLock::File(format!("{LOCKS}/{name}"), error))
}

/// The lock that each process holds while it looks around: a moment.
const ENTRY: &str = "entry";

/// Takes that lock, and writes into it who has it; `None` if `stop` was set before. If another
/// process has it for longer, calls `waits` with its name, as far as the file has it.
fn enter(folder: &Directory, stop: &AtomicBool, waits: &dyn Fn(&str)) -> Result<Option<File>, NoLock> {
    let (mut file, began, mut noted) = (lock_file(folder, ENTRY)?, Instant::now(), false);
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(no_locks(&error)),
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if !noted && began.elapsed() >= SILENT {
            let mut holder = String::new();
            let _ = (&file).take(100).read_to_string(&mut holder);
            waits(if holder.is_empty() { "another process" } else { &holder });
            noted = true;
        }
        std::thread::sleep(AGAIN);
    }
    let computer = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let computer = if computer.is_empty() { "this computer" } else { computer.trim() };
    // Who it is matters only to who waits: a full disk may leave that out.
    let emptied = file.set_len(0).and_then(|()| file.rewind());
    let _ = emptied.and_then(|()| write!(file, "process {} on {computer}", std::process::id()));
    Ok(Some(file))
}

fn no_locks(error: &io::Error) -> NoLock {
    NoLock::Held(format!("its file system has no locks ({error}); give another folder with -o"))
}

/// Locks the folder: whole, or a shard of it. The caller has entered it: what is asked of locks for
/// a moment would otherwise refuse others.
fn lock(folder: &Directory, Shard { index, of }: Shard) -> Result<Vec<File>, NoLock> {
    let open = |name: &str| lock_file(folder, name);
    let held = |file: File, locked: Result<(), TryLockError>, by: &str| match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let sentence = format!("{by}; wait for it, end it, or share the work: --shard 1/2 and --shard 2/2");
            Err(NoLock::Held(sentence))
        }
        Err(TryLockError::Error(error)) => Err(no_locks(&error)),
    };
    let whole = open("all")?;
    if of == 1 {
        let locked = whole.try_lock();
        return Ok(vec![held(whole, locked, "another sweep runs in it")?]);
    }
    let locked = whole.try_lock_shared();
    let whole = held(whole, locked, "a sweep without --shard runs in it")?;
    // Shards of another number have other cells, among them some of these.
    let same = format!("of-{of}");
    let kind = open(&same)?;
    let locked = kind.try_lock_shared();
    let kind = held(kind, locked, "shards of another number run in it")?;
    for name in folder.names().map_err(|error| NoLock::File(LOCKS.into(), error))? {
        let name = name.to_string_lossy();
        if name.starts_with("of-") && name != same {
            let other = open(&name)?;
            let locked = other.try_lock();
            held(other, locked, &format!("shards {name} of it run, and this is one of {of}"))?;
        }
    }
    let own = open(&format!("{index}-of-{of}"))?;
    let locked = own.try_lock();
    let own = held(own, locked, &format!("shard {index}/{of} of it runs already"))?;
    Ok(vec![whole, kind, own])
}

#[cfg(test)]
mod tests;
