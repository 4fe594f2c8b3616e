//! Result files: checked to be writable before anything is measured, and complete or not there at
//! all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use superpage_output::{Output, explain};

/// A file that will hold results. An existing file with its name stays until they are complete.
///
/// No temporary file exists until then, so an interrupt, or a kill, leaves nothing behind.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
}

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct Unwritable {
    path: PathBuf,
    source: io::Error,
}

impl Export {
    /// Checks, before anything runs, that `path` can be written. Creates nothing there.
    ///
    /// # Errors
    /// [`Unwritable`]: bad input, as for [`Output::create`].
    pub fn create(path: &Path) -> Result<Export, Unwritable> {
        let export = Export { path: path.to_path_buf() };
        Output::check(path).map_err(|source| export.unwritable(source))?;
        Ok(export)
    }

    /// Writes `text` to the file.
    ///
    /// # Errors
    /// [`Unwritable`] if the write fails; the file that was there before is then still there.
    pub fn write(self, text: &str) -> Result<(), Unwritable> {
        let written = Output::create(&self.path).and_then(|mut output| {
            output.write_all(text.as_bytes())?;
            output.commit()
        });
        written.map_err(|source| self.unwritable(explain(source)))
    }

    fn unwritable(&self, source: io::Error) -> Unwritable {
        Unwritable { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        // Dropping one leaves what was there.
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
