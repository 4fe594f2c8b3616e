//! Files that hold findings: known to be writable before anything is measured, and whole or not there at all.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that will hold findings. What was there under its name stays until they are complete.
///
/// Nothing lies beside it while they are made, so an interrupt, or a kill, leaves nothing behind.
#[derive(Debug)]
pub struct Export {
    /// As it was given, for sentences.
    named: PathBuf,
    /// Without links: the file that a link leads to is replaced, not the link.
    path: PathBuf,
    /// Not so for a pipe or a terminal.
    regular: bool,
}

/// A file that cannot be written.
#[derive(Debug)]
pub struct Unwritable {
    path: PathBuf,
    source: io::Error,
}

impl Export {
    /// Makes sure, before anything runs, that `path` can be written. Leaves nothing there.
    ///
    /// # Errors
    /// [`Unwritable`]: bad input, as no folder is there, this user may not write, or it is a folder itself.
    pub fn create(path: &Path) -> Result<Export, Unwritable> {
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let there = fs::metadata(&whole).ok();
        let regular = there.as_ref().is_none_or(|there| there.is_file());
        let export = Export { named: path.to_path_buf(), path: whole, regular };
        // A pipe is not opened yet: nobody may read it before there is something to read.
        let tried = match there {
            Some(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Some(_) if !regular => Ok(()),
            Some(_) => OpenOptions::new().write(true).open(&export.path).map(drop),
            None => Ok(()),
        };
        let tried = tried.and_then(|()| if regular { export.beside().map(drop) } else { Ok(()) });
        match tried {
            Ok(()) => Ok(export),
            Err(source) => Err(export.unwritable(source)),
        }
    }

    /// Puts `text` under the file's name.
    ///
    /// # Errors
    /// [`Unwritable`] when the system refuses now; then what was there before is still there.
    pub fn write(self, text: &str) -> Result<(), Unwritable> {
        let written = if self.regular { self.replace(text) } else { fs::write(&self.path, text) };
        written.map_err(|source| self.unwritable(source))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let mut beside = self.beside()?;
        beside.write_all(text.as_bytes())?;
        beside.as_file().sync_all()?;
        beside.persist(&self.path)?;
        Ok(())
    }

    /// A new file in the same folder. It is removed when it is dropped.
    fn beside(&self) -> io::Result<NamedTempFile> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::metadata(folder)?;
        let mut builder = tempfile::Builder::new();
        // What the user's umask leaves, as for any file.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        // Without the name that the user does not know.
        builder.tempfile_in(folder).map_err(|error| error.kind().into())
    }

    fn unwritable(&self, source: io::Error) -> Unwritable {
        Unwritable { path: self.named.clone(), source }
    }
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unwritable { path, source } = self;
        write!(f, "cannot write {}: {source}; name a file in a folder where this user may write", path.display())
    }
}

impl std::error::Error for Unwritable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_is_there_before_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        let export = Export::create(&file).unwrap();
        assert!(names(folder.path()).is_empty());
        export.write("one").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names(folder.path())), ("one", vec!["a".into()]));
        // One that is given up leaves what was there.
        drop(Export::create(&file).unwrap());
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names(folder.path())), ("one", vec!["a".into()]));
    }

    #[test]
    fn what_cannot_be_written_is_said_before() {
        let folder = tempfile::tempdir().unwrap();
        let missing = std::fs::File::open("/no/such/file").unwrap_err().to_string();
        let cases =
            [(folder.path().join("no/such/folder"), missing.as_str()), (folder.path().to_path_buf(), "is a directory")];
        for (path, why) in cases {
            let error = Export::create(&path).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot write {}: {why}; ", path.display())), "{error}");
            assert!(error.contains("name a file"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Export::create(&link).unwrap().write("after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
