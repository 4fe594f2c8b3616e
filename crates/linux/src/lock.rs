//! Locks: files of which one process at a time holds an exclusive `flock`, or several hold a shared
//! one. The kernel releases it with its holder.
//!
//! Other users cannot block them. The file can be opened by its owner alone (mode 0600, in a folder
//! that only the owner can write to), because a file that can be opened for reading can be locked.
//! A file that an earlier version made readable for all may be held by a stranger with a shared
//! lock, which superpage takes of private files only: it is replaced, and so is any that is not
//! ours.

use crate::Error;
use crate::proc::State;
use crate::tree::is_ancestor;
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folder of superpage's own files for the whole system: `/run/superpage`, or what
/// `SUPERPAGE_RUN_DIR` names.
pub fn system_folder() -> PathBuf {
    let run = std::env::var_os("SUPERPAGE_RUN_DIR").filter(|run| !run.is_empty());
    run.map_or_else(|| PathBuf::from("/run/superpage"), PathBuf::from)
}

/// The folder for files that concern one user's processes only: for root that of the whole system,
/// for another user the runtime folder of the session.
///
/// # Errors
/// [`Error::Unable`] if the user has none.
pub fn own_folder() -> Result<PathBuf, Error> {
    let named = std::env::var_os("SUPERPAGE_RUN_DIR").is_some_and(|run| !run.is_empty());
    if named || rustix::process::geteuid().is_root() {
        return Ok(system_folder());
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    runtime.map(|folder| folder.join("superpage")).ok_or_else(|| {
        Error::Unable(
            "XDG_RUNTIME_DIR names no folder for this user's lock: set it, or SUPERPAGE_RUN_DIR, to a folder of one's own"
                .into(),
        )
    })
}

/// Creates the folder if it does not exist, and checks that it is a folder, belongs to this user,
/// is writable by its owner only, and cannot be replaced by anybody else.
///
/// # Errors
/// [`Error::Unable`] if it cannot be created, or fails a check.
pub fn make_folder(folder: &Path) -> Result<(), Error> {
    let shown = folder.display();
    if !folder.is_absolute() {
        return Err(Error::Unable(format!(
            "SUPERPAGE_RUN_DIR is {shown}, which is another folder in each working directory, so its locks would not exclude \
             each other: name it from the root (/...)"
        )));
    }
    trusted_way(folder)?;
    match DirBuilder::new().mode(0o755).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::Unable(format!("this user may not make {shown}; superpage needs root for that")));
        }
        Err(error) => {
            return Err(Error::Unable(format!(
                "cannot create {shown}: {error}; set SUPERPAGE_RUN_DIR to a directory for superpage's locks"
            )));
        }
    }
    // Not through a link: its owner could redirect it later.
    let metadata = fs::symlink_metadata(folder).map_err(Error::file("read", folder))?;
    let user = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() {
        return Err(Error::Unable(format!("{shown} is no directory: set SUPERPAGE_RUN_DIR to one")));
    }
    if metadata.uid() != user {
        return Err(Error::Unable(if user == 0 {
            format!("{shown} belongs to another user: set SUPERPAGE_RUN_DIR to a directory of root's")
        } else {
            format!("only root may change that ({shown} belongs to another user)")
        }));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(Error::Unable(format!(
            "others may write to {shown}: set SUPERPAGE_RUN_DIR to a directory that its owner alone may write to"
        )));
    }
    Ok(())
}

