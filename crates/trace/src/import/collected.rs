//! Streams of accesses that a program makes up, piece by piece.

use super::regions::Touched;
use crate::file::{Reader, Writer};
use crate::{Batch, Error, Event, Info, ProcessId, RunBuilder, Source};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use superpage_pages::Access;

/// Collects accesses, and makes a [`Source`] of them. What they touch must be mapped before the
/// first, so they are kept, as a trace in memory: some 3 bytes for each that goes to another page
/// than the one before it, and next to nothing for others.
pub struct Collected {
    info: Info,
    touched: Touched,
    builder: RunBuilder,
    batch: Batch,
    writer: Writer,
    trace: Memory,
}

/// A trace file in memory, which its writer and whoever reads it later both hold.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Collected {
    /// None yet, of a workload with this name; with `lines` for runs of lines.
    ///
    /// # Errors
    /// The threads of the file's writer cannot be started.
    pub fn new(name: &str, lines: bool) -> Result<Collected, Error> {
        let (info, trace) = (Info { workload: name.into(), lines, ..Info::default() }, Memory::default());
        let builder = if lines { RunBuilder::of_lines() } else { RunBuilder::new() };
        let writer = Writer::new(trace.clone(), &info, &[])?;
        Ok(Collected { info, touched: Touched::default(), builder, batch: Batch::default(), writer, trace })
    }

    /// Adds a read or write of `bytes` bytes (0 counts as 1) at `address`, by the last of this many
    /// instructions; a fetch counts as a read.
    ///
    /// # Errors
    /// Those of [`Writer::write`].
    pub fn push(&mut self, access: Access, address: u64, bytes: u64, instructions: u64) -> Result<(), Error> {
        self.builder.instructions(instructions);
        match access {
            Access::Read | Access::Execute => self.builder.read(&mut self.batch, address, bytes),
            Access::Write => self.builder.write(&mut self.batch, address, bytes),
        }
        self.touched.access(Access::Read, address, bytes);
        if self.batch.runs.len() >= Batch::RUNS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.builder.close(&mut self.batch);
        self.writer.write(&self.batch)?;
        self.batch.clear();
        Ok(())
    }

    /// The stream: a mapping of each region of touched pages, as for an imported trace, and then
    /// the accesses.
    ///
    /// # Errors
    /// There are none, or those of [`Writer::finish`].
    pub fn finish(mut self) -> Result<Box<dyn Source>, Error> {
        if self.touched.is_empty() {
            return Err(Error::input(self.info.workload, "has no access"));
        }
        self.flush()?;
        self.writer.finish()?;
        let bytes = std::mem::take(&mut *self.trace.0.lock().unwrap_or_else(PoisonError::into_inner));
        let start = self.touched.events("list of accesses");
        // The mappings come first, from here.
        let reader = Reader::from_bytes(bytes, &self.info.workload, false)?.unchecked();
        Ok(Box::new(Stream { start, reader }))
    }
}

/// What was collected, as a source.
struct Stream {
    /// The events before the first run, until they have been returned.
    start: Vec<Event>,
    reader: Reader,
}

impl Source for Stream {
    fn info(&self) -> &Info {
        self.reader.info()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        if self.start.is_empty() {
            return self.reader.fill(batch);
        }
        batch.clear();
        batch.event(Event::Switch { process: ProcessId(0), thread: 0 });
        self.start.drain(..).for_each(|event| batch.event(event));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run: page, access, references and instructions.
    type Seen = (u64, Access, u32, u32);

    /// The events, and the runs.
    fn all(mut source: Box<dyn Source>) -> (Vec<Event>, Vec<Seen>) {
        let (mut events, mut runs, mut batch) = (Vec::new(), Vec::new(), Batch::default());
        while source.fill(&mut batch).unwrap() {
            events.extend(batch.events.iter().map(|(_, event)| event.clone()));
            runs.extend(batch.runs.iter().map(|run| (run.page(), run.access(), run.references, run.instructions)));
        }
        (events, runs)
    }

    #[test]
    fn what_is_touched_is_mapped_before() {
        let mut collected = Collected::new("mine", false).unwrap();
        for (access, address) in [(Access::Read, 0x5000), (Access::Read, 0x5008), (Access::Write, 0x9000)] {
            collected.push(access, address, 8, 3).unwrap();
        }
        let source = collected.finish().unwrap();
        assert_eq!((source.info().workload.as_str(), source.digest()), ("mine", None));
        let (events, runs) = all(source);
        assert!(matches!(events[..], [Event::Switch { .. }, Event::Note(_), Event::Map { start: 5, pages: 5, .. }]));
        assert_eq!(runs, [(5, Access::Read, 2, 3), (9, Access::Write, 1, 6)]);
    }

    #[test]
    fn more_than_a_batch_is_whole_and_none_is_refused() {
        let mut collected = Collected::new("many", true).unwrap();
        let many = 3 * Batch::RUNS as u64;
        (0..many).for_each(|i| collected.push(Access::Read, (i * 7 % many) << 12, 1, 1).unwrap());
        let (_, runs) = all(collected.finish().unwrap());
        let expected: Vec<u64> = (0..many).map(|i| i * 7 % many).collect();
        assert_eq!(runs.iter().map(|run| run.0).collect::<Vec<_>>(), expected);
        let error = Collected::new("none", false).unwrap().finish().err().unwrap();
        assert!(error.to_string().contains("none: has no access"), "{error}");
    }
}
