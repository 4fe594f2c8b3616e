//! A directory that superpage fills with files of its own, and that somebody else may have
//! prepared.

use crate::beside::{Beside, LEFT, temporary};
use crate::place::{End, Missing, make_folder, refuse_planted, walk};
use crate::small::{regular, text};
use crate::{Output, To, refusal};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// A directory, held open: whatever happens to its path, it stays this one. Nothing in it that is a
/// link is followed.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// Opens a directory, and makes it with all above it if they do not exist. Links on the way are
    /// followed unless another user may have planted them, as by
    /// [`Output::create`](crate::Output::create).
    ///
    /// # Errors
    /// The path names something else, leads over a planted link, or cannot be made or opened.
    pub fn make(path: &Path) -> io::Result<Directory> {
        Directory::at(path, Missing::Made)
    }

    /// Opens a directory that exists.
    ///
    /// # Errors
    /// As for [`Directory::make`], and if it does not exist.
    pub fn open(path: &Path) -> io::Result<Directory> {
        Directory::at(path, Missing::Refused)
    }

    fn at(path: &Path, missing: Missing) -> io::Result<Directory> {
        match walk(path, missing)? {
            End::Directory(folder) => Directory::listed(&folder, "."),
            End::Name(place) if matches!(place.there, crate::place::There::Regular(None)) => Err(Errno::NOENT.into()),
            End::Name(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// One that can be listed.
    fn listed(at: &OwnedFd, name: &str) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Directory(rustix::fs::openat(at, name, flags, Mode::empty())?))
    }

    /// Opens a directory in it, and makes it if `make` says so.
    ///
    /// # Errors
    /// The name is that of a link or of a file, or the directory cannot be made or opened.
    pub fn sub(&self, name: &str, make: bool) -> io::Result<Directory> {
        if make {
            make_folder(&self.0, name.as_ref())?;
        }
        Directory::listed(&self.0, name).map_err(|error| match error.raw_os_error() {
            Some(code) if [Errno::NOTDIR, Errno::LOOP].map(Errno::raw_os_error).contains(&code) => io::Error::new(
                io::ErrorKind::NotADirectory,
                format!("{name} is there and no directory; links are not followed"),
            ),
            _ => error,
        })
    }

    /// Whether a directory in it has that name.
    pub fn is_folder(&self, name: &str) -> bool {
        let there = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| FileType::from_raw_mode(there.st_mode) == FileType::Directory)
    }

    /// The names in it.
    ///
    /// # Errors
    /// It cannot be read, or not to its end.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let entries =
            Dir::read_from(&self.0)?.map(|entry| Ok(OsString::from_vec(entry?.file_name().to_bytes().to_vec())));
        entries.filter(|name| !matches!(name, Ok(name) if name == "." || name == "..")).collect()
    }

    /// Begins a file in it, as [`Output::create`] does; what is there under that name, if anything,
    /// must be a regular file.
    ///
    /// # Errors
    /// As for [`Output::create`], and if a link or anything else that is no regular file has that
    /// name.
    pub fn create(&self, name: &str) -> io::Result<Output> {
        let before = match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
            Ok(there) => Some(there),
        };
        if let Some(there) = &before {
            match FileType::from_raw_mode(there.st_mode) {
                FileType::RegularFile => refuse_planted(&self.0, name.as_ref(), there)?,
                FileType::Symlink => return Err(no_link(Errno::LOOP.into())),
                _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file")),
            }
        }
        let beside = Beside::create(&self.0, name.into(), before).map_err(refusal)?;
        Ok(Output(To::Whole(Box::new(beside))))
    }

    /// Opens a file in it to read it. Never blocks.
    ///
    /// # Errors
    /// It cannot be opened, or is not a regular file.
    pub fn open_regular(&self, name: &str) -> io::Result<File> {
        regular(&self.0, name.as_ref(), OFlags::NOFOLLOW).map_err(no_link)
    }

    /// Reads a text in it, as [`read_text`](crate::read_text) does, of at most so many megabytes.
    ///
    /// # Errors
    /// As for that, and if it is a link.
    pub fn read_text(&self, name: &str, megabytes: u64) -> io::Result<String> {
        text(self.open_regular(name)?, megabytes << 20)
    }

    /// Opens the file of a lock, and makes it if it does not exist. Its owner alone may open it,
    /// since whoever may read a file may lock it.
    ///
    /// # Errors
    /// It cannot be opened or made, or is not a regular file of this user with one name.
    pub fn open_lock(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(
            rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR).map_err(|e| no_link(e.into()))?,
        );
        let there = file.metadata()?;
        let refused = |problem: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        if !there.is_file() {
            return refused("is not a regular file".into());
        }
        if there.uid() != rustix::process::geteuid().as_raw() {
            return refused(format!("belongs to user {}, who could hold this lock for ever", there.uid()));
        }
        // A second name was given to a file of this user by who prepared the directory: it may be
        // any.
        if there.nlink() != 1 {
            return refused(format!("has {} names; remove it", there.nlink()));
        }
        if there.mode() & 0o077 != 0 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(file)
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// It is not there, or cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes what killed processes have left in it under temporary names, as
    /// [`remove_leftovers`](crate::remove_leftovers) does.
    pub fn remove_leftovers(&self, alone: bool) {
        for name in self.names().unwrap_or_default() {
            let old = || {
                let there = rustix::fs::statat(&self.0, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                let regular = rustix::fs::FileType::from_raw_mode(there.st_mode).is_file();
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
                Some(regular && now.saturating_sub(there.st_mtime as u64) >= LEFT.as_secs())
            };
            if temporary(&name) && (alone || old() == Some(true)) {
                let _ = rustix::fs::unlinkat(&self.0, &name, AtFlags::empty());
            }
        }
    }
}

