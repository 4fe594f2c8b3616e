//! Small files that people write: configurations, machines, policies.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// The maximal size of such a file: 1 MB.
const MOST: u64 = 1 << 20;

/// Opens a file to read it: a regular one. Never blocks, as opening a pipe without a writer would.
///
/// # Errors
/// The file cannot be opened, or is not a regular one. The text says what was expected.
pub fn open_regular(path: &Path) -> io::Result<File> {
    regular(rustix::fs::CWD, path, OFlags::empty())
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

/// Reads a small file: a regular one, of at most 1 MB, in UTF-8. Never blocks, as opening a pipe without a writer
/// would.
///
/// # Errors
/// The file is none of this, or cannot be read. The text says what was expected.
pub fn read_text(path: &Path) -> io::Result<String> {
    text(open_regular(path)?, MOST)
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
