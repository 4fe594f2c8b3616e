//! System-wide settings of the kernel: changed under a lock, with a journal, and restored.
//!
//! A setting is a file of `/sys` or `/proc/sys`. [`Settings::set`] writes its old value into a
//! journal that is on disk before the change, so that the value can be restored whatever ends the
//! process: by [`Settings::restore`] or when the [`Settings`] are dropped (also by a panic),
//! otherwise by the next call of [`recover`]. A lock file lets only one process at a time change
//! settings, and none while others measure under them ([`Settings::share`]); the kernel releases it
//! when its holder dies. Lock and journal are in `/run/superpage`, or in the directory that the
//! environment variable `SUPERPAGE_RUN_DIR` names.
//!
//! The lock does not protect against others who write the same files without it. A setting whose
//! value differs from the one set here is theirs: it is left alone, and that is reported. While a
//! number is being written the kernel may have taken a part of it (`kill -9` while it makes huge
//! pages), so until the call returns all between the old value and the new one is ours.

mod journal;

use crate::Error;
use crate::lock::{Lock, Tried, make_folder, system_folder};
use crate::tree::is_ancestor;
use journal::{Change, Journal, Owner};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use superpage_pages::PageSize;

/// The system-wide setting of transparent huge pages: `always`, `madvise` or `never`.
pub const THP_ENABLED: &str = "sys/kernel/mm/transparent_hugepage/enabled";
/// The setting of huge pages for shared memory that no mounted file system rules: `never`,
/// `advise`, `within_size`, ... It also decides where such memory is mapped: with `never`, at
/// addresses where no huge page fits.
pub const SHMEM_ENABLED: &str = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
/// The number of huge pages of the default size in the static pool.
pub const HUGETLB_POOL: &str = "proc/sys/vm/nr_hugepages";
/// The number of huge pages of the default size that may be allocated beyond the pool.
pub const HUGETLB_OVERCOMMIT: &str = "proc/sys/vm/nr_overcommit_hugepages";

/// The folders of settings, below the root of the system. A journal that names another file is
/// refused.
const FOLDERS: [&str; 2] = ["sys/kernel/mm", "proc/sys/vm"];

/// The locations of a system's settings, and of their lock and journal.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
    run: PathBuf,
}

impl System {
    /// This system: `/sys` and `/proc`, and the run directory that all users of superpage on it
    /// share.
    pub fn live() -> System {
        System::at("/", system_folder())
    }

    /// A system whose `sys` and `proc` are in `root`, with its lock and journal in `run`: for
    /// tests.
    pub fn at(root: impl Into<PathBuf>, run: impl Into<PathBuf>) -> System {
        System { root: root.into(), run: run.into() }
    }

    /// The file of a setting such as [`THP_ENABLED`], which is a path from the root of the system.
    pub fn path(&self, setting: &str) -> PathBuf {
        self.root.join(setting)
    }

