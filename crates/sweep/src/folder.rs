//! The folder of a sweep: what it was made from, the cells that are done, and who works on it.
//!
//! `sweep.json` says what the folder is of; `cells/NAME.parquet` is a cell, whole; `rows.parquet` and `index.html` are made
//! of all cells. A run without `--shard` locks the folder for itself; shards lock it together, and each its own number. Whoever comes
//! holds one more lock until that is done and `sweep.json` is there.

use crate::plan::{BUILD, VERSION};
use crate::{Plan, Shard};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use superpage_output::{Output, explain, remove_leftovers};
use superpage_sim::Error;

const MANIFEST: &str = "sweep.json";
const CELLS: &str = "cells";
const LOCKS: &str = "locks";

/// What helps where nothing can be written.
const WAY_OUT: &str = "name a folder with -o where this user may write";

/// The folder of a sweep, which this process works on.
pub(crate) struct Folder {
    path: PathBuf,
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

    /// What the folder was made from that is no more so; `None` if its cells are those of `now`.
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
    /// Makes the folder, or opens one that was made for the same sweep, and locks it.
    ///
    /// # Errors
    /// [`Error::Usage`]: it cannot be written, is of another sweep or version, or another process works on the same cells.
    pub(crate) fn open(path: &Path, plan: &Plan, shard: Shard) -> Result<Folder, Error> {
        let wrong = |problem: &dyn std::fmt::Display| Error::Usage(format!("cannot use {}: {problem}", path.display()));
        for folder in [path.to_path_buf(), path.join(CELLS), path.join(LOCKS)] {
            if folder == path {
                refuse_others(path).map_err(|error| wrong(&error))?;
            }
            std::fs::create_dir_all(&folder).map_err(|error| wrong(&format_args!("{error}; {WAY_OUT}")))?;
        }
        // Until what the folder is of and who works on it are settled, no other process looks: shards are started together.
        let entry = enter(&path.join(LOCKS)).map_err(|problem| wrong(&problem))?;
        let locks = lock(&path.join(LOCKS), shard).map_err(|problem| wrong(&problem))?;
        let now = Manifest::of(plan);
        let mut note = None;
        match manifest(path).map_err(|error| wrong(&error))? {
            Some(then) => {
                if let Some(difference) = then.differs(&now) {
                    let way_out = "give a new folder with -o, or remove this one; rows of both are not mixed";
                    return Err(wrong(&format_args!("it {difference}; {way_out}")));
                }
                if !then.build.is_empty() && !now.build.is_empty() && then.build != now.build {
                    note = Some(format!(
                        "{} was begun by another build of superpage {VERSION}, and cells of both are taken for the same: if what simulations \
                         do has changed between them, give a new folder with -o",
                        path.display()
                    ));
                }
            }
            None => {
                let text = serde_json::to_string_pretty(&now).map_err(|error| wrong(&error))? + "\n";
                write(&path.join(MANIFEST), text.as_bytes()).map_err(|error| wrong(&error))?;
            }
        }
        drop(entry);
        // What runs without shards has the folder to itself.
        let alone = shard.of == 1;
        remove_leftovers(path, alone);
        remove_leftovers(&path.join(CELLS), alone);
        Ok(Folder { path: path.into(), note, _locks: locks })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What its user should know before cells run, in words.
    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file, whole or not at all.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.file(name);
        write(&path, bytes)
            .map_err(|error| Error::Output { what: path.display().to_string(), problem: error.to_string() })
    }

    /// Writes a cell.
    pub(crate) fn write_cell(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.write(&format!("{CELLS}/{name}.parquet"), bytes)
    }
}

/// The names of the cells that a folder has; none if there is no such folder.
pub(crate) fn cells(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder.join(CELLS)).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".parquet")?.to_string())).collect()
}

/// The file of a cell.
pub(crate) fn cell(folder: &Path, name: &str) -> PathBuf {
    folder.join(CELLS).join(format!("{name}.parquet"))
}

/// Opens the file of a cell, a regular one: whatever else lies there under its name is not waited for.
pub(crate) fn open_cell(folder: &Path, name: &str) -> Result<File, String> {
    superpage_output::open_regular(&cell(folder, name)).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => "it is not a regular file".into(),
        _ => error.to_string(),
    })
}

/// Its contents.
pub(crate) fn read_cell(folder: &Path, name: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    open_cell(folder, name)?.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Whether a folder was made for another sweep, in words; a folder that is not there yet is for any.
pub(crate) fn differs(folder: &Path, plan: &Plan) -> Option<String> {
    manifest(folder).ok().flatten().and_then(|then| then.differs(&Manifest::of(plan)))
}

fn manifest(folder: &Path) -> Result<Option<Manifest>, String> {
    match superpage_output::read_text(&folder.join(MANIFEST)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{MANIFEST}: {error}")),
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| {
            format!("{MANIFEST} is not of this version of superpage ({error}); give a new folder with -o")
        }),
    }
}

/// A folder with files of somebody else's is none for a sweep.
fn refuse_others(path: &Path) -> Result<(), String> {
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    let names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    // Results come after the manifest, which another process may have written since: so this is asked after the names.
    let ours: &[&str] = match path.join(MANIFEST).exists() {
        true => &[MANIFEST, CELLS, LOCKS, "rows.parquet", "index.html"],
        false => &[CELLS, LOCKS],
    };
    match names.iter().find(|name| !ours.contains(&name.as_str()) && !name.starts_with('.')) {
        Some(name) => Err(format!("it has {name}, which is no sweep's; give a new folder with -o")),
        None => Ok(()),
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = Output::create(path).and_then(|mut output| {
        output.write_all(bytes)?;
        output.commit()
    });
    written.map_err(explain)
}

/// The file of a lock, made if it is not there.
fn lock_file(folder: &Path, name: &str) -> Result<File, String> {
    let open = File::options().create(true).truncate(false).read(true).write(true).open(folder.join(name));
    open.map_err(|error| format!("{}/{name}: {error}; {WAY_OUT}", folder.display()))
}

/// Waits for the lock that each process holds while it looks around: a moment.
fn enter(folder: &Path) -> Result<File, String> {
    let file = lock_file(folder, "entry")?;
    loop {
        match file.lock() {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(no_locks(&error)),
        }
    }
}

fn no_locks(error: &io::Error) -> String {
    format!("its file system has no locks ({error}); give another folder with -o")
}

/// Locks the folder: whole, or a shard of it. The caller has entered it: what is asked of locks for a moment would otherwise refuse others.
fn lock(folder: &Path, Shard { index, of }: Shard) -> Result<Vec<File>, String> {
    let open = |name: &str| lock_file(folder, name);
    let held = |file: File, locked: Result<(), TryLockError>, by: &str| match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(format!("{by}; wait for it, end it, or share the work: --shard 1/2 and --shard 2/2"))
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
    for other in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = other.file_name().to_string_lossy().into_owned();
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
