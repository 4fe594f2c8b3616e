//! The code that a process has mapped.

use crate::Error;
use procfs::process::{MMPermissions, MMapPath};
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

/// Bytes of the huge pages for code.
pub(super) const HUGE: u64 = 2 << 20;

/// The part of a code mapping that whole huge pages can hold.
#[derive(Clone, Debug)]
pub(super) struct Code {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    /// Aligned to huge pages.
    pub(super) range: Range<u64>,
    /// The offset in the file of the beginning of the range.
    pub(super) offset: u64,
}

impl Code {
    /// Opens its file as the process sees it, in its own root.
    pub(super) fn open(&self, pid: u32) -> Result<File, Error> {
        File::open(format!("/proc/{pid}/root{}", self.path.display())).map_err(Error::file("open", &self.path))
    }
}

/// All mappings of files that are executable, not writable, and hold at least one aligned huge
/// page.
pub(super) fn all(pid: u32) -> Result<Vec<Code>, Error> {
    let path = format!("/proc/{pid}/maps");
    let maps = std::fs::read(&path).map_err(Error::file("read", &path))?;
    let maps = crate::proc::mappings(&maps).map_err(|_| Error::Unable(format!("cannot understand {path}")))?;
    let code = maps.0.into_iter().filter_map(|map| {
        let perms = map.perms;
        let plain = perms.contains(MMPermissions::READ | MMPermissions::EXECUTE | MMPermissions::PRIVATE)
            && !perms.contains(MMPermissions::WRITE);
        let (start, end) = (map.address.0.next_multiple_of(HUGE), map.address.1 / HUGE * HUGE);
        match map.pathname {
            MMapPath::Path(path) if plain && map.inode != 0 && start < end => {
                let offset = map.offset + (start - map.address.0);
                Some(Code { path, inode: map.inode, range: start..end, offset })
            }
            _ => None,
        }
    });
    Ok(code.collect())
}
