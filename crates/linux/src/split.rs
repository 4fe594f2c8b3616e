//! Splitting huge pages of a process: debugfs' `split_huge_pages`, to which root writes
//! `PID,START,END` in hexadecimal addresses (mm/huge_memory.c;
//! tools/testing/selftests/mm/split_huge_page_test.c). Since Linux 6.12 a split frees the pieces
//! that hold zeroes.

use crate::Error;
use procfs::sys::kernel::Version;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The file.
#[derive(Clone, Debug)]
pub struct Splitter {
    path: PathBuf,
}

impl Splitter {
    /// The splitter of the system whose debugfs is in `folder`: `/sys/kernel/debug`, except in
    /// tests.
    ///
    /// # Errors
    /// [`Error::Unable`]: a sentence that says why nothing can be split here.
    pub fn of(folder: impl AsRef<Path>) -> Result<Splitter, Error> {
        // Before, the file takes a 1 for the pages of all processes, and would read one from
        // `1,START,END`.
        let first = Version::new(5, 13, 0);
        let known = Version::current();
        if !known.as_ref().is_ok_and(|kernel| *kernel >= first) {
            let now = known.map_or("unknown".into(), |kernel| format!("{}.{}", kernel.major, kernel.minor));
            return Err(Error::Unable(format!(
                "huge pages of one process can be split since Linux 5.13, and this kernel's version is {now}; use a newer one"
            )));
        }
        let path = folder.as_ref().join("split_huge_pages");
        match OpenOptions::new().write(true).open(&path) {
            Ok(_) => Ok(Splitter { path }),
            Err(error) => Err(Error::Unable(format!(
                "huge pages of other processes cannot be split here: {} cannot be opened ({error}); {}",
                path.display(),
                way_out(&error)
            ))),
        }
    }

    /// Splits the huge pages in a range of addresses of a process into base pages. Those that are
    /// pinned stay. Their memory is not changed, but pages of zeroes may be freed.
    ///
    /// # Errors
    /// The kernel refused: there is no such process, or nothing was split.
    pub fn split(&self, pid: i32, range: Range<u64>) -> Result<(), Error> {
        let file = || self.path.display().to_string();
        let mut open = OpenOptions::new().write(true).open(&self.path).map_err(Error::file("write", file()))?;
        let line = format!("{pid},{:#x},{:#x}", range.start, range.end);
        open.write_all(line.as_bytes()).map_err(Error::file("write", file()))
    }
}

/// What helps where the file cannot be opened. A locked-down kernel refuses root with EPERM, rights
/// are wanting with EACCES.
fn way_out(error: &std::io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => {
            "mount debugfs (mount -t debugfs none /sys/kernel/debug); where it is mounted, the kernel was built \
             without it or without transparent huge pages"
        }
        Some(Errno::PERM) => "this kernel is locked down or keeps debugfs closed, and no right opens it",
        Some(Errno::ACCESS) => "it needs root",
        _ => "see what is mounted there",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_way_out() {
        let way_out = |errno: Errno| way_out(&errno.into());
        assert!(way_out(Errno::PERM).contains("locked down") && way_out(Errno::ACCESS) == "it needs root");
        assert!(way_out(Errno::NOENT).contains("mount -t debugfs"));
    }

    #[test]
    fn what_is_written_is_what_the_kernel_reads() {
        let folder = tempfile::tempdir().unwrap();
        let error = Splitter::of(folder.path()).unwrap_err().to_string();
        assert!(error.contains("cannot be split here") && error.contains("debugfs"), "{error}");
        let path = folder.path().join("split_huge_pages");
        std::fs::write(&path, "").unwrap();
        Splitter::of(folder.path()).unwrap().split(17, 0x20_0000..0x40_0000).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "17,0x200000,0x400000");
    }
}
