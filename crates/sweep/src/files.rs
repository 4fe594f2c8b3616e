//! The files that machines and policies name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

/// The files of machines and policies, each read once: what is digested is what runs, whatever is
/// written to a file meanwhile.
#[derive(Default)]
pub(crate) struct Files(RefCell<HashMap<String, String>>);

impl Files {
    /// The contents of a file.
    ///
    /// # Errors
    /// Those of [`superpage_output::read_text`].
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        if let Some(text) = self.0.borrow().get(path) {
            return Ok(text.clone());
        }
        let text = superpage_output::read_text(path.as_ref())?;
        self.0.borrow_mut().insert(path.into(), text.clone());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_meanwhile_is_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        let (files, name) = (Files::default(), path.to_str().unwrap());
        assert!(files.read(name).is_err());
        std::fs::write(&path, "one").unwrap();
        assert_eq!(files.read(name).unwrap(), "one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(files.read(name).unwrap(), "one");
    }
}
