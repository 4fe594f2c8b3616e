//! Where a path leads, for an output or a directory of outputs, and whether that can be trusted.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The number of links that Linux follows.
const LINKS: usize = 40;

/// A folder that is only traversed need not be readable.
#[cfg(target_os = "linux")]
const SEARCH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const SEARCH: OFlags = OFlags::RDONLY;

/// A name in a folder that is held open: whatever happens to the path meanwhile, it stays this
/// folder.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
    pub(crate) there: There,
}

/// What has that name now.
#[derive(Debug)]
pub(crate) enum There {
    /// Nothing, or a file to be replaced.
    Regular(Option<Stat>),
    /// A pipe, a socket or a device.
    Special,
    /// A link of `/proc` to an open file of a process.
    Open,
}

impl Place {
    /// Walks down the path to a name that is no directory's.
    pub(crate) fn find(path: &Path) -> io::Result<Place> {
        match walk(path, Missing::Refused)? {
            End::Name(place) => Ok(place),
            End::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

/// The end of a path.
pub(crate) enum End {
    /// A name in a directory.
    Name(Place),
    /// A directory, opened to go on from there.
    Directory(OwnedFd),
}

/// What happens where the path names a directory that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is an error, except at the end, which may be a new file.
    Refused,
    /// It is made.
    Made,
}

/// Walks down the path and follows links one by one, because each must be checked.
pub(crate) fn walk(path: &Path, missing: Missing) -> io::Result<End> {
    if path.as_os_str().is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut folder = open_folder(rustix::fs::CWD, OsStr::new(if path.is_absolute() { "/" } else { "." }))?;
    // The rest of the path, its end first.
    let mut left = steps(path);
    let mut links = 0;
    while let Some(step) = left.pop() {
        if step == "/" || step == ".." || step == "." {
            folder = open_folder(&folder, &step)?;
            continue;
        }
        let there = match rustix::fs::statat(&folder, &step, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => there,
            Err(rustix::io::Errno::NOENT) if missing == Missing::Made => {
                make_folder(&folder, &step)?;
                folder = open_folder(&folder, &step)?;
                continue;
            }
            Err(rustix::io::Errno::NOENT) if left.is_empty() => {
                // Nothing can be made in a folder without a name, and what the system says of that
                // depends on how it is tried.
                if rustix::fs::fstat(&folder)?.st_nlink == 0 {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "the working directory was removed"));
                }
                return Ok(End::Name(Place { folder, name: step, there: There::Regular(None) }));
            }
            Err(error) => return Err(error.into()),
        };
        let last = left.is_empty();
        match FileType::from_raw_mode(there.st_mode) {
            FileType::Symlink if in_proc(&folder) && last => {
                return Ok(End::Name(Place { folder, name: step, there: There::Open }));
            }
            // The target of such a link is not a name: the kernel resolves it.
            FileType::Symlink if in_proc(&folder) => {
                folder =
                    rustix::fs::openat(&folder, &step, SEARCH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            }
            FileType::Symlink => {
                links += 1;
                if links > LINKS {
                    return Err(rustix::io::Errno::LOOP.into());
                }
                left.extend(steps(&read_link(&folder, &step)?));
            }
            FileType::Directory => folder = open_folder(&folder, &step)?,
            _ if !last => return Err(io::ErrorKind::NotADirectory.into()),
            kind => {
                refuse_planted(&folder, &step, &there)?;
                let there = if kind == FileType::RegularFile { There::Regular(Some(there)) } else { There::Special };
                return Ok(End::Name(Place { folder, name: step, there }));
            }
        }
    }
    Ok(End::Directory(folder))
}

/// Makes a directory, which another process may have made meanwhile.
pub(crate) fn make_folder(at: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o777)) {
        Err(error) if error != rustix::io::Errno::EXIST => Err(error.into()),
        _ => Ok(()),
    }
}

/// The parts of a path, its end first. A path that ends in a slash names a folder.
fn steps(path: &Path) -> Vec<OsString> {
    let mut steps: Vec<OsString> = path.components().map(|part: Component| part.as_os_str().to_os_string()).collect();
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        steps.push(".".into());
    }
    steps.reverse();
    steps
}

fn open_folder(at: impl std::os::fd::AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// The target of a link, if its owner can be trusted: the link that is checked and the link that is
/// read are the same.
#[cfg(target_os = "linux")]
fn read_link(folder: &OwnedFd, name: &OsStr) -> io::Result<PathBuf> {
    let link = rustix::fs::openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    refuse_planted(folder, name, &rustix::fs::fstat(&link)?)?;
    Ok(OsString::from_vec(rustix::fs::readlinkat(&link, "", Vec::new())?.into_bytes()).into())
}

#[cfg(not(target_os = "linux"))]
fn read_link(folder: &OwnedFd, name: &OsStr) -> io::Result<PathBuf> {
    refuse_planted(folder, name, &rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)?;
    Ok(OsString::from_vec(rustix::fs::readlinkat(folder, name, Vec::new())?.into_bytes()).into())
}

/// Refuses what another user may have planted: it may lead anywhere, and be readable by them. In a
/// folder writable by all these are the rules of `fs.protected_symlinks` and
/// `fs.protected_regular`, which not every system enables. Where a group may write, members replace
/// each other's files, but links and pipes of others are refused. A folder of another user is
/// entirely theirs, so what they put there is refused too; what root has put anywhere is not.
pub(crate) fn refuse_planted(folder: &OwnedFd, name: &OsStr, there: &Stat) -> io::Result<()> {
    const ALL_MAY_WRITE: u32 = 0o002;
    const GROUP_MAY_WRITE: u32 = 0o020;
    let trusted = |user: u32| user == rustix::process::geteuid().as_raw() || user == 0;
    if there.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let folder = rustix::fs::fstat(folder)?;
    let regular = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
    // The group of root is root's.
    let by_group = if regular || folder.st_gid == 0 { 0 } else { GROUP_MAY_WRITE };
    #[allow(clippy::unnecessary_cast, reason = "not everywhere of 32 bits")]
    let open = folder.st_mode as u32 & (ALL_MAY_WRITE | by_group);
    let open_to_others = open != 0 && folder.st_uid != there.st_uid;
    let theirs = !trusted(folder.st_uid) && !trusted(there.st_uid);
    if !open_to_others && !theirs {
        return Ok(());
    }
    let whose = match open_to_others {
        true if open & ALL_MAY_WRITE != 0 => "where all may write",
        true => "where a group may write",
        false => "of another user",
    };
    let text = format!(
        "{} is there already, and belongs to user {}, in a folder {whose}; not followed, as it may be a trap",
        name.display(),
        there.st_uid
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether the links of a folder may be those of `/proc` that lead to open files, and not to names.
fn in_proc(folder: &OwnedFd) -> bool {
    #[cfg(target_os = "linux")]
    {
        rustix::fs::fstatfs(folder).is_ok_and(|system| system.f_type == rustix::fs::PROC_SUPER_MAGIC)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = folder;
        false
    }
}
