//! Files that hold results: whole under their name, or not there at all. All outputs of superpage that have a name are made
//! here: traces, exports, machine files.
//!
//! What will be a file is written to one without a name in the same folder (`O_TMPFILE`), or where the file system has no such
//! files to one with a name that cannot be guessed and that must be new, and takes its place at the end. So what stands under
//! the name stays until then; several that write at once each write their own, and the last whole one stays; and no file or
//! link that another user may have put on the way is followed or overwritten. It knows nothing of what is in the files.
//!
//! And the way in for small files that people write: [`read_text`]; and what is said to the person who called: [`tell`].

mod beside;
mod foreign;
mod place;
mod small;
mod tell;

pub use foreign::{foreign, foreign_json};
pub use small::read_text;
pub use tell::tell;

use beside::Beside;
use place::{Place, There};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// A file that takes its name in [`Output::commit`], and is gone if dropped before.
#[derive(Debug)]
pub struct Output(To);

#[derive(Debug)]
enum To {
    /// What takes its place at the end.
    Whole(Box<Beside>),
    /// What cannot be replaced: a pipe, a terminal, an open file of this process.
    Direct(File),
}

impl Output {
    /// A file that will be `path`.
    ///
    /// A link stays one: what it leads to is replaced. A pipe or a device is written to directly, and so is an open file, as
    /// `/dev/stdout`, at its end. Of a file that is replaced, the mode is kept, and its owner and group where this user may do that.
    ///
    /// # Errors
    /// No such folder, no right to make a file there or to write to the file that is there, a folder by that name; or a link or
    /// a file that another user put into a folder where all may write, or into their own. The text says the way out.
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

    /// Whether [`Output::create`] could make `path` now. Leaves nothing there, and opens no pipe, which nobody may read yet.
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

    /// The file, for a writer that wants one of its own.
    ///
    /// # Errors
    /// The system refuses.
    pub fn file(&self) -> io::Result<File> {
        self.inner().try_clone()
    }

    /// Makes what was written last, and gives it its name.
    ///
    /// # Errors
    /// The system refuses; what was there before is still there.
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

/// Makes sure that writing `output` does not destroy `input`: that they are not the same file, under whatever names.
///
/// # Errors
/// They are ([`io::ErrorKind::InvalidInput`]). The text says the way out.
pub fn apart(input: &Path, output: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let file = |path: &Path| std::fs::metadata(path).ok().filter(|file| file.is_file());
    match (file(input), file(output)) {
        (Some(one), Some(other)) if (one.dev(), one.ino()) == (other.dev(), other.ino()) => {
            let text = "is the input too, and would be replaced; name another file to write";
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

/// Why a file cannot be made, with the way out.
fn refusal(source: io::Error) -> io::Error {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    match source.kind() {
        kind @ (IsADirectory | NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem) => {
            io::Error::new(kind, format!("{source}; name a file in a folder where this user may write"))
        }
        _ => source,
    }
}

/// The error of a write that failed, with the way out where the disk is full.
pub fn explain(source: io::Error) -> io::Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let way_out = match source.kind() {
        StorageFull | QuotaExceeded => "free some space or write to another place",
        FileTooLarge => "free some space, write to another place or raise the limit (ulimit -f)",
        _ => return source,
    };
    io::Error::new(source.kind(), format!("{source}; no new file was left there: {way_out}"))
}
