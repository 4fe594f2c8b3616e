//! Whether a file that is to be written fits.

use crate::place::{Place, There};
use rustix::fs::FileType;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Of what a file system has free, this part stays free.
const KEPT: u64 = 20;

/// Checks that `bytes` fit where `path` is to be a file, and leave 5 % of what is free there;
/// `None` is standard output. What cannot be a regular file always fits.
///
/// # Errors
/// They do not fit ([`io::ErrorKind::InvalidInput`]), or there is no such folder. The text says
/// what to do.
pub fn check_room(path: Option<&Path>, bytes: u64) -> io::Result<()> {
    match path.map(Place::find).transpose().map_err(crate::refusal)? {
        Some(Place { folder, there: There::Regular(_), .. }) => fits(folder, bytes),
        None if is_regular(io::stdout())? => fits(io::stdout(), bytes),
        _ => Ok(()),
    }
}

fn is_regular(file: impl AsFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) == FileType::RegularFile)
}

/// Checks whether a file system has room for them.
fn fits(within: impl AsFd, bytes: u64) -> io::Result<()> {
    let system = rustix::fs::fstatvfs(within)?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if bytes <= free - free / KEPT {
        return Ok(());
    }
    let text = format!(
        "takes some {} MB, and of the {} MB that its file system has free, 5 % are to stay; name a file elsewhere",
        bytes >> 20,
        free >> 20
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        check_room(Some(&path), 1).unwrap();
        let error = check_room(Some(&path), u64::MAX).unwrap_err();
        assert!(
            error.kind() == io::ErrorKind::InvalidInput && error.to_string().contains("5 % are to stay"),
            "{error}"
        );
        check_room(Some(Path::new("/dev/null")), u64::MAX).unwrap();
        assert!(check_room(Some(&folder.path().join("no/such")), 1).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
