//! The temporary file in the same folder, until it is complete.

use rustix::fs::{AtFlags, Mode, OFlags, RawMode, Stat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::time::Duration;

/// What temporary names begin with; sixteen hexadecimal digits follow.
const PREFIX: &str = ".superpage-";

/// How often a new name is drawn if one is taken.
const DRAWS: usize = 16;

/// A temporary file.
#[derive(Debug)]
pub(crate) struct Beside {
    /// The folder, by descriptor: valid even if it is renamed meanwhile.
    folder: OwnedFd,
    file: File,
    /// Its temporary name, if the file system does not support files without one.
    part: Option<OsString>,
    name: OsString,
    before: Option<Stat>,
}

impl Beside {
    /// Creates one to replace the file `before` of a folder, or for a name that does not exist.
    pub(crate) fn create(folder: &OwnedFd, name: OsString, before: Option<Stat>) -> io::Result<Beside> {
        Beside::with(folder, name, before, unnamed)
    }

    fn with(
        folder: &OwnedFd,
        name: OsString,
        before: Option<Stat>,
        unnamed: impl Fn(&OwnedFd, Mode) -> io::Result<Option<OwnedFd>>,
    ) -> io::Result<Beside> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(folder, ".", flags, Mode::empty())?;
        // A file that may not be written to must not be replaced either.
        if before.is_some() {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::openat(&folder, &name, flags, Mode::empty())?;
        }
        // As the umask allows, as for any file; while it grows, no more than the file that it will
        // replace.
        let mode = before.as_ref().map_or(0o666, |before| before.st_mode & 0o777);
        let mode = Mode::from_raw_mode(mode as RawMode);
        let (file, part) = match unnamed(&folder, mode)? {
            Some(file) => (file, None),
            None => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let (part, file) = draw(|name| rustix::fs::openat(&folder, name, flags, mode))?;
                (file, Some(part))
            }
        };
        Ok(Beside { folder, file: file.into(), part, name, before })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn commit(mut self) -> io::Result<()> {
        crate::inputs::check(&self.folder, &self.name)?;
        self.file.sync_all()?;
        if let Some(before) = &self.before {
            take_after(&self.file, before)?;
        }
        if self.part.is_none() {
            self.part = Some(self.link()?);
        }
        let part = self.part.as_ref().expect("it has a name now");
        rustix::fs::renameat(&self.folder, part, &self.folder, &self.name)?;
        self.part = None;
        Ok(())
    }

    /// Gives a file without a name a temporary one, not its final one: that may be taken, and a
    /// link replaces nothing.
    #[cfg(target_os = "linux")]
    fn link(&self) -> io::Result<OsString> {
        use std::os::fd::AsRawFd;
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let link =
            |name: &OsString| rustix::fs::linkat(rustix::fs::CWD, &own, &self.folder, name, AtFlags::SYMLINK_FOLLOW);
        draw(link).map(|(name, ())| name)
    }

    #[cfg(not(target_os = "linux"))]
    fn link(&self) -> io::Result<OsString> {
        unreachable!("only Linux has files without a name")
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Nothing can be done about a file that cannot be removed, and the error that led here
            // matters more.
            let _ = rustix::fs::unlinkat(&self.folder, part, AtFlags::empty());
        }
    }
}

/// A file without a name, or `None` if the file system does not support such files or they cannot
/// be given one.
#[cfg(target_os = "linux")]
fn unnamed(folder: &OwnedFd, mode: Mode) -> io::Result<Option<OwnedFd>> {
    use rustix::io::Errno;
    if !std::path::Path::new("/proc/self/fd").exists() {
        return Ok(None);
    }
    match rustix::fs::openat(folder, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &OwnedFd, _: Mode) -> io::Result<Option<OwnedFd>> {
    Ok(None)
}

/// Calls `make` with unpredictable names until one is not taken.
fn draw<T>(make: impl Fn(&OsString) -> rustix::io::Result<T>) -> io::Result<(OsString, T)> {
    let mut made = Err(rustix::io::Errno::EXIST);
    for _ in 0..DRAWS {
        // The standard library draws the keys of its hash tables from the system's random numbers.
        let random = std::hash::RandomState::new().build_hasher().finish();
        let name = OsString::from(format!("{PREFIX}{random:016x}"));
        made = make(&name);
        match made {
            Ok(made) => return Ok((name, made)),
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(made.err().unwrap_or(rustix::io::Errno::EXIST).into())
}

/// How old a file with a temporary name is when it counts as left behind.
pub(crate) const LEFT: Duration = Duration::from_secs(60);

/// Whether [`draw`] makes such names.
pub(crate) fn temporary(name: &OsStr) -> bool {
    let drawn = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    drawn.is_some_and(|end| end.len() == 16 && end.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Removes from a directory of superpage's own what processes that were killed have left there
/// under temporary names. Unless the caller is `alone` in it, a minute must have gone by: another
/// process may be about to give such a file its own name. What cannot be removed stays.
pub fn remove_leftovers(path: &Path, alone: bool) {
    crate::Directory::open(path).into_iter().for_each(|directory| directory.remove_leftovers(alone));
}

/// Sets a file's mode to that of the one that it replaces, and its owner and group as far as this
/// user may.
fn take_after(file: &File, before: &Stat) -> io::Result<()> {
    let now = file.metadata()?;
    let (mut mode, user, group) = (before.st_mode & 0o777, before.st_uid, before.st_gid);
    if (now.uid(), now.gid()) != (user, group)
        && fchown(file, Some(user), Some(group)).is_err()
        && now.gid() != group
        && fchown(file, None, Some(group)).is_err()
    {
        // It has a different group now, which gets no more rights than all others.
        mode &= !0o070 | (mode & 0o007) << 3;
    }
    file.set_permissions(PermissionsExt::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Place, There};
    use std::fs;
    use std::io::Write;

    /// As on a file system that does not support files without a name.
    fn named(path: &std::path::Path) -> Beside {
        let Place { folder, name, there: There::Regular(before) } = Place::find(path).unwrap() else {
            panic!("{}", path.display())
        };
        Beside::with(&folder, name, before, |_, _| Ok(None)).unwrap()
    }

    #[test]
    fn a_file_with_a_name_for_the_time_being_goes_when_it_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let (first, second) = (named(&path), named(&path));
        assert_eq!(count(), 2);
        first.file().write_all(b"first").unwrap();
        second.file().write_all(b"second").unwrap();
        first.commit().unwrap();
        assert_eq!((fs::read(&path).unwrap(), count()), (b"first".to_vec(), 2));
        drop(second);
        assert_eq!((fs::read(&path).unwrap(), count()), (b"first".to_vec(), 1));
    }

    #[test]
    fn what_a_kill_left_is_removed_after_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let ago = std::time::SystemTime::now() - 2 * LEFT;
        for (name, old) in [
            (".superpage-0123456789abcdef", true),
            (".superpage-0123456789abcdee", false),
            (".superpage-0123456789abcde", true),
            ("settings.json", true),
        ] {
            let file = File::create(folder.path().join(name)).unwrap();
            if old {
                file.set_modified(ago).unwrap();
            }
        }
        remove_leftovers(folder.path(), false);
        let left = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, [".superpage-0123456789abcde", ".superpage-0123456789abcdee", "settings.json"]);
        remove_leftovers(folder.path(), true);
        assert!(!folder.path().join(".superpage-0123456789abcdee").exists());
    }
}
