//! Result files: checked before anything runs, written when everything is done.

use crate::Failure;
use crate::print::print;
use crate::stop::Stop;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use superpage_output::Directory;
use superpage_report::Export;

/// The file of an option, if given. A file that cannot be written is bad input.
pub(crate) fn create(path: Option<&PathBuf>) -> Result<Option<Export>, Failure> {
    let export = path.map(|path| Export::create(path)).transpose();
    export.map_err(|error| Failure::Usage(error.to_string()))
}

/// Writes each of the files, even if another one fails, and then prints in any case: results that
/// took long to compute must appear somewhere. A signal ends that: a pipe that nobody reads is
/// waited for.
///
/// # Errors
/// [`Failure::Run`] with a sentence for each file that could not be written, and for a failure to
/// print.
pub(crate) fn write_and_print(
    files: impl IntoIterator<Item = (Export, String)>,
    findings: impl AsRef<[u8]>,
    stop: &Stop,
) -> Result<(), Failure> {
    stop.done();
    let mut failed = Vec::new();
    for (file, text) in files {
        failed.extend(file.write(&text).err().map(|error| error.to_string()));
    }
    if let Err(Failure::Run(sentence) | Failure::Usage(sentence)) = print(findings) {
        failed.push(sentence);
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Run(failed.join("\n"))) }
}

/// Refuses to write a file that is also an input.
pub(crate) fn apart(input: &Path, output: &Path) -> Result<(), Failure> {
    superpage_report::apart(input, output)
        .map_err(|error| Failure::Usage(format!("cannot write {}: {error}", output.display())))
}

/// Refuses to write two files of one name.
pub(crate) fn distinct(one: &Path, other: &Path) -> Result<(), Failure> {
    superpage_output::distinct(one, other)
        .map_err(|error| Failure::Usage(format!("cannot write {}: {error}", other.display())))
}

/// Refuses to write the program of a command, or a file that it is given.
pub(crate) fn apart_from_command(command: &[OsString], output: &Path) -> Result<(), Failure> {
    let program = superpage_trace::record::Command::new(command).file();
    let named = command.iter().map(PathBuf::from);
    program.into_iter().chain(named).try_for_each(|input| apart(&input, output))
}

/// Writes a file into a folder, at a path below it, with the folders on the way. No link below
/// `folder` is followed.
///
/// # Errors
/// A sentence that says what cannot be written, and why.
pub(crate) fn write_below(folder: &Path, path: &str, text: &[u8]) -> Result<(), String> {
    let written = || {
        let mut names: Vec<&str> = path.split('/').collect();
        let name = names.pop().expect("a path has a name");
        let folder = names.into_iter().try_fold(Directory::make(folder)?, |at, name| at.sub(name, true))?;
        let output = folder.create(name)?;
        output.file()?.write_all(text)?;
        output.commit()
    };
    written().map_err(|error| format!("cannot write {}/{path}: {}", folder.display(), superpage_output::explain(error)))
}
