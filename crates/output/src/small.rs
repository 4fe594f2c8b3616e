//! Small files that people write: configurations, machines, policies.

use crate::place::Place;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The maximal size of such a file: 1 MB.
const MOST: u64 = 1 << 20;

/// Opens a file to read it: a regular one. Never blocks, as opening a pipe without a writer would.
///
/// # Errors
/// The file cannot be opened, or is not a regular one. The text says what was expected.
pub fn open_regular(path: &Path) -> io::Result<File> {
    regular(rustix::fs::CWD, path, OFlags::empty()).inspect(crate::inputs::note)
}

/// Opens a regular file in a directory.
pub(crate) fn regular(at: impl AsFd, path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    let file = File::from(rustix::fs::openat(at, path, flags, Mode::empty())?);
    let kind = file.metadata()?;
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file: save it to one"));
    }
    Ok(file)
}

/// Reads a small file: a regular one, of at most 1 MB, in UTF-8. Never blocks, as opening a pipe
/// without a writer would.
///
/// # Errors
/// The file is none of this, or cannot be read. The text says what was expected.
pub fn read_text(path: &Path) -> io::Result<String> {
    text(open_regular(path)?, MOST)
}

/// Reads a small file that says what a service does, as [`read_text`] does: one that only this
/// user, root or the members of their groups can have written, or put there. As sshd, it looks at
/// the file and at all folders above it: each belongs to root or this user, and neither others nor
/// another group may write to it, but where the sticky bit is set, as in `/tmp`.
///
/// # Errors
/// As for [`read_text`]; or the file or a folder above it belongs to another user, others may write
/// to either, or the path leads over a link that another user may have planted.
pub fn read_own_text(path: &Path) -> io::Result<String> {
    const GROUP_MAY_WRITE: u32 = 0o020;
    const ALL_MAY_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let place = Place::find(path)?;
    let file = regular(&place.folder, place.name.as_ref(), OFlags::empty())?;
    let there = file.metadata()?;
    let refused = |problem: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    if ![0, rustix::process::geteuid().as_raw()].contains(&there.uid()) {
        return refused(format!("belongs to user {}, who could change it; let root own it, or yourself", there.uid()));
    }
    let own_group = [0, rustix::process::getegid().as_raw()].contains(&there.gid());
    if there.mode() & (if own_group { ALL_MAY_WRITE } else { ALL_MAY_WRITE | GROUP_MAY_WRITE }) != 0 {
        return refused(format!("others may write to it (mode {:o}); chmod go-w it", there.mode() & 0o7777));
    }
    for folder in path.canonicalize()?.ancestors().skip(1) {
        let (shown, there) = (folder.display(), folder.metadata()?);
        if ![0, rustix::process::geteuid().as_raw()].contains(&there.uid()) {
            let whose = there.uid();
            return refused(format!(
                "is below {shown} of user {whose}, who could replace it; move it to a folder of root, or of yourself"
            ));
        }
        let own_group = [0, rustix::process::getegid().as_raw()].contains(&there.gid());
        let others = if own_group { ALL_MAY_WRITE } else { ALL_MAY_WRITE | GROUP_MAY_WRITE };
        if there.mode() & others != 0 && there.mode() & STICKY == 0 {
            let mode = there.mode() & 0o7777;
            return refused(format!(
                "is below {shown} (mode {mode:o}), so others could replace it; move it, or chmod go-w that folder"
            ));
        }
    }
    text(file, MOST)
}

/// Reads a file to its end, of at most so many bytes, whole megabytes.
pub(crate) fn text(file: File, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let text = format!("has more than {} MB, which is too much for such a file", most >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_write_does_not_say_what_a_service_does() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("service.toml");
        std::fs::write(&path, "text").unwrap();
        let read = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_own_text(&path).map_err(|error| error.to_string())
        };
        assert_eq!((read(0o644), read(0o664)), (Ok("text".into()), Ok("text".into())));
        assert!(read(0o646).unwrap_err().contains("mode 646"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, None, Some(12345)).unwrap();
            assert!(read(0o644).is_ok() && read(0o664).unwrap_err().contains("chmod go-w"));
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert!(read(0o644).unwrap_err().contains("belongs to user 12345"));
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        // A link of one's own is followed; what others could replace is not read, nor what they may
        // have planted.
        assert!(read(0o644).is_ok());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read_own_text(&link).unwrap(), "text");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(read(0o644).unwrap_err().contains("others could replace it"));
        if rustix::process::geteuid().is_root() {
            let owner = |user, group, mode: u32| {
                std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).unwrap();
                std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            };
            owner(12345, 0, 0o755);
            assert!(read(0o644).unwrap_err().contains("of user 12345, who could replace it"));
            owner(0, 12345, 0o775);
            assert!(read(0o644).unwrap_err().contains("(mode 775), so others could replace it"));
            owner(0, 12345, 0o755);
            assert!(read(0o644).is_ok());
            owner(0, 0, 0o775);
            assert!(read(0o644).is_ok(), "the group of root is root's");
            // A folder further up, too.
            let below = folder.path().join("below");
            std::fs::create_dir(&below).unwrap();
            std::fs::copy(&path, below.join("service.toml")).unwrap();
            owner(12345, 0, 0o755);
            let error = read_own_text(&below.join("service.toml")).unwrap_err();
            assert!(error.to_string().contains("of user 12345"), "{error}");
            owner(0, 0, 0o755);
        }
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(read(0o644).is_ok());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
            assert!(read_own_text(&link).unwrap_err().to_string().contains("not followed"));
        }
    }

    #[test]
    fn only_small_regular_files_of_text_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("good"), "text = 1\n").unwrap();
        std::fs::write(path("most"), vec![b'#'; MOST as usize]).unwrap();
        assert_eq!(read_text(&path("good")).unwrap(), "text = 1\n");
        assert_eq!(read_text(&path("most")).unwrap().len() as u64, MOST);
        std::fs::write(path("more"), vec![b'#'; MOST as usize + 1]).unwrap();
        std::fs::write(path("bytes"), [0xff, 0xfe]).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        for (name, why) in [
            ("more", "more than 1 MB"),
            ("bytes", "UTF-8"),
            ("zero", "not a regular file"),
            ("pipe", "not a regular file"),
            (".", "is a directory"),
            ("none", "No such file"),
        ] {
            let error = read_text(&path(name)).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
    }
}
