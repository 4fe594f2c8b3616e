//! Where an output goes: what its name leads to, and whether that may be trusted.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// As many links as Linux follows.
const LINKS: usize = 40;

/// What a name leads to.
#[derive(Debug)]
pub(crate) enum Place {
    /// A file, or a name for one.
    Regular(Regular),
    /// A pipe, a socket or a device.
    Special(PathBuf),
    /// A file that a process has open, by its number in `/proc`.
    Open(PathBuf),
}

/// A file that is to be replaced, or a name that is still free.
#[derive(Debug)]
pub(crate) struct Regular {
    pub(crate) path: PathBuf,
    /// The file that is there.
    pub(crate) before: Option<Metadata>,
}

impl Place {
    /// Follows links one by one, as each must be looked at.
    pub(crate) fn find(path: &Path) -> io::Result<Place> {
        let mut path = path.to_path_buf();
        for _ in 0..LINKS {
            let there = match fs::symlink_metadata(&path) {
                Ok(there) => there,
                Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => {
                    return Ok(Place::Regular(Regular { path, before: None }));
                }
                Err(error) => return Err(error),
            };
            refuse_planted(&path, &there)?;
            if there.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            if there.is_file() {
                return Ok(Place::Regular(Regular { path, before: Some(there) }));
            }
            if !there.is_symlink() {
                return Ok(Place::Special(path));
            }
            if in_proc(&path) {
                return Ok(Place::Open(path));
            }
            path = folder(&path).join(fs::read_link(&path)?);
        }
        Err(rustix::io::Errno::LOOP.into())
    }
}

/// The folder that a path is in.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses what another user has put into a folder where everybody may: it may lead anywhere, and be theirs to read. These
/// are the rules of `fs.protected_symlinks` and `fs.protected_regular`, which not every system has switched on.
fn refuse_planted(path: &Path, there: &Metadata) -> io::Result<()> {
    const ALL_MAY_WRITE: u32 = 0o002;
    if there.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let folder = fs::metadata(folder(path))?;
    if folder.mode() & ALL_MAY_WRITE == 0 || folder.uid() == there.uid() {
        return Ok(());
    }
    let text = format!(
        "is there already, and belongs to user {}, in a folder where all may write; not followed, as it may be a trap",
        there.uid()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether a link is one of those of `/proc` that lead to what is open, and not to a name.
fn in_proc(path: &Path) -> bool {
    #[cfg(target_os = "linux")]
    {
        rustix::fs::statfs(folder(path)).is_ok_and(|system| system.f_type == rustix::fs::PROC_SUPER_MAGIC)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        false
    }
}