/// Says of a link that it is one.
fn no_link(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) if code == Errno::LOOP.raw_os_error() => {
            io::Error::new(io::ErrorKind::InvalidInput, "is a link, and links are not followed here")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_in_a_directory_are_not_followed() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("file"), "theirs").unwrap();
        symlink(other.path(), folder.path().join("cells")).unwrap();
        symlink(other.path().join("file"), folder.path().join("file")).unwrap();
        symlink(other.path().join("lock"), folder.path().join("lock")).unwrap();
        // A link to the directory itself is its user's own.
        symlink(folder.path(), other.path().join("way")).unwrap();
        let directory = Directory::make(&other.path().join("way")).unwrap();
        assert!(directory.sub("cells", true).unwrap_err().to_string().contains("links are not followed"));
        assert!(directory.open_regular("file").unwrap_err().to_string().contains("is a link"));
        assert!(directory.open_lock("lock").unwrap_err().to_string().contains("is a link"));
        assert!(!other.path().join("lock").exists());
        assert!(directory.create("file").unwrap_err().to_string().contains("is a link"));
        let mut new = directory.create("new").unwrap();
        new.write_all(b"ours").unwrap();
        new.commit().unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("new")).unwrap(), "ours");
        directory.remove("file").unwrap();
        assert_eq!(fs::read_to_string(other.path().join("file")).unwrap(), "theirs");
    }

    #[test]
    fn a_directory_is_made_with_all_above_it_and_a_lock_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        assert_eq!(Directory::open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let directory = Directory::make(&path).unwrap();
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().mode() & 0o777;
        drop(directory.open_lock("new").unwrap());
        assert_eq!(mode("new"), 0o600);
        fs::write(path.join("old"), "").unwrap();
        fs::set_permissions(path.join("old"), Permissions::from_mode(0o644)).unwrap();
        drop(directory.open_lock("old").unwrap());
        assert_eq!(mode("old"), 0o600);
        fs::write(path.join("theirs"), "kept").unwrap();
        fs::set_permissions(path.join("theirs"), Permissions::from_mode(0o644)).unwrap();
        fs::hard_link(path.join("theirs"), path.join("lock")).unwrap();
        assert!(directory.open_lock("lock").unwrap_err().to_string().contains("has 2 names"));
        assert_eq!((mode("theirs"), fs::read_to_string(path.join("theirs")).unwrap()), (0o644, "kept".into()));
        rustix::fs::mknodat(rustix::fs::CWD, path.join("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        for open in [Directory::open_lock, Directory::open_regular] {
            assert!(open(&directory, "pipe").unwrap_err().to_string().contains("not a regular file"));
        }
    }
}
