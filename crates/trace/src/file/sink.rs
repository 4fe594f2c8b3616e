//! Where bytes go: to a file that gets its name when it is complete, or to anything else that takes them.

use std::io::{self, Write};
use std::path::Path;
use superpage_output::Output;

/// An output that takes its name when it is complete, or leaves nothing behind.
pub(crate) struct Sink {
    out: Box<dyn Write + Send>,
    /// The file, where there is one.
    output: Option<Output>,
}

impl Sink {
    /// A file that will be `path`, as [`Output::create`] has it.
    pub(crate) fn file(path: &Path) -> io::Result<Sink> {
        let output = Output::create(path)?;
        Ok(Sink { out: Box::new(output.file()?), output: Some(output) })
    }

    /// Takes the output out, for one that wants to own it; it must be flushed before [`Sink::commit`].
    pub(crate) fn take(&mut self) -> Box<dyn Write + Send> {
        std::mem::replace(&mut self.out, Box::new(io::empty()))
    }

    /// An output without a name.
    pub(crate) fn plain(out: Box<dyn Write + Send>) -> Sink {
        Sink { out, output: None }
    }

    /// Makes what was written last and gives it its name.
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
