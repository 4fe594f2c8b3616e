//! Files with findings: looked at before anything runs, written when all is done.

use crate::Failure;
use std::path::{Path, PathBuf};
use superpage_report::Export;

/// The file of an option, if it was given. One that cannot be written is bad input.
pub(crate) fn create(path: Option<&PathBuf>) -> Result<Option<Export>, Failure> {
    let export = path.map(|path| Export::create(path)).transpose();
    export.map_err(|error| Failure::Usage(error.to_string()))
}

/// Puts the text there.
pub(crate) fn write(export: Export, text: &str) -> Result<(), Failure> {
    export.write(text).map_err(|error| Failure::Run(error.to_string()))
}

/// Refuses to write a file that is an input too.
pub(crate) fn apart(input: &Path, output: &Path) -> Result<(), Failure> {
    superpage_report::apart(input, output)
        .map_err(|error| Failure::Usage(format!("cannot write {}: {error}", output.display())))
}
