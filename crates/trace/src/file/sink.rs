//! The destination of bytes: a file that gets its name when it is complete, or any other writer.

use std::io::{self, Write};
use std::path::Path;
use superpage_output::Output;

/// An output that gets its name when it is complete, or is removed.
pub(crate) struct Sink {
    out: Box<dyn Write + Send>,
    /// The file, where there is one.
    output: Option<Output>,
}

impl Sink {
    /// A file that will become `path`, by [`Output::create`].
    pub(crate) fn file(path: &Path) -> io::Result<Sink> {
        let output = Output::create(path)?;
        Ok(Sink { out: Box::new(output.file()?), output: Some(output) })
    }

    /// Takes the writer out, for a user that wants to own it; it must be flushed before
    /// [`Sink::commit`].
    pub(crate) fn take(&mut self) -> Box<dyn Write + Send> {
        std::mem::replace(&mut self.out, Box::new(io::empty()))
    }

    /// An output without a name.
    pub(crate) fn plain(out: Box<dyn Write + Send>) -> Sink {
        Sink { out, output: None }
    }

    /// Writes the rest and gives the file its name.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.out.flush()?;
        self.output.take().map_or(Ok(()), Output::commit)
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