    /// The value of a setting, without its alternatives: `madvise` for `always [madvise] never`.
    ///
    /// # Errors
    /// [`Error::Unable`] if this system has no such setting, [`Error::File`] if it cannot be read.
    pub fn get(&self, setting: &str) -> Result<String, Error> {
        let path = self.path(setting);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(value(&text).to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Unable(format!(
                "this system has no {}: its kernel was built without it, or /sys or /proc is not mounted here",
                path.display()
            ))),
            Err(error) => Err(Error::file("read", path)(error)),
        }
    }

    /// The settings that decide where this system has huge pages, with their values; those that it
    /// has.
    pub fn huge_page_settings(&self) -> BTreeMap<String, String> {
        const THP: &str = "sys/kernel/mm/transparent_hugepage";
        let sizes = sizes(&self.path(THP)).into_keys();
        let of_sizes = sizes.flat_map(|size| {
            ["enabled", "shmem_enabled"].map(|name| format!("{THP}/hugepages-{}kB/{name}", size.bytes() / 1024))
        });
        let own =
            ["enabled", "shmem_enabled", "defrag", "khugepaged/max_ptes_none"].map(|name| format!("{THP}/{name}"));
        let pool = [HUGETLB_POOL, HUGETLB_OVERCOMMIT].map(String::from);
        let all = own.into_iter().chain(of_sizes).chain(pool);
        all.filter_map(|setting| Some((setting.clone(), self.get(&setting).ok()?))).collect()
    }

    /// The process that has changed settings of this system and not yet put them back, if it lives
    /// and is not this one. Anybody may ask.
    pub fn changed_by(&self) -> Option<u32> {
        self.journal_of_another().map(|journal| journal.pid())
    }

    /// The value that a setting had before another process that lives changed it: that process puts
    /// it back. `None` if no other has changed it. Anybody may ask.
    pub fn put_back_by_another(&self, setting: &str) -> Option<String> {
        let (journal, path) = (self.journal_of_another()?, self.path(setting));
        journal.changes.into_iter().find(|change| change.path == path).map(|change| change.before)
    }

    /// Another process that lives and has changed settings, and what it puts back, by file. `None`
    /// if there is none. Anybody may ask.
    pub(crate) fn put_back_by_others(&self) -> Option<(u32, BTreeMap<PathBuf, String>)> {
        let journal = self.journal_of_another()?;
        // The oldest change of a setting has what it was.
        let before = journal.changes.iter().rev().map(|change| (change.path.clone(), change.before.clone()));
        Some((journal.pid(), before.collect()))
    }

    /// The journal, if it is that of another process that lives.
    fn journal_of_another(&self) -> Option<Journal> {
        let journal = Journal::load(&self.journal_file(), &self.root).ok()??;
        let lives = || journal.owner(&self.root, &self.lock_file()) == Owner::Alive;
        (journal.pid() != std::process::id() && lives()).then_some(journal)
    }

    /// The run directory, created if it does not exist. Only its owner may write to it, because the
    /// journal's contents are written to the kernel's files.
    ///
    /// # Errors
    /// [`Error::Unable`] if it cannot be created, belongs to another user, or others may write to
    /// it.
    pub fn make_run_directory(&self) -> Result<&Path, Error> {
        make_folder(&self.run)?;
        Ok(&self.run)
    }

    fn lock_file(&self) -> PathBuf {
        self.run.join("settings.lock")
    }

    fn journal_file(&self) -> PathBuf {
        self.run.join("settings.json")
    }

    /// Opens the file to lock.
    fn open_lock(&self) -> Result<Lock, Error> {
        self.make_run_directory()?;
        Lock::open(&self.lock_file())
    }
}

/// The value in the text of a setting: the word in brackets, if there is one.
fn value(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(word, _)| word)
}

/// Writes a setting, without a lock.
fn write(path: &Path, value: &str) -> Result<(), Error> {
    let written =
        OpenOptions::new().write(true).truncate(true).open(path).and_then(|mut f| f.write_all(value.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::Unable(format!(
            "cannot set {} to {value}: {error}; run it as root, outside a container",
            path.display()
        )),
        _ => Error::Unable(format!("the kernel does not take {value} for {}: {error}", path.display())),
    })
}

/// The right to change settings, and all changes that are not yet restored.
#[derive(Debug)]
pub struct Settings {
    system: System,
    wait: bool,
    lock: Option<Lock>,
    /// The lock shared with others who change nothing, while it is not held alone.
    shared: Option<Lock>,
    /// The changes, oldest first; empty if the lock is not held alone.
    changes: Vec<Change>,
    /// The last failure to restore that was reported on standard error: it is not repeated.
    reported: Option<String>,
}

/// A process and the beginning of its command line.
fn named(pid: i32) -> String {
    const MOST: usize = 60;
    let line =
        crate::proc::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().trim_end_matches('\0').replace('\0', " ");
    let line = superpage_output::foreign(&line).into_owned();
    match line.char_indices().nth(MOST) {
        _ if line.is_empty() => format!("process {pid}"),
        Some((end, _)) => format!("process {pid} ({}…)", &line[..end]),
        None => format!("process {pid} ({line})"),
    }
}

impl Settings {
    /// Settings that are not locked yet: the first change locks them. `wait` says whether it then
    /// waits while another process holds the lock, after a line on standard error, or fails.
    pub fn new(system: System, wait: bool) -> Settings {
        Settings { system, wait, lock: None, shared: None, changes: Vec::new(), reported: None }
    }

    /// The settings of this system, locked.
    ///
    /// # Errors
    /// Those of [`lock`](Settings::lock).
    pub fn take(wait: bool) -> Result<Settings, Error> {
        let mut settings = Settings::new(System::live(), wait);
        settings.lock()?;
        Ok(settings)
    }

    /// The system that these settings belong to.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Takes the lock, if it is not held already, and restores what a killed holder had changed. A
    /// signal whose handler does not end the process does not interrupt the wait.
    ///
    /// # Errors
    /// [`Error::Unable`] without the right to take it, if another process holds it and this one
    /// does not wait, or if the holder waits for this process: an ancestor.
    pub fn lock(&mut self) -> Result<(), Error> {
        if self.lock.is_some() {
            return Ok(());
        }
        let mut reported = false;
        // A lock that is shared is given up first: two who share it would wait for each other.
        self.shared = None;
        let mut lock = self.system.open_lock()?;
        loop {
            match if reported { lock.wait()? } else { lock.try_lock()? } {
                Tried::Held => break,
                Tried::Replaced => lock = self.system.open_lock()?,
                held => {
                    self.wait_for(held)?;
                    reported = true;
                }
            }
        }
        superpage_output::remove_leftovers(&self.system.run, false);
        self.undo_left()?;
        self.lock = Some(lock);
        Ok(())
    }

