//! Result files: complete under their name, or not there at all. All named outputs of superpage are
//! created here: traces, exports, machine files.
//!
//! A file is written without a name in its folder (`O_TMPFILE`) or, if the file system does not
//! support that, under a new, unpredictable name, and takes its final name at the end. Until then a
//! file that has that name stays. Several writers at once each write their own file, and the last
//! complete one remains; and no file or link that another user may have planted is followed or
//! overwritten. This crate knows nothing of the contents of files.
//!
//! It also reads small files that people write ([`read_text`]), and prints messages for the user
//! ([`tell`]), with commands as a shell reads them ([`quoted`]).

mod beside;
mod directory;
mod foreign;
mod inputs;
mod place;
mod quoted;
mod room;
mod small;
mod tell;

pub use beside::remove_leftovers;
pub use directory::Directory;
pub use foreign::{foreign, foreign_json};
pub use inputs::protect_inputs;
pub use quoted::quoted;
pub use room::check_room;
pub use small::{open_regular, read_own_text, read_text};
pub use tell::tell;

use beside::Beside;
use place::{Place, There};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// A file that gets its name in [`Output::commit`], and is removed if dropped before.
#[derive(Debug)]
pub struct Output(To);

#[derive(Debug)]
enum To {
    /// A temporary file, which takes its name at the end.
    Whole(Box<Beside>),
    /// What cannot be replaced: a pipe, a terminal, an open file of this process.
    Direct(File),
}

impl Output {
    /// Begins a file that will become `path`.
    ///
    /// A link is followed, and its target is replaced. A pipe or a device is written to directly,
    /// and so is an open file, such as `/dev/stdout`, at its end. A replaced file keeps its mode,
    /// and its owner and group if this user may set them.
    ///
    /// # Errors
    /// The folder does not exist; no right to create a file there, or to write to the existing one;
    /// a folder has that name; or it is a link or a file that another user has put into a folder
    /// writable by all, or into their own. The text says what to do.
    pub fn create(path: &Path) -> io::Result<Output> {
        let made = Place::find(path).and_then(|Place { folder, name, there }| {
            let direct = |flags: OFlags| {
                let file = rustix::fs::openat(&folder, &name, OFlags::WRONLY | OFlags::CLOEXEC | flags, Mode::empty())?;
                Ok(To::Direct(file.into()))
            };
            match there {
                There::Regular(before) => Ok(To::Whole(Box::new(Beside::create(&folder, name, before)?))),
                There::Special => direct(OFlags::NOFOLLOW),
                There::Open => direct(OFlags::APPEND),
            }
        });
        made.map(Output).map_err(refusal)
    }

    /// Checks whether [`Output::create`] could create `path` now. Creates nothing, and opens no
    /// pipe, which nobody may read yet.
    ///
    /// # Errors
    /// Those of [`Output::create`].
    pub fn check(path: &Path) -> io::Result<()> {
        let Place { folder, name, there } = Place::find(path).map_err(refusal)?;
        match there {
            There::Regular(before) => Beside::create(&folder, name, before).map(drop).map_err(refusal),
            There::Special | There::Open => Ok(()),
        }
    }

    /// Refuses a named pipe and a socket, for a command with long work before it writes: it would
    /// wait then for a reader that may never come. An open file, such as `/dev/stdout`, may be a
    /// pipe.
    ///
    /// # Errors
    /// The path names one, or leads nowhere. The text says what to do.
    pub fn refuse_pipe(path: &Path) -> io::Result<()> {
        let Place { folder, name, there } = Place::find(path).map_err(refusal)?;
        let kind = || rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW);
        if matches!(there, There::Special)
            && [FileType::Fifo, FileType::Socket].contains(&FileType::from_raw_mode(kind()?.st_mode))
        {
            let text = "is a pipe or a socket, which may have no reader; name a regular file, or /dev/stdout";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    /// The file, for a writer that needs an owned one.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated.
    pub fn file(&self) -> io::Result<File> {
        self.inner().try_clone()
    }

    /// Writes what is left, and gives the file its name.
    ///
    /// # Errors
    /// A write or the renaming fails; a file that had the name before is still there.
    pub fn commit(self) -> io::Result<()> {
        match self.0 {
            To::Whole(beside) => beside.commit(),
            To::Direct(_) => Ok(()),
        }
    }

    fn inner(&self) -> &File {
        match &self.0 {
            To::Whole(beside) => beside.file(),
            To::Direct(file) => file,
        }
    }
}

/// Checks that writing `output` does not destroy `input`: that they are not the same file, under
/// whatever names.
///
/// # Errors
/// They are the same ([`io::ErrorKind::InvalidInput`]). The text says what to do.
pub fn apart(input: &Path, output: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let file = |path: &Path| std::fs::metadata(path).ok().filter(|file| file.is_file());
    match (file(input), file(output)) {
        (Some(one), Some(other)) if (one.dev(), one.ino()) == (other.dev(), other.ino()) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, inputs::ALSO))
        }
        _ => Ok(()),
    }
}

/// Checks that two files to be written are not one, whether it exists or not.
///
/// # Errors
/// They are one ([`io::ErrorKind::InvalidInput`]). The text says what to do.
pub fn distinct(one: &Path, other: &Path) -> io::Result<()> {
    let place = |path: &Path| match path.canonicalize() {
        Ok(path) => Some(path),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(folder.canonicalize().ok()?.join(path.file_name()?))
        }
    };
    match (place(one), place(other)) {
        (Some(one), Some(other)) if one == other => {
            let text = "is to be written twice; give each of the two a name";
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        _ => Ok(()),
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush()
    }
}

/// Why a file cannot be created, and what to do.
fn refusal(source: io::Error) -> io::Error {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    match source.kind() {
        kind @ (IsADirectory | NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem) => {
            io::Error::new(kind, format!("{source}; name a file in a folder where this user may write"))
        }
        _ => source,
    }
}

/// The error of a failed write, and what to do if the disk is full.
pub fn explain(source: io::Error) -> io::Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let files = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error);
    if source.raw_os_error().is_some_and(|number| files.contains(&number)) {
        return io::Error::new(source.kind(), format!("{source}; raise the limit (ulimit -n)"));
    }
    let way_out = match source.kind() {
        StorageFull | QuotaExceeded => "free some space or write to another place",
        FileTooLarge => "free some space, write to another place or raise the limit (ulimit -f)",
        _ => return source,
    };
    io::Error::new(source.kind(), format!("{source}; no new file was left there: {way_out}"))
}
