//! Where a file goes: beside its name until it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An output that takes its name when it is complete, or leaves nothing behind.
pub(crate) struct Sink {
    out: Box<dyn Write + Send>,
    names: Option<Names>,
}

struct Names {
    part: PathBuf,
    whole: PathBuf,
    file: File,
}

impl Sink {
    /// A file that will be `path`; or `path` itself where it is no regular file, as a pipe or a terminal.
    pub(crate) fn file(path: &Path) -> io::Result<Sink> {
        match fs::metadata(path) {
            Ok(data) if data.is_dir() => {
                return Err(io::Error::new(
                    io::ErrorKind::IsADirectory,
                    "is a directory; expected the name of a file to write",
                ));
            }
            Ok(data) if !data.is_file() => return Ok(Sink::plain(Box::new(File::options().write(true).open(path)?))),
            _ => {}
        }
        // A link keeps pointing where it points: what it leads to is replaced.
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut part = whole.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part)?;
        let out = Box::new(file.try_clone()?);
        Ok(Sink { out, names: Some(Names { part, whole, file }) })
    }

    /// Takes the output out, for one that wants to own it; it must be flushed before [`Sink::commit`].
    pub(crate) fn take(&mut self) -> Box<dyn Write + Send> {
        std::mem::replace(&mut self.out, Box::new(io::empty()))
    }

    /// An output without a name.
    pub(crate) fn plain(out: Box<dyn Write + Send>) -> Sink {
        Sink { out, names: None }
    }

    /// Makes what was written last and gives it its name.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.out.flush()?;
        if let Some(names) = &self.names {
            names.file.sync_all()?;
            fs::rename(&names.part, &names.whole)?;
        }
        self.names = None;
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(names) = &self.names {
            // Nothing can be done about a file that cannot be removed, and the error that led here matters more.
            let _ = fs::remove_file(&names.part);
        }
    }
}

/// The error of a failed write, with the way out where the disk is full.
pub(crate) fn explain(source: io::Error) -> io::Error {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => io::Error::new(
            source.kind(),
            format!("{source}; nothing was kept: free some space or write to another place"),
        ),
        _ => source,
    }
}