    /// Shares the lock with others who measure under the settings as they are: nobody who takes it
    /// changes them meanwhile. Waits while another process holds it, and restores what a killed
    /// holder had changed. Nothing is done if the lock is held already. The first change takes the
    /// lock alone.
    ///
    /// # Errors
    /// As for [`lock`](Settings::lock).
    pub fn share(&mut self) -> Result<(), Error> {
        if self.lock.is_some() || self.shared.is_some() {
            return Ok(());
        }
        loop {
            let lock = self.system.open_lock()?;
            match lock.try_lock()? {
                Tried::Held => self.undo_left()?,
                Tried::SharedBy(_) => {}
                Tried::Replaced => continue,
                held => self.wait_for(held)?,
            }
            if lock.share()? == Tried::Replaced {
                continue;
            }
            // Whoever held it meanwhile may have been killed: then the lock is needed alone once
            // more.
            if !self.system.journal_file().exists() {
                self.shared = Some(lock);
                return Ok(());
            }
            drop(lock);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Whether this process holds the lock, alone or shared.
    pub fn is_locked(&self) -> bool {
        self.lock.is_some() || self.shared.is_some()
    }

    /// Says that this process is about to wait for the lock, which others hold.
    fn wait_for(&self, held: Tried) -> Result<(), Error> {
        let (Tried::HeldBy(pid) | Tried::SharedBy(pid)) = held else { return Ok(()) };
        let holder = pid.map_or("another process".to_string(), named);
        if pid.is_some_and(is_ancestor) {
            return Err(Error::Unable(format!(
                "{holder}, which has started this one, has the settings of this kernel until it ends"
            )));
        }
        let measures = matches!(held, Tried::SharedBy(_));
        if !self.wait {
            return Err(Error::Unable(if measures {
                format!("{holder} measures under the settings of this kernel as they are; wait until it ends")
            } else {
                format!("{holder} has changed settings of this kernel and not yet put them back; wait until it ends")
            }));
        }
        eprintln!(
            "superpage: waiting until {holder} {}",
            if measures {
                "has ended, which measures under the settings of this kernel as they are"
            } else {
                "has put back the settings of this kernel"
            }
        );
        Ok(())
    }

    /// With the lock held: restores what a killed holder had changed.
    fn undo_left(&self) -> Result<(), Error> {
        if let Some(recovered) = undo_journal(&self.system).map_err(|_| Error::NotPutBack)? {
            eprintln!("superpage: {recovered}");
        }
        Ok(())
    }

    /// Sets a setting, and checks that the kernel has accepted it. If it has that value already
    /// nothing is done, which needs no rights. Returns the old value.
    ///
    /// # Errors
    /// Those of [`lock`](Settings::lock) and [`System::get`]; [`Error::Unable`] if the kernel does
    /// not accept the value.
    pub fn set(&mut self, setting: &str, wanted: &str) -> Result<String, Error> {
        let (before, now) = self.ask(setting, wanted)?;
        if now != wanted {
            return Err(Error::Unable(format!(
                "the kernel took {now} for {}, not {wanted}",
                self.system.path(setting).display()
            )));
        }
        Ok(before)
    }

    /// Like [`set`](Settings::set), for a setting of which the kernel grants as much as it can,
    /// such as a number of pages. Returns the old value, and the one that it has now.
    ///
    /// # Errors
    /// As for [`set`](Settings::set), but any value that can be read back is accepted.
    pub fn ask(&mut self, setting: &str, wanted: &str) -> Result<(String, String), Error> {
        let path = self.system.path(setting);
        if let Err(error) = self.lock() {
            // Without the right to change anything: sufficient if nothing has to be changed.
            return match self.system.get(setting)? {
                now if now == wanted => Ok((now.clone(), now)),
                now => Err(Error::Unable(format!(
                    "{} is {now} and would have to be {wanted} for the whole system, but {error}",
                    path.display()
                ))),
            };
        }
        let before = self.system.get(setting)?;
        if before == wanted {
            return Ok((before.clone(), before));
        }
        let mark = self.mark();
        let (of, set) = (path.clone(), wanted.to_string());
        self.changes.push(Change { path: of, before: before.clone(), set, writing: true });
        if let Err(error) = self.journal() {
            self.changes.pop();
            return Err(error);
        }
        if let Err(error) = write(&path, wanted) {
            self.restore_to(mark)?;
            return Err(error);
        }
        let now = self.system.get(setting)?;
        let change = &mut self.changes[mark];
        (change.set, change.writing) = (now.clone(), false);
        self.journal()?;
        Ok((before, now))
    }

    /// The number of changes that are not yet restored, for [`restore_to`](Settings::restore_to).
    pub fn mark(&self) -> usize {
        self.changes.len()
    }

    /// Restores all changes, the last first, except settings that somebody else has changed since:
    /// those are left, with a line on standard error. The lock stays held.
    ///
    /// # Errors
    /// [`Error::Unable`] for the first that could not be restored; the others are, and the journal
    /// keeps this one.
    pub fn restore(&mut self) -> Result<(), Error> {
        self.restore_to(0)
    }

    /// Restores all changes made since [`mark`](Settings::mark) returned `mark`, the last first.
    ///
    /// # Errors
    /// As for [`restore`](Settings::restore).
    pub fn restore_to(&mut self, mark: usize) -> Result<(), Error> {
        if mark >= self.changes.len() {
            return Ok(());
        }
        let changes = self.changes.split_off(mark);
        let undone = undo(changes);
        for left in &undone.left {
            eprintln!("superpage: {left}");
        }
        self.changes.extend(undone.kept);
        let journal = self.journal();
        undone.failed.map_or(journal, Err)
    }

    /// As [`restore_to`](Settings::restore_to), with a line on standard error for an error, once:
    /// where the caller goes on in any case, since the journal holds what is left to restore.
    pub fn restore_or_tell(&mut self, mark: usize) {
        let Err(error) = self.restore_to(mark) else { return };
        let reported = Some(format!("{error}; the next call of any live verb of superpage tries again"));
        if self.reported != reported {
            reported.iter().for_each(|line| eprintln!("superpage: {line}"));
            self.reported = reported;
        }
    }

    /// Gives up a lock that was not waited for, if no change is left to restore. Those who wait for
    /// it, as to measure, need it until their end.
    pub fn release(&mut self) {
        if self.changes.is_empty() && !self.wait {
            (self.lock, self.shared) = (None, None);
        }
    }

    /// Checks that changes are under the lock, and that the journal on disk matches them. Reads one
    /// file.
    ///
    /// # Errors
    /// A sentence that says what is inconsistent.
    pub fn validate(&self) -> Result<(), String> {
        if self.lock.is_none() {
            return if self.changes.is_empty() { Ok(()) } else { Err("settings were changed without the lock".into()) };
        }
        let journal =
            Journal::load(&self.system.journal_file(), &self.system.root).map_err(|error| error.to_string())?;
        let written = journal.map(|journal| journal.changes).unwrap_or_default();
        if written == self.changes {
            Ok(())
        } else {
            Err(format!("the journal says {written:?}, and changed are {:?}", self.changes))
        }
    }

    /// Writes the changes to the journal on disk.
    fn journal(&self) -> Result<(), Error> {
        Journal::store(&self.system.journal_file(), &self.system.root, &self.changes)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.restore_or_tell(0);
    }
}

/// A setting that somebody else has changed since superpage did, and that is left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// Its file.
    pub path: PathBuf,
    /// The value that superpage had set.
    pub set: String,
    /// The value before that.
    pub before: String,
    /// The value now.
    pub now: String,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Left { path, set, before, now } = self;
        write!(
            f,
            "{} was changed to {now} by somebody else while superpage had set it to {set}: it is left at {now}, and not put \
             back to {before}",
            path.display()
        )
    }
}

