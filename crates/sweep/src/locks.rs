//! The locks of a sweep's folder: files in `locks/`.

use crate::Shard;
use crate::folder::{LOCKS, unable, unusable};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_output::Directory;
use superpage_sim::Error;

/// How often a process tries a lock that another one holds, and after how long it says so.
pub(crate) const AGAIN: Duration = Duration::from_millis(20);
pub(crate) const SILENT: Duration = Duration::from_secs(1);

/// Why a lock cannot be had.
#[derive(Debug)]
pub(crate) enum NoLock {
    /// Its file cannot be made or opened.
    File(String, io::Error),
    /// Another process has it, or the file system has no locks; a sentence.
    Held(String),
}

impl NoLock {
    pub(crate) fn of(self, path: &Path) -> Error {
        match self {
            NoLock::File(name, error) => unable(&path.join(name), error, "give a new folder with -o"),
            NoLock::Held(sentence) => unusable(path, &sentence),
        }
    }
}

/// The file of a lock, made if it is not there.
fn lock_file(folder: &Directory, name: &str) -> Result<File, NoLock> {
    folder.open_lock(name).map_err(|error| NoLock::File(format!("{LOCKS}/{name}"), error))
}

/// The lock that each process holds while it looks around: a moment.
pub(crate) const ENTRY: &str = "entry";

/// Takes that lock, and writes the name of this process into it; `None` if `stop` was set before.
/// If another process holds it for long, calls `waits` with the name in the file.
pub(crate) fn enter(folder: &Directory, stop: &AtomicBool, waits: &dyn Fn(&str)) -> Result<Option<File>, NoLock> {
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
    // Only a process that waits reads the name: a full disk may leave it out.
    let emptied = file.set_len(0).and_then(|()| file.rewind());
    let _ = emptied.and_then(|()| write!(file, "process {} on {computer}", std::process::id()));
    Ok(Some(file))
}

fn no_locks(error: &io::Error) -> NoLock {
    NoLock::Held(format!("its file system has no locks ({error}); give another folder with -o"))
}

/// Locks the folder: whole, or a shard of it. The caller holds the lock `entry`: otherwise a lock
/// that is only tried for a moment would refuse other processes.
pub(crate) fn lock(folder: &Directory, Shard { index, of }: Shard) -> Result<Vec<File>, NoLock> {
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
    let number = open(&format!("{index}-of-{of}"))?;
    let locked = number.try_lock();
    let number = held(number, locked, &format!("shard {index}/{of} of it runs already"))?;
    Ok(vec![whole, kind, number])
}
