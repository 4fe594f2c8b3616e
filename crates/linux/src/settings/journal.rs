//! The journal of changed settings: what must be restored, on disk before it is changed.

use super::{FOLDERS, Recovered};
use crate::Error;
use crate::lock::{Holder, holders_of};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use superpage_output::{Output, explain};

/// One setting that was changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Change {
    /// Its file.
    pub(super) path: PathBuf,
    /// Its old value.
    pub(super) before: String,
    /// The value that the kernel has accepted; while it is written, the value to be set. A setting
    /// with another value is not ours to restore.
    pub(super) set: String,
    /// It is being written: the kernel may have taken a part of a number, where a signal ended the
    /// call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) writing: bool,
}

impl Change {
    /// Whether the setting has this value because of this change.
    pub(super) fn made(&self, now: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        let between = || {
            let (now, before, set) = (number(now)?, number(&self.before)?, number(&self.set)?);
            Some((before.min(set)..=before.max(set)).contains(&now))
        };
        now == self.set || (self.writing && between() == Some(true))
    }
}

/// All changes of one process that are not yet restored, oldest first.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    /// The boot of the system in which the changes were made; after another boot, settings have
    /// their initial values.
    boot: String,
    /// The process that made them.
    pid: u32,
    /// When that process started, in clock ticks since boot: its number may be reused.
    started: u64,
    pub(super) changes: Vec<Change>,
}

/// The state of the process that wrote a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Alive,
    Dead,
    /// The system has been rebooted meanwhile, which has reset everything.
    EarlierBoot,
}

impl Journal {
    /// Replaces the journal by `changes` of this process, or removes it if there are none. It is on
    /// disk on return.
    pub(super) fn store(file: &Path, root: &Path, changes: &[Change]) -> Result<(), Error> {
        if changes.is_empty() {
            return match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", file)(error)),
                _ => Ok(()),
            };
        }
        let pid = std::process::id();
        let started = started(root, pid).unwrap_or(0);
        let journal = Journal { boot: boot(root), pid, started, changes: changes.to_vec() };
        let text = serde_json::to_string(&journal).expect("strings and numbers");
        let folder = file.parent().expect("the journal is in the run directory");
        let written = || {
            let mut new = Output::create(file)?;
            new.write_all(text.as_bytes())?;
            // Everyone may know what must be restored.
            new.file()?.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
            new.commit()?;
            File::open(folder)?.sync_all()
        };
        written().map_err(|error| Error::file("write", file)(explain(error)))
    }

    /// The journal, if there is one.
    pub(super) fn load(file: &Path, root: &Path) -> Result<Option<Journal>, Error> {
        let text = match superpage_output::read_text(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("read", file)(error)),
        };
        let journal: Result<Journal, _> = serde_json::from_str(&text);
        let journal = journal.map_err(|error| error.to_string()).and_then(|journal| match journal.stranger(root) {
            Some(path) => Err(format!("{} is no setting of this system", path.display())),
            None => Ok(journal),
        });
        journal.map(Some).map_err(|error| {
            Error::Unable(format!(
                "the journal of changed settings {} is not one that superpage wrote: {error}; look at the settings that \
                 it names and remove it",
                file.display()
            ))
        })
    }

    /// A file in it that is not a setting.
    fn stranger(&self, root: &Path) -> Option<&Path> {
        let plain = |path: &Path| path.components().all(|part| part != Component::ParentDir);
        let setting = |path: &Path| plain(path) && FOLDERS.iter().any(|folder| path.starts_with(root.join(folder)));
        self.changes.iter().map(|change| change.path.as_path()).find(|path| !setting(path))
    }

    /// The process that wrote it.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The state of that process. It lives if it holds the lock, whose file is `lock`: `/proc` may
    /// hide the processes of other users (`hidepid`).
    pub(super) fn owner(&self, root: &Path, lock: &Path) -> Owner {
        if self.boot != boot(root) {
            Owner::EarlierBoot
        } else if started(root, self.pid) == Some(self.started) || self.holds(lock) {
            Owner::Alive
        } else {
            Owner::Dead
        }
    }

    /// Whether the kernel names that process as the holder of the lock. It goes on to do so where a
    /// child has inherited it.
    fn holds(&self, lock: &Path) -> bool {
        let holder = Holder { exclusive: true, pid: self.pid as i32 };
        fs::symlink_metadata(lock).is_ok_and(|file| holders_of(&file).contains(&holder))
    }

    /// Whether that process has ended, and another holds the lock that it took. Only for whom
    /// `/proc` hides nobody.
    pub(super) fn has_ended_with_lock(&self, root: &Path, lock: &Path) -> bool {
        self.boot == boot(root) && started(root, self.pid) != Some(self.started) && self.holds(lock)
    }

    pub(super) fn recovered(&self, restored: bool) -> Recovered {
        let settings = self.changes.iter().map(|change| (change.path.clone(), change.before.clone())).collect();
        Recovered { pid: self.pid, settings, restored, left: Vec::new() }
    }
}

/// For the fuzzer.
#[cfg(fuzzing)]
pub(super) fn read_anything(text: &str) {
    if let Ok(journal) = serde_json::from_str::<Journal>(text) {
        let _ = journal.stranger(Path::new("/"));
    }
}

/// The identifier of this boot; empty if the system does not provide it.
fn boot(root: &Path) -> String {
    fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).map(|id| id.trim().to_string()).unwrap_or_default()
}

/// When a process started, in clock ticks since boot.
fn started(root: &Path, pid: u32) -> Option<u64> {
    crate::proc::stat_of(root.join(format!("proc/{pid}/stat"))).map(|stat| stat.starttime)
}