/// The result of restoring changes.
#[derive(Debug, Default)]
struct Undone {
    /// Those that could not be restored, in their order.
    kept: Vec<Change>,
    /// The error of the first of them.
    failed: Option<Error>,
    left: Vec<Left>,
}

/// Restores changes, the last first, each only if the setting still has the value that it was set
/// to, or was being set.
fn undo(changes: Vec<Change>) -> Undone {
    let mut undone = Undone::default();
    for change in changes.into_iter().rev() {
        let now = fs::read_to_string(&change.path).map(|text| value(&text).to_string());
        let done = match now.map_err(Error::file("read", &change.path)) {
            // Already restored, or not yet changed when its process was killed.
            Ok(now) if now == change.before => Ok(()),
            Ok(now) if !change.made(&now) => {
                let Change { path, before, set, .. } = change.clone();
                // A setting that was changed twice is reported once.
                match undone.left.iter_mut().find(|left| left.path == path) {
                    Some(left) => left.before = before,
                    None => undone.left.push(Left { path, set, before, now }),
                }
                Ok(())
            }
            Ok(_) => write(&change.path, &change.before),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            undone.failed.get_or_insert(error);
            undone.kept.push(change);
        }
    }
    undone.kept.reverse();
    undone
}

/// What [`recover`] found: settings that a killed process had changed and not restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The process that had changed them.
    pub pid: u32,
    /// The files of the settings with their old values, in the order of the changes.
    pub settings: Vec<(PathBuf, String)>,
    /// Whether they were restored; not if this user lacks the right.
    pub restored: bool,
    /// Those that somebody else has changed since, which are left.
    pub left: Vec<Left>,
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = if self.restored {
            ("put back what", "")
        } else {
            ("cannot put back what", ", run superpage as root once")
        };
        let is_left = |path: &Path| self.left.iter().any(|left| left.path == path);
        let mut parted = "";
        for (path, before) in self.settings.iter().filter(|(path, _)| !is_left(path)) {
            match parted {
                "" => write!(f, "{first} process {} had changed before it ended: ", self.pid)?,
                parted => f.write_str(parted)?,
            }
            write!(f, "{} = {before}", path.display())?;
            parted = ", ";
        }
        f.write_str(if parted.is_empty() { "" } else { last })?;
        for left in &self.left {
            write!(f, "{}{left}", if parted.is_empty() { "" } else { "; " })?;
            parted = "; ";
        }
        Ok(())
    }
}

