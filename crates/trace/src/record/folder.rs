//! The private folder of a recording: with its socket and the buffers of the threads that it
//! records, or with the recording itself where it is needed for a while only.
//!
//! Only this user may enter it, whatever the umask is, and its name cannot be guessed. While the
//! recording lives it holds a lock on the folder; what a killed recording left is removed by the
//! next one, which finds the lock free.

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, unlinkat};
use rustix::io::Errno;
use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// What the names of all such folders begin with.
const PREFIX: &str = "superpage-record-";
/// How often a folder is made again if another recording took it for that of a dead one before it
/// was locked.
const TRIES: usize = 8;

/// A folder of files for this user alone; removed when this is dropped, or by the next one after a
/// kill.
#[derive(Debug)]
pub struct Folder {
    folder: tempfile::TempDir,
    _lock: OwnedFd,
}

impl Folder {
    /// Makes one in `base`, and removes those there of this user whose processes are dead.
    ///
    /// # Errors
    /// It cannot be made or locked.
    pub fn create(base: &Path) -> io::Result<Folder> {
        clear(base);
        for _ in 0..TRIES {
            let folder =
                tempfile::Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(base)?;
            // The umask may have removed rights of the owner, too.
            std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700))?;
            let lock = open(folder.path())?;
            flock(&lock, FlockOperation::LockExclusive)?;
            if folder
                .path()
                .symlink_metadata()
                .is_ok_and(|there| fstat(&lock).is_ok_and(|own| own.st_ino == there.ino()))
            {
                return Ok(Folder { folder, _lock: lock });
            }
        }
        Err(io::Error::other("another program removes folders as soon as they are made"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Opens a folder, but not a link to one.
fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Removes what dead recordings of this user left in `base`. What cannot be removed stays; it does
/// no harm.
fn clear(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            let _ = clear_one(&entry.path());
        }
    }
}

fn clear_one(path: &Path) -> rustix::io::Result<()> {
    let folder = open(path)?;
    let own = fstat(&folder)?;
    if own.st_uid != rustix::process::geteuid().as_raw() || own.st_mode & 0o077 != 0 {
        return Err(Errno::PERM);
    }
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    for file in rustix::fs::Dir::read_from(&folder)? {
        let file = file?;
        if !matches!(file.file_name().to_bytes(), b"." | b"..") {
            // It only contains files, and if one is a link, the link is removed.
            unlinkat(&folder, file.file_name(), AtFlags::empty())?;
        }
    }
    unlinkat(CWD, path, AtFlags::REMOVEDIR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(base: &Path) -> usize {
        fs::read_dir(base).unwrap().count()
    }

    #[test]
    fn what_the_dead_left_goes_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let living = Folder::create(base.path()).unwrap();
        fs::write(living.path().join("1-0"), "words").unwrap();
        let kept = base.path().join("kept");
        fs::write(&kept, "kept").unwrap();
        let left = |name: &str, mode| {
            let folder = base.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("1-0"), "words").unwrap();
            std::os::unix::fs::symlink(&kept, folder.join("link")).unwrap();
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            folder
        };
        let (dead, strange) = (left("dead", 0o700), left("strange", 0o755));
        let link = base.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&strange, &link).unwrap();
        let second = Folder::create(base.path()).unwrap();
        assert!(!dead.exists(), "it was nobody's any more");
        assert!(living.path().join("1-0").exists(), "it is locked");
        assert!(strange.join("1-0").exists() && link.exists(), "no recording makes such a folder, nor a link");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        drop((living, second));
        assert_eq!(names(base.path()), 3);
    }

    #[test]
    fn nobody_else_may_look_in() {
        let base = tempfile::tempdir().unwrap();
        let folder = Folder::create(base.path()).unwrap();
        assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o7777, 0o700);
    }
}