/// Checks each folder on the way to one: it belongs to root or to this user, and others may write
/// to it only if they cannot rename what is not theirs, as in `/tmp`. Checks both the given names
/// and the targets of links.
///
/// # Errors
/// [`Error::Unable`] for the first that fails.
fn trusted_way(folder: &Path) -> Result<(), Error> {
    const STICKY: u32 = 0o1000;
    let above = folder.parent().unwrap_or(folder);
    let real = fs::canonicalize(above).unwrap_or_else(|_| above.to_path_buf());
    for way in above.ancestors().chain(real.ancestors()) {
        // A missing folder is reported when it is created.
        let Ok(there) = fs::symlink_metadata(way) else { continue };
        let trusted = there.uid() == 0 || there.uid() == rustix::process::geteuid().as_raw();
        // The group of root is root's.
        let others = if there.gid() == 0 { 0o002 } else { 0o022 };
        let open = there.is_dir() && there.mode() & others != 0 && there.mode() & STICKY == 0;
        if !trusted || open {
            return Err(Error::Unable(format!(
                "{} cannot hold locks: {} {}, so others could replace it; set SUPERPAGE_RUN_DIR to another",
                folder.display(),
                way.display(),
                if trusted {
                    let whose = if there.mode() & 0o002 != 0 { "all" } else { "its group" };
                    format!("may be written to by {whose}")
                } else {
                    format!("belongs to user {}", there.uid())
                },
            )));
        }
    }
    Ok(())
}

/// The file of a lock, open and not yet locked. Close-on-exec.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

/// The result of an attempt to lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried {
    /// This process holds the lock.
    Held,
    /// Another process holds it: the one with this number, if the kernel tells.
    HeldBy(Option<i32>),
    /// Other processes share it, among them the one with this number, if the kernel tells.
    SharedBy(Option<i32>),
    /// The file has been replaced under its name: it must be reopened.
    Replaced,
}

impl Lock {
    /// Opens the file in a folder that [`make_folder`] has checked, and creates it if it does not
    /// exist.
    ///
    /// # Errors
    /// [`Error::Unable`] without the right to, [`Error::File`] if a system call fails.
    pub fn open(path: &Path) -> Result<Lock, Error> {
        // Once for what was there, once for its replacement; more often only while other processes
        // come and go.
        for _ in 0..100 {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => File::from(file),
                Err(Errno::ACCESS | Errno::PERM) => {
                    let sentence = format!("only root may change that (this user may not open {})", path.display());
                    return Err(Error::Unable(sentence));
                }
                // A link, or a pipe or device that somebody has put there.
                Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
                    replace(path)?;
                    continue;
                }
                Err(error) => return Err(Error::file("open", path)(error)),
            };
            let metadata = file.metadata().map_err(Error::file("read", path))?;
            let lock = Lock { file, path: path.to_path_buf() };
            if is_private(&metadata) {
                return Ok(lock);
            }
            // Others could open it, and may have: an exclusive lock is one of ours, a shared one is
            // not.
            if is_ours(&metadata) && lock.holders().iter().any(|holder| holder.exclusive) {
                fchmod(&lock.file, Mode::RUSR | Mode::WUSR).map_err(Error::file("change", path))?;
                return Ok(lock);
            }
            replace(path)?;
        }
        Err(Error::Unable(format!("{} is replaced again and again by another process", path.display())))
    }

    /// Takes the lock, without waiting.
    ///
    /// # Errors
    /// [`Error::File`] if the call fails for another reason than that the lock is held.
    pub fn try_lock(&self) -> Result<Tried, Error> {
        loop {
            return match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(self.locked()),
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => {
                    let holders = self.holders();
                    let alive = || holders.iter().map(|holder| holder.pid).filter(|pid| State::of(*pid).runs());
                    // Of several, one for which nobody may wait.
                    let alive = alive().find(|pid| is_ancestor(*pid)).or_else(|| alive().next());
                    let shared = !holders.is_empty() && !holders.iter().any(|holder| holder.exclusive);
                    Ok(if shared { Tried::SharedBy(alive) } else { Tried::HeldBy(alive) })
                }
                Err(error) => Err(Error::file("lock", &self.path)(error)),
            };
        }
    }

    /// Waits for the lock. A signal whose handler does not end the process does not interrupt the
    /// wait.
    ///
    /// # Errors
    /// As for [`try_lock`](Lock::try_lock).
    pub fn wait(&self) -> Result<Tried, Error> {
        self.block(FlockOperation::LockExclusive)?;
        Ok(self.locked())
    }

    /// Takes the lock together with others who share it, or shares the lock that is held. Waits
    /// while another process holds it exclusively; a signal does not interrupt that, as for
    /// [`wait`](Lock::wait).
    ///
    /// # Errors
    /// As for [`try_lock`](Lock::try_lock).
    pub fn share(&self) -> Result<Tried, Error> {
        self.block(FlockOperation::LockShared)?;
        Ok(if self.is_named() { Tried::Held } else { Tried::Replaced })
    }

    fn block(&self, operation: FlockOperation) -> Result<(), Error> {
        rustix::io::retry_on_intr(|| flock(&self.file, operation)).map_err(Error::file("lock", &self.path))
    }

    /// Whether the file still has its name.
    fn is_named(&self) -> bool {
        match (self.file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(file), Ok(named)) => (file.dev(), file.ino()) == (named.dev(), named.ino()),
            _ => false,
        }
    }

    /// After locking: writes the holder's name for people to read, unless the file has lost its
    /// name meanwhile.
    fn locked(&self) -> Tried {
        if !self.is_named() {
            return Tried::Replaced;
        }
        let written = self.file.set_len(0);
        written.and_then(|()| (&self.file).write_all(format!("{}\n", std::process::id()).as_bytes())).ok();
        Tried::Held
    }

    /// The holders of locks on the file, as [`holders_of`] returns them.
    fn holders(&self) -> Vec<Holder> {
        self.file.metadata().map(|file| holders_of(&file)).unwrap_or_default()
    }
}