/// The folders `hugepages-SIZEkB` in a folder, by size.
pub fn sizes(folder: &Path) -> BTreeMap<PageSize, std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sized = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        Some((PageSize::from_bytes(kilobytes * 1024)?, entry.path()))
    });
    sized.collect()
}

/// Restores what a process had changed that was killed before it could do so itself. Every verb
/// that works on the live system begins with this; it costs one test for a file if there is nothing
/// to do. While the process that made the changes lives, nothing is done.
///
/// # Errors
/// [`Error::Unable`] if the kernel does not accept a value, or the journal cannot be parsed.
pub fn recover() -> Result<Option<Recovered>, Error> {
    recover_at(&System::live())
}

/// Like [`recover`], for any system.
///
/// # Errors
/// As for [`recover`].
pub fn recover_at(system: &System) -> Result<Option<Recovered>, Error> {
    if !system.journal_file().exists() {
        return Ok(None);
    }
    let Ok(lock) = system.open_lock() else {
        let Some(journal) = Journal::load(&system.journal_file(), &system.root)? else { return Ok(None) };
        let left = journal.owner(&system.root, &system.lock_file()) == Owner::Dead;
        return Ok(left.then(|| journal.recovered(false)));
    };
    let begun = Instant::now();
    loop {
        match lock.try_lock()? {
            Tried::Held => return undo_journal(system),
            // A child that its holder had begun to start when it was killed has the lock until it
            // executes the command.
            Tried::HeldBy(None) if begun.elapsed() < INHERITED && is_inherited(system)? => std::thread::sleep(AGAIN),
            // Another process holds it, or has just recreated it.
            Tried::HeldBy(_) | Tried::SharedBy(_) | Tried::Replaced => return Ok(None),
        }
    }
}

/// So long a lock is waited for whose holder was killed.
const INHERITED: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(5);

/// Whether the lock is held in the name of a process that has ended, the one that wrote the
/// journal.
fn is_inherited(system: &System) -> Result<bool, Error> {
    let journal = Journal::load(&system.journal_file(), &system.root)?;
    Ok(journal.is_some_and(|journal| journal.has_ended_with_lock(&system.root, &system.lock_file())))
}

/// With the lock held: restores what a journal lists, and removes it.
fn undo_journal(system: &System) -> Result<Option<Recovered>, Error> {
    let file = system.journal_file();
    let Some(journal) = Journal::load(&file, &system.root)? else { return Ok(None) };
    let mut recovered = journal.recovered(true);
    let stale = journal.owner(&system.root, &system.lock_file()) == Owner::EarlierBoot;
    let undone = if stale { Undone::default() } else { undo(journal.changes) };
    if undone.kept.is_empty() {
        Journal::store(&file, &system.root, &[])?;
    }
    recovered.left = undone.left;
    match undone.failed {
        Some(error) => Err(error),
        None => Ok((!stale).then_some(recovered)),
    }
}
/// Parses arbitrary text as a journal, and restores nothing, for the fuzzer.
#[cfg(fuzzing)]
pub(crate) fn read_journal(text: &str) {
    journal::read_anything(text);
}