/// A process that took a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) exclusive: bool,
    pub(crate) pid: i32,
}

/// The holders of locks on a file, as reported by the kernel; those of other pid namespaces are not
/// reported. Anybody may ask, also where `/proc` hides the processes of others.
pub(crate) fn holders_of(file: &Metadata) -> Vec<Holder> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    holders(&locks, file.dev(), file.ino())
}

/// The holders of `flock`s on a file in the text of `/proc/locks`. A line: `1: FLOCK ADVISORY WRITE
/// 712 fe:00:1234 0 EOF`; a waiting lock has an arrow after the number, which procfs does not
/// report.
fn holders(locks: &str, device: u64, inode: u64) -> Vec<Holder> {
    let id = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, kind, pid, file, ..] if file == id => {
                Some(Holder { exclusive: kind == "WRITE", pid: pid.parse().ok()? })
            }
            _ => None,
        }
    };
    locks.lines().filter_map(holder).collect()
}

fn is_ours(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.uid() == rustix::process::geteuid().as_raw()
}

/// Whether it is a file that only its owner can open.
fn is_private(metadata: &Metadata) -> bool {
    is_ours(metadata) && metadata.mode() & 0o077 == 0
}

/// Removes what is in the place of a lock's file, unless another process has put a good one there
/// meanwhile. Only one process does this at a time, guarded by another file that is private from
/// the start.
fn replace(path: &Path) -> Result<(), Error> {
    let guard = path.with_extension("guard");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let held = rustix::fs::open(&guard, flags, Mode::RUSR | Mode::WUSR).map_err(Error::file("open", &guard))?;
    rustix::io::retry_on_intr(|| flock(&held, FlockOperation::LockExclusive)).map_err(Error::file("lock", &guard))?;
    // A file that is already gone may be a good one in the next moment. An existing one stays while
    // the guard is held.
    if !fs::symlink_metadata(path).is_ok_and(|there| !is_private(&there)) {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("replace", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// As a stranger would who may read the file: opened for reading, a shared lock.
    fn share(path: &Path) -> File {
        let file = File::open(path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
        file
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_lock_is_its_owners_alone_whatever_the_mask() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let lock = Lock::open(&path).unwrap();
        assert_eq!((lock.try_lock().unwrap(), mode(&path)), (Tried::Held, 0o600));
        let other = Lock::open(&path).unwrap();
        let own = Some(std::process::id() as i32);
        assert_eq!(other.try_lock().unwrap(), Tried::HeldBy(own));
        // Readers share it; whoever wants it alone waits for them.
        assert_eq!(lock.share().unwrap(), Tried::Held);
        assert_eq!((other.share().unwrap(), lock.try_lock().unwrap()), (Tried::Held, Tried::SharedBy(own)));
        drop(lock);
        assert_eq!(other.try_lock().unwrap(), Tried::Held);
    }

    #[test]
    fn a_file_that_others_can_open_does_not_hold_us_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        fs::write(&path, "4000000\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let _stranger = share(&path);
        let lock = Lock::open(&path).unwrap();
        assert_eq!((lock.try_lock().unwrap(), mode(&path)), (Tried::Held, 0o600));
        // One of ours that holds such a file is not robbed of it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Lock::open(&path).unwrap().try_lock().unwrap(), Tried::HeldBy(Some(_))));
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn one_alone_holds_it_of_those_who_replace_a_file_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..200 {
            // A new one each time: a child of another test has the last one open, and locked, until
            // its exec.
            let path = folder.path().join(format!("{round}.lock"));
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            let _stranger = share(&path);
            let ready = std::sync::Barrier::new(4);
            let take = || {
                ready.wait();
                loop {
                    let lock = Lock::open(&path).unwrap();
                    match lock.try_lock().unwrap() {
                        Tried::Held => return Some(lock),
                        Tried::HeldBy(_) | Tried::SharedBy(_) => return None,
                        Tried::Replaced => {}
                    }
                }
            };
            let held: Vec<Option<Lock>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(held.iter().flatten().count(), 1);
        }
    }

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("a.lock"), folder.path().join("victim"));
        fs::write(&victim, "as it was").unwrap();
        symlink(&victim, &path).unwrap();
        assert_eq!(Lock::open(&path).unwrap().try_lock().unwrap(), Tried::Held);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        let (link, real) = (folder.path().join("link"), folder.path().join("real"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        assert!(make_folder(&link).unwrap_err().to_string().contains("is no directory"));
    }

    #[test]
    fn a_folder_that_others_could_replace_is_refused() {
        let refused = |path: &Path| make_folder(path).unwrap_err().to_string();
        assert!(refused(Path::new("locks")).contains("name it from the root"));
        let folder = tempfile::tempdir().unwrap();
        let (open, way) = (folder.path().join("open"), folder.path().join("way"));
        fs::create_dir(&open).unwrap();
        fs::create_dir(open.join("below")).unwrap();
        symlink(&open, &way).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        for path in [open.join("locks"), open.join("below/locks"), way.join("locks")] {
            assert!(refused(&path).contains("may be written to by all"), "{}", path.display());
        }
        // A group is others too, except root's.
        fs::set_permissions(&open, fs::Permissions::from_mode(0o775)).unwrap();
        if rustix::process::geteuid().is_root() {
            make_folder(&open.join("of root")).unwrap();
            std::os::unix::fs::chown(&open, None, Some(65534)).unwrap();
        }
        for path in [open.join("locks"), open.join("below/locks"), way.join("locks")] {
            assert!(refused(&path).contains("may be written to by its group"), "{}", path.display());
        }
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        make_folder(&open.join("locks")).unwrap();
        if !rustix::process::geteuid().is_root() {
            superpage_testing::skip!("root", "only root can act as another user");
            return;
        }
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&open, Some(65534), Some(65534)).unwrap();
        for path in [open.join("locks"), open.join("below/locks"), way.join("locks")] {
            assert!(refused(&path).contains("belongs to user 65534"), "{}", path.display());
        }
    }

    #[test]
    fn only_those_who_hold_it_are_named() {
        let locks = "1: FLOCK  ADVISORY  WRITE 712 fe:00:77 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 713 fe:00:77 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 714 fe:00:77 0 EOF\n3: FLOCK  ADVISORY  READ  715 fe:00:78 0 EOF\n";
        let device = rustix::fs::makedev(0xfe, 0);
        assert_eq!(holders(locks, device, 77), [Holder { exclusive: true, pid: 712 }]);
        assert_eq!(holders(locks, device, 78), [Holder { exclusive: false, pid: 715 }]);
    }
}
